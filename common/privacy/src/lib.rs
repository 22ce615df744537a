//! The release gate: what protects a record, and the ledger that remembers what it cost.

pub mod accountant;
pub mod adjacency;
pub mod danger;
pub mod event;
pub mod ledger;
pub mod mechanism;
pub mod noise;
pub mod records;
pub mod release;
pub mod sampler;
pub mod unit;

pub use adjacency::{PrivacyUnit, Relation, Terms};
pub use event::{DiscreteGaussian, DpEvent, LatticePath};
pub use ledger::{Ledger, Permit, StepPermit};
pub use noise::{NoiseSource, Purpose, SecureNoise};
pub use records::{Released, Sensitive, UnitTable, Units};
pub use release::{ClientId, Hash, LatticeVector, Payload, PayloadKind, ReleaseId, RunId};
pub use unit::{ClipNorm, Delta, Epsilon, NoiseMultiplier, SamplingRate};
