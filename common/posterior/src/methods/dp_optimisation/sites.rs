//! What every site released in a run of DP optimisation that measures, as measurements of the likelihood.

use std::collections::BTreeMap;

use nalgebra::DVector;

use super::rule::Measured;
use crate::methods::agreement::SiteReleases;
use crate::methods::noise_aware::correlations::Correlations;
use crate::methods::noise_aware::measurements::Measurement;
use crate::methods::noise_aware::sites::{SiteMeasurements, Sites};
use crate::methods::{DpOptimisationSpec, Setting};

/// `None` where vectors are not those of this update.
pub(super) fn sites<'a>(task: &'a Setting<'a>, spec: &DpOptimisationSpec, releases: &SiteReleases<'_>) -> Option<Sites<'a>> {
    let d = task.dimension as usize;
    let scales = DVector::from_vec(spec.feature_scales(task).ok().filter(|scales| scales.len() == d)?);
    let noise_of_one = super::noise_aware::noise_of_one(spec, &scales);
    let site = |share: &f64| SiteMeasurements { share: *share, measurements: BTreeMap::new(), products: None };
    let mut sites: Vec<SiteMeasurements> = releases.history.shares.iter().map(site).collect();
    let mut before: &[f64] = &[];
    for (round, vectors) in releases.rounds()? {
        // A sum that could not be used left the state as it was.
        if round.state != before {
            for (&site, sent) in round.included.iter().zip(vectors) {
                let Measured { gradient, point, curvature } = Measured::of(sent, d)?;
                let [gradient, point, curvature] = [gradient, point, curvature].map(DVector::from_column_slice);
                let noise = &noise_of_one + super::noise_aware::sampled(spec, &curvature);
                let m = Measurement { point, gradient, noise, curvature_noise: &noise_of_one / spec.curvature_weight.powi(2), curvature };
                sites.get_mut(site)?.measurements.insert(round.visit, m.informed(task));
            }
        }
        before = &round.state;
    }
    Some(Sites { task, model: task.model.clone(), correlations: Correlations::new(task, None), weighted: None, sites })
}
