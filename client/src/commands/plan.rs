//! `plan`: what the task would cost this data set, before anything runs.

use std::path::Path;

use dp_pvi_accounting::{DpEvent, PrivacyUnit};
use dp_pvi_accounting::{PrivacyLoss, epsilon_upper};
use dp_pvi_names::RunId;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_privacy::ledger::{FreezeState, LedgerError};
use dp_pvi_programs::ledger::OnDisk;
use dp_pvi_programs::problem::Problem;
use dp_pvi_protocol::message::{Hello, Intent, PROTOCOL_VERSIONS, Role, Signed};
use dp_pvi_protocol::text::visible;
use dp_pvi_protocol::transport::Transport;
use dp_pvi_results::forecast::{Counted, ForecastResult, counted, sizes};
use serde_json::{Value, json};

use super::view;
use crate::config::{Aggregation, Config, PrivateData};
use crate::error::{ClientError, Result};
use crate::ledger::{LedgerView, look_ahead};
use crate::output::{Output, epsilon, json_number, name_of};
use crate::run::{self, Approval};
use crate::snapshot::LocalSchema;
use crate::transport::GrpcTransport;
use crate::{approvals, keys, screen, tls, train};

/// More further runs than this are not counted.
const MOST_RUNS: u64 = 1000;

/// Prints what a run of the task costs, what is left, and the hash to approve.
///
/// # Errors
/// Server, task, ledger. [`ClientError::Data`], after the plan is printed: with its records as they are, the data set is halted.
pub async fn plan(config: &Config, file: Option<&Path>, (units, sites): (&[u64], Option<u32>), output: Output) -> Result<()> {
    let private = config.private()?;
    let key = keys::identity(&config.tls.identity)?;
    let (ledger, on_disk) = look_ahead(private, key)?;
    let task = match file {
        Some(file) => read_task(file)?,
        None => ask_server(config, private, &ledger).await?,
    };
    if let Err(error) = approvals::saw(&config.site.state, &task.hash()) {
        // Anyone who may only look gets the plan all the same.
        tracing::warn!(error = %error.shown(), "the hash cannot be noted: `approve` needs all of its digits");
    }
    let own = [private.nominal_units];
    let assumed = (units.len() < 2 && sites.is_none())
        .then(|| Assumed { counted: counted(&task), units: units.first().copied().unwrap_or(private.nominal_units) });
    let units = sizes(&task, if units.is_empty() { &own } else { units }, sites)
        .map_err(|e| ClientError::Config { field: "--units".into(), message: Problem::of(e) })?;
    let forecast = ForecastResult::of(&task, &units);
    let mut plan = Plan::new(config, private, &ledger, (task, forecast), assumed)?;
    if on_disk == OnDisk::NotYet {
        plan.objections.push("the data set has no ledger yet: dp-pvi-client ledger create".into());
    }
    let halted = screen::would_admit(config);
    if let Err(words) = &halted {
        plan.objections.push(words.to_string());
    }
    output.object(|| plan.json(), || plan.text());
    halted
}

/// A local copy of the resolved task (`dp-pvi-server check -o FILE` writes it).
fn read_task(file: &Path) -> Result<ResolvedTask> {
    let invalid = |message: Problem| ClientError::InvalidFile { file: file.to_owned(), message };
    let bytes = std::fs::read(file).map_err(|e| invalid(Problem::said(format!("cannot be read ({e})"), e)))?;
    ResolvedTask::from_document(&bytes).map_err(|e| invalid(Problem::of(e)))
}

/// Says hello only to look: the welcome carries the task and the witness, and the server notes nothing.
pub(super) async fn ask_server(config: &Config, private: &PrivateData, ledger: &LedgerView) -> Result<ResolvedTask> {
    let tls = tls::load(config)?;
    let identity = run::identity(config, &tls)?;
    let client = identity.client;
    let hello = Signed::seal(
        &Hello {
            versions: PROTOCOL_VERSIONS.to_vec(),
            federation: identity.federation,
            client: client.clone(),
            role: Role::Site,
            intent: Intent::Observe,
            tls_key: identity.tls_key,
            task: None,
            nominal_units: Some(private.nominal_units),
            ledger: Some((private.identity.unit, private.identity.relation)),
            ledger_head: Some(ledger.head()),
            rows: None,
            software: identity.software,
        },
        &identity.key,
    );
    let mut transport = GrpcTransport::new(&config.site, tls);
    let greeting = transport.hello(&hello).await.map_err(|e| ClientError::from(e).at_server(&config.site.server()))?;
    let welcome = greeting.welcome.open(&identity.server).map_err(|e| ClientError::Authentication(Problem::of(e)))?;
    if welcome.hello != hello.hash() {
        return Err(ClientError::Authentication("the server's answer is to another hello".into()));
    }
    if let Some(witnessed) = welcome.witnessed
        && let Err(error) = ledger.check_witness(witnessed)
    {
        let own = (private.identity.unit, private.identity.relation);
        let signed = greeting.signed.as_ref().and_then(|signed| signed.open(&client, &identity.key.verifying_key(), own));
        if signed == Some(witnessed) {
            return Err(error.into());
        }
        tracing::warn!(
            claimed = witnessed.seq,
            "the server claims to have seen a row of this ledger that the ledger does not have, without this site's signature"
        );
    }
    ResolvedTask::from_bytes(&welcome.task).map_err(|e| ClientError::Version(Problem::of(e)))
}

/// The figures of a plan.
struct Plan {
    task: ResolvedTask,
    run: PrivacyLoss,
    spent: PrivacyLoss,
    after: PrivacyLoss,
    limit: f64,
    fallback: Option<Fallback>,
    runs_possible: u64,
    visits_possible: u64,
    objections: Vec<String>,
    forecast: ForecastResult,
    assumed: Option<Assumed>,
}

/// The sites of a forecast, where no flag names them.
struct Assumed {
    counted: Counted,
    /// Records of each.
    units: u64,
}

impl Assumed {
    fn json(&self) -> Value {
        json!({"sites": self.counted.sites, "said_by": self.counted.said_by, "units_of_each": self.units})
    }

    fn text(&self) -> String {
        let Counted { sites, said_by } = self.counted;
        let word = if sites == 1 { "site" } else { "sites" };
        format!(
            "note    the forecast counts on {sites} {word} ({said_by}) with {} records each: --sites and --units say otherwise\n",
            self.units
        )
    }
}

/// What an aggregated task, and everything charged before, costs if all other parties work together.
struct Fallback {
    run: PrivacyLoss,
    spent: PrivacyLoss,
    after: PrivacyLoss,
    limit: Option<f64>,
}

impl Fallback {
    /// `whole` are the fallbacks of all visits.
    fn of(private: &PrivateData, task: &ResolvedTask, whole: &[(DpEvent, u64)], spent: PrivacyLoss, after: PrivacyLoss) -> Result<Self> {
        let booked = whole.iter().flat_map(|(event, count)| (0..*count).map(move |_| event));
        let run = epsilon_upper(booked, private.identity.relation, task.privacy.delta).map_err(|e| ClientError::Version(Problem::of(e)))?;
        Ok(Self { run, spent, after, limit: private.budget.max_fallback.map(|cap| cap.get()) })
    }

    fn json(&self) -> Value {
        json!({
            "epsilon_run": json_number(self.run.epsilon.get()),
            "epsilon_spent": json_number(self.spent.epsilon.get()),
            "epsilon_after": json_number(self.after.epsilon.get()),
            "epsilon_limit": self.limit.map(json_number),
        })
    }

    fn text(&self) -> String {
        let limit = self.limit.map_or_else(|| "no limit ([budget] max_fallback_epsilon)".to_owned(), |limit| format!("at most {limit}"));
        format!(
            "worst   if all other parties work together, this run costs epsilon {} ({limit}); {} spent so far, {} afterwards\n",
            epsilon(self.run.epsilon.get()),
            epsilon(self.spent.epsilon.get()),
            epsilon(self.after.epsilon.get()),
        )
    }
}

impl Plan {
    fn new(
        config: &Config,
        private: &PrivateData,
        ledger: &LedgerView,
        (task, forecast): (ResolvedTask, ForecastResult),
        assumed: Option<Assumed>,
    ) -> Result<Self> {
        let version = |e: dp_pvi_posterior::task::TaskError| ClientError::Version(Problem::of(e));
        let visits = task.visits();
        let run = task.loss_under(private.identity.relation, task.privacy.delta, visits).map_err(version)?;
        let whole = task.visit_events(0..visits).map_err(version)?;
        let worst = task.aggregation.map(|_| task.visit_fallbacks(0..visits)).transpose().map_err(version)?;
        let (before, with) = (ledger.losses(), ledger.would_cost(&whole, worst.as_deref())?);
        let (spent, after, limit) = (before.joint, with.joint, private.budget.epsilon.get());
        let runs_possible = match task.update.is_private() {
            true => ledger.further_runs(&whole, worst.as_deref(), MOST_RUNS)?,
            // What is released without protection is not held against the limits.
            false if private.budget.allow_non_private => MOST_RUNS,
            false => 0,
        };
        let visits_possible = runs_possible * u64::from(visits);
        let objections = objections(config, private, ledger, &task, &run, &after)?;
        let fallback = worst.map(|worst| Fallback::of(private, &task, &worst, before.fallback, with.fallback)).transpose()?;
        Ok(Self { task, run, spent, after, limit, fallback, runs_possible, visits_possible, objections, forecast, assumed })
    }

    fn json(&self) -> Value {
        json!({
            "task": self.task.hash().to_string(),
            "name": self.task.name,
            "model": self.task.model,
            "update": self.task.update,
            "dimension": self.task.dimension,
            "visits": self.task.visits(),
            "unit": self.task.privacy.unit,
            "relation": self.task.privacy.relation,
            "trust": self.task.privacy.trust,
            "epsilon_stated": self.task.privacy.epsilon.map(|e| json_number(e.get())),
            "epsilon_run": json_number(self.run.epsilon.get()),
            "delta": self.task.privacy.delta,
            "epsilon_spent": json_number(self.spent.epsilon.get()),
            "epsilon_after": json_number(self.after.epsilon.get()),
            "epsilon_limit": json_number(self.limit),
            "budget_delta": self.after.delta,
            "runs_possible": self.runs_possible,
            "rounds_possible": self.visits_possible,
            "counts_against_limit": self.task.update.is_private(),
            "release_tick_seconds": self.task.release_tick_seconds,
            "aggregation": self.task.aggregation,
            "fallback": self.fallback.as_ref().map(Fallback::json),
            "warnings": self.task.warnings(),
            "would_run": self.objections.is_empty(),
            "objections": self.objections,
            "forecast": self.forecast,
            "forecast_assumes": self.assumed.as_ref().map(Assumed::json),
        })
    }

    /// Lines on what a protected run costs, and how often it fits.
    fn price(&self) -> String {
        let possible =
            |count: u64, many: u64, what: &str| if count >= many { format!("over {many} {what}") } else { format!("{count} {what}") };
        let many_visits = MOST_RUNS * u64::from(self.task.visits());
        let stated = self.task.privacy.epsilon.map_or_else(|| "no guarantee".into(), |e| format!("epsilon {}", e.get()));
        format!(
            "stated  {stated} at delta {:e}, unit {}, {}, trust {}\n\
             cost    this run spends epsilon {} (own computation) of your {}; {} spent so far, {} afterwards at delta {:e}\n{}\
             room    {} possible, {}\n",
            self.task.privacy.delta.get(),
            name_of(&self.task.privacy.unit),
            name_of(&self.task.privacy.relation),
            name_of(&self.task.privacy.trust),
            epsilon(self.run.epsilon.get()),
            self.limit,
            epsilon(self.spent.epsilon.get()),
            epsilon(self.after.epsilon.get()),
            self.after.delta.get(),
            self.fallback.as_ref().map(Fallback::text).unwrap_or_default(),
            possible(self.runs_possible, MOST_RUNS, "such runs"),
            possible(self.visits_possible, many_visits, "rounds"),
        )
    }

    /// The same of a run without protection: there is no price, and no limit that it could reach.
    fn no_price(&self) -> String {
        let room = match self.runs_possible {
            0 => "none: [policy] allow_non_private is not set",
            _ => "not limited: what is released without protection is not held against your epsilon, which still limits everything else",
        };
        format!(
            "stated  no protection (epsilon infinite), trust {}\n\
             cost    what this run sends is not protected: whoever sees it may learn of single records; your epsilon of {} does not limit it; {} spent so far, \
             and afterwards no guarantee covers all releases together\n\
             room    {room}\n",
            name_of(&self.task.privacy.trust),
            self.limit,
            epsilon(self.spent.epsilon.get()),
        )
    }

    fn text(&self) -> String {
        let mut text = format!(
            "task    {} ({} coefficients, {} updates from this site)\nhash    sha256:{}\n",
            visible(&self.task.name),
            self.task.dimension,
            self.task.visits(),
            self.task.hash(),
        );
        text.push_str(&if self.task.update.is_private() { self.price() } else { self.no_price() });
        if self.task.release_tick_seconds == 0 {
            text.push_str("note    updates leave at once after training (release tick 0): their timing is not protected\n");
        }
        if let Some(spec) = &self.task.aggregation {
            text.push_str(&format!(
                "note    noise is whole only in the sum: {} sites, at least {} in every sum, {} honest ones whose noise is counted on, {} that may collude\n",
                spec.sites,
                spec.min_contributors(),
                spec.honest,
                spec.colluders
            ));
        }
        for warning in self.task.warnings() {
            text.push_str(&format!("warning {}\n", visible(&warning)));
        }
        if let (Some(assumed), ForecastResult::Table(_)) = (&self.assumed, &self.forecast) {
            text.push_str(&assumed.text());
        }
        text.push_str(&self.forecast.text());
        if self.objections.is_empty() {
            text.push_str("verdict this site would take part");
        } else {
            for objection in &self.objections {
                text.push_str(&format!("refused {}\n", visible(objection)));
            }
        }
        text
    }
}

/// Why this site would not take part, all of it.
fn objections(
    config: &Config,
    private: &PrivateData,
    ledger: &LedgerView,
    task: &ResolvedTask,
    run_cost: &PrivacyLoss,
    after: &PrivacyLoss,
) -> Result<Vec<String>> {
    let mut objections = Vec::new();
    let mut object = |objection: String| objections.push(objection);
    let own = run_cost.epsilon.get();
    if let Some(stated) = task.privacy.epsilon.filter(|stated| stated.get() < own) {
        object(format!("the task states epsilon {}, but costs {} here", stated.get(), epsilon(own)));
    }
    if !config.policy.allow_trust.contains(&task.privacy.trust) {
        object(format!("[policy] allow_trust does not list {}", name_of(&task.privacy.trust)));
    }
    let most = task.most_units().map_err(|e| ClientError::Version(Problem::of(e)))?;
    if private.nominal_units > most {
        object(format!("nominal_units is {}, and the task takes at most {most} units of a site (max_units)", private.nominal_units));
    }
    let (tick, least) = (task.release_tick_seconds, config.policy.min_release_tick_seconds);
    if tick < least {
        object(format!("the task's release_tick_seconds is {tick}, below [policy] min_release_tick_seconds = {least}"));
    }
    if !task.update.is_private() {
        if !private.budget.allow_non_private {
            object("the task has no protection (epsilon infinite) and [policy] allow_non_private is not set".into());
        }
    } else {
        let events = task.visit_events(0..task.visits()).map_err(|e| ClientError::Version(Problem::of(e)))?;
        let admitted = ledger.would_admit(&new_run(task), &events, None);
        // Where releases without protection are allowed, those that were made are not held against the limit.
        let over = after.epsilon.get() > private.budget.epsilon.get();
        if over && (after.epsilon.get().is_finite() || matches!(admitted, Err(LedgerError::OverBudget { .. }))) {
            object(format!(
                "the data set would come to epsilon {}, above its budget of {}",
                epsilon(after.epsilon.get()),
                private.budget.epsilon.get()
            ));
        }
        // At the budget's δ, as the ledger compares; `own` is at the task's.
        let alone = task
            .loss_under(private.identity.relation, private.budget.delta, task.visits())
            .map_err(|e| ClientError::Version(Problem::of(e)))?;
        if let Some(limit) = private.budget.per_run.filter(|limit| alone.epsilon > *limit) {
            object(format!(
                "the run costs epsilon {} at the budget's delta, above per_run_epsilon {}",
                epsilon(alone.epsilon.get()),
                limit.get()
            ));
        } else if let Err(over @ LedgerError::OverRunBudget { .. }) = admitted {
            // Visits of several kinds may cost more by the ledger's rule than as a plan.
            object(over.to_string());
        }
    }
    let worst = task.visit_fallbacks(0..task.visits()).map_err(|e| ClientError::Version(Problem::of(e)))?;
    if let Err(over @ LedgerError::OverFallback { .. }) = ledger.would_admit(&new_run(task), &[], Some(&worst)) {
        object(over.to_string());
    }
    if let Err(refused) = floors(config, task) {
        object(refused);
    }
    if task.privacy.unit != private.identity.unit {
        object(format!("the task protects {}, the ledger {}", unit_name(task.privacy.unit), unit_name(private.identity.unit)));
    }
    if !private.identity.relation.may_book(task.privacy.relation) {
        object(format!(
            "the ledger's relation {} cannot book the task's {}",
            name_of(&private.identity.relation),
            name_of(&task.privacy.relation)
        ));
    }
    if let Err(too_few) = train::check_declared(config) {
        object(too_few.to_string());
    }
    if let Err(other) = LocalSchema::read(&config.data.schema)?.is_of(task) {
        object(other);
    }
    if view::freeze_state(ledger.rows()) == FreezeState::Frozen {
        object("the data set is frozen (`budget freeze --off` opens it)".into());
    }
    if run::approves(&run::policy(config)?, &task.hash()) == Approval::Missing {
        object(format!("nobody approved it: dp-pvi-client approve {} (or [policy] approve)", task.hash()));
    }
    Ok(objections)
}

/// Whether the charter that the task asks for would meet this site's floors.
fn floors(config: &Config, task: &ResolvedTask) -> std::result::Result<(), String> {
    let (Some(spec), Some(Aggregation { floors, .. })) = (&task.aggregation, &config.aggregation) else { return Ok(()) };
    let below = [
        (spec.min_contributors() < floors.min_contributors, "min_contributors"),
        (spec.colluders < floors.colluders, "colluders"),
        (spec.honest > floors.max_honest, "max_honest"),
        (task.visits() > floors.max_rounds, "max_rounds"),
    ];
    match below.iter().find(|(refused, _)| *refused) {
        Some((_, key)) => Err(format!("its charter would not meet [aggregation] {key}")),
        None => Ok(()),
    }
}

fn unit_name(unit: PrivacyUnit) -> &'static str {
    match unit {
        PrivacyUnit::Record => "records",
        PrivacyUnit::Person => "persons",
        PrivacyUnit::Site => "the whole site",
    }
}

/// A run that no ledger has.
fn new_run(task: &ResolvedTask) -> RunId {
    RunId { task: task.hash(), number: u32::MAX }
}
