//! dp-pvi-tests
