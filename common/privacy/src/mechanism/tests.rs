//! The lattice mechanism against its claims.
