//! The public side of dp-pvi: everything that is computed from released values only, and therefore costs no privacy.
//!
//! No record enters this crate. What is here:
//!
//! * [`task`]: the public statement of a run. A person writes `task.toml` ([`task::RawTask`]); it is resolved into one canonical document in which every number
//!   is explicit ([`task::ResolvedTask`]), whose hash all parties sign.
//! * [`methods`]: one module for every update. Its options in a task, its price, the server's rule, the noise that is left on the posterior.
//! * [`noise_aware`]: the posterior of a run, with the noise of what was released in its intervals.
//!
//! The parts of a task that the modules read, and one module for every likelihood, are in `dp-pvi-models`. What was guaranteed to whom is in `dp-pvi-protocol`, and the file that a run
//! leaves behind in `dp-pvi-results`. The private half of a method, which touches records, is the folder of the same name in `dp-pvi-inference`.

pub mod methods;
pub mod noise_aware;
pub mod task;
