//! H(t) = t^k e^{xᵀθ}.

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
use crate::survival::SurvivalLaw;
use crate::{Bounds, Lengths, ModelOptions, ModelRules, Ranges};
use dp_pvi_schema::{LabelKind, Schema};

/// Options of a Weibull regression.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeibullRegression {
    /// What times are divided by.
    pub time_unit: f64,
    /// Prior mean of κ = ln k.
    pub shape_mean: f64,
    /// Prior standard deviation of κ.
    pub shape_scale: f64,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    time_unit: Option<f64>,
    /// Default: 0.
    shape_mean: Option<f64>,
    /// Default: 0.5.
    shape_scale: Option<f64>,
}

impl ModelOptions for WeibullRegression {
    const NAME: &'static str = "weibull-regression";
    const HELP: &'static str = "a time until an event, with a hazard that rises or falls as a power of time";
    type Raw = Raw;

    fn explicit(Raw { time_unit, shape_mean, shape_scale }: Raw) -> Result<Self, TaskError> {
        match time_unit {
            Some(time_unit) => Ok(Self { time_unit, shape_mean: shape_mean.unwrap_or(0.0), shape_scale: shape_scale.unwrap_or(0.5) }),
            None => invalid("weibull-regression needs time_unit, in the unit of the file: about √(lower · upper) of the time's range"),
        }
    }
}

impl ModelRules for WeibullRegression {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        let LabelKind::Survival(rule) = &schema.label().kind else {
            return wrong_outcome(
                schema,
                "weibull-regression",
                "a time until an event, `Surv(time, event)` of a column with kind = \"number\" and one with kind = \"boolean\"",
            );
        };
        require(rule.time.lower > 0.0, "weibull-regression needs times above 0: give the time a `lower` above 0")?;
        require(
            rule.entry.is_none(),
            "weibull-regression has no entry times: use a regression of survival times with cuts, or remove entry",
        )?;
        require(positive(self.time_unit), "time_unit must be a number between 1e-30 and 1e30")?;
        require(
            (rule.time.upper / self.time_unit).ln().abs() <= 12.0,
            "time_unit is far from the times: about √(lower · upper) of the time's range is usual, in the unit of the file",
        )?;
        require(
            (rule.time.lower / self.time_unit).ln() >= -12.0,
            "the time's `lower` in the schema is far below time_unit, and rows as long as the logarithm of their ratio need as much more noise: `lower` is the shortest time that is \
             told apart, as half a day",
        )?;
        require(
            self.shape_mean.abs() <= 4.0 && positive(self.shape_scale) && self.shape_scale <= 10.0,
            "shape_mean must lie between -4 and 4 (a shape between 0.02 and 55), and shape_scale between 1e-30 and 10",
        )
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::of_rows(*self)
    }

    /// θ, then κ.
    fn parameters(&self, features: u32) -> Parameters {
        let shape = OwnParameter { name: "log(shape)".to_owned(), mean: self.shape_mean, scale: self.shape_scale };
        Parameters::between(Vec::new(), features, vec![shape], true)
    }

    fn response(&self) -> Response<'_> {
        Response::survival(self)
    }

    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        if outcome.posterior.family().dimension() == 0 {
            return Err(InvalidParameters::Domain("no coefficient is the shape"));
        }
        let posterior = Arc::clone(&outcome.posterior);
        Ok(Arc::new(SurvivalLaw { width: Self::kappa(posterior.standard()), model: *self, posterior }))
    }

    /// With L the greatest |k ln t| at the prior mean of κ, a row is √(R² + (1 + L)²) long. Where κ is far from there rows are longer, and the mechanism clips what is.
    ///
    /// # Privacy
    /// Where follow-up ends at B, g = ((d − E)x; d + (d − E)u) with u = k ln t, |u| ≤ L and |d − E| ≤ max(1, B), so that ‖g‖² ≤ max(1, B)²(R² + (1 + L)²), and
    /// ‖Eρρᵀ‖ ≤ B(R² + L²). The mechanism clips the sum of a unit all the same: the guarantee leans on that alone.
    fn bounds(&self, ranges: Ranges) -> Bounds {
        let (radius, entry) = (ranges.row, ranges.entry);
        let [first, last] = ranges.times.unwrap_or([self.time_unit; 2]).map(|time| (time / self.time_unit).ln().abs());
        let longest = self.shape_mean.exp() * first.max(last);
        let square = radius * radius + longest * longest;
        let lengths = Lengths {
            gradient: (radius * radius + (1.0 + longest).powi(2)).sqrt(),
            full: square,
            diagonal: square.sqrt() * entry.min(radius).max(longest),
            // The row, and what rows that move leave out.
            gram: square + 1.0,
        };
        Bounds { lengths, ..Bounds::none(ranges) }
    }
}

impl Display for WeibullRegression {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (unit, mean, scale) = (Short(self.time_unit), Short(self.shape_mean), Short(self.shape_scale));
        write!(f, "Weibull regression, times in units of {unit}, log shape of prior mean {mean} and scale {scale}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use dp_pvi_math::expfam::any::Standard;
    use dp_pvi_math::expfam::gaussian::full;
    use dp_pvi_schema::Schema;
    use dp_pvi_schema::public::{Example, Extra};
    use nalgebra::{DMatrix, DVector, dvector};
    use proptest::prelude::*;

    use super::WeibullRegression;
    use crate::many_rows::testing::{blocks, certain, check_derivatives, record_and_posterior, summed};
    use crate::many_rows::{Beliefs, Cut, ManyRows, Place, PseudoRows};
    use crate::survival::SurvivalModel;
    use crate::{Lengths, ModelRules, ModelSpec, Ranges};

    const MODEL: WeibullRegression = WeibullRegression { time_unit: 2.0, shape_mean: 0.0, shape_scale: 0.5 };
    const SCHEMA: &str = "[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0.5\nupper = 8\ncentre = 0\nscale = 1\n[[columns]]\nname = \"d\"\nkind = \"boolean\"\n\
                          [[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";

    fn record(target: f64, event: bool) -> Example<'static> {
        Example { indices: &[0, 1], values: &[0.7, 1.0], target, offset: 0.3, extra: Extra { event, ..Extra::NONE } }
    }

    #[test]
    fn the_model_is_described_in_words_and_its_shape_has_a_name() {
        assert_eq!(ModelSpec::from(MODEL).to_string(), "Weibull regression, times in units of 2, log shape of prior mean 0 and scale 0.5");
        assert_eq!(
            ModelSpec::from(MODEL).rules().names(&Schema::asking("Surv(t, d) ~ .", SCHEMA).unwrap()),
            ["x", "(intercept)", "log(shape)"]
        );
    }

    #[test]
    fn times_that_may_be_0_and_entries_are_refused() {
        let check = |formula: &str, schema: &str| {
            MODEL.check(&Schema::asking(formula, schema).unwrap()).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(check("Surv(t, d) ~ .", SCHEMA), "");
        assert!(check("Surv(t, d) ~ .", &SCHEMA.replace("lower = 0.5", "lower = 0")).contains("above 0"));
        let entered = format!("{SCHEMA}[[columns]]\nname = \"e\"\nkind = \"number\"\nlower = 0\nupper = 8\ncentre = 0\nscale = 1\n");
        assert!(check("Surv(e, t, d) ~ .", &entered).contains("no entry times"));
    }

    #[test]
    fn g_and_h_are_the_derivatives_of_f_with_rows_that_stay() {
        let covariance = DMatrix::from_fn(3, 3, |i, j| if i == j { 0.2 } else { 0.04 });
        for (time, event) in [(0.6, true), (5.0, false), (2.0, true)] {
            check_derivatives(&MODEL, record(time, event), &dvector![0.4, -0.6, 0.3], &covariance);
        }
    }

    /// d(κ + (k − 1) ln t + η) − t^k e^η, for certain coefficients.
    #[test]
    fn f_is_the_log_density_of_a_time() {
        let mean = [0.4, -0.6, 0.3];
        let (q, eta, shape) = (certain(&mean), 0.4 * 0.7 - 0.6 + 0.3_f64, 0.3_f64.exp());
        for (time, event) in [(0.6, 1.0), (5.0, 0.0)] {
            let t: f64 = time / 2.0;
            let expected = event * (0.3 + (shape - 1.0) * t.ln() + eta) - t.powf(shape) * eta.exp();
            assert!((blocks(&MODEL, record(time, event > 0.5), &q, &mean).0 - expected).abs() < 1e-9);
            let hazard = MODEL.log_cumulative_hazard(&q, record(time, false), time);
            assert!((hazard.mean - (t.powf(shape) * eta.exp()).ln()).abs() < 1e-9);
        }
    }

    #[test]
    fn the_matrix_of_the_bound_is_no_longer_than_stated() {
        let lengths = lengths();
        for (time, event) in [(0.5, true), (8.0, true), (8.0, false)] {
            let mut rows = PseudoRows::default();
            let row = Example { values: &[1.0, 1.0], ..record(time, event) };
            MODEL.write_bound(row, 3, 0.7, &mut rows);
            assert!(summed(&rows, 3).1.norm() <= 0.7 * lengths.gram * (1.0 + 1e-12));
        }
    }

    fn lengths() -> Lengths {
        let schema = Schema::asking("Surv(t, d) ~ .", SCHEMA).unwrap();
        MODEL.bounds(Ranges::of(&schema, schema.row_norm_bound())).lengths
    }

    /// The rows of a record where follow-up ends at this count.
    fn written(record: Example<'_>, q: &Standard, follow_up: f64) -> PseudoRows {
        let mut rows = PseudoRows::default();
        MODEL.write(record, &Place { cut: Cut { follow_up, ..Cut::NOTHING }, ..Place::at(q) }, &mut rows);
        rows
    }

    proptest! {
        /// Wherever q is: E is B at most, and the record that ends is the one that would have been watched until then.
        #[test]
        fn follow_up_ends_at_the_bound((x, mean, covariance) in record_and_posterior(4), time in 0.5..8.0_f64, event: bool, bound in 0.1..4.0_f64) {
            let q = Standard::Full(full::Standard::new(mean.clone() * 0.3, covariance * 0.05).unwrap());
            let at = |target: f64, event: bool| Example { indices: &[0, 1, 2], values: &x, target, offset: 0.3, extra: Extra { event, ..Extra::NONE } };
            let count = |rows: &PseudoRows| rows.iter().map(|(_, at)| at.curvature).sum::<f64>();
            let (all, ended) = (written(at(time, event), &q, f64::INFINITY), written(at(time, event), &q, bound));
            prop_assert!(count(&ended) <= bound);
            if count(&all) <= bound {
                prop_assert_eq!(summed(&ended, 4), summed(&all, 4));
            } else {
                let row = ended.row(0);
                prop_assert_eq!(ended.iter().count(), 1);
                // k ln t, with k at its mean.
                let end = 2.0 * (row.values[3] / Beliefs::mean(&q, 3).exp()).exp();
                prop_assert!(end <= time * (1.0 + 1e-12));
                let then = |factor: f64| count(&written(at(factor * end, false), &q, f64::INFINITY));
                // B is reached then, or E is above it at every earlier time, too.
                let lowest = then(1.0) > bound && then(0.99) > then(1.0) && (then(1.01) > then(1.0) || end >= time * (1.0 - 1e-12));
                prop_assert!((then(1.0) - bound).abs() < 1e-9 * bound || lowest, "{} {bound}", then(1.0));
                let lengths = lengths();
                if end >= 0.5 && x[..].iter().map(|x| x * x).sum::<f64>() <= 2.0 && Beliefs::mean(&q, 3) <= 0.0 {
                    let (g, h) = summed(&ended, 4);
                    prop_assert!(g.norm() <= bound.max(1.0) * lengths.gradient && h.norm() <= bound * lengths.full * (1.0 + 1e-12));
                }
            }
        }
    }

    /// What is not known of the shape makes E large for small t, too: then it is B at the time at which it is smallest, and never more.
    #[test]
    fn a_count_that_is_above_the_bound_at_every_time_is_the_bound() {
        let q = Standard::Full(full::Standard::new(dvector![0.0, 3.0, 0.0], DMatrix::from_diagonal(&dvector![0.01, 0.01, 0.5])).unwrap());
        let rows = written(record(8.0, true), &q, 1.0);
        let found: Vec<_> = rows.iter().collect();
        assert_eq!((found.len(), found[0].1.residual, found[0].1.curvature), (1, -1.0, 1.0));
        // −1/Var κ.
        assert!((found[0].0.values[2] + 2.0).abs() < 1e-12);
        let overflow =
            Standard::Full(full::Standard::new(dvector![0.0, 1e5, 0.0], DMatrix::from_diagonal(&dvector![0.01, 0.01, 0.5])).unwrap());
        assert!(written(record(8.0, true), &overflow, 1.0).is_finite());
    }

    /// At the truth every coordinate of the score has the expectation 0, wherever follow-up ends.
    #[test]
    fn the_score_of_an_ended_follow_up_has_no_bias() {
        const DRAWN: u32 = 200_000;
        let mean = [0.8, -0.4, 0.4];
        let q = certain(&mean);
        for bound in [0.4, 1.0, 2.5] {
            let (mut first, mut squares) = (DVector::zeros(3), DVector::zeros(3));
            for number in 0..DRAWN {
                let u = |step: f64| (0.5 + f64::from(number + 1) * step).fract();
                let x = [2.0 * u(0.819_172_513_396_164_5) - 1.0, 1.0];
                let hazard = (0.8 * x[0] - 0.4 + 0.3_f64).exp();
                let time = 2.0 * (-(1.0 - u(0.671_043_606_703_789_2)).ln() / hazard).powf((-0.4_f64).exp());
                let end = 0.2 + 7.8 * u(0.549_700_477_901_970_2);
                let row = Example { values: &x, ..record(time.min(end), time <= end) };
                let g = summed(&written(row, &q, bound), 3).0;
                squares += g.map(|g| g * g);
                first += g;
            }
            let n = f64::from(DRAWN);
            for j in 0..3 {
                let error = squares[j].sqrt() / n;
                assert!((first[j] / n).abs() < 5.0 * error, "{bound}: {} {error}", first[j] / n);
            }
        }
    }
}
