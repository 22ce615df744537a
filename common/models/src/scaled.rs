//! The posterior of coefficients of which some share an unknown scale τ: the mean over τ of the posteriors that τ would leave.
//!
//! Noise can hide how large the coefficients are. Small ones with a small τ and large ones with a large τ may then go with the released sums nearly as well, and a posterior
//! with one τ says that it knows which. So each group's ln τ² is taken over a grid. At a point of the grid the coefficients have the mode θ_τ and the covariance C_τ of
//! [`UncertainCurvature`], and the point has the weight
//!
//! w_τ ∝ p(ln τ²) e^ℓ(θ_τ) |Λ0(τ)|^½ |C_τ|^½,
//!
//! the density of what was released under τ by Laplace's method, times the inverse-gamma prior's. The posterior has the mean Σ w_τ θ_τ and the covariance
//! Σ w_τ (A_τ + (θ_τ − θ̄)(θ_τ − θ̄)ᵀ), A_τ the C_τ of an S with [`Known::unknown`]. The grid ends on both sides where weights no longer count, and at the 99 % quantile of the prior.
//!
//! With several groups each has a grid of its own, on which the others stay at the mean of their ln τ². By how much each grid's mean and covariance differ from those at these means
//! adds up; where that is no covariance, the grids' mean is taken. This is exact for one group, and leaves out how groups depend on each other.
//!
//! A grid costs time with the cube of the number of coefficients, so that many coefficients and groups have grids in the last pass only, and still more have none. Without a grid
//! each group has one τ, by the coordinate ascent of [`scales`](dp_pvi_math::scales).
//!
//! Source: this project; nested Laplace approximations are Rue, Martino and Chopin (2009).

use std::collections::BTreeMap;

use nalgebra::{Cholesky, DMatrix, DVector};

use crate::spec::Prior;
use dp_pvi_math::scales::{Group, ScaleSummary, inverse_gamma_quantile};
use dp_pvi_math::uncertain_curvature::{Found, UncertainCurvature};

/// Steps of a grid in standard deviations that ln τ² has where its group's coefficients are known.
const STEP: f64 = 1.0;

/// d³ times the number of groups up to which grids are taken in every pass (58 coefficients with one group, 21 with twenty), and in the last one (170 and 62).
const IN_EVERY_PASS: usize = 200_000;
const IN_THE_LAST: usize = 5_000_000;

/// In which passes τ has a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grids {
    Always,
    Last,
    Never,
}

/// Larger scales than this quantile of the prior's are left out, unless the measurements say so: the prior's tail alone has no mean.
const FURTHEST: f64 = 0.99;

/// Steps between points at which a second maximum is looked for, as a distance in ln τ².
const COARSE: f64 = 1.0;

/// Points of less than e^−7 of the largest weight are left out.
const LEAST: f64 = 7.0;

/// Points of a grid at most.
const POINTS: usize = 200;

/// What is known of the likelihood, as [`UncertainCurvature`] has it.
pub struct Known<'a> {
    /// The point at which the gradient was taken.
    pub reference: &'a DVector<f64>,
    /// The gradient.
    pub gradient: &'a DVector<f64>,
    /// The curvature on the way to θ, positive semidefinite: the derivative of the gradient.
    pub curvature: &'a DMatrix<f64>,
    /// The curvature at θ, positive semidefinite: the covariance of θ follows from it. It equals `curvature` if the curvature does not change on the way.
    pub there: &'a DMatrix<f64>,
    /// Covariance of the gradient's noise.
    pub noise: &'a DMatrix<f64>,
    /// What S has besides where the covariance of the coefficients is found: what errors of the curvature do on all that is not known of them.
    pub unknown: &'a DMatrix<f64>,
    /// Variances of the errors of the curvature's entries.
    pub variances: &'a DMatrix<f64>,
    /// Where S is taken, unless it is at the mode.
    pub near: Option<&'a DVector<f64>>,
}

/// The posterior at one point of a grid.
#[derive(Clone)]
struct Point {
    /// The diagonal of Λ0.
    prior: DVector<f64>,
    mean: DVector<f64>,
    log_weight: f64,
}

/// Points by their number; point k has ln τ² = ln(b/a) + k·step.
type Grid = BTreeMap<i32, Point>;

/// Coefficients with their scales, pass for pass.
pub struct Scaled<'a> {
    prior: &'a Prior,
    prior_mean: DVector<f64>,
    /// τ² of every group: e to the mean of its logarithm.
    scales: Vec<f64>,
    /// τ² of every group where the coefficients are as the measurements have them.
    looked: Vec<f64>,
    /// One for each group whose scale is learned, with the group's number.
    grids: Vec<(usize, Grid)>,
    /// Where τ has no grid.
    fixed: Option<Point>,
    /// With several groups: where all scales are at the mean of their logarithms.
    centre: Option<Point>,
    when: Grids,
}

impl<'a> Scaled<'a> {
    /// Before anything is known but where the coefficients roughly are.
    pub fn new(prior: &'a Prior, looked: &[f64]) -> Self {
        let learned = prior.groups.iter().enumerate().filter(|(_, group)| group.fixed.is_none());
        let scales = prior.scales_at(looked);
        let cost = prior.len().pow(3).saturating_mul(prior.groups.len());
        let when = if !prior.learns_scales() || cost > IN_THE_LAST {
            Grids::Never
        } else if cost > IN_EVERY_PASS {
            Grids::Last
        } else {
            Grids::Always
        };
        Self {
            prior,
            prior_mean: DVector::from_column_slice(&prior.mean),
            looked: scales.clone(),
            scales,
            grids: learned.map(|(number, _)| (number, Grid::new())).collect(),
            fixed: None,
            centre: None,
            when,
        }
    }

    /// Whether the last pass is another one than those before.
    pub fn waits(&self) -> bool {
        self.when == Grids::Last
    }

    /// The next pass is the last one.
    pub fn begin_last(&mut self) {
        if self.waits() {
            self.when = Grids::Always;
            self.fixed = None;
        }
    }

    /// Finds the coefficients and scales again where this is known of the likelihood, from those of the pass before. Whether no scale has moved. `None` for numbers that
    /// cannot be computed with.
    pub fn pass(&mut self, known: &Known<'_>) -> Option<bool> {
        let before = self.scales.clone();
        let still = |now: &[f64]| now.iter().zip(&before).all(|(new, old)| (new / old).ln().abs() < 1e-4);
        if self.when != Grids::Always {
            let starts = self.fixed.as_ref().map(|point| vec![point.mean.clone()]);
            let point = self.point(known, &self.scales, starts)?;
            if self.prior.learns_scales() {
                let variances = Cholesky::new(self.precision_at(known, &point, None)?)?.inverse().diagonal();
                self.scales = self.prior.groups.iter().map(|group| group.scale(point.mean.as_slice(), variances.as_slice())).collect();
            }
            self.fixed = Some(point);
            return Some(still(&self.scales));
        }
        for place in 0..self.grids.len() {
            let (number, last) = (self.grids[place].0, std::mem::take(&mut self.grids[place].1));
            let grid = self.grid(known, number, &last)?;
            let step = step(&self.prior.groups[number]);
            let log: f64 = weights(&grid).iter().zip(grid.keys()).map(|(weight, k)| weight * f64::from(*k) * step).sum();
            self.scales[number] = self.prior.groups[number].start() * log.exp();
            self.grids[place].1 = grid;
        }
        if let [(_, first), _, ..] = self.grids.as_slice() {
            let start = mean_of(first, self.prior_mean.len());
            self.centre = Some(self.point(known, &self.scales, Some(vec![start]))?);
        }
        Some(still(&self.scales))
    }

    /// All points that count: those of the last pass, or those that a look at points [`COARSE`] apart finds, and their neighbours.
    fn grid(&self, known: &Known<'_>, number: usize, last: &Grid) -> Option<Grid> {
        let group = &self.prior.groups[number];
        let step = step(group);
        let mut grid = Grid::new();
        let at = |grid: &mut Grid, k: i32, starts: Option<Vec<DVector<f64>>>| -> Option<()> {
            let mut scales = self.scales.clone();
            scales[number] = group.start() * (f64::from(k) * step).exp();
            let mut point = self.point(known, &scales, starts)?;
            // Of ln τ².
            let scale = scales[number];
            point.log_weight -= group.shape * scale.ln() + group.rate / scale;
            grid.insert(k, point);
            Some(())
        };
        let nearest = |grid: &Grid, k: i32| {
            let nearest = last.iter().chain(grid).min_by_key(|(other, _)| (**other - k).abs());
            nearest.map(|(_, point)| vec![point.mean.clone()])
        };
        let likely = inverse_gamma_quantile(group.shape, group.rate, FURTHEST).max(10.0 * self.looked[number]);
        #[allow(clippy::cast_possible_truncation, reason = "a step is at least 7e-4")]
        let furthest = ((likely / group.start()).ln() / step).clamp(1.0, 1e6) as i32;
        #[allow(clippy::cast_possible_truncation, reason = "a step is at least 7e-4")]
        let coarse = ((COARSE / step).ceil() as i32).max(1);
        if last.is_empty() {
            // Down to where the coefficients are 0, and up to the end.
            #[allow(clippy::cast_precision_loss, reason = "a number of coefficients")]
            let low = -(6.0 + (group.count.max(1) as f64).ln());
            #[allow(clippy::cast_possible_truncation, reason = "a step is at least 7e-4")]
            let low = (low / step) as i32 / coarse;
            for k in low..=furthest / coarse {
                at(&mut grid, k * coarse, None)?;
            }
        } else {
            for k in last.keys() {
                let start = nearest(&grid, *k);
                at(&mut grid, *k, start)?;
            }
        }
        // From every point that counts to both sides, until none does.
        loop {
            let best = grid.values().map(|point| point.log_weight).fold(f64::NEG_INFINITY, f64::max);
            let counts = grid.iter().filter(|(_, point)| point.log_weight > best - LEAST);
            let fresh: Vec<i32> = counts.flat_map(|(k, _)| [k - 1, k + 1]).filter(|k| *k <= furthest && !grid.contains_key(k)).collect();
            if fresh.is_empty() || grid.len() > POINTS {
                grid.retain(|_, point| point.log_weight > best - LEAST);
                return Some(grid);
            }
            for k in fresh {
                let start = nearest(&grid, k);
                at(&mut grid, k, start)?;
            }
        }
    }

    /// The mode under these scales, from some starts or from the usual ones.
    fn point(&self, known: &Known<'_>, scales: &[f64], starts: Option<Vec<DVector<f64>>>) -> Option<Point> {
        let prior = DVector::from_vec(self.prior.precisions(scales));
        let curvature = self.of(known, &prior);
        let Found { theta: mean, value } = match known.near {
            Some(near) => curvature.gaussian(near)?,
            None => {
                let usual = || Some(vec![curvature.gaussian(known.reference)?.theta, known.reference.clone(), self.prior_mean.clone()]);
                curvature.mode(&starts.map_or_else(usual, Some)?)?
            }
        };
        let precision = Cholesky::new(curvature.precision(curvature.covariance(known.near.unwrap_or(&mean)))?)?;
        let half_log_determinant: f64 = precision.l_dirty().diagonal().iter().map(|entry| entry.ln()).sum();
        let log_weight = value + 0.5 * prior.iter().map(|entry| entry.ln()).sum::<f64>() - half_log_determinant;
        Some(Point { prior, mean, log_weight })
    }

    fn of<'b>(&'b self, known: &Known<'b>, prior: &'b DVector<f64>) -> UncertainCurvature<'b> {
        UncertainCurvature {
            reference: known.reference,
            gradient: known.gradient,
            curvature: known.curvature,
            noise: known.noise,
            variances: known.variances,
            prior_mean: &self.prior_mean,
            prior_precision: prior,
        }
    }

    /// θ̄. Zeros before a pass.
    pub fn mean(&self) -> DVector<f64> {
        if let Some(point) = &self.fixed {
            return point.mean.clone();
        }
        let d = self.prior_mean.len();
        let means = self.grids.iter().map(|(_, grid)| mean_of(grid, d));
        match &self.centre {
            Some(centre) => means.fold(centre.mean.clone(), |sum, mean| sum + mean - &centre.mean),
            None => means.fold(DVector::zeros(d), |sum, mean| sum + mean),
        }
    }

    /// What is known of every group's τ; `None` where it has no grid.
    pub fn scale_summaries(&self) -> Vec<Option<ScaleSummary>> {
        let mut spreads = vec![None; self.prior.groups.len()];
        if self.fixed.is_none() {
            for (number, grid) in self.grids.iter().filter(|(_, grid)| !grid.is_empty()) {
                let group = &self.prior.groups[*number];
                let log_density: Vec<(i32, f64)> = grid.iter().map(|(k, point)| (*k, point.log_weight)).collect();
                spreads[*number] = Some(ScaleSummary::of_grid(&log_density, step(group), group.start().ln()));
            }
        }
        spreads
    }

    /// Covariance of θ, where S is larger by `ahead`.
    pub fn covariance(&self, known: &Known<'_>, ahead: Option<&DMatrix<f64>>) -> Option<DMatrix<f64>> {
        let at = |point: &Point| Some(Cholesky::new(self.precision_at(known, point, ahead)?)?.inverse());
        if let Some(point) = &self.fixed {
            return at(point);
        }
        let d = self.prior_mean.len();
        let (mut within, mut between) = (DMatrix::zeros(d, d), DMatrix::zeros(d, d));
        for (_, grid) in &self.grids {
            let middle = mean_of(grid, d);
            for (weight, point) in weights(grid).into_iter().zip(grid.values()) {
                let away = &point.mean - &middle;
                within += at(point)? * weight;
                between.ger(weight, &away, &away, 1.0);
            }
        }
        let Some(centre) = &self.centre else { return Some(within + between) };
        #[allow(clippy::cast_precision_loss, reason = "a number of groups")]
        let groups = self.grids.len() as f64;
        let all = &within + &between - at(centre)? * (groups - 1.0);
        Some(if Cholesky::new(all.clone()).is_some() { all } else { within / groups + between })
    }

    /// The inverse of [`Self::covariance`].
    pub fn precision(&self, known: &Known<'_>, ahead: &DMatrix<f64>) -> Option<DMatrix<f64>> {
        match &self.fixed {
            Some(point) => self.precision_at(known, point, Some(ahead)),
            None => Some(Cholesky::new(self.covariance(known, Some(ahead))?)?.inverse()),
        }
    }

    fn precision_at(&self, known: &Known<'_>, point: &Point, ahead: Option<&DMatrix<f64>>) -> Option<DMatrix<f64>> {
        let curvature = self.of(known, &point.prior);
        let residual = curvature.covariance(known.near.unwrap_or(&point.mean)) + known.unknown;
        UncertainCurvature { curvature: known.there, ..curvature }.precision(match ahead {
            Some(ahead) => residual + ahead,
            None => residual,
        })
    }
}

/// Distance of a group's points in ln τ².
fn step(group: &Group) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a number of coefficients")]
    let shape = group.shape + 0.5 * group.count as f64;
    STEP / shape.sqrt()
}

/// Of all points, adding up to 1.
fn weights(grid: &Grid) -> Vec<f64> {
    let best = grid.values().map(|point| point.log_weight).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = grid.values().map(|point| (point.log_weight - best).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

fn mean_of(grid: &Grid, dimension: usize) -> DVector<f64> {
    weights(grid).iter().zip(grid.values()).fold(DVector::zeros(dimension), |sum, (weight, point)| sum + &point.mean * *weight)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Grids, Known, Scaled};
    use crate::spec::Prior;
    use dp_pvi_math::scales::Group;
    use nalgebra::{DMatrix, DVector};

    const GROUP: Group = Group { first: 1, count: 2, shape: 1.0, rate: 0.25, fixed: None };

    fn prior(groups: Vec<Group>) -> Prior {
        let mut prior = Prior { mean: vec![0.1, 0.0, 0.0], precision: vec![0.5, 4.0, 4.0], groups };
        prior.precision = prior.precisions(&prior.starts());
        prior
    }

    /// What is known of a likelihood whose curvature has no errors.
    struct Exact {
        reference: DVector<f64>,
        gradient: DVector<f64>,
        curvature: DMatrix<f64>,
        noise: DMatrix<f64>,
        variances: DMatrix<f64>,
        unknown: DMatrix<f64>,
    }

    impl Exact {
        fn new(gradient: [f64; 3], noise: f64) -> Self {
            Self {
                reference: DVector::zeros(3),
                gradient: DVector::from_row_slice(&gradient),
                curvature: DMatrix::from_row_slice(3, 3, &[60.0, 10.0, -5.0, 10.0, 40.0, 2.0, -5.0, 2.0, 20.0]),
                noise: DMatrix::identity(3, 3) * noise,
                variances: DMatrix::zeros(3, 3),
                unknown: DMatrix::zeros(3, 3),
            }
        }

        fn known(&self) -> Known<'_> {
            Known {
                reference: &self.reference,
                gradient: &self.gradient,
                curvature: &self.curvature,
                there: &self.curvature,
                noise: &self.noise,
                unknown: &self.unknown,
                variances: &self.variances,
                near: None,
            }
        }

        /// Mean and covariance by a sum over a fine grid of ln τ², on which everything is normal: g ~ N(H m0, H + N + H Λ0⁻¹ H).
        fn by_a_fine_grid(&self, prior: &Prior) -> (DVector<f64>, DMatrix<f64>) {
            let m0 = DVector::from_column_slice(&prior.mean);
            let own = &self.curvature + &self.noise;
            let at = |k: i32| {
                let scale = (f64::from(k) * 0.01).exp();
                let precision = DVector::from_vec(prior.precisions(&[scale]));
                let marginal = &own + &self.curvature * DMatrix::from_diagonal(&precision.map(|p| 1.0 / p)) * &self.curvature;
                let residual = &self.gradient - &self.curvature * &m0;
                let density =
                    -0.5 * residual.dot(&(marginal.clone().try_inverse().unwrap() * &residual)) - 0.5 * marginal.determinant().ln();
                let weight = &self.curvature * own.clone().try_inverse().unwrap();
                let covariance = (&weight * &self.curvature + DMatrix::from_diagonal(&precision)).try_inverse().unwrap();
                let mean = &covariance * (weight * &self.gradient + precision.component_mul(&m0));
                (density - GROUP.shape * scale.ln() - GROUP.rate / scale, mean, covariance)
            };
            // Up to half a step behind the last point before the prior's last percent.
            let points: Vec<_> = (-900..=460).map(|k| at(k - 139)).collect();
            let best = points.iter().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = points.iter().map(|point| (point.0 - best).exp()).sum();
            let share = |log: f64| (log - best).exp() / total;
            let mean = points.iter().fold(DVector::zeros(3), |sum, (log, mean, _)| sum + mean * share(*log));
            let covariance = points.iter().fold(DMatrix::zeros(3, 3), |sum, (log, own, covariance)| {
                let away = own - &mean;
                sum + (covariance + &away * away.transpose()) * share(*log)
            });
            (mean, covariance)
        }
    }

    #[test]
    fn without_learned_scales_it_is_the_mode() {
        let (prior, exact) = (prior(vec![Group { fixed: Some(0.3), ..GROUP }]), Exact::new([-30.0, 12.0, 8.0], 15.0));
        let mut scaled = Scaled::new(&prior, &[0.0; 3]);
        assert!(scaled.pass(&exact.known()).unwrap());
        let precision = DVector::from_vec(prior.precision.clone());
        let curvature = scaled.of(&exact.known(), &precision);
        let mode = curvature.mode(std::slice::from_ref(&exact.reference)).unwrap().theta;
        assert!((scaled.mean() - &mode).norm() < 1e-9);
        let expected = curvature.precision(curvature.covariance(&mode)).unwrap();
        assert!((scaled.precision(&exact.known(), &DMatrix::zeros(3, 3)).unwrap() - expected).norm() < 1e-9);
    }

    /// Where the data say what τ is, and where they hardly do.
    #[test]
    fn it_is_the_mean_over_the_scale() {
        for (gradient, noise) in
            [([-30.0, 120.0, 80.0], 15.0), ([-30.0, 12.0, 8.0], 15.0), ([-30.0, 200.0, -90.0], 4000.0), ([0.0, 0.0, 0.0], 1e5)]
        {
            let (prior, exact) = (prior(vec![GROUP]), Exact::new(gradient, noise));
            let mut scaled = Scaled::new(&prior, &[0.0; 3]);
            scaled.pass(&exact.known()).unwrap();
            let (mean, covariance) = exact.by_a_fine_grid(&prior);
            let error = (scaled.mean() - &mean).component_div(&covariance.diagonal().map(f64::sqrt)).amax();
            let ratio = scaled.covariance(&exact.known(), None).unwrap().diagonal().component_div(&covariance.diagonal());
            assert!(error < 0.01 && ratio.iter().all(|ratio| (ratio - 1.0).abs() < 0.03), "{gradient:?} {error} {ratio}");
            // Again from there: nothing has changed.
            assert!(scaled.pass(&exact.known()).unwrap());
        }
    }

    /// What many coefficients are given: one τ until the last pass.
    #[test]
    fn grids_that_wait_end_at_the_same() {
        for (gradient, noise) in [([-30.0, 120.0, 80.0], 15.0), ([-30.0, 12.0, 8.0], 15.0), ([-30.0, 200.0, -90.0], 4000.0)] {
            let (prior, exact) = (prior(vec![GROUP]), Exact::new(gradient, noise));
            let mut scaled = Scaled { when: Grids::Last, ..Scaled::new(&prior, &[0.0; 3]) };
            assert!((0..200).any(|_| scaled.pass(&exact.known()).unwrap()), "the scale does not settle");
            assert!(scaled.waits());
            scaled.begin_last();
            scaled.pass(&exact.known()).unwrap();
            let (mean, covariance) = exact.by_a_fine_grid(&prior);
            let error = (scaled.mean() - &mean).component_div(&covariance.diagonal().map(f64::sqrt)).amax();
            let ratio = scaled.covariance(&exact.known(), None).unwrap().diagonal().component_div(&covariance.diagonal());
            assert!(
                !scaled.waits() && error < 0.01 && ratio.iter().all(|ratio| (ratio - 1.0).abs() < 0.03),
                "{gradient:?} {error} {ratio}"
            );
        }
    }

    /// With errors of the curvature, where the coefficients may have two maxima: what waits finds the same as what does not.
    #[test]
    fn grids_that_wait_look_everywhere() {
        let prior = prior(vec![GROUP]);
        for gradient in [[-30.0, 120.0, 80.0], [-30.0, -160.0, 70.0]] {
            let mut exact = Exact::new(gradient, 15.0);
            exact.variances = DMatrix::from_element(3, 3, 250.0);
            exact.reference = DVector::from_row_slice(&[0.2, -2.5, 1.5]);
            let of = |when: Grids| {
                let mut scaled = Scaled { when, ..Scaled::new(&prior, exact.reference.as_slice()) };
                (0..12).for_each(|_| assert!(scaled.pass(&exact.known()).is_some()));
                scaled.begin_last();
                scaled.pass(&exact.known()).unwrap();
                (scaled.mean(), scaled.covariance(&exact.known(), None).unwrap())
            };
            let ((mean, covariance), (other, same)) = (of(Grids::Always), of(Grids::Last));
            let error = (&other - &mean).component_div(&covariance.diagonal().map(f64::sqrt)).amax();
            assert!(error < 0.05 && (same.trace() / covariance.trace() - 1.0).abs() < 0.05, "{mean} {other} {covariance} {same}");
        }
    }

    /// Two groups, of which each is as it would be alone: nothing of one is told by the other.
    #[test]
    fn groups_that_know_nothing_of_each_other_are_as_alone() {
        let own = |first: usize| Group { first, count: 1, ..GROUP };
        let mut exact = Exact::new([0.0, 30.0, 25.0], 10.0);
        exact.curvature = DMatrix::from_diagonal(&DVector::from_row_slice(&[60.0, 40.0, 20.0]));
        let alone = |group: Group| {
            let prior = prior(vec![group]);
            let mut scaled = Scaled::new(&prior, &[0.0; 3]);
            scaled.pass(&exact.known()).unwrap();
            let j = group.first;
            (scaled.mean()[j], scaled.covariance(&exact.known(), None).unwrap()[(j, j)])
        };
        let expected = [alone(own(1)), alone(own(2))];
        let prior = prior(vec![own(1), own(2)]);
        let mut scaled = Scaled::new(&prior, &[0.0; 3]);
        (0..20).for_each(|_| assert!(scaled.pass(&exact.known()).is_some()));
        let covariance = scaled.covariance(&exact.known(), None).unwrap();
        for (j, (mean, variance)) in [(1, expected[0]), (2, expected[1])] {
            assert!((scaled.mean()[j] - mean).abs() < 0.01 * variance.sqrt(), "{j}: {} {mean}", scaled.mean()[j]);
            assert!((covariance[(j, j)] / variance - 1.0).abs() < 0.01, "{j}: {} {variance}", covariance[(j, j)]);
        }
    }
}
