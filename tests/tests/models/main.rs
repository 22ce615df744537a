//! Models as a stranger meets them: their documents stay what they are, every text names all of them, and one more can be added from outside.

#![allow(clippy::unwrap_used)]

mod documents;
mod effects;
mod gamma;
mod guest;
mod texts;
