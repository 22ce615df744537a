//! Data on stdout: for people, or one JSON object a line.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dp_pvi_accounting::unit::rounded_up;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::text::{visible, visible_json};
use dp_pvi_results::account::Question;
use dp_pvi_results::coefficients::Coefficients;
use dp_pvi_results::forecast::ForecastResult;
use dp_pvi_results::forecast::rounds::Candidate;
use serde_json::json;

use super::TaskSummary;
use crate::ca::Enrolled;
use crate::clock::{self, rfc3339};
use crate::engine::{Event, Snapshot};
use crate::error::name_of;
use crate::error::{Result, ServerError};
use crate::summer::config::SummerConfig;
use crate::summer::{self, RequestFiles};
use crate::tls::Credentials;

/// Standard output took no more.
pub(super) fn not_written(error: std::io::Error) -> ServerError {
    let message =
        format!("results are lost, standard output took no more ({error}): make room there, or write somewhere else, and ask again");
    ServerError::Unavailable(Problem::said(message, error))
}

/// Whether output of a run was lost because standard output took no more. The run goes on and reports it at its end.
#[derive(Debug, Clone, Default)]
pub(super) struct LostOutput(Arc<Mutex<Option<ServerError>>>);

impl LostOutput {
    /// Notes what became of an event. A reader that went away has lost nothing: what it would have read is in the log and in the store.
    pub(super) fn note(&self, written: Result<()>) {
        if let Err(problem @ ServerError::Unavailable(_)) = written {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(problem);
        }
    }

    /// How the run ended, or what was lost of one that ended well.
    pub(super) fn after(&self, ended: Result<()>) -> Result<()> {
        ended?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take().map_or(Ok(()), Err)
    }
}

/// Where data goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Output {
    json: bool,
}

impl Output {
    pub(super) fn new(json: bool) -> Self {
        Self { json }
    }

    /// Writes bytes as they are.
    pub(super) fn raw(self, bytes: &[u8]) -> Result<()> {
        let mut stdout = std::io::stdout().lock();
        match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
            // A reader that has seen enough (`| head`).
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(not_written(error)),
            _ => Ok(()),
        }
    }

    /// The answer to a question.
    pub(super) fn question(self, question: &Question, config: &Path) -> Result<()> {
        // An answer needs no configuration; what is named by one that is there stays.
        if let Err(error) = crate::config::Config::load(config)
            && question.writes()
            && config.exists()
        {
            return Err(error);
        }
        question.reads().into_iter().for_each(dp_pvi_programs::outputs::needs);
        let mut answer = Vec::new();
        let answered = question.answer(&mut answer, self.json, dp_pvi_programs::outputs::write);
        self.raw(&answer)?;
        Ok(answered?)
    }

    fn line(self, text: &str) -> Result<()> {
        self.raw(format!("{text}\n").as_bytes())
    }

    fn value(self, value: &impl serde::Serialize) -> Result<()> {
        self.line(&visible_json(&serde_json::to_string(value).map_err(|e| ServerError::Failed(Problem::of(e)))?))
    }

    /// What happened, on one line, with the time.
    fn news(self, text: &str) -> Result<()> {
        self.line(&format!("{} {}", rfc3339(clock::date(clock::now())), visible(text)))
    }

    /// A state that this program reads.
    pub(super) fn state(self, database: &Path, version: i32) -> Result<()> {
        if self.json {
            return self.value(&json!({"state": database, "version": version, "readable": true}));
        }
        self.line(&format!("{} is of version {version}, which this server reads: nothing to do", database.display()))
    }

    /// What is left of a damaged log.
    pub(super) fn cut(self, round: u32, kept: &Path) -> Result<()> {
        if self.json {
            return self.value(&json!({"last_closed_round": round, "damaged_log": kept}));
        }
        self.line(&format!(
            "the state ends with round {round} now; the damaged log is kept as {}\n`dp-pvi-server export` writes the posterior of that round. Sites refuse \
             rounds that they have paid for already: end this run with `run` and `stop`, then start another one with `run --new-run`",
            kept.display()
        ))
    }

    /// An event of a run.
    pub(super) fn event(self, event: &Event) -> Result<()> {
        if self.json {
            return self.value(event);
        }
        let text = match event {
            Event::Listening { address, http: Some(http) } => format!("listening on {address}, status page on http://{http}/"),
            Event::Listening { address, http: None } => format!("listening on {address}"),
            Event::Joined { client, role } => format!("{client} joined ({role:?})").to_lowercase(),
            Event::Summer { state } => format!("the summer: {state:?}").to_lowercase(),
            Event::SummerRefused { reason } => format!("the summer refused for good: {reason}"),
            Event::CharterDrafted { charter } => format!("the charter {charter} waits for the signatures of all parties"),
            Event::RoundOpened { round, turn: Some(turn), .. } => format!("round {round}: {turn}'s turn"),
            Event::RoundOpened { round, turn: None, .. } => format!("round {round}: open"),
            Event::RoundClosed { round, outcome, included } => {
                let names: Vec<&str> = included.iter().map(dp_pvi_names::ClientId::as_str).collect();
                format!(
                    "round {round}: closed ({}) with {}",
                    name_of(outcome),
                    if names.is_empty() { "nobody".into() } else { names.join(", ") }
                )
            }
            Event::Refused { client, round, reason } => format!("round {round}: {client} sends no update ({})", name_of(reason)),
            Event::NotTaken { client, round, reason } => format!("round {round}: the update of {client} is not taken: {reason}"),
            Event::Metrics { client, round, log_likelihood, accuracy } => {
                let accuracy = accuracy.map_or_else(String::new, |a| format!(", accuracy {a:.4}"));
                let likelihood = if log_likelihood.is_finite() { format!("{log_likelihood:.4}") } else { "not finite".to_owned() };
                format!("after {round} rounds, {client}: log-likelihood {likelihood}{accuracy}")
            }
            Event::Control { state } => format!("the operator changed the run: {state:?}").to_lowercase(),
            Event::Suspended { waiting_for, ends_in_seconds } => {
                let names: Vec<&str> = waiting_for.iter().map(dp_pvi_names::ClientId::as_str).collect();
                let whom = if names.is_empty() { "the summer".into() } else { names.join(", ") };
                let ends_in = humantime::format_duration(Duration::from_secs(*ends_in_seconds));
                format!("suspended: too few answer; waiting for {whom}, for at most {ends_in}")
            }
            Event::Resumed => "the run goes on".into(),
            Event::RunEnded { outcome, reason: None } => format!("the run is over: {}", name_of(outcome)),
            Event::RunEnded { outcome, reason: Some(reason) } => format!("the run is over: {} ({reason})", name_of(outcome)),
            Event::Exported { posterior, report } => format!("results written: {posterior}, {report}"),
        };
        self.news(&text)
    }

    /// Files that a command wrote.
    pub(super) fn files(self, what: &str, files: &[PathBuf]) -> Result<()> {
        let names: Vec<String> = files.iter().map(|file| Path::display(file).to_string()).collect();
        if self.json { self.value(&json!({ "what": what, "files": names })) } else { self.line(&format!("{what}: {}", names.join(", "))) }
    }

    /// Where a run stands.
    pub(super) fn snapshot(self, snapshot: &Snapshot) -> Result<()> {
        if self.json {
            return self.value(snapshot);
        }
        let mut text = format!(
            "task       {} (sha256:{})\nrun        {}\nstage      {}\nrounds     {}\n",
            visible(&snapshot.task),
            snapshot.task_hash,
            snapshot.run,
            snapshot.stage,
            snapshot.progress()
        );
        if snapshot.paused {
            text += "paused     by an operator: no round opens until `dp-pvi-server resume`\n";
        }
        if let Some(outcome) = snapshot.outcome {
            text += &format!("outcome    {}\n", name_of(&outcome));
        }
        if let Some(convergence) = &snapshot.convergence {
            text += &format!("{:<10} {}\n", "distance", visible(&convergence.text()));
        }
        if let Some(reason) = &snapshot.reason {
            text += &format!("{:<10} {}\n", "reason", visible(reason));
        }
        if let Some(whom) = snapshot.waits_for() {
            let what = if snapshot.stage == "suspended" { "the run ends" } else { "closes" };
            let until = snapshot.deadline_in_seconds.map_or_else(String::new, |seconds| format!(" ({what} in at most {seconds} s)"));
            text += &format!("waiting    for {whom}{until}\n");
        }
        if let Some(summer) = &snapshot.summer {
            text += &format!("{:<10} {}\n", "summer", summer.text());
        }
        for member in &snapshot.members {
            text += &format!("{:<10} {} ({}): {}\n", "member", member.client, name_of(&member.role), member.state());
        }
        for (client, role) in &snapshot.absent {
            text += &format!("{:<10} {client} ({}): enrolled, has not joined\n", "absent", name_of(role));
        }
        for (client, hello) in &snapshot.refused_hellos {
            let (reason, ago) = (visible(&hello.reason), humantime::format_duration(Duration::from_secs(hello.seconds_ago)));
            text +=
                &format!("{:<10} {client}: its hello was refused {} times in a row, last {ago} ago: {reason}\n", "refused", hello.times);
        }
        for warning in &snapshot.warnings {
            text += &format!("{:<10} {}\n", "warning", visible(warning));
        }
        self.raw(text.as_bytes())
    }

    /// What `check` found. A task that was written to a file is not shown to people as well.
    #[allow(clippy::too_many_arguments, reason = "one place, one caller: what `check` found")]
    pub(super) fn check(
        self,
        summary: &TaskSummary,
        task: &ResolvedTask,
        file: Option<&Path>,
        tried: &[Candidate],
        credentials: &Credentials,
        warnings: &[String],
        predicted: Option<&ForecastResult>,
    ) -> Result<()> {
        let clients = credentials.enrolled.clients.iter().filter(|(_, member)| member.revoked.is_none());
        let reach = task.reach().ok().flatten();
        if self.json {
            let names: Vec<_> = clients.map(|(client, member)| json!({ "client": client, "role": member.role })).collect();
            return self.value(&json!({
                "task_hash": summary.hash,
                "epsilon": if summary.epsilon.is_finite() { Some(summary.epsilon) } else { None },
                "epsilon_fallback": summary.fallback,
                "delta": summary.delta,
                "visits": summary.visits,
                "rounds_tried": tried,
                "clients": names,
                "warnings": warnings,
                "certificate_expires": rfc3339(credentials.expires.certificate),
                "revocation_list_expires": rfc3339(credentials.expires.revocation_list),
                "authority_expires": rfc3339(credentials.expires.authority),
                "forecast": predicted,
                "predictor": reach.map(|reach| json!({"range": reach.range(), "offset": reach.offset, "spread": reach.spread})),
                "design": Coefficients::of(task).map(|coefficients| coefficients.json()),
                "task": task,
            }));
        }
        let design = Coefficients::of(task).map(|coefficients| coefficients.text()).unwrap_or_default();
        let fallback =
            summary.fallback.map(|epsilon| format!("if all others collude     epsilon {}\n", rounded_up(epsilon, 6))).unwrap_or_default();
        let epsilon = if summary.epsilon.is_finite() { rounded_up(summary.epsilon, 6) } else { "infinite: no protection".into() };
        let names: Vec<&str> = clients.map(|(client, _)| client.as_str()).collect();
        let warnings: String = warnings.iter().map(|warning| format!("warning                   {}\n", visible(warning))).collect();
        let tried: Vec<String> = tried.iter().map(|c| format!("{} (width {:.3}, distance {:.2})", c.rounds, c.width, c.distance)).collect();
        let tried = if tried.is_empty() {
            String::new()
        } else {
            format!("rounds                    {}, chosen from {}\n", summary.visits, tried.join(", "))
        };
        let reach = reach.map(|reach| format!("predictor                 {}\n", reach.text())).unwrap_or_default();
        let shown = match file {
            Some(file) => format!("task                      written to {}", visible(&file.display().to_string())),
            None => visible_json(&String::from_utf8_lossy(&task.to_bytes())).into_owned(),
        };
        let text = format!(
            "{shown}\ntask hash                 sha256:{}\ncost of the run per site  epsilon {epsilon} at delta {} ({} releases)\n{tried}{fallback}\
             enrolled                  {}\nserver certificate until  {}\nrevocation list until     {}\n{warnings}{reach}{design}{}",
            summary.hash,
            summary.delta,
            summary.visits,
            if names.is_empty() { "nobody yet".into() } else { names.join(", ") },
            rfc3339(credentials.expires.certificate),
            rfc3339(credentials.expires.revocation_list),
            predicted.map(ForecastResult::text).unwrap_or_default(),
        );
        self.raw(text.as_bytes())
    }

    /// What `summer csr` wrote.
    pub(super) fn summer_request(self, files: &RequestFiles) -> Result<()> {
        let name = |file: &Path| file.display().to_string();
        if self.json {
            return self.value(&json!({
                "request": name(&files.request),
                "public_identity": name(&files.public_identity),
                "tls_key": name(&files.tls_key),
                "identity": name(&files.identity),
                "fingerprint": files.fingerprint,
            }));
        }
        self.raw(
            format!(
                "to the coordinator    {} (`dp-pvi-server ca sign`)\nto every site, not by the coordinator's hands  {}\n\
                 fingerprint of that   {}\nstays here            {}, {}\n",
                name(&files.request),
                name(&files.public_identity),
                files.fingerprint,
                name(&files.tls_key),
                name(&files.identity),
            )
            .as_bytes(),
        )
    }

    /// What `summer check` found.
    pub(super) fn summer_check(self, config: &SummerConfig, credentials: &summer::Credentials) -> Result<()> {
        let (server, expires) = (credentials.address(), rfc3339(credentials.expires));
        if self.json {
            return self.value(&json!({
                "name": config.name,
                "federation": config.federation,
                "server": server,
                "fingerprint": credentials.fingerprint(),
                "certificate_expires": expires,
                "vault": config.vault,
            }));
        }
        let text = format!(
            "summer                {} of {}\nserver                {server}\nfingerprint           {}\ncertificate until     {expires}\n\
             keys of open rounds   {}\n",
            config.name,
            config.federation,
            credentials.fingerprint(),
            config.vault.display(),
        );
        self.raw(text.as_bytes())
    }

    /// An event of a summer.
    pub(super) fn summer_event(self, event: &summer::Event) -> Result<()> {
        if self.json {
            return self.value(event);
        }
        self.news(&match event {
            summer::Event::Connected { server } => format!("connected to {server}"),
            summer::Event::CharterSigned { charter, run, sites, min_contributors } => {
                let names: Vec<&str> = sites.iter().map(dp_pvi_names::ClientId::as_str).collect();
                format!("charter {charter} of run {run} signed: {}; at least {min_contributors} in a sum", names.join(", "))
            }
            summer::Event::RoundClosed { round, contributors } => format!("round {round}: closed over {contributors} sites"),
            summer::Event::Refused { reason } => format!("refused: {reason}"),
            summer::Event::RunEnded { outcome } => format!("the run is over: {outcome:?}"),
        })
    }

    /// Enrolled names.
    pub(super) fn enrolled(self, enrolled: &Enrolled) -> Result<()> {
        for (client, member) in &enrolled.clients {
            let expires = member.certificates.last().map_or("–", |certificate| certificate.expires.as_str());
            let identity = hex::encode(member.identity);
            if self.json {
                self.value(&json!({
                    "client": client,
                    "role": member.role,
                    "identity": identity,
                    "revoked": member.revoked,
                    "certificates": member.certificates,
                }))?;
            } else {
                let state = member.revoked.as_ref().map_or_else(|| format!("valid until {expires}"), |at| format!("revoked {at}"));
                self.line(&format!("{client} ({:?}) {state} identity {identity}", member.role))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_run_whose_events_were_lost_says_so_at_its_end() {
        let (written, full) = (|| Ok(()), || Err(not_written(ErrorKind::StorageFull.into())));
        let untold = LostOutput::default();
        untold.note(written());
        untold.after(Ok(())).unwrap();
        untold.note(full());
        untold.note(written());
        assert_eq!(untold.after(Err(ServerError::Signal(15))).unwrap_err().code(), 143, "how the run ended says more");
        let lost = untold.after(Ok(())).unwrap_err();
        assert!(lost.code() == 12 && lost.to_string().contains("make room"), "{lost}");
    }
}
