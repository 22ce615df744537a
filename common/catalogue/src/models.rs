//! Every model.

use crate::Named;
use crate::served::{BALANCED, EXACT, GLM, LEARNED, NETWORK, PROPAGATION};

/// A model with its options.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// Its name in a task, and what is special after a comma.
    pub name: &'static str,
    /// Its options.
    pub text: &'static str,
    /// What it learns from.
    pub records: Records,
    /// Names of the entries of [`UPDATES`](crate::UPDATES) that serve it. Every other pair is refused before anything runs: a test compares.
    pub served: &'static [&'static [&'static str]],
    /// Whether the audit plays it.
    pub audited: bool,
}

/// What a model learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// One of two classes.
    Classes,
    /// One of three classes.
    Several,
    /// One of three classes, without an intercept column.
    Ordered,
    /// Numbers, which are whole.
    Numbers,
    /// Numbers above 0.
    Positive,
    /// Times until an event, or until no one watched, without an intercept column.
    Times,
    /// Numbers, without an intercept column.
    Points,
    /// Words of documents.
    Documents,
    /// Binary images.
    Images,
}

impl Records {
    /// What is asked of them, as a line of `[model]`: outcomes are in the column `y`, times in `t`.
    fn question(self) -> &'static str {
        match self {
            Self::Classes | Self::Several | Self::Numbers | Self::Positive => "outcome = \"y\"\n",
            Self::Ordered | Self::Points => "formula = \"y ~ 0 + .\"\n",
            Self::Times => "formula = \"Surv(t, y) ~ 0 + .\"\n",
            Self::Documents | Self::Images => "",
        }
    }
}

const fn model(name: &'static str, text: &'static str, records: Records, served: &'static [&'static [&'static str]]) -> Model {
    Model { name, text, records, served, audited: true }
}

/// A model of whose kind the audit plays enough.
const fn unaudited(name: &'static str, text: &'static str, records: Records, served: &'static [&'static [&'static str]]) -> Model {
    Model { audited: false, ..model(name, text, records, served) }
}

/// Every model, with the options that make a difference. The first of a family is the one that most end-to-end tests run.
pub const MODELS: &[Model] = &[
    model("linear-regression", "noise_sd = 0.7", Records::Numbers, &[GLM]),
    model(
        "linear-regression, full",
        "noise_sd = 0.7\napproximation = \"full-covariance\"",
        Records::Numbers,
        &[EXACT, &["vips, unknown noise"]],
    ),
    model("logistic-regression", "", Records::Classes, &[GLM, BALANCED, PROPAGATION]),
    model(
        "logistic-regression, full",
        "approximation = \"full-covariance\"",
        Records::Classes,
        &[EXACT, PROPAGATION, &["vips", "vips, relevance"]],
    ),
    model("probit-regression", "", Records::Classes, &[GLM, BALANCED, PROPAGATION]),
    model("poisson-regression", "", Records::Numbers, &[GLM]),
    model("negative-binomial-regression", "dispersion = 1.5", Records::Numbers, &[GLM]),
    model("robust-regression", "scale = 0.7", Records::Numbers, &[GLM]),
    model("robust-regression, learned", "scale = \"learned\"", Records::Numbers, &[LEARNED]),
    model("robust-regression, learned, full", "scale = \"learned\"\napproximation = \"full-covariance\"", Records::Numbers, &[LEARNED]),
    model("multinomial-regression", "classes = 3", Records::Several, &[GLM]),
    model("multinomial-regression, full", "classes = 3\napproximation = \"full-covariance\"", Records::Several, &[EXACT]),
    model("ordinal-regression", "classes = 3", Records::Ordered, &[GLM]),
    unaudited("ordinal-regression, full", "classes = 3\napproximation = \"full-covariance\"", Records::Ordered, &[EXACT]),
    model("survival-regression", "cuts = [0, 1, 3, 10]", Records::Times, &[GLM]),
    model("survival-regression, full", "cuts = [0, 1, 3, 10]\napproximation = \"full-covariance\"", Records::Times, &[EXACT]),
    model("weibull-regression", "time_unit = 2.0", Records::Times, &[GLM]),
    unaudited("weibull-regression, full", "time_unit = 2.0\napproximation = \"full-covariance\"", Records::Times, &[EXACT]),
    model("neural-network", "hidden = [3]\nsamples = 2", Records::Classes, &[NETWORK]),
    unaudited("neural-network, classes", "hidden = [3]\nsamples = 1\nclasses = 3", Records::Several, &[NETWORK]),
    model("neural-network, numbers", "hidden = [3, 2]\nsamples = 1\nnoise_sd = 0.5", Records::Numbers, &[NETWORK]),
    model("latent-dirichlet", "topics = 2", Records::Documents, &[&["vips", "vips, learned clip", "vips, learned clip, sampled"]]),
    model("gaussian-mixture", "components = 2\nnoise_sd = 2.0", Records::Points, &[PROPAGATION, &["dp-em", "dp-em, open"]]),
    model("gaussian-mixture, full", "components = 2\nnoise_sd = 2.0\napproximation = \"full-covariance\"", Records::Points, &[PROPAGATION]),
    model("pbp-network", "hidden = [3]", Records::Points, &[PROPAGATION]),
    model("sigmoid-belief", "hidden = 2", Records::Images, &[&["vips, images", "vips, images, sampled", "vips, images, learned clip"]]),
];

impl Named for Model {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl Model {
    /// `[model]`.
    #[must_use]
    pub fn options(&self) -> String {
        format!("family = \"{}\"\n{}{}", self.kind(), self.records.question(), self.text)
    }

    /// Whether a task may name it with this update.
    #[must_use]
    pub fn is_served_by(&self, update: &str) -> bool {
        self.served.iter().any(|names| names.contains(&update))
    }
}
