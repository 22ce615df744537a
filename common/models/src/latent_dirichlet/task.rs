//! Latent Dirichlet allocation: documents as word counts, topics as Dirichlet distributions over words.

use std::fmt::{Display, Formatter};
use std::sync::Arc;

use dp_pvi_math::expfam::InvalidParameters;
use dp_pvi_math::expfam::any::Family;
use serde::{Deserialize, Serialize};

use super::document::{Document, DocumentLength, Sweeps};
use super::{LdaError, Shape, Topics};
use crate::likelihood::Likelihood;
use crate::parameters::Parameters;
use crate::prediction::{Example, Law, Outcome, Prediction, most_likely};
use crate::response::{Response, ResponseKind};
use crate::spec::TaskError;
use crate::spec::check::{invalid, require};
use crate::{ModelOptions, ModelRules, Own, StatisticsForm};
use dp_pvi_schema::Schema;
use dp_pvi_schema::content::Content;

/// Numbers of a topic model.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatentDirichletSpec {
    /// K.
    pub topics: u32,
    /// α: prior of a document's topics.
    pub alpha: f64,
    /// η: prior of a topic's words.
    pub eta: f64,
}

/// Options as a person writes them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Raw {
    /// K.
    topics: u32,
    /// Default: 1/K.
    alpha: Option<f64>,
    /// Default: 1/K.
    eta: Option<f64>,
}

impl ModelOptions for LatentDirichletSpec {
    const NAME: &'static str = "latent-dirichlet";
    const HELP: &'static str = "topics of documents";
    type Raw = Raw;

    fn explicit(Raw { topics, alpha, eta }: Raw) -> Result<Self, TaskError> {
        let each = 1.0 / f64::from(topics.max(1));
        Ok(Self { topics, alpha: alpha.unwrap_or(each), eta: eta.unwrap_or(each) })
    }
}

impl LatentDirichletSpec {
    /// Sizes and priors over a vocabulary.
    ///
    /// # Errors
    /// Numbers that are no topic model.
    pub fn shape(&self, words: u32) -> Result<Shape, TaskError> {
        Shape::new(self.topics, words, self.alpha, self.eta).map_err(|error| TaskError::Invalid(error.to_string()))
    }

    /// The topics in a state whose head is a posterior of this family.
    ///
    /// # Errors
    /// There are none.
    pub fn topics_of(&self, family: Family, state: &[f64]) -> Result<Topics, LdaError> {
        // K topics over all words are the parameters.
        let words = u32::try_from(family.dimension()).ok().and_then(|parameters| parameters.checked_div(self.topics));
        let shape = Shape::new(self.topics, words.ok_or(LdaError::Size)?, self.alpha, self.eta)?;
        let start = family.len();
        let lambda = state.get(start..start.saturating_add(shape.coordinates())).ok_or(LdaError::Topics)?;
        Topics::new(shape, lambda.to_vec())
    }
}

impl ModelRules for LatentDirichletSpec {
    fn check(&self, schema: &Schema) -> Result<(), TaskError> {
        if !matches!(schema.content(), Content::Documents(_)) {
            return invalid("latent-dirichlet learns from documents: use a schema with kind = \"bag-of-words\"");
        }
        require(schema.dimension() >= 2, "latent-dirichlet needs at least two words")?;
        self.shape(schema.dimension()).map(|_| ())
    }

    fn likelihood(&self) -> Likelihood {
        Likelihood::Own(Own::Statistics(StatisticsForm::Documents(*self)))
    }

    /// β_kv, word by word. A single word's probability in a topic whose number is arbitrary means nothing by itself.
    fn parameters(&self, features: u32) -> Parameters {
        Parameters::unnamed(self.topics.saturating_mul(features))
    }

    fn response(&self) -> Response<'_> {
        Response::of(ResponseKind::Row)
    }

    /// Topics follow the posterior in the state of a run. A Gaussian over the probabilities of words is no topic model.
    fn law(&self, outcome: &Outcome<'_>) -> Result<Arc<dyn Law>, InvalidParameters> {
        let state = outcome.state.ok_or(InvalidParameters::Domain("a topic model predicts from the whole state of its run"))?;
        let topics = self.topics_of(*outcome.posterior.family(), state);
        Ok(Arc::new(topics.map_err(|_| InvalidParameters::Domain("the state holds no topics"))?))
    }
}

/// Sweeps behind a document's prediction.
const SWEEPS: u32 = 100;

/// The E-step of a document; none without words.
fn document(topics: &Topics, row: Example<'_>) -> Option<Document> {
    let mut document = Document::default();
    document.fit(topics, DocumentLength::AsIs, row.indices, row.values, Sweeps::Exactly(SWEEPS)).then_some(document)
}

/// A document is what has a density.
impl Law for Topics {
    fn dimension(&self) -> usize {
        self.shape().words()
    }

    /// The topic that most of the document's words are from, and its share of them.
    fn predict(&self, row: Example<'_>) -> Prediction {
        most_likely(&document(self, row).map(|document| document.shares()).unwrap_or_default())
    }

    fn log_density(&self, row: Example<'_>) -> f64 {
        document(self, row).map_or(0.0, |document| document.bound(self, row.indices).0)
    }
}

impl Display for LatentDirichletSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "latent Dirichlet allocation with {} topics", self.topics)
    }
}
