//! dp-pvi-inference
