//! Hazards λ_b e^{xᵀβ}.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use serde::{Deserialize, Serialize};

use crate::likelihood::Likelihood;
use crate::parameters::{OwnParameter, Parameters};
use crate::prediction::{Law, Outcome};
use crate::response::Response;
use crate::spec::TaskError;
use crate::spec::check::{invalid, positive, require, wrong_outcome};
use crate::spec::words::Short;
use crate::survival::{SurvivalLaw, SurvivalModel};
use crate::{Bounds, Lengths, ModelOptions, ModelRules, Ranges};
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a survival regression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SurvivalRegression {
    /// c_0 = 0 < c_1 < … < c_B, in the unit of the file's times.
    pub cuts: Vec<f64>,
    /// Prior mean of every ln λ_b.
    pub baseline_mean: f64,
    /// Prior standard deviation of every ln λ_b.
    pub baseline_scale: f64,
    /// How long a record counts as watched whose event came at the time of its entry, in the unit of the file.
    pub least_exposure: f64,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    cuts: Option<Vec<f64>>,
    /// Default: −ln of the last cut.
    baseline_mean: Option<f64>,
    /// Default: 2.5.
    baseline_scale: Option<f64>,
    /// Default: 0.5, half of a day where times are whole days.
    least_exposure: Option<f64>,
}

/// Most intervals: a record has as many rows.
const MAX_INTERVALS: usize = 200;

/// The logarithm of the events that a record may be expected to have over the whole time, up or down.
const MOST_GUESS: f64 = 20.0;

impl ModelOptions for SurvivalRegression {
    const NAME: &'static str = "survival-regression";
    const HELP: &'static str = "a time until an event, with proportional hazards and a baseline that is constant between cuts";
    type Raw = Raw;

    fn explicit(Raw { cuts, baseline_mean, baseline_scale, least_exposure }: Raw) -> Result<Self, TaskError> {
        let Some(cuts) = cuts else {
            return invalid(
                "survival-regression needs cuts, the ends of the intervals on which the baseline hazard is constant: cuts = [0, 30, 90, 365] up to the time's `upper`",
            );
        };
        let last = cuts.last().copied().unwrap_or(1.0);
        Ok(Self {
            cuts,
            baseline_mean: baseline_mean.unwrap_or(-last.ln()),
            baseline_scale: baseline_scale.unwrap_or(2.5),
            least_exposure: least_exposure.unwrap_or(0.5),
        })
    }
}

impl ModelRules for SurvivalRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        let LabelKind::Survival(rule) = &schema.label().kind else {
            return wrong_outcome(
                schema,
                "survival-regression",
                "a time until an event, `Surv(time, event)` of a column with kind = \"number\" and one with kind = \"boolean\"",
            );
        };
        require(
            (2..=MAX_INTERVALS + 1).contains(&self.cuts.len()) && self.cuts.iter().all(|cut| cut.is_finite() && *cut <= 1e30),
            "cuts must be 0 and at least one, at most 200, later times",
        )?;
        require(self.cuts[0].to_bits() == 0, "cuts must begin with 0")?;
        require(self.cuts.windows(2).all(|pair| pair[0] < pair[1]), "cuts must ascend, each above the one before it")?;
        require(
            self.horizon() >= rule.time.upper,
            "cuts do not cover the time's range: the last cut must be the time's `upper` in the schema, or later",
        )?;
        require(
            self.cuts.iter().rev().nth(1).is_some_and(|cut| *cut < rule.time.upper),
            "an interval begins beyond the time's `upper` in the schema, where no record is ever watched: leave its cuts out",
        )?;
        require(
            rule.entry.as_ref().is_none_or(|entry| entry.rule.lower < rule.time.upper),
            "the entry's `lower` in the schema is not below the time's `upper`, so no record is ever watched: are the columns exchanged?",
        )?;
        require(
            rule.entry.as_ref().is_none_or(|entry| entry.rule.lower < self.cuts[1]),
            "the first intervals end before the entry's `lower` in the schema, where no record is ever watched: leave the cuts between 0 and it out",
        )?;
        require(
            (self.baseline_mean + rule.time.upper.ln()).abs() <= MOST_GUESS + 3.0 * self.baseline_scale,
            "baseline_mean, the logarithm of the events that are expected in one unit of time, would have none or all of the records end at once: about minus the logarithm of the last cut is usual",
        )?;
        require(
            self.baseline_mean.abs() <= 1e3 && positive(self.baseline_scale) && self.baseline_scale <= 100.0,
            "baseline_mean must lie between -1000 and 1000, and baseline_scale between 1e-30 and 100",
        )?;
        require(
            positive(self.least_exposure) && self.least_exposure <= self.horizon(),
            "least_exposure, the time for which an event at the time of entry counts as watched, must be above 0 and at most the last cut: half of the unit of the times, as 0.5",
        )
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of_rows(self.clone())
    }

    /// ln λ, then β.
    fn parameters(&self, features: u32) -> Parameters {
        let baseline = |ends: &[f64]| OwnParameter {
            name: format!("baseline({},{}]", ends[0], ends[1]),
            mean: self.baseline_mean,
            scale: self.baseline_scale,
        };
        Parameters::between(self.cuts.windows(2).map(baseline).collect(), features, Vec::new(), false)
    }

    fn response(&self) -> Response<'_> {
        Response::survival(self)
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        if outcome.posterior.family().dimension() < self.intervals() as usize {
            return Err(InvalidParameters::Domain("not the coefficients of so many intervals"));
        }
        let (model, posterior) = (self.clone(), Arc::clone(&outcome.posterior));
        Ok(Arc::new(SurvivalLaw { width: self.width(posterior.standard()), model, posterior }))
    }

    /// A row is √(1 + R²) long; its largest entry is 1 or that of x.
    ///
    /// # Privacy
    /// Where follow-up ends at B, all expected counts of a record add up to s ≤ B, and it has one event at most, before that. So
    /// g = (d e_b − E; (d − s)x) has the squared norm s² + s²R² at most without an event. With one, Σ(d e_b − E)² is at most 1 + s² (all of s in other intervals; (1 − s)² where
    /// all of it is in that of the event), and 1 + s² + (1 − s)²R² is convex in s: it is at most 1 + R², or 1 + B² + (1 − B)²R². All three are at most
    /// max(1, B)²(1 + max(1, R)²). ‖ΣE_b ρ_bρ_bᵀ‖ ≤ ΣE_b‖ρ_b‖² ≤ B(1 + R²). The mechanism clips the sum of a unit all the same: the guarantee leans on that alone.
    ///
    /// With every curvature at c̄, the rows of a record of all n intervals have Σ c̄ ρρᵀ = c̄ (I_n, 1xᵀ; x1ᵀ, n xxᵀ), of squared norm c̄²(n + 2nR² + n²R⁴) at most.
    fn bounds(&self, ranges: Ranges) -> Bounds {
        let (radius, entry) = (ranges.row, ranges.entry);
        let (square, count) = (radius * radius, f64::from(self.intervals()));
        let row = 1.0 + square;
        let lengths = Lengths {
            gradient: (1.0 + square.max(1.0)).sqrt(),
            full: row,
            diagonal: row.sqrt() * entry.min(radius).max(1.0),
            gram: (count + 2.0 * count * square + (count * square).powi(2)).sqrt(),
        };
        Bounds { lengths, ..Bounds::none(ranges) }
    }
}

impl SurvivalRegression {
    /// Number of intervals.
    #[allow(clippy::cast_possible_truncation, reason = "at most 200 intervals are accepted")]
    pub(super) fn intervals(&self) -> u32 {
        self.cuts.len().saturating_sub(1) as u32
    }
}

impl Display for SurvivalRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let cuts = self.cuts.iter().map(f64::to_string).collect::<Vec<_>>().join(", ");
        let (mean, scale) = (Short(self.baseline_mean), Short(self.baseline_scale));
        write!(f, "survival regression, baseline hazard between {cuts}, of prior mean {mean} and scale {scale}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_math::expfam::any::Standard;
    use dp_pvi_schema::Schema;
    use dp_pvi_schema::public::{Example, Extra};
    use nalgebra::{DMatrix, DVector, dvector};
    use proptest::prelude::*;

    use super::SurvivalRegression;
    use crate::many_rows::testing::{blocks, certain, check_derivatives, summed};
    use crate::many_rows::{Cut, ManyRows, Place, PseudoRows};
    use crate::survival::SurvivalModel;
    use crate::{ModelRules, ModelSpec, Ranges};

    const SCHEMA: &str = "[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1\n[[columns]]\nname = \"d\"\nkind = \"boolean\"\n\
                          [[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -2\nupper = 2\ncentre = 0\nscale = 1\n";

    fn model() -> SurvivalRegression {
        SurvivalRegression { cuts: vec![0.0, 1.0, 4.0, 9.0], baseline_mean: 0.0, baseline_scale: 2.5, least_exposure: 0.5 }
    }

    fn record(entry: f64, target: f64, event: bool, x: &[f64]) -> Example<'_> {
        Example { indices: &[0, 1], values: x, target, offset: 0.3, extra: Extra { entry, event, ..Extra::NONE } }
    }

    #[test]
    fn the_model_is_described_in_words_and_its_coefficients_have_names() {
        assert_eq!(
            ModelSpec::from(model()).to_string(),
            "survival regression, baseline hazard between 0, 1, 4, 9, of prior mean 0 and scale 2.5"
        );
        assert_eq!(
            ModelSpec::from(model()).rules().names(&Schema::asking("Surv(t, d) ~ 0 + .", SCHEMA).unwrap()),
            ["baseline(0,1]", "baseline(1,4]", "baseline(4,9]", "x"]
        );
    }

    #[test]
    fn what_cuts_and_schema_cannot_be_is_refused() {
        let check = |cuts: &[f64], schema: &str| {
            let model = SurvivalRegression { cuts: cuts.to_vec(), ..model() };
            model.check(&Schema::asking("Surv(t, d) ~ 0 + .", schema).unwrap()).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(check(&[0.0, 1.0, 9.0], SCHEMA), "");
        assert_eq!(check(&[0.0, 12.0], SCHEMA), "");
        assert!(check(&[0.0, 1.0, 8.0], SCHEMA).contains("do not cover the time's range"));
        assert!(check(&[0.0, 4.0, 4.0, 9.0], SCHEMA).contains("ascend"));
        assert!(check(&[1.0, 9.0], SCHEMA).contains("begin with 0"));
        assert!(check(&[0.0], SCHEMA).contains("at least one"));
        let binary = "[[columns]]\nname = \"d\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"boolean\"\n";
        let binary = Schema::asking("d ~ .", binary).unwrap();
        assert!(model().check(&binary).unwrap_err().to_string().contains("Surv(time, event)"));
    }

    #[test]
    fn g_and_h_are_the_derivatives_of_f() {
        let mean = dvector![-1.0, -0.5, 0.3, 0.4, -0.2];
        let covariance = DMatrix::from_fn(5, 5, |i, j| if i == j { 0.3 } else { 0.05 });
        for (entry, time, event) in [(0.0, 6.0, true), (0.5, 3.0, false), (2.0, 9.0, true)] {
            check_derivatives(&model(), record(entry, time, event, &[0.7, -0.4]), &mean, &covariance);
        }
    }

    /// d ln λ(t) − H(t) + H(entry), for certain coefficients.
    #[test]
    fn f_is_the_log_density_of_a_time_above_its_entry() {
        let mean = [-1.0, -0.5, 0.3, 0.4, -0.2];
        let q = certain(&mean);
        let row = record(0.5, 6.0, true, &[0.7, -0.4]);
        let hazard = |b: usize| (mean[b] + 0.4 * 0.7 + 0.2 * 0.4 + 0.3_f64).exp();
        let expected = hazard(2).ln() - (0.5 * hazard(0) + 3.0 * hazard(1) + 2.0 * hazard(2));
        assert!((blocks(&model(), row, &q, &mean).0 - expected).abs() < 1e-9);
        let cumulative = model().log_cumulative_hazard(&q, row, 6.0);
        assert!((cumulative.mean.exp() - (hazard(0) + 3.0 * hazard(1) + 2.0 * hazard(2))).abs() < 1e-9);
        assert!(model().log_cumulative_hazard(&q, row, 0.0).survival() > 1.0 - 1e-15);
    }

    /// A death on the day of entry counts, whatever day that is: half a unit of exposure, in the interval of that day.
    #[test]
    fn an_event_at_the_time_of_entry_counts() {
        let model = model();
        let of = |entry: f64, time: f64, event: bool| -> Vec<(u32, f64, bool)> {
            model.exposures(entry, time, event).map(|part| (part.interval, part.time, part.event)).collect()
        };
        for (time, interval) in [(0.0, 0), (0.5, 0), (1.0, 0), (2.5, 1), (9.0, 2)] {
            assert_eq!(of(time, time, true), [(interval, 0.5, true)], "{time}");
            assert_eq!(of(time, time, false), [], "nothing came, and nobody was watched");
        }
        assert_eq!(of(3.0, 2.0, true), [], "an exit before the entry is no time");
        // The residual of such a record says that the event came.
        let q = certain(&[-1.0, -0.5, 0.3, 0.4, -0.2]);
        let mut rows = PseudoRows::default();
        model.write(record(2.5, 2.5, true, &[0.7, -0.4]), &Place { cut: Cut::NOTHING, ..Place::at(&q) }, &mut rows);
        let residuals: Vec<f64> = rows.iter().map(|(_, at)| at.residual).collect();
        assert!(residuals.len() == 1 && residuals[0] > 0.3 && residuals[0] < 1.0, "{residuals:?}");
        let check = |least_exposure: f64| {
            SurvivalRegression { least_exposure, ..model.clone() }.check(&Schema::asking("Surv(t, d) ~ 0 + .", SCHEMA).unwrap())
        };
        check(1.0).unwrap();
        for least in [0.0, -1.0, 10.0, f64::NAN] {
            assert!(check(least).unwrap_err().to_string().contains("least_exposure"));
        }
    }

    proptest! {
        /// Whatever the times are: exposures add up to the time watched, there is one event at most, and a record that left before it came, or when it came without an event, is nothing.
        #[test]
        fn expansion_conserves_exposure_and_events(entry in 0.0..9.0_f64, time in 0.0..9.0_f64, event: bool) {
            let parts: Vec<_> = model().exposures(entry, time, event).collect();
            let total: f64 = parts.iter().map(|part| part.time).sum();
            prop_assert!((total - (time - entry).max(0.0)).abs() < 1e-12 && parts.iter().all(|part| part.time > 0.0));
            let events = parts.iter().filter(|part| part.event).count();
            prop_assert_eq!(events, usize::from(event && time > entry));
            prop_assert!(parts.windows(2).all(|pair| pair[0].interval < pair[1].interval));
        }

        /// Wherever q is: expected counts add up to B at most, an event counts only before that, and blocks are no longer than [`ModelRules::bounds`] says.
        #[test]
        fn follow_up_ends_at_the_bound(
            mean in prop::collection::vec(-4.0..4.0_f64, 5), x in prop::collection::vec(-1.0..1.0_f64, 2), times in prop::array::uniform2(0.0..9.0_f64), event: bool,
            bound in 0.1..4.0_f64,
        ) {
            let slack = 1.0 + 1e-12;
            let (q, row) = (certain(&mean), record(times[0].min(times[1]), times[0].max(times[1]), event, &x));
            let (all, ended) = (written(row, &q, f64::INFINITY), written(row, &q, bound));
            let total = |rows: &PseudoRows| rows.iter().map(|(_, at)| at.curvature).sum::<f64>();
            let events = |rows: &PseudoRows| rows.iter().map(|(_, at)| at.residual + at.curvature).sum::<f64>();
            prop_assert!(total(&ended) <= bound * slack && (total(&ended) - total(&all).min(bound)).abs() < 1e-9 * bound);
            let counts = event && total(&all) <= bound;
            prop_assert!((events(&ended) - f64::from(u8::from(counts && times[0] != times[1]))).abs() < 1e-9);
            let schema = SCHEMA.replace("lower = -2\nupper = 2", "lower = -1.4142136\nupper = 1.4142136");
            let schema = Schema::asking("Surv(t, d) ~ 0 + .", &schema).unwrap();
            let lengths = model().bounds(Ranges::of(&schema, schema.row_norm_bound())).lengths;
            let (g, h) = summed(&ended, 5);
            prop_assert!(g.norm() <= bound.max(1.0) * lengths.gradient * slack, "{} {}", g.norm(), lengths.gradient);
            prop_assert!(h.norm() <= bound * lengths.full * slack && h.diagonal().norm() <= bound * lengths.diagonal * slack);
            let mut rows = PseudoRows::default();
            model().write_bound(row, 5, bound, &mut rows);
            let above = summed(&rows, 5).1;
            prop_assert!((&above - h).symmetric_eigenvalues().min() > -1e-12);
            prop_assert!(above.norm() <= bound * lengths.gram * slack, "{} {}", above.norm(), lengths.gram);
        }

        /// Rows are cut one by one where a cut asks for it.
        #[test]
        fn cuts_hold(mean in prop::collection::vec(-4.0..4.0_f64, 5), x in prop::collection::vec(-1.0..1.0_f64, 2), time in 0.0..9.0_f64, event: bool) {
            let cut = Cut { residual: 0.8, curvature: 0.5, ..Cut::NOTHING };
            let mut rows = PseudoRows::default();
            model().write(record(0.0, time, event, &x), &Place { cut, ..Place::at(&certain(&mean)) }, &mut rows);
            prop_assert!(rows.iter().all(|(_, at)| at.residual.abs() <= 0.8 && (0.0..=0.5).contains(&at.curvature)));
        }
    }

    /// The rows of a record where follow-up ends at this count.
    fn written(record: Example<'_>, q: &Standard, follow_up: f64) -> PseudoRows {
        let mut rows = PseudoRows::default();
        model().write(record, &Place { cut: Cut { follow_up, ..Cut::NOTHING }, ..Place::at(q) }, &mut rows);
        rows
    }

    /// At the truth every coordinate of the score has the expectation 0, and H is its covariance, wherever follow-up ends: which cuts of rows do not keep.
    #[test]
    fn the_score_of_an_ended_follow_up_has_no_bias() {
        const DRAWN: u32 = 200_000;
        // A low-discrepancy sequence in four dimensions.
        const R4: [f64; 4] = [0.856_674_883_854_502_9, 0.733_891_856_627_126, 0.628_706_721_037_808_7, 0.538_597_257_223_610_1];
        let mean = [-1.2, -0.6, -1.5, 0.8, -0.5];
        let q = certain(&mean);
        for bound in [0.4, 1.0, 2.5] {
            let (mut first, mut second, mut information) = (DVector::zeros(5), DMatrix::zeros(5, 5), DMatrix::zeros(5, 5));
            for number in 0..DRAWN {
                let u = |k: usize| (0.5 + f64::from(number + 1) * R4[k]).fract();
                let x = [2.0 * u(0) - 1.0, 2.0 * u(1) - 1.0];
                let row = record(0.0, 9.0, false, &x);
                // The time at which as many events were to be expected as an exponential number says.
                let mut left = -(1.0 - u(2)).ln();
                let mut time = f64::INFINITY;
                let whole = written(row, &q, f64::INFINITY);
                for ((_, at), ends) in whole.iter().zip(model().cuts.windows(2)) {
                    if left <= at.curvature {
                        time = ends[0] + (ends[1] - ends[0]) * left / at.curvature;
                        break;
                    }
                    left -= at.curvature;
                }
                let end = 9.0 * u(3);
                let rows = written(record(0.0, time.min(end), time <= end, &x), &q, bound);
                let (g, h) = summed(&rows, 5);
                second += &g * g.transpose();
                first += g;
                information += h;
            }
            let n = f64::from(DRAWN);
            for j in 0..5 {
                // Five standard errors, of numbers that are spread more evenly than drawn ones.
                let error = (information[(j, j)] / n / n).sqrt();
                assert!((first[j] / n).abs() <= 5.0 * error, "{bound}: {} {error}", first[j] / n);
            }
            assert!((&second - &information).norm() < 0.02 * information.norm(), "{bound}: {second} {information}");
        }
    }
}
