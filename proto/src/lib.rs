//! dp-pvi-proto
