//! Tables that agree with each other: the generalised least squares solution of all noised blocks.
//!
//! Parameters are the total n, unless it is known; the counts of all cells but the first of each column; and cells (a, b), a, b ≥ 1, of each pair of columns. Every cell of every table is
//! an integer combination of these: t(0, b) = m_b − Σ_a t(a, b), t(a, 0) likewise, t(0, 0) = n − Σ of the rest. With A the combinations of all observed cells, W their
//! inverse variances and y what was observed, the estimate is S AᵀWy with covariance S = (AᵀWA)⁻¹ (Aitken 1936). It is unbiased, and all tables agree exactly.

use nalgebra::{DMatrix, DVector};

use crate::{DescribeError, is_positive};

/// Free cells of a system, at most: its matrix is dense.
pub(crate) const MOST_PARAMETERS: usize = 3_000;

/// Columns and the pairs of them whose tables are asked for or observed.
#[derive(Debug, Clone, PartialEq)]
pub struct Design {
    sizes: Vec<usize>,
    /// Pairs with ascending columns, ascending.
    pairs: Vec<[usize; 2]>,
    /// n, where it is known.
    total: Option<f64>,
    /// Where the parameters of each column, and then of each pair, begin.
    starts: Vec<usize>,
    parameters: usize,
}

/// A linear function of the parameters: a constant, and coefficients.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Combination {
    constant: f64,
    coefficients: Vec<(usize, f64)>,
}

impl Combination {
    /// Parameters and coefficients; one may be there more than once, and counts with the sum.
    pub fn coefficients(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.coefficients.iter().copied()
    }

    /// Adds another one, `factor` times.
    pub fn add(&mut self, other: &Self, factor: f64) {
        self.constant += factor * other.constant;
        self.coefficients.extend(other.coefficients.iter().map(|(parameter, value)| (*parameter, factor * value)));
    }
}

/// Noised counts of cells of one table, which may be some of its cells only.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// One or two columns, in the order of the cells' numbers.
    pub columns: Vec<usize>,
    /// Row-major numbers of the cells.
    pub cells: Vec<usize>,
    /// A noised count of each.
    pub values: Vec<f64>,
    /// The variance of each; all are independent.
    pub variances: Vec<f64>,
}

impl Observation {
    /// All cells of a table with one standard deviation.
    #[must_use]
    pub fn of_table(columns: Vec<usize>, values: Vec<f64>, sd: f64) -> Self {
        Self { columns, cells: (0..values.len()).collect(), variances: vec![sd * sd; values.len()], values }
    }
}

impl Design {
    /// Columns with so many cells, and these pairs of them.
    ///
    /// # Errors
    /// A column that is not there, a pair of one column, no cells, or more than 3,000 parameters.
    pub fn new(sizes: Vec<usize>, pairs: &[[usize; 2]], total: Option<f64>) -> Result<Self, DescribeError> {
        let mut pairs: Vec<[usize; 2]> = pairs.iter().map(|[a, b]| [*a.min(b), *a.max(b)]).collect();
        pairs.sort_unstable();
        pairs.dedup();
        if sizes.contains(&0) || pairs.iter().any(|[a, b]| a == b || *b >= sizes.len()) {
            return Err(DescribeError::Task("a table is over columns that are there, with cells, and no column twice"));
        }
        let mut parameters = usize::from(total.is_none());
        let mut starts = Vec::with_capacity(sizes.len() + pairs.len());
        let of_pair = |[a, b]: &[usize; 2]| (sizes[*a] - 1).saturating_mul(sizes[*b] - 1);
        for size in sizes.iter().map(|size| size - 1).chain(pairs.iter().map(of_pair)) {
            starts.push(parameters);
            parameters = parameters.saturating_add(size);
        }
        if parameters > MOST_PARAMETERS {
            return Err(DescribeError::TooMany(parameters));
        }
        Ok(Self { sizes, pairs, total, starts, parameters })
    }

    /// Free parameters.
    #[must_use]
    pub fn parameters(&self) -> usize {
        self.parameters
    }

    /// Cells of a table over these columns.
    #[must_use]
    pub fn cells(&self, columns: &[usize]) -> usize {
        columns.iter().map(|column| self.sizes[*column]).product()
    }

    /// The total.
    #[must_use]
    pub fn total(&self) -> Combination {
        match self.total {
            Some(n) => Combination { constant: n, coefficients: Vec::new() },
            None => Combination { constant: 0.0, coefficients: vec![(0, 1.0)] },
        }
    }

    fn margin(&self, column: usize, cell: usize) -> Combination {
        let start = self.starts[column];
        if cell > 0 {
            return Combination { constant: 0.0, coefficients: vec![(start + cell - 1, 1.0)] };
        }
        let mut first = self.total();
        first.coefficients.extend((0..self.sizes[column] - 1).map(|k| (start + k, -1.0)));
        first
    }

    /// A cell of a table over one or two columns, by its row-major number; nothing for a pair that the design does not have.
    #[must_use]
    pub fn cell(&self, columns: &[usize], cell: usize) -> Option<Combination> {
        let [first, second] = match columns {
            [column] => return Some(self.margin(*column, cell)),
            [first, second] => [*first, *second],
            _ => return None,
        };
        let (row, column) = (cell / self.sizes[second], cell % self.sizes[second]);
        let ([a, b], [i, j]) = if first < second { ([first, second], [row, column]) } else { ([second, first], [column, row]) };
        let place = self.pairs.binary_search(&[a, b]).ok()?;
        let (start, width) = (self.starts[self.sizes.len() + place], self.sizes[b] - 1);
        let inner = |i: usize, j: usize| start + (i - 1) * width + j - 1;
        let all = |list: Vec<usize>, factor: f64| list.into_iter().map(|parameter| (parameter, factor)).collect();
        let (rows, columns) = (1..self.sizes[a], 1..self.sizes[b]);
        Some(match (i, j) {
            (0, 0) => {
                // n − Σ of the other rows − Σ of the other columns + Σ of what both have.
                let mut corner = self.margin(a, 0);
                corner.coefficients.extend(columns.clone().map(|j| (self.starts[b] + j - 1, -1.0)));
                corner.coefficients.extend(rows.flat_map(|i| columns.clone().map(move |j| (i, j))).map(|(i, j)| (inner(i, j), 1.0)));
                corner
            }
            (0, j) => {
                let mut cell = self.margin(b, j);
                cell.coefficients.extend::<Vec<_>>(all(rows.map(|i| inner(i, j)).collect(), -1.0));
                cell
            }
            (i, 0) => {
                let mut cell = self.margin(a, i);
                cell.coefficients.extend::<Vec<_>>(all(columns.map(|j| inner(i, j)).collect(), -1.0));
                cell
            }
            (i, j) => Combination { constant: 0.0, coefficients: vec![(inner(i, j), 1.0)] },
        })
    }

    /// The estimate from these observations.
    ///
    /// # Errors
    /// A table that the design does not have, lists of different lengths, variances that are not positive, or a parameter of which no observation says anything.
    pub fn solve(&self, observations: &[Observation]) -> Result<Solution, DescribeError> {
        const FORM: DescribeError =
            DescribeError::Task("an observation is of a table of the design, with a value and a positive variance for each cell");
        let mut precision = DMatrix::<f64>::zeros(self.parameters, self.parameters);
        let mut weighted = DVector::<f64>::zeros(self.parameters);
        for Observation { columns, cells, values, variances } in observations {
            let known = columns.iter().all(|column| *column < self.sizes.len()) && cells.iter().all(|cell| *cell < self.cells(columns));
            if !known || cells.len() != values.len() || cells.len() != variances.len() {
                return Err(FORM);
            }
            for ((cell, value), variance) in cells.iter().zip(values).zip(variances) {
                if !is_positive(*variance) {
                    return Err(FORM);
                }
                let of = self.cell(columns, *cell).ok_or(FORM)?;
                for (i, a) in &of.coefficients {
                    weighted[*i] += a * (value - of.constant) / variance;
                    for (j, b) in &of.coefficients {
                        precision[(*i, *j)] += a * b / variance;
                    }
                }
            }
        }
        let covariance = inverse(precision).ok_or(DescribeError::Unobserved)?;
        let estimate = &covariance * weighted;
        Ok(Solution { design: self.clone(), estimate, covariance })
    }
}

/// Size up to which a matrix is inverted as a whole.
const WHOLE: usize = 64;

/// The inverse of a positive definite matrix, by halves: with P = A₁₁⁻¹, T = PA₁₂ and Q = (A₂₂ − A₂₁T)⁻¹ it is P + TQTᵀ, −TQ and Q (Banachiewicz 1937). Products of blocks are what takes the time,
/// and they are what processors are fast at. `None`: the matrix is not positive definite.
fn inverse(matrix: DMatrix<f64>) -> Option<DMatrix<f64>> {
    let size = matrix.nrows();
    if size <= WHOLE {
        return Some(matrix.cholesky()?.inverse());
    }
    let half = size / 2;
    let corner = matrix.view((0, half), (half, size - half));
    let first = inverse(matrix.view((0, 0), (half, half)).into_owned())?;
    let moved = &first * corner;
    let second = inverse(matrix.view((half, half), (size - half, size - half)) - corner.transpose() * &moved)?;
    let side = -(&moved * &second);
    let mut whole = DMatrix::zeros(size, size);
    whole.view_mut((0, 0), (half, half)).copy_from(&(first - &side * moved.transpose()));
    whole.view_mut((0, half), (half, size - half)).copy_from(&side);
    whole.view_mut((half, 0), (size - half, half)).copy_from(&side.transpose());
    whole.view_mut((half, half), (size - half, size - half)).copy_from(&second);
    Some(whole)
}

/// An estimate of all tables of a design.
#[derive(Debug, Clone, PartialEq)]
pub struct Solution {
    design: Design,
    estimate: DVector<f64>,
    covariance: DMatrix<f64>,
}

/// Estimates, not cut off at 0, and standard deviations of their noise.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// Row-major.
    pub estimate: Vec<f64>,
    /// Of each.
    pub sd: Vec<f64>,
}

impl Solution {
    /// The value of a combination.
    #[must_use]
    pub fn value(&self, of: &Combination) -> f64 {
        of.coefficients.iter().fold(of.constant, |sum, (parameter, value)| sum + value * self.estimate[*parameter])
    }

    /// Covariance of two combinations.
    #[must_use]
    pub fn covariance(&self, one: &Combination, other: &Combination) -> f64 {
        let along = |i: usize| other.coefficients.iter().map(|(j, value)| self.covariance[(i, *j)] * value).sum::<f64>();
        one.coefficients.iter().map(|(i, value)| value * along(*i)).sum()
    }

    /// n, and the standard deviation of its noise.
    #[must_use]
    pub fn total(&self) -> (f64, f64) {
        let total = self.design.total();
        (self.value(&total), self.covariance(&total, &total).max(0.0).sqrt())
    }

    /// A table over one or two columns; nothing for a pair that the design does not have.
    #[must_use]
    pub fn table(&self, columns: &[usize]) -> Option<Table> {
        let cells: Option<Vec<_>> = (0..self.design.cells(columns)).map(|cell| self.design.cell(columns, cell)).collect();
        let cells = cells?;
        Some(Table {
            estimate: cells.iter().map(|cell| self.value(cell)).collect(),
            sd: cells.iter().map(|cell| self.covariance(cell, cell).max(0.0).sqrt()).collect(),
        })
    }

    /// Covariance of all cells of a table, row-major; nothing for a pair that the design does not have.
    #[must_use]
    pub fn table_covariance(&self, columns: &[usize]) -> Option<DMatrix<f64>> {
        let count = self.design.cells(columns);
        let mut rows = DMatrix::<f64>::zeros(count, self.design.parameters);
        for cell in 0..count {
            self.design.cell(columns, cell)?.coefficients.iter().for_each(|(parameter, value)| rows[(cell, *parameter)] += value);
        }
        Some(&rows * &self.covariance * rows.transpose())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observed(design: &Design, columns: &[usize], sd: f64, seed: u64) -> Observation {
        let mut state = seed;
        let mut number = || dp_pvi_math::start::uniform(&mut state);
        Observation::of_table(columns.to_vec(), (0..design.cells(columns)).map(|_| 60.0 * number() - 5.0).collect(), sd)
    }

    /// Rows and columns of a pair sum to the tables of its columns, and these to the total, whether n is known or not, and in either order of a pair's columns.
    #[test]
    fn tables_agree_exactly() {
        for total in [None, Some(180.0)] {
            let design = Design::new(vec![3, 4, 2], &[[0, 1], [2, 1]], total).unwrap();
            let blocks = [observed(&design, &[0, 1], 4.0, 1), observed(&design, &[2, 1], 3.0, 2), observed(&design, &[0], 1.0, 3)];
            let solution = design.solve(&blocks).unwrap();
            let table = |columns: &[usize]| solution.table(columns).unwrap().estimate;
            let (both, turned, wide) = (table(&[0, 1]), table(&[1, 0]), table(&[1, 2]));
            for j in 0..4 {
                let column: f64 = (0..3).map(|i| both[4 * i + j]).sum();
                let other: f64 = (0..2).map(|k| wide[2 * j + k]).sum();
                assert!((column - table(&[1])[j]).abs() < 1e-9 && (other - column).abs() < 1e-9);
                assert!((0..3).all(|i| turned[3 * j + i] == both[4 * i + j]));
            }
            assert!((table(&[0]).iter().sum::<f64>() - solution.total().0).abs() < 1e-9);
            assert!(total.is_none_or(|n| solution.total() == (n, 0.0)));
            let covariance = solution.table_covariance(&[0, 1]).unwrap();
            let sd = solution.table(&[0, 1]).unwrap().sd;
            assert!((0..12).all(|k| (covariance[(k, k)].sqrt() - sd[k]).abs() < 1e-12));
        }
    }

    /// One table alone is what was observed; with the total known it is moved by the same amount in every cell.
    #[test]
    fn a_single_table_is_moved_to_its_total() {
        let values = vec![10.0, -3.0, 7.0, 20.0];
        let alone = Design::new(vec![4], &[], None).unwrap();
        let found = alone.solve(&[Observation::of_table(vec![0], values.clone(), 2.0)]).unwrap();
        assert!(found.table(&[0]).unwrap().estimate.iter().zip(&values).all(|(a, b)| (a - b).abs() < 1e-12));
        let known = Design::new(vec![4], &[], Some(42.0)).unwrap();
        let found = known.solve(&[Observation::of_table(vec![0], values.clone(), 2.0)]).unwrap().table(&[0]).unwrap();
        assert!(found.estimate.iter().zip(&values).all(|(a, b)| (a - b - 2.0).abs() < 1e-12));
        assert!(found.sd.iter().all(|sd| (sd - 3f64.sqrt()).abs() < 1e-12));
    }

    /// By halves as a whole, for sizes around those at which a matrix is cut.
    #[test]
    fn an_inverse_by_halves_is_the_inverse() {
        let mut state = 9;
        let mut number = || dp_pvi_math::start::uniform(&mut state) - 0.5;
        for size in [1, WHOLE, WHOLE + 1, 2 * WHOLE + 1, 201] {
            let root = DMatrix::from_fn(size, size, |_, _| number());
            let matrix = &root * root.transpose() + DMatrix::identity(size, size);
            let product = inverse(matrix.clone()).unwrap() * &matrix;
            assert!((product - DMatrix::identity(size, size)).amax() < 1e-11, "{size}");
            let mut indefinite = matrix;
            indefinite[(size - 1, size - 1)] = -1.0;
            assert_eq!(inverse(indefinite), None);
        }
    }

    #[test]
    fn what_nothing_is_said_of_is_refused() {
        let design = Design::new(vec![3, 2], &[[0, 1]], None).unwrap();
        assert_eq!(design.solve(&[observed(&design, &[0], 1.0, 4)]), Err(DescribeError::Unobserved));
        let other = Observation { variances: vec![0.0; 3], ..observed(&design, &[0], 1.0, 4) };
        assert!(matches!(design.solve(&[other]), Err(DescribeError::Task(_))));
        assert_eq!(Design::new(vec![100, 100], &[[0, 1]], None), Err(DescribeError::TooMany(1 + 99 + 99 + 99 * 99)));
        assert!(Design::new(vec![3], &[[0, 0]], None).is_err() && Design::new(vec![3], &[[0, 1]], None).is_err());
    }
}
