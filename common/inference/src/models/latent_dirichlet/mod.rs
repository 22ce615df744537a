//! Latent Dirichlet allocation: a record is a document (positions are word numbers, values are counts); topics, E-step and M-step are
//! [`dp_pvi_models::latent_dirichlet`].
//!
//! # Privacy
//! * **Unit**: a document, or all documents of a person.
//! * **Sensitivity**: ‖s_d‖ ≤ N, the document's public length, attained by one word in one topic. Most documents are far below, so the
//!   clip is set lower: C = aN with a ≈ 0.1, or learned.
//! * A document without words, and one with counts that are no counts, contributes 0.

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod tests;

use dp_pvi_models::latent_dirichlet as public;
use dp_pvi_models::latent_dirichlet::Topics;
use dp_pvi_models::latent_dirichlet::document::{Document, DocumentLength, Sweeps};
use dp_pvi_privacy::mechanism::Term;

use dp_pvi_math::expfam::any::Gaussian;

use crate::capabilities::Model;
use crate::capabilities::statistics::ExpectedStatistics;
use crate::models::PrivateHalf;
use dp_pvi_records::RecordView;

/// E-steps at given topics: word by word, counts_v φ_kv.
#[derive(Debug, Clone)]
pub struct DocumentStatistics<'a> {
    topics: &'a Topics,
    length: DocumentLength,
    sweeps: u32,
}

impl<'a> DocumentStatistics<'a> {
    /// With documents of this public length and this many sweeps for every document.
    #[must_use]
    pub fn new(topics: &'a Topics, length: DocumentLength, sweeps: u32) -> Self {
        Self { topics, length, sweeps }
    }
}

impl DocumentStatistics<'_> {
    /// V.
    #[must_use]
    pub fn words(&self) -> usize {
        self.topics.shape().words()
    }
}

impl ExpectedStatistics for DocumentStatistics<'_> {
    fn coordinates(&self) -> usize {
        self.topics.shape().coordinates()
    }

    fn bound(&self) -> f64 {
        self.length.sensitivity()
    }

    fn add(&self, record: RecordView<'_>, term: &mut Term) {
        let mut document = Document::default();
        if document.fit(self.topics, self.length, record.indices, record.values, Sweeps::Exactly(self.sweeps)) {
            term.extend(document.statistics(record.indices));
        }
    }
}

/// The model as the registry knows it: it offers expected statistics only, which [`crate::methods::vips`] builds from a run's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicModel;

impl PrivateHalf for public::LatentDirichletSpec {
    fn model(&self) -> Box<dyn Model> {
        Box::new(TopicModel)
    }
}

impl Model for TopicModel {
    /// NaN: a document's density needs topics, and a Gaussian over probabilities is none.
    fn expected_log_likelihood(&self, _record: RecordView<'_>, _q: &Gaussian) -> f64 {
        f64::NAN
    }
}
