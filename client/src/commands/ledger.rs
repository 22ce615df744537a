//! `ledger create | backup | restore | units | verify | show | export`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use dp_pvi_accounting::DpEvent;
use dp_pvi_names::{ClientId, Hash, ReleaseId, RunId};
use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::ledger::{Closed, FreezeState, HeadPlace, LedgerError, PlannedEvents, ReleaseState, Row, RowBody};
use dp_pvi_programs::ledger::{self as file, OnDisk, RollbackGuard, SqliteLedger, ViewStore};
use dp_pvi_programs::outputs;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::message::{Signed, Update};
use dp_pvi_protocol::text::visible;
use dp_pvi_results::certificate::{Checked, Fallback};
use dp_pvi_results::divided::Without;
use dp_pvi_results::document::PosteriorDocument;
use serde_json::{Value, json};

use super::{predict, view};
use crate::config::Config;
use crate::error::{ClientError, Result};
use crate::ledger::LedgerView;
use crate::observe::head_json;
use crate::output::{Output, epsilon, json_number, name_of};
use crate::snapshot::{self, LocalSchema, unit_in_words};
use crate::{keys, ledger, screen};

/// Makes the data set's ledger: an operator's act, once in the life of a data set. A creation that was cut off anywhere is finished by the
/// next one.
///
/// # Errors
/// A ledger that exists already, the disk.
pub fn create(config: &Config, output: Output) -> Result<()> {
    let private = config.private()?;
    let key = keys::identity(&config.tls.identity)?;
    let path = private.ledger.display();
    ledger::refuse_links(private)?;
    let place = RollbackGuard::at(&private.ledger_head);
    let kept = place.head(&key)?;
    screen::before_ledger(config);
    let had_another = || kept.filter(|kept| kept.seq > 0).map(|kept| LedgerError::OtherLedger { place: shown(&place), kept: kept.seq });
    // Before anything is made: a data set that had a ledger gets no new one, which would know of nothing.
    if let Some(refused) = had_another().filter(|_| !private.ledger.exists()) {
        return Err(refused.into());
    }
    let store = match SqliteLedger::create(&private.ledger)? {
        Some(store) => match had_another() {
            Some(refused) => return Err(refused.into()),
            None => store,
        },
        None => SqliteLedger::open(&private.ledger)?,
    };
    let had_rows = !store.is_empty();
    let ledger = Ledger::open(store, key, private.identity.clone(), private.budget)?;
    // A creation that was cut off after the first row left a ledger that the rollback guard does not know yet.
    if had_rows && (ledger.head().seq > 0 || kept == Some(ledger.head())) {
        return Err(ClientError::config("data.ledger", format!("{path} exists already: a data set has one ledger for ever")));
    }
    let ledger = ledger.begun_in(place)?;
    let identity = ledger.identity();
    output.object(
        || json!({"data": identity.data, "unit": identity.unit, "relation": identity.relation, "ledger": private.ledger}),
        || {
            format!(
                "ledger of data set {} (unit {}, {}) made at {path}\nwhere it ends is kept in {}\nback it up together with the identity key {}",
                identity.data,
                name_of(&identity.unit),
                name_of(&identity.relation),
                private.ledger_head.display(),
                config.tls.identity.display()
            )
        },
    );
    Ok(())
}

fn shown(place: &RollbackGuard) -> String {
    place.path().display().to_string()
}

/// Writes the ledger as it is now to a new file, also beside a running client, and verifies that file.
///
/// # Errors
/// No ledger, a file of that name, the disk; what was written is not what was there.
pub fn backup(config: &Config, target: &Path, output: Output) -> Result<()> {
    // What is there is never overwritten; a name that is free may be one of a file that the ledger's database makes and removes.
    if target.symlink_metadata().is_err() {
        outputs::refuse(target).map_err(|e| ClientError::config("output", format!("{}: {e}", target.display())))?;
    }
    let private = config.private()?;
    let key = keys::identity(&config.tls.identity)?;
    let before = ledger::read_only(private, key.clone())?.head();
    file::backup(&private.ledger, target)?;
    let written = Ledger::open(ViewStore::open(target)?, key, private.identity.clone(), private.budget)?;
    // A running client may have gone on meanwhile; it cannot have gone back.
    written.check_witness(before)?;
    let head = written.head();
    output.object(
        || json!({"backup": target, "rows": written.rows().len(), "head": head_json(head)}),
        || {
            format!(
                "{} rows written to {} and verified\nhead  {} {}\nkeep it with the identity key {}, away from this machine; the next row makes it an old copy",
                written.rows().len(),
                target.display(),
                head.seq,
                head.hash,
                config.tls.identity.display()
            )
        },
    );
    Ok(())
}

/// Puts a backup to where the ledger was. The backup must be the latest state that anyone here knows of; `lost` is the operator's word that
/// so many rows are gone for good. What the backup has open is closed: the ledger may have gone on from there, and have sent what it computed.
///
/// # Errors
/// A ledger that is there; a backup that is damaged, of another data set, behind the rollback guard, or behind what a `posterior` says that this site signed; the disk.
pub fn restore(config: &Config, from: &Path, lost: Option<u64>, posterior: Option<&Path>, output: Output) -> Result<()> {
    let private = config.private()?;
    ledger::refuse_links(private)?;
    let key = keys::identity(&config.tls.identity)?;
    let store = ViewStore::open(from)?;
    if store.on_disk() == OnDisk::NotYet {
        return Err(ClientError::InvalidFile { file: from.to_owned(), message: "holds no ledger: name a file of `ledger backup`".into() });
    }
    let backup = Ledger::open(store, key.clone(), private.identity.clone(), private.budget)?;
    let mut place = RollbackGuard::at(&private.ledger_head);
    // Before anything is compared: no one else keeps heads there meanwhile.
    place.claim()?;
    let known = place.head(&key)?;
    let signed = match posterior {
        Some(file) => {
            let document = predict::document(file)?;
            let signed = has_what_was_signed(&backup, config, &document, file)?;
            if signed.is_ok() {
                has_what_was_charged(&backup, config, &document, file)?;
            }
            signed
        }
        None => Ok(()),
    };
    let missing = missing([backup.check_kept(&mut place), signed], lost)?;
    drop(backup);
    let mut closed = None;
    // Before the copy has the ledger's name: no process ever opens it with a reservation that may have been used.
    file::restore(from, &private.ledger, |store| {
        let mut copy = Ledger::open(store, key.clone(), private.identity.clone(), private.budget)?;
        if missing > 0 {
            copy.set_frozen(FreezeState::Frozen)?;
        }
        closed = Some(copy.close_open()?);
        Ok::<_, LedgerError>(())
    })?;
    let opened = Ledger::open(SqliteLedger::open(&private.ledger)?, key, private.identity.clone(), private.budget)?;
    let ledger = if missing > 0 { opened.accept_loss(place)? } else { opened.kept_in(place)? };
    let head = ledger.head();
    let Closed { reservations, plans } = closed.unwrap_or(Closed { reservations: 0, plans: 0 });
    output.object(
        || {
            json!({"ledger": private.ledger, "rows": ledger.rows().len(), "head": head_json(head), "lost": missing, "closed": reservations,
                "closed_plans": plans, "known": known.map(head_json)})
        },
        || {
            let mut text = format!("{} rows at {}\nhead  {} {}", ledger.rows().len(), private.ledger.display(), head.seq, head.hash);
            if plans > 0 {
                text.push_str(&format!(
                    "\n{plans} runs were paid whole in this copy and not over: they stay paid, and visits of theirs in lost rows are paid by that; a \
                     visit that is computed from now on is a new charge"
                ));
            }
            if reservations > 0 {
                text.push_str(&format!(
                    "\n{reservations} visits were charged in this copy and had sent nothing yet: they stay charged and are not computed again, because the \
                     ledger may have gone on and sent them"
                ));
            }
            if missing > 0 {
                text.push_str(&format!(
                    "\n{missing} rows are lost, and a run that began in them is not in this ledger. It is frozen: nothing can be charged. Add up what the \
                     reports of the runs that began since then say for this site, lower [budget] epsilon by it, then `dp-pvi-client budget freeze \
                     --off`. A server that saw a later row goes on refusing this ledger."
                ));
            } else if known.is_none() {
                text.push_str(&format!(
                    "\nnothing was kept in {} about this ledger: make sure that this is its latest backup",
                    private.ledger_head.display()
                ));
            }
            text
        },
    );
    Ok(())
}

/// What to do with another definition of a unit than the ledger's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherUnits {
    /// Refuse it.
    Refuse,
    /// Write it down: the operator says that the units are the same ones.
    Accept,
}

/// How many rows are missing in a copy by the heads that it was compared with, if the operator gives up so many.
///
/// # Errors
/// A copy that is not behind but another one; rows that no one gave up, or another number of them.
fn missing(seen: [std::result::Result<(), LedgerError>; 2], lost: Option<u64>) -> Result<u64> {
    let mut behind: Option<(u64, LedgerError)> = None;
    for refused in seen.into_iter().filter_map(std::result::Result::err) {
        let LedgerError::Behind { kept, here, .. } = refused else { return Err(refused.into()) };
        let rows = kept - here;
        if behind.as_ref().is_none_or(|(most, _)| *most < rows) {
            behind = Some((rows, refused));
        }
    }
    let wrong = |words: String| Err(ClientError::config("--lose-rows", words));
    match (behind, lost) {
        (None, None | Some(0)) => Ok(0),
        (None, Some(_)) => wrong("nothing is missing in this copy: leave the option away".into()),
        (Some((_, refused)), None) => Err(refused.into()),
        (Some((rows, _)), Some(lost)) if rows == lost => Ok(lost),
        (Some((rows, _)), Some(_)) => wrong(format!("{rows} rows are missing in this copy: say {rows} if they are lost for good")),
    }
}

/// Says what one privacy unit is by the ledger and by the schema.
///
/// # Errors
/// They differ and `other` refuses that; the schema, the ledger.
pub fn units(config: &Config, other: OtherUnits, output: Output) -> Result<()> {
    let private = config.private()?;
    let key = keys::identity(&config.tls.identity)?;
    let now = unit_in_words(config, &LocalSchema::read(&config.data.schema)?)?;
    let ledger = match other {
        OtherUnits::Refuse => {
            let ledger = ledger::read_only(private, key)?;
            ledger.check_units(&now)?;
            ledger.units().map(str::to_owned)
        }
        OtherUnits::Accept => {
            let mut ledger = ledger::open(private, key, |store| store)?;
            if ledger.units() != Some(&now) {
                ledger.accept_units(&now)?;
            }
            ledger.units().map(str::to_owned)
        }
    };
    output.object(
        || json!({"data": private.identity.data, "ledger": ledger, "schema": now}),
        || {
            let written = if ledger.is_some() { "" } else { " (the ledger says nothing yet: the first charge writes it down)" };
            format!("one privacy unit of {} is {now}{written}", private.identity.data)
        },
    );
    Ok(())
}

/// Verifies every row, digest, signature and attachment, and compares with the server's transcript and with the certificate of its posterior where they are given.
///
/// # Errors
/// [`ClientError::LedgerCorrupt`] for anything that does not fit; [`ClientError::InvalidFile`] for a posterior whose certificate does not hold or is about anything
/// else than this ledger charged, and for a transcript of another run than the posterior's.
pub fn verify(config: &Config, transcript: Option<&Path>, posterior: Option<&Path>, output: Output) -> Result<()> {
    let private = config.private()?;
    let mut ledger = ledger::read_only(private, keys::identity(&config.tls.identity)?)?;
    let releases: Vec<ReleaseId> = view::charges(ledger.rows())?.into_iter().map(|(release, _)| release.clone()).collect();
    let mut attachments = 0;
    for release in &releases {
        if ledger.message(release)?.is_some() {
            attachments += 1;
        }
    }
    if let Some((transcript, posterior)) = transcript.zip(posterior) {
        are_of_one_run(transcript, &predict::document(posterior)?, &config.site.name)?;
    }
    let compared = transcript.map(|file| compare(&mut ledger, &releases, config, file)).transpose()?;
    let proved = posterior.map(|file| certified(&ledger, config, file)).transpose()?;
    let head = ledger.head();
    output.object(
        || {
            json!({
                "ok": true,
                "rows": ledger.rows().len(),
                "releases": releases.len(),
                "attachments": attachments,
                "head": head_json(head),
                "compared_with_transcript": compared,
                "posterior": proved.as_ref().map(|(proved, without)| json!({
                    "without": without,
                    "task": proved.run.task.to_string(),
                    "run": proved.run.number,
                    "epsilon": proved.epsilon,
                    "fallback_epsilon": match &proved.fallback {
                        Some(Fallback::Proved(epsilon)) => Some(epsilon),
                        Some(Fallback::Unproved { .. }) | None => None,
                    },
                    "fallback_unproved": match &proved.fallback {
                        Some(Fallback::Unproved { why, .. }) => Some(why),
                        Some(Fallback::Proved(_)) | None => None,
                    },
                    "delta": proved.delta,
                    "charges": proved.charges,
                })),
            })
        },
        || {
            let mut text = format!(
                "ok: {} rows, {} releases, {attachments} stored updates\nhead  {} {}",
                ledger.rows().len(),
                releases.len(),
                head.seq,
                head.hash
            );
            if let Some(count) = compared {
                text.push_str(&format!("\ntranscript: {count} included updates of this site, the same on both sides"));
            }
            if let Some((proved, without)) = &proved {
                text.push_str(&format!(
                    "\nposterior: run {}, {} charges of this site; the certificate proves epsilon {} at delta {:e}",
                    proved.run.number,
                    proved.charges,
                    epsilon(proved.epsilon),
                    proved.delta
                ));
                text.push_str(&fallback_line(proved));
                text.extend(without.as_ref().map(|without| without_line(without, &config.site.name)));
            }
            text
        },
    );
    Ok(())
}

/// Whether a transcript is that of a posterior's run. Each of two files of different runs may fit the ledger, which has both runs.
fn are_of_one_run(transcript: &Path, posterior: &PosteriorDocument, site: &ClientId) -> Result<()> {
    let differs = |words: String| {
        let message = format!("{words}: give the posterior and the transcript of one run (`dp-pvi-server export --transcript`)").into();
        Err(ClientError::InvalidFile { file: transcript.to_owned(), message })
    };
    let lines = lines(transcript)?;
    for line in &lines {
        if line["task"] != posterior.task_hash.as_str() {
            return differs("is of another task than the posterior".into());
        }
        if line["run"] != posterior.run {
            return differs(format!("is of run {}, and the posterior of run {}", visible(&line["run"].to_string()), posterior.run));
        }
    }
    let rounds = lines.iter().filter(|line| line.get("included").is_some()).count();
    if u32::try_from(rounds) != Ok(posterior.rounds) {
        return differs(format!("has {rounds} rounds, and the posterior {}", posterior.rounds));
    }
    let answered = lines.last().and_then(|end| end["answered"][site.as_str()].as_u64());
    let stated = posterior.privacy.iter().find(|statement| statement.site == *site).map(|statement| u64::from(statement.releases));
    match answered.zip(stated) {
        Some((answered, stated)) if answered != stated => {
            differs(format!("says that this site answered {answered} visits, and the posterior {stated}"))
        }
        _ => Ok(()),
    }
}

/// What is known of a run's fallback ε; nothing under local trust.
fn fallback_line(proved: &Checked) -> String {
    match &proved.fallback {
        None => String::new(),
        Some(Fallback::Proved(worst)) => format!(
            "\nfallback: if all others work together, the second certificate proves epsilon {} at delta {:e}",
            epsilon(*worst),
            proved.delta
        ),
        Some(Fallback::Unproved { epsilon: Some(worst), why }) => format!(
            "\nfallback: if all others work together, epsilon is {} by this program's accountant; no certificate proves it ({why})",
            epsilon(*worst)
        ),
        Some(Fallback::Unproved { epsilon: None, why }) => {
            format!("\nfallback: if all others work together, nothing is promised ({why})")
        }
    }
}

/// What the certificate of a posterior proves, if that is what this ledger charged.
fn certified(ledger: &LedgerView, config: &Config, file: &Path) -> Result<(Checked, Option<Without>)> {
    let document = predict::document(file)?;
    // First: an old copy of a ledger does not know what it charged.
    has_what_was_signed(ledger, config, &document, file)??;
    let invalid = |e| ClientError::InvalidFile { file: file.to_owned(), message: Problem::of(e) };
    let checked = document.check_certificates(&config.site.name, ledger.rows()).map_err(invalid)?;
    document.check_rows(&config.site.name, &snapshot::declared(config)?).map_err(invalid)?;
    Ok((checked, document.without))
}

/// Whether a ledger has the row that this site signed in a run, by the run's posterior: what the rollback guard says, from a place that no one lost.
fn has_what_was_signed(
    ledger: &LedgerView,
    config: &Config,
    document: &PosteriorDocument,
    file: &Path,
) -> Result<std::result::Result<(), LedgerError>> {
    let key = keys::identity(&config.tls.identity)?.verifying_key();
    let invalid = |words: String| ClientError::InvalidFile { file: file.to_owned(), message: words.into() };
    let Some(head) = document.witnessed(&config.site.name, &key) else {
        let Some(statement) = document.privacy.iter().find(|statement| statement.site == config.site.name) else { return Ok(Ok(())) };
        if statement.witness.is_some() {
            return Err(invalid(format!(
                "says where the ledger of {} ended, and this site's key did not sign that: get the file from the coordinator again",
                visible(config.site.name.as_str())
            )));
        }
        tracing::warn!(
            "{}: nothing in it says where this site's ledger ended, so it cannot show that rows after the run's charge are missing",
            file.display()
        );
        return Ok(Ok(()));
    };
    let place = file.display().to_string();
    Ok(ledger.check_witness(head).map_err(|error| match error {
        LedgerError::RolledBack { witnessed: kept, here } => LedgerError::Behind { kept, here, place },
        LedgerError::Forked { seq: kept } => LedgerError::Apart { kept, place },
        other => other,
    }))
}

/// Whether a copy has the charge of a run in which this site answered, by the run's posterior.
fn has_what_was_charged(ledger: &LedgerView, config: &Config, document: &PosteriorDocument, file: &Path) -> Result<()> {
    let Some(statement) = document.privacy.iter().find(|statement| statement.site == config.site.name) else { return Ok(()) };
    let invalid = |words: &str| ClientError::InvalidFile { file: file.to_owned(), message: words.to_owned().into() };
    let task = document.task_hash.parse().map_err(|_| invalid("has no hash of a task"))?;
    let run = RunId { task, number: document.run };
    if statement.releases == 0 || view::planned_runs(ledger.rows()).any(|planned| planned == run) {
        return Ok(());
    }
    Err(ClientError::LedgerCorrupt(
        format!(
            "{}: this site answered {} visits of run {}, and the ledger has no charge for that run: it is an older copy; restore a newer one",
            file.display(),
            statement.releases,
            run.number
        )
        .into(),
    ))
}

/// What a posterior is from which a site was divided out, and what of it a ledger can say.
fn without_line(without: &Without, site: &ClientId) -> String {
    let charges =
        if without.site == *site { "this site was divided out, and its charges stay" } else { "this site is in it as in the whole run" };
    format!(
        "\nwithout: the file is the run's posterior without {}; task, run and certificate are those of the whole run and were checked as such ({charges}). That its \
         coefficients lack {} cannot be seen from this ledger: the server computed them from what all sites had sent",
        visible(without.site.as_str()),
        visible(without.site.as_str()),
    )
}

/// One round of an exported transcript, as far as it is compared.
#[derive(serde::Deserialize)]
struct Round {
    task: String,
    run: u32,
    round: u32,
    /// Rounds by which an update may be late; none where rounds wait for all that were asked.
    max_staleness: Option<u32>,
    included: Vec<Included>,
}

#[derive(serde::Deserialize)]
struct Included {
    client: String,
    update: String,
}

/// Every update that the server says it included must be one that this ledger committed, byte for byte; and every one that the
/// ledger was told is included must be there. In an asynchronous run a round takes answers to the headers of earlier rounds too, as far back as
/// the transcript says.
fn compare(ledger: &mut LedgerView, releases: &[ReleaseId], config: &Config, file: &Path) -> Result<usize> {
    let invalid = |message: Problem| ClientError::InvalidFile { file: file.to_owned(), message };
    let rounds = lines(file)?.into_iter().filter(|line| line.get("included").is_some()).map(serde_json::from_value);
    let rounds: Vec<Round> = rounds.collect::<std::result::Result<_, _>>().map_err(|e| no_transcript(file, e))?;
    // The round that an update entered and how late it may be, by run and hash.
    let mut theirs = BTreeMap::new();
    let mut runs = BTreeSet::new();
    for Round { task, run, round, max_staleness, included } in rounds {
        let task = task.parse().map_err(|_| invalid("a task hash cannot be read".into()))?;
        let run = RunId { task, number: run };
        runs.insert(run);
        for included in included.into_iter().filter(|i| i.client == config.site.name.as_str()) {
            let hash: Hash = included.update.parse().map_err(|_| invalid("an update's hash cannot be read".into()))?;
            if theirs.insert((run, hash), (round, max_staleness.unwrap_or(0))).is_some() {
                return Err(ClientError::LedgerCorrupt(
                    format!("the transcript includes one update twice, the second time in round {round}").into(),
                ));
            }
        }
    }
    let mut compared = 0;
    // A transcript is about one run; the ledger is about all runs on this data set.
    for release in releases.iter().filter(|release| runs.contains(&release.run)) {
        let own = release.round;
        let hash = ledger.message(release)?.map(|message| update_hash(&message)).transpose()?;
        let listed = hash.and_then(|hash| theirs.remove(&(release.run, hash)));
        let differs = |problem: String| Err(ClientError::LedgerCorrupt(problem.into()));
        match (listed, ledger.state(release)) {
            (None, Some(ReleaseState::Settled { included: true })) => {
                if theirs.iter().any(|((run, _), (round, _))| *run == release.run && *round == own) {
                    return differs(format!("round {own}: the transcript includes another update than the stored one"));
                }
                return differs(format!("round {own} was included by this ledger, not by the transcript"));
            }
            (None, _) => {}
            (Some((round, _)), Some(ReleaseState::Settled { included: false })) => {
                return differs(format!("the transcript includes in round {round} the update of round {own}, which was excluded"));
            }
            (Some((round, late)), _) if round < own || round - own > late => {
                return differs(format!("the transcript includes in round {round} the update of round {own}, which does not belong there"));
            }
            (Some(_), _) => compared += 1,
        }
    }
    match theirs.values().next() {
        None => Ok(compared),
        Some((round, _)) => Err(ClientError::LedgerCorrupt(
            format!("the transcript includes in round {round} an update that this ledger never released").into(),
        )),
    }
}

/// The lines of an exported transcript.
fn lines(file: &Path) -> Result<Vec<Value>> {
    let unread = |e| ClientError::InvalidFile { file: file.to_owned(), message: Problem::said(format!("cannot be read ({e})"), e) };
    let text = std::fs::read_to_string(file).map_err(unread)?;
    serde_json::Deserializer::from_str(&text).into_iter().collect::<std::result::Result<_, _>>().map_err(|e| no_transcript(file, e))
}

fn no_transcript(file: &Path, e: serde_json::Error) -> ClientError {
    let words = format!("is not a transcript as `dp-pvi-server export --transcript` writes it ({e})");
    ClientError::InvalidFile { file: file.to_owned(), message: Problem::said(words, e) }
}

/// Hash of a stored update.
fn update_hash(message: &[u8]) -> Result<Hash> {
    let update = Signed::<Update>::from_bytes(message).map_err(|e| ClientError::LedgerCorrupt(Problem::of(e)))?;
    Ok(update.hash())
}

/// Prints every row with the certified ε of everything that was charged up to it, at the ledger's δ.
///
/// # Errors
/// The ledger.
pub fn show(config: &Config, output: Output) -> Result<()> {
    let private = config.private()?;
    let ledger = ledger::read_only(private, keys::identity(&config.tls.identity)?)?;
    let delta = ledger.budget().delta;
    for ((row, hash), reading) in ledger.rows().iter().zip(ledger.cumulative_losses()?) {
        output.object(
            || {
                let mut value = row_json(row, *hash);
                value["epsilon"] = json_number(reading.epsilon.get());
                value["delta"] = json!(delta);
                value
            },
            || format!("{:6}  {:60}  epsilon {} at delta {:e}", row.seq, row_text(row), epsilon(reading.epsilon.get()), delta.get()),
        );
    }
    Ok(())
}

/// A row in a few words.
fn row_text(row: &Row) -> String {
    let of_run = |what: &str, run: &RunId| {
        let task = run.task.to_string();
        format!("{what} task {task:.12} run {}", run.number)
    };
    let of = |what: &str, release: &ReleaseId| format!("{} round {}", of_run(what, &release.run), release.round);
    match &row.body {
        RowBody::Genesis(identity) => format!("begins for {}", identity.data),
        RowBody::Reserved { release, .. } => of("reserved", release),
        RowBody::Planned { run, joint, .. } => {
            let visits: u64 = joint.events.iter().map(|(_, visits)| *visits).sum();
            format!("{}: {visits} visits", of_run("charged", run))
        }
        RowBody::Retried { release } => of("retried", release),
        RowBody::Committed { release, .. } => of("committed", release),
        RowBody::Sent { release } => of("sent", release),
        RowBody::Receipted { release, .. } => of("receipted", release),
        RowBody::Settled { release, included: true, .. } => of("included", release),
        RowBody::Settled { release, included: false, .. } => of("excluded", release),
        RowBody::Frozen(FreezeState::Frozen) => "frozen".to_owned(),
        RowBody::Frozen(FreezeState::Open) => "opened".to_owned(),
        RowBody::Units(words) => format!("a unit is {words}"),
        RowBody::Restored => "put back from a copy: plans before it have no visit left".to_owned(),
        RowBody::Renounced { run } => of_run("renounced: what is left of", run),
        RowBody::Records { run, .. } => of_run("records of", run),
    }
}

/// Writes all rows to stdout: one JSON object a line in both formats.
///
/// # Errors
/// The ledger.
pub fn export(config: &Config, output: Output) -> Result<()> {
    let private = config.private()?;
    let ledger = ledger::read_only(private, keys::identity(&config.tls.identity)?)?;
    for (row, hash) in ledger.rows() {
        output.json_line(&row_json(row, *hash));
    }
    Ok(())
}

fn row_json(row: &Row, hash: Hash) -> Value {
    let (kind, release, more) = match &row.body {
        RowBody::Genesis(identity) => {
            ("genesis", None, json!({"data": identity.data, "unit": identity.unit, "relation": identity.relation}))
        }
        RowBody::Reserved { release, event, header, fallback } => {
            let parsed = |bytes: &[u8]| DpEvent::from_bytes(bytes).map(|e| event_json(&e)).ok();
            let mut more = json!({"event": parsed(event), "event_bytes": hex::encode(event), "header": header.to_string()});
            if let Some(fallback) = fallback {
                more["fallback"] = json!(parsed(fallback));
                more["fallback_bytes"] = json!(hex::encode(fallback));
            }
            ("reserved", Some(release), more)
        }
        RowBody::Planned { run, delta, joint, fallback } => {
            let planned = |planned: &PlannedEvents| {
                let events = planned.events.iter().map(|(bytes, visits)| {
                    json!({"event": DpEvent::from_bytes(bytes).map(|e| event_json(&e)).ok(), "event_bytes": hex::encode(bytes), "visits": visits})
                });
                let envelope = planned.envelope.map(|(mu_squared, failure)| json!({"mu_squared": mu_squared, "failure": failure}));
                json!({"events": events.collect::<Vec<_>>(), "envelope": envelope})
            };
            let mut more = json!({"task": run.task.to_string(), "run": run.number, "delta": delta, "plan": planned(joint)});
            if let Some(fallback) = fallback {
                more["fallback"] = planned(fallback);
            }
            ("planned", None, more)
        }
        RowBody::Retried { release } => ("retried", Some(release), json!({})),
        RowBody::Committed { release, attachment } => ("committed", Some(release), json!({"attachment": attachment.to_string()})),
        RowBody::Sent { release } => ("sent", Some(release), json!({})),
        RowBody::Receipted { release, receipt } => ("receipted", Some(release), json!({"receipt": receipt.to_string()})),
        RowBody::Settled { release, included, factor } => {
            ("settled", Some(release), json!({"included": included, "factor": factor.to_string()}))
        }
        RowBody::Renounced { run } => ("renounced", None, json!({"task": run.task.to_string(), "run": run.number})),
        RowBody::Records { run, of } => ("records", None, json!({"task": run.task.to_string(), "run": run.number, "of": of.to_string()})),
        RowBody::Frozen(state) => ("frozen", None, json!({"state": format!("{state:?}").to_lowercase()})),
        RowBody::Units(words) => ("units", None, json!({"unit": words})),
        RowBody::Restored => ("restored", None, json!({})),
    };
    let mut value = json!({"seq": row.seq, "hash": hash.to_string(), "previous": row.previous.to_string(), "kind": kind});
    if let (Some(object), Value::Object(more)) = (value.as_object_mut(), more) {
        object.extend(more);
        if let Some(release) = release {
            object.insert(
                "release".into(),
                json!({"task": release.run.task.to_string(), "run": release.run.number, "client": release.client, "round": release.round}),
            );
        }
    }
    value
}

/// An event as JSON. Bounds are integers beyond 2⁶⁴, which JSON readers round: they are written as text.
fn event_json(event: &DpEvent) -> Value {
    match event {
        DpEvent::NonPrivate => json!({"kind": "non-private"}),
        DpEvent::Gaussian { noise, terms } => json!({"kind": "gaussian", "noise_multiplier": noise, "terms": terms}),
        DpEvent::DiscreteGaussian(mechanism) => json!({
            "kind": "discrete-gaussian",
            "exponent": mechanism.exponent,
            "scale": mechanism.scale.to_string(),
            "bound_squared": mechanism.bound_squared.to_string(),
            "excess": mechanism.excess.to_string(),
            "dimension": mechanism.dimension,
            "terms": mechanism.terms,
            "path": mechanism.path,
        }),
        DpEvent::PoissonSampled { rate, event } => json!({"kind": "poisson-sampled", "rate": rate.get(), "event": event_json(event)}),
        DpEvent::Composed { event, count } => json!({"kind": "composed", "count": count, "event": event_json(event)}),
        DpEvent::Laplace { scale, terms } => json!({"kind": "laplace", "scale": scale, "terms": terms}),
        DpEvent::Zcdp { rho } => json!({"kind": "zcdp", "rho": rho}),
        DpEvent::Approximate { epsilon, delta } => json!({"kind": "approximate", "epsilon": epsilon, "delta": delta}),
        DpEvent::NoiseShares { share, count } => {
            json!({"kind": "noise-shares", "count": count, "share": event_json(&DpEvent::DiscreteGaussian(*share))})
        }
        DpEvent::FixedBatch { batch, units, event } => {
            json!({"kind": "fixed-batch", "batch": batch, "units": units, "event": event_json(event)})
        }
        DpEvent::ShuffledPass { event } => json!({"kind": "shuffled-pass", "event": event_json(event)}),
        DpEvent::RandomAllocation { batches, event } => {
            json!({"kind": "random-allocation", "batches": batches, "event": event_json(event)})
        }
    }
}
