//! The sites of a run one by one, under local trust: what each says of the coefficients, and what is left without one of them.
//!
//! The measurements of a site at the likelihood are combined with the weights that the noise-aware posterior gives to visits ([`measurements`](super::measurements)), so that the
//! sites' parts add up to the run's likelihood: λ_k = Σ_t w_t (g̃_kt + H̃_kt μ_t, H̃_kt). Two uses:
//!
//! * **Agreement**: gradient and curvature of a site at the run's posterior mean θ̄, with their noise, are the evidence that
//!   [`agreement`](dp_pvi_math::agreement) tests. A gradient that bends on the way to θ̄ is uncertain by the site's share of what the posterior allows for it.
//! * **Without a site**: the noise-aware posterior of the other sites' measurements. For a quadratic likelihood it is that of a run without the site, up to noise.
//!   Otherwise the points of the run were drawn towards the site that is left out. The change of the curvature with distance is estimated from the run, and the
//!   resulting linearisation error over the remaining distance is in the intervals.

use std::collections::BTreeMap;

use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::unsvec;
use nalgebra::{Cholesky, DMatrix, DVector};

use super::LARGEST;
use super::correlations::{Correlations, Products};
use super::measurements::{Extrapolated, Measurement, Measurements, OnTheWay, sum};
use super::weighted::Weighted;
use crate::methods::Setting;
use crate::methods::agreement::{Compared, Evidence, NotTested, allowance, compare};
use crate::methods::divided::{Divided, Noise, Undividable};
use dp_pvi_math::simplex::normalised;
use dp_pvi_math::uncertain_curvature::{error, variances_of_entries, without_negative_eigenvalues};
use dp_pvi_models::ModelSpec;

/// Largest d: a matrix of this size is decomposed for every site.
const LARGEST_OF_SITES: usize = LARGEST / 2;

/// What one site showed.
pub(crate) struct SiteMeasurements {
    /// Its share in the declared units.
    pub(crate) share: f64,
    /// By the number of the visit.
    pub(crate) measurements: BTreeMap<u32, Measurement>,
    /// The site's own correlations, where a mean field has none.
    pub(crate) products: Option<Products>,
}

/// What all sites showed.
pub(crate) struct Sites<'a> {
    pub(crate) task: &'a Setting<'a>,
    /// The task's, with the scale of the run where that is learned.
    pub(crate) model: ModelSpec,
    /// Those of the run.
    pub(crate) correlations: Correlations,
    /// Where records are weighted.
    pub(crate) weighted: Option<Weighted>,
    pub(crate) sites: Vec<SiteMeasurements>,
}

impl Sites<'_> {
    /// Every site against all others, in their order; `None` for a site without a measurement.
    pub(crate) fn agreement(&self) -> Result<Vec<Option<Compared>>, NotTested> {
        if self.task.family().dimension() > LARGEST_OF_SITES {
            return Err(NotTested::TooLarge(LARGEST_OF_SITES));
        }
        match self.sites.iter().filter(|site| !site.measurements.is_empty()).count() {
            0 => return Err(NotTested::NoRound),
            1 => return Err(NotTested::OneSite),
            _ => {}
        }
        let all = self.together(|_| true);
        let extrapolated = all.extrapolated().ok_or(NotTested::Diverged)?;
        let visits: Vec<u32> = self.visits(|_| true).into_keys().collect();
        let evidence = |site: &SiteMeasurements| -> Option<Option<Evidence>> {
            if site.measurements.is_empty() { Some(None) } else { self.evidence(site, &visits, &extrapolated).map(Some) }
        };
        let evidence: Vec<Option<Evidence>> = self.sites.iter().map(evidence).collect::<Option<_>>().ok_or(NotTested::Diverged)?;
        let present: Vec<Evidence> = evidence.iter().flatten().cloned().collect();
        let intercept = self.task.parsed_schema().ok().and_then(|schema| schema.intercept()).map(|j| j as usize);
        let compared =
            compare(&present, allowance(&self.model), intercept, self.task.priors().widest().powi(-2)).ok_or(NotTested::Diverged)?;
        let mut compared = compared.into_iter();
        Ok(evidence.iter().map(|evidence| evidence.as_ref().and_then(|_| compared.next())).collect())
    }

    /// The noise-aware posterior of all sites but one.
    pub(crate) fn without(&self, site: usize) -> Result<Divided, Undividable> {
        if self.task.family().dimension() > LARGEST {
            return Err(Undividable::TooMany);
        }
        let (all, others) = (self.together(|_| true), self.together(|other| other != site));
        if others.measurements.is_empty() || self.sites.get(site).is_none_or(|own| own.measurements.is_empty()) {
            return Err(Undividable::Nothing);
        }
        let (origin, left) = (all.extrapolated().ok_or(Undividable::Diverged)?.mean, others.extrapolated().ok_or(Undividable::Diverged)?);
        // The measurements lie where all sites together lead. An error of the gradient on the way from there moves the mean by Σ times itself.
        let way = &left.mean - origin;
        let bend = &left.curvature * &way * others.bends(&way, &left.curvature);
        let d = left.mean.len();
        #[allow(clippy::cast_precision_loss, reason = "a dimension")]
        let unknown = &bend * bend.transpose() + DMatrix::identity(d, d) * (bend.norm_squared() / d as f64);
        // And so does what the others' own measurements leave open.
        let covariance = &left.covariance + &left.covariance * (unknown + &left.ahead) * &left.covariance;
        let precision = Cholesky::new(covariance).ok_or(Undividable::Diverged)?.inverse();
        let natural_parameters = others.natural(&left.mean, &precision).ok_or(Undividable::Diverged)?;
        let noise = Noise::Contained { signal_to_noise: left.posterior.signal_to_noise };
        Ok(Divided { natural_parameters, noise, raised: 0, scales: left.posterior.scales, plain: None })
    }

    /// Measurements of the sites that `keep` names, by visit.
    fn visits(&self, keep: impl Fn(usize) -> bool) -> BTreeMap<u32, Vec<(f64, &Measurement)>> {
        let mut visits: BTreeMap<u32, Vec<(f64, &Measurement)>> = BTreeMap::new();
        for (_, site) in self.sites.iter().enumerate().filter(|(number, _)| keep(*number)) {
            site.measurements.iter().for_each(|(visit, measurement)| visits.entry(*visit).or_default().push((site.share, measurement)));
        }
        visits
    }

    /// What these sites showed together. A visit of some of them counts as a part of that size of the whole.
    fn together(&self, keep: impl Fn(usize) -> bool) -> Measurements {
        let seen = |(k, site): (usize, &SiteMeasurements)| if keep(k) && !site.measurements.is_empty() { site.share } else { 0.0 };
        let whole: f64 = self.sites.iter().enumerate().map(seen).sum();
        let measurement = |present: Vec<(f64, &Measurement)>| {
            let present_share: f64 = present.iter().map(|(share, _)| share).sum();
            let part = present_share / whole;
            let of = |entry: fn(&Measurement) -> &DVector<f64>| sum(present.iter().map(|(_, measurement)| entry(measurement).clone()));
            Measurement {
                point: sum(present.iter().map(|(share, measurement)| &measurement.point * *share)) / present_share,
                gradient: of(|measurement| &measurement.gradient) / part,
                curvature: of(|measurement| &measurement.curvature) / part,
                noise: of(|measurement| &measurement.noise) / part.powi(2),
                curvature_noise: of(|measurement| &measurement.curvature_noise) / part.powi(2),
            }
        };
        let measurements = self.visits(&keep).into_values().map(measurement).collect();
        Measurements {
            family: self.task.family(),
            measurements,
            correlations: self.correlations.clone(),
            weighted: self.weighted.clone(),
            on_the_way: OnTheWay::Linear,
            prior: self.task.priors(),
            near: None,
        }
    }

    /// What a site with measurements says at the mean of the run's posterior. `None` for numbers that cannot be computed with.
    fn evidence(&self, site: &SiteMeasurements, visits: &[u32], extrapolated: &Extrapolated) -> Option<Evidence> {
        let family = self.task.family();
        let own: Vec<(f64, f64, &Measurement)> = visits
            .iter()
            .zip(extrapolated.weights.iter().zip(&extrapolated.bends))
            .filter_map(|(visit, (weight, bend))| Some((*weight, *bend, site.measurements.get(visit)?)))
            .collect();
        let weights = normalised(own.iter().map(|(weight, _, _)| *weight));
        let of = |entry: fn(&Measurement) -> &DVector<f64>| sum(own.iter().zip(&weights).map(|((_, _, m), w)| entry(m) * *w));
        let of_squares = |entry: fn(&Measurement) -> &DVector<f64>| sum(own.iter().zip(&weights).map(|((_, _, m), w)| entry(m) * (w * w)));
        // What the posterior allows for a gradient that bends, as far as it is this site's.
        let bent: f64 = own.iter().zip(&weights).map(|((_, bend, _), w)| w * w * bend * site.share * site.share).sum();
        let distance = &extrapolated.mean - of(|measurement| &measurement.point);
        let square = &extrapolated.covariance + &distance * distance.transpose();
        let mut noise = DMatrix::from_diagonal(&(of_squares(|measurement| &measurement.noise) + extrapolated.curvature.diagonal() * bent));
        noise += &extrapolated.ahead * (site.share * site.share);
        let released_noise = of_squares(|measurement| &measurement.curvature_noise);
        let released = of(|measurement| &measurement.curvature);
        let (curvature, doubt) = match family {
            Family::FullGaussian { dimension } => {
                noise += error(&variances_of_entries(&released_noise, dimension), &square);
                (unsvec(released.as_slice(), dimension), 0.0)
            }
            Family::DiagonalGaussian { dimension } => {
                let own = site
                    .products
                    .as_ref()
                    .map(|products| Correlations::new(&Setting { model: &self.model, ..*self.task }, Some(products.clone())));
                let correlations = own.as_ref().unwrap_or(&self.correlations).at(&extrapolated.mean);
                let diagonal = released.map(|entry| entry.max(0.0));
                let doubt = correlations.doubt(&diagonal);
                noise += error(&doubt, &square) + DMatrix::from_diagonal(&square.diagonal().component_mul(&released_noise));
                #[allow(clippy::cast_precision_loss, reason = "a dimension")]
                let mean = doubt.sum() / (dimension * (dimension - 1)).max(1) as f64;
                (correlations.matrix(&diagonal), mean)
            }
        };
        let curvature = without_negative_eigenvalues(curvature)?;
        Some(Evidence { score: of(|measurement| &measurement.gradient) - &curvature * distance, curvature, noise, doubt })
    }
}
