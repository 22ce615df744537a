//! The document of a resolved task: its fields, then what follows from them for the data of its sites.

use dp_pvi_accounting::{AccountantError, Claim, DpEvent};
use serde::Serialize;

use super::{ResolvedTask, TaskError};
use dp_pvi_models::spec::promise;
use dp_pvi_models::spec::promise::Promise;

#[derive(Serialize)]
pub(super) struct Document<'a> {
    #[serde(flatten)]
    task: &'a ResolvedTask,
    /// Nothing, where the task is none that can be computed.
    promise: Option<Promise>,
}

impl<'a> Document<'a> {
    pub(super) fn of(task: &'a ResolvedTask) -> Self {
        Self { task, promise: task.promised().ok() }
    }
}

impl ResolvedTask {
    fn promised(&self) -> Result<Promise, TaskError> {
        self.check()?;
        let all = 0..self.visits();
        let fallback = self.aggregation.map(|_| self.visit_fallbacks(all.clone())).transpose()?;
        Ok(Promise::of(&self.privacy, self.update.released(), self.visits(), (&self.visit_events(all)?, fallback.as_deref())))
    }

    /// What a certificate of these events of a run is about.
    ///
    /// # Errors
    /// There is no certificate of them.
    pub fn claim(&self, events: &[(DpEvent, u64)]) -> Result<Claim, AccountantError> {
        promise::claim(&self.privacy, events)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::{CONTEXT, SCHEMA};
    use crate::task::{RawTask, ResolvedTask};
    use dp_pvi_names::Hash;

    fn resolved(privacy: &str) -> ResolvedTask {
        let text = format!(
            "model.family = \"logistic-regression\"\nmodel.outcome = \"died\"\nschema.file = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 5\n\
             update = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\ndelta = 1e-5\nepsilon = 1.0\n{privacy}\n"
        );
        RawTask::parse(&text).unwrap().resolve(SCHEMA, CONTEXT).unwrap()
    }

    fn promise(task: &ResolvedTask) -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(&task.to_bytes()).unwrap()["promise"].take()
    }

    /// Anyone who reads a task compares what it promises with its numbers.
    #[test]
    fn a_promise_that_does_not_follow_from_the_numbers_is_refused() {
        let aggregated = "trust = \"aggregated\"\n[aggregation]\nsites = 4\ncolluders = 1\nmax_units = 100";
        for task in [resolved("trust = \"local\"\nmax_units = 100"), resolved(aggregated)] {
            let text = String::from_utf8(task.to_bytes()).unwrap();
            assert_eq!(ResolvedTask::from_bytes(text.as_bytes()).unwrap(), task);
            let (promise, other) = (promise(&task), Hash([7; 32]).to_string());
            assert_eq!(promise["fallback"].is_string(), task.aggregation.is_some(), "{promise}");
            let mut changes = vec![("\"visits\": 5".to_owned(), "\"visits\": 4".to_owned()), ("one noised sum".into(), "no sum".into())];
            changes.extend(["charged", "fallback"].iter().filter_map(|field| Some((promise[field].as_str()?.to_owned(), other.clone()))));
            for (from, to) in changes {
                let (before, after) = text.rsplit_once(&from).unwrap();
                let refused = ResolvedTask::from_bytes(format!("{before}{to}{after}").as_bytes()).unwrap_err().to_string();
                assert!(refused.contains("promise"), "{from}: {refused}");
            }
            let without = format!("{}\n}}", text.rsplit_once(",\n  \"promise\"").unwrap().0);
            assert!(ResolvedTask::from_bytes(without.as_bytes()).is_err());
            // A person's copy of the task is brought into canonical form.
            assert_eq!(ResolvedTask::from_document(without.as_bytes()).unwrap(), task);
        }
    }

    #[test]
    fn noise_number_of_visits_and_trust_change_what_is_charged() {
        let task = resolved("trust = \"local\"\nmax_units = 100");
        let aggregated = resolved("trust = \"aggregated\"\n[aggregation]\nsites = 4\ncolluders = 1\nmax_units = 100");
        let mut other = task.clone();
        other.privacy.relation = dp_pvi_accounting::Relation::ReplaceOne;
        let all =
            [&promise(&task)["charged"], &promise(&aggregated)["charged"], &promise(&aggregated)["fallback"], &promise(&other)["charged"]]
                .map(|hash| hash.as_str().unwrap().to_owned());
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{all:?}");
    }
}
