//! Σ w·e^{ikx} at k = 1, 2, …, n for many points x at once: weights spread over a grid, and one fast Fourier transform (Dutt & Rokhlin 1993).
//!
//! The circle has M ≥ 8n points a distance of 2π/M apart. With ξ = xM/2π, κ = 2πk/M ≤ π/4 and g(u) = e^{−u²/2v²}, Poisson's summation formula says
//!
//! Σ_m g(ξ − m)e^{iκm} = Σ_l ĝ(κ + 2πl)e^{i(κ + 2πl)ξ}, ĝ(κ) = v√(2π)·e^{−v²κ²/2},
//!
//! the sums over all integers. The term l = 0 is ĝ(κ)e^{ikx}. Over ĝ(κ), with v² = 5/2:
//! * all other terms are at most e^{−v²(4π² − 4πκ)/2} ≤ 8.6e-17 for l = −1 and less than 1e-26 together for the rest;
//! * what is left out for |u| ≥ 14 is at most 2·1.01·g(14)·e^{v²κ²/2}/(v√(2π)) ≤ 1.1e-17;
//! * values of g are good to 52 roundings in their sum (two exponentials, up to 14 products of three roundings), their sums to three, as what each addition rounds
//!   away is added up; a transform of M = 2^m points errs by at most 16(m + 2) roundings of the sum of its inputs
//!   ([`crate::proofs::verifier`], *Transforms*); division by ĝ(κ) makes 2.2 of each of them and adds 8.

use std::cell::RefCell;

use realfft::RealFftPlanner;

/// v².
const SPREAD: f64 = 2.5;
/// Grid points on either side of a point: those nearer than this, in steps.
const SIDE: usize = 14;
/// Points of the grid over frequencies, at least.
const OVER: usize = 8;
/// Aliases and what is left out of g.
const TRUNCATION: f64 = 1e-16;
/// Unit roundoff.
const U: f64 = 0.5 * f64::EPSILON;

thread_local! {
    static PLANNER: RefCell<RealFftPlanner<f64>> = RefCell::new(RealFftPlanner::new());
}

/// The sums for `points` (x/step, w) with w ≥ 0 at the frequencies step, 2·step, …, `number`·step, as real and imaginary parts; and a bound on the
/// error of each over Σw. Not in it: an angle t·x has an error of up to four of its own roundings. `None`: the library failed.
pub(super) fn sums(points: &[(f64, f64)], step: f64, number: usize) -> Option<(Vec<(f64, f64)>, f64)> {
    let size = (OVER * number).next_power_of_two().max(256);
    let mask = size - 1;
    #[allow(clippy::cast_precision_loss, reason = "a power of two below 2^53")]
    let scale = step * (size as f64 / std::f64::consts::TAU);
    #[allow(clippy::cast_precision_loss, reason = "small integers")]
    let table: [f64; SIDE + 1] = std::array::from_fn(|n| (-((n * n) as f64) / (2.0 * SPREAD)).exp());
    let mut grid = vec![0.0f64; size];
    // What additions to the grid rounded away.
    let mut rest = vec![0.0f64; size];
    for &(x, weight) in points {
        let position = x * scale;
        let floor = position.floor();
        let fraction = position - floor;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "modulo the size, a power of two")]
        let first = (floor as i64 as usize).wrapping_sub(SIDE - 1);
        let near = weight * (-fraction * fraction / (2.0 * SPREAD)).exp();
        let ratio = (fraction / SPREAD).exp();
        // g(f − n) = e^{−f²/2v²}·e^{fn/v²}·e^{−n²/2v²}
        let mut values = [0.0; 2 * SIDE];
        let (mut up, mut down) = (near, near);
        values[SIDE - 1] = near;
        for n in 1..=SIDE {
            up *= ratio;
            values[SIDE - 1 + n] = up * table[n];
            if n < SIDE {
                down /= ratio;
                values[SIDE - 1 - n] = down * table[n];
            }
        }
        for (n, value) in values.into_iter().enumerate() {
            let at = first.wrapping_add(n) & mask;
            // Two-sum (Knuth): grid + rest is the sum but for roundings of the rest.
            let (old, sum) = (grid[at], grid[at] + value);
            let part = sum - old;
            rest[at] += (old - (sum - part)) + (value - part);
            grid[at] = sum;
        }
    }
    grid.iter_mut().zip(&rest).for_each(|(grid, rest)| *grid += rest);
    let transform = PLANNER.with_borrow_mut(|planner| planner.plan_fft_forward(size));
    let mut spectrum = transform.make_output_vec();
    transform.process(&mut grid, &mut spectrum).ok()?;
    let norm = (SPREAD * std::f64::consts::TAU).sqrt();
    #[allow(clippy::cast_precision_loss, reason = "far below 2^53")]
    let values = spectrum[1..=number].iter().enumerate().map(|(k, value)| {
        let angle = std::f64::consts::TAU * (k + 1) as f64 / size as f64;
        let factor = (0.5 * SPREAD * angle * angle).exp() / norm;
        // The library's transform has e^{−iκm}.
        (value.re * factor, -value.im * factor)
    });
    let values = values.collect();
    let roundings = 2.2 * (55.0 + 16.0 * f64::from(size.ilog2() + 2)) + 8.0;
    Some((values, roundings * U + TRUNCATION))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against sums one by one, from one point to many, on the grid and between its points, beyond the circle and on both sides of 0.
    #[test]
    fn sums_are_sums_within_the_stated_error() {
        let mut state = 12_345_u64;
        let mut uniform = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            f64::from(u32::try_from(state >> 32).unwrap()) / 4_294_967_296.0
        };
        for (count, step, number, reach) in [(1, 0.4, 40, 0.0), (1, 0.4, 40, 3.0), (50, 0.1, 1000, 2.0), (3000, 0.4, 300, 40.0)] {
            let points: Vec<_> = (0..count).map(|_| (reach * (uniform() - 0.5), uniform())).collect();
            let total: f64 = points.iter().map(|p| p.1).sum();
            let (values, error) = sums(&points, step, number).unwrap();
            assert!(values.len() == number && error < 2e-13);
            let mut worst = 0.0f64;
            for (k, (re, im)) in (1u32..).zip(values) {
                let t = step * f64::from(k);
                let exact = points.iter().fold((0.0, 0.0), |s, &(x, w)| (s.0 + w * (t * x).cos(), s.1 + w * (t * x).sin()));
                let off = (re - exact.0).hypot(im - exact.1) / total;
                worst = worst.max(off);
                assert!(off <= error + 4.0 * U * t * reach + 1e-15, "{count} {k}: {off:e} {error:e}");
            }
            assert!(worst < 0.1 * error + 4.0 * U * step * 1000.0 * reach, "{worst:e} {error:e}");
        }
    }
}
