//! What the tests share: real processes ([`federation`]), the same federation in memory ([`memory`]), every method on small data
//! ([`methods`]), what is fuzzed ([`fuzz`]), where things are ([`place`]), source files without comments and strings
//! ([`source`]), and statements compared with ledgers ([`statements`]).

pub mod crash;
pub mod federation;
pub mod fuzz;
pub mod memory;
pub mod methods;
pub mod place;
pub mod postgres;
pub mod proxy;
pub mod regression;
pub mod source;
pub mod statements;
pub mod wire;
