//! Many federations of logistic regression by natural gradients, fast: records take few distinct values, so that a site's sums run over values with counts, and the
//! noise is Gaussian with the mechanism's variance. Terms, server rule and the test of sites are the real ones. For a test and for the example `agreement`.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]

use dp_pvi_inference::methods::Job;
use dp_pvi_inference::methods::natural_gradient::Terms;
use dp_pvi_inference::models;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::methods::VisitSum;
use dp_pvi_posterior::methods::agreement::SiteReleases;
use dp_pvi_posterior::methods::noise_aware::{ClosedRound, History};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, UpdateSpec};
use dp_pvi_privacy::SiteState;
use dp_pvi_privacy::mechanism::{SumMechanism, Term};
use dp_pvi_records::RecordTable;
use dp_pvi_results::agreement::{Agreement, Tested, of_run};

/// Values of the four numbers, with their probabilities where a site has no shift.
const VALUES: [&[f64]; 4] = [&[-1.5, -0.5, 0.5, 1.5], &[-1.2, 0.0, 1.2], &[-1.2, 0.0, 1.2], &[0.0, 1.0]];

/// Bound on a row's norm.
const BOUND: f64 = 2.5;

/// d: four numbers and the intercept, which is last.
pub(crate) const DIMENSION: usize = 5;

/// A federation that is drawn again and again.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Federation {
    pub(crate) sites: u32,
    /// Records of a site.
    pub(crate) records: u32,
    pub(crate) epsilon: f64,
    pub(crate) approximation: &'static str,
    pub(crate) rounds: u32,
    /// Standard deviation of the common coefficients.
    pub(crate) truth: f64,
    pub(crate) differences: Differences,
    /// Whether the last site has its labels flipped.
    pub(crate) labels: Labels,
}

/// How sites differ: standard deviations over sites.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Differences {
    /// Of the intercept.
    pub(crate) intercept: f64,
    /// Of the other coefficients.
    pub(crate) others: f64,
    /// Of the mean of every number.
    pub(crate) shift: f64,
}

impl Differences {
    pub(crate) const NONE: Self = Self { intercept: 0.0, others: 0.0, shift: 0.0 };
    /// As much as the test allows.
    pub(crate) const ORDINARY: Self = Self { intercept: 0.3, others: 0.1, shift: 0.4 };
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labels {
    Right,
    FlippedAtTheLast,
}

impl Federation {
    pub(crate) fn task(&self) -> ResolvedTask {
        let mut schema =
            format!("norm_bound = {BOUND}\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n");
        for i in 1..DIMENSION {
            schema += &format!("[[columns]]\nname = \"n{i}\"\nkind = \"number\"\nlower = -3.0\nupper = 3.0\ncentre = 0.0\nscale = 1.0\n");
        }
        let text = format!(
            "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\napproximation = \"{}\"\n[schema]\nfile = \"schema.toml\"\n\
             [pvi]\nschedule = \"synchronous\"\nrounds = {}\nupdate = \"natural-gradient\"\n\
             [privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = {}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n",
            self.approximation, self.rounds, self.epsilon
        );
        let context = ResolveContext { name: "agreement", update_deadline_seconds: 60, min_sites: self.sites, expected_sites: self.sites };
        RawTask::parse(&text).unwrap().resolve(&schema, context).unwrap()
    }

    /// The test of one federation's sites.
    pub(crate) fn test(&self, task: &ResolvedTask, cells: &Cells, seed: u64) -> Tested {
        let mut random = Random(seed << 24);
        let sites = self.draw(cells, &mut random);
        let names: Vec<ClientId> = (0..self.sites).map(|site| ClientId::new(format!("site-{site:03}")).unwrap()).collect();
        let run = run(task, cells, &sites, &mut random);
        match of_run(task, &names, &run.releases()) {
            Agreement::Tested(tested) => tested,
            Agreement::NotTested(reason) => panic!("{reason}"),
        }
    }

    /// Counts of every site.
    pub(crate) fn draw(&self, cells: &Cells, random: &mut Random) -> Vec<Vec<f64>> {
        let common: Vec<f64> = (0..DIMENSION).map(|_| self.truth * random.normal()).collect();
        let flipped = |site: u32| self.labels == Labels::FlippedAtTheLast && site + 1 == self.sites;
        (0..self.sites).map(|site| self.counts(cells, &common, flipped(site), random)).collect()
    }

    /// How often a site has each row with each label.
    fn counts(&self, cells: &Cells, common: &[f64], flipped: bool, random: &mut Random) -> Vec<f64> {
        let Differences { intercept, others, shift } = self.differences;
        let coefficients: Vec<f64> =
            common.iter().enumerate().map(|(j, c)| c + if j + 1 == DIMENSION { intercept } else { others } * random.normal()).collect();
        // Normal densities at the values, shifted: cumulated for drawing.
        let ends: Vec<Vec<f64>> = VALUES
            .iter()
            .map(|values| {
                let shift = shift * random.normal();
                let density: Vec<f64> = values.iter().map(|v| (-0.5 * (v - shift).powi(2)).exp()).collect();
                let total: f64 = density.iter().sum();
                density
                    .iter()
                    .scan(0.0, |sum, p| {
                        Some({
                            *sum += p / total;
                            *sum
                        })
                    })
                    .collect()
            })
            .collect();
        let positive: Vec<f64> =
            cells.rows.iter().map(|row| 1.0 / (1.0 + (-row.iter().zip(&coefficients).map(|(x, c)| x * c).sum::<f64>()).exp())).collect();
        let mut counts = vec![0.0; 2 * cells.rows.len()];
        for _ in 0..self.records {
            let row = ends.iter().fold(0, |row, ends| {
                let u = random.uniform();
                row * ends.len() + ends[..ends.len() - 1].iter().filter(|&&end| u >= end).count()
            });
            let label = (random.uniform() < positive[row]) != flipped;
            counts[2 * row + usize::from(label)] += 1.0;
        }
        counts
    }
}

/// A run, as the server stored it.
pub(crate) struct Run {
    pub(crate) history: History,
    pub(crate) vectors: Vec<Vec<Vec<f64>>>,
}

impl Run {
    pub(crate) fn releases(&self) -> SiteReleases<'_> {
        SiteReleases { history: &self.history, vectors: &self.vectors }
    }
}

/// All visits of a task to sites with these counts.
pub(crate) fn run(task: &ResolvedTask, cells: &Cells, sites: &[Vec<f64>], random: &mut Random) -> Run {
    let UpdateSpec::NaturalGradient(spec) = &task.update else { panic!("another update") };
    let model = models::from_spec(&task.model).unwrap();
    let rule = task.rule();
    let mut state = rule.initial();
    let mut run = Run { history: History { shares: vec![1.0 / sites.len() as f64; sites.len()], rounds: Vec::new() }, vectors: Vec::new() };
    let mut term = Term::default();
    for visit in 0..task.visits() {
        let SumMechanism::Local(mechanism) = spec.mechanism(&task.setting(), visit).unwrap() else { panic!("local trust") };
        let sd = mechanism.clip_norm().get() * mechanism.noise_multiplier().get();
        let job = Job { site: None, task, visit, lambda: &state, state: &SiteState::None };
        let terms = Terms::new(spec, &job, model.as_ref()).unwrap();
        let mut sent = vec![vec![0.0; mechanism.dimension() as usize]; sites.len()];
        for (cell, record) in cells.table.records().enumerate() {
            term.clear();
            terms.add(record, &mut term);
            for (sum, counts) in sent.iter_mut().zip(sites).filter(|(_, counts)| counts[cell] > 0.0) {
                term.entries().for_each(|(j, value)| sum[j as usize] += counts[cell] * value);
            }
        }
        sent.iter_mut().flatten().for_each(|value| *value += sd * random.normal());
        let mut sum = vec![0.0; mechanism.dimension() as usize];
        sent.iter().for_each(|sent| sum.iter_mut().zip(sent).for_each(|(s, v)| *s += v));
        state = rule.apply(&state, &VisitSum { visit, sites: u32::try_from(sites.len()).unwrap(), sum: &sum }).state;
        let included = (0..sites.len()).collect();
        run.history.rounds.push(ClosedRound { visit, included, state: state.clone(), correction: None });
        run.vectors.push(sent);
    }
    run
}

/// All rows that occur, and as records with either label.
pub(crate) struct Cells {
    rows: Vec<Vec<f64>>,
    table: RecordTable,
}

impl Cells {
    pub(crate) fn new() -> Self {
        let mut rows = vec![Vec::new()];
        for values in VALUES {
            rows = rows.iter().flat_map(|row: &Vec<f64>| values.iter().map(|v| [row.as_slice(), &[*v]].concat())).collect();
        }
        let mut builder = RecordTable::builder(DIMENSION);
        for row in &mut rows {
            row.push(1.0);
            let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter_mut().for_each(|x| *x *= (BOUND / norm).min(1.0));
            let filled = || row.iter().enumerate().filter(|(_, x)| **x != 0.0);
            let indices: Vec<u32> = filled().map(|(j, _)| u32::try_from(j).unwrap()).collect();
            let values: Vec<f64> = filled().map(|(_, x)| *x).collect();
            for label in [0.0, 1.0] {
                builder.start_unit();
                builder.push(&indices, &values, label).unwrap();
            }
        }
        Self { rows, table: builder.finish() }
    }
}

/// SplitMix64: data of an experiment, no noise that protects anyone.
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
}
