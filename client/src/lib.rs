//! dp-pvi-client
