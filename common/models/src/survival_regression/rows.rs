//! A record as one Poisson count for every interval in which it was watched: see the page of the [module](super).

use dp_pvi_math::expfam::any::Standard;

use super::SurvivalRegression;
use crate::many_rows::{Beliefs, ManyRows, Place, PseudoRows, Sparse};
use crate::predictor::Statistics;
use crate::survival::{LogCumulativeHazard, SurvivalModel, width};
use dp_pvi_schema::public::{Example, Extra};

/// Part of a record's time in one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exposure {
    /// Number of the interval, from 0.
    pub interval: u32,
    /// e_b, above 0.
    pub time: f64,
    /// d_b: whether the event came in it.
    pub event: bool,
}

impl SurvivalRegression {
    /// The intervals in which a record was watched, in order. A record whose event came at the time of its entry was watched for `least_exposure` in the interval of that time.
    pub fn exposures(&self, entry: f64, time: f64, event: bool) -> impl Iterator<Item = Exposure> + '_ {
        // Exactly the same time: both were read from a file, or are 0.
        #[allow(clippy::float_cmp, reason = "what is not equal was watched, or left before it came")]
        let at_entry = (event && time == entry).then(|| {
            let later = self.cuts.partition_point(|cut| *cut < time).saturating_sub(1);
            let interval = u32::try_from(later).unwrap_or(u32::MAX).min(self.intervals().saturating_sub(1));
            Exposure { interval, time: self.least_exposure, event: true }
        });
        at_entry.into_iter().chain((0_u32..).zip(self.cuts.windows(2)).filter_map(move |(interval, ends)| {
            let watched = time.min(ends[1]) - entry.max(ends[0]);
            // Also where a number is none.
            (watched > 0.0).then_some(Exposure { interval, time: watched, event: event && ends[0] < time && time <= ends[1] })
        }))
    }

    /// (1 at b; x).
    fn row<'a>(&self, interval: u32, record: Example<'a>) -> impl Iterator<Item = (u32, f64)> + 'a {
        let first = self.intervals();
        std::iter::once((interval, 1.0)).chain(record.indices.iter().zip(record.values).map(move |(&j, &x)| (first + j, x)))
    }
}

impl ManyRows for SurvivalRegression {
    fn write(&self, record: Example<'_>, at: &Place<'_>, rows: &mut PseudoRows) {
        let Extra { entry, event, .. } = record.extra;
        let mut left = at.cut.follow_up;
        for exposure in self.exposures(entry, record.target, event) {
            let number = rows.push(self.row(exposure.interval, record));
            let (mean, variance) = at.q.project(rows.row(number));
            let mean = mean + record.offset;
            let whole = exposure.time * (mean + 0.5 * variance).exp();
            // What comes after the end of follow-up was not seen.
            let ends = whole > left;
            let (expected, came) = if ends { (left, 0.0) } else { (whole, f64::from(u8::from(exposure.event))) };
            rows.set(number, at.cut.of(Statistics { residual: came - expected, curvature: expected }));
            rows.add_expected(came * mean - expected);
            if ends {
                break;
            }
            left -= expected;
        }
    }

    /// At an optimum expected counts are about as large as counts; far from it they may be anything.
    fn write_typical(&self, record: Example<'_>, _at: &Place<'_>, rows: &mut PseudoRows) {
        let Extra { entry, event, .. } = record.extra;
        for exposure in self.exposures(entry, record.target, event) {
            let curvature = if exposure.event { 1.0 } else { 0.5 };
            rows.push_with(self.row(exposure.interval, record), Statistics { residual: 0.0, curvature });
        }
    }

    /// The bound of the curvature on every row: with that of all expected counts no row has more.
    fn write_bound(&self, record: Example<'_>, _dimension: usize, bound: f64, rows: &mut PseudoRows) {
        let Extra { entry, event, .. } = record.extra;
        for exposure in self.exposures(entry, record.target, event) {
            rows.push_with(self.row(exposure.interval, record), Statistics { residual: 0.0, curvature: bound });
        }
    }

    fn ends_follow_up(&self) -> bool {
        true
    }

    fn takes_offsets(&self) -> bool {
        true
    }
}

/// H(t) = Σ_b e_b exp(a_b): the gradient of ln H is Σ_b (e_b exp(a_b)/H) ρ_b.
impl SurvivalModel for SurvivalRegression {
    fn log_cumulative_hazard(&self, q: &Standard, row: Example<'_>, time: f64) -> LogCumulativeHazard {
        let mut rows = PseudoRows::default();
        let mut parts = Vec::new();
        for exposure in self.exposures(0.0, time, false) {
            let number = rows.push(self.row(exposure.interval, row));
            let mean = rows.row(number).entries().map(|(j, x)| x * q.mean()[j as usize]).sum::<f64>() + row.offset;
            parts.push((exposure.interval, exposure.time * mean.exp()));
        }
        let total: f64 = parts.iter().map(|(_, part)| part).sum();
        if total <= 0.0 {
            return LogCumulativeHazard::NOTHING;
        }
        // Shares of the intervals, then x, whose shares add up to 1.
        let first = self.intervals();
        let entries = parts.iter().map(|(interval, part)| (*interval, part / total));
        let (indices, values): (Vec<u32>, Vec<f64>) =
            entries.chain(row.indices.iter().zip(row.values).map(|(&j, &x)| (first + j, x))).unzip();
        let gradient = Sparse { indices: &indices, values: &values };
        LogCumulativeHazard { mean: total.ln(), sd: Beliefs::covariance(q, gradient, gradient).max(0.0).sqrt() }
    }

    fn horizon(&self) -> f64 {
        self.cuts.last().copied().unwrap_or(0.0)
    }
}

impl SurvivalRegression {
    /// Features of a row.
    pub(super) fn width(&self, q: &Standard) -> u32 {
        width(q, self.intervals())
    }
}
