//! Life tables on public cuts: the actuarial estimate (Cutler & Ederer 1958), its variance, and restricted means.

use nalgebra::DMatrix;

use crate::intervals::{Interval, Level, quadratic};
use crate::is_positive;

/// Counts of a survival column: cells in the order of [`Column::Survival`](crate::encode::Column::Survival), without missing and invalid ones.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    /// 0 = t₀ < … < t_J.
    pub cuts: Vec<f64>,
    /// d: events in (t_{j−1}, t_j].
    pub events: Vec<f64>,
    /// c: censored in (t_{j−1}, t_j].
    pub censored: Vec<f64>,
    /// Without an event up to t_J.
    pub beyond: f64,
    /// Covariance of the noise of events, censored and beyond, in this order.
    pub covariance: DMatrix<f64>,
}

/// Survival at the end of an interval.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// t_j.
    pub time: f64,
    /// Y = Σ_{l≥j} (d_l + c_l) + beyond.
    pub at_risk: f64,
    /// S = Π (1 − h), h = d/(Y − c/2) in [0, 1].
    pub survival: f64,
    /// Standard deviation of ln S by noise.
    pub sd_log_noise: f64,
    /// By sampling: Greenwood's √Σ h/((1 − h)E), E = Y − c/2.
    pub sd_log_sampling: f64,
    /// S^exp(±z·sd/|ln S|) for these records.
    pub interval: Interval,
    /// For the population.
    pub interval_population: Interval,
    /// Gradient of S in the counts.
    pub gradient: Vec<f64>,
}

/// The rows up to the last interval in which someone is at risk and someone survives. It is the actuarial estimate, not Kaplan and Meier's at exact times; with `beyond` apart, those who
/// were followed to the end are at risk in the whole of the last interval.
///
/// # Panics
/// Lists whose lengths do not belong together.
#[must_use]
pub fn life_table(of: &Counts, level: Level) -> Vec<Row> {
    let Counts { cuts, events, censored, beyond, covariance } = of;
    let intervals = cuts.len().saturating_sub(1);
    assert!(events.len() == intervals && censored.len() == intervals && covariance.nrows() == 2 * intervals + 1, "a count for each cell");
    let mut rows: Vec<Row> = Vec::with_capacity(intervals);
    let (mut log, mut greenwood, mut gradient) = (0.0, 0.0, vec![0.0; 2 * intervals + 1]);
    for j in 0..intervals {
        let at_risk: f64 = events[j..].iter().chain(&censored[j..]).sum::<f64>() + beyond;
        let exposed = at_risk - 0.5 * censored[j];
        if !is_positive(exposed) {
            break;
        }
        let hazard = (events[j] / exposed).clamp(0.0, 1.0);
        if hazard >= 1.0 {
            break;
        }
        log += (-hazard).ln_1p();
        greenwood += hazard / ((1.0 - hazard) * exposed);
        // ∂h/∂d_j = (1 − h)/E, ∂h/∂c_j = −h/2E, and −h/E for everyone who is at risk longer; ∂ln S = −∂h/(1 − h).
        let factor = -1.0 / ((1.0 - hazard) * exposed);
        gradient[j] += factor * (1.0 - hazard);
        gradient[intervals + j] -= factor * 0.5 * hazard;
        let later = (j + 1..intervals).flat_map(|l| [l, intervals + l]).chain([2 * intervals]);
        later.for_each(|cell| gradient[cell] -= factor * hazard);
        let noise = quadratic(&gradient, covariance).max(0.0);
        let survival = log.exp();
        let of_sd = |sd: f64| log_log(log, level.z() * sd);
        rows.push(Row {
            time: cuts[j + 1],
            at_risk,
            survival,
            sd_log_noise: noise.sqrt(),
            sd_log_sampling: greenwood.sqrt(),
            interval: of_sd(noise.sqrt()),
            interval_population: of_sd((noise + greenwood).sqrt()),
            gradient: gradient.iter().map(|g| survival * g).collect(),
        });
    }
    rows
}

/// S^exp(±half/|ln S|). Where S is 1 there is no such power: exp(−half) and 1.
fn log_log(log: f64, half: f64) -> Interval {
    if log >= 0.0 {
        return Interval { lower: (-half).exp(), upper: 1.0 };
    }
    let factor = (half / -log).exp();
    Interval { lower: (log * factor).exp(), upper: (log / factor).exp() }
}

/// Restricted mean up to the last of these times by trapezoids, S(0) = 1, and its gradient in S at each of them.
///
/// # Panics
/// Not one more cut than values.
#[must_use]
pub fn restricted_mean(cuts: &[f64], survival: &[f64]) -> (f64, Vec<f64>) {
    assert_eq!(cuts.len(), survival.len() + 1, "a value at each cut but the first");
    let at = |j: usize| if j == 0 { 1.0 } else { survival[j - 1] };
    let width = |j: usize| cuts[j] - cuts[j - 1];
    let mean = (1..cuts.len()).map(|j| 0.5 * (at(j - 1) + at(j)) * width(j)).sum();
    let gradient = (1..cuts.len()).map(|j| 0.5 * (width(j) + if j + 1 < cuts.len() { width(j + 1) } else { 0.0 })).collect();
    (mean, gradient)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(events: [f64; 3], censored: [f64; 3], beyond: f64) -> Counts {
        let covariance = DMatrix::from_fn(7, 7, |i, j| if i == j { 9.0 } else { -1.0 });
        Counts { cuts: vec![0.0, 1.0, 2.0, 4.0], events: events.into(), censored: censored.into(), beyond, covariance }
    }

    /// The gradients of all rows are those of numerical differences.
    #[test]
    fn gradients_are_those_of_differences() {
        let at = |cell: usize, by: f64| {
            let mut of = counts([12.0, 30.0, 7.0], [5.0, 9.0, 20.0], 100.0);
            match cell {
                0..3 => of.events[cell] += by,
                3..6 => of.censored[cell - 3] += by,
                _ => of.beyond += by,
            }
            life_table(&of, Level::NINETY_FIVE)
        };
        let rows = at(0, 0.0);
        for (j, cell) in (0..3).flat_map(|j| (0..7).map(move |cell| (j, cell))) {
            let slope = (at(cell, 1e-5)[j].survival - at(cell, -1e-5)[j].survival) / 2e-5;
            assert!((rows[j].gradient[cell] - slope).abs() < 1e-8, "{j} {cell}: {} {slope}", rows[j].gradient[cell]);
        }
    }

    /// Where no one is left, or all of them end, there is no row; where nothing happened the interval still has a width.
    #[test]
    fn rows_end_where_nobody_is_at_risk() {
        let rows = life_table(&counts([-3.0, 5.0, 8.0], [0.0, 1.0, 0.0], 0.0), Level::NINETY_FIVE);
        assert_eq!(rows.len(), 2);
        assert_eq!((rows[0].survival, rows[0].interval.upper), (1.0, 1.0));
        assert!(rows[0].interval.lower < 0.9 && rows[1].survival < 1.0);
        assert!(life_table(&counts([1.0, 1.0, 1.0], [0.0; 3], -50.0), Level::NINETY_FIVE).is_empty());
    }
}
