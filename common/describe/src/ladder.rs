//! Finer and finer cells within the bins of a number, each level noised by itself: how levels become one estimate.
//!
//! A cell of level l − 1 is cut into m_l children of level l; level 0 is the bins. All cells of a level have one variance. Ladders do not enter the dense system of
//! [`least_squares`](crate::least_squares):
//!
//! * *up*: the sum of siblings is a second observation of their parent, merged by inverse variance; the sum at the bins is one more observation of the bins in the system;
//! * *down*: child ← upward estimate + (parent − Σ upward estimates of the siblings)/m, with the covariance C ← WCWᵀ + ⊕ v(I − 11ᵀ/m), W = 1/m from parent to child.
//!
//! Together this is the exact least squares solution (message passing on a tree; compared with the dense one in the tests).

use nalgebra::DMatrix;

use crate::{DescribeError, is_positive};

/// One level's noised counts, in the order of the cells, and their variance.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// m: children of each parent.
    pub split: usize,
    /// A noised count of each child, siblings side by side.
    pub values: Vec<f64>,
    /// Of each.
    pub variance: f64,
}

/// What all finer levels say of each level.
#[derive(Debug, Clone, PartialEq)]
pub struct Upward {
    /// Splits, estimates and the one variance of each level, from the coarsest.
    levels: Vec<Level>,
}

/// Sums of `split` siblings each.
fn sums(values: &[f64], split: usize) -> Vec<f64> {
    values.chunks(split).map(|siblings| siblings.iter().sum()).collect()
}

impl Upward {
    /// From the noised levels of so many bins, the coarsest first.
    ///
    /// # Errors
    /// A level that has not m children for each cell of the one before, or no positive variance.
    pub fn of(bins: usize, levels: &[Level]) -> Result<Self, DescribeError> {
        let mut cells = bins;
        for level in levels {
            cells *= level.split;
            if level.split < 2 || level.values.len() != cells || !is_positive(level.variance) {
                return Err(DescribeError::Task(
                    "a level of a ladder has a noised count for each child of the level above, with a positive variance",
                ));
            }
        }
        let mut upward = levels.to_vec();
        for place in (1..levels.len()).rev() {
            let finer = upward[place].clone();
            let (sum, variance) = (sums(&finer.values, finer.split), as_f64(finer.split) * finer.variance);
            let own = &mut upward[place - 1];
            let weight = variance / (variance + own.variance);
            own.values.iter_mut().zip(sum).for_each(|(value, sum)| *value = weight * *value + (1.0 - weight) * sum);
            own.variance *= weight;
        }
        Ok(Self { levels: upward })
    }

    /// One more observation of the bins, and its variance; nothing of a ladder without levels.
    #[must_use]
    pub fn bins(&self) -> Option<(Vec<f64>, f64)> {
        self.levels.first().map(|level| (sums(&level.values, level.split), as_f64(level.split) * level.variance))
    }

    /// The finest counts, given those of the system. `parents` and `covariance` are of all cells of the column in its order; `is_bin` says which have children, the others are carried along.
    ///
    /// # Panics
    /// Lists whose lengths do not belong together.
    #[must_use]
    pub fn down(&self, parents: &[f64], covariance: DMatrix<f64>, is_bin: &[bool]) -> Fine {
        assert!(parents.len() == is_bin.len() && covariance.nrows() == parents.len(), "a count for each cell");
        let (mut counts, mut covariance, mut divided) = (parents.to_vec(), covariance, is_bin.to_vec());
        for Level { split, values, variance } in &self.levels {
            // Of each cell of the next level: its parent, and its place among all children.
            let mut next: Vec<(usize, Option<usize>)> = Vec::new();
            let mut place = 0;
            for (parent, divided) in divided.iter().enumerate() {
                if *divided {
                    next.extend((0..*split).map(|k| (parent, Some(place + k))));
                    place += split;
                } else {
                    next.push((parent, None));
                }
            }
            let (share, before) = (1.0 / as_f64(*split), counts);
            let spread = |child: usize| {
                let siblings = &values[child / split * split..][..*split];
                values[child] - share * siblings.iter().sum::<f64>()
            };
            let factor = |child: Option<usize>| if child.is_some() { share } else { 1.0 };
            counts = next.iter().map(|(parent, child)| before[*parent] * factor(*child) + child.map_or(0.0, spread)).collect();
            covariance = DMatrix::from_fn(next.len(), next.len(), |i, j| {
                let ((p, a), (q, b)) = (next[i], next[j]);
                let carried = covariance[(p, q)] * factor(a) * factor(b);
                let siblings = p == q && a.is_some();
                carried + if siblings { variance * (f64::from(u8::from(i == j)) - share) } else { 0.0 }
            });
            divided = next.iter().map(|(_, child)| child.is_some()).collect();
        }
        Fine { counts, covariance }
    }
}

/// Finest counts and the covariance of their noise, cells without children at their places.
#[derive(Debug, Clone, PartialEq)]
pub struct Fine {
    /// Estimates.
    pub counts: Vec<f64>,
    /// Of their noise.
    pub covariance: DMatrix<f64>,
}

impl Fine {
    /// One more noised observation: sums over groups of neighbouring cells, where group g ends before cell `ends[g]`. x ← x + G(y − Rx), C ← C − GRC, G = CRᵀ(RCRᵀ + σ²I)⁻¹.
    ///
    /// # Errors
    /// Groups that are empty or do not end with the cells, another number of values, or a variance that is not positive.
    pub fn refined(&self, ends: &[usize], values: &[f64], variance: f64) -> Result<Self, DescribeError> {
        const FORM: DescribeError = DescribeError::Task("the second round of a ladder has a noised count for each group of cells");
        let count = self.counts.len();
        let ascends = ends.first().is_some_and(|end| *end > 0) && ends.windows(2).all(|two| two[0] < two[1]);
        if !ascends || ends.last() != Some(&count) || ends.len() != values.len() || !is_positive(variance) {
            return Err(FORM);
        }
        let group = |cell: usize| ends.partition_point(|end| *end <= cell);
        // CRᵀ, and the residuals.
        let mut along = DMatrix::<f64>::zeros(count, ends.len());
        let mut residual = nalgebra::DVector::from_column_slice(values);
        for cell in 0..count {
            residual[group(cell)] -= self.counts[cell];
            for other in 0..count {
                along[(other, group(cell))] += self.covariance[(other, cell)];
            }
        }
        let mut within = DMatrix::<f64>::identity(ends.len(), ends.len()) * variance;
        for cell in 0..count {
            for column in 0..ends.len() {
                within[(group(cell), column)] += along[(cell, column)];
            }
        }
        let gain = &along * within.cholesky().ok_or(FORM)?.inverse();
        let moved = &gain * residual;
        let counts = self.counts.iter().zip(moved.iter()).map(|(x, moved)| x + moved).collect();
        Ok(Self { counts, covariance: &self.covariance - gain * along.transpose() })
    }
}

/// Splits of a ladder that cuts each bin into 2^j cells: none, `2`, `4`, `4, 2`, `4, 4`, ….
#[must_use]
pub fn splits(doublings: u32) -> Vec<u32> {
    let mut splits = vec![4; doublings as usize / 2];
    splits.extend((!doublings.is_multiple_of(2)).then_some(2));
    splits
}

/// Finest cells of a ladder, at most.
pub const MOST_CELLS: u64 = 1024;

/// The fewest fine cells K = bins·2^j up to [`MOST_CELLS`] with K ≥ units/(2·mean sd of F_k − pN), given that mean for these splits: a grid that is much finer than the noise only costs a level.
#[must_use]
pub fn choose(bins: u32, nominal_units: u64, mean_sd: impl Fn(&[u32]) -> f64) -> Vec<u32> {
    let mut doublings = 0;
    loop {
        let chosen = splits(doublings);
        #[allow(clippy::cast_precision_loss, reason = "a rule of thumb")]
        let (cells, units) = ((u64::from(bins) << doublings) as f64, nominal_units as f64);
        if cells >= units / (2.0 * mean_sd(&chosen)) || u64::from(bins) << (doublings + 1) > MOST_CELLS {
            return chosen;
        }
        doublings += 1;
    }
}

#[allow(clippy::cast_precision_loss, reason = "a number of cells")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::least_squares::{Design, Observation};
    use nalgebra::DVector;

    fn numbers(count: usize, seed: u64) -> Vec<f64> {
        let mut state = seed;
        (0..count).map(|_| 40.0 * dp_pvi_math::start::uniform(&mut state) - 5.0).collect()
    }

    /// Up, system and down give what one dense system over the finest cells gives: estimates and all covariances. Two cells of five have no children.
    #[test]
    fn messages_are_the_dense_solution() {
        let is_bin = [false, true, true, true, false];
        let (bins, bin_variance) = (numbers(5, 1), 9.0);
        let levels = [Level { split: 2, values: numbers(6, 2), variance: 4.0 }, Level { split: 3, values: numbers(18, 3), variance: 25.0 }];
        let upward = Upward::of(3, &levels).unwrap();
        let (sums, variance) = upward.bins().unwrap();
        let design = Design::new(vec![5], &[], Some(77.0)).unwrap();
        let ladder = Observation { columns: vec![0], cells: vec![1, 2, 3], values: sums, variances: vec![variance; 3] };
        let solution = design.solve(&[Observation::of_table(vec![0], bins.clone(), 3.0), ladder]).unwrap();
        let fine = upward.down(&solution.table(&[0]).unwrap().estimate, solution.table_covariance(&[0]).unwrap(), &is_bin);
        assert_eq!(fine.counts.len(), 20);

        // Dense: 20 finest cells, one of which follows from the total.
        let bin_of = |cell: usize| if cell == 0 { 0 } else { 1 + (cell - 1) / 6 };
        let mut rows: Vec<(Vec<f64>, f64, f64)> = Vec::new();
        let indicator = |holds: &dyn Fn(usize) -> bool| (0..20).map(|cell| f64::from(u8::from(holds(cell)))).collect::<Vec<_>>();
        (0..5).for_each(|bin| rows.push((indicator(&|cell| bin_of(cell) == bin), bins[bin], bin_variance)));
        (0..6).for_each(|k| rows.push((indicator(&|cell| (1..19).contains(&cell) && (cell - 1) / 3 == k), levels[0].values[k], 4.0)));
        (0..18).for_each(|k| rows.push((indicator(&|cell| cell == k + 1), levels[1].values[k], 25.0)));
        let (mut precision, mut weighted) = (DMatrix::<f64>::zeros(19, 19), DVector::<f64>::zeros(19));
        for (row, value, variance) in rows {
            // x₁₉ = 77 − Σ of the others.
            let free = DVector::from_iterator(19, row[..19].iter().map(|entry| entry - row[19]));
            precision += &free * free.transpose() / variance;
            weighted += free * ((value - 77.0 * row[19]) / variance);
        }
        let covariance = precision.cholesky().unwrap().inverse();
        let dense = &covariance * weighted;
        for i in 0..19 {
            assert!((fine.counts[i] - dense[i]).abs() < 1e-9, "{i}: {} {}", fine.counts[i], dense[i]);
            (0..19).for_each(|j| assert!((fine.covariance[(i, j)] - covariance[(i, j)]).abs() < 1e-9, "{i} {j}"));
        }
    }

    /// One more observation of the sums of groups: as if it had been there from the start, and nothing where it says nothing.
    #[test]
    fn a_second_round_is_one_more_observation() {
        let (first, second) = (numbers(6, 4), numbers(2, 5));
        let before = Fine { counts: first.clone(), covariance: DMatrix::identity(6, 6) * 4.0 };
        let after = before.refined(&[2, 6], &second, 9.0).unwrap();
        // Of k cells with variance v and their sum with variance s each cell moves by v(y − Σx)/(kv + s).
        for (cell, count) in after.counts.iter().enumerate() {
            let group = if cell < 2 { 0..2 } else { 2..6 };
            let (k, y) = (group.len() as f64, second[usize::from(cell >= 2)]);
            let expected = first[cell] + 4.0 * (y - first[group].iter().sum::<f64>()) / (4.0 * k + 9.0);
            assert!((count - expected).abs() < 1e-12);
        }
        assert!((after.covariance[(0, 0)] - (4.0 - 16.0 / 17.0)).abs() < 1e-12 && after.covariance[(0, 3)].abs() < 1e-12);
        assert!(before.refined(&[2, 5], &second, 9.0).is_err() && before.refined(&[0, 6], &second, 9.0).is_err());
    }

    #[test]
    fn the_grid_is_no_finer_than_the_noise() {
        assert_eq!((0..5).map(splits).collect::<Vec<_>>(), [vec![], vec![2], vec![4], vec![4, 2], vec![4, 4]]);
        assert_eq!(choose(10, 1000, |_| 50.0), splits(0));
        assert_eq!(choose(10, 1000, |_| 12.0), splits(3));
        assert_eq!(choose(10, 1 << 40, |_| 12.0), splits(6));
    }
}
