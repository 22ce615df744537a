//! Level and power of the test whether sites agree, by simulation.
//!
//! `cargo run --release -p dp-pvi-papers -- run agreement [FEDERATIONS [FILE DATE]]` prints a row a setting, and writes the page of the guide.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on invented records: it shows its progress and writes its page")]

#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::thread;
use std::time::Instant;

use crate::synthetic::sites::{Cells, Differences, Federation, Labels};
use dp_pvi_results::agreement::Verdict;

/// Twice what the test allows.
const BEYOND: Differences = Differences { intercept: 0.6, others: 0.2, shift: 0.4 };

const BASE: Federation = Federation {
    sites: 5,
    records: 6000,
    epsilon: 1.0,
    approximation: "full-covariance",
    rounds: 10,
    truth: 1.0,
    differences: Differences::NONE,
    labels: Labels::Right,
};

/// What happened in how many federations.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    /// A site with right labels was said to differ.
    blamed: u32,
    /// The site with flipped labels was.
    found: u32,
}

/// Runs it with the arguments that follow its name.
pub fn main(arguments: Vec<String>) {
    let federations: u64 = arguments.first().map_or(4000, |text| text.parse().unwrap());
    let (cells, began) = (Cells::new(), Instant::now());
    let mut rows = String::new();
    for approximation in ["full-covariance", "mean-field"] {
        let base = Federation { approximation, ..BASE };
        let shapes = [
            base,
            Federation { epsilon: 0.3, ..base },
            Federation { epsilon: 4.0, ..base },
            Federation { epsilon: 20.0, ..base },
            Federation { truth: 0.3, ..base },
            Federation { rounds: 4, ..base },
            Federation { sites: 2, ..base },
            Federation { sites: 3, records: 500, ..base },
            Federation { sites: 10, records: 3900, ..base },
            Federation { sites: 20, records: 1000, ..base },
        ];
        for shape in shapes {
            let share = |differences, labels| {
                let Counts { blamed, found } = count(&Federation { differences, labels, ..shape }, &cells, federations);
                let of = |count: u32| f64::from(count) / federations as f64;
                (of(blamed), of(found))
            };
            let [alike, ordinary, beyond] = [Differences::NONE, Differences::ORDINARY, BEYOND].map(|d| share(d, Labels::Right).0);
            let (blamed, power) = share(Differences::ORDINARY, Labels::FlippedAtTheLast);
            let Federation { sites, records, epsilon, truth, rounds, .. } = shape;
            let row = format!(
                "| {sites} × {records} | {epsilon} | {approximation} | {rounds} | {truth} | {alike:.3} | {ordinary:.3} | {power:.3} | {blamed:.3} | \
                 {beyond:.3} |"
            );
            println!("{} s: {row}", began.elapsed().as_secs());
            let _ = writeln!(rows, "{row}");
        }
    }
    if let [_, file, date] = arguments.as_slice() {
        std::fs::write(file, page(date, federations, &rows)).unwrap();
    }
}

/// All cores take seeds in turn; the counts do not depend on how many there are.
fn count(federation: &Federation, cells: &Cells, federations: u64) -> Counts {
    let (task, threads) = (federation.task(), thread::available_parallelism().map_or(1, |threads| threads.get() as u64));
    let of = |seed: u64| {
        let tested = federation.test(&task, cells, seed);
        let differs: Vec<bool> = tested.sites.iter().map(|site| site.verdict == Verdict::Differs).collect();
        let (right, flipped) = differs.split_at(differs.len() - usize::from(federation.labels == Labels::FlippedAtTheLast));
        Counts { blamed: u32::from(right.contains(&true)), found: u32::from(flipped.contains(&true)) }
    };
    let add = |a: Counts, b: Counts| Counts { blamed: a.blamed + b.blamed, found: a.found + b.found };
    let part = |first: u64| (first..=federations).step_by(usize::try_from(threads).unwrap()).map(of).fold(Counts::default(), add);
    thread::scope(|scope| {
        let parts: Vec<_> = (1..=threads).map(|first| scope.spawn(move || part(first))).collect();
        parts.into_iter().map(|part| part.join().unwrap()).fold(Counts::default(), add)
    })
}

fn page(date: &str, federations: u64, rows: &str) -> String {
    let standard_error = (0.05 * 0.95 / federations as f64).sqrt();
    format!(
        "# Do the sites agree: level and power\n\n\
         *Made on {date} by `cargo run --release -p dp-pvi-papers -- run agreement {federations} FILE {date}`, {federations} federations a figure.*\n\n\
         How often does [the test of each site against the others](../posterior.md#do-the-sites-agree) speak when it should be silent, and how often is it silent when it \
         should speak? Logistic regression by natural gradients under local trust, four numbers and an intercept, δ = 1e-5, add-remove. Coefficients are drawn with \
         the standard deviation *truth*.\n\n\
         - *alike*: all sites have the same coefficients, and records of the same distribution.\n\
         - *ordinary*: a site's intercept differs from the common one with standard deviation 0.3, its other coefficients with 0.1, which is what the test allows; \
         means of the numbers differ with 0.4.\n\
         - *twice*: intercepts differ with 0.6, other coefficients with 0.2. That is more than the test allows. It widens its allowance where the others differ too.\n\
         - *flipped*: ordinary differences, and the last site has its labels the wrong way round.\n\n\
         *Blamed* is the share of federations in which some site with right labels was said to differ. For *alike* and *ordinary* it is the family-wise level, \
         which should be at most 0.05; the standard error of a figure near 0.05 is {standard_error:.4}. *Found* is the share in which the site with flipped labels was.\n\n\
         | sites × records | ε | approximation | rounds | truth | alike: blamed | ordinary: blamed | flipped: found | flipped: another blamed | twice: blamed |\n\
         |---|---|---|---|---|---|---|---|---|---|\n{rows}\n\
         With two sites both differ or none does: nobody can say which one is unusual, and a blamed one is the other half of the one that was found.\n"
    )
}
