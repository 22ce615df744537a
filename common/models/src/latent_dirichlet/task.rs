//! Latent Dirichlet allocation: documents as word counts, topics as Dirichlet distributions over words.

use std::fmt::{Display, Formatter};

use serde::{Deserialize, Serialize};

use super::Shape;
use crate::spec::TaskError;
use crate::spec::check::{invalid, require};
use crate::{ModelRules, ModelSpec, StatisticsForm, options};
use dp_pvi_numerics::floor::PrecisionFloor;
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    /// K.
    topics: u32,
    /// Default: 1/K.
    alpha: Option<f64>,
    /// Default: 1/K.
    eta: Option<f64>,
}

pub(crate) fn resolve(table: &toml::Table) -> Result<ModelSpec, TaskError> {
    let raw: Raw = options(table, "latent-dirichlet")?;
    let each = 1.0 / f64::from(raw.topics.max(1));
    Ok(ModelSpec::LatentDirichlet(LatentDirichletSpec {
        topics: raw.topics,
        alpha: raw.alpha.unwrap_or(each),
        eta: raw.eta.unwrap_or(each),
    }))
}

impl LatentDirichletSpec {
    /// Sizes and priors over a vocabulary.
    ///
    /// # Errors
    /// Numbers that are no topic model.
    pub fn shape(&self, words: u32) -> Result<Shape, TaskError> {
        Shape::new(self.topics, words, self.alpha, self.eta).map_err(|error| TaskError::Invalid(error.to_string()))
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

    /// β_kv, word by word.
    fn parameters(&self, features: u32) -> u32 {
        self.topics.saturating_mul(features)
    }

    /// A single word's probability in a topic whose number is arbitrary means nothing by itself.
    fn names(&self, _schema: &Schema) -> Vec<String> {
        Vec::new()
    }

    fn statistics(&self) -> Option<StatisticsForm> {
        Some(StatisticsForm::Documents(*self))
    }

    fn floor(&self) -> PrecisionFloor {
        PrecisionFloor::General
    }
}

impl Display for LatentDirichletSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "latent Dirichlet allocation with {} topics", self.topics)
    }
}
