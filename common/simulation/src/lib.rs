//! dp-pvi-simulation
