//! Tasks without a schema: what a site and a rule need to know, for data that no schema describes.

use dp_pvi_accounting::{ClipNorm, Delta, NoiseMultiplier, PrivacyUnit, Relation};
use dp_pvi_math::expfam::any::Family;
use dp_pvi_posterior::task::{
    Approximation, ENGINE, FactorState, ModelSpec, PriorSpec, PrivacySpec, ResolvedTask, ScheduleSpec, ShardMethod, ShardSpec, Trust,
    UpdateSpec,
};
use dp_pvi_privacy::clipping::metric::ClipMetric;

use super::read::message;

/// All sites at once under a standard normal prior, with these damping factors.
pub(crate) fn synchronous(model: ModelSpec, family: Family, update: UpdateSpec, damping: Vec<f64>) -> Result<ResolvedTask, String> {
    let (approximation, dimension) = match family {
        Family::DiagonalGaussian { dimension } => (Approximation::MeanField, dimension),
        Family::FullGaussian { dimension } => (Approximation::FullCovariance, dimension),
    };
    let dimension = u32::try_from(dimension).map_err(message)?;
    let unit = match &update {
        UpdateSpec::Shards(spec) if spec.method == ShardMethod::ClientLevel => PrivacyUnit::Site,
        _ => PrivacyUnit::Record,
    };
    Ok(ResolvedTask {
        format: 1,
        engine: ENGINE.into(),
        name: "vectors".into(),
        model,
        approximation,
        prior: PriorSpec { mean: 0.0, scale: 1.0 },
        coefficients: Vec::new(),
        schema: String::new(),
        design: None,
        features: dimension,
        dimension,
        feature_bound: 10.0,
        max_nonzeros: dimension,
        schedule: ScheduleSpec::Synchronous { rounds: u32::try_from(damping.len()).map_err(message)? },
        damping,
        update,
        privacy: PrivacySpec {
            unit,
            relation: Relation::ReplaceOne,
            epsilon: None,
            delta: Delta::new(1e-5).map_err(message)?,
            trust: Trust::Local,
            max_units: None,
        },
        aggregation: None,
        update_deadline_seconds: 60,
        min_sites: 1,
        expected_sites: None,
        release_tick_seconds: 0,
        early_end: None,
        even_if_worthless: false,
        promise: dp_pvi_posterior::task::Derived,
    })
}

/// An update over shards with one bound for every block of the metric.
pub(crate) fn shards(
    method: ShardMethod,
    shards: u32,
    sites: u32,
    state: FactorState,
    clip_metric: ClipMetric,
    bound: f64,
) -> Result<ShardSpec, String> {
    let blocks: u8 = if clip_metric.has_blocks() { 2 } else { 1 };
    Ok(ShardSpec {
        method,
        shards,
        sites,
        state,
        clip_metric,
        clip_norms: vec![ClipNorm::new(bound).map_err(message)?; blocks.into()],
        scales: vec![bound * f64::from(blocks).sqrt(); blocks.into()],
        noise_multiplier: NoiseMultiplier::new(1.0).map_err(message)?,
        step_precision: 0.0,
    })
}
