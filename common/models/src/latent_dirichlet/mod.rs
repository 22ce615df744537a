//! Latent Dirichlet allocation, public side: topics, M-step, what the topics say, and the E-step of one
//! document, which sites apply to their records and an evaluator to public ones.
//!
//! Topics β_k ~ Dir(η), proportions θ_d ~ Dir(α), every word a topic z ~ θ_d and a word from β_z; q(β_k) = Dir(λ_k), q(θ_d) = Dir(γ_d).
//!
//! λ and every statistic are stored word by word: coordinate v·K + k is topic k of word v. A document then touches whole stretches
//! of K coordinates in ascending order.
//!
//! **Assumes** a schema of documents as word counts with a public length. **Defaults**: α and η are 1 over the number of topics. **When**: topics of
//! documents, with `update = "vips"`. **Source**: Blei, Ng and Jordan 2003; Park et al. 2020 (with protection).

pub mod denoise;
pub mod document;
pub mod perplexity;
pub mod recovery;
mod task;

#[cfg(test)]
mod tests;

pub use task::LatentDirichletSpec;

use dp_pvi_math::expfam::special::digamma;
use dp_pvi_math::start::uniform;

/// Smallest Dirichlet parameter. exp ψ(1/512) is 1e-223: products of two such weights, one of which is scaled to 1, stay above the
/// smallest number, so that no word of a document loses all its topics to underflow.
pub(crate) const SMALLEST_CONCENTRATION: f64 = 1.0 / 512.0;

/// Numbers that are no topic model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LdaError {
    /// α or η.
    #[error("alpha and eta must be finite and at least 1/512")]
    Concentration,
    /// K or V.
    #[error("a topic model needs at least one topic and one word, and topics times words below 2^32")]
    Size,
    /// λ.
    #[error("lambda must have topics times words finite entries of at least 1/512")]
    Topics,
}

/// Sizes and priors of a topic model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    topics: usize,
    words: usize,
    alpha: f64,
    eta: f64,
}

impl Shape {
    /// K topics over V words with symmetric priors α and η.
    ///
    /// # Errors
    /// A size of 0, more than 2³² coordinates, or a prior below `SMALLEST_CONCENTRATION`.
    pub fn new(topics: u32, words: u32, alpha: f64, eta: f64) -> Result<Self, LdaError> {
        if topics == 0 || words == 0 || topics.checked_mul(words).is_none() {
            return Err(LdaError::Size);
        }
        if ![alpha, eta].iter().all(|p| p.is_finite() && *p >= SMALLEST_CONCENTRATION) {
            return Err(LdaError::Concentration);
        }
        Ok(Self { topics: topics as usize, words: words as usize, alpha, eta })
    }

    /// K.
    #[must_use]
    pub fn topics(&self) -> usize {
        self.topics
    }

    /// V.
    #[must_use]
    pub fn words(&self) -> usize {
        self.words
    }

    /// α.
    #[must_use]
    pub fn alpha(&self) -> f64 {
        self.alpha
    }

    /// η.
    #[must_use]
    pub fn eta(&self) -> f64 {
        self.eta
    }

    /// K·V: coordinates of λ and of the statistics.
    #[must_use]
    pub fn coordinates(&self) -> usize {
        self.topics * self.words
    }

    /// Where the iteration starts: η + `mass` spread over all coordinates with factors in [½, 3/2) from a public seed. Topics that
    /// start equal stay equal, so something must tell them apart, and it must not be data.
    #[must_use]
    pub fn start(&self, seed: u64, mass: f64) -> Vec<f64> {
        #[allow(clippy::cast_precision_loss, reason = "below 2^32")]
        let each = mass / self.coordinates() as f64;
        let mut state = seed;
        (0..self.coordinates()).map(|_| self.eta + each * (0.5 + uniform(&mut state))).collect()
    }

    /// M-step: λ' = (1−ρ)λ + ρ(η + max(ŝ, 0)), where ŝ is the released sum of the statistics over all documents (divided by the
    /// sampling rate).
    ///
    /// The clamp adds mass to cells that hold only noise; a projection that keeps the mass was measured to be worse, because that
    /// bias smooths and isolated spikes of noise do not.
    ///
    /// # Panics
    /// A slice has another length than [`Self::coordinates`].
    #[must_use]
    pub fn m_step(&self, lambda: &[f64], rho: f64, statistics: &[f64]) -> Vec<f64> {
        assert!(lambda.len() == self.coordinates() && statistics.len() == self.coordinates(), "statistics of another shape");
        lambda.iter().zip(statistics).map(|(l, s)| (1.0 - rho) * l + rho * (self.eta + s.max(0.0))).collect()
    }
}

/// q(β) = Π_k Dir(λ_k), prepared for E-steps: exp E ln β_kv once per word and topic.
#[derive(Debug, Clone, PartialEq)]
pub struct Topics {
    shape: Shape,
    lambda: Vec<f64>,
    /// exp(E ln β_kv − m_v), where m_v is the largest over k: the largest weight of a word is 1.
    weights: Vec<f64>,
    /// m_v.
    largest: Vec<f64>,
}

impl Topics {
    /// From λ, word by word.
    ///
    /// # Errors
    /// Another length, or an entry below `SMALLEST_CONCENTRATION`.
    pub fn new(shape: Shape, lambda: Vec<f64>) -> Result<Self, LdaError> {
        if lambda.len() != shape.coordinates() || !lambda.iter().all(|l| l.is_finite() && *l >= SMALLEST_CONCENTRATION) {
            return Err(LdaError::Topics);
        }
        let totals = column_sums(&lambda, shape.topics);
        let normalisers: Vec<f64> = totals.iter().map(|&total| digamma(total)).collect();
        let mut weights = Vec::with_capacity(lambda.len());
        let mut largest = Vec::with_capacity(shape.words);
        for row in lambda.chunks_exact(shape.topics) {
            let start = weights.len();
            weights.extend(row.iter().zip(&normalisers).map(|(&l, normaliser)| digamma(l) - normaliser));
            let top = weights[start..].iter().copied().fold(f64::NEG_INFINITY, f64::max);
            weights[start..].iter_mut().for_each(|w| *w = (*w - top).exp());
            largest.push(top);
        }
        Ok(Self { shape, lambda, weights, largest })
    }

    /// Sizes and priors.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// λ, word by word.
    #[must_use]
    pub fn lambda(&self) -> &[f64] {
        &self.lambda
    }

    /// E β, topic by topic: row k sums to 1.
    #[must_use]
    pub fn distributions(&self) -> Vec<Vec<f64>> {
        let totals = column_sums(&self.lambda, self.shape.topics);
        let share = |k: usize| self.lambda.iter().skip(k).step_by(self.shape.topics).map(|l| l / totals[k]).collect();
        (0..self.shape.topics).map(share).collect()
    }

    /// Mean and variance of every word's probability in every topic, word by word.
    #[must_use]
    pub fn moments(&self) -> Vec<[f64; 2]> {
        let totals = column_sums(&self.lambda, self.shape.topics);
        let moment = |(l, total): (&f64, &f64)| {
            let mean = l / total;
            // (total − l)/total without the cancellation of 1 − mean.
            [mean, mean * ((total - l) / total) / (total + 1.0)]
        };
        self.lambda.chunks_exact(self.shape.topics).flat_map(|row| row.iter().zip(&totals).map(moment)).collect()
    }

    /// The `count` most probable words of a topic, with their probabilities.
    ///
    /// # Panics
    /// There is no such topic.
    #[cfg(test)]
    pub(crate) fn top_words(&self, topic: usize, count: usize) -> Vec<(usize, f64)> {
        assert!(topic < self.shape.topics, "no such topic");
        let total: f64 = self.lambda.iter().skip(topic).step_by(self.shape.topics).sum();
        let probabilities = self.lambda.iter().skip(topic).step_by(self.shape.topics).map(|l| l / total);
        let mut words: Vec<(usize, f64)> = probabilities.enumerate().collect();
        words.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        words.truncate(count);
        words
    }

    /// The weights of one word, the largest of which is 1.
    #[inline]
    fn row(&self, word: usize) -> &[f64] {
        &self.weights[word * self.shape.topics..][..self.shape.topics]
    }
}

/// Σ_v λ_kv for every k.
fn column_sums(lambda: &[f64], topics: usize) -> Vec<f64> {
    let mut sums = vec![0.0; topics];
    for row in lambda.chunks_exact(topics) {
        sums.iter_mut().zip(row).for_each(|(sum, l)| *sum += l);
    }
    sums
}
