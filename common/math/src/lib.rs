//! Mathematics that belongs to no single model or method: [exponential families](expfam), quadrature, distributions, optimisers, projections,
//! matrices. Nothing here knows a task, and no record enters it.

pub mod agreement;
pub mod chi_square;
pub mod count;
pub mod cut;
pub mod damping;
pub mod draws;
pub mod expectation;
pub mod expfam;
pub mod floor;
pub mod gaussian_likelihood;
pub mod hierarchy;
pub mod learned_scale;
pub mod matrix;
pub mod noisy_likelihood;
pub mod normal;
pub mod observation;
pub mod optim;
pub mod polya_gamma;
pub mod products;
pub mod quadrature;
pub mod relinearised;
pub mod scales;
pub mod self_check;
pub mod simplex;
pub mod site_weights;
pub mod softmax_mean;
pub mod start;
pub mod student;
pub mod tilted;
pub mod tilted_softmax;
pub mod typical;
pub mod uncertain_curvature;
