//! A record as one row with its expected count, and one for the event: see the page of the [module](super).

use dp_pvi_math::expfam::any::Standard;

use super::WeibullRegression;
use crate::many_rows::{Beliefs, ManyRows, Place, PseudoRows, Sparse};
use crate::predictor::Statistics;
use crate::survival::{LogCumulativeHazard, SurvivalModel, width};
use dp_pvi_schema::public::Example;

impl WeibullRegression {
    /// (x; last).
    fn row<'a>(record: Example<'a>, kappa: u32, last: f64) -> impl Iterator<Item = (u32, f64)> + 'a {
        record.indices.iter().copied().zip(record.values.iter().copied()).chain(std::iter::once((kappa, last)))
    }

    /// The row of a record whose follow-up ends before its time: at the u = k ln t where B events were to be expected, without an event.
    fn end_follow_up(record: Example<'_>, at: &Place<'_>, last: f64, rows: &mut PseudoRows) {
        let (kappa, bound) = (Self::kappa(at.q), at.cut.follow_up);
        let features = Sparse { indices: record.indices, values: record.values };
        let shape = Sparse { indices: &[kappa], values: &[1.0] };
        let (mean, variance) = at.q.project(features);
        let count = LogCount {
            level: mean + record.offset + 0.5 * variance,
            slope: 1.0 + at.q.mean(kappa) - at.centre(kappa) + at.q.covariance(features, shape),
            curvature: at.q.covariance(shape, shape),
        };
        rows.clear();
        // E of that u is B, but for rounding and where E is above B from the start.
        let statistics = at.cut.of(Statistics { residual: -bound, curvature: bound });
        rows.push_with(Self::row(record, kappa, count.end(last, bound)), statistics);
        rows.add_expected(-bound);
    }

    /// Position of κ.
    pub(super) fn kappa(q: &dyn Beliefs) -> u32 {
        width(q, 1)
    }
}

/// ln E as a function of u = k ln t, ln E(u) = level + slope u + ½ curvature u², at a record's features.
#[derive(Debug, Clone, Copy)]
struct LogCount {
    level: f64,
    slope: f64,
    curvature: f64,
}

impl LogCount {
    /// The latest u up to `last` with E(u) ≤ B; E(last) is above B. What is not known of k makes E bend upwards for small t, too: where E is above B before `last` as well, the u
    /// at which it is smallest.
    fn end(&self, last: f64, bound: f64) -> f64 {
        let &Self { level, slope, curvature } = self;
        let above = level - bound.ln();
        let root = (slope * slope - 2.0 * curvature * above).max(0.0).sqrt();
        // The larger root of `above` + slope u + ½ curvature u², in the form in which nothing cancels. A root of 0 is the lowest point.
        let end = if slope > 0.0 { -2.0 * above / (slope + root) } else { (root - slope) / curvature };
        let lowest = -slope / curvature;
        let end = if root > 0.0 { end } else { lowest };
        if end.is_nan() { last } else { end.min(last) }
    }
}

impl ManyRows for WeibullRegression {
    fn write(&self, record: Example<'_>, at: &Place<'_>, rows: &mut PseudoRows) {
        let log_time = (record.target / self.time_unit).ln();
        if !log_time.is_finite() {
            return;
        }
        let kappa = Self::kappa(at.q);
        let centre = at.centre(kappa);
        let slope = centre.exp() * log_time;
        let constant = slope * (1.0 - centre) + record.offset;
        let number = rows.push(Self::row(record, kappa, slope));
        let (mean, variance) = at.q.project(rows.row(number));
        let (mean, variance) = (mean + constant, variance.max(0.0));
        let expected = (mean + 0.5 * variance).exp();
        if expected > at.cut.follow_up {
            Self::end_follow_up(record, at, slope, rows);
            return;
        }
        rows.set(number, at.cut.of(Statistics { residual: -expected, curvature: expected }));
        rows.add_expected(-expected);
        if record.extra.event {
            rows.push_with(Self::row(record, kappa, 1.0 + slope), Statistics { residual: 1.0, curvature: 0.0 });
            // κ + (k − 1) ln t + η, k linearised as in the row.
            rows.add_expected(mean + at.q.mean(kappa) - log_time);
        }
    }

    /// At an optimum expected counts are about as large as counts; far from it they may be anything.
    fn write_typical(&self, record: Example<'_>, at: &Place<'_>, rows: &mut PseudoRows) {
        let kappa = Self::kappa(at.q);
        let slope = at.centre(kappa).exp() * (record.target / self.time_unit).ln();
        if slope.is_finite() {
            let curvature = if record.extra.event { 1.0 } else { 0.5 };
            rows.push_with(Self::row(record, kappa, slope), Statistics { residual: 0.0, curvature });
        }
    }

    /// The row at the prior mean of κ, and for an event what rows that move leave out, both with the bound of the curvature.
    fn write_bound(&self, record: Example<'_>, dimension: usize, bound: f64, rows: &mut PseudoRows) {
        let slope = self.shape_mean.exp() * (record.target / self.time_unit).ln();
        #[allow(clippy::cast_possible_truncation, reason = "no more than 2^32 coefficients are accepted")]
        let kappa = (dimension as u32).saturating_sub(1);
        if slope.is_finite() {
            rows.push_with(Self::row(record, kappa, slope), Statistics { residual: 0.0, curvature: bound });
            if record.extra.event {
                rows.push_with(std::iter::once((kappa, 1.0)), Statistics { residual: 0.0, curvature: bound });
            }
        }
    }

    /// The second derivative of −ln p by κ is E (k ln t)² + (E − d) k ln t. Where the gradient by κ is 0, the second parts of all records add up to the number of events.
    fn write_left_out(&self, record: Example<'_>, at: &Place<'_>, rows: &mut PseudoRows) {
        if record.extra.event {
            rows.push_with(std::iter::once((Self::kappa(at.q), 1.0)), Statistics { residual: 0.0, curvature: 1.0 });
        }
    }

    fn has_moving_rows(&self) -> bool {
        true
    }

    fn ends_follow_up(&self) -> bool {
        true
    }

    fn takes_offsets(&self) -> bool {
        true
    }
}

/// L = k ln t + xᵀμ, with the gradient (x; k ln t).
impl SurvivalModel for WeibullRegression {
    fn log_cumulative_hazard(&self, q: &Standard, row: Example<'_>, time: f64) -> LogCumulativeHazard {
        let log_time = (time / self.time_unit).ln();
        if !log_time.is_finite() {
            return LogCumulativeHazard::NOTHING;
        }
        let kappa = Self::kappa(q);
        let slope = q.mean()[kappa as usize].exp() * log_time;
        let (indices, values): (Vec<u32>, Vec<f64>) = Self::row(row, kappa, slope).unzip();
        let gradient = Sparse { indices: &indices, values: &values };
        let predictor: f64 = row.indices.iter().zip(row.values).map(|(&j, x)| x * q.mean()[j as usize]).sum();
        let sd = Beliefs::covariance(q, gradient, gradient).max(0.0).sqrt();
        LogCumulativeHazard { mean: slope + predictor + row.offset, sd }
    }

    fn horizon(&self) -> f64 {
        self.time_unit
    }
}
