//! What the tests share: real processes ([`federation`]), where things are ([`place`]), and source files without comments and strings
//! ([`source`]).

pub mod crash;
pub mod federation;
pub mod place;
pub mod proxy;
pub mod regression;
pub mod source;
pub mod wire;
