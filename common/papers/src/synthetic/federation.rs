//! A federation in memory whose records follow a known model: the whole private path runs (mechanism, ledger, local updates, server rule). Data and
//! noise are seeded. For tests and for the example `calibration`.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_accounting::PrivacyUnit;
use dp_pvi_inference::methods::{Job, run};
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_math::observation::Precision;
use dp_pvi_names::{ClientId, Hash, Payload, ReleaseId, RunId};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, History, Posterior};
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, ScheduleSpec};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::noise::NoRandomness;
use dp_pvi_privacy::{Ledger, NoiseSource, Purpose, SiteState, Units};
use dp_pvi_protocol::summary::{Coefficient, coefficients};
use dp_pvi_records::{RecordTable, RecordView};
use dp_pvi_schema::public::Extra;
use dp_pvi_unsealed::{Sealed, Unsealed};
use ed25519_dalek::SigningKey;

/// A problem that is drawn again and again.
#[derive(Debug, Clone)]
pub(crate) struct Problem {
    pub(crate) likelihood: Likelihood,
    pub(crate) features: Features,
    /// The table `[pvi]`.
    pub(crate) pvi: String,
    pub(crate) approximation: &'static str,
    pub(crate) sites: u32,
    /// Records of a site.
    pub(crate) rows: u32,
    pub(crate) epsilon: f64,
    /// Standard deviation of the prior.
    pub(crate) prior: f64,
    /// Standard deviation of the true coefficients.
    pub(crate) spread: f64,
    /// What is added to the prior mean of a baseline hazard's logarithm.
    pub(crate) shift: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Likelihood {
    /// With noise of standard deviation 3.
    Linear,
    Logistic,
    Probit,
    Poisson,
    /// With dispersion 2.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests of coverage draw it"))]
    NegativeBinomial,
    /// With scale 1 and four degrees of freedom.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests of coverage draw it"))]
    Robust,
    /// The same where the scale is learned; the guess is ½.
    #[cfg_attr(not(test), expect(dead_code, reason = "the tests of coverage draw it"))]
    RobustLearned,
    /// Times with a baseline hazard that is constant between the ends of [`INTERVALS`]; no intercept.
    Survival,
    /// Times with the cumulative hazard t^k e^η, k the last coefficient's exponential.
    Weibull,
}

/// Ends of intervals; watching ends between the second and the last.
const INTERVALS: [f64; 4] = [0.0, 0.5, 1.5, 4.0];

/// How the features of a record are drawn. The last one is the intercept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Features {
    /// Four independent numbers.
    Independent,
    /// Four numbers with correlation 0.8 between neighbours.
    Correlated,
    /// Two numbers, and a category of five levels, of which two hold 3 % of the records each, coded against the most frequent one.
    Rare,
}

impl Features {
    /// Public bound on a row's norm.
    fn bound(self) -> f64 {
        match self {
            Self::Independent | Self::Correlated => 2.5,
            Self::Rare => 2.2,
        }
    }

    pub(crate) fn dimension(self) -> usize {
        match self {
            Self::Independent | Self::Correlated => 5,
            Self::Rare => 7,
        }
    }

    /// A row inside the bound.
    fn draw(self, random: &mut Random) -> Vec<f64> {
        let mut x = vec![0.0; self.dimension()];
        match self {
            Self::Independent => x[..4].iter_mut().for_each(|x| *x = random.normal()),
            Self::Correlated => {
                x[0] = random.normal();
                for j in 1..4 {
                    x[j] = 0.8 * x[j - 1] + 0.6 * random.normal();
                }
            }
            Self::Rare => {
                x[..2].iter_mut().for_each(|x| *x = random.normal());
                let u = random.uniform();
                let level = [0.5, 0.8, 0.94, 0.97].iter().filter(|&&end| u >= end).count();
                if level > 0 {
                    x[1 + level] = 1.0;
                }
            }
        }
        x.iter_mut().for_each(|x| *x = x.clamp(-3.0, 3.0));
        *x.last_mut().unwrap() = 1.0;
        let norm = x.iter().map(|x| x * x).sum::<f64>().sqrt();
        x.iter_mut().for_each(|x| *x *= (self.bound() / norm).min(1.0));
        x
    }
}

impl Likelihood {
    fn target(self, predictor: f64, random: &mut Random) -> f64 {
        match self {
            Self::Linear => predictor + 3.0 * random.normal(),
            Self::Logistic => f64::from(u8::from(random.uniform() < 1.0 / (1.0 + (-predictor).exp()))),
            Self::Probit => f64::from(u8::from(predictor + random.normal() > 0.0)),
            Self::Poisson => random.count(predictor.exp()).min(40.0),
            Self::NegativeBinomial => {
                let rate = predictor.exp() * random.gamma_of_two() / 2.0;
                random.count(rate).min(40.0)
            }
            Self::Robust | Self::RobustLearned => predictor + random.normal() / (0.5 * random.gamma_of_two()).sqrt(),
            Self::Survival | Self::Weibull => unreachable!("has a target and an event: see `times`"),
        }
    }
}

/// Time and event of a record with this predictor, and these logarithms of hazards.
fn times(baseline: &[f64], predictor: f64, random: &mut Random) -> (f64, bool) {
    let mut left = -(1.0 - random.uniform()).ln();
    let mut time = f64::INFINITY;
    for (ends, log_hazard) in INTERVALS.windows(2).zip(baseline) {
        let hazard = (log_hazard + predictor).exp();
        if left <= hazard * (ends[1] - ends[0]) {
            time = ends[0] + left / hazard;
            break;
        }
        left -= hazard * (ends[1] - ends[0]);
    }
    let end = INTERVALS[1] + (INTERVALS[3] - INTERVALS[1]) * random.uniform();
    (time.min(end), time <= end)
}

impl Problem {
    /// Coefficients that are drawn; of times the logarithms of the hazards, and those of four columns.
    fn truth(&self, random: &mut Random) -> Vec<f64> {
        if self.likelihood == Likelihood::Survival {
            let baseline: Vec<f64> = INTERVALS[1..].iter().map(|_| -1.0 + 0.3 * random.normal()).collect();
            return baseline.into_iter().chain((0..4).map(|_| self.spread * random.normal())).collect();
        }
        if self.likelihood == Likelihood::Weibull {
            let mut truth: Vec<f64> = (0..5).map(|_| self.spread * random.normal()).collect();
            truth.push(0.2 + 0.15 * random.normal());
            return truth;
        }
        (0..self.features.dimension()).map(|_| self.spread * random.normal()).collect()
    }

    pub(crate) fn task(&self) -> ResolvedTask {
        let (label, model) = match self.likelihood {
            Likelihood::Linear => {
                ("kind = \"number\"\nlower = -100\nupper = 100\ncentre = 0\nscale = 1", "family = \"linear-regression\"\nnoise_sd = 3.0")
            }
            Likelihood::Poisson => ("kind = \"number\"\nlower = 0\nupper = 40\ncentre = 0\nscale = 1", "family = \"poisson-regression\""),
            Likelihood::NegativeBinomial => (
                "kind = \"number\"\nlower = 0\nupper = 40\ncentre = 0\nscale = 1",
                "family = \"negative-binomial-regression\"\ndispersion = 2.0",
            ),
            Likelihood::Robust => {
                ("kind = \"number\"\nlower = -100\nupper = 100\ncentre = 0\nscale = 1", "family = \"robust-regression\"\nscale = 1.0")
            }
            Likelihood::RobustLearned => (
                "kind = \"number\"\nlower = -100\nupper = 100\ncentre = 0\nscale = 1",
                "family = \"robust-regression\"\nscale = \"learned\"",
            ),
            Likelihood::Logistic => {
                ("kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]", "family = \"logistic-regression\"")
            }
            Likelihood::Probit => ("kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]", "family = \"probit-regression\""),
            Likelihood::Survival => (
                "kind = \"boolean\"\n[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0\nupper = 4\ncentre = 0\nscale = 1",
                "family = \"survival-regression\"\ncuts = [0, 0.5, 1.5, 4]\nbaseline_scale = 1.0\nbaseline_mean = -1.0",
            ),
            Likelihood::Weibull => (
                "kind = \"boolean\"\n[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0.005\nupper = 4\ncentre = 0\nscale = 1",
                "family = \"weibull-regression\"\ntime_unit = 1.0",
            ),
        };
        let of_times = [Likelihood::Survival, Likelihood::Weibull].contains(&self.likelihood);
        let model = model.replace("baseline_mean = -1.0", &format!("baseline_mean = {}", self.shift - 1.0));
        let outcome = if of_times { "Surv(t, y)" } else { "y" };
        let mut schema = format!("version = 2\nnorm_bound = {}\n[[columns]]\nname = \"y\"\n{label}\n", self.features.bound());
        let (numbers, category) = match self.features {
            Features::Independent | Features::Correlated => (4, ""),
            Features::Rare => (2, "[[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = [\"a\", \"b\", \"c\", \"d\", \"e\"]\n"),
        };
        for i in 0..numbers {
            schema += &format!("[[columns]]\nname = \"n{i}\"\nkind = \"number\"\nlower = -3.0\nupper = 3.0\ncentre = 0.0\nscale = 1.0\n");
        }
        schema += category;
        let text = format!(
            "[model]\noutcome = \"{outcome}\"\n{model}\nprior_units = \"encoded\"\nprior_scale = {}\napproximation = \"{}\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{}\n[privacy]\nunit = \"record\"\n\
             adjacency = \"add-remove\"\nepsilon = {}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n",
            self.prior, self.approximation, self.pvi, self.epsilon
        );
        let context = ResolveContext { name: "coverage", update_deadline_seconds: 60, min_sites: self.sites, expected_sites: self.sites };
        RawTask::parse(&text).unwrap().resolve(&schema, context).unwrap()
    }

    /// One federation: its coefficients, which are drawn, and what is said of them.
    pub(crate) fn replicate(&self, task: &ResolvedTask, seed: u64) -> Replication {
        let mut random = Random(seed << 20);
        let truth = self.truth(&mut random);
        self.replicate_at(truth, task, seed, random)
    }

    /// The same with coefficients that are given.
    pub(crate) fn replicate_at(&self, truth: Vec<f64>, task: &ResolvedTask, seed: u64, mut random: Random) -> Replication {
        let tables: Vec<RecordTable> = (0..self.sites).map(|_| self.table(&truth, &mut random)).collect();
        let (state, history) = federate(task, tables, seed);
        let gaussian = |natural: Vec<f64>| Gaussian::from_natural(task.family(), natural).unwrap();
        let aware = of_run(task, &history).ok().map(|Posterior { natural_parameters, .. }| gaussian(natural_parameters));
        let scale = task.scale_at(&state);
        Replication { truth, plain: gaussian(task.posterior(&state).to_vec()), aware, scale }
    }

    /// The coefficients of a federation, and so many tables of records.
    pub(crate) fn drawn(&self, tables: u32, seed: u64) -> (Vec<f64>, Vec<RecordTable>) {
        let mut random = Random(seed << 20);
        let truth = self.truth(&mut random);
        let tables = (0..tables).map(|_| self.table(&truth, &mut random)).collect();
        (truth, tables)
    }

    fn table_of_times(&self, truth: &[f64], random: &mut Random) -> RecordTable {
        let (baseline, coefficients) = truth.split_at(INTERVALS.len() - 1);
        let mut builder = RecordTable::builder(coefficients.len());
        for _ in 0..self.rows {
            let x = self.features.draw(random);
            let predictor: f64 = x.iter().zip(coefficients).map(|(x, t)| x * t).sum();
            let (target, event) = times(baseline, predictor, random);
            builder.start_unit();
            let extra = Extra { event, ..Extra::NONE };
            builder.push_record(RecordView { indices: &[0, 1, 2, 3], values: &x[..4], target, offset: 0.0, extra }).unwrap();
        }
        builder.finish()
    }

    fn table_of_powers(&self, truth: &[f64], random: &mut Random) -> RecordTable {
        let mut builder = RecordTable::builder(5);
        for _ in 0..self.rows {
            let x = self.features.draw(random);
            let predictor: f64 = x.iter().zip(truth).map(|(x, t)| x * t).sum();
            let time = (-(1.0 - random.uniform()).ln() / predictor.exp()).powf((-truth[5]).exp());
            let end = 0.5 + 3.5 * random.uniform();
            builder.start_unit();
            let extra = Extra { event: time <= end, ..Extra::NONE };
            // Times below the schema's lowest are taken for it, as a site does: hardly one in a thousand.
            let target = time.min(end).max(0.005);
            builder.push_record(RecordView { indices: &[0, 1, 2, 3, 4], values: &x, target, offset: 0.0, extra }).unwrap();
        }
        builder.finish()
    }

    /// Rows that follow the model exactly, inside the public bounds.
    fn table(&self, truth: &[f64], random: &mut Random) -> RecordTable {
        match self.likelihood {
            Likelihood::Survival => return self.table_of_times(truth, random),
            Likelihood::Weibull => return self.table_of_powers(truth, random),
            _ => {}
        }
        let d = truth.len();
        let mut builder = RecordTable::builder(d);
        for _ in 0..self.rows {
            let x = self.features.draw(random);
            let predictor: f64 = x.iter().zip(truth).map(|(x, t)| x * t).sum();
            let target = self.likelihood.target(predictor, random);
            let filled = || x.iter().enumerate().filter(|(_, x)| **x != 0.0);
            let indices: Vec<u32> = filled().map(|(j, _)| u32::try_from(j).unwrap()).collect();
            builder.start_unit();
            builder.push(&indices, &filled().map(|(_, x)| *x).collect::<Vec<_>>(), target).unwrap();
        }
        builder.finish()
    }
}

/// A run over these tables, one a site: its last state and its public history.
pub(crate) fn federate(task: &ResolvedTask, tables: Vec<RecordTable>, seed: u64) -> (Vec<f64>, History) {
    let mut sites: Vec<Site> = (0..).zip(tables).map(|(number, table)| Site::new(task, table, number, seed)).collect();
    let rule = task.rule();
    let mut state = rule.initial();
    let mut history = History { shares: vec![1.0 / sites.len() as f64; sites.len()], rounds: Vec::new() };
    for visit in 0..task.visits() {
        let together = matches!(task.schedule, ScheduleSpec::Synchronous { .. });
        let all: Vec<usize> = (0..sites.len()).collect();
        for group in if together { vec![all] } else { all.chunks(1).map(<[usize]>::to_vec).collect() } {
            let mut sum: Vec<f64> = Vec::new();
            for &site in &group {
                let message = sites[site].update(task, visit, &state);
                sum.resize(message.len(), 0.0);
                sum.iter_mut().zip(&message).for_each(|(s, m)| *s += m);
            }
            let step = rule.apply(&state, &VisitSum { visit, sites: u32::try_from(group.len()).unwrap(), sum: &sum });
            state = step.state;
            history.rounds.push(ClosedRound { visit, included: group, state: state.clone(), correction: step.correction });
        }
    }
    (state, history)
}

/// What one federation gave.
pub(crate) struct Replication {
    pub(crate) truth: Vec<f64>,
    pub(crate) plain: Gaussian,
    pub(crate) aware: Option<Gaussian>,
    /// Of 1/σ², where σ is learned; it is 1.
    pub(crate) scale: Option<Precision>,
}

/// Coverage, width and error of the intervals of many federations.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) intervals: u32,
    pub(crate) aware: u32,
    pub(crate) plain: u32,
    pub(crate) width: (f64, f64),
    pub(crate) squares: (f64, f64),
    /// Learned scales whose 90 % interval contains the true one, and the sums of ln σ and of its square.
    pub(crate) scales: u32,
    pub(crate) log_scales: (f64, f64),
    /// Runs without a noise-aware posterior.
    pub(crate) absent: u32,
    /// Covered by the noise-aware intervals, coefficient by coefficient.
    pub(crate) by_coefficient: Vec<u32>,
    /// Largest standard deviation of a coefficient.
    pub(crate) largest_sd: f64,
}

impl Counts {
    pub(crate) fn add(&mut self, replication: &Replication) {
        let Some(aware) = &replication.aware else {
            self.absent += 1;
            return;
        };
        if let Some(scale) = &replication.scale {
            self.scales += u32::from((scale.quantile(0.05)..=scale.quantile(0.95)).contains(&1.0));
            self.log_scales.0 += scale.scale().ln();
            self.log_scales.1 += scale.scale().ln().powi(2);
        }
        let names: Vec<String> = (0..replication.truth.len()).map(|j| j.to_string()).collect();
        let marginals = |q: &Gaussian| coefficients(&names, q.standard());
        self.by_coefficient.resize(names.len(), 0);
        for (j, ((truth, aware), plain)) in replication.truth.iter().zip(marginals(aware)).zip(marginals(&replication.plain)).enumerate() {
            self.intervals += 1;
            let inside = |c: &Coefficient| u32::from((c.interval_90.lower..=c.interval_90.upper).contains(truth));
            self.aware += inside(&aware);
            self.by_coefficient[j] += inside(&aware);
            self.plain += inside(&plain);
            self.width.0 += aware.interval_90.upper - aware.interval_90.lower;
            self.width.1 += plain.interval_90.upper - plain.interval_90.lower;
            self.largest_sd = self.largest_sd.max(aware.sd);
            self.squares.0 += (aware.mean - truth).powi(2);
            self.squares.1 += (plain.mean - truth).powi(2);
        }
    }

    pub(crate) fn share(&self, count: u32) -> f64 {
        f64::from(count) / f64::from(self.intervals)
    }
}

struct Site {
    units: Units<RecordTable>,
    ledger: Ledger<MemoryStore, SigningKey>,
    client: ClientId,
    factor: Vec<f64>,
    /// Position in the task's list of sites, where it has one.
    place: Option<u32>,
    releases: u32,
    noise: Seeded,
}

impl Site {
    fn new(task: &ResolvedTask, table: RecordTable, number: u32, seed: u64) -> Self {
        let identity = LedgerIdentity { data: "simulated".into(), unit: PrivacyUnit::Record, relation: task.privacy.relation };
        let budget = Budget {
            epsilon: task.privacy.epsilon.unwrap(),
            delta: task.privacy.delta,
            per_run: None,
            max_fallback: None,
            allow_non_private: false,
        };
        let ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[1; 32]), identity, budget).unwrap();
        let client = ClientId::new(format!("site-{number}")).unwrap();
        let (factor, place) = (vec![0.0; task.site_state().len()], task.site(client.as_str()).unwrap());
        Self { units: Units::new(table), ledger, client, factor, place, releases: 0, noise: Seeded(seed) }
    }

    fn update(&mut self, task: &ResolvedTask, visit: u32, state: &[f64]) -> Vec<f64> {
        let release = ReleaseId { run: RunId { task: task.hash(), number: 0 }, client: self.client.clone(), round: self.releases };
        self.releases += 1;
        if !self.ledger.is_planned(&release.run) {
            self.ledger.plan_run(&release.run, &task.visit_events(0..task.visits()).unwrap(), None).unwrap();
        }
        let permit = self.ledger.reserve(&release, &task.visit_event(visit).unwrap(), Hash::default()).unwrap();
        let carried = if self.factor.is_empty() { SiteState::None } else { SiteState::Public(self.factor.clone()) };
        let job = Job { site: self.place, task, visit, lambda: state, state: &carried };
        let output = run(&job, &self.units, permit, &self.noise).unwrap();
        if let Some(change) = output.pending.public() {
            let rho = task.damping[visit as usize];
            self.factor.iter_mut().zip(change).for_each(|(f, c)| *f += rho * c);
        }
        match output.message.released().unwrap().get() {
            Payload::Values(values) => values.clone(),
            Payload::Lattice(sum) | Payload::Masked(sum) => sum.to_f64(),
        }
    }
}

struct Seeded(u64);

impl Sealed for Seeded {}

impl NoiseSource for Seeded {
    type Stream = ChaCha20Rng;

    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        // Not of the task: a changed word in it draws nothing anew.
        let key = format!("{} {} {} {} {step} {purpose:?}", self.0, release.run.number, release.client, release.round);
        Ok(ChaCha20Rng::from_seed(Hash::of("coverage", &[key.as_bytes()]).0))
    }
}

/// SplitMix64: data of an experiment, no noise.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    pub(crate) fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// Gamma with shape 2 and scale 1: its mean is 2.
    fn gamma_of_two(&mut self) -> f64 {
        -(self.uniform() * self.uniform()).ln()
    }

    /// Poisson with this rate.
    fn count(&mut self, rate: f64) -> f64 {
        let (mut count, mut left) = (0.0, rate);
        loop {
            left += self.uniform().ln();
            if left < 0.0 {
                return count;
            }
            count += 1.0;
        }
    }
}
