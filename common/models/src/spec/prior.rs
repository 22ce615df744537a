//! Priors: one for every coefficient, others for the coefficients of a term, and scales that several coefficients share.

use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::svec;
use dp_pvi_math::scales;
use dp_pvi_math::scales::Group;
use dp_pvi_schema::Schema;
use nalgebra::{DMatrix, DVector};
use serde::{Deserialize, Serialize};

use super::check::{invalid, positive, require};
use super::{DesignSpec, TaskError};

/// Prior of every coefficient: in typical units ([`typical`](crate::typical)), or in those of encoded entries.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriorSpec {
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub scale: f64,
}

/// The prior of a term of a formula, in place of the prior of every coefficient.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TermPrior {
    /// The term, as `check` prints it.
    pub term: String,
    /// Mean of its coefficients. Default: that of every coefficient. Not of coefficients that share a scale, whose mean is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<f64>,
    /// Standard deviation of its coefficients. Default: that of every coefficient. Not of coefficients that share a scale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale: Option<f64>,
    /// a of the inverse-gamma prior of a learned τ². Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<f64>,
    /// b of it: the guess of τ² is b/a. Default: 0.25.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
}

/// a and b of a learned τ² where the task has none: the guess of τ is ½.
const SHAPE: f64 = 1.0;
const RATE: f64 = 0.25;

/// Independent normal priors of all parameters, some with a scale that is learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Prior {
    /// m0.
    pub mean: Vec<f64>,
    /// Diagonal of Λ0; of coefficients that share a scale at the scale's start.
    pub precision: Vec<f64>,
    /// Coefficients that share a scale.
    pub groups: Vec<Group>,
}

impl Prior {
    /// The same for so many parameters.
    #[must_use]
    pub fn isotropic(spec: PriorSpec, dimension: usize) -> Self {
        Self { mean: vec![spec.mean; dimension], precision: vec![spec.scale.powi(-2); dimension], groups: Vec::new() }
    }

    /// The prior of so many entries of a feature row: of each its own mean and standard deviation, or that of all where there are none.
    #[must_use]
    pub fn of_entries(spec: PriorSpec, coefficients: &[[f64; 2]], dimension: usize) -> Self {
        match coefficients.get(..dimension).filter(|own| !own.is_empty()) {
            Some(own) => Self {
                mean: own.iter().map(|[mean, _]| *mean).collect(),
                precision: own.iter().map(|[_, sd]| sd.powi(-2)).collect(),
                groups: Vec::new(),
            },
            None => Self::isotropic(spec, dimension),
        }
    }

    /// The same, with the priors of single terms and scales that several coefficients share.
    ///
    /// # Errors
    /// A prior of a term that the formula does not have, or that cannot be one of its coefficients.
    pub fn of_rows(spec: PriorSpec, coefficients: &[[f64; 2]], schema: &Schema, design: Option<&DesignSpec>) -> Result<Self, TaskError> {
        let mut prior = Self::of_entries(spec, coefficients, schema.dimension() as usize);
        let (Some(design), Some(written)) = (schema.design(), design) else { return Ok(prior) };
        for group in design.scale_groups() {
            prior.groups.push(Group {
                first: group.first as usize,
                count: group.count as usize,
                shape: SHAPE,
                rate: RATE,
                fixed: group.fixed_sd.map(|sd| sd * sd),
            });
        }
        for (number, own) in written.priors.iter().enumerate() {
            let place = |what: &str| format!("[[model.priors]] term = \"{}\": {what}", own.term);
            let Some(term) = design.terms().iter().find(|term| term.name == own.term) else {
                let names: Vec<&str> = design.terms().iter().map(|term| term.name.as_str()).collect();
                return invalid(&place(&format!("the formula has no such term; its terms are {}", names.join(", "))));
            };
            require(written.priors[..number].iter().all(|other| other.term != own.term), &place("the term has two priors: remove one"))?;
            require(
                own.mean.is_none_or(|mean| mean.abs() <= 1e30) && own.scale.is_none_or(positive),
                &place("mean must lie between -1e30 and 1e30, and scale between 1e-30 and 1e30"),
            )?;
            require(
                own.shape.is_none_or(|shape| (0.01..=1e6).contains(&shape)) && own.rate.is_none_or(|rate| (1e-12..=1e12).contains(&rate)),
                &place("shape must lie between 0.01 and 1e6, and rate between 1e-12 and 1e12"),
            )?;
            let coefficients = term.first as usize..(term.first + term.count) as usize;
            let mut own_groups = prior.groups.iter_mut().filter(|group| coefficients.contains(&group.first)).peekable();
            let learned = own_groups.peek().is_some_and(|group| group.fixed.is_none());
            require(
                learned || (own.shape.is_none() && own.rate.is_none()),
                &place("shape and rate are those of a scale that is learned, which this term has not"),
            )?;
            for group in own_groups {
                (group.shape, group.rate) = (own.shape.unwrap_or(SHAPE), own.rate.unwrap_or(RATE));
            }
            let shared = |j: &usize| prior.groups.iter().any(|group| (group.first..group.first + group.count).contains(j));
            let free: Vec<usize> = coefficients.filter(|j| !shared(j)).collect();
            require(
                !free.is_empty() || (own.mean.is_none() && own.scale.is_none()),
                &place("its coefficients share a scale that is learned, and have mean 0: give shape and rate in place of mean and scale"),
            )?;
            for j in free {
                prior.mean[j] = own.mean.unwrap_or(prior.mean[j]);
                prior.precision[j] = own.scale.map_or(prior.precision[j], |scale| scale.powi(-2));
            }
        }
        for group in &prior.groups {
            prior.mean[group.first..group.first + group.count].fill(0.0);
        }
        prior.precision = prior.precisions(&prior.starts());
        Ok(prior)
    }

    /// The largest standard deviation of a parameter.
    #[must_use]
    pub fn widest(&self) -> f64 {
        self.precision.iter().copied().fold(f64::INFINITY, f64::min).powf(-0.5)
    }

    /// Number of parameters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mean.len()
    }

    /// Whether there is no parameter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mean.is_empty()
    }

    /// Whether a scale is learned.
    #[must_use]
    pub fn learns_scales(&self) -> bool {
        self.groups.iter().any(|group| group.fixed.is_none())
    }

    /// τ² of every group before anything is known.
    #[must_use]
    pub fn starts(&self) -> Vec<f64> {
        self.groups.iter().map(Group::start).collect()
    }

    /// τ² of every group where the coefficients are known to be these.
    #[must_use]
    pub(crate) fn scales_at(&self, coefficients: &[f64]) -> Vec<f64> {
        let known = vec![0.0; coefficients.len()];
        self.groups.iter().map(|group| group.scale(coefficients, &known)).collect()
    }

    /// Diagonal of Λ0 where the groups have these τ².
    #[must_use]
    pub fn precisions(&self, scales: &[f64]) -> Vec<f64> {
        let mut precision = self.precision.clone();
        scales::fill(&self.groups, scales, &mut precision);
        precision
    }

    /// The same with these τ².
    #[must_use]
    pub fn with(&self, scales: &[f64]) -> Self {
        Self { precision: self.precisions(scales), ..self.clone() }
    }

    /// The same prior once for each of so many predictors, one after the other; every predictor has its own scales.
    #[must_use]
    pub fn repeated(&self, times: usize) -> Self {
        let d = self.len();
        let moved = |copy: usize| self.groups.iter().map(move |group| Group { first: group.first + copy * d, ..*group });
        Self { mean: self.mean.repeat(times), precision: self.precision.repeat(times), groups: (0..times).flat_map(moved).collect() }
    }

    /// One more parameter at the end.
    #[must_use]
    pub fn and(mut self, mean: f64, scale: f64) -> Self {
        self.mean.push(mean);
        self.precision.push(scale.powi(-2));
        self
    }

    /// One more parameter before all others.
    #[must_use]
    pub fn after(mut self, mean: f64, scale: f64) -> Self {
        self.mean.insert(0, mean);
        self.precision.insert(0, scale.powi(-2));
        self.groups.iter_mut().for_each(|group| group.first += 1);
        self
    }

    /// λ0 = (Λ0 m0, Λ0), in the form of a family.
    #[must_use]
    pub fn natural(&self, family: Family) -> Vec<f64> {
        natural(family, &self.mean, &self.precision)
    }
}

/// (Λ m, Λ) of independent normals.
fn natural(family: Family, mean: &[f64], precision: &[f64]) -> Vec<f64> {
    let h = mean.iter().zip(precision).map(|(m, p)| m * p);
    match family {
        Family::DiagonalGaussian { .. } => h.chain(precision.iter().copied()).collect(),
        Family::FullGaussian { .. } => h.chain(svec(&DMatrix::from_diagonal(&DVector::from_column_slice(precision)))).collect(),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::{Prior, PriorSpec, TermPrior};
    use crate::spec::DesignSpec;

    const SCHEMA: &str = "version = 2\n[[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 90\ncentre = 45\nscale = 45\n[[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = [\"a\", \"b\", \"c\"]\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n";
    const SPEC: PriorSpec = PriorSpec { mean: 0.5, scale: 2.0 };

    fn own(term: &str) -> TermPrior {
        TermPrior { term: term.into(), mean: None, scale: None, shape: None, rate: None }
    }

    fn prior(priors: Vec<TermPrior>) -> Result<Prior, String> {
        let design = DesignSpec { priors, ..DesignSpec::of("died ~ s(age, k = 5) + (1 | ward)", Vec::new()) };
        let schema = crate::spec::schema(SCHEMA, Some(&design)).unwrap();
        Prior::of_rows(SPEC, &[], &schema, Some(&design)).map_err(|e| e.to_string())
    }

    #[test]
    fn terms_have_priors_of_their_own_and_groups_start_at_the_guess() {
        let curve = TermPrior { mean: Some(0.0), scale: Some(0.5), rate: Some(1.0), ..own("s(age, k = 5)") };
        let prior = prior(vec![curve]).unwrap();
        // Intercept, the line, three bends, three wards.
        assert_eq!(prior.mean, [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(prior.precision, [0.25, 4.0, 1.0, 1.0, 1.0, 4.0, 4.0, 4.0]);
        assert_eq!(prior.groups.iter().map(|g| (g.first, g.count, g.rate)).collect::<Vec<_>>(), [(2, 3, 1.0), (5, 3, 0.25)]);
        let twice = prior.repeated(2);
        assert_eq!((twice.len(), twice.groups[3].first, twice.precision[9]), (16, 13, 4.0));
    }

    #[test]
    fn what_is_no_prior_of_a_term_is_refused() {
        for (own, words) in [
            (own("age"), "no such term; its terms are (Intercept), s(age, k = 5), (1 | ward)"),
            (TermPrior { scale: Some(0.0), ..own("(Intercept)") }, "scale between"),
            (TermPrior { scale: Some(1.0), ..own("(1 | ward)") }, "shape and rate in place of"),
            (TermPrior { rate: Some(1.0), ..own("(Intercept)") }, "which this term has not"),
        ] {
            let error = prior(vec![own]).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(prior(vec![own("(Intercept)"), own("(Intercept)")]).unwrap_err().contains("two priors"));
    }
}
