use super::{RULES, exp_of_negative, log_sigmoid_expectation, logit_moments, sigmoid_moments, sigmoid_moments_of, softplus};

/// The trapezoid rule written down directly, with a step far below every table's.
fn slow(mean: f64, sd: f64) -> [f64; 3] {
    let step = (0.2 / sd.max(0.4)).min(0.1);
    let mut sums = [0.0; 4];
    let mut k = 0;
    loop {
        let u = f64::from(k) * step;
        if u > 9.5 {
            break;
        }
        for z in if k == 0 { vec![mean] } else { vec![mean - sd * u, mean + sd * u] } {
            let weight = (-0.5 * u * u).exp();
            let tail = (-z.abs()).exp();
            let (small, large) = (tail / (1.0 + tail), 1.0 / (1.0 + tail));
            sums[0] += weight;
            sums[1] += weight * (z.max(0.0) + tail.ln_1p());
            sums[2] += weight * if z < 0.0 { small } else { large };
            sums[3] += weight * small * large;
        }
        k += 1;
    }
    [sums[1] / sums[0], sums[2] / sums[0], sums[3] / sums[0]]
}

#[test]
fn every_step_and_the_wide_rule_agree_with_a_fine_trapezoid_rule() {
    let mut widths = vec![0.0, 0.01, 0.3];
    for (_, limit) in RULES {
        widths.extend([limit * 0.999_999, limit * 1.000_001]);
    }
    widths.extend([25.0, 60.0, 400.0]);
    let mut worst = 0.0_f64;
    for sd in widths {
        for mean in [-700.0, -40.0, -7.3, -1.93, -0.2, 0.0, 0.07, 0.77, 5.07, 33.0, 650.0] {
            let expected = slow(mean, sd);
            let got = logit_moments(mean, sd * sd);
            let scale = 1.0 + expected[0];
            for (g, e) in [(got.softplus / scale, expected[0] / scale), (got.sigmoid, expected[1]), (got.curvature, expected[2])] {
                worst = worst.max((g - e).abs());
                assert!((g - e).abs() < 5e-13, "mean {mean} sd {sd}: {g} against {e}");
            }
        }
    }
    assert!(worst < 5e-13, "{worst}");
}

#[test]
fn moments_obey_the_symmetries_and_bounds_of_the_logistic_function() {
    for sd in [0.0, 0.5, 1.0, 3.0, 7.0, 19.0, 50.0] {
        let mut before = -1.0;
        for i in -40..=40 {
            let mean = f64::from(i) * 0.37;
            let (m, mirrored) = (sigmoid_moments(mean, sd * sd), sigmoid_moments(-mean, sd * sd));
            assert!(m.sigmoid > before, "monotone in the mean");
            before = m.sigmoid;
            assert!((m.sigmoid + mirrored.sigmoid - 1.0).abs() < 1e-15);
            assert!((m.curvature - mirrored.curvature).abs() < 1e-15);
            assert!(m.curvature > 0.0 && m.curvature <= 0.25);
            assert!((softplus(mean, sd * sd) - softplus(-mean, sd * sd) - mean).abs() < 1e-12);
        }
    }
}

#[test]
fn extreme_logits_give_finite_numbers() {
    for mean in [-1e300, -1e5, -745.0, 745.0, 1e5, 1e300] {
        for variance in [0.0, 1.0, 1e4, 1e200] {
            let m = logit_moments(mean, variance);
            assert!(m.sigmoid >= 0.0 && m.sigmoid <= 1.0 && m.curvature >= 0.0 && m.softplus >= 0.0, "{mean} {variance} {m:?}");
        }
    }
    assert!(logit_moments(0.0, -1e-18).sigmoid > 0.49);
}

#[test]
fn log_probabilities_keep_their_digits_in_the_tail() {
    // E σ(z) ≈ E e^z = exp(a + s²/2) far below 0.
    assert!((log_sigmoid_expectation(-60.0, 1.0) + 59.5).abs() < 1e-12);
    assert!((log_sigmoid_expectation(60.0, 1.0) + (-59.5_f64).exp()).abs() < 1e-38);
    assert!((log_sigmoid_expectation(0.0, 2.0) + std::f64::consts::LN_2).abs() < 1e-15);
}

#[test]
fn derivatives_of_softplus_are_sigmoid_and_curvature() {
    // ∂B0/∂a = B1 and ∂B0/∂s² = B2/2 (Bonnet, Price), by central differences at three points.
    for (mean, variance) in [(0.4, 0.7), (-2.0, 3.0), (1.5, 9.0)] {
        let m = logit_moments(mean, variance);
        let h = 1e-5;
        let slope = (softplus(mean + h, variance) - softplus(mean - h, variance)) / (2.0 * h);
        assert!((slope - m.sigmoid).abs() < 1e-6);
        let slope = (softplus(mean, variance + h) - softplus(mean, variance - h)) / (2.0 * h);
        assert!((slope - 0.5 * m.curvature).abs() < 1e-6);
    }
}

#[test]
fn the_compile_time_exponential_is_exact_to_rounding() {
    for i in 0..400 {
        let x = f64::from(i) * 0.1;
        assert!((exp_of_negative(x) / (-x).exp() - 1.0).abs() < 1e-15, "{x}");
    }
}

/// Logits of every width, and numbers of every kind.
fn logits() -> Vec<(f64, f64)> {
    let mut state = 1_u64;
    let mut number = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        f64::from((state >> 40) as u32) / f64::from(1 << 24)
    };
    let mut logits: Vec<(f64, f64)> = (0..1500).map(|_| (12.0 * number() - 6.0, (22.0 * number().powi(3)).powi(2))).collect();
    for mean in [0.0, -0.0, -1e300, 745.0, -708.5, 1e5, f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
        logits.extend([0.0, -1e-18, 0.25, 9.0, 1e4, 1e200, f64::INFINITY, f64::NAN].map(|variance| (mean, variance)));
    }
    logits
}

fn bits(m: super::SigmoidMoments) -> [u64; 2] {
    // One NaN is as good as another.
    [m.sigmoid, m.curvature].map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() })
}

/// A logit does not know who is beside it: in every order, in pieces of every length, each is what it is alone, to the last bit.
#[test]
fn lanes_do_not_mix() {
    let logits = logits();
    let alone: Vec<[u64; 2]> = logits.iter().map(|&(mean, variance)| bits(sigmoid_moments(mean, variance))).collect();
    for stride in [1, 7, 389, 1009] {
        let order: Vec<usize> = (0..logits.len()).map(|k| k * stride % logits.len()).collect();
        for piece in [1, 2, 3, 5, 8, 13, 63, 64, 65, 1000] {
            for places in order.chunks(piece) {
                let mut items: Vec<(usize, [u64; 2])> = places.iter().map(|&place| (place, [0; 2])).collect();
                sigmoid_moments_of(&mut items, |item| logits[item.0], |item, moments| item.1 = bits(moments));
                for (place, found) in items {
                    assert_eq!(found, alone[place], "{:?} among {piece}, stride {stride}", logits[place]);
                }
            }
        }
    }
}

/// The lanes of every instruction set that this machine has give the same bits.
#[test]
fn instruction_sets_agree_to_the_last_bit() {
    super::lanes::tests::instruction_sets_agree(&logits());
}
