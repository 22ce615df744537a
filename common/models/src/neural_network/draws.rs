//! Standard normal draws: from any stream of bits, and a fixed public table.

/// Fills `out` with independent standard normal numbers made of independent uniform 64-bit words (Box and Muller).
pub fn standard_normals(mut word: impl FnMut() -> u64, out: &mut [f64]) {
    // 53 bits each; the radius needs a number in (0, 1].
    #[allow(clippy::cast_precision_loss, reason = "53 bits are exact")]
    let mut uniform = |offset: u64| ((word() >> 11) + offset) as f64 * (1.0 / 9_007_199_254_740_992.0);
    for pair in out.chunks_mut(2) {
        let radius = (-2.0 * uniform(1).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * uniform(0)).sin_cos();
        pair[0] = radius * cos;
        if let Some(second) = pair.get_mut(1) {
            *second = radius * sin;
        }
    }
}

/// The first `len` numbers of a sequence of standard normal draws that is the same for everyone: predictions from one posterior agree
/// wherever they are made. It protects nothing.
#[must_use]
pub fn public_normals(sequence: u64, len: usize) -> Vec<f64> {
    let mut state = sequence.wrapping_mul(0xD605_1DCA_8C57_4D7B);
    let mut out = vec![0.0; len];
    // A Weyl sequence through a mixing function (the finaliser of SplitMix64).
    let word = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let a = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let b = (a ^ (a >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        b ^ (b >> 31)
    };
    standard_normals(word, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::public_normals;

    /// Fixed input, so no chance is left: moments within 4 standard errors, and the distribution by Kolmogorov's distance.
    #[test]
    fn the_public_table_is_standard_normal() {
        const N: usize = 100_000;
        let mut draws = public_normals(1, N);
        let n = N as f64;
        let moment = |k: i32| draws.iter().map(|x| x.powi(k)).sum::<f64>() / n;
        for (k, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            assert!((moment(k) - expected).abs() < 4.0 * f64::sqrt(variance / n), "moment {k}: {}", moment(k));
        }
        draws.sort_by(f64::total_cmp);
        let distance = draws.iter().enumerate().map(|(i, x)| {
            let p = 0.5 * libm::erfc(-x / std::f64::consts::SQRT_2);
            (p - i as f64 / n).abs().max((p - (i + 1) as f64 / n).abs())
        });
        // 1.95/√n is exceeded with probability 1e-3.
        assert!(distance.fold(0.0, f64::max) < 1.95 / n.sqrt());
        assert_ne!(public_normals(1, 4), public_normals(2, 4));
        assert_eq!(public_normals(3, 5)[..4], public_normals(3, 4)[..]);
    }
}
