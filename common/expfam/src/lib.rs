//! dp-pvi-expfam
