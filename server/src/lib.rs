//! dp-pvi-server
