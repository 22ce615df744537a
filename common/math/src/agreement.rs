//! Do the sites agree? A test of each site against all others, from what they released under local trust.
//!
//! Site m tells the gradient s_m and the curvature H_m of its likelihood at a public point. The gradient's expectation is H_m φ_m, φ_m the way from that point to
//! the site's own coefficients. Its covariance is J_m + N_m: J_m that of a sample of records (≈ H_m), N_m that of the noise that protects them. Sites are never
//! exactly alike, so φ_m = φ + u_m with Var u_m = T. Then
//!
//! s_m ~ N(H_m φ, S_m),  S_m = H_m + N_m + H_m T H_m + ω_m² tr T I,
//!
//! the last where entries of H_m off the diagonal are guesses with errors of variance ω_m². Nothing has to be divided by a noisy H_m. The others give φ̂ with covariance P = (Σ H_k S_k⁻¹ H_k)⁻¹ (generalised least squares; a hundredth of the prior's
//! precision is added, so that P exists where no one has a signal). The statistic of site m is
//!
//! X = rᵀ (S_m + H_m P H_m)⁻¹ r,  r = s_m − H_m φ̂,
//!
//! over the directions in which the site has a signal (`LEAST_SIGNAL`), chi-square with as many degrees of freedom.
//!
//! **T.** Its shape is public: independent differences of standard deviation 0.3 (intercept) and 0.1 (other coefficients) for a logit, [`Allowance`] has the
//! units of others. That much is never an alarm. It is raised where the *others* differ by more among themselves, separately for the intercept and for the rest:
//! a class's variance is multiplied by 1.5 until Σ_k |c_k|² ≤ q Σ_k tr A_k (1 − ℓ_k) over its coordinates, c_k = A_k (φ̂_k − φ̂), A_k = H_k S_k⁻¹ H_k, and ℓ_k the
//! site's share in Σ A. With q = 1 these are the two sides of the equation of restricted maximum likelihood. q is the point below which a mean of squares with
//! that many degrees of freedom (Satterthwaite) falls with probability 0.2, so that T is an upper limit at 80 %: four sites do not know their heterogeneity well. Since
//! the tested site is left out, it cannot hide behind its own difference; and it raises T for all others, who are not blamed for it.
//!
//! **Approximations**: of weighted records H_m is taken for the score's covariance, which is less; T's shape; and the upper limit of T is taken for known.
//!
//! **Source**: this project. Random effects as in DerSimonian and Laird 1986; score tests for a variance component as in REML.

use std::collections::BTreeMap;

use crate::chi_square::upper_tail;
use nalgebra::{Cholesky, DMatrix, DVector, SymmetricEigen};
use serde::{Deserialize, Serialize};

/// Least share of the allowance in the variance of a direction that is tested: below, a difference of ten times the allowance would not be seen.
const LEAST_SIGNAL: f64 = 0.01;

/// Factor between two values of a class's variance that are tried.
const STEP: f64 = 1.5;

/// Most steps: 1.5³⁰ is a standard deviation of 440 times the allowance.
const MOST_STEPS: u32 = 30;

/// Share of the prior's precision that φ̂ contains.
const VAGUE: f64 = 0.01;

/// A site's likelihood of the coefficients, as its releases estimate it.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// s: gradient at the common point.
    pub score: DVector<f64>,
    /// H, without negative eigenvalues.
    pub curvature: DMatrix<f64>,
    /// N: covariance of the noise on the score.
    pub noise: DMatrix<f64>,
    /// ω²: variance of entries of H off the diagonal that no one released; 0 where all are known.
    pub doubt: f64,
}

/// Differences between sites that are no alarm: standard deviations of the site's coefficients about the common ones.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allowance {
    /// Of the intercept.
    pub intercept: f64,
    /// Of every other coefficient.
    pub others: f64,
}

/// One site against the others.
#[derive(Debug, Clone, PartialEq)]
pub struct Compared {
    /// X.
    pub statistic: f64,
    /// Its degrees of freedom; 0 where the noise hides all differences.
    pub degrees: u32,
    /// P(χ² > X).
    pub p: f64,
    /// The coefficient whose difference alone explains most, and that difference in standard deviations.
    pub farthest: (usize, f64),
    /// By how much the others' differences exceed the allowance: factors on its standard deviations, 1 where they do not.
    pub heterogeneity: Allowance,
}

/// Tests every site against all others. `intercept` is its coordinate, `prior` the prior's precision of a coefficient. `None` for numbers that cannot be
/// computed with.
#[must_use]
pub fn compare(sites: &[Evidence], allowance: Allowance, intercept: Option<usize>, prior: f64) -> Option<Vec<Compared>> {
    let dimension = sites.first()?.score.len();
    let mut family = Sites { sites, dimension, allowance, intercept, prior, weighed: BTreeMap::new() };
    (0..sites.len()).map(|site| family.against_the_others(site)).collect()
}

/// Steps of the two classes' variances: intercept, others.
type Heterogeneity = (u32, u32);

struct Sites<'a> {
    sites: &'a [Evidence],
    dimension: usize,
    allowance: Allowance,
    intercept: Option<usize>,
    prior: f64,
    /// All sites under the heterogeneities that were tried.
    weighed: BTreeMap<Heterogeneity, Vec<Weighed>>,
}

/// A site in the mean of the others.
struct Weighed {
    /// A = H S⁻¹ H.
    information: DMatrix<f64>,
    /// H S⁻¹ s.
    pull: DVector<f64>,
}

impl Sites<'_> {
    fn against_the_others(&mut self, site: usize) -> Option<Compared> {
        let mut heterogeneity = (0, 0);
        let Others { estimate, covariance, .. } = loop {
            let others = self.others(site, heterogeneity)?;
            match self.too_small(site, heterogeneity, &others) {
                Some(Class::Intercept) if heterogeneity.0 < MOST_STEPS => heterogeneity.0 += 1,
                Some(Class::Others) if heterogeneity.1 < MOST_STEPS => heterogeneity.1 += 1,
                _ => break others,
            }
        };
        let Evidence { score, curvature, .. } = &self.sites[site];
        let residual = score - curvature * &estimate;
        let total = self.variance(site, heterogeneity) + curvature * covariance * curvature;
        let seen = self.seen(site)?;
        let degrees = u32::try_from(seen.ncols()).ok()?;
        let statistic = if degrees == 0 {
            0.0
        } else {
            let factor = Cholesky::new(symmetric(seen.transpose() * &total * &seen))?;
            factor.l_dirty().solve_lower_triangular(&seen.tr_mul(&residual))?.norm_squared()
        };
        let factor = Cholesky::new(symmetric(total))?;
        let whitened = factor.l_dirty().solve_lower_triangular(&residual)?;
        let slopes = factor.l_dirty().solve_lower_triangular(&(curvature * self.sds()))?;
        // Score test of one coefficient alone, in units that do not matter.
        let alone = |j: usize| {
            let slope = slopes.column(j);
            let norm = slope.norm();
            if norm > 0.0 { slope.dot(&whitened) / norm } else { 0.0 }
        };
        let farthest = (0..self.dimension).map(|j| (j, alone(j))).max_by(|a, b| a.1.abs().total_cmp(&b.1.abs()))?;
        let p = if degrees == 0 { 1.0 } else { upper_tail(statistic, f64::from(degrees)) };
        let factor = |steps| STEP.powi(i32::try_from(steps).unwrap_or(i32::MAX)).sqrt();
        let heterogeneity = Allowance { intercept: factor(heterogeneity.0), others: factor(heterogeneity.1) };
        (statistic.is_finite() && p.is_finite() && farthest.1.is_finite()).then_some(Compared {
            statistic,
            degrees,
            p,
            farthest,
            heterogeneity,
        })
    }

    /// Directions of a site's score in which it has a signal, one a column.
    fn seen(&self, site: usize) -> Option<DMatrix<f64>> {
        let factor = Cholesky::new(symmetric(self.variance(site, (0, 0))))?;
        let slopes = factor.l_dirty().solve_lower_triangular(&(&self.sites[site].curvature * self.sds()))?;
        let eigen = SymmetricEigen::try_new(&slopes * slopes.transpose(), f64::EPSILON, 1000 * self.dimension.max(10))?;
        let seen: Vec<usize> = (0..self.dimension).filter(|&i| eigen.eigenvalues[i] >= LEAST_SIGNAL).collect();
        factor.l().transpose().solve_upper_triangular(&eigen.eigenvectors.select_columns(&seen))
    }

    /// The allowance on every coefficient.
    fn sds(&self) -> DMatrix<f64> {
        DMatrix::from_diagonal(&self.variances((0, 0)).map(f64::sqrt))
    }

    /// All sites but one.
    fn others(&mut self, site: usize, heterogeneity: Heterogeneity) -> Option<Others> {
        if !self.weighed.contains_key(&heterogeneity) {
            let weighed = (0..self.sites.len()).map(|k| self.weigh(k, heterogeneity)).collect::<Option<Vec<_>>>()?;
            self.weighed.insert(heterogeneity, weighed);
        }
        let d = self.dimension;
        let (mut information, mut pull) = (DMatrix::zeros(d, d), DVector::zeros(d));
        for weighed in self.without(site, heterogeneity) {
            information += &weighed.information;
            pull += &weighed.pull;
        }
        let vague = DMatrix::identity(d, d) * (VAGUE * self.prior);
        let covariance = Cholesky::new(symmetric(&information + vague))?.inverse();
        Some(Others { estimate: &covariance * pull, covariance, information })
    }

    fn without(&self, site: usize, heterogeneity: Heterogeneity) -> impl Iterator<Item = &Weighed> {
        self.weighed.get(&heterogeneity).into_iter().flatten().enumerate().filter(move |(k, _)| *k != site).map(|(_, weighed)| weighed)
    }

    fn weigh(&self, site: usize, heterogeneity: Heterogeneity) -> Option<Weighed> {
        let Evidence { score, curvature, .. } = &self.sites[site];
        let factor = Cholesky::new(symmetric(self.variance(site, heterogeneity)))?;
        let whitened = factor.l_dirty().solve_lower_triangular(curvature)?;
        let score = factor.l_dirty().solve_lower_triangular(score)?;
        Some(Weighed { information: whitened.tr_mul(&whitened), pull: whitened.tr_mul(&score) })
    }

    /// S.
    fn variance(&self, site: usize, heterogeneity: Heterogeneity) -> DMatrix<f64> {
        let Evidence { curvature, noise, doubt, .. } = &self.sites[site];
        let variances = self.variances(heterogeneity);
        let unknown = DMatrix::identity(self.dimension, self.dimension) * (doubt * variances.sum());
        curvature + noise + unknown + curvature * DMatrix::from_diagonal(&variances) * curvature
    }

    /// The diagonal of T.
    fn variances(&self, heterogeneity: Heterogeneity) -> DVector<f64> {
        let of = |sd: f64, steps: u32| sd * sd * STEP.powi(i32::try_from(steps).unwrap_or(i32::MAX));
        let (intercept, others) = (of(self.allowance.intercept, heterogeneity.0), of(self.allowance.others, heterogeneity.1));
        DVector::from_fn(self.dimension, |j, _| if Some(j) == self.intercept { intercept } else { others })
    }

    /// The class in which the others differ by more than this heterogeneity makes likely; of two the one that exceeds it by the larger factor.
    fn too_small(&self, site: usize, heterogeneity: Heterogeneity, others: &Others) -> Option<Class> {
        if self.sites.len() < 3 {
            return None;
        }
        let class = |j: usize| usize::from(Some(j) != self.intercept);
        let (mut trace, mut square) = ([0.0; 2], [0.0; 2]);
        for (i, j) in (0..self.dimension).flat_map(|i| (0..self.dimension).map(move |j| (i, j))).filter(|&(i, j)| class(i) == class(j)) {
            let entry = others.information[(i, j)];
            square[class(i)] += entry * entry;
            trace[class(i)] += if i == j { entry } else { 0.0 };
        }
        let (mut found, mut expected) = ([0.0; 2], [0.0; 2]);
        for Weighed { information, pull } in self.without(site, heterogeneity) {
            let difference = pull - information * &others.estimate;
            let mut own = [0.0; 2];
            for j in 0..self.dimension {
                found[class(j)] += difference[j] * difference[j];
                own[class(j)] += information[(j, j)];
            }
            for c in 0..2 {
                expected[c] += own[c] * (1.0 - own[c] / trace[c].max(f64::MIN_POSITIVE));
            }
        }
        #[allow(clippy::cast_precision_loss, reason = "a number of sites")]
        let independent = (self.sites.len() - 2) as f64;
        let excess = |c: usize| {
            let degrees = independent * trace[c] * trace[c] / square[c].max(f64::MIN_POSITIVE);
            if expected[c] > 0.0 { found[c] / (expected[c] * low(degrees)) } else { 0.0 }
        };
        let (intercept, others) = (excess(0), excess(1));
        match intercept.max(others) {
            most if most.is_nan() || most <= 1.0 => None,
            _ if intercept >= others => Some(Class::Intercept),
            _ => Some(Class::Others),
        }
    }
}

/// What the others say together.
struct Others {
    /// φ̂ and P.
    estimate: DVector<f64>,
    covariance: DMatrix<f64>,
    /// Σ A.
    information: DMatrix<f64>,
}

enum Class {
    Intercept,
    Others,
}

/// The point below which a mean of squares with so many degrees of freedom and expectation 1 falls with probability 0.2 (Wilson and Hilferty).
fn low(degrees: f64) -> f64 {
    let variance = 2.0 / (9.0 * degrees);
    (1.0 - variance - 0.8416 * variance.sqrt()).max(0.0).powi(3)
}

/// Without the rounding between the two halves.
fn symmetric(matrix: DMatrix<f64>) -> DMatrix<f64> {
    let transposed = matrix.transpose();
    (matrix + transposed) * 0.5
}

#[cfg(test)]
mod tests;
