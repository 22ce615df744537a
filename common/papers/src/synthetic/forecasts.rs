//! Forecasts beside outcomes: what both examples of forecasts count, and the page that they write.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss)]
#![allow(clippy::disallowed_methods, reason = "a part of experiments, which write their page")]

use std::fmt::Write as _;
use std::path::Path;

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_models::prediction::Level;
use dp_pvi_models::rows::Rows;
use dp_pvi_posterior::methods::noise_aware::History;
use dp_pvi_posterior::noise_aware::of_run;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_protocol::predictive::Predictor;
use dp_pvi_records::RecordTable;
use dp_pvi_results::forecast::{Forecast, unprotected};

/// What one run gave.
pub(crate) struct Outcome {
    /// Widths of 90 % intervals.
    widths: Vec<f64>,
    /// Held-out log-likelihood a record, of the posterior without protection minus that of the result.
    loss: f64,
}

impl Outcome {
    /// Of a run over these tables, judged by records that were held out.
    pub(crate) fn of(task: &ResolvedTask, history: &History, tables: &[RecordTable], held_out: &[RecordTable]) -> Option<Self> {
        let aware = of_run(task, history).ok()?.natural_parameters;
        let exact = unprotected(task, &rows(task, tables), &vec![0.0; task.dimension as usize])?;
        let score = |natural: &[f64]| {
            let predictor = Predictor::new(&task.model, task.family(), natural).unwrap();
            let records = held_out.iter().flat_map(RecordTable::records);
            records.map(|r| predictor.log_density(r.example())).sum::<f64>()
        };
        let records: usize = held_out.iter().map(|table| table.records().len()).sum();
        let loss = (score(exact.natural()) - score(&aware)) / records as f64;
        let q = Gaussian::from_natural(task.family(), aware).ok()?;
        let widths = q.standard().variances().iter().map(|v| 2.0 * Level::P90.half_width() * v.sqrt()).collect();
        Some(Self { widths, loss })
    }
}

/// Records as rows that stand for themselves.
fn rows(task: &ResolvedTask, tables: &[RecordTable]) -> Rows {
    let mut rows = Rows::new(task.dimension as usize);
    let records = || tables.iter().flat_map(RecordTable::records);
    records().for_each(|record| rows.push(record.indices, record.values, record.offset));
    let mut targets = records().map(|record| record.target);
    rows.set_targets(|_| [(targets.next().unwrap(), 1.0), (0.0, 0.0)]);
    rows
}

/// Outcomes counted against forecasts.
#[derive(Debug, Default, Clone)]
pub(crate) struct Tally {
    inside: u32,
    /// high/low of every range.
    ranges: Vec<f64>,
    near: u32,
    /// Outcome over the point forecast with published figures.
    ratios: Vec<f64>,
    losses_inside: u32,
    /// Loss: outcome, median forecast without figures, and with them.
    losses: Vec<[f64; 3]>,
}

impl Tally {
    /// The columns of [`Self::cells`].
    pub(crate) const HEADER: &str = "intervals | in the range | range: high over low | within 1.5 with figures | outcome over forecast with figures: 5 %, median, 95 % | \
         loss: outcome | forecast | with figures | in the range |\n";
    /// The line below them.
    pub(crate) const LINE: &str = "---|---|---|---|---|---|---|---|---|\n";

    /// Adds a run; `drawn` is the forecast from schema and prior alone, `known` that with published figures.
    pub(crate) fn add(&mut self, outcome: &Outcome, drawn: &Forecast, known: &Forecast) {
        for ((width, drawn), known) in outcome.widths.iter().zip(&drawn.coefficients).zip(&known.coefficients) {
            self.inside += u32::from((drawn.width.low..=drawn.width.high).contains(width));
            self.ranges.push(drawn.width.high / drawn.width.low);
            let ratio = width / known.width.median;
            self.near += u32::from((1.0 / 1.5..=1.5).contains(&ratio));
            self.ratios.push(ratio);
        }
        self.losses_inside += u32::from((drawn.loss.low..=drawn.loss.high).contains(&outcome.loss));
        self.losses.push([outcome.loss, drawn.loss.median, known.loss.median]);
    }

    /// Adds what another one has counted.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.inside += other.inside;
        self.near += other.near;
        self.losses_inside += other.losses_inside;
        self.ranges.extend(&other.ranges);
        self.ratios.extend(&other.ratios);
        self.losses.extend(&other.losses);
    }

    /// As cells of a table.
    pub(crate) fn cells(&self) -> String {
        let count = self.ratios.len();
        let share = |part: u32, all: usize| format!("{:.1} %", 100.0 * f64::from(part) / all.max(1) as f64);
        let loss = |k: usize| quantile(self.losses.iter().map(|loss| loss[k]).collect(), 0.5);
        let ratio = |at: f64| quantile(self.ratios.clone(), at);
        format!(
            "{count} | {} | {:.1} | {} | {:.2}, {:.2}, {:.2} | {:.4} | {:.4} | {:.4} | {} |",
            share(self.inside, count),
            quantile(self.ranges.clone(), 0.5),
            share(self.near, count),
            ratio(0.05),
            ratio(0.5),
            ratio(0.95),
            loss(0),
            loss(1),
            loss(2),
            share(self.losses_inside, self.losses.len()),
        )
    }
}

fn quantile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get((values.len().saturating_sub(1) as f64 * share).round() as usize).copied().unwrap_or(f64::NAN)
}

/// Tallies by name, in the order in which names came.
#[derive(Debug, Default)]
pub(crate) struct Tallies(Vec<(String, Tally)>);

impl Tallies {
    /// Merges a tally into that of a name.
    pub(crate) fn merge(&mut self, name: String, tally: &Tally) {
        match self.0.iter_mut().find(|(own, _)| *own == name) {
            Some((_, own)) => own.merge(tally),
            None => self.0.push((name, tally.clone())),
        }
    }

    /// As a table; `names` are the columns of a name, as cells.
    pub(crate) fn table(&self, names: &str) -> String {
        let columns = names.matches('|').count() + 1;
        let mut text = format!("| {names} | {}|{}{}", Tally::HEADER, "---|".repeat(columns), Tally::LINE);
        self.0.iter().for_each(|(name, tally)| writeln!(text, "| {name} | {}", tally.cells()).unwrap());
        text
    }
}

/// Puts a section into a page in the place of the one with the same title, or at its end.
pub(crate) fn write_section(page: &Path, title: &str, text: &str) {
    let old = std::fs::read_to_string(page).unwrap_or_default();
    let heading = format!("## {title}\n");
    let start = old.find(&heading).unwrap_or(old.len());
    let end = old[start..].match_indices("\n## ").next().map_or(old.len(), |(at, _)| start + at + 1);
    std::fs::write(page, format!("{}{heading}\n{}\n{}", &old[..start], text.trim_end(), &old[end..])).unwrap();
}
