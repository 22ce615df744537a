//! Quantiles from finest counts: a value, and an interval that covers with two tests.
//!
//! F_k is the count up to the fine edge x_k and N that of all cells with a value, so D_k = F_k − pN has mean at least 0 from the true cell's upper edge on, and below 0 before. With
//! L = min{k : D_k + z·sd_k ≥ 0} and U = 1 + max{k : D_k − z·sd_k ≤ 0} the interval is [x_{L−1}, x_U]: L is too large only where D at the true cell's upper edge is found below 0 by z·sd, and U
//! too small only where D at its lower edge is found above 0 by as much. Two tests, whatever the number of edges. It is never narrower than a cell.

use crate::intervals::Level;
use crate::ladder::Fine;
use crate::{DescribeError, is_positive};

/// Where a quantile lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Place {
    /// Below the first edge.
    Below,
    /// Here.
    At(f64),
    /// Above the last edge.
    Above,
}

/// Counts of a number at its fine edges.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    edges: Vec<f64>,
    has_below: bool,
    has_above: bool,
    /// F at the edges x₀ … x_K.
    cumulative: Vec<f64>,
    /// N.
    present: f64,
    /// Variances of F_k, covariances of F_k and N, variance of N.
    variances: Vec<f64>,
    with_present: Vec<f64>,
    present_variance: f64,
}

/// A quantile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Quantile {
    /// By isotonic regression of F, linear within a cell.
    pub value: Place,
    /// Lower end for these records.
    pub lower: Place,
    /// Upper end.
    pub upper: Place,
}

impl Grid {
    /// Of the K fine cells between these edges, one cell below them first and one above them last where there are any.
    ///
    /// # Errors
    /// Another number of cells, or N that is not above 0.
    pub fn new(edges: Vec<f64>, fine: &Fine, [has_below, has_above]: [bool; 2]) -> Result<Self, DescribeError> {
        let cells = edges.len().saturating_sub(1) + usize::from(has_below) + usize::from(has_above);
        if edges.len() < 2 || fine.counts.len() != cells {
            return Err(DescribeError::Task("a ladder has a fine count for each cell between its edges"));
        }
        let present: f64 = fine.counts.iter().sum();
        if !is_positive(present) {
            return Err(DescribeError::TooSmall);
        }
        let (mut sum, mut variance, mut with_present) = (0.0, 0.0, 0.0);
        let rows: Vec<f64> = (0..cells).map(|i| fine.covariance.row(i).sum()).collect();
        let mut grid = Self {
            edges,
            has_below,
            has_above,
            cumulative: vec![],
            present,
            variances: vec![],
            with_present: vec![],
            present_variance: rows.iter().sum(),
        };
        if !has_below {
            grid.push(0.0, 0.0, 0.0);
        }
        for (cell, row) in rows.iter().enumerate().take(cells - usize::from(has_above)) {
            // Var(F + x) = Var F + 2 Cov(F, x) + Var x.
            let before: f64 = (0..cell).map(|other| fine.covariance[(cell, other)]).sum();
            sum += fine.counts[cell];
            variance += 2.0 * before + fine.covariance[(cell, cell)];
            with_present += row;
            grid.push(sum, variance, with_present);
        }
        Ok(grid)
    }

    fn push(&mut self, sum: f64, variance: f64, with_present: f64) {
        self.cumulative.push(sum);
        self.variances.push(variance);
        self.with_present.push(with_present);
    }

    /// N and the standard deviation of its noise.
    #[must_use]
    pub fn present(&self) -> (f64, f64) {
        (self.present, self.present_variance.max(0.0).sqrt())
    }

    /// F at the edges x₀ … x_K, and the standard deviations of their noise.
    #[must_use]
    pub fn cumulative(&self) -> (&[f64], Vec<f64>) {
        (&self.cumulative, self.variances.iter().map(|variance| variance.max(0.0).sqrt()).collect())
    }

    /// D_k and the standard deviation of its noise, at every edge; sampling adds Np(1 − p) where `sampling` is 1.
    fn differences(&self, p: f64, sampling: f64) -> impl DoubleEndedIterator<Item = (f64, f64)> + ExactSizeIterator + '_ {
        (0..self.edges.len()).map(move |k| {
            let noise = self.variances[k] - 2.0 * p * self.with_present[k] + p * p * self.present_variance;
            (self.cumulative[k] - p * self.present, (noise.max(0.0) + sampling * self.present * p * (1.0 - p)).sqrt())
        })
    }

    /// Mean standard deviation of F_k − pN over the edges.
    #[must_use]
    pub fn mean_sd(&self, p: f64) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "a number of edges")]
        let mean = self.differences(p, 0.0).map(|(_, sd)| sd).sum::<f64>() / self.edges.len() as f64;
        mean
    }

    /// The p-quantile of these records, with an interval at this level ([`Level::of_each`] for several together).
    #[must_use]
    pub fn quantile(&self, p: f64, level: Level) -> Quantile {
        self.with(p, level, 0.0)
    }

    /// The same for the population.
    #[must_use]
    pub fn quantile_of_population(&self, p: f64, level: Level) -> Quantile {
        self.with(p, level, 1.0)
    }

    fn with(&self, p: f64, level: Level, sampling: f64) -> Quantile {
        let (z, last) = (level.z(), self.edges.len() - 1);
        let first = usize::from(!self.has_below);
        // The first edge below which the quantile may lie, and the last one above which it may.
        let lower = self.differences(p, sampling).enumerate().skip(first).find(|(_, (d, sd))| d + z * sd >= 0.0).map(|(k, _)| k);
        let upper = self.differences(p, sampling).enumerate().rev().find(|(_, (d, sd))| d - z * sd <= 0.0).map(|(k, _)| k);
        let lower = match lower {
            Some(0) => Place::Below,
            Some(k) => Place::At(self.edges[k - 1]),
            None => Place::At(self.edges[last]),
        };
        let upper = match upper {
            None => Place::At(self.edges[0]),
            Some(k) if k < last => Place::At(self.edges[k + 1]),
            Some(_) if self.has_above => Place::Above,
            Some(_) => Place::At(self.edges[last]),
        };
        Quantile { value: self.value(p), lower, upper }
    }

    fn value(&self, p: f64) -> Place {
        let mut risen = isotonic(&self.cumulative);
        risen.iter_mut().for_each(|f| *f = f.clamp(0.0, self.present));
        if !self.has_above
            && let Some(last) = risen.last_mut()
        {
            *last = self.present;
        }
        let wanted = p * self.present;
        match risen.iter().position(|f| *f >= wanted) {
            Some(0) if self.has_below => Place::Below,
            Some(k) => {
                let k = k.max(1);
                let (from, to, rise) = (self.edges[k - 1], self.edges[k], risen[k] - risen[k - 1]);
                Place::At(if rise > 0.0 { from + (to - from) * ((wanted - risen[k - 1]) / rise).clamp(0.0, 1.0) } else { from })
            }
            None => Place::Above,
        }
    }

    /// Edges by which a second round cuts: of each value the nearest fine edge, the lower one of two, but neither end; ascending, each once. A value outside is at the end next to it.
    #[must_use]
    pub fn cuts(&self, values: &[Place]) -> Vec<usize> {
        let last = self.edges.len() - 1;
        let nearest = |value: &Place| match value {
            Place::Below => 1,
            Place::Above => last.saturating_sub(1),
            Place::At(value) => {
                let distance = |k: &usize| (self.edges[*k] - value).abs();
                (0..=last).min_by(|i, j| distance(i).total_cmp(&distance(j))).unwrap_or(0)
            }
        };
        let mut cuts: Vec<usize> =
            values.iter().map(|value| nearest(value).clamp(1, last.saturating_sub(1).max(1))).filter(|k| *k < last).collect();
        cuts.sort_unstable();
        cuts.dedup();
        cuts
    }

    /// Where the groups of cells between these cuts end, in the order of the fine counts: the cell below is in the first one, the cell above in the last.
    #[must_use]
    pub fn groups(&self, cuts: &[usize]) -> Vec<usize> {
        let below = usize::from(self.has_below);
        let cells = self.edges.len() - 1 + below + usize::from(self.has_above);
        cuts.iter().map(|cut| cut + below).chain([cells]).collect()
    }
}

/// The nearest list that does not fall (pool adjacent violators).
fn isotonic(values: &[f64]) -> Vec<f64> {
    let mut pools: Vec<(f64, usize)> = Vec::new();
    for value in values {
        let (mut sum, mut count) = (*value, 1);
        #[allow(clippy::cast_precision_loss, reason = "a number of edges")]
        let mean = |sum: f64, count: usize| sum / count as f64;
        while let Some((before, many)) = pools.last()
            && mean(*before, *many) >= mean(sum, count)
        {
            (sum, count) = (sum + before, count + many);
            pools.pop();
        }
        pools.push((sum, count));
    }
    #[allow(clippy::cast_precision_loss, reason = "a number of edges")]
    let spread = |(sum, count): (f64, usize)| std::iter::repeat_n(sum / count as f64, count);
    pools.into_iter().flat_map(spread).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::DMatrix;

    fn fine(counts: &[f64], variance: f64) -> Fine {
        Fine { counts: counts.to_vec(), covariance: DMatrix::identity(counts.len(), counts.len()) * variance }
    }

    #[test]
    fn without_noise_a_quantile_lies_in_its_cell() {
        let grid = Grid::new(vec![0.0, 1.0, 2.0, 4.0], &fine(&[10.0, 30.0, 60.0], 0.0), [false; 2]).unwrap();
        let found = grid.quantile(0.25, Level::NINETY_FIVE);
        assert_eq!(found, Quantile { value: Place::At(1.5), lower: Place::At(1.0), upper: Place::At(2.0) });
        assert_eq!(grid.quantile(0.7, Level::NINETY_FIVE).value, Place::At(3.0));
        let wider = grid.quantile_of_population(0.25, Level::NINETY_FIVE);
        assert_eq!((wider.lower, wider.upper), (Place::At(1.0), Place::At(2.0)));
    }

    /// A quantile beyond the bins is reported as that, and its interval is open there.
    #[test]
    fn quantiles_outside_of_the_bins_are_told_as_such() {
        let counts = [40.0, 5.0, 5.0, 50.0];
        let grid = Grid::new(vec![0.0, 1.0, 2.0], &fine(&counts, 1.0), [true; 2]).unwrap();
        assert_eq!(grid.cumulative().0, [40.0, 45.0, 50.0]);
        let (low, high) = (grid.quantile(0.2, Level::NINETY_FIVE), grid.quantile(0.9, Level::NINETY_FIVE));
        assert_eq!((low.value, low.lower, low.upper), (Place::Below, Place::Below, Place::At(0.0)));
        assert_eq!((high.value, high.lower, high.upper), (Place::Above, Place::At(2.0), Place::Above));
        assert_eq!(grid.groups(&[1]), [2, 4]);
        // Variances of F_k − pN by hand: p²·above + (1 − p)²·the rest.
        let (_, sds) = grid.cumulative();
        assert!(sds.iter().zip([1.0f64, 2.0, 3.0]).all(|(sd, v)| (sd - v.sqrt()).abs() < 1e-12));
        let by_hand = [1.0f64, 2.0, 3.0].map(|below| (0.64 * below + 0.04 * (4.0 - below)).sqrt()).iter().sum::<f64>() / 3.0;
        assert!((grid.mean_sd(0.2) - by_hand).abs() < 1e-12);
        assert_eq!(Grid::new(vec![0.0, 1.0, 2.0], &fine(&[-1.0, 0.0], 1.0), [false; 2]), Err(DescribeError::TooSmall));
    }

    #[test]
    fn isotonic_regression_is_the_nearest_list_that_rises() {
        assert_eq!(isotonic(&[1.0, 3.0, 2.0, 2.0, 5.0, 4.0]), [1.0, 7.0 / 3.0, 7.0 / 3.0, 7.0 / 3.0, 4.5, 4.5]);
        assert_eq!(isotonic(&[3.0, 2.0, 1.0]), [2.0; 3]);
    }

    #[test]
    fn a_second_round_cuts_at_the_nearest_edges() {
        let edges: Vec<f64> = (0..=8).map(f64::from).collect();
        let grid = Grid::new(edges, &fine(&[10.0; 8], 1.0), [false; 2]).unwrap();
        let at = |values: &[f64]| grid.cuts(&values.iter().map(|value| Place::At(*value)).collect::<Vec<_>>());
        assert_eq!(at(&[2.5, 2.4, 7.9, 0.1, 5.0]), [1, 2, 5, 7]);
        assert_eq!(grid.cuts(&[Place::Below, Place::Above]), [1, 7]);
        assert_eq!(grid.groups(&[1, 2, 5, 7]), [1, 2, 5, 7, 8]);
    }
}
