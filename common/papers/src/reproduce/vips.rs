//! What the reproductions of VIPS share: experiments from text, other ways of counting, tables and figures.

use std::fmt::Write as _;
use std::path::Path;

use dp_pvi_accounting::{Epsilon, NoiseMultiplier};
use dp_pvi_inference::methods::{self, Job};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_names::{ClientId, Hash, Payload, ReleaseId, RunId};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{PrivacySpec, ResolvedTask, StatisticsSpec, UpdateSpec, VipsSpec};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, Released, SiteState, UnitTable, Units};
use ed25519_dalek::SigningKey;
use indicatif::{ProgressBar, ProgressStyle};

use super::{Options, ReproduceError};
use dp_pvi_results::picture::{Chart, Picture, Scale, Series};
use dp_pvi_simulation::experiment::{Experiment, Session};
use dp_pvi_simulation::noise::SeededNoise;
use dp_pvi_unsealed::Unsealed;

/// One number of a reproduction.
pub(super) struct Line {
    pub(super) method: String,
    /// Absent: no protection.
    pub(super) epsilon: Option<f64>,
    pub(super) metric: &'static str,
    pub(super) value: f64,
}

/// A finished reproduction.
pub(super) struct Run {
    pub(super) name: &'static str,
    pub(super) lines: Vec<Line>,
    pub(super) report: String,
}

impl Run {
    /// Writes the numbers and the report; the figure is written by the reproduction.
    pub(super) fn write(&self, options: &Options<'_>) -> Result<(), ReproduceError> {
        let mut csv = String::from("method,epsilon,metric,value\n");
        for Line { method, epsilon, metric, value } in &self.lines {
            let epsilon = epsilon.map_or_else(|| "inf".to_owned(), |e| e.to_string());
            let _ = writeln!(csv, "{method},{epsilon},{metric},{value}");
        }
        write(&options.output.join(format!("{}.csv", self.name)), &csv)?;
        write(&options.output.join(format!("{}.md", self.name)), &self.report)
    }
}

pub(super) fn write(path: &Path, text: &str) -> Result<(), ReproduceError> {
    std::fs::write(path, text).map_err(|source| ReproduceError::Write { path: path.to_owned(), source })
}

/// Progress over the rounds of all runs.
pub(super) struct Progress(ProgressBar);

impl Progress {
    pub(super) fn new(options: &Options<'_>, rounds: u64) -> Self {
        let bar = if options.quiet { ProgressBar::hidden() } else { ProgressBar::new(rounds) };
        bar.set_style(
            ProgressStyle::with_template("{bar:40} {pos}/{len} rounds, {eta} left").unwrap_or_else(|_| ProgressStyle::default_bar()),
        );
        Self(bar)
    }

    pub(super) fn bar(&self) -> ProgressBar {
        self.0.clone()
    }
}

/// An experiment from its parts; its file stays in the output directory and runs alone, too.
pub(super) fn experiment(
    options: &Options<'_>,
    file: &Path,
    name: &str,
    task: &str,
    data: &str,
    clients: u32,
) -> Result<Session, ReproduceError> {
    let text = format!("name = \"{name}\"\nseeds = [{}]\n\n{task}\n{data}\n[clients]\nnumber = {clients}\n", options.seed);
    write(file, &text)?;
    Ok(Session::open(Experiment::read(file)?, file, options.data)?)
}

/// A task whose rule expects no noise: what ε = ∞ would give. Its mechanisms do not exist.
pub(super) fn without_noise(task: &ResolvedTask) -> Result<ResolvedTask, ReproduceError> {
    let UpdateSpec::Vips(spec) = task.update else { return Err(ReproduceError::Result("the task has another update".into())) };
    let noise_multiplier = NoiseMultiplier::new(f64::MIN_POSITIVE).map_err(|error| wrong(&error))?;
    Ok(ResolvedTask { update: UpdateSpec::Vips(VipsSpec { noise_multiplier, ..spec }), ..task.clone() })
}

pub(super) fn wrong(error: &dyn std::fmt::Display) -> ReproduceError {
    ReproduceError::Result(error.to_string())
}

/// One site by itself: the task's update visit by visit behind a ledger in memory, and the server's rule. That is the protocol without
/// its messages and its transcript, which would hold the sums of all visits at once.
pub(super) struct Alone {
    task: ResolvedTask,
    units: Units<RecordTable>,
    ledger: Ledger<MemoryStore, SigningKey>,
    noise: SeededNoise,
    pub(super) state: Vec<f64>,
}

impl Alone {
    pub(super) fn open(task: &ResolvedTask, table: RecordTable, seed: u64) -> Result<Self, ReproduceError> {
        let PrivacySpec { unit, relation, epsilon, delta, .. } = task.privacy;
        let identity = LedgerIdentity { data: "site".into(), unit, relation };
        let budget =
            Budget { epsilon: epsilon.unwrap_or(Epsilon::INFINITE), delta, per_run: None, max_fallback: None, allow_non_private: false };
        let key = SigningKey::from_bytes(&[7; 32]);
        let ledger = Ledger::open(MemoryStore::new(Unsealed), key, identity, budget).map_err(|error| wrong(&error))?;
        let state = task.rule().initial();
        let declared = table.len() as u64;
        Ok(Self { task: task.clone(), units: Units::new(table).over_slots(declared), ledger, noise: SeededNoise::new(seed), state })
    }

    pub(super) fn visit(&mut self, visit: u32) -> Result<(), ReproduceError> {
        let client = ClientId::new("site").map_err(|error| wrong(&error))?;
        let release = ReleaseId { run: RunId { task: self.task.hash(), number: 0 }, client, round: visit };
        let permit = self.ledger.reserve(&release, &self.task.visit_event(visit)?, Hash::default()).map_err(|error| wrong(&error))?;
        let job = Job { site: None, task: &self.task, visit, lambda: &self.state, state: &SiteState::None };
        let output = methods::run(&job, &self.units, permit, &self.noise).map_err(|error| wrong(&error))?;
        let sum = match output.message.released().map(Released::get) {
            Some(Payload::Lattice(sum)) => sum.to_f64(),
            _ => return Err(ReproduceError::Result("the update releases no sum".into())),
        };
        self.state = self.task.rule().apply(&self.state, &VisitSum { visit, sites: 1, sum: &sum }).state;
        Ok(())
    }
}

/// ε of a run's noise by several ways of counting.
pub(super) struct Counted {
    pub(super) run: String,
    pub(super) epsilon: f64,
    /// Ours, for what ran.
    exact: f64,
    moments: f64,
    strong: f64,
    /// Statistics of one minibatch counted as if each had a minibatch of its own ("2T"): not a bound where units are sampled.
    apart: f64,
    statistics: u32,
}

impl Counted {
    pub(super) fn lines(&self) -> Vec<Line> {
        let line = |method: &str, value| Line {
            method: format!("{} ({})", method, self.run),
            epsilon: Some(self.epsilon),
            metric: "epsilon",
            value,
        };
        vec![
            line("exact", self.exact),
            line("moments accountant", self.moments),
            line("strong composition", self.strong),
            line("statistics counted apart", self.apart),
        ]
    }
}

/// All visits of a task counted in several ways; every visit has the same share of the budget, or units are not sampled.
pub(super) fn counted(task: &ResolvedTask, epsilon: f64, run: &str) -> Result<Counted, ReproduceError> {
    let UpdateSpec::Vips(spec) = task.update else { return Err(wrong(&"another update")) };
    let (rate, statistics) = match spec.statistics {
        StatisticsSpec::PolyaGamma(_) => (1.0, 2),
        StatisticsSpec::LinearNoise(_) => (1.0, 3),
        StatisticsSpec::Documents(spec) => (spec.sampling_rate.get(), 1),
        StatisticsSpec::Images(spec) => (spec.sampling_rate.get(), 6),
    };
    let (visits, delta) = (task.visits(), task.privacy.delta.get());
    let noise = spec.noise_multiplier.get() * f64::from(visits).sqrt();
    Ok(Counted {
        run: run.to_owned(),
        epsilon,
        exact: task.loss(visits)?.epsilon.get(),
        moments: moments(rate, noise, visits, delta),
        strong: strong_composition(rate, noise, visits, delta),
        apart: moments(rate, noise * f64::from(statistics).sqrt(), visits * statistics, delta),
        statistics,
    })
}

/// δ(ε) of a Gaussian mechanism with this μ.
fn delta_of(mu: f64, epsilon: f64) -> f64 {
    let tail = |x: f64| 0.5 * libm::erfc(x * std::f64::consts::FRAC_1_SQRT_2);
    tail(epsilon / mu - 0.5 * mu) - epsilon.exp() * tail(epsilon / mu + 0.5 * mu)
}

/// μ at which a Gaussian mechanism has this ε.
pub(super) fn epsilon_to_mu(epsilon: f64, delta: f64) -> f64 {
    let (mut low, mut high) = (1e-6, 1e3);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if delta_of(middle, epsilon) > delta { high = middle } else { low = middle }
    }
    low
}

/// Moments accountant (Abadi et al. 2016), λ up to 32 as in the paper: ε = min (T α_λ + ln 1/δ)/λ with
/// α_λ = ln Σ_k C(λ+1, k)(1−q)^{λ+1−k} q^k exp(k(k−1)/2σ²).
fn moments(rate: f64, noise: f64, visits: u32, delta: f64) -> f64 {
    let moment = |lambda: u32| {
        let order = lambda + 1;
        let mut choose = 0.0;
        let terms: Vec<f64> = (0..=order)
            .map(|k| {
                let (k, rest) = (f64::from(k), f64::from(order - k));
                let term = choose + log_power(1.0 - rate, rest) + log_power(rate, k) + 0.5 * k * (k - 1.0) / (noise * noise);
                choose += (rest / (k + 1.0)).ln();
                term
            })
            .collect();
        let top = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        top + terms.iter().map(|term| (term - top).exp()).sum::<f64>().ln()
    };
    (1..=32).map(|l| (f64::from(visits) * moment(l) - delta.ln()) / f64::from(l)).fold(f64::INFINITY, f64::min)
}

/// n ln x, with 0 ln 0 = 0.
fn log_power(x: f64, n: f64) -> f64 {
    if n > 0.0 { n * x.ln() } else { 0.0 }
}

/// Each step (ε₀, δ₀) with the classical σ = √(2 ln(1.25/δ₀))/ε₀, amplified by sampling to (ln(1 + q(e^ε₀ − 1)), q δ₀), q δ₀ = δ/(2T),
/// and composed by Dwork, Rothblum & Vadhan at δ/2.
fn strong_composition(rate: f64, noise: f64, visits: u32, delta: f64) -> f64 {
    let visits = f64::from(visits);
    let single = (2.0 * (1.25 * 2.0 * visits * rate / delta).ln()).sqrt() / noise;
    let epsilon = (rate * single.exp_m1()).ln_1p();
    epsilon * (2.0 * visits * (2.0 / delta).ln()).sqrt() + visits * epsilon * epsilon.exp_m1()
}

/// Several runs as a table.
pub(super) fn counting_table(counted: &[Counted]) -> String {
    let mut text =
        String::from("| run | exact | moments accountant | strong composition | statistics counted apart |\n|---|---|---|---|---|\n");
    for c in counted {
        let apart = if c.statistics > 1 { format!("{:.3}", c.apart) } else { "one statistic".into() };
        let _ = writeln!(text, "| {}, epsilon = {} | {:.3} | {:.3} | {:.3} | {apart} |", c.run, c.epsilon, c.exact, c.moments, c.strong);
    }
    text.push_str(
        "\nThe last column multiplies the number of releases by that of the statistics (\"2T\"), as if each had coins of its own. Where \
         minibatches are sampled that is less than the truth; without sampling it is the moments accountant's figure.\n",
    );
    text
}

/// Curves of a metric over ε, one for each method; without protection a level line.
pub(super) fn chart(file: &Path, title: &str, x: &str, y: &str, lines: &[Line], metric: &str) -> Result<(), ReproduceError> {
    let lines: Vec<&Line> = lines.iter().filter(|l| l.metric == metric).collect();
    let mut methods: Vec<&str> = lines.iter().map(|l| l.method.as_str()).collect();
    methods.dedup();
    let epsilons = || lines.iter().filter_map(|l| l.epsilon);
    let (low, high) = (epsilons().fold(f64::INFINITY, f64::min), epsilons().fold(f64::NEG_INFINITY, f64::max));
    let of = |name| {
        let points = lines.iter().filter(|l| l.method == name).flat_map(|l| match l.epsilon {
            Some(epsilon) => vec![(epsilon, l.value)],
            None => vec![(low, l.value), (high, l.value)],
        });
        Series { name, points: points.collect(), ..Series::default() }
    };
    let mut picture = Picture::new(760.0, 520.0);
    let axis = |label| Scale { label, ..Scale::default() };
    let series = methods.into_iter().map(of).collect();
    picture.chart((0.0, 0.0, 760.0, 520.0), &Chart { title, x: axis(x), y: axis(y), series, named: true });
    write(file, &picture.to_svg())
}

#[cfg(test)]
mod tests {
    use super::{delta_of, epsilon_to_mu, moments, strong_composition};

    #[test]
    fn mu_and_epsilon_are_inverse_and_the_ways_of_counting_are_ordered() {
        for epsilon in [0.5, 1.0, 4.0] {
            let mu = epsilon_to_mu(epsilon, 1e-5);
            assert!((delta_of(mu, epsilon) / 1e-5 - 1.0).abs() < 1e-6);
            let noise = 10.0_f64.sqrt() / mu;
            let (by_moments, strong) = (moments(1.0, noise, 10, 1e-5), strong_composition(1.0, noise, 10, 1e-5));
            assert!(epsilon < by_moments && by_moments < strong, "{epsilon} {by_moments} {strong}");
            // Unsampled statistics may be counted apart; sampled ones may not.
            assert!((moments(1.0, noise * 2.0_f64.sqrt(), 20, 1e-5) - by_moments).abs() < 1e-9);
        }
        let (together, apart) = (moments(0.005, 1.0 / 2.0_f64.sqrt(), 200, 1e-5), moments(0.005, 1.0, 400, 1e-5));
        // By moments up to 32; with all orders and the better conversion the two are 2.46 and 1.04.
        assert!(together > 2.46 && apart > 1.04 && apart < 0.5 * together, "{together} {apart}");
    }
}
