//! Whether stored records are the signed chain of a run.
//!
//! The server signs the header of every round. A header names the hash of λ and of the entry before it; an entry names its header, the
//! updates that are in its sum, and the hash of λ′. So the signature of a header, or of the header that no one answers at the end, is
//! over everything that happened before it. What a client said is checked with the identity key under which it is enrolled.

use std::collections::{BTreeMap, HashSet};

use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_programs::identity::public_identity_from_pem;
use dp_pvi_protocol::coordinator::Record;
use dp_pvi_protocol::message::{Body, RoundHeader, Signed, is_end, vector_hash};
use ed25519_dalek::VerifyingKey;

use crate::ca::Enrolled;
use crate::config::TlsFiles;
use crate::error::{Result, ServerError};
use crate::tls::load_identity;

/// Whose signatures a run carries.
#[derive(Debug)]
pub(super) struct Keys {
    server: VerifyingKey,
    /// Clients that have had one identity key since they were enrolled.
    clients: BTreeMap<ClientId, VerifyingKey>,
}

impl Keys {
    /// The server's public key, from the authority's file or its own key, and those of the enrolled clients.
    ///
    /// # Errors
    /// [`ServerError::File`].
    pub(super) fn load(files: &TlsFiles) -> Result<Self> {
        let public = std::fs::read_to_string(&files.ca).ok().and_then(|text| public_identity_from_pem(&text).ok());
        let server = match public {
            Some(key) => key,
            None => load_identity(&files.identity)?.verifying_key(),
        };
        let enrolled = Enrolled::load(&files.enrolled)?;
        // A client whose certificates were revoked may be enrolled again under another key than it had in the run.
        let steady = enrolled.clients.into_iter().filter(|(_, member)| member.certificates.iter().all(|c| c.revoked.is_none()));
        let clients = steady.filter_map(|(client, member)| Some((client, VerifyingKey::from_bytes(&member.identity).ok()?)));
        Ok(Self { server, clients: clients.collect() })
    }

    /// A client's key.
    pub(super) fn of(&self, client: &ClientId) -> Option<&VerifyingKey> {
        self.clients.get(client)
    }
}

/// The chain up to a record.
#[derive(Debug)]
pub(super) struct Chain<'a> {
    keys: &'a Keys,
    run: RunId,
    /// Closed rounds.
    rounds: u32,
    /// Hash of the last entry.
    previous: Hash,
    /// Hash of λ after it.
    lambda: Hash,
    /// Hash of the open round's header.
    open: Option<Hash>,
    /// Stored updates that are in no sum yet.
    updates: HashSet<(ClientId, Hash)>,
}

impl<'a> Chain<'a> {
    pub(super) fn new(keys: &'a Keys, run: RunId) -> Self {
        Self { keys, run, rounds: 0, previous: Hash::default(), lambda: Hash::default(), open: None, updates: HashSet::new() }
    }

    /// Takes the next record.
    ///
    /// # Errors
    /// [`ServerError::Corrupt`]: it does not follow from those before it, or is not signed by whom it names.
    pub(super) fn follow(&mut self, record: &Record) -> Result<()> {
        self.step(record).map_err(|what| ServerError::Corrupt(format!("run {}: {what}", self.run.number).into()))
    }

    /// Checks the vector that the last entry names.
    ///
    /// # Errors
    /// [`ServerError::Corrupt`]: it is another one.
    pub(super) fn ends_with(&self, lambda: &[f64]) -> Result<()> {
        if vector_hash(lambda) == self.lambda {
            return Ok(());
        }
        Err(ServerError::Corrupt(format!("run {}: the posterior is not the one that the last entry names", self.run.number).into()))
    }

    fn step(&mut self, record: &Record) -> std::result::Result<(), &'static str> {
        match record {
            Record::RunOpened { run, task, .. } => {
                let task = ResolvedTask::from_bytes(task).map_err(|_| "its task cannot be read")?;
                if *run != self.run || task.hash() != self.run.task {
                    return Err("the records are of another run");
                }
                self.lambda = vector_hash(&task.rule().initial());
            }
            Record::Joined { client, hello, role, nominal_units, .. } => {
                let body = self.said(client, hello)?;
                if (&body.client, &body.role, &body.nominal_units) != (client, role, nominal_units) {
                    return Err("a client joined with another hello than it signed");
                }
            }
            Record::RoundOpened { header, .. } => {
                self.header(header)?;
                self.open = Some(header.hash());
            }
            Record::UpdateStored { client, update, .. } => {
                let body = self.said(client, update)?;
                if (&body.release.client, body.release.run) != (client, self.run) {
                    return Err("an update is of another client or run");
                }
                self.updates.insert((client.clone(), update.hash()));
            }
            Record::RoundClosed { entry, .. } => {
                if self.open.take() != Some(entry.header.hash()) || entry.previous != self.previous {
                    return Err("an entry does not follow from the one before");
                }
                if !entry.included.iter().all(|update| self.updates.remove(update)) {
                    return Err("an entry names an update that was not stored");
                }
                (self.rounds, self.previous, self.lambda) = (self.rounds.saturating_add(1), entry.hash(), entry.lambda);
            }
            Record::Refused { client, refusal, .. } => {
                let release = self.said(client, refusal)?.release;
                if (&release.client, release.run) != (client, self.run) {
                    return Err("a refusal is of another client or run");
                }
            }
            Record::Metrics { client, report, .. } => {
                let run = self.said(client, report)?.run;
                if run != self.run {
                    return Err("metrics are of another run");
                }
            }
            Record::RunEnded { outcome, header, .. } => {
                let said = self.header(header)?.reserved;
                if !is_end(&said, *outcome) {
                    return Err("the run ended in another way than its last header says");
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A header of this server that follows from the last entry.
    fn header(&self, header: &Signed<RoundHeader>) -> std::result::Result<RoundHeader, &'static str> {
        let body = header.open(&self.keys.server).map_err(|_| "a header is not signed by this server")?;
        if (body.run, body.round, body.previous, body.lambda) != (self.run, self.rounds, self.previous, self.lambda) {
            return Err("a header does not follow from the entry before it");
        }
        Ok(body)
    }

    /// What a client said, with its signature where its key is known.
    fn said<B: Body>(&self, client: &ClientId, message: &Signed<B>) -> std::result::Result<B, &'static str> {
        match self.keys.of(client) {
            Some(key) => message.open(key).map_err(|_| "a message is not signed by the client that it names"),
            None => message.peek().map_err(|_| "a message cannot be read"),
        }
    }
}
