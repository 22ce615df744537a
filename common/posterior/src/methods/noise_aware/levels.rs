//! Levels whose curvature the last looks do not see.
//!
//! Where nearly all records of a level have one label, their predictor moves far out, and their curvature towards 0. The last looks then hold next to nothing of the level's coefficient: taken with their
//! curvature they allow whatever the prior does, though a coefficient near 0 would have had a large gradient there. The first looks, from where the curvature was another one, count for little.
//! What all looks tell together is how many records N the level has, and how many ones Y among them. With r₀ and r₁ the residuals of the two labels at the predictor m_t of the level at look t,
//! D = r₁ − r₀, p = −r₀/D the chance of a one there, c the expected curvature, and ω the weight of a record,
//!
//! g_j/D = ω (Y − N p(m_t)), H_jj = ω N c(m_t), each with its noise: N and Y by least squares. All are expectations over q_t and over the rows of the level.
//!
//! Given the true predictor m of the level, Y is the sum of N labels: Poisson of the rarer label where few are expected, else about normal. With N unknown and flat, the density of
//! what was found is that of Y − N p(m) plus the noise that this combination has: it multiplies the posterior of m, and what that does to mean and variance of m is carried to all coefficients.
//!
//! Only levels are taken of which the looks tell less than a known prior does: the little that they do tell counts twice.
//! Source: this project; a density that is multiplied in and brought back to a Gaussian is a step of assumed-density filtering (Minka 2001).

use dp_pvi_expfam::any::{Gaussian, Standard};
use nalgebra::{Cholesky, DMatrix, DVector, Matrix2, Vector2};

use super::correlations::{Correlations, expected_curvature};
use super::looks::Look;
use super::weighted::Weighted;
use crate::models::predictor::{Predictor, Statistics};
use crate::spec::Prior;

/// Error of a chance, or of a curvature, that the model gives for the records of a level, relative to what is left of it and to what it has changed by: predictors are not normal, and their moments are guessed.
const BY_MODEL: f64 = 0.5;

/// How many standard deviations N has to be above 0: where that is by chance, N is too large.
const SEEN: f64 = 5.0;

/// Passes in which the errors of the model, which are proportional to N, are brought into agreement with it.
const PASSES: usize = 3;

/// Variance of Y up to which it is summed over as a Poisson count, and up to which count.
const FEW: f64 = 25.0;
const COUNTS: u32 = 90;

/// Reach in standard deviations and number of points, to either side, of the sums over m; fewest points in a standard deviation, and passes in which the sums find where they have to be.
const REACH: f64 = 9.0;
const POINTS: i32 = 150;
const FINE: f64 = 5.0;
const SEARCHES: usize = 8;

/// The looks of a run, in which records have two classes.
pub(super) struct Run<'a> {
    pub(super) looks: &'a [Look],
    /// q_t, of which every look is an expectation.
    pub(super) around: &'a [Gaussian],
    pub(super) correlations: &'a Correlations,
    pub(super) weighted: Option<&'a Weighted>,
    pub(super) prior: &'a Prior,
}

/// The records of a level.
struct Level {
    coordinate: usize,
    /// Mean of their rows.
    row: DVector<f64>,
    /// Covariance of their rows.
    within: DMatrix<f64>,
    /// Mean squared norms of their gradients and curvatures for r = c = 1.
    squares: Option<[f64; 2]>,
}

/// N and Y, and their covariance.
struct Counts {
    mean: Vector2<f64>,
    covariance: Matrix2<f64>,
}

/// What the model says of the records of a level for one predictor.
struct At {
    labels: [Statistics; 2],
    difference: f64,
    chance: f64,
}

impl At {
    fn new(model: &dyn Predictor, mean: f64, variance: f64) -> Option<Self> {
        let labels = [0.0, 1.0].map(|label| model.statistics(mean, variance, label));
        let difference = labels[1].residual - labels[0].residual;
        let chance = -labels[0].residual / difference;
        (0.0..=1.0).contains(&chance).then_some(Self { labels, difference, chance })
    }
}

impl Run<'_> {
    /// Mean and precision with what the looks tell of such levels, given both without it.
    pub(super) fn with_levels(&self, (mut mean, mut precision): (DVector<f64>, DMatrix<f64>)) -> (DVector<f64>, DMatrix<f64>) {
        // A prior whose scale is learned is not known.
        let learned = |j: usize| self.prior.groups.iter().any(|group| (group.first..group.first + group.count).contains(&j));
        let unseen = |j: &usize| precision[(*j, *j)] <= 2.0 * self.prior.precision[*j] && !learned(*j);
        let levels: Vec<usize> = (0..mean.len()).filter(|&j| self.correlations.is_indicator(j)).filter(unseen).collect();
        for j in levels {
            if let Some(both) = self.with_level(j, (&mean, &precision)) {
                (mean, precision) = both;
            }
        }
        (mean, precision)
    }

    fn with_level(&self, j: usize, (mean, precision): (&DVector<f64>, &DMatrix<f64>)) -> Option<(DVector<f64>, DMatrix<f64>)> {
        let (spec, true) = self.correlations.model_of_expected_curvature()? else { return None };
        let model = spec.rules().predictor()?;
        let level = self.level(j)?;
        let counts = self.counts(&level, model)?;
        let along = Cholesky::new(precision.clone())?.solve(&level.row);
        let (centre, variance) = (level.row.dot(mean), level.row.dot(&along));
        let (sd, spread) = (variance.sqrt(), level.spread(mean));
        // In standard deviations from the mean: what the sum goes over, until its points are close to each other for what it finds.
        let (mut shift, mut reach) = (0.0, REACH);
        for _ in 0..SEARCHES {
            let step = reach / f64::from(POINTS);
            let log = |k: i32| {
                let u = shift + step * f64::from(k);
                let at = At::new(model, centre + sd * u, spread);
                (u, at.map_or(f64::NEG_INFINITY, |at| counts.log_density(&at) - 0.5 * u * u))
            };
            let points: Vec<(f64, f64)> = (-POINTS..=POINTS).map(log).collect();
            let best = points.iter().map(|(_, log)| *log).fold(f64::NEG_INFINITY, f64::max);
            let sums = points.into_iter().fold([0.0; 3], |[total, first, second], (u, log)| {
                let weight = (log - best).exp();
                [total + weight, first + weight * u, second + weight * u * u]
            });
            let middle = sums[1] / sums[0];
            let share = (sums[2] / sums[0] - middle * middle).max(0.0);
            shift = middle;
            if !shift.is_finite() {
                return None;
            }
            if share.sqrt() >= FINE * step {
                let moved = precision + &level.row * level.row.transpose() * ((1.0 / share - 1.0) / variance);
                return Some((mean + along * (shift / sd), moved));
            }
            reach = REACH * share.sqrt().max(step);
        }
        None
    }

    /// By the moments of all rows: those of a level have it, and their other entries are about normal given that.
    fn level(&self, j: usize) -> Option<Level> {
        let (moments, intercept) = (self.correlations.moments()?, self.correlations.intercept()?);
        let all = moments.column(intercept);
        let (covariance, own) = (&moments - all * all.transpose(), moments[(j, j)]);
        if own <= 0.0 {
            return None;
        }
        let mut row = moments.column(j) / own;
        for (i, entry) in row.iter_mut().enumerate() {
            // A mean is at most the root of a mean square, whatever noise the moments have.
            let most = (moments[(i, i)] / own).max(0.0).sqrt();
            *entry = match i {
                _ if i == j || i == intercept => 1.0,
                _ if self.correlations.are_levels(i, j) => 0.0,
                _ if self.correlations.is_indicator(i) => entry.clamp(0.0, 1.0),
                _ => entry.clamp(-most, most),
            };
        }
        let beside = covariance.column(j).into_owned();
        let mut within =
            if covariance[(j, j)] > 0.0 { &covariance - &beside * beside.transpose() / covariance[(j, j)] } else { covariance };
        for i in (0..row.len()).filter(|&i| self.correlations.are_levels(i, j) || i == intercept) {
            within.row_mut(i).fill(0.0);
            within.column_mut(i).fill(0.0);
        }
        let squares = self.weighted.map(|weighted| weighted.squares(&(&within + &row * row.transpose()), self.correlations));
        Some(Level { coordinate: j, row, within, squares })
    }

    /// `None` where N is not seen.
    fn counts(&self, level: &Level, model: &dyn Predictor) -> Option<Counts> {
        let at = |(look, q): (&Look, &Gaussian)| {
            At::new(model, level.row.dot(&look.point), level.spread(&look.point) + level.uncertainty(q.standard()))
        };
        let ats: Vec<At> = self.looks.iter().zip(self.around).map(at).collect::<Option<_>>()?;
        let start = ats.first()?.chance;
        #[allow(clippy::cast_precision_loss, reason = "a number of rounds")]
        let shared = BY_MODEL * BY_MODEL * self.looks.len() as f64;
        let mut found: Option<Counts> = None;
        for _ in 0..PASSES {
            let size = found.as_ref().map_or(0.0, |counts| counts.mean[0]);
            let (mut information, mut told) = (Matrix2::zeros(), Vector2::zeros());
            let mut tell = |row: Vector2<f64>, value: f64, variance: f64| {
                information += row * row.transpose() / variance;
                told += row * (value / variance);
            };
            for (look, at) in self.looks.iter().zip(&ats) {
                let weight = self.weighted.zip(level.squares).map_or(1.0, |(weighted, squares)| weighted.weight(at.labels, squares));
                let unsure = at.chance.min(1.0 - at.chance).min((at.chance - start).abs());
                let expected = weight * expected_curvature(at.labels[0], at.labels[1]);
                // The model is wrong in the same way in all looks: many of them do not make this smaller.
                let of_gradient =
                    look.noise[level.coordinate] / (at.difference * at.difference) + shared * (size * weight * unsure).powi(2);
                tell(Vector2::new(-at.chance, 1.0) * weight, look.gradient[level.coordinate] / at.difference, of_gradient);
                let (curvature, noise) = look.of_diagonal(level.coordinate);
                tell(Vector2::new(expected, 0.0), curvature, noise + shared * (size * expected).powi(2));
            }
            let covariance = information.try_inverse()?;
            found = Some(Counts { mean: covariance * told, covariance });
        }
        found.filter(|counts| counts.mean[0] > SEEN * counts.covariance[(0, 0)].sqrt())
    }
}

impl Level {
    /// Variance of the records' predictors at these coefficients.
    fn spread(&self, coefficients: &DVector<f64>) -> f64 {
        (&self.within * coefficients).dot(coefficients).max(0.0)
    }

    /// Mean variance of a record's predictor under q.
    fn uncertainty(&self, q: &Standard) -> f64 {
        let square = |i: usize, j: usize| self.within[(i, j)] + self.row[i] * self.row[j];
        let sum: f64 = match q {
            Standard::Diagonal(q) => q.variance().iter().enumerate().map(|(i, variance)| variance * square(i, i)).sum(),
            Standard::Full(q) => {
                let covariance = q.covariance();
                (0..self.row.len())
                    .flat_map(|i| (0..self.row.len()).map(move |j| (i, j)))
                    .map(|(i, j)| covariance[(i, j)] * square(i, j))
                    .sum()
            }
        };
        sum.max(0.0)
    }
}

impl Counts {
    /// Of what was found, if the records' predictor is this.
    fn log_density(&self, at: &At) -> f64 {
        let row = Vector2::new(-at.chance, 1.0);
        let (records, off) = (self.mean[0], row.dot(&self.mean));
        let (noise, own) = ((self.covariance * row).dot(&row), records * at.chance * (1.0 - at.chance));
        if own > FEW {
            let variance = noise + own;
            return -0.5 * (off * off / variance + variance.ln());
        }
        // Of the rarer label.
        let (rare, off) = if at.chance > 0.5 { (1.0 - at.chance, -off) } else { (at.chance, off) };
        let mean = records * rare;
        let mut log_chance = -mean;
        let logs: Vec<f64> = (0..=COUNTS)
            .map(|count| {
                let count = f64::from(count);
                if count > 0.0 {
                    log_chance += (mean / count).ln();
                }
                log_chance - 0.5 * (off + mean - count).powi(2) / noise
            })
            .collect();
        let best = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        best + logs.iter().map(|log| (log - best).exp()).sum::<f64>().ln() - 0.5 * noise.ln()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Look, Run};
    use crate::methods::noise_aware::correlations::{Correlations, Products};
    use crate::methods::noise_aware::weighted::{Weighted, weight_within};
    use crate::models::linear_regression::LinearRegression;
    use crate::models::logistic_regression::LogisticRegression;
    use crate::models::poisson_regression::PoissonRegression;
    use crate::models::predictor::Predictor;
    use crate::spec::Prior;
    use dp_pvi_expfam::any::{Family, Gaussian};
    use dp_pvi_expfam::gaussian::full::svec;
    use dp_pvi_numerics::scales::Group;
    use dp_pvi_schema::EntryKind as Entry;
    use nalgebra::{DMatrix, DVector};

    const CASES: [(f64, f64, f64); 6] =
        [(800.0, 4.0, 10.0), (300.0, 0.0, 0.5), (300.0, 0.0, 4.0), (1500.0, 30.0, 30.0), (1500.0, 0.0, 30.0), (200.0, 0.0, 12.0)];

    fn chance(predictor: f64) -> f64 {
        1.0 / (1.0 + (-predictor).exp())
    }

    /// 4,000 records of which so many have the level, and so many of these label 1.
    #[derive(Clone, Copy)]
    struct Records {
        level: f64,
        ones: f64,
        /// Clipping norm that weights keep to.
        clip_norm: Option<f64>,
    }

    /// What is given to [`Run`].
    struct Released {
        looks: Vec<Look>,
        around: Vec<Gaussian>,
        correlations: Correlations,
        weighted: Option<Weighted>,
        prior: Prior,
    }

    impl Released {
        fn with_levels(&self, known: (DVector<f64>, DMatrix<f64>)) -> (DVector<f64>, DMatrix<f64>) {
            let Self { looks, around, correlations, weighted, prior } = self;
            Run { looks, around, correlations, weighted: weighted.as_ref(), prior }.with_levels(known)
        }
    }

    impl Records {
        /// A run on its way from 0, whose noise has this standard deviation and is 0 by chance, towards a level that is `sign` times as unlikely as it can be.
        fn released(&self, sd: f64, sign: f64) -> Released {
            let model = LogisticRegression {};
            let weight = |labels| self.clip_norm.map_or(1.0, |norm| weight_within(norm, 1.0, labels, [2.0, 4.0]));
            let (mut looks, mut around) = (Vec::new(), Vec::new());
            for t in 0..8 {
                let left = 0.5_f64.powi(t);
                let point = DVector::from_vec(vec![-5.0 * sign * (1.0 - left), -0.5 * sign * (1.0 - left)]);
                // Nothing tells of the level: q knows as much as the prior.
                let variances = [1.0, left];
                let labels = |mean: f64, variance: f64| [0.0, 1.0].map(|label| model.statistics(mean, variance, label));
                let own = labels(point[0] + point[1], variances[0] + variances[1]);
                let rest = labels(point[1], variances[1]);
                let ones = if sign > 0.0 { self.ones } else { self.level - self.ones };
                let gradient = weight(own) * (ones * own[1].residual + (self.level - ones) * own[0].residual);
                let curvature = weight(own) * self.level * own[0].curvature;
                let others = 4000.0 - self.level;
                let matrix = DMatrix::from_row_slice(2, 2, &[curvature, curvature, curvature, curvature + others * rest[0].curvature]);
                looks.push(Look {
                    gradient: DVector::from_vec(vec![gradient, gradient + others * (0.4 + rest[0].residual)]),
                    curvature: DVector::from_vec(svec(&matrix)),
                    noise: DVector::from_element(2, sd * sd),
                    curvature_noise: DVector::from_element(3, sd * sd),
                    point: point.clone(),
                });
                let precision = DMatrix::from_diagonal(&DVector::from_vec(variances.map(f64::recip).to_vec()));
                let natural = [(&precision * point).as_slice(), &svec(&precision)].concat();
                around.push(Gaussian::from_natural(Family::FullGaussian { dimension: 2 }, natural).unwrap());
            }
            let matrix = DMatrix::from_row_slice(2, 2, &[self.level, self.level, self.level, 4000.0]);
            let products = Products { raised: DMatrix::zeros(2, 2), matrix, noise: 0.0 };
            let correlations =
                Correlations::of_entries(vec![Entry::Indicator { group: 0 }, Entry::Intercept], Some(products)).of_model(model.into());
            let weighted = self.clip_norm.map(|clip_norm| Weighted { model: model.into(), clip_norm, curvature_weight: 1.0, scales: None });
            let prior = Prior { mean: vec![0.0; 2], precision: vec![1.0; 2], groups: Vec::new() };
            Released { looks, around, correlations, weighted, prior }
        }

        /// Mean and standard deviation of the level's coefficient, given noise of this standard deviation on Y, which is 0 by chance, and N: by a sum over the coefficient and the label's ones.
        fn exact(&self, sd: f64) -> (f64, f64) {
            let log_choose: Vec<f64> = (1..=400)
                .map(f64::from)
                .scan(0.0, |sum, y| {
                    *sum += ((self.level - y + 1.0) / y).ln();
                    Some(*sum)
                })
                .collect();
            let density = |m: f64| -> f64 {
                let p = chance(m - 0.5);
                let ones = (0..=400).map(f64::from).enumerate().map(|(k, y)| {
                    let choose = if k == 0 { 0.0 } else { log_choose[k - 1] };
                    let noise = 0.5 * ((y - self.ones) / sd).powi(2);
                    (choose + y * p.ln() + (self.level - y) * (1.0 - p).ln() - noise - 0.5 * 1.05 * (m - 0.3).powi(2)).exp()
                });
                ones.filter(|value| value.is_finite()).sum()
            };
            let points = (-800..=200).map(|k| f64::from(k) * 0.01).map(|m| (density(m), m));
            let sums = points.fold([0.0; 3], |[a, b, c], (w, m)| [a + w, b + w * m, c + w * m * m]);
            let mean = sums[1] / sums[0];
            (mean, (sums[2] / sums[0] - mean * mean).sqrt())
        }
    }

    /// What a run knows whose last looks have not seen the level: the intercept, and next to nothing of the level.
    fn unseen(own: f64) -> (DVector<f64>, DMatrix<f64>) {
        (DVector::from_vec(vec![0.3, -0.5]), DMatrix::from_diagonal(&DVector::from_vec(vec![own, 900.0])))
    }

    /// Of either label; also where weights differ between looks.
    #[test]
    fn a_level_that_the_last_looks_do_not_see_is_where_all_looks_say() {
        for (level, ones, noise) in CASES {
            for (sign, clip_norm) in [(1.0, None), (-1.0, None), (1.0, Some(0.9))] {
                let records = Records { level, ones, clip_norm };
                let released = records.released(noise, sign);
                let (mean, precision) = unseen(1.05);
                let (mean, precision) = released.with_levels((mean * sign, precision));
                let (mean, sd) = (sign * mean[0], precision.try_inverse().unwrap()[(0, 0)].sqrt());
                // A weight that most looks have makes their noise larger beside what they tell.
                let weight = clip_norm.map_or(1.0, |_| 0.7);
                let (expected, expected_sd) = records.exact(noise / 8.0_f64.sqrt() / weight);
                let case = format!("{level} {ones} {noise} {sign} {clip_norm:?}: {mean} {sd}, {expected} {expected_sd}");
                assert!((mean - expected).abs() < 0.9 * expected_sd, "{case}");
                assert!((0.85..1.2).contains(&(sd / expected_sd)), "{case}");
            }
        }
    }

    /// A prior that is so wide, and records that are so many, that the density is much narrower than the prior.
    #[test]
    fn a_density_that_is_narrow_beside_the_prior_is_found() {
        let mut released = Records { level: 3500.0, ones: 300.0, clip_norm: None }.released(1.0, 1.0);
        released.prior.precision[0] = 0.01;
        let (mean, precision) = released.with_levels(unseen(0.01));
        let (expected, expected_sd) = ((300.0_f64 / 3200.0).ln() + 0.5, (3500.0_f64 / 300.0 / 3200.0).sqrt());
        let sd = precision.try_inverse().unwrap()[(0, 0)].sqrt();
        assert!((mean[0] - expected).abs() < expected_sd, "{} {expected}", mean[0]);
        assert!((1.0..2.0).contains(&(sd / expected_sd)), "{sd} {expected_sd}");
    }

    #[test]
    fn what_the_looks_see_or_do_not_count_stays_as_it_is() {
        let records = Records { level: 800.0, ones: 4.0, clip_norm: None };
        let stays = |released: &Released, own: f64| released.with_levels(unseen(own)) == unseen(own);
        let released = records.released(10.0, 1.0);
        assert!(!stays(&released, 1.9) && stays(&released, 2.1));
        assert!(stays(&records.released(1000.0, 1.0), 1.9), "N is not seen");
        let group = Group { first: 0, count: 1, shape: 1.0, rate: 0.25, fixed: None };
        let prior = Prior { groups: vec![group], ..released.prior.clone() };
        assert!(stays(&Released { prior, ..records.released(10.0, 1.0) }, 1.9), "the prior is not known");
        for model in [LinearRegression { noise_sd: 1.0 }.into(), PoissonRegression {}.into()] {
            let correlations = records.released(10.0, 1.0).correlations.of_model(model);
            assert!(stays(&Released { correlations, ..records.released(10.0, 1.0) }, 1.9), "not of two classes");
        }
        let correlations = Correlations::of_entries(vec![Entry::Indicator { group: 0 }, Entry::Intercept], None);
        let correlations = correlations.of_model(LogisticRegression {}.into());
        assert!(stays(&Released { correlations, ..records.released(10.0, 1.0) }, 1.9), "without moments");
    }
}
