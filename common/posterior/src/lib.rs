//! The public side: everything computed from released values only.
pub mod schema;
pub mod task;
