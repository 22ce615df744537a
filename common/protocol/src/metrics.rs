//! Held-out metrics on public test records.

use serde::{Deserialize, Serialize};

use crate::classes::{self, Judged, auc, reliability, tied};
use crate::concordance::{Outcome, concordance};
use crate::predictive::Predictor;
use dp_pvi_models::prediction::Prediction;
use dp_pvi_schema::public::{Extra, Public, TestRecords};

/// Metrics that were computed on public records: [`evaluate`] is the only way to one. An evaluator reports nothing else.
#[derive(Debug, Clone, PartialEq)]
pub struct PublicMetrics(HeldOutMetrics);

impl PublicMetrics {
    /// The numbers.
    #[must_use]
    pub fn get(&self) -> &HeldOutMetrics {
        &self.0
    }

    /// What there is to say of λ that is no distribution: no density, and so no other metric.
    #[must_use]
    pub fn of_no_distribution<T: TestRecords>(records: &Public<T>) -> Self {
        let records = records.get().examples().count() as u64;
        Self(HeldOutMetrics { records, log_likelihood: f64::NAN, ..HeldOutMetrics::default() })
    }

    /// The numbers, for a message or a table.
    #[must_use]
    pub fn into_inner(self) -> HeldOutMetrics {
        self.0
    }
}

/// Numbers of a report, as they are sent, stored and read back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HeldOutMetrics {
    /// Number of test records.
    pub records: u64,
    /// Mean log predictive density. A number that is not finite is a finding about the posterior; JSON says "not finite".
    #[serde(with = "number")]
    pub log_likelihood: f64,
    /// Share of correct classes (classification), or of pixels that come back right (images).
    pub accuracy: Option<f64>,
    /// Root mean squared error (regression).
    pub rmse: Option<f64>,
    /// Brier score (classification): of two classes (p − y)², of more Σ_k (p_k − 1[y = k])².
    pub brier: Option<f64>,
    /// Expected calibration error over 15 equal-mass bins (classification); of more than two classes that of the most likely one.
    pub calibration_error: Option<f64>,
    /// Per bin: mean prediction, observed rate, records.
    pub reliability: Vec<(f64, f64, u64)>,
    /// Area under the ROC curve, ties counted half; absent where one class is missing (classification). Of more than two classes the mean over
    /// the classes, each against the others. Of survival times Harrell's concordance index, which is the same where the time is a class.
    pub auc: Option<f64>,
    /// Records by probability integral transform of their target, in `PIT_BINS` equal bins: flat where predictions are calibrated
    /// (regression).
    pub pit: Vec<u64>,
    /// Content of a central predictive interval, and share of the targets inside (regression).
    pub interval_coverage: Vec<(f64, f64)>,
    /// Points of the ROC curve from (0, 0) to (1, 1): share of the failures, and share of the successes, that are predicted above a threshold.
    /// Empty where one class is missing, and for more than two classes.
    pub roc: Vec<(f64, f64)>,
    /// Mean unit deviance, at predicted means: of counts 2 (y ln(y/m) − y + m), or what it is for a negative binomial count.
    pub deviance: Option<f64>,
    /// Mean ranked probability score Σ_k (P(y ≤ k) − 1[y ≤ k])²: over the classes but the last (ordered classes), or over all counts (absent where predictions
    /// reach above 20,000).
    pub ranked_probability_score: Option<f64>,
    /// Records of each class, in the schema's order, by the class that was predicted as the most likely one. Only of predictions of several classes.
    pub confusion: Vec<Vec<u64>>,
    /// `reliability` of every class against the others, in the schema's order. Only of predictions of several classes.
    pub class_reliability: Vec<Vec<(f64, f64, u64)>>,
}

impl HeldOutMetrics {
    /// Whether all numbers are finite. Where they are not, the posterior was no distribution, or gave a record no density.
    #[must_use]
    pub fn is_finite(&self) -> bool {
        self.numbers().all(f64::is_finite)
    }

    /// Whether both say the same, bit by bit: a number that is not one is itself here.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let counts = |metrics: &Self| -> Vec<u64> { metrics.bins().map(|(_, _, count)| count).collect() };
        let classes = |metrics: &Self| -> Vec<usize> { metrics.class_reliability.iter().map(Vec::len).collect() };
        let absent = |metrics: &Self| metrics.single().map(|number| number.is_none());
        let bits = |metrics: &Self| metrics.numbers().map(f64::to_bits).collect::<Vec<_>>();
        self.records == other.records
            && counts(self) == counts(other)
            && classes(self) == classes(other)
            && absent(self) == absent(other)
            && self.pit == other.pit
            && self.roc.len() == other.roc.len()
            && self.confusion == other.confusion
            && bits(self) == bits(other)
    }

    fn single(&self) -> [Option<f64>; 8] {
        let Self { log_likelihood, accuracy, rmse, brier, calibration_error, auc, deviance, ranked_probability_score, .. } = self;
        [Some(*log_likelihood), *accuracy, *rmse, *brier, *calibration_error, *auc, *deviance, *ranked_probability_score]
    }

    /// Of the most likely class, then of all.
    fn bins(&self) -> impl Iterator<Item = (f64, f64, u64)> + '_ {
        self.reliability.iter().chain(self.class_reliability.iter().flatten()).copied()
    }

    fn numbers(&self) -> impl Iterator<Item = f64> + '_ {
        let pairs = self.bins().map(|(a, b, _)| [a, b]).chain(self.interval_coverage.iter().chain(&self.roc).map(|(a, b)| [*a, *b]));
        self.single().into_iter().flatten().chain(pairs.flatten())
    }
}

/// Number of bins of the probability integral transform.
pub(crate) const PIT_BINS: usize = 10;
/// Central intervals whose coverage is reported.
const LEVELS: [f64; 4] = [0.5, 0.8, 0.9, 0.95];

/// Most points of a ROC curve.
const ROC_POINTS: usize = 41;

/// Evaluates a posterior on public test records. Without records every metric is absent or 0.
#[must_use]
pub fn evaluate<T: TestRecords>(predictor: &Predictor, records: &Public<T>) -> PublicMetrics {
    let (mut count, mut numbers, mut log_likelihood, mut squares) = (0_u64, 0_u64, 0.0, 0.0);
    let (mut classes, mut transforms) = (Vec::new(), Vec::new());
    let mut several: Vec<Judged> = Vec::new();
    let mut survival: Vec<Outcome> = Vec::new();
    let (mut deviance, mut ranked) = (Mean::Absent, Mean::Absent);
    let mut pixels = None;
    for record in records.get().examples() {
        count += 1;
        if let Some(image) = predictor.reconstruct(record) {
            log_likelihood += image.log_density;
            *pixels.get_or_insert(0.0) += image.accuracy;
            continue;
        }
        log_likelihood += predictor.log_density(record);
        let prediction = predictor.predict(record);
        let scores = predictor.scores(record);
        deviance = deviance.with(scores.deviance, count);
        ranked = ranked.with(scores.ranked_probability, count);
        transforms.extend(prediction.transform(record.target));
        match prediction {
            Prediction::Number { mean, .. } | Prediction::Count { mean, .. } | Prediction::HeavyTailed { mean, .. } => {
                numbers += 1;
                squares += (record.target - mean).powi(2);
            }
            Prediction::Class { probability, .. } | Prediction::Probit { probability, .. } => classes.push((probability, record.target)),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the position of a class")]
            Prediction::Classes { probabilities } => several.push((probabilities, record.target as usize)),
            Prediction::Survival { hazard, .. } => {
                let Extra { entry, event, .. } = record.extra;
                survival.push(Outcome { entry, time: record.target, event, risk: hazard.mean });
            }
            // A mixture predicts no target.
            Prediction::Component { .. } => {}
        }
    }
    let mean = |sum: f64| sum / as_f64(count.max(1));
    let regression = numbers > 0;
    let classification = !classes.is_empty() || !several.is_empty();
    if !several.is_empty() {
        // What is said of several classes: the most likely one, and whether it is right.
        classes = several.iter().map(classes::most_likely).collect();
    }
    let reliability = reliability(&mut classes);
    let roc = if several.is_empty() { roc(&classes) } else { Vec::new() };
    let (squared, hits, auc) = if several.is_empty() {
        let hits = classes.iter().filter(|(p, y)| (*p > 0.5 && !tied(*p, 0.5)) == (*y > 0.5)).count();
        (classes.iter().map(|(p, y)| (p - y).powi(2)).sum(), hits, auc(&classes))
    } else {
        let hits = several.iter().filter(|judged| classes::is_right(judged)).count();
        (several.iter().map(classes::squared).sum(), hits, classes::area(&several))
    };
    let finite = |pairs: &[(f64, f64, u64)]| pairs.iter().all(|(p, y, _)| p.is_finite() && y.is_finite());
    // Bins of predictions that are no probabilities say nothing.
    let reliability = if finite(&reliability) { reliability } else { Vec::new() };
    PublicMetrics(HeldOutMetrics {
        records: count,
        log_likelihood: mean(log_likelihood),
        accuracy: pixels.map(mean).or_else(|| classification.then(|| mean(as_f64(hits as u64)))),
        rmse: regression.then(|| mean(squares).sqrt()),
        brier: classification.then(|| mean(squared)),
        calibration_error: classification.then(|| reliability.iter().map(|(p, y, n)| (p - y).abs() * mean(as_f64(*n))).sum()),
        reliability,
        auc: concordance(&survival).or(auc),
        pit: histogram(&transforms),
        interval_coverage: if regression { coverage(&transforms) } else { Vec::new() },
        roc,
        deviance: deviance.of(count),
        ranked_probability_score: ranked.of(count),
        confusion: classes::confusion(&several),
        class_reliability: classes::calibration(&several),
    })
}

/// The mean of a score that records have or lack; of all, or absent.
#[derive(Clone, Copy)]
enum Mean {
    Absent,
    Sum(f64),
}

impl Mean {
    /// With the score of the record of this number, from 1.
    fn with(self, score: Option<f64>, number: u64) -> Self {
        match (self, score) {
            (Self::Sum(sum), Some(score)) => Self::Sum(sum + score),
            (Self::Absent, Some(score)) if number == 1 => Self::Sum(score),
            _ => Self::Absent,
        }
    }

    fn of(self, count: u64) -> Option<f64> {
        match self {
            Self::Absent => None,
            Self::Sum(sum) => Some(sum / as_f64(count)),
        }
    }
}

/// A number in JSON, where one that is not finite has no form of its own; elsewhere its bits.
mod number {
    use serde::de::{Error, Visitor};
    use serde::{Deserialize, Deserializer, Serializer};

    const WORDS: &str = "not finite";

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the form that serde asks for")]
    pub(super) fn serialize<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() && !value.is_finite() {
            serializer.serialize_str(WORDS)
        } else {
            serializer.serialize_f64(*value)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
        if deserializer.is_human_readable() { deserializer.deserialize_any(Number) } else { f64::deserialize(deserializer) }
    }

    struct Number;

    #[allow(clippy::cast_precision_loss, reason = "a whole number that somebody wrote for a real one")]
    impl Visitor<'_> for Number {
        type Value = f64;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a number, or \"not finite\"")
        }

        fn visit_f64<E: Error>(self, value: f64) -> Result<f64, E> {
            Ok(value)
        }

        fn visit_i64<E: Error>(self, value: i64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_u64<E: Error>(self, value: u64) -> Result<f64, E> {
            Ok(value as f64)
        }

        fn visit_str<E: Error>(self, value: &str) -> Result<f64, E> {
            if value == WORDS { Ok(f64::NAN) } else { Err(E::custom("a number is expected")) }
        }
    }
}

/// Points of the ROC curve, evenly along its length |Δx| + |Δy| = 2; each is a corner of the whole curve, and equal predictions are never cut apart.
/// `classes` are sorted by prediction. Empty where one class is missing.
fn roc(classes: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let successes = as_f64(classes.iter().filter(|c| c.1 > 0.5).count() as u64);
    let failures = as_f64(classes.len() as u64) - successes;
    if successes < 1.0 || failures < 1.0 {
        return Vec::new();
    }
    let (mut false_positive, mut true_positive) = (0.0, 0.0);
    let mut points = vec![(0.0, 0.0)];
    for tie in classes.chunk_by(|a, b| tied(a.0, b.0)).rev() {
        let positive = as_f64(tie.iter().filter(|c| c.1 > 0.5).count() as u64);
        true_positive += positive;
        false_positive += as_f64(tie.len() as u64) - positive;
        let point = (false_positive / failures, true_positive / successes);
        let next = 2.0 * as_f64(points.len() as u64) / as_f64(ROC_POINTS as u64 - 1);
        let last = false_positive + true_positive >= as_f64(classes.len() as u64);
        if last || (points.len() < ROC_POINTS - 1 && point.0 + point.1 >= next) {
            points.push(point);
        }
    }
    points
}

/// Counts of values in [0, 1] by equal bins; empty without values.
fn histogram(transforms: &[f64]) -> Vec<u64> {
    if transforms.is_empty() {
        return Vec::new();
    }
    let mut bins = vec![0; PIT_BINS];
    for value in transforms {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the bins")]
        let bin = (value * as_f64(PIT_BINS as u64)).clamp(0.0, as_f64(PIT_BINS as u64 - 1)) as usize;
        bins[bin] += 1;
    }
    bins
}

/// A target is inside the central interval of content c iff its transform is within c/2 of ½.
fn coverage(transforms: &[f64]) -> Vec<(f64, f64)> {
    let inside = |level: f64| transforms.iter().filter(|u| (*u - 0.5).abs() <= 0.5 * level).count() as u64;
    LEVELS.map(|level| (level, as_f64(inside(level)) / as_f64(transforms.len() as u64))).to_vec()
}

#[allow(clippy::cast_precision_loss, reason = "a number of records is far below 2^52")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_math::expfam::any::Family;

    use super::{HeldOutMetrics, ROC_POINTS, auc, reliability, roc};
    use crate::classes::BINS;
    use crate::predictive::Predictor;
    use dp_pvi_models::prediction::{Example, Prediction};
    use dp_pvi_models::{linear_regression, logistic_regression, poisson_regression};
    use dp_pvi_posterior::task::ModelSpec;
    use dp_pvi_schema::public::Public;

    fn certain(model: &ModelSpec) -> Predictor {
        // μ = 1, variance 1e-12: the logit is the feature itself.
        Predictor::new(model, Family::DiagonalGaussian { dimension: 1 }, &[1e12, 1e12]).unwrap()
    }

    fn evaluate<'a>(predictor: &Predictor, records: impl IntoIterator<Item = Example<'a>>) -> HeldOutMetrics {
        super::evaluate(predictor, &Public::declare(records.into_iter().collect::<Vec<_>>())).into_inner()
    }

    #[test]
    fn classification_metrics_equal_hand_computed_values() {
        let predictor = certain(&ModelSpec::from(logistic_regression::LogisticRegression {}));
        let logits = [[2.0], [-1.0], [0.5]];
        let targets = [1.0, 1.0, 0.0];
        let records = logits.iter().zip(targets).map(|(x, target)| Example {
            indices: &[0],
            values: x,
            target,
            offset: 0.0,
            extra: Default::default(),
        });
        let m = evaluate(&predictor, records);
        let p = |z: f64| 1.0 / (1.0 + (-z).exp());
        assert!((m.log_likelihood - (p(2.0).ln() + p(-1.0).ln() + p(-0.5).ln()) / 3.0).abs() < 1e-9);
        assert!((m.accuracy.unwrap() - 1.0 / 3.0).abs() < 1e-15);
        let brier = ((p(2.0) - 1.0).powi(2) + (p(-1.0) - 1.0).powi(2) + p(0.5).powi(2)) / 3.0;
        assert!((m.brier.unwrap() - brier).abs() < 1e-9);
        // Three records: every one is a bin of its own.
        let error = ((1.0 - p(2.0)) + (1.0 - p(-1.0)) + p(0.5)) / 3.0;
        assert!((m.calibration_error.unwrap() - error).abs() < 1e-9);
        assert_eq!((m.rmse, m.records, m.reliability.len()), (None, 3, 3));
        // Of the pairs (2, 0.5) and (−1, 0.5) one is in the right order.
        assert_eq!((m.auc, m.pit.len(), m.interval_coverage.len()), (Some(0.5), 0, 0));
        assert_eq!(m.roc, [(0.0, 0.0), (0.0, 0.5), (1.0, 0.5), (1.0, 1.0)]);
    }

    /// Three classes by hand, as a law that says what it is told.
    #[test]
    fn metrics_of_several_classes_equal_hand_computed_values() {
        #[derive(Debug)]
        struct Fixed;
        impl dp_pvi_models::prediction::Law for Fixed {
            fn dimension(&self) -> usize {
                3
            }
            fn predict(&self, row: Example<'_>) -> Prediction {
                Prediction::Classes { probabilities: row.values.to_vec() }
            }
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn log_density(&self, row: Example<'_>) -> f64 {
                row.values[row.target as usize].ln()
            }
        }
        let rows = [([0.7, 0.2, 0.1], 0.0), ([0.3, 0.4, 0.3], 2.0), ([0.1, 0.1, 0.8], 2.0), ([0.2, 0.5, 0.3], 1.0)];
        let m = evaluate(
            &certain(&ModelSpec::from(logistic_regression::LogisticRegression {})).with_law(Fixed),
            rows.iter().map(|(values, target)| Example {
                indices: &[0, 1, 2],
                values,
                target: *target,
                offset: 0.0,
                extra: Default::default(),
            }),
        );
        assert!((m.log_likelihood - (0.7_f64.ln() + 0.3_f64.ln() + 0.8_f64.ln() + 0.5_f64.ln()) / 4.0).abs() < 1e-15);
        assert_eq!((m.accuracy, m.rmse, m.roc.len()), (Some(0.75), None, 0));
        let brier = ((0.09 + 0.04 + 0.01) + (0.09 + 0.16 + 0.49) + (0.01 + 0.01 + 0.04) + (0.04 + 0.25 + 0.09)) / 4.0;
        assert!((m.brier.unwrap() - brier).abs() < 1e-15);
        // Four records: every one is a bin of its own.
        assert!((m.calibration_error.unwrap() - (0.3 + 0.4 + 0.2 + 0.5) / 4.0).abs() < 1e-15);
        assert_eq!(m.confusion, [[1, 0, 0], [0, 1, 0], [0, 1, 1]]);
        // Every prediction of a class is a bin of its own, unless it is made twice.
        assert_eq!(
            m.class_reliability[0].iter().map(|(p, y, n)| (*p, *y, *n)).collect::<Vec<_>>(),
            [(0.1, 0.0, 1), (0.2, 0.0, 1), (0.3, 0.0, 1), (0.7, 1.0, 1)]
        );
        assert_eq!(m.class_reliability[2], [(0.1, 0.0, 1), (0.3, 0.5, 2), (0.8, 1.0, 1)]);
        assert_eq!((m.deviance, m.ranked_probability_score), (None, None));
        // Class 0: 3 of 3 pairs in order. Class 1: 3 of 3. Class 2: (0.3, 0.8) against (0.1, 0.3): three and a half of four.
        assert!((m.auc.unwrap() - (1.0 + 1.0 + 0.875) / 3.0).abs() < 1e-15);
    }

    /// The mean of two deviances, 2 (3 ln 1.5 − 1) and 4; a prior that reaches too far has no score by ranks.
    #[test]
    fn metrics_of_counts_are_means_over_all_records() {
        let model = ModelSpec::from(poisson_regression::PoissonRegression {});
        let x = [2_f64.ln()];
        let records = || [3.0, 0.0].map(|target| Example { indices: &[0], values: &x, target, offset: 0.0, extra: Default::default() });
        let m = evaluate(&certain(&model), records());
        assert!((m.deviance.unwrap() - (0.432_790_648_648_986 + 4.0) / 2.0).abs() < 1e-5, "{m:?}");
        let below = |k: i32| (0..=k).map(|j| (-2_f64).exp() * 2_f64.powi(j) / (1..=j).map(f64::from).product::<f64>()).sum::<f64>();
        let score = |count: i32| (0..40).map(|k| (below(k) - f64::from(u8::from(k >= count))).powi(2)).sum::<f64>();
        assert!((m.ranked_probability_score.unwrap() - (score(3) + score(0)) / 2.0).abs() < 1e-5);
        assert!(m.is_finite() && m.is_same(&m.clone()) && m.confusion.is_empty() && m.class_reliability.is_empty());
        assert!(
            !m.is_same(&HeldOutMetrics { deviance: None, ..m.clone() }) && !m.is_same(&HeldOutMetrics { deviance: Some(1.0), ..m.clone() })
        );
        let wide = Predictor::new(&model, Family::DiagonalGaussian { dimension: 1 }, &[0.0, 1e-2]).unwrap();
        let m = evaluate(&wide, records());
        assert!(m.ranked_probability_score.is_none() && m.deviance.is_some());
    }

    #[test]
    fn regression_metrics_equal_hand_computed_values() {
        let predictor = certain(&ModelSpec::from(linear_regression::LinearRegression { noise_sd: 2.0 }));
        let m = evaluate(
            &predictor,
            [(&[1.0], 2.0), (&[-1.0], 2.0)].map(|(values, target)| Example {
                indices: &[0],
                values,
                target,
                offset: 0.0,
                extra: Default::default(),
            }),
        );
        assert!((m.rmse.unwrap() - 5.0_f64.sqrt()).abs() < 1e-12);
        let log = -0.5 * (2.0 * std::f64::consts::PI * 4.0_f64).ln() - 0.5 * (0.25 + 2.25) / 2.0;
        assert!((m.log_likelihood - log).abs() < 1e-9);
        // Residuals ½ and 3/2 standard deviations above the mean: Φ = 0.69 and 0.93.
        assert_eq!(m.pit, [0, 0, 0, 0, 0, 0, 1, 0, 0, 1]);
        assert_eq!(m.interval_coverage, [(0.5, 0.5), (0.8, 0.5), (0.9, 1.0), (0.95, 1.0)]);
        assert!(m.auc.is_none() && m.accuracy.is_none() && m.brier.is_none() && m.calibration_error.is_none() && m.reliability.is_empty());
    }

    #[test]
    fn bins_have_equal_mass_and_never_cut_equal_predictions() {
        let mut classes: Vec<(f64, f64)> = (0..150).map(|i| (f64::from(i) / 150.0, f64::from(i % 2))).collect();
        let bins = reliability(&mut classes);
        assert_eq!(bins.len(), BINS);
        assert!(bins.iter().all(|b| b.2 == 10 && (b.1 - 0.5).abs() < 1e-15));
        let mut constant = vec![(0.3, 1.0); 40];
        constant.extend([(0.3, 0.0); 60]);
        let bins = reliability(&mut constant);
        assert_eq!(bins.len(), 1);
        assert!((bins[0].0 - 0.3).abs() < 1e-14 && (bins[0].1 - 0.4).abs() < 1e-14 && bins[0].2 == 100);
    }

    #[test]
    fn ties_count_half_in_the_area_under_the_curve() {
        assert_eq!(auc(&[(0.2, 0.0), (0.5, 1.0), (0.5, 0.0), (0.9, 1.0)]), Some(0.875));
        assert_eq!(auc(&[(0.3, 1.0), (0.3, 0.0)]), Some(0.5));
        assert_eq!((auc(&[(0.3, 1.0)]), auc(&[])), (None, None));
    }

    #[test]
    fn a_small_roc_curve_has_every_corner() {
        let classes = [(0.2, 0.0), (0.5, 1.0), (0.5, 0.0), (0.9, 1.0)];
        assert_eq!(roc(&classes), [(0.0, 0.0), (0.0, 0.5), (0.5, 1.0), (1.0, 1.0)]);
        assert_eq!((roc(&[(0.3, 1.0)]), roc(&[])), (Vec::new(), Vec::new()));
        assert_eq!(roc(&[(0.3, 1.0), (0.3, 0.0)]), [(0.0, 0.0), (1.0, 1.0)]);
    }

    /// The area below the points, by trapezes, is that of the whole curve up to what the corners between them cut off.
    #[test]
    fn the_points_of_a_large_roc_curve_keep_its_area_and_are_few() {
        for power in [1, 3] {
            // Success is likelier the higher the prediction; a fixed sequence takes the place of chance.
            let classes: Vec<(f64, f64)> = (0..5000_i32)
                .map(|i| {
                    let prediction = f64::from(i) / 5000.0;
                    (prediction, f64::from(u8::from(f64::from(i * 7919 % 5000) / 5000.0 < prediction.powi(power))))
                })
                .collect();
            let points = roc(&classes);
            assert!(points.len() <= ROC_POINTS && points.len() >= ROC_POINTS - 2, "{}", points.len());
            assert_eq!((points[0], points[points.len() - 1]), ((0.0, 0.0), (1.0, 1.0)));
            assert!(points.windows(2).all(|w| w[0].0 <= w[1].0 && w[0].1 <= w[1].1));
            let area: f64 = points.windows(2).map(|w| (w[1].0 - w[0].0) * 0.5 * (w[0].1 + w[1].1)).sum();
            assert!((area - auc(&classes).unwrap()).abs() < 2e-3, "{area} {:?}", auc(&classes));
        }
    }

    #[test]
    fn no_records_give_no_metrics() {
        let m = evaluate(&certain(&ModelSpec::from(logistic_regression::LogisticRegression {})), std::iter::empty());
        assert_eq!((m.records, m.accuracy, m.rmse, m.brier), (0, None, None, None));
        assert!(m.log_likelihood.abs() < f64::MIN_POSITIVE);
    }
}
