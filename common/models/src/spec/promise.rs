//! What follows from a task for the data of its sites, as the last field of the resolved document: so that a program that knows no update, such as
//! `dp-pvi-verify`, can compare statements and certificates with a task. What each field is for is in `common/accounting/proofs/statements.md`.

use std::collections::BTreeSet;

use dp_pvi_accounting::{AccountantError, Binding, Claim, DpEvent};
use dp_pvi_names::Hash;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

use super::PrivacySpec;

/// Events, each with how many visits are it.
type Events<'a> = &'a [(DpEvent, u64)];

/// Kinds of events in a certificate, at most.
const MOST_KINDS: usize = 1000;

/// The place of [`Promise`] in a document that is read. It has no value of its own: it is written as it follows from the other fields, and a document that says
/// anything else is refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Derived;

impl<'de> Deserialize<'de> for Derived {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self)
    }
}

/// What a task promises.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Promise {
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

impl Promise {
    /// Of these visits, each event with how many of them are it; and under aggregation of a site's own parts.
    #[must_use]
    pub fn of(privacy: &PrivacySpec, released: String, visits: u32, (events, fallback): (Events<'_>, Option<Events<'_>>)) -> Self {
        let hashed = |events: Events<'_>| Some(about(&claim(privacy, events).ok()?, events));
        Self { released, visits, charged: hashed(events), fallback: fallback.map(hashed) }
    }
}

/// What a certificate of these events of a run is about.
///
/// # Errors
/// There is no certificate of them.
pub fn claim(privacy: &PrivacySpec, events: Events<'_>) -> Result<Claim, AccountantError> {
    if events.iter().map(|(event, _)| event.to_bytes()).collect::<BTreeSet<_>>().len() > MOST_KINDS {
        return Err(AccountantError::Unsupported("a certificate of more than 1000 kinds of visits"));
    }
    Claim::of_run(events, privacy.relation, privacy.delta)
}

/// Hash over the relation and the events as a certificate has them, and over the certificate's hash of the ledger's events.
fn about(claim: &Claim, events: Events<'_>) -> String {
    let bytes: Vec<_> = events.iter().map(|(event, visits)| (event.to_bytes(), *visits)).collect();
    // The third hash of a binding depends on neither run nor task.
    let [.., ledger] = Binding::of_run([0; 32], 0, &bytes).to_text();
    // A relation is a name: JSON knows it.
    let relation = serde_json::to_string(&claim.relation()).expect("a name serialises");
    Hash::of("dp-pvi claim v1", &[relation.as_bytes(), claim.events_text().as_bytes(), ledger.as_bytes()]).to_string()
}
