//! What the programs share: their [`log`], what they ask of the system about [processes](process), [variables](environment) that override a configuration,
//! [problems](problem) in words for people, the [file of a ledger](ledger) and the place beside it, and [files] that are there entirely or not at all, and the names, keys and files by which server and sites know each other ([`identity`]).

pub mod environment;
pub mod files;
pub mod identity;
pub mod ledger;
pub mod log;
pub mod outputs;
pub mod problem;
pub mod process;
