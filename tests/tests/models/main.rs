//! Models as a stranger meets them: their documents stay what they are.

#![allow(clippy::unwrap_used)]

mod documents;
