//! Sites that differ by an effect of their own: what they say of the common coefficients, of the effects, and of how far sites lie apart.
//!
//! Site m tells θ + e u_m, with e the direction in which sites may differ (the intercept) and u_m ~ N(0, τ²): from its curvature H, covariance S, and gradient g at the point p,
//!
//! A_m = H S⁻¹ H, B_m = H S⁻¹ (g + H p).
//!
//! Given τ, with k_m = eᵀA_m e + 1/τ² and the effects integrated out,
//!
//! Λ = Λ0 + Σ (A_m − A_m e eᵀA_m/k_m), h = Λ0 m0 + Σ (B_m − A_m e eᵀB_m/k_m), ln w = ½hᵀΛ⁻¹h + ½Σ((eᵀB_m)²/k_m − ln k_m τ²) − ½ ln|Λ|.
//!
//! **Two priors of τ.** Coefficients take τ ≥ ½ alike: effects within sites, as fixed effects would be, since a prior that has τ near 0 lets noise bring back what site and exposure share. τ
//! itself, and a new site, have p(τ) ∝ τ/(1 + (τ/½)²). All is in units in which e is 1, so that e is scaled by the caller: for log odds 1.
//!
//! **Source**: this project; linear mixed models with known variances (Laird and Ware 1982). [`test`](Hierarchy::test) is Cochran's Q with scores.

use nalgebra::{Cholesky, DMatrix, DVector, SymmetricEigen};

use crate::chi_square::upper_tail;
use crate::gaussian_likelihood::{Moments, shares};
use crate::student::NormalPlusStudent;

/// τ from which on coefficients take all alike.
const LEAST_OF_COEFFICIENTS: f64 = 0.5;
/// Where the prior of τ itself has its maximum.
const USUAL: f64 = 0.5;

/// τ that are tried.
pub const GRID: [f64; 9] = [0.01, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.6, 2.5];

/// An eigenvalue below this share of the largest is 0.
const RANK: f64 = 1e-9;

/// A_m and B_m.
#[derive(Debug, Clone, PartialEq)]
pub struct Site {
    /// d × d.
    pub precision: DMatrix<f64>,
    /// d numbers.
    pub pull: DVector<f64>,
}

impl Site {
    /// From H, S, and g at p. `None` where S is not positive definite.
    #[must_use]
    pub fn new(curvature: &DMatrix<f64>, covariance: &DMatrix<f64>, gradient: &DVector<f64>, point: &DVector<f64>) -> Option<Self> {
        let factor = Cholesky::new(covariance.clone())?;
        let pull = curvature * factor.solve(&(gradient + curvature * point));
        Some(Self { precision: curvature * factor.solve(curvature), pull })
    }

    /// The same without what the site's own effect may be.
    fn without(&self, direction: &DVector<f64>) -> Self {
        let along = &self.precision * direction;
        let k = direction.dot(&along);
        if k <= 0.0 {
            return self.clone();
        }
        Self { precision: &self.precision - &along * along.transpose() / k, pull: &self.pull - &along * (direction.dot(&self.pull) / k) }
    }
}

/// Sites, and what is known beforehand.
#[derive(Debug, Clone, Copy)]
pub struct Hierarchy<'a> {
    /// At least one.
    pub sites: &'a [Site],
    /// Units of every site.
    pub units: &'a [f64],
    /// e.
    pub direction: &'a DVector<f64>,
    /// m0.
    pub prior_mean: &'a DVector<f64>,
    /// The diagonal of Λ0.
    pub prior_precision: &'a DVector<f64>,
    /// τ that are tried, above 0; at least one of them is ½ or more.
    pub grid: &'a [f64],
}

/// What sites say for one τ.
#[derive(Debug, Clone, PartialEq)]
struct Given {
    log_weight: f64,
    coefficients: Moments,
    effects: DVector<f64>,
    /// Mean and variance of the mean of effects by units, added to the coefficients along e.
    listed: [f64; 2],
}

/// What sites say.
#[derive(Debug, Clone, PartialEq)]
pub struct Fit {
    grid: Vec<f64>,
    given: Vec<Given>,
    /// Of every τ for the coefficients: 0 below ½.
    pub of_coefficients: Vec<f64>,
    /// Of every τ for τ itself.
    pub of_spread: Vec<f64>,
    /// Mean and covariance of the common coefficients.
    pub coefficients: Moments,
    /// u_m.
    pub effects: DVector<f64>,
    /// Mean and standard deviation of the coefficient along e in the listed sites: with the mean of their effects by units.
    pub listed: [f64; 2],
}

/// Whether sites differ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Q.
    pub statistic: f64,
    /// Its degrees of freedom.
    pub degrees: f64,
    /// Its upper tail.
    pub p: f64,
    /// I²: the share of the variation between sites that is not chance.
    pub share: f64,
}

impl Hierarchy<'_> {
    /// `None` where a matrix is not positive definite.
    #[must_use]
    pub fn fit(&self) -> Option<Fit> {
        let given: Vec<Given> = self.grid.iter().map(|tau| self.given(*tau)).collect::<Option<_>>()?;
        let weights = |log_prior: &dyn Fn(f64) -> f64| {
            shares(&self.grid.iter().zip(&given).map(|(tau, given)| given.log_weight + log_prior(*tau)).collect::<Vec<_>>())
        };
        let of_coefficients = weights(&|tau| if tau >= LEAST_OF_COEFFICIENTS { 0.0 } else { f64::NEG_INFINITY });
        let of_spread = weights(&|tau| (tau / (1.0 + (tau / USUAL).powi(2))).ln());
        let coefficients = Moments::of_mixture(of_coefficients.iter().copied().zip(given.iter().map(|given| &given.coefficients)))?;
        let effects = of_coefficients.iter().zip(&given).map(|(weight, given)| &given.effects * *weight).reduce(|a, b| a + b)?;
        let listed: f64 = of_coefficients.iter().zip(&given).map(|(weight, given)| weight * given.listed[0]).sum();
        let square = |given: &Given| given.listed[1] + (given.listed[0] - listed).powi(2);
        let variance: f64 = of_coefficients.iter().zip(&given).map(|(weight, given)| weight * square(given)).sum();
        let listed = [listed, variance.sqrt()];
        Some(Fit { grid: self.grid.to_vec(), given, of_coefficients, of_spread, coefficients, effects, listed })
    }

    fn given(&self, tau: f64) -> Option<Given> {
        let (e, precision) = (self.direction, tau.powi(-2));
        let mut matrix = DMatrix::from_diagonal(self.prior_precision);
        let mut vector = self.prior_precision.component_mul(self.prior_mean);
        let mut log_weight = 0.0;
        // A_m e, eᵀB_m and k_m.
        let of = |site: &Site| {
            let along = &site.precision * e;
            let k = e.dot(&along) + precision;
            (along, e.dot(&site.pull), k)
        };
        for site in self.sites {
            let (along, pull, k) = of(site);
            matrix += &site.precision - &along * along.transpose() / k;
            vector += &site.pull - &along * (pull / k);
            log_weight += 0.5 * (pull * pull / k - (k / precision).ln());
        }
        let factor = Cholesky::new(matrix)?;
        let half_log_determinant: f64 = factor.l_dirty().diagonal().iter().map(|entry| entry.ln()).sum();
        let (mean, covariance) = (factor.solve(&vector), factor.inverse());
        log_weight += 0.5 * vector.dot(&mean) - half_log_determinant;
        let total: f64 = self.units.iter().sum();
        // eᵀθ/eᵀe is the coefficient along e; the effects move with θ.
        let mut sensitivity = e / e.norm_squared();
        let (mut centre, mut own) = (sensitivity.dot(&mean), 0.0);
        let mut effects = DVector::zeros(self.sites.len());
        for (m, (site, units)) in self.sites.iter().zip(self.units).enumerate() {
            let (along, pull, k) = of(site);
            let share = units / total;
            effects[m] = (pull - along.dot(&mean)) / k;
            centre += share * effects[m];
            sensitivity -= along * (share / k);
            own += share * share / k;
        }
        let variance = sensitivity.dot(&(&covariance * &sensitivity)) + own;
        Some(Given { log_weight, coefficients: Moments { mean, covariance }, effects, listed: [centre, variance] })
    }

    /// Whether sites differ along `by`: e itself, or a coefficient, after each site's own effect along e is taken out. `None` where a matrix has no eigenvalues, or all sites together carry no information.
    #[must_use]
    pub fn test(&self, by: &DVector<f64>) -> Option<Difference> {
        let own: Vec<Site>;
        let sites = if by == self.direction {
            self.sites
        } else {
            own = self.sites.iter().map(|site| site.without(self.direction)).collect();
            &own
        };
        let all = sites.iter().map(|site| site.precision.clone()).reduce(|a, b| a + b)?;
        let covariance = pseudo_inverse(all)?.0;
        let mean = &covariance * sites.iter().map(|site| site.pull.clone()).reduce(|a, b| a + b)?;
        let scores = DVector::from_iterator(sites.len(), sites.iter().map(|site| by.dot(&(&site.pull - &site.precision * &mean))));
        let along: Vec<DVector<f64>> = sites.iter().map(|site| &site.precision * by).collect();
        let variance = DMatrix::from_fn(sites.len(), sites.len(), |m, k| {
            let own = if m == k { by.dot(&along[m]) } else { 0.0 };
            own - along[m].dot(&(&covariance * &along[k]))
        });
        let (inverse, degrees) = pseudo_inverse(variance)?;
        let statistic = scores.dot(&(inverse * &scores));
        let share = ((statistic - degrees) / statistic).max(0.0);
        Some(Difference { statistic, degrees, p: upper_tail(statistic, degrees), share })
    }
}

impl Fit {
    /// E τ.
    #[must_use]
    pub fn spread(&self) -> f64 {
        self.grid.iter().zip(&self.of_spread).map(|(tau, weight)| tau * weight).sum()
    }

    /// The interval of the coefficient along `direction` in a site that is not listed, for a level such as 0.9: θ ± t √(Σ + E τ²) with two degrees of freedom less than sites. `None` for two sites,
    /// which carry no information of a third one.
    #[must_use]
    pub fn new_site(&self, direction: &DVector<f64>, level: f64) -> Option<[f64; 2]> {
        let degrees = self.effects.len().checked_sub(2).filter(|degrees| *degrees > 0)?;
        let all = Moments::of_mixture(self.of_spread.iter().copied().zip(self.given.iter().map(|given| &given.coefficients)))?;
        let along = direction / direction.norm_squared();
        let (centre, known) = (along.dot(&all.mean), along.dot(&(&all.covariance * &along)));
        let between: f64 = self.grid.iter().zip(&self.of_spread).map(|(tau, weight)| tau * tau * weight).sum();
        #[allow(clippy::cast_precision_loss, reason = "a number of sites")]
        let student = NormalPlusStudent { mean: 0.0, variance: 0.0, scale: 1.0, degrees_of_freedom: degrees as f64 };
        let reach = student.quantile(0.5 + 0.5 * level) * (known + between).sqrt();
        Some([centre - reach, centre + reach])
    }
}

/// The inverse on the range of a symmetric positive semidefinite matrix, and its rank.
fn pseudo_inverse(matrix: DMatrix<f64>) -> Option<(DMatrix<f64>, f64)> {
    let limit = 1000 * matrix.nrows().max(10);
    let eigen = SymmetricEigen::try_new(matrix, f64::EPSILON, limit)?;
    let least = RANK * eigen.eigenvalues.max();
    let inverse = eigen.eigenvalues.map(|value| if value > least { value.recip() } else { 0.0 });
    #[allow(clippy::cast_precision_loss, reason = "a rank")]
    let rank = inverse.iter().filter(|value| **value > 0.0).count() as f64;
    Some((&eigen.eigenvectors * DMatrix::from_diagonal(&inverse) * eigen.eigenvectors.transpose(), rank))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{GRID, Hierarchy, Site};
    use nalgebra::{DMatrix, DVector};

    /// Sites that estimate (intercept, slope) as here, each with this precision.
    fn sites(estimates: &[[f64; 2]], precision: f64) -> Vec<Site> {
        let h = DMatrix::from_row_slice(2, 2, &[1.0, 0.3, 0.3, 0.8]) * precision;
        let of = |estimate: &[f64; 2]| Site::new(&h, &h, &DVector::zeros(2), &DVector::from_column_slice(estimate)).unwrap();
        estimates.iter().map(of).collect()
    }

    fn with<T>(sites: &[Site], f: impl FnOnce(&Hierarchy<'_>) -> T) -> T {
        let (units, direction) = (vec![100.0; sites.len()], DVector::from_vec(vec![1.0, 0.0]));
        let (mean, precision) = (DVector::zeros(2), DVector::repeat(2, 0.16));
        let (prior_mean, prior_precision) = (&mean, &precision);
        f(&Hierarchy { sites, units: &units, direction: &direction, prior_mean, prior_precision, grid: &GRID })
    }

    #[test]
    fn sites_that_differ_in_the_intercept_are_told_from_sites_that_do_not() {
        let apart = sites(&[[1.0, 0.4], [-1.0, 0.4], [0.5, 0.4], [-0.5, 0.4], [0.0, 0.4]], 400.0);
        let alike = sites(&[[0.02, 0.4], [-0.03, 0.4], [0.01, 0.4], [-0.02, 0.4], [0.0, 0.4]], 400.0);
        let by = DVector::from_vec(vec![1.0, 0.0]);
        let of = |sites: &[Site]| with(sites, |hierarchy| (hierarchy.fit().unwrap(), hierarchy.test(&by).unwrap()));
        let ((far, test), (near, none)) = (of(&apart), of(&alike));
        assert!(test.p < 1e-6 && test.share > 0.9 && none.p > 0.5 && none.share == 0.0 && none.degrees == 4.0);
        assert!(far.spread() > 0.5 && near.spread() < 0.2, "{} {}", far.spread(), near.spread());
        assert!((far.effects[0] - far.effects[1] - 2.0).abs() < 0.1);
        // The effect of the other column is the same in both, and as well known.
        assert!((far.coefficients.mean[1] - 0.4).abs() < 0.01 && (near.coefficients.sd(1) / far.coefficients.sd(1) - 1.0).abs() < 0.05);
        // The listed sites' intercept is known, that of a new one is not.
        assert!(far.listed[1] < 0.1 && far.listed[0].abs() < 0.05);
        let new = far.new_site(&by, 0.9).unwrap();
        assert!(new[1] - new[0] > 2.0);
    }

    /// A slope that differs is not taken for an intercept that does.
    #[test]
    fn slopes_are_compared_after_intercepts() {
        let slopes = sites(&[[0.0, -0.6], [0.0, 0.6], [0.0, 0.3], [0.0, -0.3]], 400.0);
        let test = |by: [f64; 2]| with(&slopes, |hierarchy| hierarchy.test(&DVector::from_column_slice(&by)).unwrap());
        assert!(test([0.0, 1.0]).p < 1e-6);
        let intercepts = sites(&[[-0.6, 0.1], [0.6, 0.1], [0.3, 0.1], [-0.3, 0.1]], 400.0);
        let test = |by: [f64; 2]| with(&intercepts, |hierarchy| hierarchy.test(&DVector::from_column_slice(&by)).unwrap());
        assert!(test([0.0, 1.0]).p > 0.99 && test([1.0, 0.0]).p < 1e-6);
    }

    #[test]
    fn two_sites_say_nothing_of_a_third() {
        let two = sites(&[[0.3, 0.4], [-0.3, 0.4]], 100.0);
        let by = DVector::from_vec(vec![1.0, 0.0]);
        assert_eq!(with(&two, |hierarchy| hierarchy.fit().unwrap().new_site(&by, 0.9)), None);
    }
}
