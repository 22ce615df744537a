//! The ledger against its promises.
