//! One coordinate of a federation as an affine function of what the sites' records say and of the noise.
//!
//! The unknowns are θ itself, the score δ_m of every site's records at θ (mean 0 and a variance of its own), and the noise. A site's
//! gradient at μ is δ_m + H (θ − μ) with its curvature H. Every public step is affine in these, so the total h and the sites' factors are
//!
//! (h, h_1, …, h_M) = L δ + a θ + b + ξ,
//!
//! with loadings L, slopes a, constants b and DP noise ξ of covariance K that follow from the steps alone. What is left at the end is
//! a noisy observation of θ, from which [`Affine::posterior`] is Bayes' rule.

/// Loadings, slopes, constants and covariance of (h, h_1, …, h_M).
#[derive(Debug, Clone)]
pub(crate) struct Affine {
    sites: usize,
    /// (M+1) × (M+2): loadings on δ_1 … δ_M, the slope, the constant.
    loadings: Vec<f64>,
    /// (M+1) × (M+1).
    covariance: Vec<f64>,
}

/// Δh of one site: `total`·h + `own`·h_m + `statistic`·(δ_m + H θ) + noise of variance `noise`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Change {
    pub(crate) site: usize,
    pub(crate) total: f64,
    pub(crate) own: f64,
    pub(crate) statistic: f64,
    /// H at this visit.
    pub(crate) curvature: f64,
    pub(crate) noise: f64,
}

impl Affine {
    /// From a known total h and known factors.
    pub(crate) fn at(total: f64, factors: &[f64]) -> Self {
        let sites = factors.len();
        let mut loadings = vec![0.0; (sites + 1) * (sites + 2)];
        for (row, value) in std::iter::once(&total).chain(factors).enumerate() {
            loadings[row * (sites + 2) + sites + 1] = *value;
        }
        Self { sites, loadings, covariance: vec![0.0; (sites + 1) * (sites + 1)] }
    }

    /// A round: h ← h + ρ ΣΔ_m + c·h and h_m ← h_m + ρΔ_m, all changes computed from the state before it.
    pub(crate) fn round(&mut self, damping: f64, correction: f64, changes: &[Change]) {
        let (size, columns) = (self.sites + 1, self.sites + 2);
        // Rows of the new state as combinations of rows of the old one: (row, [(old row, weight)]).
        let total: f64 = changes.iter().map(|c| c.total).sum();
        let mut combinations = vec![(0, vec![(0, 1.0 + correction + damping * total)])];
        for change in changes {
            let row = change.site + 1;
            combinations[0].1.push((row, damping * change.own));
            combinations.push((row, vec![(row, 1.0 + damping * change.own), (0, damping * change.total)]));
        }
        let rows = |matrix: &[f64], width: usize| -> Vec<Vec<f64>> {
            let combine = |(_, terms): &(usize, Vec<(usize, f64)>)| {
                let mut sum = vec![0.0; width];
                for &(row, weight) in terms {
                    sum.iter_mut().zip(&matrix[row * width..]).for_each(|(s, m)| *s += weight * m);
                }
                sum
            };
            combinations.iter().map(combine).collect()
        };
        let store = |matrix: &mut [f64], width: usize, rows: Vec<Vec<f64>>| {
            for ((row, _), values) in combinations.iter().zip(rows) {
                matrix[row * width..(row + 1) * width].copy_from_slice(&values);
            }
        };
        let new = rows(&self.loadings, columns);
        store(&mut self.loadings, columns, new);
        // K ← T K Tᵀ: rows, and by symmetry the same combinations of columns.
        let new = rows(&self.covariance, size);
        store(&mut self.covariance, size, new);
        for line in self.covariance.chunks_exact_mut(size) {
            let values: Vec<f64> = combinations.iter().map(|(_, terms)| terms.iter().map(|&(column, w)| w * line[column]).sum()).collect();
            combinations.iter().zip(values).for_each(|((column, _), value)| line[*column] = value);
        }
        for change in changes {
            let row = change.site + 1;
            for target in [0, row] {
                self.loadings[target * columns + change.site] += damping * change.statistic;
                self.loadings[target * columns + self.sites] += damping * change.statistic * change.curvature;
                for other in [0, row] {
                    self.covariance[target * size + other] += damping * damping * change.noise;
                }
            }
        }
    }

    /// Natural parameters (h, Λ) of θ given the observed h, with the prior (h0, Λ0) and the variances of the sites' scores. An
    /// observation that says nothing leaves the prior.
    pub(crate) fn posterior(&self, prior: (f64, f64), observed: f64, scores: &[f64]) -> (f64, f64) {
        let (loadings, rest) = self.loadings[..self.sites + 2].split_at(self.sites);
        let (slope, constant) = (rest[0], rest[1]);
        let variance: f64 = self.covariance[0] + loadings.iter().zip(scores).map(|(l, v)| l * l * v).sum::<f64>();
        let residual = observed - constant;
        if slope > 0.0 && variance > 0.0 && residual.is_finite() {
            (prior.0 + slope * residual / variance, prior.1 + slope * slope / variance)
        } else {
            prior
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Affine, Change};

    const PRIOR: (f64, f64) = (0.3, 2.0);

    /// Δ = s_m − h_m with s_m = δ_m + H_m θ, the exact update of a conjugate model.
    fn exact(site: usize, curvature: f64, noise: f64) -> Change {
        Change { site, total: 0.0, own: -1.0, statistic: 1.0, curvature, noise }
    }

    #[test]
    fn exact_updates_without_noise_give_the_exact_posterior() {
        let mut affine = Affine::at(PRIOR.0, &[0.0; 2]);
        for _ in 0..60 {
            affine.round(0.5, 0.0, &[exact(0, 5.0, 0.0), exact(1, 7.0, 0.0)]);
        }
        // h = h0 + s_1 + s_2 with s_1 = 4, s_2 = −1.
        let (h, precision) = affine.posterior(PRIOR, 0.3 + 4.0 - 1.0, &[5.0, 7.0]);
        assert!((h - 3.3).abs() < 1e-12 && (precision - 14.0).abs() < 1e-12, "{h} {precision}");
    }

    /// The covariance is that of the recursion written out: noise of a visit enters total and factor alike, is forgotten at the rate
    /// 1 − ρ, and does not cancel between sites.
    #[test]
    fn noise_follows_the_recursion() {
        let (rho, sd) = (0.4, 3.0);
        let mut affine = Affine::at(0.0, &[0.0; 2]);
        for visit in 0..7 {
            affine.round(rho, 0.0, &[exact(visit % 2, 1.0, sd * sd)]);
        }
        // Site 0 was visited four times, site 1 three times: Var h = Σ over visits of ρ²σ²(1 − ρ)^{2·later visits of the site}.
        let left = |visits: i32| (0..visits).map(|later| (rho * sd).powi(2) * (1.0f64 - rho).powi(2 * later)).sum::<f64>();
        assert!((affine.covariance[0] - left(4) - left(3)).abs() < 1e-12);
        assert!((affine.covariance[1] - left(4)).abs() < 1e-12 && (affine.covariance[2] - left(3)).abs() < 1e-12);
        let gain = |visits: i32| 1.0 - (1.0f64 - rho).powi(visits);
        assert!((affine.loadings[0] - gain(4)).abs() < 1e-14 && (affine.loadings[1] - gain(3)).abs() < 1e-14);
    }

    /// A general step against the same step on explicit numbers, for every unit vector of the unknowns.
    #[test]
    fn rounds_are_the_affine_maps_they_stand_for() {
        let changes = [
            Change { site: 0, total: -0.2, own: 0.7, statistic: 0.9, curvature: 2.0, noise: 0.0 },
            Change { site: 2, total: 0.1, own: -0.5, statistic: 0.4, curvature: -3.0, noise: 0.0 },
        ];
        let run = |score: [f64; 3], theta: f64| {
            let mut x = [1.5, 0.0, 0.0, 0.0];
            for _ in 0..3 {
                let deltas = changes.map(|c| c.total * x[0] + c.own * x[c.site + 1] + c.statistic * (score[c.site] + c.curvature * theta));
                let mut next = x;
                next[0] += 0.3 * (deltas[0] + deltas[1]) + 0.05 * x[0];
                next[1] += 0.3 * deltas[0];
                next[3] += 0.3 * deltas[1];
                x = next;
            }
            x
        };
        let mut affine = Affine::at(1.5, &[0.0; 3]);
        for _ in 0..3 {
            affine.round(0.3, 0.05, &changes);
        }
        let base = run([0.0; 3], 0.0);
        for column in 0..4 {
            let mut score = [0.0; 3];
            score.iter_mut().skip(column).take(1).for_each(|s| *s = 1.0);
            for (row, (value, zero)) in run(score, if column == 3 { 1.0 } else { 0.0 }).iter().zip(base).enumerate() {
                assert!((affine.loadings[row * 5 + column] - (value - zero)).abs() < 1e-14);
                assert!((affine.loadings[row * 5 + 4] - zero).abs() < 1e-14);
            }
        }
    }

    #[test]
    fn an_observation_of_nothing_leaves_the_prior() {
        assert_eq!(Affine::at(0.3, &[0.0]).posterior(PRIOR, 5.0, &[4.0]), PRIOR);
    }
}
