//! dp-pvi-data
