//! Coefficients that share a scale, as they are read: τ with its interval, and every coefficient with what it was drawn towards 0 by.

use dp_pvi_math::expfam::any::Standard;
use dp_pvi_math::observation::Precision;
use dp_pvi_math::scales::{Group, ScaleSummary, inverse_gamma_quantile};
use serde::{Deserialize, Serialize};

use crate::ModelSpec;
use crate::prediction::{Interval, Level};
use crate::spec::Prior;
use dp_pvi_schema::Schema;

/// A scale τ: of how far sites differ, or how much a curve bends. What a noise-aware posterior knows of it comes with that posterior ([`ScaleSummary`]); otherwise τ² is
/// inverse-gamma(a + K/2, b + S/2), see [`dp_pvi_math::scales`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// The term of the formula; of several classes with the class before it.
    pub term: String,
    /// Which effect of a group: `(Intercept)`, `age`; absent for curves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<String>,
    /// The median of τ; where there is no [`ScaleSummary`], τ of which 1/τ² is the expected prior precision.
    pub estimate: f64,
    /// Central 90 % interval; absent where τ was stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_90: Option<Interval>,
    /// Central 95 % interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_95: Option<Interval>,
    /// The coefficients of a group, in their order; none of a curve, whose coefficients mean nothing by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<Member>,
}

/// A coefficient of a group: a site's effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The coefficient's name.
    pub name: String,
    /// Posterior mean.
    pub mean: f64,
    /// Posterior standard deviation.
    pub sd: f64,
    /// Central 90 % interval.
    pub interval_90: Interval,
    /// Central 95 % interval.
    pub interval_95: Interval,
    /// 1 − v/τ², and at least 0: 0 where the data say nothing of it, near 1 where they say all.
    pub known: f64,
}

/// The scale σ of an observation's noise, where a run learned it: in units of the label after centre and scale. 1/σ² ~ Gamma.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObservationScale {
    /// σ, of which 1/σ² is the expected precision.
    pub estimate: f64,
    /// Central 90 % interval.
    pub interval_90: Interval,
    /// Central 95 % interval.
    pub interval_95: Interval,
    /// Shape of the distribution of 1/σ².
    pub shape: f64,
    /// Its rate.
    pub rate: f64,
}

impl ObservationScale {
    /// What a distribution of 1/σ² says.
    #[must_use]
    pub fn new(precision: Precision) -> Self {
        let interval = |level: Level| Interval { lower: precision.quantile(level.tail()), upper: precision.quantile(1.0 - level.tail()) };
        Self {
            estimate: precision.scale(),
            interval_90: interval(Level::P90),
            interval_95: interval(Level::P95),
            shape: precision.shape,
            rate: precision.rate,
        }
    }

    /// Whether it says what its shape and rate do, up to the rounding of different machines.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let numbers = |of: &Self| [of.estimate, of.interval_90.lower, of.interval_90.upper, of.interval_95.lower, of.interval_95.upper];
        let expected = Self::new(Precision { shape: self.shape, rate: self.rate });
        numbers(self).iter().zip(numbers(&expected)).all(|(a, b)| (a - b).abs() <= 1e-8 * (1.0 + b.abs()))
    }
}

/// Where a group belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place<'a> {
    /// The term.
    pub term: &'a str,
    /// The class, where the model has several predictors.
    pub class: Option<&'a str>,
    /// The effect of a group of levels or sites.
    pub effect: Option<&'a str>,
}

/// What a posterior says of all groups of a prior; `names` are those of all coefficients. `summaries` are what it knows of the groups' τ, in their order: none of those that it leaves out.
#[must_use]
pub fn scales(
    model: &ModelSpec,
    prior: &Prior,
    schema: &Schema,
    names: &[String],
    posterior: &Standard,
    summaries: &[Option<ScaleSummary>],
) -> Vec<Scale> {
    let Some(design) = schema.design() else { return Vec::new() };
    let classes = model.rules().classes_with_coefficients(schema);
    let of = design.scale_groups();
    let scale = |(number, group): (usize, &Group)| {
        let own = &of[number % of.len()];
        let class = classes.get(number / of.len()).map(String::as_str);
        let summary = summaries.get(number).copied().flatten();
        Scale::new(Place { term: &own.term, class, effect: own.effect.as_deref() }, group, names, posterior, summary)
    };
    prior.groups.iter().enumerate().map(scale).collect()
}

impl Scale {
    /// What a posterior says of a group, and of its τ where that is known by itself; `names` are those of all coefficients.
    #[must_use]
    pub fn new(place: Place<'_>, group: &Group, names: &[String], posterior: &Standard, summary: Option<ScaleSummary>) -> Self {
        let (mean, variance) = (posterior.mean(), posterior.variances());
        let (shape, rate) = group.posterior(mean, &variance);
        let estimate = summary.map_or_else(|| group.scale(mean, &variance).sqrt(), |summary| summary.median);
        let interval = |level: Level, known: fn(ScaleSummary) -> [f64; 2]| {
            let end = |probability| inverse_gamma_quantile(shape, rate, probability).sqrt();
            let [lower, upper] = summary.map_or_else(|| [end(level.tail()), end(1.0 - level.tail())], known);
            group.fixed.is_none().then_some(Interval { lower, upper })
        };
        let member = |j: usize| {
            let (mean, sd) = (mean[j], variance[j].sqrt());
            Member {
                name: names.get(j).cloned().unwrap_or_default(),
                mean,
                sd,
                interval_90: Level::P90.interval(mean, sd),
                interval_95: Level::P95.interval(mean, sd),
                known: known(variance[j], estimate),
            }
        };
        let members = if place.effect.is_some() { (group.first..group.first + group.count).map(member).collect() } else { Vec::new() };
        Self {
            term: place.class.map_or_else(|| place.term.to_owned(), |class| format!("{class}: {}", place.term)),
            effect: place.effect.map(str::to_owned),
            estimate,
            interval_90: interval(Level::P90, |summary| summary.central_90),
            interval_95: interval(Level::P95, |summary| summary.central_95),
            members,
        }
    }

    /// The same with τ as another one states it, where that is a median inside its intervals. [`Self::agrees`] then compares the rest: a τ with a [`ScaleSummary`] does not follow from
    /// the coefficients.
    #[must_use]
    pub fn with_tau_of(mut self, stated: &Self) -> Self {
        let ends = |interval: Option<Interval>| interval.map(|interval| [interval.lower, interval.upper]);
        if let (Some(_), Some([low_95, high_95]), Some([low_90, high_90])) =
            (self.interval_90, ends(stated.interval_95), ends(stated.interval_90))
            && [0.0, low_95, low_90, stated.estimate, high_90, high_95, f64::MAX].is_sorted()
        {
            (self.estimate, self.interval_90, self.interval_95) = (stated.estimate, stated.interval_90, stated.interval_95);
            self.members.iter_mut().for_each(|member| member.known = known(member.sd * member.sd, stated.estimate));
        }
        self
    }

    /// Whether two say the same up to the rounding of different machines.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let ends = |interval: Option<Interval>| interval.map_or([0.0; 2], |interval| [interval.lower, interval.upper]);
        let numbers = |scale: &Self| {
            let mut numbers = vec![scale.estimate];
            numbers.extend([ends(scale.interval_90), ends(scale.interval_95)].concat());
            for member in &scale.members {
                numbers.extend([member.mean, member.sd, member.known]);
                numbers.extend([ends(Some(member.interval_90)), ends(Some(member.interval_95))].concat());
            }
            numbers
        };
        let words =
            |scale: &Self| (scale.term.clone(), scale.effect.clone(), scale.members.iter().map(|m| m.name.clone()).collect::<Vec<_>>());
        let (a, b) = (numbers(self), numbers(other));
        words(self) == words(other)
            && self.interval_90.is_some() == other.interval_90.is_some()
            && a.len() == b.len()
            && a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-8 * (1.0 + a.abs()))
    }
}

/// 1 − v/τ², at least 0: a variance over an uncertain τ can be larger than the square of its median.
fn known(variance: f64, tau: f64) -> f64 {
    (1.0 - variance / (tau * tau)).max(0.0)
}
