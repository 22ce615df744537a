//! `dp-pvi-papers reproduce thesis-figure-3.3`: what an update of M sites costs each of them if its noise is spread over all, and someone sees the single
//! messages (clipping norm 1, noise σ = 1 on the sum, δ = 1e-4).

use std::fmt::Write as _;

use dp_pvi_accounting::Delta;
use dp_pvi_accounting::{Neighbours, Phase, Plan, Sampling};

use super::dp_sep::wrong;
use super::vips::{Line, Run, chart};
use super::{Options, ReproduceError};

const SITES: [u32; 4] = [1, 2, 5, 10];
const DELTA: f64 = 1e-4;
const SIGMA: f64 = 1.0;

/// min over integer λ ≤ 32 of (T λ(λ+1)/(2σ²) + ln 1/δ)/λ: the moments accountant without sampling.
pub(super) fn moments(sigma: f64, steps: f64, delta: f64) -> f64 {
    (1..=32).map(f64::from).map(|l| (steps * l * (l + 1.0) / (2.0 * sigma * sigma) - delta.ln()) / l).fold(f64::INFINITY, f64::min)
}

/// ε(δ) of Gaussian steps by the exact accountant.
pub(super) fn exact(sigma: f64, sampling: Sampling, steps: u64, delta: f64) -> Result<f64, ReproduceError> {
    let plan = Plan::of(Neighbours::AddRemove, Phase::gaussian(sigma, sampling, steps)).map_err(wrong)?;
    Ok(plan.epsilon(Delta::new(delta).map_err(wrong)?).upper)
}

/// Writes `thesis-figure-3.3.{csv,svg,md}`.
pub(super) fn run(options: &Options<'_>) -> Result<(), ReproduceError> {
    let rounds: Vec<u32> = if options.quick { vec![1, 10] } else { vec![1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100] };
    let mut lines = Vec::new();
    for sites in SITES {
        // A message carries 1/√M of the noise on the sum.
        let sigma = SIGMA / f64::from(sites).sqrt();
        for &round in &rounds {
            let mut line =
                |metric, value| lines.push(Line { method: format!("{sites} sites"), epsilon: Some(f64::from(round)), metric, value });
            line("moments accountant", moments(sigma, f64::from(round), DELTA));
            line("exact", exact(sigma, Sampling::None, round.into(), DELTA)?);
        }
    }
    let mut report = format!(
        "# thesis-figure-3.3\n\nClipping norm 1, noise of standard deviation {SIGMA} on the sum of all sites, delta = {DELTA}, add-remove of a site. Claimed whatever M: the row of \
         one site. True towards anybody who sees single messages, which carry noise {SIGMA}/√M: the other rows. Under aggregation, where nobody sees them, the first \
         row holds (if a site's state keeps no share of the noise).\n\n| sites | rounds | moments accountant (the thesis' way) | exact |\n|---|---|---|---|\n"
    );
    for sites in SITES {
        for round in [1, 10, 50, 100] {
            let of = |metric: &str| {
                let method = format!("{sites} sites");
                lines.iter().find(|l| l.method == method && l.metric == metric && l.epsilon == Some(f64::from(round))).map(|l| l.value)
            };
            if let (Some(moments), Some(exact)) = (of("moments accountant"), of("exact")) {
                let _ = writeln!(report, "| {sites} | {round} | {moments:.3} | {exact:.3} |");
            }
        }
    }
    report.push_str("\nIn the CSV the column epsilon holds the number of rounds.\n");
    chart(
        &options.output.join("thesis-figure-3.3.svg"),
        "Cost of a message that carries 1/√M of the noise",
        "rounds",
        "epsilon",
        &lines,
        "exact",
    )?;
    Run { name: "thesis-figure-3.3", lines, report }.write(options)
}

#[cfg(test)]
mod tests {
    use dp_pvi_accounting::Sampling;

    use super::{DELTA, exact, moments};

    /// M messages with 1/√M of the noise each cost what M rounds at full noise cost, and the exact figure is below the moments'.
    #[test]
    fn spreading_the_noise_multiplies_the_rounds() -> Result<(), super::ReproduceError> {
        let spread = exact(1.0 / 5f64.sqrt(), Sampling::None, 3, DELTA)?;
        assert!((spread - exact(1.0, Sampling::None, 15, DELTA)?).abs() < 1e-6);
        assert!(spread < moments(1.0 / 5f64.sqrt(), 3.0, DELTA));
        Ok(())
    }
}
