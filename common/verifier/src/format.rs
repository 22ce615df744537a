//! The certificate as a file: JSON in one canonical form.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Refusal, require};

/// A claim about events, and what it takes to check it. The guide's page on certificates explains every field.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Certificate {
    /// `dp-pvi-certificate-1`.
    pub format: String,
    /// What neighbouring data sets differ by.
    pub relation: Relation,
    /// δ of the claim.
    pub delta: f64,
    /// ε of the claim.
    pub epsilon: f64,
    /// How much of ε the accountant does not need: its own bound is ε less this.
    pub slack: f64,
    /// What the claim is about: the run, its task, and the ledger's events, 32 bytes each in lower-case hexadecimal digits.
    pub binding: Option<[String; 3]>,
    /// What ran, in ascending order without repetition.
    pub events: Vec<Event>,
    /// How to check the claim: nothing where all noise is Gaussian and nothing is sampled; one grid where pairs are the same in both directions;
    /// else one for a unit that is removed, and one for a unit that is added.
    pub proofs: Vec<Proof>,
    /// SHA-256 of the file up to this field.
    pub seal: String,
}

/// What neighbouring data sets differ by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Relation {
    /// One unit is present or absent.
    AddRemove,
    /// One unit's contribution is zeroed.
    ZeroOut,
    /// One unit is replaced.
    ReplaceOne,
}

/// Equal steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// What is released.
    pub noise: Noise,
    /// On which units.
    pub sampling: Sampling,
    /// How often.
    pub count: u64,
}

/// Noise on a sum of clipped terms.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Noise {
    /// Continuous Gaussian noise: its standard deviation over the clipping norm.
    Gaussian(f64),
    /// Discrete Gaussian noise on one integer, accounted on its own lattice: its parameter s, and the bound of one term.
    DiscreteGaussian(f64, u64),
    /// Discrete Gaussian noise on so fine a lattice that it is accounted as continuous, with an addition to δ. All are integers, as a ledger has them:
    /// the parameter s of the noise, the squared bound of one term in the 2-norm, and what rounding adds to a sum's sensitivity, in steps of the
    /// lattice; how many independent shares of such noise are in a sum; and the numbers that one step releases.
    FineDiscreteGaussian(u64, u128, u64, u32, u32),
    /// The same on a sum of cells, each term of which was checked by the rule of `common/accounting/proofs/cells.md`, and in which every unit takes part: s, the
    /// squared bound, shares and numbers. Two terms that keep to the rule differ by √2 times the bound.
    FineCells(u64, u128, u32, u32),
}

/// How units are chosen.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sampling {
    /// All of them.
    None,
    /// Each with this probability.
    Poisson(f64),
    /// A batch of fixed size, as a share of all.
    FixedBatch(f64),
    /// An epoch of so many releases: each is over one batch, and every unit is in one of them.
    RandomAllocation(u32),
}

/// One direction, on one grid.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Proof {
    /// Width of the grid of losses, in nats.
    pub width: f64,
    /// Points of the transform, a power of two.
    pub points: u64,
    /// Index of the window's lowest point.
    pub first: i64,
    /// Tilt of the laws before they are transformed, and of the bound on the mass above the window.
    pub tilt: f64,
    /// Budget for infinite losses and for the mass above the window, in δ.
    pub truncation: f64,
    /// Budget for rounding errors of the transforms, in δ.
    pub rounding: f64,
    /// A grid for one step of each event that is no unsampled Gaussian, in their order; then one for all those together, where there are any.
    pub parts: Vec<Part>,
}

/// One step's grid of losses offset + width·k: the offset, the lowest k, the highest k, and the fineness f. Larger losses count as infinite; from k
/// on the next point that has mass is max(1, ⌊|k|/2^f⌋) further.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Part(pub f64, pub i64, pub i64, pub u32);

impl Certificate {
    /// Reads a file in canonical form.
    ///
    /// # Errors
    /// Other bytes than those that a certificate with this content has.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Refusal> {
        let certificate: Self = serde_json::from_slice(bytes).map_err(|_| Refusal::Form("no JSON object with the fields of the format"))?;
        // Unknown fields, other spellings of numbers, spaces and repetitions do not come back.
        let again = serde_json::to_string(&certificate).map_err(|_| Refusal::Form("numbers that are none"))?;
        require(again.as_bytes() == bytes, "not the canonical form of its content")?;
        let body = again.rsplit_once(",\"seal\":").map_or("", |parts| parts.0);
        require(digest(body) == certificate.seal, "not sealed by the hash of its content").map(|()| certificate)
    }
}

/// SHA-256 of bytes, in lower-case hexadecimal digits.
pub fn digest(text: impl AsRef<[u8]>) -> String {
    Sha256::digest(text.as_ref()).iter().map(|byte| format!("{byte:02x}")).collect()
}
