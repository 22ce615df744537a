//! The public side of dp-pvi: everything that is computed from released values only, and therefore costs no privacy.
//!
//! No record enters this crate. What is here:
//!
//! * [`schema`], [`task`]: the public statement of a run. A person writes `task.toml` ([`task::RawTask`]); it is resolved into one
//!   canonical document in which every number is explicit ([`task::ResolvedTask`]), whose hash all parties sign.
//! * [`models`]: one room for every likelihood. Its options in a task, its likelihood, its predictions.
//! * [`methods`]: one room for every update. Its options in a task, its price, the server's rule, the noise that is left on the posterior.
//! * [`spec`]: the parts of a task that the rooms read. [`clipping`], [`numerics`]: what several rooms need.
//!
//! What the posterior says, what was guaranteed to whom and the file that a run leaves behind are in `dp-pvi-reading`.
//! The private half of a method, which touches records, is the folder of the same name in `dp-pvi-inference`.

pub mod methods;
pub mod task;

pub use dp_pvi_models as models;
pub use dp_pvi_models::spec;
pub use dp_pvi_numerics as numerics;
pub use dp_pvi_numerics::clipping;
pub use dp_pvi_schema as schema;
