//! Federations and data sets that several experiments share.

#[cfg(test)]
mod coverage;
pub(crate) mod curves;
pub(crate) mod federation;
pub(crate) mod forecasts;
pub(crate) mod sets;
pub(crate) mod sites;
