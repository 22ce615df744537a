//! What every site released in a run of natural gradients under local trust, as measurements of the likelihood.

use std::collections::BTreeMap;

use dp_pvi_math::expfam::gaussian::full::{triangle, unsvec};
use nalgebra::DVector;

use super::noise_aware::products;
use crate::methods::agreement::SiteReleases;
use crate::methods::noise_aware::correlations::{Correlations, Products};
use crate::methods::noise_aware::measurements::Measurement;
use crate::methods::noise_aware::sites::{SiteMeasurements, Sites};
use crate::methods::{NaturalGradientRule, NaturalGradientSpec, NaturalGradientVisit, Rule, Setting, VisitSum};

/// `None` where states or vectors are not those of this update.
pub(super) fn sites<'a>(task: &'a Setting<'a>, spec: &NaturalGradientSpec, releases: &SiteReleases<'_>) -> Option<Sites<'a>> {
    let d = task.family().dimension();
    let rule = NaturalGradientRule::new(task, *spec);
    let site = |share: &f64| SiteMeasurements { share: *share, measurements: BTreeMap::new(), products: None };
    let mut sites: Vec<SiteMeasurements> = releases.history.shares.iter().map(site).collect();
    let mut before = rule.initial();
    // All in units of the last σ, where it is learned.
    let square = rule.square(releases.history.rounds.last().map_or(&before, |round| &round.state))?;
    for (round, vectors) in releases.rounds()? {
        if round.state.len() != before.len() {
            return None;
        }
        // A sum that could not be used left the state as it was.
        if round.state != before {
            for (&site, sent) in round.included.iter().zip(vectors) {
                match spec.visit(round.visit) {
                    NaturalGradientVisit::Gram => {
                        let noise = rule.noise(&VisitSum { visit: round.visit, sites: 1, sum: &[] }) / square;
                        let matrix = (sent.len() == triangle(d)).then(|| unsvec(sent, d) / square)?;
                        sites.get_mut(site)?.products = Some(Products::new(matrix, noise * noise, 0.0));
                    }
                    NaturalGradientVisit::Gradient => {
                        let released = rule.released(&before, &round.state, round.visit, 1)?;
                        if !released.is_near(square) {
                            continue;
                        }
                        let own = rule.sent(sent, released.square)?.at(released.square / square);
                        let released = released.at(square);
                        let measurement = Measurement {
                            point: DVector::from_vec(released.point),
                            gradient: DVector::from_vec(own.gradient),
                            curvature: DVector::from_vec(own.curvature),
                            noise: DVector::from_vec(released.noise),
                            curvature_noise: DVector::from_vec(released.curvature_noise),
                        };
                        sites.get_mut(site)?.measurements.insert(round.visit, measurement.informed(task));
                    }
                }
            }
        }
        before.clone_from(&round.state);
    }
    let products = products(&rule, releases.history, &before)?;
    let model = task.model_at(&before);
    let correlations = Correlations::new(&Setting { model: &model, ..*task }, Some(products)).of_some();
    let weighted = spec.weights_of(&model);
    Some(Sites { task, model, correlations, weighted, sites })
}

#[cfg(test)]
mod tests;
