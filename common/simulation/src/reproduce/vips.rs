//! What the reproductions of VIPS share: experiments from text, other ways of counting, tables and figures.

use std::fmt::Write as _;
use std::path::Path;

use dp_pvi_posterior::task::ResolvedTask;
use indicatif::{ProgressBar, ProgressStyle};
use plotters::prelude::*;

use super::{Options, ReproduceError};
use crate::experiment::{Experiment, Session};

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

/// ε of the run's noise by other ways of counting than the one that was used.
pub(super) fn counted(task: &ResolvedTask, epsilon: f64) -> Result<Vec<Line>, ReproduceError> {
    let visits = task.visits();
    let ours = task.loss(visits)?.epsilon.get();
    let delta = task.privacy.delta.get();
    // Every visit's μ = 1/z; the events are unsampled Gaussians, for which all ways are closed forms.
    let mu_squared = epsilon_to_mu(ours, delta).powi(2);
    let step = (mu_squared / f64::from(visits)).sqrt();
    let line = |method: &str, value| Line { method: method.to_owned(), epsilon: Some(epsilon), metric: "epsilon", value };
    Ok(vec![
        line("exact", ours),
        line("moments accountant", moments(step, visits, delta)),
        line("strong composition", strong_composition(step, visits, delta)),
    ])
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

/// Moments of the log-likelihood ratio, λ up to 32 as in the paper: ε = min (α_λ + ln 1/δ)/λ, α_λ = T μ²λ(λ+1)/2.
fn moments(step: f64, visits: u32, delta: f64) -> f64 {
    (1..=32).map(f64::from).map(|l| f64::from(visits) * step * step * 0.5 * (l + 1.0) - delta.ln() / l).fold(f64::INFINITY, f64::min)
}

/// Each step (ε', δ') with the classical σ = √(2 ln(1.25/δ'))/ε', δ' = δ/(2T), composed by Dwork, Rothblum & Vadhan at δ/2.
fn strong_composition(step: f64, visits: u32, delta: f64) -> f64 {
    let visits = f64::from(visits);
    let epsilon = step * (2.0 * (1.25 * 2.0 * visits / delta).ln()).sqrt();
    epsilon * (2.0 * visits * (2.0 / delta).ln()).sqrt() + visits * epsilon * epsilon.exp_m1()
}

/// The lines of [`counted`] as a table.
pub(super) fn counting_table(lines: &[Line]) -> String {
    let mut text = String::from("| run | exact | moments accountant | strong composition |\n|---|---|---|---|\n");
    let mut epsilons: Vec<f64> = lines.iter().filter(|l| l.metric == "epsilon").filter_map(|l| l.epsilon).collect();
    epsilons.dedup();
    for epsilon in epsilons {
        let of = |method: &str| {
            lines.iter().find(|l| l.metric == "epsilon" && l.epsilon == Some(epsilon) && l.method == method).map_or(f64::NAN, |l| l.value)
        };
        let _ = writeln!(
            text,
            "| epsilon = {epsilon} | {:.3} | {:.3} | {:.3} |",
            of("exact"),
            of("moments accountant"),
            of("strong composition")
        );
    }
    text
}

/// Curves of a metric over ε, one for each method; without protection a level line.
pub(super) fn chart(file: &Path, title: &str, x: &str, y: &str, lines: &[Line], metric: &str) -> Result<(), ReproduceError> {
    let failed = |error: &dyn std::fmt::Display| ReproduceError::Result(format!("cannot draw: {error}"));
    let lines: Vec<&Line> = lines.iter().filter(|l| l.metric == metric).collect();
    let mut methods: Vec<&str> = lines.iter().map(|l| l.method.as_str()).collect();
    methods.dedup();
    let span = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        let margin = 0.05 * (high - low).max(1e-9);
        low - margin..high + margin
    };
    let across = span(&mut lines.iter().filter_map(|l| l.epsilon));
    let root = SVGBackend::new(file, (760, 520)).into_drawing_area();
    root.fill(&WHITE).map_err(|e| failed(&e))?;
    let mut chart = ChartBuilder::on(&root)
        .margin(14)
        .caption(title, ("sans-serif", 20))
        .x_label_area_size(40)
        .y_label_area_size(64)
        .build_cartesian_2d(across.clone(), span(&mut lines.iter().map(|l| l.value)))
        .map_err(|e| failed(&e))?;
    chart.configure_mesh().x_desc(x).y_desc(y).draw().map_err(|e| failed(&e))?;
    for (number, method) in methods.iter().enumerate() {
        let colour = Palette99::pick(number).to_rgba();
        let points: Vec<(f64, f64)> = lines
            .iter()
            .filter(|l| l.method == *method)
            .flat_map(|l| match l.epsilon {
                Some(epsilon) => vec![(epsilon, l.value)],
                None => vec![(across.start, l.value), (across.end, l.value)],
            })
            .collect();
        chart
            .draw_series(LineSeries::new(points, colour.stroke_width(2)))
            .map_err(|e| failed(&e))?
            .label(*method)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK).draw().map_err(|e| failed(&e))?;
    root.present().map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use super::{delta_of, epsilon_to_mu, moments, strong_composition};

    #[test]
    fn mu_and_epsilon_are_inverse_and_the_ways_of_counting_are_ordered() {
        for epsilon in [0.5, 1.0, 4.0] {
            let mu = epsilon_to_mu(epsilon, 1e-5);
            assert!((delta_of(mu, epsilon) / 1e-5 - 1.0).abs() < 1e-6);
            let step = mu / 10.0_f64.sqrt();
            let (by_moments, strong) = (moments(step, 10, 1e-5), strong_composition(step, 10, 1e-5));
            assert!(epsilon < by_moments && by_moments < strong, "{epsilon} {by_moments} {strong}");
        }
    }
}
