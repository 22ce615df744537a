//! A transform whose rounding error is bounded beforehand. Proof: [`crate::proof`], "Transforms".

/// Error of every output of [`transform`] over the sum of the moduli of its inputs, for 2^m points: m times this.
pub(crate) const STAGE: f64 = 1.8e-15;

/// Sine and cosine of an angle between 0 and π/4, by their series.
fn sine_cosine(x: f64) -> (f64, f64) {
    let square = x * x;
    let series = |n: i32| (0..9).rev().fold(1.0, |sum, k| 1.0 - square / f64::from((n + 2 * k) * (n + 2 * k + 1)) * sum);
    (x * series(2), series(1))
}

/// e^{2πik/n} for k < n/2, n a power of two from 8 on.
pub(crate) fn roots(n: usize) -> Vec<(f64, f64)> {
    let angle = |k: usize| sine_cosine(std::f64::consts::TAU / n as f64 * k as f64);
    let quarter = |k: usize| if k <= n / 8 { angle(k) } else { (angle(n / 4 - k).1, angle(n / 4 - k).0) };
    let root = |k: usize| if k < n / 4 { (quarter(k).1, quarter(k).0) } else { (-quarter(k - n / 4).0, quarter(k - n / 4).1) };
    (0..n / 2).map(root).collect()
}

pub(crate) fn times(a: (f64, f64), b: (f64, f64)) -> (f64, f64) {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

/// Σ_k a_k e^{2πijk/n} in place, without division; `roots` are those of n points.
pub(crate) fn transform(values: &mut [(f64, f64)], roots: &[(f64, f64)]) {
    let (n, shift) = (values.len(), usize::BITS - values.len().trailing_zeros());
    (0..n).for_each(|k| values.swap(k, k.max(k.reverse_bits() >> shift)));
    for half in (0..n.trailing_zeros()).map(|stage| 1 << stage) {
        for block in values.chunks_exact_mut(2 * half) {
            let (low, high) = block.split_at_mut(half);
            for ((a, b), root) in low.iter_mut().zip(high).zip(roots.iter().step_by(n / (2 * half))) {
                let turned = times(*b, *root);
                (*a, *b) = ((a.0 + turned.0, a.1 + turned.1), (a.0 - turned.0, a.1 - turned.1));
            }
        }
    }
}
