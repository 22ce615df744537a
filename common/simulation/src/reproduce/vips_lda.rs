//! `dp-pvi-sim reproduce vips-lda`: topics of KOS blog entries, perplexity of held-out entries against ε.
//!
//! The original experiment took Wikipedia in minibatches and counted by the moments accountant or by strong composition; its documents are
//! not public. Here 3,430 entries of a blog stand in, most of them for training in every round (a minibatch of so few would hold more noise
//! than documents), at one site, whose noise is that of an aggregated sum.

use std::fmt::Write as _;
use std::path::Path;

use dp_pvi_inference::records::RecordTable;
use dp_pvi_inference::update::Job;
use dp_pvi_inference::update::vips::Point;
use dp_pvi_posterior::lda::Topics;
use dp_pvi_posterior::lda::document::Sweeps;
use dp_pvi_posterior::lda::perplexity::held_out;
use dp_pvi_posterior::rule::{Arrived, VipsRule};
use dp_pvi_posterior::task::{ResolvedTask, UpdateSpec};
use dp_pvi_privacy::mechanism::Term;
use dp_pvi_privacy::{SiteState, UnitTable};

use super::vips::{Line, Progress, Run, chart, counted, experiment, write};
use super::{Options, ReproduceError};
use crate::experiment::Session;

const TOPICS: u32 = 50;
const WORDS: u32 = 6_906;
const LENGTH: f64 = 500.0;
const HELD_OUT: f64 = 0.1;
/// Every site protects itself, so the noise of the sum grows with their number.
const SITES: u32 = 1;
const EPSILONS: [f64; 4] = [0.5, 1.0, 2.0, 4.0];

/// Forms of the mechanism that are compared.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// C learned from noised norms.
    Learned,
    /// C = N, the worst case, as published.
    WorstCase,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Self::Learned => "clip learned",
            Self::WorstCase => "worst-case sensitivity",
        }
    }
}

/// Runs the reproduction and writes `vips-lda.{csv,svg,md}`.
pub(super) fn run(options: &Options<'_>) -> Result<(), ReproduceError> {
    let words = words(&options.data.join("text/kos/vocab.kos.txt.gz"))?;
    write(&options.output.join("kos.schema.toml"), &schema())?;
    let rounds = if options.quick { 3 } else { 8 };
    let forms = [Form::Learned, Form::WorstCase];
    let mut progress = Progress::new(options, (EPSILONS.len() * forms.len() + 1) as u64 * u64::from(rounds));
    let mut lines = Vec::new();
    let mut readable = String::new();
    for form in forms {
        for epsilon in EPSILONS {
            let session = open(options, epsilon, rounds, form)?;
            let (_, test) = session.split(options.seed)?;
            let bar = progress.bar();
            let result = session.run(options.seed, move || bar.inc(1))?;
            let topics = topics(session.task(), &result.lambda)?;
            let perplexity = perplexity(&topics, test.get());
            lines.push(Line { method: form.name().to_owned(), epsilon: Some(epsilon), metric: "perplexity", value: perplexity });
            #[allow(clippy::float_cmp, reason = "one of the list's own values")]
            if form == Form::Learned && epsilon == 4.0 {
                readable = table(&topics, &words);
            }
            if form == Form::Learned {
                lines.extend(counted(session.task(), epsilon)?);
            }
        }
    }
    let session = open(options, 1.0, rounds, Form::Learned)?;
    let (training, test) = session.split(options.seed)?;
    let free = topics(session.task(), &without_noise(session.task(), &training, rounds, &mut progress)?)?;
    lines.push(Line { method: "no noise".into(), epsilon: None, metric: "perplexity", value: perplexity(&free, test.get()) });
    let uniform = f64::from(WORDS);
    let report = report(&lines, rounds, &readable, &table(&free, &words), uniform);
    chart(&options.output.join("vips-lda.svg"), "Perplexity of held-out entries", "epsilon", "perplexity", &lines, "perplexity")?;
    Run { name: "vips-lda", lines, report }.write(options)
}

fn schema() -> String {
    format!("kind = \"bag-of-words\"\n\n[bag_of_words]\nformat = \"docword\"\nwords = {WORDS}\ndocument_length = {LENGTH:.1}\n")
}

fn open(options: &Options<'_>, epsilon: f64, rounds: u32, form: Form) -> Result<Session, ReproduceError> {
    let clip = match form {
        Form::Learned => "documents = 3000.0".to_owned(),
        Form::WorstCase => format!("clip_norm = {LENGTH:.1}"),
    };
    let task = format!(
        "[task.model]\nfamily = \"latent-dirichlet\"\ntopics = {TOPICS}\n\n[task.schema]\nfile = \"kos.schema.toml\"\n\n\
         [task.pvi]\nschedule = \"synchronous\"\nrounds = {rounds}\nupdate = \"vips\"\n{clip}\n\n\
         [task.privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = {epsilon:?}\ndelta = 1e-5\ntrust = \"local\"\n"
    );
    let data = format!("[data]\nfiles = [\"text/kos/docword.kos.txt.gz\"]\ntest_fraction = {HELD_OUT}\n");
    let file = options.output.join(format!("vips-lda-{}-{epsilon:?}.toml", form.name().replace(' ', "-")));
    experiment(options, &file, &format!("vips-lda, {}", form.name()), &task, &data, SITES)
}

fn topics(task: &ResolvedTask, state: &[f64]) -> Result<Topics, ReproduceError> {
    VipsRule::topics(task, state).map_err(|error| ReproduceError::Result(error.to_string()))
}

fn perplexity(topics: &Topics, test: &RecordTable) -> f64 {
    held_out(topics, test.records().map(|record| (record.indices, record.values)), Sweeps::Exactly(100)).perplexity()
}

/// The same rounds with every document in full and no noise: what ε = ∞ would give.
fn without_noise(task: &ResolvedTask, sites: &[RecordTable], rounds: u32, progress: &mut Progress) -> Result<Vec<f64>, ReproduceError> {
    let UpdateSpec::Vips(spec) = &task.update else { return Err(ReproduceError::Result("the task has another update".into())) };
    let rule = task.rule();
    let mut state = rule.initial();
    // Nothing is clipped: no document's statistics exceed its length.
    if let Some(clip) = state.last_mut() {
        *clip = LENGTH;
    }
    let bar = progress.bar();
    for visit in 0..rounds {
        let job = Job { task, visit, lambda: &state, state: &SiteState::None };
        let point = Point::new(spec, &job).map_err(|error| ReproduceError::Result(error.to_string()))?;
        #[allow(clippy::cast_possible_truncation, reason = "fits memory")]
        let mut sum = vec![0.0; task.message(visit)?.coordinates as usize];
        let mut term = Term::default();
        for site in sites {
            for unit in 0..site.len() {
                term.clear();
                point.add(site.unit(unit), &mut term);
                term.entries().iter().for_each(|&(index, value)| sum[index as usize] += value);
            }
        }
        state = rule.apply(&state, &Arrived { visit, sites: 1, sum: &sum }).state;
        if let Some(clip) = state.last_mut() {
            *clip = LENGTH;
        }
        bar.inc(1);
    }
    Ok(state)
}

/// The public vocabulary, for the table of topics only.
fn words(path: &Path) -> Result<Vec<String>, ReproduceError> {
    let words: Vec<String> = dp_pvi_data::read_text(path)?.lines().map(|line| line.trim().to_owned()).collect();
    if words.len() == WORDS as usize { Ok(words) } else { Err(ReproduceError::Result("the vocabulary has another number of words".into())) }
}

/// Ten topics with the most words, eight words each.
fn table(topics: &Topics, words: &[String]) -> String {
    let mass = |k: usize| topics.lambda().iter().skip(k).step_by(topics.shape().topics()).sum::<f64>();
    let mut order: Vec<usize> = (0..topics.shape().topics()).collect();
    order.sort_by(|&a, &b| mass(b).total_cmp(&mass(a)));
    let mut text = String::from("| topic | words |\n|---|---|\n");
    for (number, &topic) in order.iter().take(10).enumerate() {
        let top: Vec<&str> = topics.top_words(topic, 8).into_iter().map(|(word, _)| words[word].as_str()).collect();
        let _ = writeln!(text, "| {} | {} |", number + 1, top.join(", "));
    }
    text
}

fn report(lines: &[Line], rounds: u32, private: &str, free: &str, uniform: f64) -> String {
    let value = |method: &str, epsilon: Option<f64>| {
        lines.iter().find(|l| l.method == method && l.epsilon == epsilon && l.metric == "perplexity").map_or(f64::NAN, |l| l.value)
    };
    let mut text = format!(
        "# Topics of KOS under differential privacy\n\n{TOPICS} topics, {rounds} rounds, documents scaled to {LENGTH} words, delta = 1e-5, add-remove, \
         one document a unit. Perplexity bound of held-out entries per word; uniform words: {uniform}.\n\n\
         | epsilon | clip learned | worst-case sensitivity | factor |\n|---|---|---|---|\n"
    );
    for epsilon in EPSILONS {
        let (learned, worst) = (value(Form::Learned.name(), Some(epsilon)), value(Form::WorstCase.name(), Some(epsilon)));
        let _ = writeln!(text, "| {epsilon} | {learned:.0} | {worst:.0} | {:.2} |", worst / learned);
    }
    let _ = writeln!(text, "| infinite | {:.0} | | |\n", value("no noise", None));
    text.push_str("## What the noise of a run costs by other ways of counting\n\n");
    text.push_str(&super::vips::counting_table(lines));
    let _ = writeln!(text, "\n## Ten topics at epsilon = 4\n\n{private}\n## Ten topics without noise\n\n{free}");
    text
}
