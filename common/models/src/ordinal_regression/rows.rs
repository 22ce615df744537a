//! A record as one to three logits that came out as 1: see the page of the [module](super).

use super::OrdinalRegression;
use crate::many_rows::{ManyRows, Place, PseudoRows};
use crate::predictor::Statistics;
use dp_pvi_math::quadrature::{sigmoid_moments, softplus};
use dp_pvi_schema::public::Example;

impl ManyRows for OrdinalRegression {
    fn write(&self, record: Example<'_>, at: &Place<'_>, rows: &mut PseudoRows) {
        let Some(class) = self.class(record.target) else { return };
        let width = self.width(at.q.dimension());
        let centre: Vec<f64> = (width..width + self.thresholds()).map(|j| at.centre(j)).collect();
        let logits = Logits { record, class, width, thresholds: Thresholds::at(&centre) };
        logits.each(|row, constant| {
            let number = rows.push(row);
            let (mean, variance) = at.q.project(rows.row(number));
            let (mean, variance) = (mean + constant, variance.max(0.0));
            let moments = sigmoid_moments(mean, variance);
            rows.set(number, Statistics { residual: 1.0 - moments.sigmoid, curvature: moments.curvature });
            // log σ(z) = z − softplus(z).
            rows.add_expected(mean - softplus(mean, variance));
        });
    }

    /// ¼ on every row, rows being those at the prior mean of κ.
    fn write_bound(&self, record: Example<'_>, dimension: usize, _bound: f64, rows: &mut PseudoRows) {
        let Some(class) = self.class(record.target) else { return };
        let centre: Vec<f64> = (0..self.thresholds()).map(|j| self.prior_of(j).0).collect();
        let logits = Logits { record, class, width: self.width(dimension), thresholds: Thresholds::at(&centre) };
        logits.each(|row, _| rows.push_with(row, Statistics { residual: 0.0, curvature: 0.25 }));
    }

    fn has_moving_rows(&self) -> bool {
        true
    }

    fn takes_offsets(&self) -> bool {
        false
    }
}

/// α at a mean of κ, and their derivatives.
#[derive(Debug, Clone)]
pub(super) struct Thresholds {
    /// α_j(m).
    pub(super) values: Vec<f64>,
    /// 1, σ(m_2), …: D_j are the first j of them.
    pub(super) slopes: Vec<f64>,
    /// α_j(m) − D_jᵀm.
    pub(super) constants: Vec<f64>,
}

impl Thresholds {
    pub(super) fn at(centre: &[f64]) -> Self {
        let slopes: Vec<f64> =
            centre.iter().enumerate().map(|(j, m)| if j == 0 { 1.0 } else { sigmoid_moments(*m, 0.0).sigmoid }).collect();
        let running = |sum: &mut f64, step: f64| {
            *sum += step;
            Some(*sum)
        };
        let steps = centre.iter().enumerate().map(|(j, m)| if j == 0 { *m } else { softplus(*m, 0.0) });
        let values: Vec<f64> = steps.scan(0.0, running).collect();
        let linear = slopes.iter().zip(centre).map(|(slope, m)| slope * m).scan(0.0, running);
        let constants = values.iter().zip(linear).map(|(alpha, linear)| alpha - linear).collect();
        Self { values, slopes, constants }
    }
}

/// A record's logits.
struct Logits<'a> {
    record: Example<'a>,
    /// From 0.
    class: usize,
    width: u32,
    thresholds: Thresholds,
}

impl Logits<'_> {
    /// Row and constant of every logit: upper, lower, gap.
    fn each(&self, mut take: impl FnMut(&mut dyn Iterator<Item = (u32, f64)>, f64)) {
        let (class, last) = (self.class, self.thresholds.values.len());
        let x = |sign: f64| self.record.indices.iter().zip(self.record.values).map(move |(&j, &x)| (j, sign * x));
        let slopes =
            |count: usize, sign: f64| (self.width..).zip(&self.thresholds.slopes[..count]).map(move |(j, slope)| (j, sign * slope));
        if class < last {
            take(&mut x(-1.0).chain(slopes(class + 1, 1.0)), self.thresholds.constants[class]);
        }
        if class > 0 {
            take(&mut x(1.0).chain(slopes(class, -1.0)), -self.thresholds.constants[class - 1]);
        }
        if class > 0 && class < last {
            #[allow(clippy::cast_possible_truncation, reason = "below the number of classes")]
            let own = self.width + class as u32;
            take(&mut std::iter::once((own, 1.0)), 0.0);
        }
    }
}
