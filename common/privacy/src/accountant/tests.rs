//! Properties of the choice between engines.
