//! What a site's part of a round can be, beside the norm of its sum ([`SumBound`](dp_pvi_privacy::mechanism::SumBound)): more than its length is known of it.
//!
//! A receiver knows the task, N, the units that the site declared, and the state with which the round began. It knows nothing of records. What no records of N units
//! give, noise included, is refused where it arrives; nothing is ever cut to fit. An honest part is refused with a probability below 1e-18 (`TAIL`).
//!
//! # Sums of moments ([`Moments`])
//! A part is [g ; A ; …] with g = Σ r_i x_i and A = Σ a_i x_i x_iᵀ, a_i ≥ 0, or the diagonal of it; every unit's term has norm C at most, is cut toward zero to the lattice,
//! and the sum has noise e of scale σ on every coordinate. The noise is sub-Gaussian ([`bound`](dp_pvi_privacy::mechanism::SumBound) says why): a sum Σ u_j e_j with ‖u‖ = 1
//! is above σ√(2L) with probability e^{−L} at most.
//! * *Direction.* vᵀAv ≥ 0 for every v, so λ_min(A) ≥ −b. Of the noise E = unsvec(e) of a d × d matrix b is the smaller of two bounds. One is that of its length,
//!   ‖E‖ ≤ ‖E‖_F ≤ σ(√D + √(2L)), D = d(d+1)/2. The other: a net of (1 + 2/ε)^d unit vectors within ε of all others has ‖E‖ ≤ max |vᵀEv|/(1 − 2ε), and vᵀEv = ⟨svec(vvᵀ), e⟩ with ‖svec(vvᵀ)‖ = 1,
//!   so ‖E‖ ≤ σ√(2(d ln(1 + 2/ε) + ln 2 + L))/(1 − 2ε) for every ε that is tried. Of a diagonal b = σ√(2(L + ln d)). The lattice takes less than one step from every entry of a term: N√D steps more, N of a diagonal.
//!   So no entry outside of the diagonal is above (A_ii + A_jj)/2 + b either.
//! * *Size.* Of a term ‖r x‖² + ‖a xxᵀ‖² ≤ C², and its trace is at most √k times its norm: k = 1 for one row with its products, the largest number of entries for one row with its
//!   squares, d for units of several rows. By the triangle inequality ‖g‖² + (tr A)²/k ≤ (NC)², where σ(√d + √(2L)) and σ√(2dL) are taken off ‖g‖ and tr A for noise.
//! * *Along.* At the state with which the round began records say no more along its point than their residuals and curvatures there allow.
//! * *Together.* What a site says at a later visit is of the same records as what it said at the first.
//! * *Count.* Where the number of records is sent, it is not below −σ√(2L).
//!
//! # Changes of natural parameters ([`Change`])
//! A part is Δ = λ* − λ. λ + Δ is the site's own fit, so it is a distribution: finite, with a positive definite precision, and not absurd (a mean within 1e9 of the prior's standard
//! deviations, a precision between 1e-18 and 1e24 of the prior's). Updates with protection have a trust region as well.

mod along;
mod region;
mod together;

use std::sync::Arc;

use dp_pvi_accounting::{DpEvent, PrivacyUnit};
use dp_pvi_math::expfam::any::Family;
use dp_pvi_math::expfam::gaussian::full::{svec_times, triangle, unsvec};
use dp_pvi_models::spec::{Approximation, Prior, TaskError};
use dp_pvi_posterior::methods::{
    BcmSpec, DpOptimisationSpec, EmRule, NaturalGradientRule, NaturalGradientSpec, NaturalGradientVisit, Preconditioner,
};
use dp_pvi_posterior::methods::{PropagationRule, Setting, StatisticsSpec, VipsRule};
use dp_pvi_posterior::task::{ResolvedTask, UpdateSpec};
use dp_pvi_privacy::mechanism::SumMechanism;
use nalgebra::{Cholesky, DMatrix, DVector};
use serde::{Deserialize, Serialize};

use along::Along;
use region::{Begin, Region};
use together::{FirstVisit, Together};

/// L: each test refuses an honest part with probability e^{−L} = 2^{−63} at most.
const TAIL: f64 = 63.0 * std::f64::consts::LN_2;
/// Covers the rounding of sums and roots here.
const SLACK: f64 = 1.0 + 1e-9;
/// ε of the nets that are tried.
const NETS: [f64; 4] = [0.02, 0.05, 0.1, 0.25];
/// Largest d whose matrix is factorised.
const LARGEST_MATRIX: usize = 2048;

/// Why a part is none of a site that follows the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Misfit {
    /// λ_min(A) is too far below 0.
    #[error("its sum of squares is negative in some direction, by more than the noise can be")]
    Negative,
    /// Gradient and trace.
    #[error("its gradient and its curvature together are larger than those of so many units can be")]
    Large,
    /// What it says along the point of its round.
    #[error("it pushes the posterior on in its own direction by more than so many units can at this state")]
    Along,
    /// A later part against the first one.
    #[error("it does not go together with what the site sent at its first visit: no records give both")]
    Together,
    /// A number of records.
    #[error("it counts fewer records than none")]
    Count,
    /// λ + Δ.
    #[error("the site's own fit would be no distribution")]
    NoDistribution,
    /// Its precision.
    #[error("it changes the precision of a coefficient by more than so many units can")]
    Precision,
    /// Its mean.
    #[error("it moves a coefficient farther than the steps of a visit over so many units lead")]
    Move,
    /// What it says that it measured.
    #[error("what it says that its visit measured is larger than what so many units have")]
    Measured,
}

/// Public values that bound a part.
#[derive(Debug, Clone, Copy)]
pub struct At<'a> {
    /// The state with which the round began.
    pub state: &'a [f64],
    /// What the site sent at its first visit, where that is kept.
    pub first: Option<&'a [f64]>,
}

/// What a site's part of a visit can be that declared `units`, beside the norm of its sum. `None` where no more is known.
///
/// # Errors
/// Numbers that do not fit the lattice; the state is not one of the task.
pub fn of_site(task: &ResolvedTask, visit: u32, units: u64, at: At<'_>) -> Result<Option<Shape>, TaskError> {
    let setting = task.setting();
    Ok(match &task.update {
        UpdateSpec::NaturalGradient(spec) => of_moments(&setting, spec, visit, units, at)?.map(Shape::Moments),
        UpdateSpec::DpOptimisation(spec) => Some(Shape::Change(of_change(&setting, spec, visit, units, at.state)?)),
        UpdateSpec::Bcm(spec) => Some(Shape::Change(of_member(&setting, spec, visit, units)?)),
        UpdateSpec::Pvi {} => Some(Shape::Change(Change::new(&setting, at.state, None))),
        _ => None,
    })
}

/// Whether what a site sent at its first visit bounds what it can send later.
#[must_use]
pub fn first_visit_informs(task: &ResolvedTask) -> bool {
    matches!(&task.update, UpdateSpec::NaturalGradient(spec) if spec.preconditioner == Preconditioner::Gram)
}

/// Whether a site can compute its part of a visit from this state, as far as that can be told without records: asked before the visit is paid for.
#[must_use]
pub(crate) fn is_state(task: &ResolvedTask, visit: u32, state: &[f64]) -> bool {
    if state.len() as u64 != task.state_len() || !state.iter().all(|number| number.is_finite()) {
        return false;
    }
    let setting = task.setting();
    match &task.update {
        UpdateSpec::NaturalGradient(spec) => {
            let scale =
                || spec.scale_weights.is_none() || spec.visit(visit) == NaturalGradientVisit::Gram || setting.scale_at(state).is_some();
            is_posterior(&setting, state) && NaturalGradientRule::point(setting.family(), state).is_ok() && scale()
        }
        UpdateSpec::Vips(spec) => match spec.statistics {
            StatisticsSpec::PolyaGamma(_) | StatisticsSpec::LinearNoise(_) => is_posterior(&setting, state),
            StatisticsSpec::Documents(_) => VipsRule::topics(&setting, state).is_ok() && VipsRule::clip(state).is_ok(),
            StatisticsSpec::Images(_) => VipsRule::network(&setting, state).is_ok() && VipsRule::clip(state).is_ok(),
        },
        UpdateSpec::DpEm(spec) => EmRule::new(&setting, spec.scales()).mixture(state).is_some_and(|mixture| mixture.density().is_ok()),
        UpdateSpec::Propagation(spec) => {
            let rule = PropagationRule::new(&setting, spec.clone());
            rule.reference(&rule.approximation(state).lambda).is_some()
        }
        UpdateSpec::Pvi {} | UpdateSpec::DpOptimisation(_) | UpdateSpec::Bcm(_) | UpdateSpec::GlobalVi(_) | UpdateSpec::Shards(_) => {
            is_posterior(&setting, state)
        }
    }
}

/// What a noised sum of moments can be, whatever the state is; `None` where a visit releases none under local trust.
fn moments(task: &Setting<'_>, spec: &NaturalGradientSpec, visit: u32, units: u64) -> Result<Option<Moments>, TaskError> {
    let SumMechanism::Local(sum) = spec.mechanism(task, visit)? else { return Ok(None) };
    let DpEvent::DiscreteGaussian(release) = sum.event() else { return Ok(None) };
    let step = 2f64.powi(sum.exponent());
    let has_gradient = spec.visit(visit) == NaturalGradientVisit::Gradient;
    let is_matrix = !has_gradient || task.approximation == Approximation::FullCovariance;
    let one_row = task.privacy.unit == PrivacyUnit::Record && task.model.rules().many_rows().is_none();
    let rank = match (one_row, is_matrix) {
        (true, true) => 1,
        (true, false) => task.max_nonzeros.clamp(1, task.dimension.max(1)),
        (false, _) => task.dimension,
    };
    #[allow(clippy::cast_precision_loss, reason = "a number of units, and one of lattice steps")]
    let (units, scale) = (units as f64, release.scale as f64);
    Ok(Some(Moments {
        dimension: task.dimension as usize,
        has_gradient,
        is_matrix,
        has_count: has_gradient && spec.scale_weights.is_some(),
        most: units * sum.clip_norm().get(),
        spread: f64::from(rank).sqrt(),
        noise: scale * step,
        steps: units * step,
        records: units * task.max_weight(),
        weight: spec.curvature_weight,
        along: None,
        together: None,
    }))
}

/// The same at a state, given the site's first visit.
fn of_moments(
    task: &Setting<'_>,
    spec: &NaturalGradientSpec,
    visit: u32,
    units: u64,
    At { state, first }: At<'_>,
) -> Result<Option<Moments>, TaskError> {
    let Some(known) = moments(task, spec, visit, units)? else { return Ok(None) };
    if task.privacy.unit != PrivacyUnit::Record || !known.has_gradient {
        return Ok(Some(known));
    }
    let first = first.filter(|_| spec.preconditioner == Preconditioner::Gram);
    let first_visit = first.and_then(|gram| FirstVisit::new(task, spec, units, gram));
    let along = Along::new(task, spec, state, known.records, first_visit.as_ref());
    let residual = along.as_ref().map_or(spec.residual_bound, |along| along.residual.min(spec.residual_bound));
    Ok(Some(Moments { along, together: first_visit.map(|first_visit| Together::new(first_visit, residual)), ..known }))
}

/// A change of λ within the trust region of the visit.
fn of_change(task: &Setting<'_>, spec: &DpOptimisationSpec, visit: u32, units: u64, state: &[f64]) -> Result<Change, TaskError> {
    let lambda = task.posterior(state);
    let start = (lambda == task.prior_natural()).then(|| task.model.fit_start(task.features)).flatten();
    let region = Region::new(spec, task, units, Begin { lambda, widest: task.priors_at(state).widest(), start, visit })?;
    Ok(Change::new(task, state, Some(region)))
}

/// A change of a committee member's own prior.
fn of_member(task: &Setting<'_>, spec: &BcmSpec, visit: u32, units: u64) -> Result<Change, TaskError> {
    let (share, prior) = (spec.prior_share(), task.priors());
    let lambda: Vec<f64> = task.prior_natural().iter().map(|value| share * value).collect();
    let (widest, start) = (prior.widest() / share.sqrt(), task.model.fit_start(task.features));
    let region = Region::new(&spec.fit, task, units, Begin { lambda: &lambda, widest, start, visit })?;
    let precision = prior.precision.iter().map(|precision| share * precision).collect();
    Ok(Change::of(task, &lambda, [prior.mean, precision], region))
}

/// Whether a site's later parts are of the records of its first one, as far as they are told: of a site that declared as much as it may.
pub fn go_together(task: &ResolvedTask, first: &[f64], later: &[f64], visit: u32) -> bool {
    let (setting, UpdateSpec::NaturalGradient(spec)) = (task.setting(), &task.update) else { return true };
    let units = task.privacy.max_units.unwrap_or(dp_pvi_privacy::mechanism::MAX_UNITS);
    let together = FirstVisit::new(&setting, spec, units, first).map(|first_visit| Together::new(first_visit, spec.residual_bound));
    match (together, moments(&setting, spec, visit, units)) {
        (Some(together), Ok(Some(moments))) => together.holds(&moments, later),
        _ => true,
    }
}

/// What a part can be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Shape {
    /// A noised sum of moments.
    Moments(Moments),
    /// A change of natural parameters.
    Change(Change),
}

/// What a noised sum [g ; A ; …] can be. See the [module](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Moments {
    /// d.
    pub(crate) dimension: usize,
    /// Whether g is before A.
    pub(crate) has_gradient: bool,
    /// Whether A is a matrix, as its svec; else its diagonal.
    pub(crate) is_matrix: bool,
    /// Whether two numbers follow, of which the second is a number of records.
    pub(crate) has_count: bool,
    /// N·C.
    pub(crate) most: f64,
    /// √k.
    pub(crate) spread: f64,
    /// σ.
    pub(crate) noise: f64,
    /// N steps of the lattice.
    pub(crate) steps: f64,
    /// N times the largest weight of a record.
    pub(crate) records: f64,
    /// Weight of A against g.
    pub(crate) weight: f64,
    /// What a record can say along the point of the round.
    pub(crate) along: Option<Along>,
    /// Statistics of the site's records from its first visit.
    pub(crate) together: Option<Together>,
}

impl Moments {
    /// Numbers of A.
    fn numbers(&self) -> usize {
        if self.is_matrix { triangle(self.dimension) } else { self.dimension }
    }

    /// b: no eigenvalue (no entry of a diagonal) is below minus this.
    pub(crate) fn below_zero(&self) -> f64 {
        let (d, numbers) = (as_f64(self.dimension), as_f64(self.numbers()));
        let (noise, steps) = if self.is_matrix {
            let length = numbers.sqrt() + (2.0 * TAIL).sqrt();
            let of_net = |near: f64| (2.0 * (d * (1.0 + 2.0 / near).ln() + std::f64::consts::LN_2 + TAIL)).sqrt() / (1.0 - 2.0 * near);
            let net = NETS.map(of_net).into_iter().fold(f64::INFINITY, f64::min);
            (length.min(net), self.steps * numbers.sqrt())
        } else {
            ((2.0 * (TAIL + d.max(1.0).ln())).sqrt(), self.steps)
        };
        (self.noise * noise + steps) * SLACK
    }

    /// The factor, 1 where it fits already, that brings a noised sum within this shape: a site whose records are more than it declared sends its sum times this.
    ///
    /// # Privacy
    /// Post-processing of a noised sum by public values (`common/privacy/proofs/layouts.md`).
    #[must_use]
    pub fn factor_within(&self, values: &[f64]) -> f64 {
        let shape = Arc::new(Shape::Moments(self.clone()));
        let fits = |factor: f64| {
            let mut check = Arc::clone(&shape).check();
            values.iter().for_each(|value| check.add(value * factor));
            check.finish().is_ok()
        };
        if fits(1.0) {
            return 1.0;
        }
        // 0 fits, and with a vector every shorter one in its direction does.
        let (mut low, mut high) = (0.0, 1.0);
        for _ in 0..24 {
            let middle = 0.5 * (low + high);
            if fits(middle) { low = middle } else { high = middle }
        }
        // The lattice takes something from every entry again.
        low * (1.0 - 1e-6)
    }
}

/// What a change of natural parameters can be. See the [module](self).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change {
    is_matrix: bool,
    /// λ.
    lambda: Vec<f64>,
    /// m0 and Λ0.
    prior: [Vec<f64>; 2],
    region: Option<Region>,
}

/// Farthest mean from the prior's, in its standard deviations.
const FARTHEST: f64 = 1e9;
/// Range of a precision over the prior's.
const PRECISIONS: std::ops::RangeInclusive<f64> = 1e-18..=1e24;

impl Change {
    /// A change of the natural parameters at the head of a state.
    fn new(task: &Setting<'_>, state: &[f64], region: Option<Region>) -> Self {
        let Prior { mean, precision, .. } = task.priors_at(state);
        let is_matrix = matches!(task.family(), Family::FullGaussian { .. });
        Self { is_matrix, lambda: task.posterior(state).to_vec(), prior: [mean, precision], region }
    }

    /// The same of other natural parameters with another prior.
    fn of(task: &Setting<'_>, lambda: &[f64], prior: [Vec<f64>; 2], region: Region) -> Self {
        Self { is_matrix: matches!(task.family(), Family::FullGaussian { .. }), lambda: lambda.to_vec(), prior, region: Some(region) }
    }

    fn dimension(&self) -> usize {
        self.prior[0].len()
    }

    /// Whether these are a mean and a precision that a coefficient can have.
    fn is_sane(&self, j: usize, mean: f64, precision: f64) -> bool {
        let [m0, p0] = [self.prior[0][j], self.prior[1][j]];
        PRECISIONS.contains(&(precision / p0)) && (mean - m0).abs() <= FARTHEST / p0.sqrt()
    }
}

/// Whether the natural parameters at the head of a state are a distribution, and none that is absurd ([module](self)).
fn is_posterior(task: &Setting<'_>, state: &[f64]) -> bool {
    let lambda = task.posterior(state);
    let change = Change::new(task, state, None);
    lambda.len() == task.family().len() && Shape::Change(change).admits(lambda.iter().map(|_| 0.0)).is_ok()
}

impl Shape {
    /// A part is about to be compared, number by number.
    #[must_use]
    pub fn check(self: Arc<Self>) -> ShapeCheck {
        ShapeCheck {
            shape: self,
            position: 0,
            gradient: 0.0,
            along: 0.0,
            trace: 0.0,
            least: 0.0,
            row: 0,
            next: 0,
            measured: 0.0,
            before: Vec::new(),
            kept: Vec::new(),
            found: None,
        }
    }

    /// Whether a whole part is one, or why not.
    pub(crate) fn admits(self, values: impl IntoIterator<Item = f64>) -> Result<(), Misfit> {
        let mut check = Arc::new(self).check();
        values.into_iter().for_each(|value| check.add(value));
        check.finish()
    }
}

/// A part that is compared while it arrives.
#[derive(Debug, Clone)]
pub struct ShapeCheck {
    shape: Arc<Shape>,
    position: usize,
    /// ‖g‖² and gᵀμ.
    gradient: f64,
    along: f64,
    /// tr A.
    trace: f64,
    /// The least entry of a diagonal A.
    least: f64,
    /// Row of the svec, and where its diagonal entry stands.
    row: usize,
    next: usize,
    /// Squared norm of what a visit measured.
    measured: f64,
    /// g, where it is needed until the end.
    before: Vec<f64>,
    /// What else is needed until then: the matrix A; the first half of a change, or all of it.
    kept: Vec<f64>,
    found: Option<Misfit>,
}

impl ShapeCheck {
    /// The next number.
    pub fn add(&mut self, value: f64) {
        let shape = Arc::clone(&self.shape);
        match shape.as_ref() {
            Shape::Moments(moments) => self.add_moment(moments, value),
            Shape::Change(change) => self.add_change(change, value),
        }
        self.position += 1;
    }

    fn add_moment(&mut self, moments: &Moments, value: f64) {
        let before = if moments.has_gradient { moments.dimension } else { 0 };
        match self.position.checked_sub(before) {
            None => {
                self.gradient += value * value;
                if moments.together.is_some() {
                    self.before.push(value);
                }
                self.along += value * moments.along.as_ref().map_or(0.0, |along| along.point[self.position]);
            }
            Some(place) if place < moments.numbers() => {
                let on_diagonal = !moments.is_matrix || place == self.next;
                if on_diagonal {
                    self.trace += value;
                    self.least = self.least.min(value);
                    self.next += moments.dimension - self.row;
                    self.row += 1;
                }
                if moments.is_matrix || moments.together.is_some() {
                    self.kept.push(value);
                }
            }
            Some(place) if moments.has_count && place == moments.numbers() + 1 && value < -moments.noise * (2.0 * TAIL).sqrt() * SLACK => {
                self.found = Some(Misfit::Count);
            }
            Some(_) => {}
        }
    }

    fn add_change(&mut self, change: &Change, value: f64) {
        let d = change.dimension();
        match self.position {
            place if place >= change.lambda.len() => {
                if let Some(region) = &change.region {
                    match region.measured(place - change.lambda.len(), value) {
                        Some(part) => self.measured += part * part,
                        None => drop(self.found.get_or_insert(Misfit::Move)),
                    }
                }
            }
            place if change.is_matrix || place < d => self.kept.push(value),
            place => {
                let j = place - d;
                let (h, precision) = (change.lambda[j] + self.kept[j], change.lambda[place] + value);
                let mean = h / precision;
                if !change.is_sane(j, mean, precision) {
                    self.found.get_or_insert(Misfit::NoDistribution);
                } else if let Some(misfit) = change.region.as_ref().and_then(|region| region.misfit(j, mean, precision, value)) {
                    self.found.get_or_insert(misfit);
                }
            }
        }
    }

    /// The end of the part. A part that is too short fits nothing; one that is longer is told by its length alone.
    ///
    /// # Errors
    /// Why it is none of a site that follows the protocol.
    pub fn finish(self) -> Result<(), Misfit> {
        if let Some(misfit) = self.found {
            return Err(misfit);
        }
        match self.shape.as_ref() {
            Shape::Moments(moments) => self.end_of_moments(moments),
            Shape::Change(change) => self.end_of_change(change),
        }
    }

    fn end_of_moments(&self, moments: &Moments) -> Result<(), Misfit> {
        let d = as_f64(moments.dimension);
        let gradient = self.gradient.sqrt() - moments.noise * (d.sqrt() + (2.0 * TAIL).sqrt());
        let trace = self.trace - moments.noise * (2.0 * d * TAIL).sqrt();
        let size = gradient.max(0.0).hypot(trace.max(0.0) / moments.spread);
        if gradient.is_nan() || trace.is_nan() || size > moments.most * SLACK {
            return Err(Misfit::Large);
        }
        if let Some(along) = moments.along.as_ref().filter(|_| moments.has_gradient) {
            let (length, sum) = along.point.iter().fold((0.0, 0.0), |(square, sum), m| (square + m * m, sum + m.abs()));
            let tail = moments.noise * (2.0 * TAIL).sqrt();
            if self.along > (along.gradient + tail * length.sqrt() + moments.steps * sum) * SLACK {
                return Err(Misfit::Along);
            }
            if moments.is_matrix && self.kept.len() == moments.numbers() {
                let most = along.curvature * moments.weight + (tail + moments.steps * as_f64(moments.numbers()).sqrt()) * length;
                let point = DVector::from_column_slice(&along.point);
                if svec_times(&self.kept, &along.point).iter().zip(point.iter()).map(|(a, m)| a * m).sum::<f64>() > most * SLACK {
                    return Err(Misfit::Along);
                }
            }
        }
        if let Some(together) = &moments.together
            && !together.holds(moments, &[self.before.as_slice(), &self.kept].concat())
        {
            return Err(Misfit::Together);
        }
        let below = moments.below_zero();
        if !moments.is_matrix {
            return if self.least >= -below { Ok(()) } else { Err(Misfit::Negative) };
        }
        if self.kept.len() != moments.numbers() || moments.dimension > LARGEST_MATRIX {
            return Err(Misfit::Negative);
        }
        let shift = DMatrix::identity(moments.dimension, moments.dimension) * below;
        Cholesky::new(unsvec(&self.kept, moments.dimension) + shift).map(drop).ok_or(Misfit::Negative)
    }

    fn end_of_change(&self, change: &Change) -> Result<(), Misfit> {
        let d = change.dimension();
        if let Some(region) = &change.region
            && self.measured.sqrt() > region.most_measured()
        {
            return Err(Misfit::Measured);
        }
        if !change.is_matrix || d > LARGEST_MATRIX {
            return Ok(());
        }
        let natural: Vec<f64> = change.lambda.iter().zip(&self.kept).map(|(lambda, change)| lambda + change).collect();
        let fits = || {
            let precision = unsvec(natural.get(d..).filter(|p| p.len() == triangle(d) && p.iter().all(|v| v.is_finite()))?, d);
            let mean = Cholesky::new(precision.clone())?.solve(&DVector::from_column_slice(&natural[..d]));
            (0..d).all(|j| change.is_sane(j, mean[j], precision[(j, j)])).then_some(())
        };
        fits().ok_or(Misfit::NoDistribution)
    }
}

#[allow(clippy::cast_precision_loss, reason = "numbers of coordinates")]
fn as_f64(number: usize) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests;
