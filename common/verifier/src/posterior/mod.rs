//! `posterior.json`: every field of it that follows from the task in it, from its certificates, or from the run's transcript, is compared with what it has to be.
//! The specification is [`specification`]; [`FIELDS`] is its table.

mod fields;
mod transcript;
mod witness;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::format::{Relation, Sampling};
use crate::{Certificate, Refusal, digest, verify};
use fields::{Fields, object, spelt};
use transcript::Transcript;

#[doc = include_str!("../../../accounting/proofs/statements.md")]
pub mod specification {}

/// What a field of `posterior.json` follows from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The task in the file, and its certificates.
    Task,
    /// The transcript of the run.
    Transcript,
    /// The signature of its site, under the key that is beside it.
    Signature,
    /// Nothing that this program reads: it is not checked, with all that is in it.
    Nothing,
}

/// Every field of every kind of `posterior.json`, and what it follows from. Others are refused.
pub const FIELDS: &[(&str, Source)] = &[
    ("format", Source::Task),
    ("task_hash", Source::Task),
    ("run", Source::Transcript),
    ("rounds", Source::Transcript),
    ("family", Source::Task),
    ("coefficients", Source::Nothing),
    ("natural_parameters", Source::Nothing),
    ("covariance", Source::Nothing),
    ("correlation", Source::Nothing),
    ("effects", Source::Nothing),
    ("scales", Source::Nothing),
    ("curves", Source::Nothing),
    ("observation_scale", Source::Nothing),
    ("observation_sd", Source::Nothing),
    ("intervals", Source::Nothing),
    ("plain", Source::Nothing),
    ("convergence", Source::Nothing),
    ("signal_to_noise", Source::Nothing),
    ("agreement", Source::Nothing),
    ("without", Source::Nothing),
    ("problem", Source::Nothing),
    ("privacy[].site", Source::Transcript),
    ("privacy[].unit", Source::Task),
    ("privacy[].relation", Source::Task),
    ("privacy[].epsilon", Source::Task),
    ("privacy[].fallback_epsilon", Source::Task),
    ("privacy[].delta", Source::Task),
    ("privacy[].trust", Source::Task),
    ("privacy[].method", Source::Nothing),
    ("privacy[].numerical_margin", Source::Nothing),
    ("privacy[].releases", Source::Transcript),
    ("privacy[].released", Source::Task),
    ("privacy[].rows", Source::Nothing),
    ("privacy[].witness", Source::Signature),
    ("privacy[].remarks", Source::Nothing),
    ("certificate", Source::Task),
    ("fallback_certificate", Source::Task),
    ("fallback_certificate.absent", Source::Nothing),
    ("evaluations", Source::Nothing),
    ("task", Source::Task),
];

/// What is read of a task. That its promise follows from its numbers, every program that takes part in a run has compared.
#[derive(Deserialize)]
struct Task {
    approximation: String,
    dimension: u64,
    privacy: Privacy,
    aggregation: Option<IgnoredAny>,
    promise: Promise,
}

#[derive(Deserialize)]
struct Privacy {
    unit: String,
    relation: String,
    delta: f64,
    trust: String,
}

#[derive(Deserialize)]
struct Promise {
    released: String,
    visits: u32,
    charged: Option<String>,
    fallback: Option<String>,
}

/// Why a file is not accepted.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum Unproved {
    /// No certificate, or one that does not hold.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A field that is not what it follows from.
    #[error("{0}: do not rely on the posterior, and ask for a new export of it")]
    Field(String),
}

/// A posterior whose fields are those that they have to be. What is public of it follows from the task and the certificates, and with a transcript from that.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// SHA-256 of the task, in hexadecimal digits.
    pub task: String,
    /// Number of the run: without a transcript the file's word.
    pub run: u32,
    /// Whose data is protected.
    pub unit: String,
    /// What neighbouring data sets differ by.
    pub relation: String,
    /// Who adds the noise.
    pub trust: String,
    /// What a site sends.
    pub released: String,
    /// Visits of the task.
    pub visits: u32,
    /// The sites, each with the visits that it answered; only with a transcript.
    pub sites: Option<Vec<(String, u32)>>,
    /// The sites that signed where their ledger ended: the row, and the key; only with a transcript.
    pub witnesses: Option<Vec<(String, u64, String)>>,
    joint: String,
    fallback: Option<Option<String>>,
}

/// Certificates that hold.
#[derive(Debug, Clone, PartialEq)]
pub struct Proved {
    /// Of ε.
    pub joint: Certificate,
    /// Of the fallback ε; the inner `None`: it has none. Only where noise is whole only in a sum over sites.
    pub fallback: Option<Option<Certificate>>,
}

fn refused<T>(why: impl Into<String>) -> Result<T, Unproved> {
    Err(Unproved::Field(why.into()))
}

fn demand(ok: bool, why: impl Into<String>) -> Result<(), Unproved> {
    if ok { Ok(()) } else { refused(why) }
}

impl Posterior {
    /// Compares every field of a file that [`FIELDS`] says is derived.
    ///
    /// # Errors
    /// Other files, and every field that is another one than it has to be.
    pub fn read(file: &[u8], transcript: Option<&[u8]>) -> Result<Self, Unproved> {
        let file: Fields<'_> = serde_json::from_slice(file).map_err(|_| Refusal::Form("no posterior.json that has each field once"))?;
        if file.get("private").is_some() {
            return refused("a site's personal posterior, made without noise, has nothing to prove and must not leave its site");
        }
        file.only_known("")?;
        let task_text = file.text("task")?;
        let hash = hash_of("dp-pvi task v1", &[&task_text]);
        file.is("task_hash", &json!(hash))?;
        let Ok(task) = serde_json::from_str::<Task>(&task_text) else { return refused("its task is none of this version") };
        let Privacy { unit, relation, trust, .. } = &task.privacy;
        let known = ["record", "person", "site"].contains(&unit.as_str())
            && ["add-remove", "replace-one"].contains(&relation.as_str())
            && ["local", "aggregated"].contains(&trust.as_str());
        demand(known, "its task has a word for unit, relation or trust that is none")?;
        let number: u32 = file.number("run")?;
        file.is("run", &json!(number))?;
        file.is("format", &json!(2))?;
        let kind = if task.approximation == "full-covariance" { "full-gaussian" } else { "diagonal-gaussian" };
        let family = object(file.need("family")?)?;
        family.is("kind", &json!(kind))?;
        family.is("dimension", &json!(task.dimension))?;
        demand(family.len() == 2, "`family` has another field")?;

        let run = digest(format!("{hash}/{number}"));
        let certified = |field: &str| {
            let both = file.get(field).map(object).transpose()?;
            let one = |both: &Fields<'_>| both.len() == 1 && (both.get("text").is_some() || both.get("absent").is_some());
            demand(both.as_ref().is_none_or(one), format!("`{field}` is neither a text nor absent"))?;
            let certificate = both.filter(|both| both.get("text").is_some()).map(|both| both.text("text")).transpose()?;
            Ok::<Option<String>, Unproved>(certificate)
        };
        let about = |certificate: &str, charged: &Option<String>| {
            let certificate = Certificate::read(certificate.as_bytes())?;
            let Some([of_run, of_task, ledger]) = &certificate.binding else { return refused("a certificate is of no run") };
            demand((of_run, of_task) == (&run, &hash), "a certificate is of another run or task than the posterior")?;
            // An absent unit is a term of 0, so terms that change are more than that; sums over shards have such certificates.
            let unsampled = certificate.events.iter().all(|event| event.sampling == Sampling::None);
            let same = json(&certificate.relation).trim_matches('"').replace('_', "-") == *relation
                || certificate.relation == Relation::ReplaceOne && unsampled;
            demand(same, "a certificate is about another relation between data sets than the task's")?;
            let parts = [json(&certificate.relation), json(&certificate.events)];
            let claim = hash_of("dp-pvi claim v1", &[&parts[0], &parts[1], ledger]);
            demand(charged.as_ref() == Some(&claim), "a certificate is about other events than the task has")?;
            demand(certificate.delta.to_bits() == task.privacy.delta.to_bits(), "a certificate is about another delta than the task's")?;
            Ok(json!(certificate.epsilon))
        };
        let Some(joint) = certified("certificate")? else { return refused("its epsilon has no certificate, so nothing can be checked") };
        let epsilon = about(&joint, &task.promise.charged)?;
        let aggregated = task.aggregation.is_some();
        demand(aggregated == (task.privacy.trust == "aggregated"), "its task contradicts itself")?;
        demand(file.get("fallback_certificate").is_some() == aggregated, "a fallback certificate belongs to trust \"aggregated\"")?;
        let fallback = if aggregated { Some(certified("fallback_certificate")?) } else { None };
        let worst = match &fallback {
            Some(Some(text)) => Some(about(text, &task.promise.fallback)?),
            Some(None) | None => None,
        };

        let statements: Vec<Fields<'_>> =
            serde_json::from_str(file.need("privacy")?.get()).map_err(|_| Refusal::Form("no statements with each field once"))?;
        let Some(first) = statements.first() else { return refused("it states nothing for any site") };
        let unproved = first.get("fallback_epsilon").map(spelt);
        let (mut sites, mut witnesses) = (Vec::new(), Vec::new());
        for statement in &statements {
            statement.only_known("privacy[].")?;
            let site = statement.text("site")?;
            statement.is("unit", &json!(task.privacy.unit))?;
            statement.is("relation", &json!(task.privacy.relation))?;
            statement.is("trust", &json!(task.privacy.trust))?;
            statement.is("delta", &json!(task.privacy.delta))?;
            statement.is("released", &json!(task.promise.released))?;
            statement.is("epsilon", &epsilon)?;
            match (&worst, &fallback) {
                (Some(worst), _) => statement.is("fallback_epsilon", worst)?,
                // What no certificate reaches is the same for all sites, and more than any proves.
                (None, Some(_)) => {
                    let stated = statement.get("fallback_epsilon").map(spelt);
                    let beyond = |stated: &String| stated.parse::<f64>().is_ok_and(|epsilon| epsilon > 100.0);
                    demand(stated == unproved && stated.as_ref().is_none_or(beyond), "its fallback epsilon has no certificate")?;
                }
                (None, None) => demand(statement.get("fallback_epsilon").is_none(), "a fallback epsilon belongs to trust \"aggregated\"")?,
            }
            let releases: u32 = statement.number("releases")?;
            statement.is("releases", &json!(releases))?;
            demand(releases <= task.promise.visits, "a site answered more visits than the task has")?;
            demand(sites.last().is_none_or(|(before, _)| *before < site), "sites are not in order, or one has two statements")?;
            let witness = witness::read(statement, &site, &hash, number)?;
            witnesses.extend(witness.map(|(row, key)| (site.clone(), row, key)));
            sites.push((site, releases));
        }
        let signed = sites.iter().filter(|(_, releases)| *releases > 0).map(|(site, _)| site);
        let keys = witnesses.iter().map(|(.., key)| key).collect::<std::collections::BTreeSet<_>>().len();
        let all = signed.eq(witnesses.iter().map(|(site, ..)| site)) && keys == witnesses.len();
        demand(witnesses.is_empty() || all, "not every site that answered has a `witness` of its own key, or one that did not has")?;
        let with_transcript = transcript.is_some();
        if let Some(transcript) = transcript {
            let transcript = Transcript::read(transcript, &hash, number)?;
            file.is("rounds", &json!(transcript.rounds))?;
            demand(sites == transcript.answered, "its sites, or the visits that they answered, are not those of the transcript")?;
        }
        let Task { privacy: Privacy { unit, relation, trust, .. }, promise: Promise { released, visits, .. }, .. } = task;
        let (sites, witnesses) = (with_transcript.then_some(sites), with_transcript.then_some(witnesses));
        Ok(Self { task: hash, run: number, unit, relation, trust, released, visits, sites, witnesses, joint, fallback })
    }

    /// Checks the certificates.
    ///
    /// # Errors
    /// One of them does not hold.
    pub fn prove(&self) -> Result<Proved, Refusal> {
        let fallback = |text: &Option<String>| text.as_ref().map(|text| verify(text.as_bytes())).transpose();
        Ok(Proved { joint: verify(self.joint.as_bytes())?, fallback: self.fallback.as_ref().map(fallback).transpose()? })
    }
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// SHA-256 of a domain, its length before it, and of parts, each with its length before it.
fn hash_of(domain: &str, parts: &[&str]) -> String {
    let mut bytes = Vec::new();
    for part in std::iter::once(&domain).chain(parts) {
        bytes.extend((part.len() as u64).to_le_bytes());
        bytes.extend(part.as_bytes());
    }
    digest(bytes)
}
