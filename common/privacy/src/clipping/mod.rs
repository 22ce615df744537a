//! How what a unit adds to a sum is kept within a bound: norms of blocks, the metric in which a change of the posterior is cut, and a
//! bound that follows a quantile.

pub mod adaptive;
pub mod blocks;
pub mod metric;
