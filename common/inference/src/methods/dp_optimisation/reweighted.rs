//! Gradients whose features are scaled and whose records are weighted before the clip; why, and what that means for privacy, is said in
//! `dp_pvi_posterior::methods::dp_optimisation`.

use dp_pvi_posterior::task::DpOptimisationSpec;
use dp_pvi_privacy::mechanism::Term;

use crate::mean_field::MeanField;
use crate::models::Gradients;
use dp_pvi_records::RecordView;

/// A model's gradients as they are sent.
pub(in crate::methods) struct Reweighted<'a> {
    gradients: &'a dyn Gradients,
    scales: &'a [f64],
    /// C, where records are weighted.
    weighted: Option<f64>,
    /// Whether anything differs from the model's own gradients.
    differs: bool,
}

impl<'a> Reweighted<'a> {
    pub(super) fn new(gradients: &'a dyn Gradients, spec: &DpOptimisationSpec, scales: &'a [f64]) -> Self {
        let weighted = spec.weighted.then_some(spec.clip_norm.get());
        Self { gradients, scales, weighted, differs: spec.weighted || spec.level_exponent.is_some() }
    }

    /// What is summed.
    pub(super) fn inner(&self) -> &dyn Gradients {
        if self.differs { self } else { self.gradients }
    }

    /// The model's gradient for this target.
    fn own(&self, record: RecordView<'_>, q: &MeanField) -> Term {
        let mut term = Term::default();
        self.gradients.gradient(record, q, &mut term);
        term
    }

    /// Its entries, scaled.
    fn scaled(&self, term: &Term) -> impl Iterator<Item = (u32, f64)> {
        let d = self.scales.len();
        term.entries().map(move |(j, value)| {
            // Both blocks have an entry a feature.
            let feature = if (j as usize) < d { j as usize } else { j as usize - d };
            (j, value * self.scales[feature])
        })
    }

    /// Norm of what is sent of a gradient, whose coordinates differ.
    fn length(&self, term: &Term) -> f64 {
        self.scaled(term).map(|(_, value)| value * value).sum::<f64>().sqrt()
    }
}

impl Gradients for Reweighted<'_> {
    fn gradient(&self, record: RecordView<'_>, q: &MeanField, term: &mut Term) {
        let own = self.own(record, q);
        let factor = self.weighted.map_or(1.0, |clip| {
            let other = self.own(RecordView { target: 1.0 - record.target, ..record }, q);
            (clip / self.length(&own).max(self.length(&other))).min(1.0)
        });
        term.extend(self.scaled(&own).map(|(j, value)| (j, factor * value)));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation)]
mod tests {
    use dp_pvi_posterior::task::Optimizer;

    use super::*;
    use crate::mean_field::ScaleCoordinate;
    use crate::testing::logistic;
    use crate::testing::{close, random_units, spec, table};

    /// No record's term is longer than C; a record's weight is the same for either class, and some are below 1; the scales are in the term.
    #[test]
    fn weights_keep_terms_within_the_clip_and_do_not_see_the_class() {
        let d = 4;
        let clip = 0.6;
        let mut spec = spec(Optimizer::Preconditioned, 5, 1.0, clip, 1.0);
        spec.weighted = true;
        spec.level_exponent = Some(0.5);
        let scales = [0.5, 1.0, 1.0, 1.5];
        let point = MeanField::new(vec![0.9, -0.4, 0.3, 0.1], vec![0.2; d], ScaleCoordinate::HalfVariance { weight: 1.0 }).unwrap();
        let likelihood = logistic();
        let reweighted = Reweighted::new(&likelihood, &spec, &scales);
        let mut shortened = 0;
        let data = table(d, &random_units(3, 200, d));
        for record in data.records() {
            let ratio = |target: f64| {
                let record = RecordView { target, ..record };
                let (mut plain, mut term) = (Term::default(), Term::default());
                likelihood.gradient(record, &point, &mut plain);
                reweighted.inner().gradient(record, &point, &mut term);
                let length = term.entries().map(|(_, value)| value * value).sum::<f64>().sqrt();
                assert!(length <= clip * (1.0 + 1e-12));
                let ratios: Vec<f64> =
                    plain.entries().zip(term.entries()).map(|((j, a), (_, b))| b / (a * scales[j as usize % d])).collect();
                close(&ratios, &vec![ratios[0]; ratios.len()], 1e-12);
                ratios[0]
            };
            let [zero, one] = [0.0, 1.0].map(ratio);
            assert!((zero - one).abs() < 1e-12 && zero <= 1.0 + 1e-12, "{zero} {one}");
            shortened += u32::from(zero < 0.99);
        }
        assert!(shortened > 50, "{shortened}");
    }
}
