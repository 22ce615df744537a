//! Clients that have seen more of a run than its server: the server's state is an old copy, and the server's operator is told.

use std::collections::BTreeMap;

use dp_pvi_names::ClientId;

use super::Rejected;

/// What such clients said since this process started, one entry a client.
#[derive(Debug, Default)]
pub struct AheadClients(BTreeMap<ClientId, String>);

impl AheadClients {
    /// Notes why a client gets no work. The words for the operator, where it is for this reason and this client was not told of before.
    pub fn note(&mut self, client: &ClientId, rejected: &Rejected) -> Option<&str> {
        let Rejected::AheadOfServer { seen, here } = rejected else { return None };
        if self.0.contains_key(client) {
            return None;
        }
        let words = format!(
            "{client} says that it has seen {seen} closed rounds of this run, and this server's state has {here}: the state is an old copy (a \
             backup that was put back), and no site sends anything to it. Stop this server and put the latest copy of its state folder back; \
             where that is lost, give this run up and start another (`dp-pvi-server run --new-run`)"
        );
        Some(self.0.entry(client.clone()).or_insert(words))
    }

    /// The words for the operator, for every client that was told of.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        self.0.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_operator_is_told_once_a_client() {
        let (mut ahead, a, b) = (AheadClients::default(), ClientId::new("a").unwrap(), ClientId::new("b").unwrap());
        assert_eq!(ahead.note(&a, &Rejected::HelloFirst), None);
        let words = ahead.note(&a, &Rejected::AheadOfServer { seen: 5, here: 3 }).unwrap().to_owned();
        for part in ["a says", "5 closed rounds", "state has 3", "old copy", "put the latest copy", "--new-run"] {
            assert!(words.contains(part), "{words}");
        }
        assert_eq!(ahead.note(&a, &Rejected::AheadOfServer { seen: 6, here: 3 }), None, "not at every try");
        assert!(ahead.note(&b, &Rejected::AheadOfServer { seen: 4, here: 3 }).unwrap().starts_with("b says"));
        assert_eq!(ahead.words().len(), 2);
    }
}
