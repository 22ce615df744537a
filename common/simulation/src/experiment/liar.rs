//! One enrolled site that lies, among honest ones: how far the longest vectors that a server accepts move the posterior.
//!
//! A server compares a lattice vector with the public bound of its sum ([`SumBound`]). A site that lies knows the bound too, and sends a vector just
//! below it, in a direction of its choice. Here it does so with the mechanism of its task over made-up terms of the full clipping norm, as many as
//! pass: what arrives is what a modified client could send, up to the noise that the mechanism adds.

use std::cell::RefCell;
use std::rc::Rc;

use dp_pvi_accounting::DpEvent;
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::task::{ResolvedTask, UpdateSpec};
use dp_pvi_privacy::mechanism::{ReleaseError, SumBound, Summation, Summed};
use dp_pvi_privacy::{Argument, Pending, Sensitive, UnitTable, Units};
use dp_pvi_protocol::driver::{TrainError, TrainErrorKind};
use dp_pvi_protocol::participant::{TrainJob, Trained};

use super::{ExperimentError, SeedResult, Session};
use crate::federation::{Compute, Site, Visit};
use crate::noise::SeededNoise;

/// Where a liar pushes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// All coordinates alike.
    All,
    /// The gradient's coordinates alike.
    Gradient,
    /// One coordinate of the gradient.
    One(u32),
    /// The coordinates after the gradient, which hold curvature, downwards.
    Curvature,
    /// The gradient's coordinates, up in one round and down in the next.
    Swinging,
    /// With all that can be known: the first visit's products downwards, so that the server's steps are long, and then the gradient against the
    /// coefficients of the run without a liar.
    Mirror,
}

impl Lie {
    /// Direction of the push at a visit: coordinates with their shares. One coordinate of the gradient for each coefficient stands first.
    fn direction(self, visit: u32, coefficients: &[f64], coordinates: u32) -> Vec<(u32, f64)> {
        let d = u32::try_from(coefficients.len()).unwrap_or(u32::MAX);
        let d = d.min(coordinates);
        match self {
            Self::All => (0..coordinates).map(|j| (j, 1.0)).collect(),
            Self::Gradient => (0..d).map(|j| (j, 1.0)).collect(),
            Self::One(j) => vec![(j.min(coordinates - 1), 1.0)],
            Self::Curvature => (d.min(coordinates - 1)..coordinates).map(|j| (j, -1.0)).collect(),
            Self::Swinging => (0..d).map(|j| (j, if visit.is_multiple_of(2) { 1.0 } else { -1.0 })).collect(),
            Self::Mirror if visit == 0 => (0..coordinates).map(|j| (j, -1.0)).collect(),
            Self::Mirror => (0..d).zip(coefficients).map(|(j, coefficient)| (j, -coefficient)).collect(),
        }
    }
}

/// So many units that look alike.
struct Copies(usize);

impl UnitTable for Copies {
    type Unit<'a> = ();

    fn len(&self) -> usize {
        self.0
    }

    fn unit(&self, _position: usize) {}
}

/// A site that declares `units` and sends the longest vector that passes.
struct Liar {
    /// Of the run without it.
    coefficients: Vec<f64>,
    units: u64,
    lie: Lie,
    noise: SeededNoise,
}

impl Compute for Liar {
    fn train(&mut self, job: TrainJob) -> Visit {
        let (units, lie, noise, coefficients) = (self.units, self.lie, self.noise, self.coefficients.clone());
        Box::new(move || {
            let failed = |problem: String| TrainError { kind: TrainErrorKind::Internal, message: problem };
            let TrainJob { task, visit, permit, .. } = job;
            let UpdateSpec::NaturalGradient(spec) = &task.update else {
                return Err(failed("the liar lies about natural gradients".into()));
            };
            let mechanism = spec.mechanism(&task.setting(), visit).map_err(|error| failed(error.to_string()))?;
            let direction = lie.direction(visit, &coefficients, mechanism.dimension());
            let length = direction.iter().map(|(_, share)| share * share).sum::<f64>().sqrt();
            let largest = direction.iter().map(|(_, share)| share.abs()).fold(0.0, f64::max);
            let copies = longest(&task, visit, units, length / largest).map_err(failed)?;
            let sum = task.sum(visit).map_err(|error| failed(error.to_string()))?.ok_or_else(|| failed("the visit has no sum".into()))?;
            let each = sum.clip.get() / length * (1.0 - 1e-9);
            let step = permit.into_steps().next().ok_or_else(|| failed("the permit holds no step".into()))?;
            let lie: Vec<(u32, f64)> = direction.iter().map(|(j, share)| (*j, share * each)).collect();
            let lie = Argument::copy_of(&lie).map_err(|error| failed(error.to_string()))?;
            let message = mechanism
                .release(&Units::new(Copies(copies)), &Sensitive::NOTHING, &lie, copies_of, step, &noise)
                .map_err(|error| failed(error.to_string()))?;
            Ok(Trained { message, pending: Pending::None })
        })
    }
}

/// The same term for every unit.
#[allow(clippy::ptr_arg, reason = "a mechanism hands over a reference to its argument, which is a vector")]
fn copies_of(lie: &Vec<(u32, f64)>, sum: Summation<'_, Copies>) -> Result<Summed, ReleaseError> {
    Ok(sum.each(|(), _, (), term| term.extend(lie.iter().copied())))
}

/// How many terms in one direction pass, with room for the noise that comes on top: on the norm, and on a coordinate. `spread` is the direction's length
/// over its largest coordinate.
fn longest(task: &ResolvedTask, visit: u32, units: u64, spread: f64) -> Result<usize, String> {
    let (event, terms) = task.sum_of_site(visit, units).map_err(|error| error.to_string())?.ok_or("the payload is no lattice vector")?;
    let (DpEvent::DiscreteGaussian(release), Some(bound)) = (&event, SumBound::of_event(&event, terms)) else {
        return Err("the visit is not one noised sum".into());
    };
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an estimate, with slack")]
    let copies = {
        let (step, noise) = ((release.bound_squared as f64).sqrt(), release.scale as f64);
        let d = f64::from(release.dimension);
        // The noise stands across the direction, but for six standard deviations along it.
        let norm = (bound.norm().powi(2) - noise.powi(2) * (d.sqrt() + 6.0).powi(2)).max(0.0).sqrt() - 6.0 * noise;
        let coordinate = (bound.coordinate() as f64 - 8.0 * noise) * spread;
        (norm.min(coordinate) / step).max(0.0) as usize
    };
    Ok(copies)
}

/// What a liar did.
#[derive(Debug, Clone)]
pub struct Damage {
    /// Without it.
    pub honest: SeedResult,
    /// With it.
    pub spoiled: SeedResult,
    /// Longest vector that passes at each visit over the clipping norm: as many honest records could move the sum as far.
    pub records: Vec<f64>,
}

impl Session {
    /// A run of the experiment's sites, and one with another site beside them that declares `units` and lies.
    ///
    /// # Errors
    /// As [`Session::run`]; the update is not that of bounded natural gradients under local trust.
    ///
    /// # Panics
    /// Never: the liar has a valid name.
    pub fn run_with_liar(&self, seed: u64, threads: usize, units: u64, lie: Lie) -> Result<Damage, ExperimentError> {
        let noise = SeededNoise::new(seed);
        let honest = self.run(seed, threads, || ())?;
        // Letters only.
        let liar = ClientId::new("liar").expect("a valid name");
        let posterior = self.task().posterior(&honest.lambda).to_vec();
        let coefficients = match Gaussian::from_natural(self.task().family(), posterior) {
            Ok(posterior) => posterior.standard().mean().to_vec(),
            // A posterior of another family: the update is refused below.
            Err(_) => Vec::new(),
        };
        let mut records = Vec::new();
        for visit in 0..self.task().visits() {
            let Some((event, terms)) = self.task().sum_of_site(visit, units)? else { continue };
            if let (DpEvent::DiscreteGaussian(release), Some(bound)) = (&event, SumBound::of_event(&event, terms)) {
                #[allow(clippy::cast_precision_loss, reason = "a figure")]
                records.push(bound.norm() / (release.bound_squared as f64).sqrt());
            }
        }
        let spoiled = self.run_spoiled(
            seed,
            noise,
            threads,
            || (),
            |sites: &mut Vec<Site>| {
                let compute = Rc::new(RefCell::new(Liar { coefficients, units, lie, noise: SeededNoise::new(seed ^ 0xfa15e) }));
                let name = liar.clone();
                let budget = sites[0].budget;
                sites.push(Site::new(name, units, self.task(), budget, compute));
            },
        )?;
        Ok(Damage { honest, spoiled, records })
    }
}
