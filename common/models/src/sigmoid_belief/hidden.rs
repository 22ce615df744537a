//! E-step of a batch of images: coordinate ascent on q(h) from π = σ(b), a start that no data decides, for a fixed number of sweeps.
//!
//! A sweep computes t = E W π + c and E ω_j = tanh(t_j/2)/(2t_j), then for every hidden unit in turn
//! π_k = σ(b_k + Σ_j E W_jk (v_j − ½ − E ω_j (t_j − E W_jk π_k)) − ½ Σ_j E ω_j E W_jk²) and t_j += E W_jk (π_k new − π_k old).
//!
//! What does not change within a sweep is a matrix product over the batch: Σ_j E W_jk (v_j − ½), Σ_j E ω_j (E W_jk)² and
//! Σ_j E ω_j Var W_jk. The turn of a hidden unit then needs Σ_j E W_jk r_j with r = E ω∘t, and r moves with t: one pass over r brings the
//! change of the last unit and the sum for the next.

use std::borrow::Cow;

use dp_pvi_math::expfam::gaussian::full::triangle;
use nalgebra::{DMatrix, DVector};

use super::{BLOCKS, Network, Shape};
use dp_pvi_math::polya_gamma;

/// Images with their hidden units' posterior; a column is an image. Reused from batch to batch.
#[derive(Debug, Clone)]
pub struct Batch {
    /// v.
    visible: DMatrix<f64>,
    /// π = E h.
    hidden: DMatrix<f64>,
    /// E ω of the last sweep.
    omega: DMatrix<f64>,
}

/// What of a network every batch needs, computed once.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared<'a> {
    network: Cow<'a, Network>,
    /// E W transposed.
    transposed: DMatrix<f64>,
    /// (E W)² and Var W, transposed, one above the other.
    curvatures: DMatrix<f64>,
    /// σ(b).
    start: DVector<f64>,
}

impl<'a> Prepared<'a> {
    /// Prepares a network.
    #[must_use]
    pub fn new(network: &'a Network) -> Self {
        Self::of(Cow::Borrowed(network))
    }

    /// Prepares a network and keeps it.
    #[must_use]
    pub fn owned(network: Network) -> Prepared<'static> {
        Prepared::of(Cow::Owned(network))
    }

    fn of(network: Cow<'a, Network>) -> Self {
        let (j, k) = network.weights.shape();
        let mut curvatures = DMatrix::zeros(2 * k, j);
        curvatures.rows_mut(0, k).copy_from(&network.weights.component_mul(&network.weights).transpose());
        curvatures.rows_mut(k, k).copy_from(&network.variances.transpose());
        let (transposed, start) = (network.weights.transpose(), network.hidden_bias.map(sigmoid));
        Self { network, transposed, curvatures, start }
    }

    /// J and K.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.network.shape
    }

    /// Runs the E-step on images, given as the columns of a matrix of numbers between 0 and 1. Every image's result depends on that
    /// image only, to the last bit: batches are filled up with empty images to a multiple of a tile of the matrix product, which treats
    /// full tiles alike.
    ///
    /// # Panics
    /// The images have another number of pixels than the network has visible units.
    #[must_use]
    pub fn fit(&self, images: DMatrix<f64>, sweeps: u32) -> Batch {
        let real = images.ncols();
        let filled = images.resize_horizontally(real.next_multiple_of(TILE), 0.0);
        let cut = |matrix: DMatrix<f64>| matrix.resize_horizontally(real, 0.0);
        let Batch { visible, hidden, omega } = self.ascend(filled, sweeps);
        Batch { visible: cut(visible), hidden: cut(hidden), omega: cut(omega) }
    }

    /// The E-step of one image by itself: other roundings than in a batch.
    ///
    /// # Panics
    /// The image has another number of pixels than the network has visible units.
    #[must_use]
    pub fn fit_one(&self, image: Vec<f64>, sweeps: u32) -> Batch {
        self.ascend(DMatrix::from_vec(image.len(), 1, image), sweeps)
    }

    fn ascend(&self, images: DMatrix<f64>, sweeps: u32) -> Batch {
        let network = self.network.as_ref();
        let (visible, hidden) = network.weights.shape();
        assert_eq!(images.nrows(), visible, "images of another size");
        let count = images.ncols();
        let mut pi = DMatrix::from_fn(hidden, count, |k, _| self.start[k]);
        let mut omega = DMatrix::zeros(visible, count);
        let evidence = &self.transposed * images.map(|v| v - 0.5);
        let mut residual = DMatrix::zeros(visible, count);
        let mut curvature = DMatrix::zeros(2 * hidden, count);
        for _ in 0..sweeps {
            residual.gemm(1.0, &network.weights, &pi, 0.0);
            for (mut t, mut omega) in residual.column_iter_mut().zip(omega.column_iter_mut()) {
                for ((t, omega), c) in t.iter_mut().zip(omega.iter_mut()).zip(&network.visible_bias) {
                    let argument = *t + c;
                    *omega = polya_gamma::mean(argument);
                    *t = *omega * argument;
                }
            }
            curvature.gemm(1.0, &self.curvatures, &omega, 0.0);
            for image in 0..count {
                let mut turn =
                    Turn { weights: network.weights.as_slice(), omega: column(&omega, image), residual: column_mut(&mut residual, image) };
                let (evidence, curvature) = (column(&evidence, image), column(&curvature, image));
                let pi = column_mut(&mut pi, image);
                let mut projection = turn.first();
                for k in 0..hidden {
                    let correction = (pi[k] - 0.5) * curvature[k] - 0.5 * curvature[hidden + k];
                    let new = sigmoid(network.hidden_bias[k] + evidence[k] - projection + correction);
                    let change = new - pi[k];
                    pi[k] = new;
                    projection = turn.next(k, change);
                }
            }
        }
        let [mut visible, mut hidden, mut omega] = [images, pi, omega];
        [&mut visible, &mut hidden, &mut omega].into_iter().for_each(round_down);
        Batch { visible, hidden, omega }
    }
}

/// Makes 0 what is so small that products of three of it and of public scales would lose digits. The numbers of a batch are at most 1, so
/// norms and sums, which are made of the same numbers, then have no product that vanishes.
fn round_down(numbers: &mut DMatrix<f64>) {
    numbers.iter_mut().filter(|x| x.abs() < SMALLEST).for_each(|x| *x = 0.0);
}

/// Least number of a batch that is not 0: 2⁻¹⁵⁰.
const SMALLEST: f64 = 1.0 / ((1u128 << 75) as f64 * (1u128 << 75) as f64);

/// Columns of a batch are a multiple of this: of every tile width of the matrix product, and above the size below which it takes
/// another way.
const TILE: usize = 32;

/// The turns of one image's hidden units.
struct Turn<'a> {
    /// E W, column by column.
    weights: &'a [f64],
    omega: &'a [f64],
    /// r = ω∘t.
    residual: &'a mut [f64],
}

impl Turn<'_> {
    /// Σ_j E W_j0 r_j.
    fn first(&self) -> f64 {
        self.weights.iter().zip(self.residual.iter()).map(|(w, r)| w * r).sum()
    }

    /// r += change · ω∘w_k, and Σ_j E W_{j,k+1} r_j (0 after the last).
    #[inline]
    fn next(&mut self, k: usize, change: f64) -> f64 {
        let visible = self.residual.len();
        let old = &self.weights[k * visible..][..visible];
        let new = &self.weights[((k + 1) * visible).min(self.weights.len() - visible)..][..visible];
        let (r_chunks, r_rest) = self.residual.as_chunks_mut::<8>();
        let ((o_chunks, o_rest), (old_chunks, old_rest), (new_chunks, new_rest)) =
            (self.omega.as_chunks::<8>(), old.as_chunks::<8>(), new.as_chunks::<8>());
        let mut sums = [0.0; 8];
        for (((r, omega), old), new) in r_chunks.iter_mut().zip(o_chunks).zip(old_chunks).zip(new_chunks) {
            for i in 0..8 {
                r[i] += change * omega[i] * old[i];
                sums[i] += new[i] * r[i];
            }
        }
        let mut rest = 0.0;
        for (((r, omega), old), new) in r_rest.iter_mut().zip(o_rest).zip(old_rest).zip(new_rest) {
            *r += change * omega * old;
            rest += new * *r;
        }
        ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])) + rest
    }
}

impl Batch {
    /// π of an image.
    #[must_use]
    pub fn hidden(&self, image: usize) -> &[f64] {
        column(&self.hidden, image)
    }

    /// E ω of an image.
    #[must_use]
    pub fn omega(&self, image: usize) -> &[f64] {
        column(&self.omega, image)
    }

    /// E hhᵀ = ππᵀ + diag π(1−π) of an image, in svec form.
    pub fn pairs(&self, image: usize) -> impl Iterator<Item = f64> {
        pairs(self.hidden(image))
    }

    /// Norms of the six statistics of an image. They factor, so nothing of the size of the statistics is formed.
    #[must_use]
    pub fn norms(&self, image: usize) -> [f64; BLOCKS] {
        let norm = |values: &[f64]| values.iter().map(|v| v * v).sum::<f64>().sqrt();
        let (v, pi, omega) = (norm(column(&self.visible, image)), norm(self.hidden(image)), norm(self.omega(image)));
        let pairs = self.pairs(image).map(|p| p * p).sum::<f64>().sqrt();
        [v, pi, v * pi, omega, omega * pi, omega * pairs]
    }

    /// Adds Σ_i factor_i/scale_b · statistic_b(image i) to `sums`, block by block, as matrix products over the batch. Images with factor 0
    /// are not touched.
    ///
    /// # Panics
    /// A slice has another length.
    pub fn add_statistics(&self, factors: &[f64], scales: &[f64; BLOCKS], sums: &mut [f64]) {
        let (visible, hidden) = (self.visible.nrows(), self.hidden.nrows());
        assert_eq!(factors.len(), self.visible.ncols(), "one factor for every image");
        let kept: Vec<usize> = (0..factors.len()).filter(|&i| factors[i] != 0.0).collect();
        let inverse = scales.map(f64::recip);
        let v = DMatrix::from_fn(visible, kept.len(), |j, i| self.visible[(j, kept[i])] * factors[kept[i]]);
        let omega = DMatrix::from_fn(visible, kept.len(), |j, i| self.omega[(j, kept[i])] * factors[kept[i]]);
        let pi = DMatrix::from_fn(hidden, kept.len(), |k, i| self.hidden[(k, kept[i])]);
        let mut pairs = DMatrix::zeros(triangle(hidden), kept.len());
        for (mut column, &i) in pairs.column_iter_mut().zip(&kept) {
            column.iter_mut().zip(self.pairs(i)).for_each(|(out, value)| *out = value);
        }
        let mut rest = sums;
        for (b, block) in
            [(&v, None), (&pi, None), (&v, Some(&pi)), (&omega, None), (&omega, Some(&pi)), (&omega, Some(&pairs))].into_iter().enumerate()
        {
            match block {
                (left, None) => {
                    let out = advance(&mut rest, left.nrows());
                    // π carries no factor yet.
                    let weight = |i: usize| inverse[b] * if b == 1 { factors[kept[i]] } else { 1.0 };
                    for (i, column) in left.column_iter().enumerate() {
                        out.iter_mut().zip(column.iter()).for_each(|(out, value)| *out += weight(i) * value);
                    }
                }
                (left, Some(right)) => {
                    // Pairs are stored visible unit by visible unit: as a matrix by columns that is right · leftᵀ.
                    let out = advance(&mut rest, left.nrows() * right.nrows());
                    let mut out = nalgebra::DMatrixViewMut::from_slice(out, right.nrows(), left.nrows());
                    out.gemm(inverse[b], right, &left.transpose(), 1.0);
                }
            }
        }
        assert!(rest.is_empty(), "sums of another network");
    }
}

/// The next `length` entries of a slice.
fn advance<'a>(rest: &mut &'a mut [f64], length: usize) -> &'a mut [f64] {
    let (block, after) = std::mem::take(rest).split_at_mut(length);
    *rest = after;
    block
}

/// svec of ππᵀ + diag π(1−π).
fn pairs(pi: &[f64]) -> impl Iterator<Item = f64> {
    pi.iter().enumerate().flat_map(move |(k, p)| {
        let scaled = p * std::f64::consts::SQRT_2;
        std::iter::once(*p).chain(pi[k + 1..].iter().map(move |other| scaled * other))
    })
}

/// Reconstruction of public images and its quality.
#[derive(Debug, Clone, PartialEq)]
pub struct Reconstruction {
    /// P(v_j = 1 | π), pixels × images.
    pub probabilities: DMatrix<f64>,
    /// Share of pixels that are right at threshold ½.
    pub accuracy: f64,
}

impl Prepared<'_> {
    /// What the hidden units of public images say about their pixels.
    #[must_use]
    pub fn reconstruct(&self, images: DMatrix<f64>, sweeps: u32) -> Reconstruction {
        self.reconstruction(&self.fit(images, sweeps))
    }

    /// What the hidden units of a batch say about its pixels.
    #[must_use]
    pub(crate) fn reconstruction(&self, batch: &Batch) -> Reconstruction {
        let mut probabilities = &self.network.weights * &batch.hidden;
        for mut column in probabilities.column_iter_mut() {
            column.iter_mut().zip(&self.network.visible_bias).for_each(|(t, c)| *t = sigmoid(*t + c));
        }
        let right = probabilities.iter().zip(&batch.visible).filter(|(p, v)| (**p > 0.5) == (**v > 0.5)).count();
        #[allow(clippy::cast_precision_loss, reason = "a number of pixels")]
        let accuracy = right as f64 / probabilities.len().max(1) as f64;
        Reconstruction { probabilities, accuracy }
    }

    /// Σ over public images of a lower bound on ln p(v), in nats: the variational bound with W, b and c at their posterior means, where
    /// E ln σ(±t) over the remaining hidden uncertainty is bounded by ln σ(c) + (±E t − c)/2 − E ω(c)/2·(E t² − c²) at c² = E t².
    #[must_use]
    pub fn bound(&self, images: DMatrix<f64>, sweeps: u32) -> f64 {
        self.batch_bound(&self.fit(images, sweeps))
    }

    /// The same for a batch that was fitted.
    #[must_use]
    pub(crate) fn batch_bound(&self, batch: &Batch) -> f64 {
        let network = self.network.as_ref();
        let mut mean = &network.weights * &batch.hidden;
        let uncertainty = batch.hidden.map(|p| p * (1.0 - p));
        let variance = network.weights.component_mul(&network.weights) * uncertainty;
        let mut total = 0.0;
        for (i, mut mean) in mean.column_iter_mut().enumerate() {
            mean += &network.visible_bias;
            let pixels = mean.iter().zip(variance.column(i).iter().copied().collect::<Vec<_>>());
            total += pixels.zip(column(&batch.visible, i)).map(|((&m, s), &v)| polya_gamma::bound(v, m, s)).sum::<f64>();
            total += batch.hidden(i).iter().zip(&network.hidden_bias).map(|(&p, &b)| hidden_bound(p, b)).sum::<f64>();
        }
        total
    }
}

/// E ln P(h | b) + entropy for E h = p.
fn hidden_bound(p: f64, b: f64) -> f64 {
    let entropy = |p: f64| if p > 0.0 { -p * p.ln() } else { 0.0 };
    let softplus = b.max(0.0) + (-b.abs()).exp().ln_1p();
    p * b - softplus + entropy(p) + entropy(1.0 - p)
}

fn column(matrix: &DMatrix<f64>, i: usize) -> &[f64] {
    &matrix.as_slice()[i * matrix.nrows()..][..matrix.nrows()]
}

fn column_mut(matrix: &mut DMatrix<f64>, i: usize) -> &mut [f64] {
    let rows = matrix.nrows();
    &mut matrix.as_mut_slice()[i * rows..][..rows]
}

#[inline]
fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}
