//! What every site released in a run of natural gradients under local trust, as looks at the likelihood.

use std::collections::BTreeMap;

use dp_pvi_expfam::gaussian::full::{triangle, unsvec};
use nalgebra::DVector;

use super::noise_aware::products;
use crate::methods::agreement::SiteReleases;
use crate::methods::noise_aware::correlations::{Correlations, Products};
use crate::methods::noise_aware::looks::Look;
use crate::methods::noise_aware::sites::{SiteLooks, Sites};
use crate::methods::{Arrived, NaturalGradientRule, NaturalGradientSpec, NaturalGradientVisit, Rule, Setting};

/// `None` where states or vectors are not those of this update.
pub(super) fn sites<'a>(task: &'a Setting<'a>, spec: &NaturalGradientSpec, releases: &SiteReleases<'_>) -> Option<Sites<'a>> {
    let (d, len) = (task.family().dimension(), task.family().len());
    let rule = NaturalGradientRule::new(task, *spec);
    let site = |share: &f64| SiteLooks { share: *share, looks: BTreeMap::new(), products: None };
    let mut sites: Vec<SiteLooks> = releases.history.shares.iter().map(site).collect();
    let mut before = rule.initial();
    for (round, vectors) in releases.rounds()? {
        if round.state.len() != before.len() {
            return None;
        }
        // A sum that could not be used left the state as it was.
        if round.state != before {
            for (&site, sent) in round.included.iter().zip(vectors) {
                let sent = DVector::from_column_slice(sent);
                match spec.visit(round.visit) {
                    NaturalGradientVisit::Gram => {
                        let noise = rule.noise(&Arrived { visit: round.visit, sites: 1, sum: &[] });
                        let matrix = (sent.len() == triangle(d)).then(|| unsvec(sent.as_slice(), d))?;
                        sites.get_mut(site)?.products = Some(Products { matrix, noise: noise * noise });
                    }
                    NaturalGradientVisit::Gradient => {
                        let released = rule.released(&before, &round.state, round.visit, 1)?;
                        let look = (sent.len() == len).then(|| Look {
                            point: DVector::from_vec(released.point),
                            gradient: sent.rows(0, d).into_owned(),
                            curvature: sent.rows(d, len - d) / spec.curvature_weight,
                            noise: DVector::from_column_slice(&released.noise),
                            curvature_noise: DVector::from_column_slice(&released.curvature_noise),
                        });
                        sites.get_mut(site)?.looks.insert(round.visit, look?.informed(task));
                    }
                }
            }
        }
        before.clone_from(&round.state);
    }
    let products = products(&rule, releases.history, &before)?;
    Some(Sites { task, correlations: Correlations::new(task, Some(products)), sites })
}

#[cfg(test)]
mod tests;
