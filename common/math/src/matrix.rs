//! Weight matrices, and the few products that a network needs of them.
//!
//! Rows of a site's table are sparse (one-hot columns), so the first layer is a combination of a few rows of weights; between hidden
//! layers whole batches are multiplied at once by nalgebra's `gemm`, which picks its kernel by the processor it finds. Layers with few
//! outputs are plain dot products: packing would cost more than the product.

use nalgebra::{DMatrixView, DMatrixViewMut};
use pulp::{Arch, Simd, WithSimd};

/// Fewest outputs for which a batch goes through `gemm`.
const BLOCKED: usize = 6;

/// One number for every pair of input and output of a layer.
#[derive(Debug, Clone, PartialEq)]
pub struct Matrix {
    inputs: usize,
    outputs: usize,
    /// Row k: what input k gives to every output.
    by_input: Vec<f64>,
    /// Row j: what output j takes of every input. Empty for a first layer, which nothing is propagated through.
    by_output: Vec<f64>,
}

impl Matrix {
    /// From `inputs` rows of `outputs` numbers.
    ///
    /// # Panics
    /// The length is not `inputs`·`outputs`, or there is no output.
    #[must_use]
    pub fn new(by_input: Vec<f64>, inputs: usize, outputs: usize) -> Self {
        assert!(outputs > 0 && by_input.len() == inputs * outputs, "a matrix has a row for every input");
        let by_output = (0..outputs).flat_map(|j| by_input.iter().skip(j).step_by(outputs).copied()).collect();
        Self { inputs, outputs, by_input, by_output }
    }

    /// A matrix that only takes sparse rows: the first layer.
    ///
    /// # Panics
    /// As [`Matrix::new`].
    #[must_use]
    pub fn for_rows(by_input: Vec<f64>, inputs: usize, outputs: usize) -> Self {
        assert!(outputs > 0 && by_input.len() == inputs * outputs, "a matrix has a row for every input");
        Self { inputs, outputs, by_input, by_output: Vec::new() }
    }

    /// Number of inputs, a constant one included.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Number of outputs.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// All numbers, a row of `outputs` for every input.
    #[must_use]
    pub fn by_input(&self) -> &[f64] {
        &self.by_input
    }

    /// The products with every column of `columns` (each of `inputs` numbers), as columns of `outputs` numbers.
    ///
    /// # Panics
    /// Lengths do not fit, or the matrix was made for rows and has few outputs.
    pub fn apply(&self, columns: &[f64], out: &mut [f64]) {
        product(self.outputs, self.inputs, &self.by_input, &self.by_output, columns, out);
    }

    /// The transposed products: columns of `outputs` numbers into columns of `inputs` numbers.
    ///
    /// # Panics
    /// As [`Matrix::apply`].
    pub fn apply_transposed(&self, columns: &[f64], out: &mut [f64]) {
        assert!(!self.by_output.is_empty(), "nothing is propagated through a first layer");
        if self.outputs < BLOCKED {
            if self.outputs == 1 {
                for (x, out) in columns.iter().zip(out.chunks_exact_mut(self.inputs)) {
                    out.iter_mut().zip(&self.by_output).for_each(|(out, w)| *out = x * w);
                }
                return;
            }
            // A combination of few long rows.
            for (column, out) in columns.chunks_exact(self.outputs).zip(out.chunks_exact_mut(self.inputs)) {
                out.fill(0.0);
                combine(&self.by_output, self.inputs, column.iter().copied().enumerate(), out);
            }
        } else {
            product(self.inputs, self.outputs, &self.by_output, &self.by_input, columns, out);
        }
    }
}

/// A (rows × depth) times the columns, each to the same bits whatever the others are: `by_depth` has `depth` rows of `rows` numbers, `by_row` is its transpose.
fn product(rows: usize, depth: usize, by_depth: &[f64], by_row: &[f64], columns: &[f64], out: &mut [f64]) {
    let count = columns.len() / depth;
    assert!(columns.len() == count * depth && out.len() == count * rows, "one column out for every column in");
    if rows < BLOCKED {
        assert_eq!(by_row.len(), rows * depth, "a first layer takes sparse rows only");
        for (column, out) in columns.chunks_exact(depth).zip(out.chunks_exact_mut(rows)) {
            for (row, out) in by_row.chunks_exact(depth).zip(out) {
                *out = dot(row, column);
            }
        }
    } else if count < BLOCKED {
        // `gemm` takes another way, with other roundings, for a few columns: a column's product must not depend on how many there are.
        let mut padded = columns.to_vec();
        padded.resize(BLOCKED * depth, 0.0);
        let mut products = vec![0.0; BLOCKED * rows];
        product(rows, depth, by_depth, by_row, &padded, &mut products);
        out.copy_from_slice(&products[..count * rows]);
    } else {
        let a = DMatrixView::from_slice(by_depth, rows, depth);
        let b = DMatrixView::from_slice(columns, depth, count);
        DMatrixViewMut::from_slice(out, rows, count).gemm(1.0, &a, &b, 0.0);
    }
}

/// `sums` += Σ over columns of `left` ⊗ `right`: `sums` has a row of left's length for every entry of right.
///
/// # Panics
/// Lengths do not fit.
pub fn add_outer_products(left: &[f64], right: &[f64], count: usize, sums: &mut [f64]) {
    if count == 0 {
        return;
    }
    let (rows, columns) = (left.len() / count, right.len() / count);
    assert!(rows * count == left.len() && columns * count == right.len() && sums.len() == rows * columns, "as many left as right columns");
    if rows == 1 {
        left.iter().zip(right.chunks_exact(columns)).for_each(|(y, right)| add_scaled(*y, right, sums));
    } else if rows < BLOCKED {
        for (left, right) in left.chunks_exact(rows).zip(right.chunks_exact(columns)) {
            for (sums, &x) in sums.chunks_exact_mut(rows).zip(right) {
                sums.iter_mut().zip(left).for_each(|(sum, y)| *sum += x * y);
            }
        }
    } else {
        let a = DMatrixView::from_slice(left, rows, count);
        let b = DMatrixView::from_slice_with_strides(right, count, columns, columns, 1);
        DMatrixViewMut::from_slice(sums, rows, columns).gemm(1.0, &a, &b, 1.0);
    }
}

/// Outputs of a first layer at a sparse row x: with `mean` M and `variance` V, into `out` Mᵀx, Vᵀ(x∘x), and Σ_k (x_k²V_kj)², which the
/// norms of gradients need and the same pass gives.
///
/// # Panics
/// Lengths do not fit.
pub fn moments(mean: &Matrix, variance: &Matrix, indices: &[u32], values: &[f64], out: [&mut [f64]; 3]) {
    Arch::new().dispatch(Moments { mean, variance, indices, values, out });
}

/// Outputs lie in lanes, each with sums of its own: the lanes' width does not show.
struct Moments<'a> {
    mean: &'a Matrix,
    variance: &'a Matrix,
    indices: &'a [u32],
    values: &'a [f64],
    out: [&'a mut [f64]; 3],
}

impl WithSimd for Moments<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { mean, variance, indices, values, out } = self;
        let width = mean.outputs;
        let [m, v, n] = out.map(|out| &mut out[..width]);
        m.fill(0.0);
        v.fill(0.0);
        n.fill(0.0);
        let row = |matrix: &'_ Matrix, k: u32| -> std::ops::Range<usize> {
            let start = k as usize * matrix.outputs;
            start..start + matrix.outputs
        };
        let (pairs, last) = indices.as_chunks::<2>();
        let (value_pairs, last_value) = values.as_chunks::<2>();
        for ([a, b], [x, y]) in pairs.iter().zip(value_pairs) {
            let (a, b) = (row(mean, *a), row(mean, *b));
            let (ma, mb) = (&mean.by_input[a.clone()][..width], &mean.by_input[b.clone()][..width]);
            let (va, vb) = (&variance.by_input[a][..width], &variance.by_input[b][..width]);
            let (xx, yy) = (x * x, y * y);
            for j in 0..width {
                let (s, t) = (xx * va[j], yy * vb[j]);
                m[j] += x * ma[j] + y * mb[j];
                v[j] += s + t;
                n[j] += s * s + t * t;
            }
        }
        for (a, x) in last.iter().zip(last_value) {
            let a = row(mean, *a);
            let (ma, va, xx) = (&mean.by_input[a.clone()][..width], &variance.by_input[a][..width], x * x);
            for j in 0..width {
                let s = xx * va[j];
                m[j] += x * ma[j];
                v[j] += s;
                n[j] += s * s;
            }
        }
    }
}

/// `out` += Σ coefficient · row, over pairs (row number, coefficient) of a matrix with rows of `width` numbers. Four rows are added at
/// a time, so that `out` is read and written once for four of them.
#[inline]
pub fn combine(rows: &[f64], width: usize, terms: impl Iterator<Item = (usize, f64)>, out: &mut [f64]) {
    let row = |k: usize| &rows[k * width..][..width];
    let out = &mut out[..width];
    let mut held = [(0, 0.0); 4];
    let mut count = 0;
    for term in terms {
        held[count] = term;
        count += 1;
        if count == 4 {
            count = 0;
            let [a, b, c, d] = held.map(|(k, _)| row(k));
            let [x, y, z, w] = held.map(|(_, x)| x);
            for j in 0..width {
                out[j] += (x * a[j] + y * b[j]) + (z * c[j] + w * d[j]);
            }
        }
    }
    for &(k, x) in &held[..count] {
        add_scaled(x, row(k), out);
    }
}

/// `out` += x · `row`.
#[inline(always)]
pub fn add_scaled(x: f64, row: &[f64], out: &mut [f64]) {
    for (out, value) in out.iter_mut().zip(row) {
        *out += x * value;
    }
}

/// Inner product; eight running sums, so that additions do not wait for each other.
#[inline(always)]
#[must_use]
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    let mut sums = [0.0; 8];
    for (a, b) in a.iter().zip(b) {
        for j in 0..8 {
            sums[j] += a[j] * b[j];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7])) + rest
}

#[cfg(test)]
mod tests {
    use super::{Matrix, add_outer_products, moments};

    /// Small integers: every order of summation gives the same number.
    fn numbers(len: usize) -> Vec<f64> {
        (0..len).map(|i| f64::from(u32::try_from(i * 7 % 11).unwrap_or(0)) - 5.0).collect()
    }

    #[test]
    fn all_products_agree_with_their_definition() {
        for (inputs, outputs, count) in [(3, 1, 5), (51, 1, 7), (9, 2, 4), (17, 6, 8), (51, 50, 13), (7, 20, 1)] {
            let weights = numbers(inputs * outputs);
            let matrix = Matrix::new(weights.clone(), inputs, outputs);
            let (columns, back) = (numbers(inputs * count), numbers(outputs * count));
            let (mut out, mut transposed) = (vec![9.0; outputs * count], vec![9.0; inputs * count]);
            matrix.apply(&columns, &mut out);
            matrix.apply_transposed(&back, &mut transposed);
            let mut outer = numbers(inputs * outputs);
            add_outer_products(&back, &columns, count, &mut outer);
            for n in 0..count {
                for j in 0..outputs {
                    let sum: f64 = (0..inputs).map(|k| weights[k * outputs + j] * columns[n * inputs + k]).sum();
                    assert!((out[n * outputs + j] - sum).abs() < 1e-12);
                }
                for k in 0..inputs {
                    let sum: f64 = (0..outputs).map(|j| weights[k * outputs + j] * back[n * outputs + j]).sum();
                    assert!((transposed[n * inputs + k] - sum).abs() < 1e-12);
                }
            }
            for k in 0..inputs {
                for j in 0..outputs {
                    let sum: f64 = (0..count).map(|n| back[n * outputs + j] * columns[n * inputs + k]).sum();
                    assert!((outer[k * outputs + j] - weights[k * outputs + j] - sum).abs() < 1e-12);
                }
            }
        }
    }

    #[test]
    fn moments_of_a_sparse_row_are_combinations_of_rows() {
        let (mean, variance) = (Matrix::for_rows(numbers(9 * 5), 9, 5), Matrix::for_rows(numbers(9 * 5 + 3)[3..].to_vec(), 9, 5));
        for indices in [vec![], vec![4], vec![0, 2, 8], vec![0, 1, 2, 3], vec![0, 1, 3, 4, 5, 7, 8]] {
            let values: Vec<f64> = numbers(indices.len());
            let [mut m, mut v, mut n] = [[9.0; 5]; 3];
            moments(&mean, &variance, &indices, &values, [&mut m, &mut v, &mut n]);
            for j in 0..5 {
                let sum = |f: &dyn Fn(f64, f64, f64) -> f64| -> f64 {
                    let at = |k: u32| k as usize * 5 + j;
                    indices.iter().zip(&values).map(|(&k, &x)| f(x, mean.by_input[at(k)], variance.by_input[at(k)])).sum()
                };
                assert!((m[j] - sum(&|x, m, _| x * m)).abs() < 1e-12);
                assert!((v[j] - sum(&|x, _, v| x * x * v)).abs() < 1e-12);
                assert!((n[j] - sum(&|x, _, v| (x * x * v).powi(2))).abs() < 1e-9);
            }
        }
    }
}
