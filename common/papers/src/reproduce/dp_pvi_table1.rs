//! `dp-pvi-papers reproduce dp-pvi-table1`: what the noise of every method depends on, computed from resolved tasks.
//!
//! For a run at a fixed ε, the signal to noise is that of all terms at their bound and in one direction: (terms of a site) √releases / (z √dim)
//! for one site, times √M for M sites that add their own noise and M for one sum with the noise of one.

use std::fmt::Write as _;

use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, UpdateSpec};

use super::dp_sep::wrong;
use super::vips::{Line, Run};
use super::{Options, ReproduceError};

const ADULT: &str = include_str!("../../../../deploy/experiments/adult.schema.toml");
const SITES: u32 = 10;
/// Records of a site.
const SIZES: [u32; 2] = [1000, 4000];
/// Records of a shard.
const SHARD: u32 = 20;
const ROUNDS: u32 = 15;
/// Whether the paper's table 1 says that local data, and a trusted aggregator, can lower the noise.
const METHODS: [(&str, &str, [bool; 2]); 4] = [
    ("dp-optimisation", "DP optimisation", [true, false]),
    ("parameter-perturbation", "parameter perturbation", [false, true]),
    ("local-averaging", "local averaging", [true, true]),
    ("virtual-clients", "virtual clients", [true, true]),
];

/// Signal to noise of a run, or `None` where the method has no sum to aggregate.
fn signal_to_noise(update: &str, size: u32, aggregated: bool) -> Result<Option<f64>, ReproduceError> {
    if update == "dp-optimisation" && aggregated {
        return Ok(None);
    }
    let shards = matches!(update, "local-averaging" | "virtual-clients");
    let options = if shards { format!("shards = {}\nstate = \"tied\"\n", size / SHARD) } else { String::new() };
    let (trust, aggregation) = if aggregated {
        ("aggregated", format!("[aggregation]\nmax_units = {size}\nhonest_cap = {SITES}\n"))
    } else {
        ("local", format!("max_units = {size}\n"))
    };
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"income\"\n[schema]\nfile = \"adult.schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = {ROUNDS}\nupdate = \"{update}\"\n{options}\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"{trust}\"\n{aggregation}"
    );
    let context = ResolveContext { name: "table 1", update_deadline_seconds: 60, min_sites: SITES, expected_sites: SITES };
    let task: ResolvedTask = RawTask::parse(&text)?.resolve(ADULT, context)?;
    let (terms, releases, z) = match &task.update {
        UpdateSpec::DpOptimisation(spec) => (size, spec.steps * ROUNDS, spec.noise_multiplier.get()),
        UpdateSpec::Shards(spec) => (spec.shards, ROUNDS, spec.noise_multiplier.get()),
        other => return Err(wrong(format!("{other} is not in the table"))),
    };
    #[allow(clippy::cast_precision_loss, reason = "a number of parameters")]
    let dimension = task.family().len() as f64;
    let one = f64::from(terms) * f64::from(releases).sqrt() / (z * dimension.sqrt());
    let sites = f64::from(SITES);
    Ok(Some(one * if aggregated { sites } else { sites.sqrt() }))
}

/// Writes `dp-pvi-table1.{csv,svg,md}`.
pub(super) fn run(options: &Options<'_>) -> Result<(), ReproduceError> {
    let mut lines = Vec::new();
    let mut report = format!(
        "# dp-pvi-table1\n\nSignal to noise of a run of {ROUNDS} rounds (epsilon = 1, delta = 1e-5, replace-one; {SITES} sites; d = 105): all terms at their bound and in one \
         direction over the norm of the noise on the mean and precision blocks. Shards have {SHARD} records. A method gains from local data if \
         it grows with the size of a site, and from aggregation if one sum has more than the sites alone.\n\n| method |"
    );
    for size in SIZES {
        let _ = write!(report, " {size} records, alone | {size} records, one sum |");
    }
    report.push_str(" local data helps (paper) | aggregation helps (paper) |\n|---|---|---|---|---|---|---|\n");
    for (update, title, claims) in METHODS {
        let _ = write!(report, "| {title} |");
        let mut values = Vec::new();
        for size in SIZES {
            for aggregated in [false, true] {
                let value = signal_to_noise(update, size, aggregated)?;
                let _ = match value {
                    Some(value) => write!(report, " {value:.3} |"),
                    None => write!(report, " no sum |"),
                };
                let metric = if aggregated { "one sum" } else { "alone" };
                if let Some(value) = value {
                    lines.push(Line { method: title.to_owned(), epsilon: Some(f64::from(size)), metric, value });
                }
                values.push(value);
            }
        }
        let helps = [values[2] > values[0].map(|v| 1.001 * v), values[1].is_some_and(|one| Some(one) > values[0])];
        let word = |yes: bool| if yes { "yes" } else { "no" };
        let _ = writeln!(report, " {} ({}) | {} ({}) |", word(helps[0]), word(claims[0]), word(helps[1]), word(claims[1]));
    }
    report.push_str("\nIn the CSV the column epsilon holds the number of records of a site.\n");
    let file = options.output.join("dp-pvi-table1.svg");
    super::vips::chart(&file, "Signal to noise of a run", "records of a site", "alone", &lines, "alone")?;
    Run { name: "dp-pvi-table1", lines, report }.write(options)
}

#[cfg(test)]
mod tests {
    use super::{METHODS, SIZES, signal_to_noise};

    /// The paper's table 1, computed.
    #[test]
    fn the_noise_depends_on_what_the_paper_says() -> Result<(), super::ReproduceError> {
        for (update, _, [data, aggregation]) in METHODS {
            let [small, large] = SIZES.map(|size| signal_to_noise(update, size, false));
            let (small, large) = (small?.unwrap_or(f64::NAN), large?.unwrap_or(f64::NAN));
            assert_eq!(large > 1.001 * small, data, "{update}: {small} {large}");
            let sum = signal_to_noise(update, SIZES[0], true)?;
            assert_eq!(sum.is_some_and(|sum| sum > small), aggregation, "{update}: {small} {sum:?}");
        }
        Ok(())
    }
}
