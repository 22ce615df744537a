//! Small tasks of every model with every update: one list, from which the conformance tests of `dp-pvi-inference`, the audit of `dp-pvi-sim` and the
//! end-to-end tests take theirs. Nothing that a server or a client runs links it.
//!
//! A new model is an entry in [`MODELS`], a new update one in [`UPDATES`]: [`missing`] names what a task may name and no entry has, and the tests here
//! say which pairs there are.

mod models;
mod served;
mod updates;

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_models as likelihoods;
use dp_pvi_posterior::methods;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};

pub use models::{MODELS, Model, Records};
pub use served::GLM;
pub use updates::{Audit, Every, Run, UPDATES, Update};

/// An entry.
pub trait Named {
    /// The name in a task, and what is special after a comma.
    fn name(&self) -> &'static str;

    /// The name in a task.
    fn kind(&self) -> &'static str {
        self.name().split(',').next().unwrap_or_default()
    }
}

/// The model of this name.
///
/// # Panics
/// There is none.
#[must_use]
pub fn model(name: &str) -> &'static Model {
    MODELS.iter().find(|model| model.name == name).unwrap_or_else(|| panic!("no model is called {name}"))
}

/// The update of this name.
///
/// # Panics
/// There is none.
#[must_use]
pub fn update(name: &str) -> &'static Update {
    UPDATES.iter().find(|update| update.name == name).unwrap_or_else(|| panic!("no update is called {name}"))
}

/// Names that a task may give and no entry has.
#[must_use]
pub fn missing() -> Vec<String> {
    let known: Vec<&str> = MODELS.iter().map(Model::kind).chain(UPDATES.iter().map(Update::kind)).collect();
    let names = likelihoods::registered().chain(methods::registered()).map(|(name, _)| name);
    names.filter(|name| !known.contains(name)).map(str::to_owned).collect()
}

/// What a task says beside its model and its update.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Keys before all tables.
    pub head: &'a str,
    /// Who are neighbours.
    pub relation: Relation,
    /// Keys of `[aggregation]`; none under local trust.
    pub aggregation: Option<&'a str>,
    /// Most units of a site.
    pub max_units: u32,
    /// Units that are expected.
    pub units: u32,
    /// ε of all visits.
    pub epsilon: f64,
}

/// `task.toml`.
#[must_use]
pub fn task(model: &Model, update: &Update, terms: &Terms<'_>) -> String {
    let Terms { head, max_units, epsilon, .. } = terms;
    let unit = match update.unit {
        PrivacyUnit::Record => "record",
        PrivacyUnit::Person => "person",
        PrivacyUnit::Site => "site",
    };
    let relation = match terms.relation {
        Relation::AddRemove => "add-remove",
        Relation::ReplaceOne => "replace-one",
    };
    let epsilon = if update.open { String::new() } else { format!("epsilon = {epsilon:?}\n") };
    let trust = match terms.aggregation {
        None => format!("trust = \"local\"\nmax_units = {max_units}\n"),
        Some(keys) => format!("trust = \"aggregated\"\n[aggregation]\nmax_units = {max_units}\n{keys}"),
    };
    format!(
        "{head}[model]\n{}\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{}\n\
         [privacy]\nunit = \"{unit}\"\nadjacency = \"{relation}\"\n{epsilon}delta = 1e-5\n{trust}",
        model.options(),
        update.options(terms.units)
    )
}

/// The task over records of two columns.
///
/// # Errors
/// Why the pair is none, in words.
pub fn resolve(model: &Model, update: &Update, terms: &Terms<'_>) -> Result<ResolvedTask, String> {
    let context = ResolveContext { name: "catalogue", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    let raw = RawTask::parse(&task(model, update, terms)).map_err(|error| error.to_string())?;
    raw.resolve(&schema(model.records, update.unit), context).map_err(|error| error.to_string())
}

const COLUMNS: &str = "[[columns]]\nname = \"a\"\nkind = \"number\"\nlower = -1.0\nupper = 1.0\ncentre = 0.0\nscale = 1.0\n\
                       [[columns]]\nname = \"b\"\nkind = \"number\"\nlower = -1.0\nupper = 1.0\ncentre = 0.0\nscale = 1.0\n";
const CLASS: &str = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n";
const SEVERAL: &str = "[[columns]]\nname = \"y\"\nkind = \"category\"\nvalues = [\"none\", \"late\", \"early\"]\n";
const NUMBER: &str = "[[columns]]\nname = \"y\"\nkind = \"number\"\nlower = 0.0\nupper = 10.0\ncentre = 0.0\nscale = 1.0\n";
const POSITIVE: &str = "[[columns]]\nname = \"y\"\nkind = \"number\"\nlower = 0.5\nupper = 10.0\ncentre = 0.0\nscale = 1.0\n";
const TIME: &str = "[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0.5\nupper = 10.0\ncentre = 0.0\nscale = 1.0\n\
                    [[columns]]\nname = \"y\"\nkind = \"boolean\"\n";
const PIXELS: &str = "kind = \"binary-image\"\n[binary_image]\nwidth = 2\nheight = 3\nthreshold = 127\n";
const WORDS: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 5\ndocument_length = 20\n";

/// `schema.toml` of what a model learns from.
#[must_use]
pub fn schema(records: Records, unit: PrivacyUnit) -> String {
    let person = if unit == PrivacyUnit::Person { "unit_column = \"who\"\n" } else { "" };
    let of_records = match records {
        Records::Documents => WORDS.into(),
        Records::Images => PIXELS.into(),
        Records::Classes => format!("{CLASS}{COLUMNS}"),
        Records::Several | Records::Ordered => format!("{SEVERAL}{COLUMNS}"),
        Records::Times => format!("{TIME}{COLUMNS}"),
        Records::Numbers | Records::Points => format!("{NUMBER}{COLUMNS}"),
        Records::Positive => format!("{POSITIVE}{COLUMNS}"),
    };
    format!("{person}{of_records}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: Terms<'_> =
        Terms { head: "", relation: Relation::ReplaceOne, aggregation: None, max_units: 1_000_000, units: 40, epsilon: 1.0 };

    /// A pair that is no longer served, or that no one refuses any more, is named here.
    #[test]
    fn every_pair_is_served_or_refused_before_anything_runs() {
        let mut wrong = Vec::new();
        for model in MODELS {
            let found: Vec<&str> = UPDATES.iter().filter(|update| accepts(model, update)).map(|update| update.name).collect();
            let stated: Vec<&str> = UPDATES.iter().map(|update| update.name).filter(|name| model.is_served_by(name)).collect();
            if found != stated {
                wrong.push(format!("{}: {found:?}", model.name));
            }
        }
        assert!(wrong.is_empty(), "these models are served by\n{}", wrong.join("\n"));
    }

    /// Under either relation: shards of persons are cut by position under replace-one.
    fn accepts(model: &Model, update: &Update) -> bool {
        [Relation::ReplaceOne, Relation::AddRemove].iter().any(|&relation| resolve(model, update, &Terms { relation, ..TERMS }).is_ok())
    }

    #[test]
    fn what_a_task_may_name_has_an_entry() {
        assert_eq!(missing(), Vec::<String>::new());
        for name in MODELS.iter().flat_map(|model| model.served.concat()) {
            let _ = update(name);
        }
        let mut names: Vec<&str> = MODELS.iter().map(Model::name).chain(UPDATES.iter().map(Update::name)).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a name belongs to one entry");
    }

    /// A model of a family and an update of a kind that a task may name together run end to end at least once, and every update that may be aggregated does under a summer.
    #[test]
    fn every_pair_of_names_runs_end_to_end() {
        let mut missing = Vec::new();
        for (model, update) in MODELS.iter().flat_map(|model| UPDATES.iter().map(move |update| (model, update))) {
            let same = |other: &Model, of: &Update| other.kind() == model.kind() && of.kind() == update.kind();
            let runs = || MODELS.iter().any(|other| UPDATES.iter().any(|of| same(other, of) && of.run.has(other, of)));
            if model.is_served_by(update.name) && !runs() {
                missing.push(format!("{} with {}", update.kind(), model.kind()));
            }
            for name in update.run.with.iter().chain(update.run.aggregated) {
                assert!(super::model(name).is_served_by(update.name), "{} with {name}", update.name);
            }
        }
        assert!(missing.is_empty(), "{missing:?} run nowhere: say so in `run` of an update");
        let aggregated = Terms { aggregation: Some("sites = 3\ncolluders = 1\nmax_rounding_loss = 1.0\n"), max_units: 60, ..TERMS };
        for update in UPDATES {
            let runs = UPDATES.iter().any(|other| other.kind() == update.kind() && !other.run.aggregated.is_empty());
            assert!(
                runs || MODELS.iter().all(|model| resolve(model, update, &aggregated).is_err()),
                "no {} runs under a summer",
                update.kind()
            );
        }
    }
}
