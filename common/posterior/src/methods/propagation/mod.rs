//! The engine of expectation propagation, for `sep` (one factor f for every record, λ = λ0 + N f) and `ep` (a factor for each, λ = λ0 + Σ f_n).
//!
//! A visit asks for Σ clip(f_n′ − f_n) over the records (all, or a Poisson sample), f_n′ being the factor that moment matching gives the record at
//! the cavity λ − f_n. The server moves λ by ρ/q times the sum. As printed in the paper the step γ/N is ρ = γ/N² at q = 1/N, which reaches a tenth of
//! the way in a hundred passes; ρ here is the honest step and needs no more noise.
//!
//! With `unit = "site"` the same loop runs over sites: a factor stands for all records of a site, and f_m′ is what `site_passes` passes over them give.
//!
//! **Assumes** a model with tilted moments. **Sensitivity**: blocks are clipped and scaled to joint norm 1: 1 (add-remove) or 2 (replace-one).
//! **Defaults**: ρ = 0.5; all records at every visit; centred coordinates.
//!
//! Without ε nothing is protected: `order = "batch"` is then the clipped or plain algorithm, `order = "pass"` visits the records one by one.

mod rule;
mod task;

pub use rule::{Approximation, NOISE_PRIOR, PropagationRule};
pub(crate) use task::resolve;
pub use task::{ClipTarget, FactorOwner, PropagationSpec, VisitOrder};
