//! Maxima of the local bound of a linear predictor: a closed form, or natural-gradient ascent with backtracking.

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use dp_pvi_models::predictor::{Predictor, Statistics};
use nalgebra::{Cholesky, DMatrix, DVector};

use crate::capabilities::dual;
use crate::capabilities::glm;
use dp_pvi_records::{RecordTable, RecordView};

/// Iterations, whatever the data.
const ITERATIONS: usize = 200;
/// Times that a step is halved.
const HALVINGS: usize = 20;
/// A step is accepted if the bound falls by less than this share of 1 + |bound|: without it, rounding stalls the search near 1e-8.
const SLACK: f64 = 1e-12;

/// Of y ~ N(xᵀθ, 1/`precision`) in closed form. Full covariance: Λ* = Λ_c + XᵀX/σ², h* = h_c + Xᵀy/σ², y without the offset. Mean field:
/// Λ* = Λ_c + diag(XᵀX)/σ² and μ* solves (diag Λ_c + XᵀX/σ²) μ* = h_c + Xᵀy/σ². The off-diagonal of XᵀX belongs to the mean: h* = Λ*μ*, and *not*
/// h_c + Xᵀy/σ², which is what dropping it gives.
pub(super) fn closed_form(precision: f64, table: &RecordTable, weight: f64, cavity: &Gaussian) -> Result<Gaussian, InvalidParameters> {
    let precision = weight * precision;
    let (xy, xx) = glm::sums(table, |record| {
        let precision = precision * record.extra.weight;
        Statistics { residual: precision * (record.target - record.offset), curvature: precision }
    });
    let family = *cavity.family();
    let d = family.dimension();
    let (h, precision) = cavity.natural().split_at(d);
    let h = DVector::from_column_slice(h) + xy;
    let natural = match family {
        Family::FullGaussian { .. } => h.iter().copied().chain(svec(&(unsvec(precision, d) + xx))).collect(),
        Family::DiagonalGaussian { .. } => {
            let precision = DVector::from_column_slice(precision);
            let total = &precision + xx.diagonal();
            let matrix = DMatrix::from_diagonal(&precision) + xx;
            let factor = Cholesky::new(matrix).ok_or(InvalidParameters::Domain("the normal equations are not positive definite"))?;
            let mean = factor.solve(&h);
            total.component_mul(&mean).iter().copied().chain(total.iter().copied()).collect()
        }
    };
    Gaussian::from_natural(family, natural)
}

/// Of a log-concave likelihood: maximises w Σ E_q log p(record | θ) − KL(q‖cavity). The search ends when no parameter changes by more than `tolerance` of the largest.
///
/// One iteration sets Λ' = (1−ρ)Λ + ρ(Λ_c + H) and μ' = μ + ρ A⁻¹(g + h_c − Λ_c μ), where A = Λ_c + w Xᵀdiag(B2)X is the full matrix
/// for both families (it only preconditions the mean field), begins with ρ = 1 and halves ρ until the bound does not decrease.
/// Λ starts at Λ_c + wΣc₀xxᵀ (its diagonal in the mean field), c₀ the model's [`Predictor::typical_curvature`], μ at the mean of `start`.
///
/// In the mean field only the columns that have an entry are fitted, which is where small shards of wide one-hot rows save their time: at the
/// other coordinates the optimum is the cavity. A few records are solved record by record ([`dual`]).
pub(super) fn fit_log_concave(
    model: &dyn Predictor,
    table: &RecordTable,
    weight: f64,
    tolerance: f64,
    cavity: &Gaussian,
    start: &Gaussian,
) -> Result<Gaussian, InvalidParameters> {
    if matches!(cavity.family(), Family::DiagonalGaussian { .. })
        && let Some(optimum) = dual::optimum(model, table, weight, tolerance, cavity)
    {
        return optimum;
    }
    ascent_on_support(model, table, weight, tolerance, cavity, start)
}

/// The search over the columns that have an entry. It asks for no concavity: a step that would make the bound smaller is halved, so that the end is an optimum near
/// `start`, whether or not there are others.
pub(super) fn ascent_on_support(
    model: &dyn Predictor,
    table: &RecordTable,
    weight: f64,
    tolerance: f64,
    cavity: &Gaussian,
    start: &Gaussian,
) -> Result<Gaussian, InvalidParameters> {
    let d = cavity.family().dimension();
    if matches!(cavity.family(), Family::DiagonalGaussian { .. }) {
        let support = support(table, d);
        if support.is_empty() {
            return Ok(cavity.clone());
        }
        if support.len() < d {
            let narrow = |q: &Gaussian| {
                let natural = [0, d].iter().flat_map(|block| support.iter().map(move |&j| q.natural()[block + j])).collect();
                Gaussian::from_natural(Family::DiagonalGaussian { dimension: support.len() }, natural)
            };
            let (small_cavity, small_start) = (narrow(cavity)?, narrow(start)?);
            let small = restricted(table, &support, d);
            let fit = ascend(&OfPredictor { model, table: &small, weight }, tolerance, &small_cavity, &small_start)?;
            let mut natural = cavity.natural().to_vec();
            for (position, &j) in support.iter().enumerate() {
                natural[j] = fit.natural()[position];
                natural[d + j] = fit.natural()[support.len() + position];
            }
            return Gaussian::from_natural(*cavity.family(), natural);
        }
    }
    ascend(&OfPredictor { model, table, weight }, tolerance, cavity, start)
}

/// Columns that have an entry, ascending.
fn support(table: &RecordTable, d: usize) -> Vec<usize> {
    let mut used = vec![false; d];
    table.records().flat_map(|record| record.indices).for_each(|&j| used[j as usize] = true);
    (0..d).filter(|&j| used[j]).collect()
}

/// The table over the columns of its support.
fn restricted(table: &RecordTable, support: &[usize], d: usize) -> RecordTable {
    let mut position = vec![0_u32; d];
    (0u32..).zip(support).for_each(|(new, &old)| position[old] = new);
    let mut builder = RecordTable::builder(support.len());
    for record in table.records() {
        builder.start_unit();
        let indices: Vec<u32> = record.indices.iter().map(|&j| position[j as usize]).collect();
        // Ascending columns keep their order, and the rows are no more and no longer.
        if builder.push_record(RecordView { indices: &indices, ..record }).is_err() {
            break;
        }
    }
    builder.finish()
}

/// A likelihood of some records, as the search sees it.
pub(crate) trait Problem {
    /// The curvature with which the search begins, for a mean at that of `start`.
    fn first_curvature(&self, start: &Gaussian) -> DMatrix<f64>;

    /// Σ g and ΣH at q, rows being those at the mean of q.
    fn sums(&self, q: &Gaussian) -> (DVector<f64>, DMatrix<f64>);

    /// Curvature beside ΣH by which steps of the mean are divided.
    fn left_out(&self, q: &Gaussian) -> Option<DMatrix<f64>> {
        let _ = q;
        None
    }

    /// Σ f at q, rows being those at `centre`.
    fn value(&self, q: &Gaussian, centre: &[f64]) -> f64;

    /// Whether rows move with the mean.
    fn depends_on_centre(&self) -> bool {
        false
    }
}

/// Records with one linear predictor each.
struct OfPredictor<'a> {
    model: &'a dyn Predictor,
    table: &'a RecordTable,
    weight: f64,
}

impl Problem for OfPredictor<'_> {
    fn first_curvature(&self, _start: &Gaussian) -> DMatrix<f64> {
        let typical = |record: RecordView<'_>| self.weight * record.extra.weight * self.model.typical_curvature(record.target);
        glm::sums(self.table, |record| Statistics { residual: 0.0, curvature: typical(record) }).1
    }

    fn sums(&self, q: &Gaussian) -> (DVector<f64>, DMatrix<f64>) {
        glm::sums_at(self.model, self.table, self.weight, q.standard())
    }

    fn value(&self, q: &Gaussian, _centre: &[f64]) -> f64 {
        self.weight * glm::total(self.model, self.table, q)
    }
}

/// The search over all columns. Where rows move with the mean, a step is judged with the rows that it started from: at the end, where nothing moves, g is 0.
pub(crate) fn ascend(problem: &dyn Problem, tolerance: f64, cavity: &Gaussian, start: &Gaussian) -> Result<Gaussian, InvalidParameters> {
    let family = *cavity.family();
    let shape = Form { family };
    let cavity_precision = shape.matrix(cavity);
    let cavity_h = DVector::from_column_slice(&cavity.natural()[..family.dimension()]);
    let bound = |q: &Gaussian, centre: &[f64]| problem.value(q, centre) - q.kl(cavity);

    let mut mean = DVector::from_column_slice(start.standard().mean());
    let mut precision = shape.restrict(&cavity_precision + problem.first_curvature(start));
    let mut q = shape.distribution(&mean, &precision)?;
    let mut value = bound(&q, mean.as_slice());
    for _ in 0..ITERATIONS {
        let (gradient, curvature) = problem.sums(&q);
        let matrix = &cavity_precision + curvature;
        let slope = gradient + &cavity_h - &cavity_precision * &mean;
        let divisor = problem.left_out(&q).map_or_else(|| matrix.clone(), |left_out| &matrix + left_out);
        let factor = Cholesky::new(divisor).ok_or(InvalidParameters::Domain("the preconditioner is not positive definite"))?;
        let direction = factor.solve(&slope);
        let target = shape.restrict(matrix);
        let mut rho = 1.0;
        let mut accepted = None;
        for _ in 0..=HALVINGS {
            let new_mean = &mean + &direction * rho;
            let precision = &precision * (1.0 - rho) + &target * rho;
            let candidate = shape.distribution(&new_mean, &precision)?;
            let candidate_value = bound(&candidate, mean.as_slice());
            if candidate_value >= value - SLACK * (1.0 + value.abs()) {
                accepted = Some((new_mean, precision, candidate, candidate_value));
                break;
            }
            rho *= 0.5;
        }
        let Some((new_mean, new_precision, new_q, new_value)) = accepted else { break };
        let still = unchanged(mean.as_slice(), new_mean.as_slice(), tolerance)
            && unchanged(precision.as_slice(), new_precision.as_slice(), tolerance);
        (mean, precision, q, value) = (new_mean, new_precision, new_q, new_value);
        if still {
            break;
        }
        if problem.depends_on_centre() {
            value = bound(&q, mean.as_slice());
        }
    }
    Ok(q)
}

/// The two families as one matrix type: in a mean field precisions are diagonal matrices.
struct Form {
    family: Family,
}

impl Form {
    fn matrix(&self, q: &Gaussian) -> DMatrix<f64> {
        let d = self.family.dimension();
        let precision = &q.natural()[d..];
        match self.family {
            Family::DiagonalGaussian { .. } => DMatrix::from_diagonal(&DVector::from_column_slice(precision)),
            Family::FullGaussian { .. } => unsvec(precision, d),
        }
    }

    fn restrict(&self, matrix: DMatrix<f64>) -> DMatrix<f64> {
        match self.family {
            Family::DiagonalGaussian { .. } => DMatrix::from_diagonal(&matrix.diagonal()),
            Family::FullGaussian { .. } => matrix,
        }
    }

    fn distribution(&self, mean: &DVector<f64>, precision: &DMatrix<f64>) -> Result<Gaussian, InvalidParameters> {
        let mut natural = (precision * mean).as_slice().to_vec();
        match self.family {
            Family::DiagonalGaussian { .. } => natural.extend(precision.diagonal().iter()),
            Family::FullGaussian { .. } => natural.extend(svec(precision)),
        }
        Gaussian::from_natural(self.family, natural)
    }
}

fn unchanged(old: &[f64], new: &[f64], tolerance: f64) -> bool {
    let largest = new.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    old.iter().zip(new).all(|(a, b)| (a - b).abs() <= tolerance * largest)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use dp_pvi_math::expfam::any::{Family, Gaussian};

    use super::{OfPredictor, ascend, fit_log_concave};
    use crate::capabilities::glm;
    use crate::capabilities::many_rows::ManyRowsModel;
    use crate::capabilities::predictor::PredictorModel;
    use crate::capabilities::{Gradients, LocalOptimum, Model};
    use crate::mean_field::{MeanField, ScaleCoordinate};
    use crate::testing::{check_optimum, close, linear, logistic, random_units, robust, table};
    use dp_pvi_models::logistic_regression::LogisticRegression;
    use dp_pvi_models::multinomial_regression::MultinomialRegression;
    use dp_pvi_models::negative_binomial_regression::NegativeBinomialRegression;
    use dp_pvi_models::poisson_regression::PoissonRegression;
    use dp_pvi_models::predictor::Predictor;
    use dp_pvi_models::probit_regression::ProbitRegression;
    use dp_pvi_models::robust_regression::Student;
    use dp_pvi_models::survival_regression::SurvivalRegression;
    use dp_pvi_privacy::mechanism::Term;
    use dp_pvi_records::{RecordTable, RecordView};
    use dp_pvi_schema::public::Extra;

    /// Λ − Λ_c − w Σ c x² and w Σ r x − Λ_c (μ − μ_c), over w + the largest precision of the cavity.
    fn slopes(table: &RecordTable, weight: f64, cavity: &Gaussian, q: &Gaussian) -> Vec<f64> {
        let d = q.family().dimension();
        let precision = &cavity.natural()[d..];
        let mut slopes: Vec<f64> = (0..d)
            .map(|j| precision[j] * (cavity.standard().mean()[j] - q.standard().mean()[j]))
            .chain((0..d).map(|j| q.natural()[d + j] - precision[j]))
            .collect();
        for record in table.records() {
            let (a, s2) = glm::predictor_of(record, q.standard());
            let at = Predictor::statistics(&LogisticRegression {}, a, s2, record.target);
            for (j, x) in record.entries() {
                slopes[j] += weight * at.residual * x;
                slopes[d + j] -= weight * at.curvature * x * x;
            }
        }
        let scale = weight + precision.iter().copied().fold(0.0, f64::max);
        slopes.iter().map(|s| s / scale).collect()
    }

    /// The reduced searches end where the bound is stationary, and where the search over all columns ends: one record, few columns, and
    /// weights that all but fit a record.
    #[test]
    fn small_shards_have_the_optimum_of_the_whole_search() {
        let family = Family::DiagonalGaussian { dimension: 6 };
        let rows: [(&[u32], &[f64], f64); 4] =
            [(&[0, 2, 5], &[1.0, -1.4, 1.0], 1.0), (&[0, 3, 5], &[1.0, 0.7, 1.0], 0.0), (&[2, 5], &[2.0, 1.0], 0.0), (&[5], &[1.0], 1.0)];
        for (precision, weight) in [(1.0, 1.0), (0.1, 400.0), (250.0, 4000.0), (3000.0, 1.0)] {
            let mut natural = [0.3, -2.0, 0.4, 0.0, 1.0, -1.5].map(|m| m * precision).to_vec();
            natural.extend([1.0, 2.0, 0.5, 1.0, 4.0, 10.0].map(|l| l * precision));
            let cavity = Gaussian::from_natural(family, natural).unwrap();
            let start = Gaussian::from_natural(family, family.isotropic(0.2, 0.5)).unwrap();
            for taken in [0..0, 0..1, 1..2, 3..4, 0..2, 0..4] {
                let mut builder = RecordTable::builder(6);
                for (indices, values, target) in &rows[taken.clone()] {
                    builder.start_unit();
                    builder.push(indices, values, *target).unwrap();
                }
                let table = builder.finish();
                let reduced = fit_log_concave(&LogisticRegression {}, &table, weight, 1e-12, &cavity, &start).unwrap();
                close(&slopes(&table, weight, &cavity, &reduced), &[0.0; 12], 1e-10);
                let problem = OfPredictor { model: &LogisticRegression {}, table: &table, weight };
                let whole = ascend(&problem, 1e-12, &cavity, &start).unwrap();
                let relative = |q: &Gaussian| q.natural().iter().map(|v| v / precision.max(weight)).collect::<Vec<_>>();
                close(&relative(&reduced), &relative(&whole), 1e-6);
            }
        }
    }

    /// An offset is a feature whose coefficient is known to be 1.
    #[test]
    fn an_offset_is_a_feature_with_a_known_coefficient() {
        let raw = random_units(9, 60, 4);
        let (mut with_offset, mut as_feature) = (RecordTable::builder(3), RecordTable::builder(4));
        for (x, target) in raw.iter().flatten() {
            with_offset.start_unit();
            let record = RecordView { indices: &[0, 1, 2], values: &x[..3], target: *target, offset: x[3], extra: Extra::NONE };
            with_offset.push_record(record).unwrap();
            as_feature.start_unit();
            as_feature.push(&[0, 1, 2, 3], x, *target).unwrap();
        }
        let (with_offset, as_feature) = (with_offset.finish(), as_feature.finish());
        for full in [false, true] {
            let family = |dimension| if full { Family::FullGaussian { dimension } } else { Family::DiagonalGaussian { dimension } };
            let prior = Gaussian::from_natural(family(3), family(3).isotropic(0.0, 1.0)).unwrap();
            let mut known = family(4).isotropic(0.0, 1.0);
            let last = known.len() - 1;
            (known[3], known[last]) = (1e9, 1e9);
            let known = Gaussian::from_natural(family(4), known).unwrap();
            for model in [logistic(), PredictorModel::of(PoissonRegression {}), linear(0.7)] {
                let found = LocalOptimum::local_optimum(&model, &with_offset, &prior, &prior).unwrap();
                let expected = LocalOptimum::local_optimum(&model, &as_feature, &known, &known).unwrap();
                for (found, expected) in found.standard().mean().iter().zip(expected.standard().mean()) {
                    assert!((found - expected).abs() < 1e-6, "{found} {expected}");
                }
            }
        }
    }

    /// The same records once with weights, and once as often as the weights say.
    fn weighted_and_repeated(count: usize) -> (RecordTable, RecordTable) {
        let (mut weighted, mut repeated) = (RecordTable::builder(3), RecordTable::builder(3));
        for (number, (x, target)) in random_units(11, count, 3).iter().flatten().enumerate() {
            let times = number % 4;
            let record = RecordView { indices: &[0, 1, 2], values: x, target: *target, offset: 0.2 * x[0], extra: Extra::NONE };
            weighted.start_unit();
            weighted.push_record(RecordView { extra: Extra { weight: times as f64, ..Extra::NONE }, ..record }).unwrap();
            for _ in 0..times {
                repeated.start_unit();
                repeated.push_record(record).unwrap();
            }
        }
        (weighted.finish(), repeated.finish())
    }

    /// Fits of few records and of many, in both families.
    #[test]
    fn a_record_of_weight_three_counts_as_three_records() {
        for count in [4, 30, 150] {
            let (weighted, repeated) = weighted_and_repeated(count);
            for family in [Family::DiagonalGaussian { dimension: 3 }, Family::FullGaussian { dimension: 3 }] {
                let prior = Gaussian::from_natural(family, family.isotropic(0.1, 0.7)).unwrap();
                let counts = [PredictorModel::of(PoissonRegression {}), PredictorModel::of(NegativeBinomialRegression { dispersion: 1.7 })];
                let models = [logistic(), linear(0.7), robust(4.0, 0.8)].into_iter().chain(counts);
                for model in models {
                    let found = LocalOptimum::local_optimum(&model, &weighted, &prior, &prior).unwrap();
                    let expected = LocalOptimum::local_optimum(&model, &repeated, &prior, &prior).unwrap();
                    close(found.natural(), expected.natural(), 1e-7);
                }
                let q = LocalOptimum::local_optimum(&logistic(), &repeated, &prior, &prior).unwrap();
                let sums = [&weighted, &repeated].map(|table| crate::capabilities::sums(&logistic(), table, q.standard()).unwrap());
                close(sums[0].0.as_slice(), sums[1].0.as_slice(), 1e-9);
                close(sums[0].1.as_slice(), sums[1].1.as_slice(), 1e-9);
                let totals = [&weighted, &repeated].map(|table| glm::total(&LogisticRegression {}, table, &q));
                assert!((totals[0] - totals[1]).abs() < 1e-9 && totals[0] < 0.0);
            }
        }
    }

    /// The same of records that become several rows: fits, sums and gradients.
    #[test]
    fn a_record_of_several_rows_is_multiplied_by_its_weight() {
        let (weighted, repeated) = weighted_and_repeated(60);
        let survival = SurvivalRegression { cuts: vec![0.0, 0.5, 2.0], baseline_mean: 0.0, baseline_scale: 1.0, least_exposure: 0.5 };
        let models: [&dyn Model; 2] = [&ManyRowsModel(Arc::new(survival)), &ManyRowsModel(Arc::new(MultinomialRegression { classes: 2 }))];
        for (model, d) in models.into_iter().zip([5, 3]) {
            for family in [Family::DiagonalGaussian { dimension: d }, Family::FullGaussian { dimension: d }] {
                let prior = Gaussian::from_natural(family, family.isotropic(0.1, 0.7)).unwrap();
                let [found, expected] =
                    [&weighted, &repeated].map(|table| model.local_optimum().unwrap().local_optimum(table, &prior, &prior).unwrap());
                close(found.natural(), expected.natural(), 1e-7);
                let total = |table: &RecordTable| table.records().map(|record| model.expected_log_likelihood(record, &prior)).sum::<f64>();
                assert!((total(&weighted) - total(&repeated)).abs() < 1e-9);
            }
            let q = MeanField::new(vec![0.2; d], vec![0.3; d], ScaleCoordinate::LogScale).unwrap();
            let sum = |table: &RecordTable| {
                let mut sum = vec![0.0; 2 * d];
                for record in table.records() {
                    let mut term = Term::default();
                    model.gradients().unwrap().gradient(record, &q, &mut term);
                    term.entries().for_each(|(j, value)| sum[j as usize] += value);
                }
                sum
            };
            close(&sum(&weighted), &sum(&repeated), 1e-10);
        }
    }

    #[test]
    fn the_gradient_of_a_record_is_multiplied_by_its_weight() {
        let (weighted, repeated) = weighted_and_repeated(40);
        for coordinate in [ScaleCoordinate::LogScale, ScaleCoordinate::HalfVariance { weight: 0.7 }] {
            let q = MeanField::new(vec![0.3, -0.2, 0.1], vec![0.5, 0.1, 0.3], coordinate).unwrap();
            let sum = |table: &RecordTable| {
                let mut sum = vec![0.0; 6];
                for record in table.records() {
                    let mut term = Term::default();
                    logistic().gradient(record, &q, &mut term);
                    term.entries().for_each(|(j, value)| sum[j as usize] += value);
                }
                sum
            };
            close(&sum(&weighted), &sum(&repeated), 1e-12);
        }
    }

    /// What one record adds to a gradient: for numbers, an offset is taken from the label.
    #[test]
    fn the_gradient_of_a_number_with_an_offset_is_that_of_the_rest_of_its_label() {
        let q = MeanField::new(vec![0.3, -0.2], vec![0.5, 0.1], ScaleCoordinate::LogScale).unwrap();
        let record = RecordView { indices: &[0, 1], values: &[0.7, -1.2], target: 0.9, offset: 0.4, extra: Extra::NONE };
        let rest = RecordView { target: 0.5, offset: 0.0, ..record };
        let term = |record| {
            let mut term = Term::default();
            linear(0.7).gradient(record, &q, &mut term);
            term.entries().collect::<Vec<_>>()
        };
        for (found, expected) in term(record).iter().zip(term(rest)) {
            assert!(found.0 == expected.0 && (found.1 - expected.1).abs() < 1e-12, "{found:?} {expected:?}");
        }
    }

    #[test]
    fn exact_fits_are_optima() {
        check_optimum(&logistic(), |y| y);
        check_optimum(&PredictorModel::of(ProbitRegression {}), |y| y);
        check_optimum(&PredictorModel::of(PoissonRegression {}), |y| 3.0 * y);
        check_optimum(&PredictorModel::of(NegativeBinomialRegression { dispersion: 1.7 }), |y| 3.0 * y);
        check_optimum(&linear(0.7), |y| 3.0 * y);
        check_optimum(&robust(4.0, 0.8), |y| 3.0 * y);
    }

    #[test]
    fn an_outlier_moves_the_fit_less_than_it_moves_that_of_linear_regression() {
        let mut raw = random_units(7, 60, 2);
        let family = Family::FullGaussian { dimension: 2 };
        let prior = Gaussian::from_natural(family, family.isotropic(0.0, 1.0)).unwrap();
        let mut moved = |model: PredictorModel| {
            let mut fit = |target: f64| {
                raw[0] = vec![(vec![1.0, 1.0], target)];
                let q = LocalOptimum::local_optimum(&model, &table(2, &raw), &prior, &prior).unwrap();
                q.standard().mean()[0]
            };
            (fit(1e3) - fit(0.0)).abs()
        };
        let (heavy, normal) = (moved(robust(4.0, 0.8)), moved(linear(0.8)));
        assert!(heavy < 0.1 && normal > 10.0 * heavy, "{heavy} {normal}");
    }

    /// A record whose label contradicts the prior: the bound has two maxima then.
    #[test]
    fn the_fit_never_falls_below_its_start_where_the_bound_has_two_maxima() {
        let data = table(1, &[vec![(vec![1.0], 9.0)]]);
        for family in [Family::DiagonalGaussian { dimension: 1 }, Family::FullGaussian { dimension: 1 }] {
            let prior = Gaussian::from_natural(family, family.isotropic(0.0, 1.0)).unwrap();
            let model = robust(3.0, 0.1);
            for mean in [-3.0, 0.0, 4.0, 9.0, 12.0] {
                let start = Gaussian::from_natural(family, family.isotropic(mean, 0.01)).unwrap();
                let q = model.weighted_optimum(&data, 8.0, 1e-10, &prior, &start).unwrap();
                let bound = |q: &Gaussian| 8.0 * glm::total(&Student::new(3.0, 0.1), &data, q) - q.kl(&prior);
                assert!(bound(&q) >= bound(&start), "{mean}");
                let moved = Gaussian::from_natural(family, vec![q.natural()[0] + 1e-3, q.natural()[1]]).unwrap();
                assert!(bound(&q) >= bound(&moved), "{mean}");
            }
        }
    }
}
