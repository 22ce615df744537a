//! Posteriors from released values.

use dp_pvi_math::gaussian_likelihood::{GaussianLikelihood, Independent};
use dp_pvi_math::hierarchy::{Difference, Hierarchy, Site};
use dp_pvi_math::relinearised::{Measurement, Rows, Taken};
use dp_pvi_models::logistic_regression::LogisticRegression;
use dp_pvi_models::predictor::Predictor;
use nalgebra::{DMatrix, DVector};

use super::{Entry, found};
use crate::read::Outcome;

/// κ of the entries, which do not state it.
const SCORE_SHARE: f64 = 0.8;

pub(super) fn looks(entry: &Entry<'_>) -> Outcome {
    let rows = Rows { count: entry.number("records")?, mean: entry.vector("row_mean")?, covariance: entry.matrix("row_covariance")? };
    let (theta, curvature, scale) = (entry.vector("theta")?, entry.matrix("curvature")?, entry.number("scale")?);
    let (points, gradients, weights) = (entry.vectors("points")?, entry.vectors("gradients")?, entry.inputs.at("weights")?);
    let looks: Vec<Measurement<'_>> =
        points.iter().zip(&gradients).zip(weights).map(|((point, gradient), weight)| Measurement { point, gradient, weight }).collect();
    let model = |theta: &DVector<f64>| rows.curvature(theta, |z| LogisticRegression {}.statistics(z, 0.0, 1.0).curvature) * scale;
    let taken = found(Taken::new(&looks, &theta, &curvature, model))?;
    let flat = |matrices: &[DMatrix<f64>]| matrices.iter().flat_map(|matrix| matrix.as_slice().to_vec()).collect::<Vec<_>>();
    entry.is_matrix("model_at_theta", &model(&theta))?;
    entry.is("model_at_points", flat(&taken.at_points))?;
    entry.is("model_on_path", flat(&taken.on_path))?;
    entry.is_matrix("secant", &taken.secant)?;
    entry.is("pull", taken.pull.as_slice())?;
    entry.is("moved_by_model", taken.moved.as_slice())?;
    let d = theta.len();
    let noise = DMatrix::identity(d, d) * entry.number("noise_variance")?;
    let covariance = &curvature * SCORE_SHARE + noise + taken.by_model();
    entry.is_matrix("covariance", &covariance)?;
    let prior = Independent { mean: DVector::zeros(d), sd: entry.vector("prior_sd")? };
    let mode = taken.mode(&covariance, &prior.mean, &prior.sd.map(|sd| sd.powi(-2)));
    entry.is("mode", found(mode)?.as_slice())?;
    let likelihood = taken.at(&theta, curvature, covariance);
    entry.is("pull_taken_to_theta", likelihood.pull.as_slice())?;
    let precision = found(found(likelihood.posterior(&prior))?.covariance.try_inverse())?;
    entry.is_matrix("precision", &precision)
}

fn likelihood(entry: &Entry<'_>) -> Result<GaussianLikelihood, String> {
    Ok(GaussianLikelihood {
        curvature: entry.matrix("curvature")?,
        pull: entry.vector("pull_taken_to_theta")?,
        covariance: entry.matrix("covariance")?,
    })
}

pub(super) fn prior_against_data(entry: &Entry<'_>) -> Outcome {
    let prior = Independent { mean: entry.vector("prior_mean")?, sd: entry.vector("prior_sd")? };
    let against = found(likelihood(entry)?.against_prior(&prior))?;
    entry.is("statistic", [against.statistic])?;
    entry.is("p", [against.p])?;
    entry.is("mean_if_prior_four_times_as_wide", against.wider.as_slice())?;
    entry.is("shift", against.shift.as_slice())?;
    entry.is("flat_mean", against.flat.as_slice())?;
    let warn = entry.outputs.get("warn")?.flag()?;
    if warn == against.decides.is_empty() { Err(format!("the file has {warn} for whether the prior decides")) } else { Ok(()) }
}

pub(super) fn scales_averaged(entry: &Entry<'_>) -> Outcome {
    let (mean, intercept) = (entry.vector("prior_mean")?, entry.number("intercept_sd")?);
    let prior = |scale: f64| {
        let mut sd = DVector::repeat(mean.len(), scale);
        sd[0] = intercept;
        Independent { mean: mean.clone(), sd }
    };
    let priors: Vec<Independent> = entry.inputs.at("scales")?.into_iter().map(prior).collect();
    let over = found(likelihood(entry)?.over_scales(&priors))?;
    // The smallest scale comes first.
    entry.is("nothing", [over.weights[0]])?;
    entry.is("weights", &over.weights)?;
    entry.is("mean", over.all.mean.as_slice())?;
    entry.is_matrix("covariance", &over.all.covariance)
}

pub(super) fn sites(entry: &Entry<'_>) -> Outcome {
    let (curvatures, covariances) = (entry.matrices("curvatures")?, entry.matrices("covariances")?);
    let (gradients, points) = (entry.vectors("gradients")?, entry.vectors("points")?);
    let of = |m: usize| found(Site::new(&curvatures[m], &covariances[m], &gradients[m], &points[m]));
    let sites: Vec<Site> = (0..curvatures.len()).map(of).collect::<Result<_, _>>()?;
    let (prior_mean, prior_precision) = (entry.vector("prior_mean")?, entry.vector("prior_sd")?.map(|sd| sd.powi(-2)));
    let (units, grid, d) = (entry.inputs.at("units")?, entry.inputs.at("grid")?, prior_mean.len());
    let coordinate = |j: usize| DVector::from_fn(d, |i, _| f64::from(u8::from(i == j)));
    let (direction, prior_mean, prior_precision) = (&coordinate(0), &prior_mean, &prior_precision);
    let hierarchy = Hierarchy { sites: &sites, units: &units, direction, prior_mean, prior_precision, grid: &grid };
    let fit = found(hierarchy.fit())?;
    let kept: Vec<f64> = fit.of_coefficients.iter().copied().filter(|weight| *weight > 0.0).collect();
    entry.is("weights_of_coefficients", kept)?;
    entry.is("weights_of_tau", &fit.of_spread)?;
    entry.is("tau_mean", [fit.spread()])?;
    entry.is("mean", fit.coefficients.mean.as_slice())?;
    entry.is_matrix("covariance", &fit.coefficients.covariance)?;
    entry.is("site_effects", fit.effects.as_slice())?;
    entry.is("intercept_of_listed_sites", [fit.listed[0]])?;
    entry.is("sd_of_it", [fit.listed[1]])?;
    entry.is("new_site_intercept_90", found(fit.new_site(direction, 0.9))?)?;
    let tests: Vec<Difference> = (0..d).map(|j| found(hierarchy.test(&coordinate(j)))).collect::<Result<_, _>>()?;
    let of = |part: fn(&Difference) -> f64| tests.iter().map(part).collect::<Vec<_>>();
    entry.is("Q", of(|test| test.statistic))?;
    entry.is("degrees", of(|test| test.degrees))?;
    entry.is("p", of(|test| test.p))?;
    entry.is("I2", of(|test| test.share))
}
