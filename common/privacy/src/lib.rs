#![cfg_attr(test, allow(clippy::unwrap_used, clippy::excessive_precision))]
//! The release gate: what protects a record, and the ledger that remembers what it cost.
//!
//! # The privacy argument
//!
//! **Claim.** Let a ledger name a privacy unit and a relation, and let its budget be (ε, δ). Whatever servers, tasks and later
//! choices follow, everything that this crate lets out about the data set is (ε, δ)-differentially private for that unit and
//! relation: P(A) ≤ e^ε P′(A) + δ for every set A of outcomes and every two neighbouring data sets — under the assumptions and with the
//! reservations listed below, and against observers of bounded computing time. The arguments are in [`proofs`].
//!
//! 1. **One door.** Private data sits in [`Units`] and [`Sensitive`]: no `Debug`, `Clone`, `Deref`, serialisation or accessor. Functions over
//!    them are `fn`s, which capture nothing, with an [`Argument`] that shares no memory with anything outside ([`records`]); their panics carry
//!    nothing ([`inside`]). A [`Released`] value is built by mechanisms and by functions of released and public values only
//!    (post-processing). What is sent is an [`Attachment`](ledger::Attachment), which is built from a `Released` payload, and its message is
//!    written inside from what the ledger charged. Private words reach a disk only encrypted ([`ledger::state`]). Where the ledger is kept, who
//!    signs it and where noise comes from is sealed. `tests/compile_fail` and `tests/compile_fail.rs` of this crate hold a program for every way
//!    around that we could think of.
//! 2. **What is accounted is what runs.** A mechanism states its [`DpEvent`] before it runs and takes a [`StepPermit`] by value;
//!    the permit must equal the event. Permits come from [`Ledger::reserve`] only, after the charge is durable, one for a release,
//!    and cannot be copied; one for `Composed(event, L)` splits into exactly L.
//! 3. **Sensitivity** ([`mechanism::LatticeSum`]). A unit's term is clipped in floating point, truncated toward zero onto the
//!    lattice 2^kℤᵈ, and its *integer* norm is compared with ⌊(C/2^k)²⌋. So one term moves the sum by at most C_int, and
//!    replacing it by at most 2C_int, for every input and every rounding (Kairouz, Liu & Steinke 2021 use the same order: clip,
//!    discretise, check). Tested: a million random and adversarial pairs, no excess. Under add-remove a unit that is absent
//!    contributes 0; a term that is a shard's result changes rather than appears: factor 2 ([`Relation::sensitivity_factor`]), given that
//!    one unit moves one shard ([`shards`]). Where a model sums a whole batch by itself ([`mechanism::batch`]), the sum is rounded once and
//!    a stated bound on rounding is charged on top; the model's part in that is trusted and tested.
//! 4. **Noise** ([`sampler`]). The discrete Gaussian of Canonne, Kamath & Steinke (2020), exact in integer arithmetic; no floating
//!    point takes part between the truncated terms and the payload, so the attack on the low bits of textbook noise (Mironov
//!    2012) has nothing to look at. ChaCha20, keyed afresh from the operating system for every stream; no key, no release.
//! 5. **One release.** s = ⌈zC/2^k⌉ ∈ [2²⁰, 2²¹]. Proved for integer shifts: the discrete Gaussian is Δ²/2s²-zCDP, and its
//!    Poisson-sampled Rényi moments at integer orders equal the continuous ones ([`accountant::rdp`]); that it costs what continuous noise
//!    costs, with a margin, is [`proofs::discrete_gaussian`]. Sampling is by a secret coin
//!    for each unit with the very integer rate that is accounted ([`sampler::coins`]).
//! 6. **All releases** ([`accountant`]). μ² adds for unsampled Gaussians (Dong, Roth & Su 2022), Rényi divergences add at every
//!    order (Mironov 2017), adaptively. The ledger admits a charge only if the total over everything RESERVED or later stays
//!    within the budget: a privacy filter (Rogers et al. 2016; Feldman & Zrnic 2021) whose one rule is fixed by the first charge, so
//!    tasks and parameters of later releases may depend on earlier outputs ([`proofs::filter`]). Nothing is ever refunded.
//! 7. **State.** A site's state moves by functions of released values, or by a noise-free private change, which comes back as
//!    [`Sensitive`] only ([`ledger::state`]); it never contains noise that was not released. This is what makes the composition in 6
//!    true ([`proofs::carried_state`]).
//!
//! # What is proved, what is measured
//!
//! | step | status |
//! |---|---|
//! | integer sensitivity, exact sampler, exact coins, no overflow | proved by arithmetic, checked by tests |
//! | integer sensitivity of batched sums | proved from two promises of the model ([`proofs::batched_sums`]), which each model's tests check |
//! | one unit moves one term | [`proofs::layouts`], and tests of what becomes of records |
//! | zCDP of the lattice noise; add-remove Poisson RDP at integer orders and on chords between them | proved, no margin |
//! | pair B dominates under replace-one with Poisson sampling; the error of its quadrature | proved ([`proofs::pair_b`]) |
//! | GDP, pair B and fixed batches for *discrete* noise with s ≥ 2²⁰ | proved with a margin ([`proofs::discrete_gaussian`]): δ is divided by 1 + 1e-6 and the statement says `numerical_margin` |
//! | rounding of the accountants | bounded outward |
//! | pair D's divergences (fixed batches under replace-one) | measured: ten times what halving the panels changes is added |
//! | a visit with carried state costs its event | proved from four conditions on the update ([`proofs::carried_state`]), which tests of every update check |
//! | no unreleased noise in a site's state | types, and an attack ([`audit`]): 10 rounds, 400 shards, claimed ε = 1, 20,000 runs of each world: the build that keeps its noise shares is refuted below ε = 1.87 (Gaussian 3.46), the shipped one below 0.31 (0.57) |
//! | the budget, when an operator picks later *tasks* after looking at earlier results | proved ([`proofs::filter`]), for a budget that was fixed beforehand |
//! | aggregated trust | proved by simulation against server and sites; against the summer for sums of five coordinates and more ([`proofs::shares`]) |
//!
//! # Computational
//! Noise and coins are the key stream of ChaCha20 under keys of the operating system. The claims are proved for truly random words, so they hold against
//! everybody who cannot tell that stream from random words; the ε of aggregated trust rests on the masks' stream, on sealed seeds and on signatures
//! as well. That is *computational* differential privacy (Mironov, Pandey, Reingold & Vadhan 2009).
//!
//! # Public
//! Who takes part and when, the declared number of units, the schema, the task, and when and how long messages are (the task's release tick
//! hides the time of training down to its multiples). None of these is covered by ε.
//!
//! # Assumptions
//! The operating system's randomness is good; the machine is not read out; timing is handled outside ([`ledger`] fixes what is
//! sent, the task's `release_tick` when).
//!
//! The guarantee is *computational* differential privacy: against an observer who cannot tell ChaCha20 from random bits (noise and coins), and, under
//! aggregated trust, its keystream as a mask and the sealed seeds either. Against an unbounded one neither figure holds.
//!
//! What types cannot bar, and lints and tests over the sources bar from the crates that see records: a `static` or leaked memory as a place
//! for a record, files and sockets, a cell in which one unit leaves something for the next one, a loader that calls a record public, other
//! bytes in the place of a sealed seed. The gate stops mistakes, not an author who wants to cheat.

pub mod accountant;
pub mod adjacency;
pub mod audit;
#[cfg(any(test, feature = "unsealed"))]
pub mod danger;
pub mod event;
pub mod inside;
pub mod ledger;
pub mod mechanism;
pub mod noise;
#[cfg(feature = "planted-bugs")]
pub mod planted;
pub mod proofs;
pub mod records;
pub mod release;
pub mod sampler;
mod sealed;
pub mod shards;
pub mod unit;

pub use adjacency::{PrivacyUnit, Relation, Terms};
pub use event::{DiscreteGaussian, DpEvent, LatticePath, Rho};
pub use ledger::{Ledger, Pending, Permit, SiteState, StepPermit};
pub use noise::{NoiseSource, Purpose, SecureNoise};
pub use records::{Argument, Released, Sensitive, UnitTable, Units};
pub use release::{ClientId, Hash, LatticeVector, Payload, PayloadKind, ReleaseId, RunId};
pub use shards::{ContentId, PermitScope, Shard, Shards, StableIds, WholeSite};
pub use unit::{ClipNorm, Delta, Epsilon, NoiseMultiplier, SamplingRate};
