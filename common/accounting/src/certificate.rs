//! Certificates: a claim about a plan with everything that a program of its own needs to check it.
//!
//! The format is described in the guide, on the page about certificates. What checks it is `dp-pvi-verifier`, which shares no code with this
//! crate; everything but events, relation, ε and δ is a hint to it that it does not believe.

use serde::Serialize;
use sha2::{Digest, Sha256};

use super::AccountantError;
use super::plan::Plan;
use super::pld::Hints;
use super::steps::{Mechanism, Neighbours, Phase, Sampling};
use crate::unit::Delta;

/// The first field of every certificate.
const FORMAT: &str = "dp-pvi-certificate-1";

/// A certificate. Its fields stand in the order of the format.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Certificate {
    format: &'static str,
    relation: Neighbours,
    delta: f64,
    epsilon: f64,
    slack: f64,
    binding: Option<[String; 3]>,
    events: Vec<Event>,
    proofs: Vec<Proof>,
}

/// What a certificate belongs to, by hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binding {
    /// The run.
    pub run: [u8; 32],
    /// Its task.
    pub task: [u8; 32],
    /// The ledger's events.
    pub ledger: [u8; 32],
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Event {
    noise: Noise,
    sampling: How,
    count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Noise {
    Gaussian(f64),
    DiscreteGaussian(f64, u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum How {
    None,
    Poisson(f64),
    FixedBatch(f64),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct Proof {
    width: f64,
    points: u64,
    first: i64,
    tilt: f64,
    truncation: f64,
    rounding: f64,
    parts: Vec<(f64, i64, i64, u32)>,
}

impl Event {
    fn of(phase: &Phase) -> Result<Self, AccountantError> {
        let noise = match phase.mechanism {
            Mechanism::Gaussian { sigma } => Noise::Gaussian(sigma),
            Mechanism::DiscreteGaussian { scale, sensitivity } => Noise::DiscreteGaussian(scale, sensitivity),
            Mechanism::Laplace { .. } | Mechanism::Zcdp { .. } | Mechanism::Approximate { .. } => {
                return Err(AccountantError::Unsupported("a certificate of anything but Gaussian noise"));
            }
        };
        let sampling = match phase.sampling {
            Sampling::None | Sampling::ShuffledPasses(_) => How::None,
            Sampling::Poisson(q) => How::Poisson(q),
            Sampling::WithoutReplacement(q) => How::FixedBatch(q),
        };
        Ok(Self { noise, sampling, count: phase.steps })
    }
}

impl From<Hints> for Proof {
    fn from(hints: Hints) -> Self {
        let parts = hints.parts.iter().map(|part| (part.offset, part.low, part.high, part.fineness)).collect();
        let Hints { width, points, first, tilt, truncation, rounding, .. } = hints;
        Self { width, points, first, tilt, truncation, rounding, parts }
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Certificate {
    /// Writes a claim about a plan: that ε is at most the accountant's certified upper bound plus `slack` (absolute, in ε).
    ///
    /// Whether it can be checked is for the verifier to say; where it cannot, a larger slack may do.
    ///
    /// # Errors
    /// A plan without steps or with an event that no certificate knows, or a slack that would take too many points.
    pub fn new(plan: &Plan, delta: Delta, slack: f64, binding: Option<Binding>) -> Result<Self, AccountantError> {
        let upper = plan.epsilon(delta).upper;
        let events: Vec<Event> = plan.phases().iter().map(Event::of).collect::<Result<_, _>>()?;
        if events.is_empty() || !upper.is_finite() {
            return Err(AccountantError::Unsupported("a certificate of nothing, or of no protection"));
        }
        let mut proofs = Vec::new();
        let epsilon = upper + slack;
        if events.iter().any(|event| !matches!((event.noise, event.sampling), (Noise::Gaussian(_), How::None))) {
            let hints = plan
                .hints(epsilon, delta, slack)
                .ok_or(AccountantError::Range("a certificate with so small a slack takes too many points"))?;
            proofs.extend(hints.into_iter().map(Proof::from));
        }
        let binding = binding.map(|to| [to.run, to.task, to.ledger].map(|hash| hexadecimal(&hash)));
        Ok(Self { format: FORMAT, relation: plan.relation(), delta: delta.get(), epsilon, slack, binding, events, proofs })
    }

    /// ε of the claim.
    #[must_use]
    pub fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// The file: canonical JSON, sealed by the SHA-256 of everything before the seal's field.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        // Every field is a number, a name or a list of them: JSON knows all of these.
        let mut text = serde_json::to_string(self).expect("certificates serialise into memory");
        text.pop();
        let seal = hexadecimal(&Sha256::digest(text.as_bytes()));
        text.push_str(&format!(",\"seal\":\"{seal}\"}}"));
        text.into_bytes()
    }
}
