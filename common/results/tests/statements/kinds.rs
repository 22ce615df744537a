//! Kinds of `posterior.json`, made by the code that makes them after a run.

use dp_pvi_math::observation::Precision;
use dp_pvi_math::scales::ScaleSummary;
use dp_pvi_names::{ClientId, Hash, PayloadKind, ReleaseId, RunId};
use dp_pvi_posterior::methods::agreement::SiteReleases;
use dp_pvi_posterior::methods::noise_aware::{Absent, Posterior};
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, History};
use dp_pvi_posterior::methods::{VisitSum, agreement::NotTested};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::LedgerHead;
use dp_pvi_protocol::ledger_head::Witness;
use dp_pvi_protocol::message::{Signed, Update};
use dp_pvi_protocol::metrics::HeldOutMetrics;
use dp_pvi_protocol::statement::{PrivacyStatement, statement};
use dp_pvi_results::agreement;
use dp_pvi_results::agreement::Agreement;
use dp_pvi_results::divided;
use dp_pvi_results::document::{DocumentError, Evaluation, PosteriorDocument};
use ed25519_dalek::SigningKey;

pub(crate) type Kind = (&'static str, fn() -> PosteriorDocument);

pub(crate) const IN_WORDS: &str = "thirteen";

pub(crate) const KINDS: &[Kind] = &[
    ("local", || made(&task(GRADIENTS, "record", "replace-one", LOCAL))),
    ("add-remove", || made(&task(SAMPLED, "record", "add-remove", LOCAL))),
    ("aggregated", || made(&task(GRADIENTS, "record", "replace-one", AGGREGATED))),
    ("aggregated, fallback beyond what is proved", || made(&task(GRADIENTS, "record", "replace-one", WEAK))),
    ("persons", || made(&task(GRADIENTS, "person", "add-remove", LOCAL))),
    ("sites", || {
        made(&task("schedule = \"synchronous\"\nrounds = 3\nupdate = \"client-level\"\nclip_norm = 1.0", "site", "replace-one", OF_SITES))
    }),
    ("shards", || {
        made(&task(
            "schedule = \"synchronous\"\nrounds = 3\nupdate = \"virtual-clients\"\nclip_norm = 1.0\nshards = 8",
            "record",
            "add-remove",
            LOCAL,
        ))
    }),
    ("epochs", || made(&task(EPOCHS, "record", "add-remove", LOCAL))),
    ("asynchronous", || {
        made(&task("schedule = \"asynchronous\"\nsweeps = 3\nupdate = \"dp-optimisation\"", "record", "replace-one", LOCAL))
    }),
    ("sums of statistics", statistics),
    ("no posterior", diverged),
    ("noise-aware, with curves and effects of sites", aware),
    ("without a site", without),
];

const GRADIENTS: &str = "schedule = \"synchronous\"\nrounds = 3\nupdate = \"natural-gradient\"";
const SAMPLED: &str = "schedule = \"sequential\"\nsweeps = 3\nupdate = \"dp-optimisation\"\nsteps = 20\nsampling_rate = 0.1";
const EPOCHS: &str = "schedule = \"synchronous\"\nrounds = 3\nupdate = \"dp-optimisation\"\nsteps = 20\nbatches = 10";
const LOCAL: &str = "epsilon = 1.0\ntrust = \"local\"\nmax_units = 1000";
const OF_SITES: &str = "epsilon = 1.0\ntrust = \"local\"";
const AGGREGATED: &str = "epsilon = 1.0\ntrust = \"aggregated\"\n[aggregation]\nsites = 3\ncolluders = 1\nmax_units = 100";
/// A site's own share of the noise is next to nothing.
const WEAK: &str = "epsilon = 20.0\ntrust = \"aggregated\"\n[aggregation]\nsites = 21\ncolluders = 1\nmax_units = 100";

const SCHEMA: &str = "[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n\
                      [[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 110\ncentre = 50\nscale = 20\n\
                      [[columns]]\nname = \"weight\"\nkind = \"number\"\nlower = 0\nupper = 200\ncentre = 70\nscale = 30\n";
const NUMBERS: &str = "[[columns]]\nname = \"y\"\nkind = \"number\"\nlower = -10\nupper = 10\ncentre = 0\nscale = 1\n\
                       [[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";

fn resolved(model: &str, pvi: &str, privacy: &str, schema: &str) -> ResolvedTask {
    let text = format!("schema.file = \"s\"\n[model]\n{model}\n[pvi]\n{pvi}\n[privacy]\ndelta = 1e-5\n{privacy}\n");
    let context = ResolveContext { name: "the sites' question", update_deadline_seconds: 60, min_sites: 2, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(schema, context).unwrap()
}

fn task(pvi: &str, unit: &str, adjacency: &str, privacy: &str) -> ResolvedTask {
    let schema = if unit == "person" { format!("unit_column = \"who\"\n{SCHEMA}") } else { SCHEMA.to_owned() };
    let privacy = format!("unit = \"{unit}\"\nadjacency = \"{adjacency}\"\n{privacy}");
    resolved("family = \"logistic-regression\"\noutcome = \"died\"", pvi, &privacy, &schema)
}

fn site(number: u32) -> ClientId {
    ClientId::new(format!("hospital-{number}")).unwrap()
}

/// The first site answered every visit, and the second one missed one.
fn statements(task: &ResolvedTask) -> Vec<PrivacyStatement> {
    let releases = [task.visits(), task.visits() - 1, task.visits()];
    let statements = (1..).zip(releases).map(|(number, releases)| statement(task, &site(number), releases).unwrap()).collect();
    PrivacyStatement::witnessed(statements, |site| {
        let (run, head) = (RunId { task: task.hash(), number: 1 }, LedgerHead { seq: 7, hash: Hash::of("row", &[]) });
        let key = SigningKey::from_bytes(&Hash::of("key", &[site.as_str().as_bytes()]).0);
        let update = Update {
            release: ReleaseId { run, client: site.clone(), round: 0 },
            header: Hash::default(),
            kind: PayloadKind::Values,
            coordinates: 1,
            payload: Hash::default(),
            ledger_head: head,
            upload: None,
        };
        let update = Signed::seal(&update, &key);
        Witness::new(site, &run, head, &key.verifying_key(), (update.hash(), &update.signature))
    })
}

fn evaluations() -> Vec<Evaluation> {
    let metrics = |log_likelihood| HeldOutMetrics {
        records: 3,
        log_likelihood,
        accuracy: Some(0.9),
        brier: Some(0.1),
        reliability: vec![(0.1, 0.2, 3)],
        ..HeldOutMetrics::default()
    };
    let evaluator = ClientId::new("evaluator").unwrap();
    [(1, -0.5), (3, -0.4)].map(|(round, value)| Evaluation { evaluator: evaluator.clone(), round, metrics: metrics(value) }).into()
}

fn document(task: &ResolvedTask) -> PosteriorDocument {
    PosteriorDocument::new(task, 1, task.visits(), &task.rule().initial(), statements(task), evaluations()).unwrap()
}

fn made(task: &ResolvedTask) -> PosteriorDocument {
    let document = document(task).with_noise_aware(Err(Absent::NoRound)).unwrap();
    document.with_certificates().unwrap().with_agreement(Agreement::not_tested(NotTested::NotKept))
}

fn statistics() -> PosteriorDocument {
    let privacy = format!("unit = \"record\"\nadjacency = \"add-remove\"\n{LOCAL}");
    let pvi = "schedule = \"synchronous\"\nrounds = 1\nupdate = \"vips\"\nrecords = 3000";
    made(&resolved(
        "family = \"linear-regression\"\noutcome = \"y\"\nnoise_sd = 1.0\napproximation = \"full-covariance\"",
        pvi,
        &privacy,
        NUMBERS,
    ))
}

fn diverged() -> PosteriorDocument {
    let task = task(GRADIENTS, "record", "replace-one", LOCAL);
    let mut state = task.rule().initial();
    state[0] = f64::NAN;
    let Err(DocumentError::Parameters(problem)) = PosteriorDocument::new(&task, 1, 3, &state, vec![], vec![]) else {
        panic!("a distribution")
    };
    PosteriorDocument::without_posterior(&task, 1, 3, &problem, statements(&task), evaluations()).with_certificates().unwrap()
}

/// Everything that a posterior can have: two of them, covariance, effects, curves, scales, σ, and what was found of the sites.
fn aware() -> PosteriorDocument {
    let model = "family = \"robust-regression\"\nscale = \"learned\"\napproximation = \"full-covariance\"\nformula = \"y ~ s(x) + (1 | site)\"\n\
                 sites = [\"hospital-1\", \"hospital-2\", \"hospital-3\"]";
    let privacy = format!("unit = \"record\"\nadjacency = \"replace-one\"\n{LOCAL}");
    let task = resolved(model, GRADIENTS, &privacy, NUMBERS);
    let plain = document(&task);
    let spread = ScaleSummary { median: 0.4, central_90: [0.1, 0.9], central_95: [0.08, 1.2] };
    let aware = Posterior {
        natural_parameters: task.prior_natural(),
        signal_to_noise: 9.0,
        noise_share: Some(0.9),
        scales: plain.scales.iter().map(|_| Some(spread)).collect(),
        precision: Some(Precision { shape: 20.0, rate: 10.0 }),
    };
    plain.with_noise_aware(Ok(aware)).unwrap().with_certificates().unwrap()
}

/// A run in which three sites sent what moves their factors half-way to their records' likelihood.
fn without() -> PosteriorDocument {
    let privacy = format!("unit = \"record\"\nadjacency = \"replace-one\"\n{LOCAL}");
    let pvi = "schedule = \"synchronous\"\nrounds = 3\ndamping = 0.5\nupdate = \"dp-optimisation\"\nclip_norm = 2.0\noptimizer = \"adam\"";
    let task = resolved("family = \"linear-regression\"\noutcome = \"y\"\nnoise_sd = 1.0", pvi, &privacy, NUMBERS);
    let rule = task.rule();
    let (mut state, mut rounds, mut vectors) = (rule.initial(), Vec::new(), Vec::new());
    for visit in 0..task.visits() {
        let sent: Vec<Vec<f64>> = (0..3).map(|site| vec![0.3 * f64::from(site), -0.1, 5.0, 8.0]).collect();
        let sum: Vec<f64> = (0..4).map(|j| sent.iter().map(|vector| vector[j]).sum()).collect();
        let step = rule.apply(&state, &VisitSum { visit, sites: 3, sum: &sum });
        state.clone_from(&step.state);
        rounds.push(ClosedRound { visit, included: vec![0, 1, 2], state: step.state, correction: step.correction });
        vectors.push(sent);
    }
    let history = History { shares: vec![1.0 / 3.0; 3], rounds };
    let releases = SiteReleases { history: &history, vectors: &vectors };
    let left = divided::without(&task, &releases, 1).unwrap();
    let whole = PosteriorDocument::new(&task, 1, 3, &state, statements(&task), Vec::new()).unwrap();
    let document = PosteriorDocument::without_site(&task, &whole, &left, site(2), statements(&task)).unwrap();
    let found = agreement::of_run(&task, &[site(1), site(2), site(3)], &releases);
    document.with_certificates().unwrap().with_agreement(found)
}

/// A run that promises nothing.
pub(crate) fn unprotected() -> PosteriorDocument {
    made(&task("schedule = \"synchronous\"\nrounds = 3\nupdate = \"pvi\"", "record", "replace-one", "trust = \"local\""))
}

/// Epochs in which a unit is replaced, for which there is no certificate.
pub(crate) fn replaced_in_epochs() -> PosteriorDocument {
    made(&task(EPOCHS, "record", "replace-one", LOCAL))
}
