//! Calibration by simulation: in how many of many synthetic federations do 90 % intervals contain the true coefficient?
//!
//! `cargo run --release -p dp-pvi-papers -- run calibration [REPLICATIONS [FILE [WORD]]]` prints a row a cell (of those that have one of the words, between semicolons), and writes the page of the guide. The truth is
//! drawn from the prior, so that a correct posterior covers exactly 90 %, and fixed; `400+100` asks for different numbers of federations, and `0+100` for a fixed truth alone. The 64 cells hold every pair of levels of model, method, noise, ε, size
//! and features (checked before the first run).
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on invented records: it shows its progress and writes its page")]

use std::fmt::Write as _;
use std::time::Instant;

use crate::synthetic::federation::{Counts, Features, Likelihood, Problem, Random};

const LIKELIHOODS: [Likelihood; 4] = [Likelihood::Logistic, Likelihood::Linear, Likelihood::Poisson, Likelihood::Probit];
const EPSILONS: [f64; 4] = [0.3, 1.0, 4.0, 20.0];
const FEATURES: [Features; 3] = [Features::Independent, Features::Correlated, Features::Rare];
/// Sites and records of a site.
const SIZES: [(u32, u32); 3] = [(3, 500), (5, 6000), (10, 3900)];
const METHODS: [(&str, &str, &str); 3] = [
    ("natural gradients, full", "natural-gradient", "full-covariance"),
    ("natural gradients, mean field", "natural-gradient", "mean-field"),
    ("DP optimisation", "dp-optimisation", "mean-field"),
];

/// Levels of one cell: model, ε, method, size, features, noise (0 of every site, 1 of the sum).
type Cell = [usize; 6];

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for model in 0..4 {
        for epsilon in 0..4 {
            for turn in 0..4 {
                // Chosen so that the slowest pairs, steps inside a site for logit and probit, meet the smallest sites.
                let k = epsilon + turn;
                cells.push([model, epsilon, (model + k) % 3, (2 + 2 * k) % 3, (2 * model + k) % 3, (model + epsilon / 2 + turn) % 2]);
            }
        }
    }
    let levels = [4, 4, 3, 3, 3, 2];
    for (a, b) in (0..6).flat_map(|a| (a + 1..6).map(move |b| (a, b))) {
        for (i, j) in (0..levels[a]).flat_map(|i| (0..levels[b]).map(move |j| (i, j))) {
            assert!(cells.iter().any(|cell| cell[a] == i && cell[b] == j), "no cell has level {i} of factor {a} and {j} of factor {b}");
        }
    }
    cells
}

fn problem(cell: Cell) -> (Problem, String) {
    let [model, epsilon, method, size, features, noise] = cell;
    let (likelihood, (name, update, approximation)) = (LIKELIHOODS[model], METHODS[method]);
    let (sites, rows) = SIZES[size];
    // The noise of a sum over all sites is that of one site with all records.
    let (divided, gathered) = if noise == 0 { (sites, rows) } else { (1, sites * rows) };
    // Steps inside a site arrive later than natural gradients, and rounds cost time only.
    let rounds = if update == "dp-optimisation" { 40 } else { 20 };
    let mut pvi = format!("schedule = \"synchronous\"\nrounds = {rounds}\nupdate = \"{update}\"");
    pvi += bounds(likelihood, update);
    // With a standard deviation of 1 rates of counts would reach e^8.
    let prior = if likelihood == Likelihood::Poisson { 0.3 } else { 1.0 };
    let problem = Problem {
        likelihood,
        features: FEATURES[features],
        pvi,
        approximation,
        sites: divided,
        rows: gathered,
        epsilon: EPSILONS[epsilon],
        prior,
        spread: prior,
        shift: 0.0,
    };
    let words = format!(
        "{likelihood:?} | {name} | {} | {} | {sites} × {rows} | {:?}",
        if noise == 0 { "local" } else { "aggregated" },
        EPSILONS[epsilon],
        FEATURES[features]
    );
    (problem, words)
}

/// What has no default: bounds of residual and curvature, in units of the gradient (a linear residual is divided by the noise's variance of 9), or a
/// clipping norm. They cut next to nothing.
fn bounds(likelihood: Likelihood, update: &str) -> &'static str {
    match (likelihood, update) {
        (Likelihood::Linear, "natural-gradient") => "\nresidual_bound = 1.5\ncurvature_bound = 0.112",
        (Likelihood::Poisson, "natural-gradient") => "\nresidual_bound = 10.0\ncurvature_bound = 12.0",
        (Likelihood::Linear | Likelihood::Probit, "dp-optimisation") => "\nclip_norm = 3.0",
        (Likelihood::Poisson, "dp-optimisation") => "\nclip_norm = 10.0",
        _ => "",
    }
}

/// Coefficients that are the same in every federation, in units of the prior's standard deviation.
const FIXED: [f64; 7] = [0.8, -0.5, 0.3, -1.0, 0.6, -0.2, 0.4];

/// Federations with these seeds, on all cores.
fn counts(problem: &Problem, replications: u64, fixed: bool) -> Counts {
    let task = problem.task();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let replicate = |seed: u64| {
        if fixed {
            let truth = FIXED[..problem.features.dimension()].iter().map(|value| value * problem.spread).collect();
            problem.replicate_at(truth, &task, seed, Random((seed << 20) + 1))
        } else {
            problem.replicate(&task, seed)
        }
    };
    let mut counts = Counts::default();
    std::thread::scope(|scope| {
        let part = |first: usize| {
            let seeds = (1..=replications).skip(first).step_by(threads);
            scope.spawn(move || seeds.map(replicate).collect::<Vec<_>>())
        };
        let parts: Vec<_> = (0..threads).map(part).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).for_each(|replication| counts.add(&replication));
    });
    counts
}

fn row(problem: &Problem, words: &str, counts: &Counts) -> String {
    let runs = f64::from(counts.intervals) / problem.features.dimension() as f64;
    let least = f64::from(counts.by_coefficient.iter().copied().min().unwrap_or(0)) / runs;
    let mean = |sum: f64| sum / f64::from(counts.intervals);
    format!(
        "| {words} | {:.3} | {least:.2} | {:.3} | {:.3} ({:.3}) | {:.3} ({:.3}) | {:.2} | {} |",
        counts.share(counts.aware),
        counts.share(counts.plain),
        mean(counts.width.0),
        mean(counts.width.1),
        mean(counts.squares.0).sqrt(),
        mean(counts.squares.1).sqrt(),
        counts.largest_sd / problem.prior,
        counts.absent
    )
}

/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let asked = arguments.first().map_or("400", String::as_str);
    let (drawn, fixed) = asked.split_once('+').unwrap_or((asked, asked));
    let replications: [u64; 2] = [drawn, fixed].map(|text| text.parse().unwrap());
    let word = arguments.get(2).map_or("", String::as_str);
    let mut page = format!(
        "# Calibration\n\n```\ncargo run --release -p dp-pvi-papers -- run calibration {asked} FILE\n```\n\n\
         Synthetic federations; defaults, but for the bounds that have none; 20 rounds, and 40 of DP optimisation. \
         `cover` is the share of 90 % intervals that hold the true coefficient, `least` that of the coefficient with the lowest share, `plain` that of the \
         posterior as it came out of the run; `width` is the mean of widths (plain in brackets), `rmse` the error of the mean, `sd` the largest posterior standard \
         deviation over the prior's. `absent` counts runs without a noise-aware posterior.\n"
    );
    let (cells, began) = (cells(), Instant::now());
    for (fixed, title) in [(false, "Truth drawn from the prior"), (true, "Truth fixed")] {
        let replications = replications[usize::from(fixed)];
        if replications == 0 {
            continue;
        }
        let _ = write!(
            page,
            "\n## {title}\n\n{replications} federations a row.\n\n| model | method | noise | ε | sites | features | cover | least | plain | width | rmse | sd | absent |\n\
             |---|---|---|---|---|---|---|---|---|---|---|---|---|\n"
        );
        for (number, cell) in cells.iter().enumerate() {
            let (problem, words) = problem(*cell);
            if !word.split(';').any(|word| words.contains(word)) {
                continue;
            }
            let row = row(&problem, &words, &counts(&problem, replications, fixed));
            println!("{}/{} after {} s: {row}", number + 1, cells.len(), began.elapsed().as_secs());
            let _ = writeln!(page, "{row}");
            if let Some(file) = arguments.get(1) {
                std::fs::write(file, &page).unwrap();
            }
        }
    }
}
