//! Mathematics that belongs to no single model or method: quadrature, distributions, optimisers, projections, and how what a unit adds to
//! a sum is kept within a bound ([`clipping`]). Nothing here knows a task, and no record enters it.

pub mod agreement;
pub mod chi_square;
pub mod clipping;
pub mod count;
pub mod draws;
pub mod expectation;
pub mod floor;
pub mod noisy_likelihood;
pub mod normal;
pub mod observation;
pub mod optim;
pub mod polya_gamma;
pub mod quadrature;
pub mod scales;
pub mod simplex;
pub mod softmax_mean;
pub mod start;
pub mod student;
pub mod tilted;
pub mod tilted_softmax;
pub mod uncertain_curvature;
