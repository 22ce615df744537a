//! What the tests share: where things are ([`place`]) and how source files are read without comments and strings ([`source`]).

pub mod place;
pub mod source;
