//! What follows from a task for the data of its sites, as part of the resolved document: so that a program that knows no update, such as
//! `dp-pvi-verify`, can compare statements and certificates with a task. What each field is for stands in `common/accounting/proofs/statements.md`.

use dp_pvi_accounting::{AccountantError, Binding, Claim, DpEvent};
use dp_pvi_privacy::Hash;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::{ResolvedTask, TaskError};

/// Kinds of events in a certificate, at most.
const MOST_KINDS: usize = 1000;

/// The place of `promise` in a document that is read. It has no value of its own: [`ResolvedTask::to_bytes`] writes what follows from the other fields, and
/// [`ResolvedTask::from_bytes`] refuses a document that says anything else.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Derived;

impl<'de> Deserialize<'de> for Derived {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// The document: a task's fields, then what follows from them.
#[derive(Serialize)]
pub(super) struct Document<'a> {
    #[serde(flatten)]
    task: &'a ResolvedTask,
    /// Nothing, where the task is none that can be computed.
    promise: Option<Promise>,
}

#[derive(Serialize)]
struct Promise {
    /// What a site sends, in words.
    released: String,
    /// Visits of one site.
    visits: u32,
    /// Hash of what a certificate of the run is about; `null`, where no certificate can be.
    charged: Option<String>,
    /// The same if all other sites' shares of the noise are known; absent without aggregation.
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<Option<String>>,
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
        let about = |events: &[(DpEvent, u64)]| Some(self.about(&self.claim(events).ok()?, events));
        let fallback = self.aggregation.map(|_| self.visit_fallbacks(all.clone())).transpose()?;
        Ok(Promise {
            released: self.update.released(),
            visits: self.visits(),
            charged: about(&self.visit_events(all)?),
            fallback: fallback.map(|events| about(&events)),
        })
    }

    /// What a certificate of these events of a run is about.
    ///
    /// # Errors
    /// There is no certificate of them.
    pub fn claim(&self, events: &[(DpEvent, u64)]) -> Result<Claim, AccountantError> {
        let kinds = events.iter().map(|(event, _)| event.to_bytes()).collect::<std::collections::BTreeSet<_>>();
        if kinds.len() > MOST_KINDS {
            return Err(AccountantError::Unsupported("a certificate of more than 1000 kinds of visits"));
        }
        Claim::of_run(events, self.privacy.relation, self.privacy.delta)
    }

    /// Hash over the relation and the events as a certificate has them, and over the certificate's hash of the ledger's events.
    fn about(&self, claim: &Claim, events: &[(DpEvent, u64)]) -> String {
        let bytes: Vec<_> = events.iter().map(|(event, visits)| (event.to_bytes(), *visits)).collect();
        // The third hash of a binding depends on neither run nor task.
        let [.., ledger] = Binding::of_run([0; 32], 0, &bytes).to_text();
        // A relation is a name: JSON knows it.
        let relation = serde_json::to_string(&claim.relation()).expect("a name serialises");
        Hash::of("dp-pvi claim v1", &[relation.as_bytes(), claim.events_text().as_bytes(), ledger.as_bytes()]).to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::{CONTEXT, SCHEMA};
    use crate::task::{RawTask, ResolvedTask};
    use dp_pvi_privacy::Hash;

    fn resolved(privacy: &str) -> ResolvedTask {
        let text = format!(
            "model.family = \"logistic-regression\"\nschema.file = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 5\n\
             update = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\ndelta = 1e-5\nepsilon = 1.0\n{privacy}\n"
        );
        RawTask::parse(&text).unwrap().resolve(SCHEMA, CONTEXT).unwrap()
    }

    fn promise(task: &ResolvedTask) -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(&task.to_bytes()).unwrap()["promise"].take()
    }

    /// Whoever reads a task compares what it promises with its numbers.
    #[test]
    fn a_promise_that_does_not_follow_from_the_numbers_is_refused() {
        let aggregated = "trust = \"aggregated\"\n[aggregation]\nsites = 4\ncolluders = 1\nmax_units = 100";
        for task in [resolved("trust = \"local\""), resolved(aggregated)] {
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
        let task = resolved("trust = \"local\"");
        let aggregated = resolved("trust = \"aggregated\"\n[aggregation]\nsites = 4\ncolluders = 1\nmax_units = 100");
        let mut other = task.clone();
        other.privacy.relation = dp_pvi_accounting::Relation::ReplaceOne;
        let all =
            [&promise(&task)["charged"], &promise(&aggregated)["charged"], &promise(&aggregated)["fallback"], &promise(&other)["charged"]]
                .map(|hash| hash.as_str().unwrap().to_owned());
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), 4, "{all:?}");
    }
}
