//! What the subcommands do.

pub mod budget;
pub mod check;
pub mod contrast;
pub mod data;
pub mod forget;
pub mod ledger;
pub mod personalise;
pub mod plan;
pub mod predict;
mod view;
