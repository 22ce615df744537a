//! What is audited: every combination of model, update, relation and trust that a task may name.
//!
//! Rows are not written down one by one. Every entry of [`MODELS`] meets every entry of [`UPDATES`] of the [catalogue](dp_pvi_catalogue) under both relations and both kinds of
//! trust, and what the resolver of tasks accepts is a row. [`missing`] compares the rows with the names that the resolver knows, so that a
//! model or update that was added without an entry there is found.
//!
//! The tasks are small and ask for little noise (ε = [`EPSILON`] over all visits): the neighbours of a canary are then a few standard deviations apart,
//! where a few hundred runs show a factor of two in noise or sensitivity. The mechanisms are the same at every ε.

use std::fmt::{Display, Formatter};

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_catalogue::{Audit, MODELS, Model, Named, Records, Terms, UPDATES, Update};
use dp_pvi_posterior::task::{ResolvedTask, Trust, UpdateSpec};
use serde::Serialize;

/// ε of the audited tasks, for all visits of a site.
pub const EPSILON: f64 = 12.0;

/// What the auditor sees of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// What it sends, under local trust.
    Message,
    /// The unmasked sum of the honest sites, under aggregated trust.
    Sum,
    /// Its own vector, under aggregated trust, with everyone else's known.
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
    /// Only scenes whose two neighbours differ by the same in every visit: a fault that spans visits adds up there.
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

/// The task of these entries, if there is one.
pub(super) fn resolve(model: &Model, update: &Update, relation: Relation, trust: Trust) -> Option<ResolvedTask> {
    if update.unit == PrivacyUnit::Site && relation == Relation::AddRemove {
        // The neighbour would be a site that sends nothing, and who takes part is public: such a task means nothing.
        return None;
    }
    let aggregation = match trust {
        Trust::Local => None,
        Trust::Aggregated => Some("colluders = 1\n"),
    };
    let terms = Terms { head: "name = \"audit\"\n", relation, aggregation, max_units: 64, units: 40, epsilon: EPSILON };
    dp_pvi_catalogue::resolve(model, update, &terms).ok()
}

/// Pairs of entries that are audited, update by update.
fn pairs() -> impl Iterator<Item = (&'static Update, &'static Model)> {
    let plays = |update: &Update, model: &Model| match update.audit {
        Audit::Every => true,
        Audit::With(models) => models.contains(&model.name),
        Audit::No => false,
    };
    let models = || MODELS.iter().filter(|model| model.audited);
    UPDATES.iter().flat_map(move |update| models().filter(move |model| plays(update, model)).map(move |model| (update, model)))
}

/// A row under these terms, if it is one.
fn case(update: &'static Update, model: &'static Model, relation: Relation, view: View) -> Option<Case> {
    let trust = if view == View::Message { Trust::Local } else { Trust::Aggregated };
    let task = resolve(model, update, relation, trust)?;
    Some(Case { update: update.name, model: model.name, relation, view, task, records: model.records, steady: false })
}

/// All rows whose update's entry begins with `wanted` (all, where nothing is wanted).
#[must_use]
pub fn cases(wanted: Option<&str>) -> Vec<Case> {
    let mut cases = Vec::new();
    for (update, model) in pairs().filter(|(update, _)| wanted.is_none_or(|wanted| update.name.starts_with(wanted))) {
        for relation in [Relation::AddRemove, Relation::ReplaceOne] {
            cases.extend(case(update, model, relation, View::Message));
            // One task, looked at twice.
            if let Some(sum) = case(update, model, relation, View::Sum) {
                let alone = Case { view: View::Alone, ..sum.clone() };
                cases.extend([sum, alone]);
            }
        }
    }
    cases
}

/// The rows of this very entry and model under local trust. No other task is resolved.
#[cfg(feature = "fault-injection")]
pub(super) fn local(update: &str, model: &str) -> Vec<Case> {
    let pairs = pairs().filter(|(of, with)| of.name == update && with.name == model);
    pairs
        .flat_map(|(of, with)| [Relation::AddRemove, Relation::ReplaceOne].map(|relation| case(of, with, relation, View::Message)))
        .flatten()
        .collect()
}

/// Names that a task may give and no row has: updates, models, and audited entries of the catalogue that no task accepts.
#[must_use]
pub fn missing(cases: &[Case]) -> Vec<String> {
    let named = dp_pvi_catalogue::missing();
    let updates = UPDATES.iter().filter(|update| update.audit != Audit::No).map(|update| update.name);
    let models = MODELS.iter().filter(|model| model.audited).map(|model| model.name);
    let updates = updates.filter(|name| !cases.iter().any(|case| case.update == *name));
    let models = models.filter(|name| !cases.iter().any(|case| case.model == *name));
    // An entry that no audit plays is one of a name that another one has.
    let unplayed = || {
        MODELS
            .iter()
            .filter(|model| !model.audited)
            .map(Model::kind)
            .chain(UPDATES.iter().filter(|update| update.audit == Audit::No).map(Update::kind))
    };
    let played = |name: &str| cases.iter().any(|case| [case.model, case.update].iter().any(|of| of.split(',').next() == Some(name)));
    let kinds = unplayed().filter(|name| !played(name));
    named.into_iter().chain(updates.chain(models).chain(kinds).map(str::to_owned)).collect()
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
