//! Perplexity of public held-out documents, from the lower bound.

use super::Topics;
use super::document::{Document, DocumentLength, Sweeps};

/// What the topics say about held-out documents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HeldOut {
    /// Σ of the documents' lower bounds, in nats.
    pub bound: f64,
    /// Number of words.
    pub words: f64,
}

impl HeldOut {
    /// Upper bound on the perplexity per word, exp(−bound/words); the topics' own KL is not in it.
    #[must_use]
    pub fn perplexity(&self) -> f64 {
        (-self.bound / self.words).exp()
    }
}

/// Evaluates public documents, given as pairs of ascending word numbers and counts. Empty documents say nothing.
#[must_use]
pub fn held_out<'a>(topics: &Topics, documents: impl IntoIterator<Item = (&'a [u32], &'a [f64])>, sweeps: Sweeps) -> HeldOut {
    let mut step = Document::default();
    let mut total = HeldOut { bound: 0.0, words: 0.0 };
    for (indices, counts) in documents {
        if step.fit(topics, DocumentLength::AsIs, indices, counts, sweeps) {
            let (bound, words) = step.bound(topics, indices);
            total.bound += bound;
            total.words += words;
        }
    }
    total
}
