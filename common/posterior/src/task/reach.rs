//! Where the linear predictors of records can be, from public bounds, and whether that fits the model's link and label.
//!
//! A predictor is o + xᵀθ. The offset o lies between the ends that the formula gives it. Of xᵀθ the prior says how far it reaches: a term whose entries are at most b long has a
//! standard deviation of at most b times the largest prior scale of its coefficients, and the squares of terms add up. A task whose predictors leave what its link can take cannot succeed,
//! whatever the records are: it is refused before anyone pays for it.
//!
//! * *Log rates and log hazards*: an offset is a logarithm. Where it spans more than `LOG_SPAN`, the rates of two records differ by a factor of e^30; what is meant is `offset(log(…))`.
//! * *Logits and probits*: where it spans more than `LOGIT_SPAN`, it alone decides every label.
//! * *Numbers*: an offset in units of the label. Where it spans more than `LABEL_SPAN` times the label's range, or lies outside of it, no coefficient makes up for it.
//! * *The prior's mean*: where all predictors that the prior reaches lie beyond `DECIDED` of 0, on the scale of logits and logarithms, the prior decides every label by itself.
//! * *Everywhere but for numbers*: e to the predictor is a number of the computer only up to `OVERFLOW`. A prior whose reach is beyond it (powers of a number that was not scaled, a scale of
//!   1e6) is refused. So is one under which all records of all tasks have nearly one predictor (`LEAST`): a norm_bound of 1e-6.

use dp_pvi_models::spec::check::invalid;
use dp_pvi_models::spec::words::Short;
use dp_pvi_models::spec::{Prior, TaskError};
use dp_pvi_models::{ModelSpec, PredictorScale};
use dp_pvi_schema::{LabelKind, Schema};

/// Longest span of an offset on a logarithm's scale.
const LOG_SPAN: f64 = 30.0;
/// The same of a logit or probit.
const LOGIT_SPAN: f64 = 60.0;
/// The same of a number, in ranges of the label.
const LABEL_SPAN: f64 = 10.0;
/// A logit, or the logarithm of a rate or of a ratio of hazards, beyond which nothing is learned from a record.
const DECIDED: f64 = 30.0;
/// Largest exponent whose power is a finite number.
const OVERFLOW: f64 = 700.0;
/// Predictors that differ by less carry no information from each other.
const LEAST: f64 = 0.01;
/// Standard deviations that count.
const DEVIATIONS: f64 = 3.0;

/// Where the predictors of records can be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reach {
    /// Ends of the offset; 0 where there is none.
    pub offset: (f64, f64),
    /// Largest standard deviation of xᵀθ under the prior.
    pub spread: f64,
    /// Ends of xᵀθ at the prior's mean.
    pub mean: (f64, f64),
    /// What it is measured in.
    pub scale: PredictorScale,
}

impl Reach {
    /// Least and greatest predictor: the ends of the offset and of the prior's mean, and three standard deviations.
    #[must_use]
    pub fn range(&self) -> (f64, f64) {
        let reached = DEVIATIONS * self.spread;
        (self.offset.0 + self.mean.0 - reached, self.offset.1 + self.mean.1 + reached)
    }

    fn span(&self) -> f64 {
        self.offset.1 - self.offset.0
    }

    /// As a line for people.
    #[must_use]
    pub fn text(&self) -> String {
        let ((low, high), (from, to)) = (self.range(), self.offset);
        let of = match self.scale {
            PredictorScale::LogOdds => "log odds",
            PredictorScale::LogRate => "logarithm of the rate",
            PredictorScale::LogHazard => "logarithm of the hazard, beside the baseline",
            PredictorScale::Probit => "probit",
            PredictorScale::Label => "label after centre and scale",
        };
        let offset =
            if self.span() > 0.0 || from != 0.0 { format!("; the offset alone {} to {}", Short(from), Short(to)) } else { String::new() };
        format!("{} to {} ({of}; three standard deviations of the prior at the longest row{offset})", Short(low), Short(high))
    }

    /// Of a model over this schema, under this prior of all its parameters; `None` for a model without linear predictors that people can read.
    #[must_use]
    pub fn of(model: &ModelSpec, schema: &Schema, prior: &Prior) -> Option<Self> {
        let rules = model.rules();
        let scale = rules.response().scale?;
        let first = rules.own_before_rows() as usize;
        let widest = |from: usize, count: usize| {
            let own = prior.precision.get(from..from + count).unwrap_or(&prior.precision);
            own.iter().map(|precision| precision.powf(-0.5)).fold(0.0, f64::max)
        };
        let longest = schema.row_norm_bound() * widest(first, schema.dimension() as usize);
        let mean = schema.ends_of_products(prior.mean.get(first..).unwrap_or_default());
        let Some(design) = schema.design() else { return Some(Self { offset: (0.0, 0.0), spread: longest, mean, scale }) };
        let squares = design.terms().iter().map(|term| (term.bound * widest(first + term.first as usize, term.count as usize)).powi(2));
        Some(Self { offset: design.offset_range(), spread: squares.sum::<f64>().sqrt().min(longest), mean, scale })
    }

    /// Refuses predictors that the link or the label cannot take.
    ///
    /// # Errors
    /// What is out of range, and what to write instead.
    pub fn check(&self, model: &ModelSpec, schema: &Schema) -> Result<(), TaskError> {
        let ((from, to), span) = (self.offset, self.span());
        let far = from.abs().max(to.abs());
        let ends = || format!("the offset of the formula lies between {} and {}", Short(from), Short(to));
        match self.scale {
            PredictorScale::LogRate | PredictorScale::LogHazard if span > LOG_SPAN || far > 10.0 * LOG_SPAN => invalid(&format!(
                "{}: it is a logarithm for {model}, so that rates would differ by a factor of e^{}; write offset(log(…)), or make the column's range smaller",
                ends(),
                Short(span.max(far).round())
            )),
            PredictorScale::LogOdds | PredictorScale::Probit if span > LOGIT_SPAN || far > LOGIT_SPAN => {
                invalid(&format!("{}: at such ends it decides every label by itself; scale the column, or give it a smaller range", ends()))
            }
            PredictorScale::Label => {
                let LabelKind::Number { rule, .. } = &schema.label().kind else { return Ok(()) };
                let (low, high) = (rule.encode(rule.lower), rule.encode(rule.upper));
                let (least, greatest) = self.range();
                if least > high || greatest < low {
                    return invalid(&format!(
                        "the outcome after its centre and scale lies between {} and {}, and the prior lets predictors reach {} to {}: give the outcome's column a centre and a scale in the \
                         middle of its range, or the prior a mean or a scale",
                        Short(low),
                        Short(high),
                        Short(least),
                        Short(greatest)
                    ));
                }
                if far == 0.0 || span <= LABEL_SPAN * (high - low) && from <= high && to >= low {
                    return Ok(());
                }
                invalid(&format!(
                    "{}, and the outcome after its centre and scale between {} and {}: give both the same units",
                    ends(),
                    Short(low),
                    Short(high)
                ))
            }
            _ if self.range().0 > DECIDED || self.range().1 < -DECIDED => invalid(&format!(
                "the prior lets predictors reach {} to {} ({model}): it decides every label by itself, and nothing would be learned; give it another mean, or a larger scale",
                Short(self.range().0),
                Short(self.range().1)
            )),
            _ if DEVIATIONS * self.spread < LEAST && self.span() < LEAST => invalid(&format!(
                "all predictors lie within {} of each other ({model}): nothing can be learned; give rows a larger norm_bound, or the prior a larger scale",
                Short(2.0 * DEVIATIONS * self.spread)
            )),
            _ if DEVIATIONS * self.spread > OVERFLOW => invalid(&format!(
                "the prior lets predictors reach {} ({model}), and e to that is no number: rows are up to {} long; scale the columns (scale = … in the schema, \
                 scale(…) in the formula), take poly(…) without raw = TRUE, or give a norm_bound or a smaller prior_scale",
                Short((DEVIATIONS * self.spread).round()),
                Short(schema.row_norm_bound())
            )),
            _ => Ok(()),
        }
    }
}
