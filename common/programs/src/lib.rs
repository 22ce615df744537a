//! What the programs share: their [log](log), what they ask of the system about [processes](process), [variables](environment) that override a configuration,
//! [problems](problem) in words for people, and the names, keys and files by which server and sites know each other ([`identity`]).

pub mod environment;
pub mod identity;
pub mod log;
pub mod problem;
pub mod process;
