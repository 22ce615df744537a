//! Bayesian logistic regression with Pólya–Gamma augmentation: E-step statistics of a record; M-step and noise are
//! [`dp_pvi_math::polya_gamma`].
//!
//! Statistics: x(y−½), which does not depend on the posterior and is released in the first round only, or x(y − ½ − E ω xᵀμ), the same about
//! the posterior's mean μ, in every round; and svec E ω xxᵀ with E ω = tanh(c/2)/(2c), c² = xᵀ(Σ + μμᵀ)x.
//!
//! # Privacy
//! * **Sensitivity** for ‖x‖ ≤ R: R/2 and R²/4 in norm, joint √(R²/(4a₁²) + R⁴/(16a₂²)) with scales a. About μ, |xᵀμ| ≤ c makes
//!   |y − ½ − E ω xᵀμ| ≤ ½ + ½ tanh(c/2) < 1: R in place of R/2. Below that the mechanism clips.

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod tests;

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_math::expfam::gaussian::full::triangle;
use dp_pvi_math::polya_gamma::{bound, mean, sensitivities, tilt};
use dp_pvi_privacy::mechanism::Term;

use crate::capabilities::statistics::{ExpectedStatistics, add_outer};
use dp_pvi_records::{RecordTable, RecordView};

/// Which statistics a round releases, and the public scale of each block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Blocks {
    /// Σ x(y−½) and svec Σ E ω xxᵀ: the first round.
    Both {
        /// Scale of the first block.
        first: f64,
        /// Scale of the second block.
        second: f64,
    },
    /// Σ x(y − ½ − E ω xᵀμ) and svec Σ E ω xxᵀ, μ the mean of q.
    Centred {
        /// Scale of the first block.
        first: f64,
        /// Scale of the second block.
        second: f64,
    },
    /// svec Σ E ω xxᵀ: every later round.
    Second {
        /// Its scale.
        scale: f64,
    },
}

/// E-steps at a public Gaussian q(θ).
#[derive(Debug, Clone)]
pub struct LogisticStatistics<'a> {
    q: &'a Gaussian,
    blocks: Blocks,
    feature_bound: f64,
}

impl<'a> LogisticStatistics<'a> {
    /// For rows of norm at most `feature_bound`.
    #[must_use]
    pub fn new(q: &'a Gaussian, blocks: Blocks, feature_bound: f64) -> Self {
        Self { q, blocks, feature_bound }
    }

    /// c of a record.
    #[must_use]
    pub fn tilt(&self, record: RecordView<'_>) -> f64 {
        self.predictor(record)[1]
    }

    /// xᵀμ and c of a record.
    fn predictor(&self, record: RecordView<'_>) -> [f64; 2] {
        let (m, v) = self.q.standard().project(record.indices, record.values);
        [m, tilt(m, v)]
    }
}

/// Σ over records of the lower bound's shares; minus KL(q‖prior) it is the lower bound on ln p(y).
#[must_use]
pub fn total_bound(q: &Gaussian, table: &RecordTable) -> f64 {
    let share = |record: RecordView<'_>| {
        let (m, v) = q.standard().project(record.indices, record.values);
        bound(record.target, m, v)
    };
    table.records().filter(RecordView::is_finite).map(share).sum()
}

impl ExpectedStatistics for LogisticStatistics<'_> {
    fn coordinates(&self) -> usize {
        let d = self.q.family().dimension();
        match self.blocks {
            Blocks::Both { .. } | Blocks::Centred { .. } => d + triangle(d),
            Blocks::Second { .. } => triangle(d),
        }
    }

    fn bound(&self) -> f64 {
        let [one, two] = sensitivities(self.feature_bound);
        match self.blocks {
            Blocks::Both { first, second } => (one / first).hypot(two / second),
            Blocks::Centred { first, second } => (2.0 * one / first).hypot(two / second),
            Blocks::Second { scale } => two / scale,
        }
    }

    fn add(&self, record: RecordView<'_>, term: &mut Term) {
        let [m, c] = self.predictor(record);
        let omega = mean(c);
        let explained = match self.blocks {
            Blocks::Centred { .. } => omega * m,
            Blocks::Both { .. } | Blocks::Second { .. } => 0.0,
        };
        if !(record.is_finite() && omega.is_finite() && explained.is_finite()) {
            return;
        }
        let d = self.q.family().dimension();
        let (offset, scale) = match self.blocks {
            Blocks::Both { first, second } | Blocks::Centred { first, second } => {
                let residual = (record.target - 0.5 - explained) / first;
                term.extend(record.indices.iter().zip(record.values).map(|(&j, x)| (j, residual * x)));
                (d, second)
            }
            Blocks::Second { scale } => (0, scale),
        };
        add_outer(record, omega / scale, offset, d, term);
    }
}
