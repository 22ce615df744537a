//! How the defaults of the updates were chosen: the whole private path (mechanism, local updates, server rule) on synthetic
//! federations of three shapes, with exact noise, against the optimum that the same federation finds without protection.
//!
//! ```text
//! cargo run --release -p dp-pvi-papers -- run choose_defaults [DATA_SETS [VARIANT]...]
//! ```
//!
//! A variant is some options of DP optimisation, or all of `[pvi]` if it names an `update`; a line `# pooled` in it puts the records of
//! all sites into one, whose noise is then that of a sum under aggregation; `# add-remove` takes the other relation.
//!
//! Prints, for every variant and every shape, the loss of held-out log-likelihood per record to the non-private
//! mean-field optimum, as mean ± standard error over data sets and two spreads of the true coefficients. No real data is read.
//! ε = 1, δ = 1e-5, replace-one.

use dp_pvi_accounting::{Epsilon, PrivacyUnit};
use dp_pvi_inference::methods::{Job, run};
use dp_pvi_inference::models;
use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_math::quadrature::log_sigmoid_expectation;
use dp_pvi_names::{ClientId, Hash, Payload, ReleaseId, RunId};
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, ScheduleSpec};
use dp_pvi_privacy::ledger::memory::MemoryStore;
use dp_pvi_privacy::ledger::{Budget, LedgerIdentity};
use dp_pvi_privacy::{Ledger, SecureNoise, SiteState, Units};
use dp_pvi_records::RecordTable;
use dp_pvi_unsealed::Unsealed;
use ed25519_dalek::SigningKey;

/// Options of `[pvi]` that are compared.
const VARIANTS: [&str; 13] = [
    "",
    "weighted = false",
    "weighted = false\ndamping = { start = 1.0, end = 0.2 }",
    "weighted = false\nlevel_exponent = 0.25\ndamping = { start = 1.0, end = 0.2 }",
    "level_exponent = 0.0\ndamping = { start = 1.0, end = 0.2 }",
    "damping = { start = 1.0, end = 0.2 }",
    "damping = { start = 0.3, end = 0.1 }",
    "damping = { start = 1.0, end = 0.2 }\nsteps = 10",
    "damping = { start = 1.0, end = 0.2 }\nsteps = 3",
    "damping = { start = 1.0, end = 0.2 }\nlearning_rate = 0.6",
    "damping = { start = 1.0, end = 0.2 }\naveraging = 1.0",
    "damping = { start = 1.0, end = 0.2 }\ncurvature_weight = 0.5",
    "optimizer = \"adam\"",
];
/// Standard deviations of the true coefficients.
const SPREADS: [f64; 2] = [0.5, 0.8];
const TEST_ROWS: usize = 8_000;

struct Shape {
    name: &'static str,
    categories: &'static [usize],
    numbers: usize,
    sites: usize,
    rows_per_site: usize,
    sweeps: u32,
    /// Bound R, about 1.4 times the usual length of a row.
    norm_bound: f64,
}

const SHAPES: [Shape; 3] = [
    Shape {
        name: "105 x 10 x 3900",
        categories: &[8, 16, 7, 14, 6, 5, 2, 41],
        numbers: 5,
        sites: 10,
        rows_per_site: 3900,
        sweeps: 20,
        norm_bound: 4.5,
    },
    Shape { name: "12 x 3 x 4000", categories: &[3], numbers: 8, sites: 3, rows_per_site: 4000, sweeps: 12, norm_bound: 3.5 },
    Shape { name: "12 x 3 x 500", categories: &[3], numbers: 8, sites: 3, rows_per_site: 500, sweeps: 12, norm_bound: 3.5 },
];

#[allow(clippy::print_stdout, reason = "an example prints its result")]
/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let mut arguments = arguments.into_iter();
    let data_sets = arguments.next().map_or(10, |text| text.parse().expect("a number of data sets"));
    let mut variants: Vec<String> = arguments.collect();
    if variants.is_empty() {
        variants = VARIANTS.map(String::from).to_vec();
    }
    let mut federations = Vec::new();
    for shape in &SHAPES {
        for spread in SPREADS {
            for seed in 1..=data_sets {
                federations.push(Federation::generate(shape, spread, seed));
            }
        }
    }
    for variant in variants {
        println!("[{}]", variant.replace('\n', ", "));
        for shape in &SHAPES {
            let losses: Vec<f64> =
                federations.iter().filter(|f| f.shape.name == shape.name).map(|f| f.optimum - f.private(&variant)).collect();
            let count = losses.len() as f64;
            let mean = losses.iter().sum::<f64>() / count;
            let variance = losses.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (count - 1.0);
            println!("  {:16} {mean:.4} ± {:.4}", shape.name, (variance / count).sqrt());
        }
    }
}

/// Sites, a test set and the log-likelihood that is reached without protection.
struct Federation {
    shape: &'static Shape,
    sites: Vec<Vec<Row>>,
    test: RecordTable,
    optimum: f64,
}

struct Row {
    indices: Vec<u32>,
    values: Vec<f64>,
    target: f64,
}

impl Federation {
    fn generate(shape: &'static Shape, spread: f64, seed: u64) -> Self {
        let mut random = Random(seed);
        let d = shape.dimension();
        let mut theta: Vec<f64> = (0..d).map(|_| spread * random.normal()).collect();
        theta[d - 1] = -1.0;
        let weights: Vec<Vec<f64>> =
            shape.categories.iter().map(|&levels| (0..levels).map(|level| (level as f64 + 1.0).powf(-1.3)).collect()).collect();
        // Categories lean on a common cause, as real ones do.
        let lean: Vec<Vec<f64>> = weights.iter().map(|w| w.iter().map(|_| 0.5 * random.normal()).collect()).collect();
        let mut row = || shape.row(&theta, &weights, &lean, &mut random);
        let sites: Vec<Vec<Row>> = (0..shape.sites).map(|_| (0..shape.rows_per_site).map(|_| row()).collect()).collect();
        let test: Vec<Row> = (0..TEST_ROWS).map(|_| row()).collect();
        let all = table(d, sites.iter().flatten());
        let task = shape.task("");
        let prior = Gaussian::from_natural(task.family(), task.prior_natural()).expect("the prior");
        let model = models::from_spec(&task.model).expect("a model of this program");
        let q = model.local_optimum().expect("logistic regression has one").local_optimum(&all, &prior, &prior).expect("finite data");
        let test = table(d, test.iter());
        let optimum = held_out(&q, &test);
        Self { shape, sites, test, optimum }
    }

    /// Held-out log-likelihood after a private run.
    fn private(&self, variant: &str) -> f64 {
        let task = self.shape.task(variant);
        let rule = task.rule();
        let mut state = rule.initial();
        let d = self.shape.dimension();
        let mut sites: Vec<Site> = if variant.contains("# pooled") {
            vec![Site::new(&task, table(d, self.sites.iter().flatten()))]
        } else {
            self.sites.iter().map(|rows| Site::new(&task, table(d, rows.iter()))).collect()
        };
        for visit in 0..task.visits() {
            let groups: Vec<&mut [Site]> = match task.schedule {
                ScheduleSpec::Sequential { .. } | ScheduleSpec::Asynchronous { .. } => sites.chunks_mut(1).collect(),
                ScheduleSpec::Synchronous { .. } => vec![sites.as_mut_slice()],
            };
            for group in groups {
                let mut sum = Vec::new();
                let count = u32::try_from(group.len()).expect("few sites");
                for site in group {
                    let message = site.update(&task, visit, &state);
                    sum.resize(message.len(), 0.0);
                    sum.iter_mut().zip(&message).for_each(|(s, m)| *s += m);
                }
                state = rule.apply(&state, &VisitSum { visit, sites: count, sum: &sum }).state;
            }
        }
        let posterior = task.posterior(&state).to_vec();
        held_out(&Gaussian::from_natural(task.family(), posterior).expect("the server's floor keeps it valid"), &self.test)
    }
}

struct Site {
    units: Units<RecordTable>,
    ledger: Ledger<MemoryStore, SigningKey>,
    factor: Vec<f64>,
    releases: u32,
}

impl Site {
    fn new(task: &ResolvedTask, table: RecordTable) -> Self {
        let identity = LedgerIdentity { data: "synthetic".into(), unit: PrivacyUnit::Record, relation: task.privacy.relation };
        let budget = Budget {
            epsilon: task.privacy.epsilon.unwrap_or(Epsilon::ZERO),
            delta: task.privacy.delta,
            per_run: None,
            max_fallback: None,
            allow_non_private: false,
        };
        let ledger = Ledger::open(MemoryStore::new(Unsealed), SigningKey::from_bytes(&[1; 32]), identity, budget).expect("an empty ledger");
        Self { units: Units::new(table), ledger, factor: vec![0.0; task.site_state().len()], releases: 0 }
    }

    fn update(&mut self, task: &ResolvedTask, visit: u32, state: &[f64]) -> Vec<f64> {
        let client = ClientId::new("site").expect("a name");
        let release = ReleaseId { run: RunId { task: task.hash(), number: 0 }, client, round: self.releases };
        self.releases += 1;
        let event = task.visit_event(visit).expect("a resolved task");
        if !self.ledger.is_planned(&release.run) {
            let events = task.visit_events(0..task.visits()).expect("a resolved task");
            self.ledger.plan_run(&release.run, &events, None).expect("the task's epsilon is the budget");
        }
        let permit = self.ledger.reserve(&release, &event, Hash::default()).expect("the task's epsilon is the budget");
        let carried = if self.factor.is_empty() { SiteState::None } else { SiteState::Public(self.factor.clone()) };
        let job = Job { site: None, task, visit, lambda: state, state: &carried };
        let output = run(&job, &self.units, permit, &SecureNoise).expect("an update");
        if let Some(change) = output.pending.public() {
            let rho = task.damping[visit as usize];
            self.factor.iter_mut().zip(change).for_each(|(f, c)| *f += rho * c);
        }
        match output.message.released().expect("local trust").get() {
            Payload::Values(values) => values.clone(),
            Payload::Lattice(sum) | Payload::Masked(sum) => sum.to_f64(),
        }
    }
}

/// Mean log probability of the targets.
fn held_out(q: &Gaussian, test: &RecordTable) -> f64 {
    let records = test.records();
    let count = records.len() as f64;
    let score = |record: dp_pvi_records::RecordView<'_>| {
        let (mean, variance) = q.standard().project(record.indices, record.values);
        log_sigmoid_expectation(if record.target > 0.5 { mean } else { -mean }, variance)
    };
    records.map(score).sum::<f64>() / count
}

fn table<'a>(dimension: usize, rows: impl Iterator<Item = &'a Row>) -> RecordTable {
    let mut builder = RecordTable::builder(dimension);
    for row in rows {
        builder.start_unit();
        builder.push(&row.indices, &row.values, row.target).expect("a row of the shape");
    }
    builder.finish()
}

impl Shape {
    fn dimension(&self) -> usize {
        self.categories.iter().sum::<usize>() + self.numbers + 1
    }

    fn row(&self, theta: &[f64], weights: &[Vec<f64>], lean: &[Vec<f64>], random: &mut Random) -> Row {
        let cause = random.normal();
        let (mut indices, mut values, mut start) = (Vec::new(), Vec::new(), 0);
        for (weights, lean) in weights.iter().zip(lean) {
            let scores: Vec<f64> = weights.iter().zip(lean).map(|(w, l)| w * (l * cause).exp()).collect();
            let mut left = random.uniform() * scores.iter().sum::<f64>();
            let level = scores.iter().position(|s| {
                left -= s;
                left <= 0.0
            });
            indices.push(start + level.unwrap_or(0));
            values.push(1.0);
            start += weights.len();
        }
        for number in 0..self.numbers {
            indices.push(start + number);
            values.push((0.3 * cause + 0.6 * random.normal()).clamp(-2.0, 2.0));
        }
        indices.push(start + self.numbers);
        values.push(1.0);
        let norm = values.iter().map(|x| x * x).sum::<f64>().sqrt();
        values.iter_mut().for_each(|x| *x *= (self.norm_bound / norm).min(1.0));
        let logit: f64 = indices.iter().zip(&values).map(|(&j, x)| theta[j] * x).sum();
        let target = if random.uniform() < 1.0 / (1.0 + (-logit).exp()) { 1.0 } else { 0.0 };
        Row { indices: indices.into_iter().map(|j| u32::try_from(j).expect("a small index")).collect(), values, target }
    }

    /// A resolved task with the variant's options and otherwise all defaults.
    fn task(&self, variant: &str) -> ResolvedTask {
        let mut schema = format!(
            "norm_bound = {}\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n",
            self.norm_bound
        );
        for (i, &levels) in self.categories.iter().enumerate() {
            let values: Vec<String> = (0..levels).map(|level| format!("\"{level}\"")).collect();
            schema += &format!("[[columns]]\nname = \"c{i}\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [{}]\n", values.join(", "));
        }
        for i in 0..self.numbers {
            schema += &format!("[[columns]]\nname = \"n{i}\"\nkind = \"number\"\nlower = -2.0\nupper = 2.0\ncentre = 0.0\nscale = 1.0\n");
        }
        let pvi = if variant.contains("update =") {
            variant.to_owned()
        } else {
            format!("schedule = \"sequential\"\nsweeps = {}\nupdate = \"dp-optimisation\"\n{variant}", self.sweeps)
        };
        let relation = if variant.contains("# add-remove") { "add-remove" } else { "replace-one" };
        let text = format!(
            "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{pvi}\n\
             [privacy]\nunit = \"record\"\nadjacency = \"{relation}\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
        );
        let sites = u32::try_from(self.sites).expect("few sites");
        let context = ResolveContext { name: self.name, update_deadline_seconds: 60, min_sites: sites, expected_sites: sites };
        RawTask::parse(&text).and_then(|raw| raw.resolve(&schema, context)).expect("a task")
    }
}

/// SplitMix64: data of an experiment, no noise.
struct Random(u64);

impl Random {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }
}
