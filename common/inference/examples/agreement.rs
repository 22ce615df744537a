//! Level and power of the test whether sites agree, by simulation.
//!
//! `cargo run --release -p dp-pvi-inference --example agreement -- [FEDERATIONS [FILE]]` prints a row a setting, and writes the page of the guide.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "an experiment on invented records: it shows its progress and writes its page")]

#[path = "../tests/sites/mod.rs"]
mod sites;

use std::fmt::Write as _;
use std::time::Instant;

use dp_pvi_posterior::reading::agreement::Verdict;
use sites::{Cells, Differences, Federation, Labels};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let federations: u64 = arguments.first().map_or(4000, |text| text.parse().unwrap());
    let base = Federation {
        sites: 5,
        records: 6000,
        epsilon: 1.0,
        approximation: "full-covariance",
        rounds: 10,
        truth: 1.0,
        differences: Differences::NONE,
        labels: Labels::Right,
    };
    let beyond = Differences { intercept: 0.6, others: 0.2, shift: 0.4 };
    let mut settings = Vec::new();
    let others = [
        base,
        Federation { sites: 3, records: 500, ..base },
        Federation { sites: 10, records: 3900, ..base },
        Federation { epsilon: 0.3, ..base },
        Federation { epsilon: 4.0, ..base },
        Federation { epsilon: 20.0, ..base },
        Federation { approximation: "mean-field", ..base },
        Federation { truth: 0.3, ..base },
    ];
    for federation in others {
        for differences in [Differences::NONE, Differences::ORDINARY, beyond] {
            settings.push(Federation { differences, ..federation });
        }
        for differences in [Differences::NONE, Differences::ORDINARY] {
            settings.push(Federation { differences, labels: Labels::FlippedAtTheLast, ..federation });
        }
    }
    let cells = Cells::new();
    let mut page = String::new();
    let began = Instant::now();
    for federation in settings {
        let task = federation.task();
        let (mut any, mut last, mut spread) = (0_u32, 0_u32, 0.0);
        for seed in 1..=federations {
            let tested = federation.test(&task, &cells, seed);
            let differs: Vec<bool> = tested.sites.iter().map(|site| site.verdict == Verdict::Differs).collect();
            let flipped = usize::from(federation.labels == Labels::FlippedAtTheLast);
            let (others, own) = differs.split_at(differs.len() - flipped);
            any += u32::from(others.contains(&true));
            last += u32::from(own.contains(&true));
            spread += tested.sites[0].comparison.as_ref().unwrap().spread.intercept;
        }
        let share = |count: u32| f64::from(count) / federations as f64;
        let Federation {
            sites, records, epsilon, approximation, truth, differences: Differences { intercept, others, shift }, labels, ..
        } = federation;
        let power = if labels == Labels::Right { "–".to_owned() } else { format!("{:.3}", share(last)) };
        let row = format!(
            "| {sites} × {records} | {epsilon} | {approximation} | {truth} | {intercept} | {others} | {shift} | {:.3} | {power} |",
            share(any)
        );
        println!("{} s: {row} {:.2}", began.elapsed().as_secs(), spread / federations as f64);
        let _ = writeln!(page, "{row}");
    }
    if let Some(file) = arguments.get(1) {
        std::fs::write(file, &page).unwrap();
    }
}
