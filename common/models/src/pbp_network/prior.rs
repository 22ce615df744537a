//! Factors that tie the precision λ_w of the weights to every weight: N(w; 0, 1/λ_w) approximated by N(w)·Gamma(λ_w).
//!
//! Refinement reads the public posterior only, so it costs no privacy and runs after every round.

use super::{HYPERPRIOR, Network};
use crate::pbp_network::noise::matched_gamma;
use dp_pvi_math::normal::log_density;

/// Largest variance of a weight's cavity at which its prior factor is refined.
const WIDEST: f64 = 1e6;
/// A weight whose variance would fall to this is left alone.
const NARROWEST: f64 = 1e-100;

/// Natural parameters of one prior factor: of its weight, and of λ_w.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Site {
    /// h.
    pub h: f64,
    /// Λ.
    pub precision: f64,
    /// Difference of shapes.
    pub shape: f64,
    /// Natural rate: minus the difference of rates.
    pub negative_rate: f64,
}

/// What refining one factor gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Refined {
    /// Mean of the weight.
    pub mean: f64,
    /// Variance of the weight.
    pub variance: f64,
    /// Shape of λ_w.
    pub shape: f64,
    /// Rate of λ_w.
    pub rate: f64,
    /// The new factor.
    pub site: Site,
}

/// One step of expectation propagation for the factor N(w; 0, 1/λ_w): the cavity is q without the factor, matched in two moments of w and
/// of λ_w. `None` where the cavity is not one (variance in (0, 10⁶), shape above 1, rate above 0) or the result would not be a distribution.
#[must_use]
pub fn refine_site(mean: f64, variance: f64, shape: f64, rate: f64, site: Site) -> Option<Refined> {
    let cavity_precision = 1.0 / variance - site.precision;
    let v = 1.0 / cavity_precision;
    let (m, a, b) = (v * (mean / variance - site.h), shape - site.shape, rate + site.negative_rate);
    if !(v > 0.0 && v < WIDEST && a > 1.0 && b > 0.0) {
        return None;
    }
    // The factor seen from the cavity is N(0, c) with c = E 1/λ_w: then ∂ ln Z/∂m = −m/(v + c), the matched variance is vc/(v + c),
    // and the new factor of the weight is N(0, c) itself, which is what (m′/v′ − m/v, 1/v′ − 1/v) comes to.
    let c = b / (a - 1.0);
    let log_z = [0.0, 1.0, 2.0].map(|k| log_density(0.0, m, v + b / (a - 1.0 + k)));
    let (new_shape, new_rate) = matched_gamma(log_z, a, b)?;
    let (new_mean, new_variance) = (m - v * m / (v + c), v - v * v / (v + c));
    if new_variance <= NARROWEST || !new_variance.is_finite() {
        return None;
    }
    let new = Site { h: 0.0, precision: 1.0 / c, shape: new_shape - a, negative_rate: b - new_rate };
    Some(Refined { mean: new_mean, variance: new_variance, shape: new_shape, rate: new_rate, site: new })
}

/// All prior factors of a network, with the hyperposterior Gamma(a, b) of λ_w.
#[derive(Debug, Clone, PartialEq)]
pub struct PriorFactors {
    sites: Vec<Site>,
    shape: f64,
    rate: f64,
}

impl PriorFactors {
    /// Before any record: N(0, b/(a − 1)) for every weight, Gamma(6, 6) for λ_w.
    #[must_use]
    pub fn new(network: &Network) -> Self {
        let (shape, rate) = HYPERPRIOR;
        Self { sites: vec![Site { precision: (shape - 1.0) / rate, ..Site::default() }; network.weights()], shape, rate }
    }

    /// The same with weights of this prior standard deviation: Gamma(6, 5·scale²).
    #[must_use]
    pub fn with_scale(network: &Network, scale: f64) -> Self {
        let shape = HYPERPRIOR.0;
        let rate = (shape - 1.0) * scale * scale;
        Self { sites: vec![Site { precision: (shape - 1.0) / rate, ..Site::default() }; network.weights()], shape, rate }
    }

    /// From its parts.
    #[must_use]
    pub fn from_parts(sites: Vec<Site>, shape: f64, rate: f64) -> Self {
        Self { sites, shape, rate }
    }

    /// The product of all prior factors of the weights and of the prior of γ: λ0 = [h; Λ; a − 1; −b].
    #[must_use]
    pub fn natural(&self, noise: (f64, f64)) -> Vec<f64> {
        let h = self.sites.iter().map(|site| site.h);
        h.chain(self.sites.iter().map(|site| site.precision)).chain([noise.0 - 1.0, -noise.1]).collect()
    }

    /// Shape and rate of λ_w.
    #[must_use]
    pub fn hyperposterior(&self) -> (f64, f64) {
        (self.shape, self.rate)
    }

    /// The factors, in the order of the weights.
    #[must_use]
    pub fn sites(&self) -> &[Site] {
        &self.sites
    }

    /// Refines every factor once, in the order of the weights; moves `lambda` = [h; Λ; …] by the same change, and gives the number of factors
    /// that were left alone.
    ///
    /// # Panics
    /// `lambda` is shorter than two entries a weight.
    pub fn refine(&mut self, lambda: &mut [f64]) -> usize {
        let (h, rest) = lambda.split_at_mut(self.sites.len());
        let mut skipped = 0;
        for ((site, h), precision) in self.sites.iter_mut().zip(h).zip(rest) {
            let refined = refine_site(*h / *precision, 1.0 / *precision, self.shape, self.rate, *site);
            // A posterior without this weight's likelihood may be one that the hyperposterior cannot follow.
            let Some(refined) = refined.filter(|r| r.shape > 1.0) else {
                skipped += 1;
                continue;
            };
            *h += refined.site.h - site.h;
            *precision += refined.site.precision - site.precision;
            (self.shape, self.rate, *site) = (refined.shape, refined.rate, refined.site);
        }
        skipped
    }
}
