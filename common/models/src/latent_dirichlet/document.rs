//! E-step of one document: coordinate ascent on q(θ) and q(z) from a start that no data decides.
//!
//! Start γ = α + N/K; a sweep sets φ_kv ∝ exp(E ln θ_k + E ln β_kv) and γ = α + Σ_v counts_v φ_kv; statistics are counts_v φ_kv at the
//! last γ. ψ(Σγ) and the largest weight of a word cancel in φ, so a sweep is, with e_k = exp(ψ(γ_k) − max) and the topics' weights B:
//! γ_k = α + e_k Σ_v B_vk counts_v/(Bᵥᵀe). φ is never formed, a row of B is read once per sweep, and K digammas and exponentials are all
//! that is not a product.

use dp_pvi_math::expfam::special::{digamma, ln_gamma};

use super::Topics;

/// When the sweeps end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sweeps {
    /// After this many, whatever the document says: the only choice for private documents, where time must not depend on them.
    Exactly(u32),
    /// When no γ changes by more than 1e-13, after 5,000 at most: for public documents.
    Converged,
}

/// How long a document counts as.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DocumentLength {
    /// Counts as they are.
    AsIs,
    /// Counts scaled so that they sum to this N: what drawing N words with replacement gives on average over the draws, without
    /// their variance, and with the same bound N on the statistics' norm.
    Exactly(f64),
    /// As [`Self::Exactly`] for documents that are longer; shorter ones as they are.
    AtMost(f64),
}

impl DocumentLength {
    /// The factor on the counts of a document that has this many words.
    #[must_use]
    pub fn factor(self, words: f64) -> f64 {
        match self {
            Self::AsIs => 1.0,
            Self::Exactly(length) => length / words,
            Self::AtMost(length) => (length / words).min(1.0),
        }
    }

    /// Largest norm of a document's statistics, attained by one word in one topic.
    #[must_use]
    pub fn sensitivity(self) -> f64 {
        match self {
            Self::AsIs => f64::INFINITY,
            Self::Exactly(length) | Self::AtMost(length) => length,
        }
    }
}

/// One document at its variational optimum (or after its sweeps). Reused from document to document: nothing is allocated once the
/// buffers have grown.
#[derive(Debug, Default)]
pub struct Document {
    /// γ.
    gamma: Vec<f64>,
    /// exp(ψ(γ_k) − max).
    theta: Vec<f64>,
    sums: Vec<f64>,
    /// Weights of the document's words, side by side.
    rows: Vec<f64>,
    /// Scaled counts.
    counts: Vec<f64>,
    /// Bᵥᵀe at the last γ.
    norms: Vec<f64>,
}

impl Document {
    /// Runs the E-step. `indices` are ascending word numbers, `counts` how often they occur.
    ///
    /// Returns `false`, and leaves no result, for a document without words and for counts that are negative or not finite.
    #[must_use]
    pub fn fit(&mut self, topics: &Topics, length: DocumentLength, indices: &[u32], counts: &[f64], sweeps: Sweeps) -> bool {
        let total: f64 = counts.iter().sum();
        let factor = length.factor(total);
        if !(total > 0.0 && total.is_finite() && factor.is_finite() && counts.iter().all(|c| *c >= 0.0)) {
            return false;
        }
        let shape = *topics.shape();
        self.rows.clear();
        indices.iter().for_each(|&v| self.rows.extend_from_slice(topics.row(v as usize)));
        self.counts.clear();
        self.counts.extend(counts.iter().map(|c| c * factor));
        #[allow(clippy::cast_precision_loss, reason = "a number of topics")]
        let start = shape.alpha() + total * factor / shape.topics() as f64;
        for (buffer, value) in [(&mut self.gamma, start), (&mut self.theta, 0.0), (&mut self.sums, 0.0)] {
            buffer.clear();
            buffer.resize(shape.topics(), value);
        }
        match sweeps {
            Sweeps::Exactly(count) => (0..count).for_each(|_| {
                self.sweep(shape.alpha());
            }),
            Sweeps::Converged => {
                for _ in 0..MOST_SWEEPS {
                    if self.sweep(shape.alpha()) < TOLERANCE {
                        break;
                    }
                }
            }
        }
        self.proportions();
        self.norms.clear();
        let theta = &self.theta;
        self.norms.extend(self.rows.chunks_exact(theta.len()).map(|row| dot(row, theta)));
        true
    }

    /// γ.
    #[must_use]
    pub fn gamma(&self) -> &[f64] {
        &self.gamma
    }

    /// Expected share of every topic in the document: E θ.
    #[must_use]
    pub fn shares(&self) -> Vec<f64> {
        let total: f64 = self.gamma.iter().sum();
        self.gamma.iter().map(|g| g / total).collect()
    }

    /// φ of the document's i-th word, for every topic.
    pub fn phi(&self, word: usize) -> impl Iterator<Item = f64> {
        let row = &self.rows[word * self.theta.len()..][..self.theta.len()];
        let norm = self.norms[word];
        row.iter().zip(&self.theta).map(move |(b, e)| b * e / norm)
    }

    /// Statistics counts_v φ_kv of the document's words in ascending coordinates v·K + k.
    pub fn statistics<'a>(&'a self, indices: &'a [u32]) -> impl Iterator<Item = (u32, f64)> + 'a {
        let topics = self.theta.len();
        let words = indices.iter().zip(self.rows.chunks_exact(topics)).zip(self.counts.iter().zip(&self.norms));
        words.flat_map(move |((&word, row), (count, norm))| {
            let scale = count / norm;
            #[allow(clippy::cast_possible_truncation, reason = "a shape has fewer than 2^32 coordinates")]
            let first = word * topics as u32;
            (first..).zip(row.iter().zip(&self.theta).map(move |(b, e)| scale * (b * e)))
        })
    }

    /// The document's share of the lower bound, in nats, and its number of words; without the topics' KL.
    #[must_use]
    pub fn bound(&self, topics: &Topics, indices: &[u32]) -> (f64, f64) {
        let alpha = topics.shape().alpha();
        let words: f64 = self.counts.iter().sum();
        let total: f64 = self.gamma.iter().sum();
        let psi_total = digamma(total);
        // θ is scaled by its largest entry, which is that of the largest γ.
        let scale = self.gamma.iter().copied().fold(0.0, f64::max);
        let offset = digamma(scale) - psi_total;
        let likelihood: f64 = indices
            .iter()
            .zip(self.counts.iter().zip(&self.norms))
            .map(|(&v, (count, norm))| count * (norm.ln() + topics.largest[v as usize] + offset))
            .sum();
        let divergence: f64 = self.gamma.iter().map(|&g| (alpha - g) * (digamma(g) - psi_total) + ln_gamma(g) - ln_gamma(alpha)).sum();
        #[allow(clippy::cast_precision_loss, reason = "a number of topics")]
        let k = self.gamma.len() as f64;
        (likelihood + divergence + ln_gamma(k * alpha) - ln_gamma(total), words)
    }

    /// θ from γ.
    fn proportions(&mut self) {
        let top = digamma(self.gamma.iter().copied().fold(0.0, f64::max));
        self.theta.iter_mut().zip(&self.gamma).for_each(|(e, &g)| *e = (digamma(g) - top).exp());
    }

    /// One sweep; returns the largest change of γ.
    fn sweep(&mut self, alpha: f64) -> f64 {
        self.proportions();
        self.sums.fill(0.0);
        for (row, count) in self.rows.chunks_exact(self.theta.len()).zip(&self.counts) {
            let ratio = count / dot(row, &self.theta);
            self.sums.iter_mut().zip(row).for_each(|(sum, b)| *sum += ratio * b);
        }
        let mut change = 0.0_f64;
        for ((gamma, e), sum) in self.gamma.iter_mut().zip(&self.theta).zip(&self.sums) {
            let new = alpha + e * sum;
            change = change.max((new - *gamma).abs());
            *gamma = new;
        }
        change
    }
}

/// Of [`Sweeps::Converged`].
const MOST_SWEEPS: u32 = 5_000;
/// Of [`Sweeps::Converged`].
const TOLERANCE: f64 = 1e-13;

/// Eight running sums, so that additions do not wait for each other.
#[inline]
fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a_chunks, a_rest), (b_chunks, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for i in 0..8 {
            sums[i] += x[i] * y[i];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])) + rest
}
