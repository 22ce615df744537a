//! What is audited: every combination of model, update, relation and trust that a task may name.
//!
//! Rows are not written down one by one. Every section of [`MODELS`] meets every section of [`UPDATES`] under both relations and both kinds of
//! trust, and what the resolver of tasks accepts is a row. [`missing`] compares the rows with the names that the resolver knows, so that a
//! model or update that was added without a section here is found.
//!
//! The tasks are small and ask for little noise (ε = [`EPSILON`] over all visits): the worlds of a canary are then a few standard deviations apart,
//! where a few hundred runs show a factor of two in noise or sensitivity. The mechanisms are the same at every ε.

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_models as models;
use dp_pvi_posterior::methods;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, Trust, UpdateSpec};
use serde::Serialize;

/// ε of the audited tasks, for all visits of a site.
pub const EPSILON: f64 = 12.0;

/// What a model learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Records {
    /// Times, those of events below 0, without an intercept column.
    Times,
    Classes,
    /// One of three.
    Several,
    /// One of three, without an intercept column.
    Ordered,
    Numbers,
    /// Without an intercept column.
    Points,
    Documents,
    Images,
}

/// A section of `[model]`.
pub(super) struct ModelSection {
    pub(super) name: &'static str,
    text: &'static str,
    pub(super) records: Records,
}

/// A section of `[pvi]`.
pub(super) struct UpdateSection {
    pub(super) name: &'static str,
    text: &'static str,
    /// What the unit is, where it is not one record.
    unit: PrivacyUnit,
    /// Sections of `[model]` that it meets; all, where none is named.
    models: &'static [&'static str],
}

const fn model(name: &'static str, text: &'static str, records: Records) -> ModelSection {
    ModelSection { name, text, records }
}

const fn update(name: &'static str, text: &'static str) -> UpdateSection {
    UpdateSection { name, text, unit: PrivacyUnit::Record, models: &[] }
}

/// Whole sites are protected.
const fn of_sites(name: &'static str, text: &'static str) -> UpdateSection {
    UpdateSection { unit: PrivacyUnit::Site, ..update(name, text) }
}

/// Persons are protected, of several records each.
const fn of_persons(name: &'static str, text: &'static str, models: &'static [&'static str]) -> UpdateSection {
    UpdateSection { unit: PrivacyUnit::Person, models, ..update(name, text) }
}

pub(super) const MODELS: &[ModelSection] = &[
    model("linear-regression", "noise_sd = 0.7", Records::Numbers),
    model("linear-regression, full", "noise_sd = 0.7\napproximation = \"full-covariance\"", Records::Numbers),
    model("logistic-regression", "", Records::Classes),
    model("logistic-regression, full", "approximation = \"full-covariance\"", Records::Classes),
    model("probit-regression", "", Records::Classes),
    model("poisson-regression", "", Records::Numbers),
    model("negative-binomial-regression", "dispersion = 1.5", Records::Numbers),
    model("robust-regression", "scale = 0.7", Records::Numbers),
    model("robust-regression, learned", "scale = \"learned\"", Records::Numbers),
    model("robust-regression, learned, full", "scale = \"learned\"\napproximation = \"full-covariance\"", Records::Numbers),
    model("multinomial-regression", "classes = 3", Records::Several),
    model("multinomial-regression, full", "classes = 3\napproximation = \"full-covariance\"", Records::Several),
    model("ordinal-regression", "classes = 3", Records::Ordered),
    model("survival-regression", "cuts = [0, 1, 3, 10]", Records::Times),
    model("survival-regression, full", "cuts = [0, 1, 3, 10]\napproximation = \"full-covariance\"", Records::Times),
    model("weibull-regression", "time_unit = 2.0", Records::Times),
    model("neural-network", "hidden = [3]\nsamples = 2", Records::Classes),
    model("neural-network, numbers", "hidden = [3, 2]\nsamples = 1\nnoise_sd = 0.5", Records::Numbers),
    model("latent-dirichlet", "topics = 2", Records::Documents),
    model("gaussian-mixture", "components = 2\nnoise_sd = 2.0", Records::Points),
    model("gaussian-mixture, full", "components = 2\nnoise_sd = 2.0\napproximation = \"full-covariance\"", Records::Points),
    model("pbp-network", "hidden = [3]", Records::Points),
    model("sigmoid-belief", "hidden = 2", Records::Images),
];

pub(super) const UPDATES: &[UpdateSection] = &[
    update("pvi", "schedule = \"sequential\"\nsweeps = 2"),
    update("dp-optimisation", "schedule = \"sequential\"\nsweeps = 2\nsteps = 3\nclip_norm = 1.0"),
    update(
        "dp-optimisation, Adam, sampled",
        "schedule = \"synchronous\"\nrounds = 2\nsteps = 3\nclip_norm = 1.0\nsampling_rate = 0.5\noptimizer = \"adam\"",
    ),
    update("dp-optimisation, batches", "schedule = \"sequential\"\nsweeps = 2\nsteps = 4\nclip_norm = 1.0\nbatches = 2"),
    update(
        "dp-optimisation, positive",
        "schedule = \"asynchronous\"\nsweeps = 2\nmax_staleness = 1\nsteps = 3\nclip_norm = 1.0\noptimizer = \"positivity-preserving\"",
    ),
    update(
        "dp-optimisation, adaptive clip",
        "schedule = \"sequential\"\nsweeps = 2\nsteps = 3\nclip_norm = 1.0\nsampling_rate = 0.5\nadaptive_clip = { units = 40 }",
    ),
    update(
        "dp-optimisation, weighted",
        "schedule = \"sequential\"\nsweeps = 2\nsteps = 3\nclip_norm = 1.0\nlevel_exponent = 0.5\nweighted = true",
    ),
    update("natural-gradient", "schedule = \"synchronous\"\nrounds = 3\nresidual_bound = 2.0\ncurvature_bound = 1.0"),
    update("bcm", "schedule = \"synchronous\"\nrounds = 1\ncommittee_prior = \"split\"\nsteps = 3\nclip_norm = 1.0"),
    update("global-vi", "schedule = \"synchronous\"\nrounds = 3\nclip_norm = 1.0"),
    update("global-vi, sampled", "schedule = \"synchronous\"\nrounds = 2\nclip_norm = 1.0\nsampling_rate = 0.5"),
    update("parameter-perturbation", "schedule = \"synchronous\"\nrounds = 3\nclip_norm = 1.0"),
    update("local-averaging", "schedule = \"synchronous\"\nrounds = 6\nshards = 8\nclip_norm = 1.0\ndamping = 1.0"),
    update("local-averaging, tied", "schedule = \"synchronous\"\nrounds = 3\nshards = 3\nclip_norm = 1.0\nstate = \"tied\""),
    update("virtual-clients", "schedule = \"synchronous\"\nrounds = 4\nshards = 8\nclip_norm = 1.0\ndamping = 1.0"),
    update("virtual-clients, tied", "schedule = \"synchronous\"\nrounds = 3\nshards = 3\nclip_norm = 1.0\nstate = \"tied\""),
    update("virtual-clients, released", "schedule = \"synchronous\"\nrounds = 3\nshards = 3\nclip_norm = 1.0\nstate = \"released\""),
    of_sites("client-level", "schedule = \"synchronous\"\nrounds = 3\nclip_norm = 1.0"),
    update("vips", "schedule = \"synchronous\"\nrounds = 3"),
    update("vips, unknown noise", "schedule = \"synchronous\"\nrounds = 1\nrecords = 40"),
    update("vips, learned clip", "schedule = \"synchronous\"\nrounds = 3\ndocuments = 40"),
    update("vips, images", "schedule = \"synchronous\"\nrounds = 2\nimages = 40\nclip_norm = 0.1"),
    update(
        "vips, images, sampled",
        "schedule = \"synchronous\"\nrounds = 2\ndamping = { start = 1.0, end = 0.5 }\nimages = 40\nsampling_rate = 0.5",
    ),
    update("sep", "schedule = \"synchronous\"\nrounds = 3\nrecords = 40"),
    of_sites("sep, sites", "schedule = \"synchronous\"\nrounds = 3\nsite_passes = 4"),
    update("ep", "schedule = \"synchronous\"\nrounds = 3\nrecords = 40\ndamping = 1.0"),
    of_sites("ep, sites", "schedule = \"synchronous\"\nrounds = 3\nsite_passes = 4\ndamping = 1.0"),
    update("dp-em", "schedule = \"synchronous\"\nrounds = 3"),
    of_persons(
        "natural-gradient, persons",
        "schedule = \"synchronous\"\nrounds = 3\nresidual_bound = 2.0\ncurvature_bound = 1.0",
        &["linear-regression", "logistic-regression, full", "multinomial-regression, full", "survival-regression, full"],
    ),
    of_persons(
        "dp-optimisation, persons",
        "schedule = \"synchronous\"\nrounds = 2\nsteps = 3\nclip_norm = 1.0\nsampling_rate = 0.5",
        &["logistic-regression", "neural-network"],
    ),
    of_persons(
        "virtual-clients, persons",
        "schedule = \"synchronous\"\nrounds = 4\nshards = 8\nclip_norm = 1.0\ndamping = 1.0",
        &["linear-regression", "logistic-regression"],
    ),
    of_persons(
        "ep, persons",
        "schedule = \"synchronous\"\nrounds = 3\nrecords = 40\ndamping = 1.0",
        &["probit-regression", "gaussian-mixture"],
    ),
];

const COLUMNS: &str = "[[columns]]\nname = \"a\"\nkind = \"number\"\nlower = -1.0\nupper = 1.0\ncentre = 0.0\nscale = 1.0\n\
                       [[columns]]\nname = \"b\"\nkind = \"number\"\nlower = -1.0\nupper = 1.0\ncentre = 0.0\nscale = 1.0\n";
const CLASS: &str = "[label]\ncolumn = \"y\"\nkind = \"binary\"\npositive = [\"1\"]\n";
const SEVERAL: &str = "[label]\ncolumn = \"y\"\nkind = \"classes\"\nvalues = [\"none\", \"late\", \"early\"]\n";
const NUMBER: &str = "[label]\ncolumn = \"y\"\nkind = \"number\"\nlower = 0.0\nupper = 10.0\ncentre = 0.0\nscale = 1.0\n";
const TIME: &str = "[label]\nkind = \"survival\"\ntime = { column = \"t\", lower = 0.5, upper = 10.0 }\nevent = { column = \"y\" }\n";
const PIXELS: &str = "kind = \"binary-image\"\n[binary_image]\nwidth = 2\nheight = 3\nthreshold = 127\n";
const WORDS: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 5\ndocument_length = 20\n";

/// What the auditor sees of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// What it sends, under local trust.
    Message,
    /// The unmasked sum of the honest sites, under aggregated trust.
    Sum,
    /// Its own vector, under aggregated trust, with everybody else's known.
    Alone,
}

/// A row before it is audited.
#[derive(Debug, Clone)]
pub struct Case {
    /// Section of `[pvi]`: the name of the update, and what is special.
    pub update: &'static str,
    /// Section of `[model]`.
    pub model: &'static str,
    /// What neighbouring data sets differ by.
    pub relation: Relation,
    /// Who adds the noise, and what is looked at.
    pub view: View,
    /// The task.
    pub task: ResolvedTask,
    pub(super) records: Records,
    /// Only scenes whose two worlds differ by the same in every visit: a fault that spans visits adds up there.
    pub(super) steady: bool,
}

impl Display for Case {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let relation = match self.relation {
            Relation::AddRemove => "add-remove",
            Relation::ReplaceOne => "replace-one",
        };
        let view = match self.view {
            View::Message => "local",
            View::Sum => "aggregated",
            View::Alone => "aggregated, alone",
        };
        write!(f, "{} | {} | {relation} | {view}", self.update, self.model)
    }
}

fn schema(records: Records) -> String {
    match records {
        Records::Documents => WORDS.into(),
        Records::Images => PIXELS.into(),
        Records::Classes => format!("{CLASS}{COLUMNS}"),
        Records::Several => format!("{SEVERAL}{COLUMNS}"),
        Records::Ordered => format!("intercept = false\n{SEVERAL}{COLUMNS}"),
        Records::Times => format!("intercept = false\n{TIME}{COLUMNS}"),
        Records::Numbers => format!("{NUMBER}{COLUMNS}"),
        Records::Points => format!("intercept = false\n{NUMBER}{COLUMNS}"),
    }
}

/// The task of these sections, if there is one.
pub(super) fn resolve(model: &ModelSection, update: &UpdateSection, relation: Relation, trust: Trust) -> Option<ResolvedTask> {
    let before_comma = |name: &'static str| name.split(',').next().unwrap_or(name);
    let (family, kind) = (before_comma(model.name), before_comma(update.name));
    if !update.models.is_empty() && !update.models.contains(&model.name) {
        return None;
    }
    let (unit, column) = match update.unit {
        PrivacyUnit::Record => ("record", ""),
        PrivacyUnit::Person => ("person", "unit_column = \"who\"\n"),
        PrivacyUnit::Site => ("site", ""),
    };
    if unit == "site" && relation == Relation::AddRemove {
        // The neighbour would be a site that sends nothing, and who takes part is public: such a task means nothing.
        return None;
    }
    let relation = if relation == Relation::AddRemove { "add-remove" } else { "replace-one" };
    let (trust, aggregation) = match trust {
        Trust::Local => ("local", "max_units = 64\n"),
        Trust::Aggregated => ("aggregated", "[aggregation]\nmax_units = 64\ncolluders = 1\n"),
    };
    let epsilon = if kind == "pvi" { String::new() } else { format!("epsilon = {EPSILON:?}\n") };
    let text = format!(
        "[model]\nfamily = \"{family}\"\n{}\n[schema]\nfile = \"s\"\n[pvi]\nupdate = \"{kind}\"\n{}\n\
         [privacy]\nunit = \"{unit}\"\nadjacency = \"{relation}\"\n{epsilon}delta = 1e-5\ntrust = \"{trust}\"\n{aggregation}",
        model.text, update.text
    );
    let context = ResolveContext { name: "audit", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text).ok()?.resolve(&format!("{column}{}", schema(model.records)), context).ok()
}

/// All rows whose update's section begins with `wanted` (all, where nothing is wanted).
#[must_use]
pub fn cases(wanted: Option<&str>) -> Vec<Case> {
    let mut cases = Vec::new();
    for update in UPDATES.iter().filter(|update| wanted.is_none_or(|wanted| update.name.starts_with(wanted))) {
        for model in MODELS {
            for relation in [Relation::AddRemove, Relation::ReplaceOne] {
                for (trust, views) in [(Trust::Local, &[View::Message][..]), (Trust::Aggregated, &[View::Sum, View::Alone])] {
                    let Some(task) = resolve(model, update, relation, trust) else { continue };
                    let case = |&view| Case {
                        update: update.name,
                        model: model.name,
                        relation,
                        view,
                        task: task.clone(),
                        records: model.records,
                        steady: false,
                    };
                    cases.extend(views.iter().map(case));
                }
            }
        }
    }
    cases
}

/// The rows of this very section and model under local trust. No other task is resolved.
#[cfg(feature = "planted-bugs")]
pub(super) fn local(update: &str, model: &str) -> Vec<Case> {
    let update = UPDATES.iter().filter(|section| section.name == update);
    let pairs = update.flat_map(|update| MODELS.iter().filter(|section| section.name == model).map(move |model| (update, model)));
    let of = |(update, model): (&UpdateSection, &ModelSection)| {
        let case = |relation| {
            let task = resolve(model, update, relation, Trust::Local)?;
            Some(Case {
                update: update.name,
                model: model.name,
                relation,
                view: View::Message,
                task,
                records: model.records,
                steady: false,
            })
        };
        [Relation::AddRemove, Relation::ReplaceOne].map(case).into_iter().flatten().collect::<Vec<_>>()
    };
    pairs.flat_map(of).collect()
}

/// Names that a task may give and no row has: updates, models, and sections of this file that no task accepts.
#[must_use]
pub fn missing(cases: &[Case]) -> Vec<String> {
    let is = |name: &str, section: &str| section.split(',').next() == Some(name);
    let updates = methods::registered().map(|(name, _)| name).filter(|name| !cases.iter().any(|case| is(name, case.update)));
    let models = models::registered().map(|(name, _)| name).filter(|name| !cases.iter().any(|case| is(name, case.model)));
    let sections = UPDATES.iter().map(|section| section.name).filter(|name| !cases.iter().any(|case| case.update == *name));
    let shapes = MODELS.iter().map(|section| section.name).filter(|name| !cases.iter().any(|case| case.model == *name));
    updates.chain(models).chain(sections).chain(shapes).map(str::to_owned).collect()
}

/// Whether the task claims nothing.
pub(super) fn is_unprotected(case: &Case) -> bool {
    matches!(case.task.update, UpdateSpec::Pvi {})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_that_a_task_may_give_has_a_row() {
        let cases = cases(None);
        assert_eq!(missing(&cases), Vec::<String>::new());
        // The test can fail: without its rows a name is missing.
        let fewer: Vec<Case> = cases.iter().filter(|case| !case.update.starts_with("vips")).cloned().collect();
        assert!(missing(&fewer).contains(&"vips".to_owned()));
        for relation in [Relation::AddRemove, Relation::ReplaceOne] {
            for view in [View::Message, View::Sum, View::Alone] {
                assert!(cases.iter().any(|case| case.relation == relation && case.view == view));
            }
        }
        assert!(cases.len() < super::super::MOST_ROWS);
    }
}
