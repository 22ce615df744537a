//! Enclosures contain the truth, and are narrow. Values by mpmath at 40 digits.
#![allow(dead_code, unreachable_pub, clippy::pedantic, clippy::excessive_precision, clippy::approx_constant)]

#[path = "../src/fourier.rs"]
mod fourier;
#[path = "../src/interval.rs"]
mod interval;
#[path = "../src/normal.rs"]
mod normal;

use interval::{Interval, point};

fn encloses(name: &str, found: Interval, truth: f64, width: f64) {
    // The truth is known to the nearest number only.
    assert!(found.lo <= truth.next_up() && truth.next_down() <= found.hi, "{name}: {found:?} is not around {truth:e}");
    assert!(found.hi - found.lo <= width * truth.abs(), "{name}: {found:?} is too wide");
}

#[test]
fn exponentials() {
    for (x, whole, excess) in [
        (-20.0, 2.061_153_622_438_557_827_965_94e-9, -0.999_999_997_938_846_377_561_444_2),
        (1.0, 2.718_281_828_459_045_235_360_287, 1.718_281_828_459_045_235_360_287),
        (0.3, 1.349_858_807_576_003_088_997_301, 0.349_858_807_576_003_088_997_301),
        (-0.34, 0.711_770_322_762_609_697_695_029_9, -0.288_229_677_237_390_302_304_970_1),
        (0.34, 1.404_947_590_563_593_831_161_363, 0.404_947_590_563_593_831_161_363),
        (1e-10, 1.000_000_000_100_000_000_005, 1.000_000_000_050_000_036_433_864e-10),
        (300.7, 3.911_566_412_479_152_604_959_492e130, 3.911_566_412_479_152_604_959_492e130),
        (-650.25, 3.981_192_180_632_914_534_265_276e-283, -1.0),
    ] {
        encloses("exp", point(x).exp(), whole, 1e-14);
        encloses("exp_m1", point(x).exp_m1(), excess, 3e-14);
    }
    assert!(point(f64::NAN).exp().hi == f64::INFINITY && point(-1e300).exp().hi < 1e-300 && point(1e300).exp().hi == f64::INFINITY);
    // The enclosures of a function that rises rise.
    let all: Vec<_> = (-4000..4000).map(|k| point(f64::from(k) * 0.171).exp()).collect();
    assert!(all.windows(2).all(|two| two[0].hi < two[1].lo));
}

#[test]
fn normal_masses() {
    for (x, above) in [
        (-3.0, 0.998_650_101_968_369_905_473_348_2),
        (-1.0, 0.841_344_746_068_542_948_585_232_5),
        (-0.5, 0.691_462_461_274_013_103_637_704_6),
        (0.0, 0.5),
        (0.3, 0.382_088_577_811_047_366_927_726_4),
        (0.999, 0.158_897_345_641_318_286_293_496_8),
        (1.0, 0.158_655_253_931_457_051_414_767_5),
        (1.96, 0.024_997_895_148_220_436_212_823_69),
        (8.0, 6.220_960_574_271_784_123_515_995e-16),
        (30.0, 4.906_713_927_148_187_059_533_809e-198),
    ] {
        encloses("above", normal::upper(point(x)), above, if x > 9.0 { 1e-12 } else { 3e-13 });
    }
    // Short and long ranges agree: many short ones are a long one.
    for (from, centre) in [(-6.0, 0.0), (-0.9, 0.4), (0.1, 0.0), (3.0, -2.0)] {
        let whole = normal::between(from, from + 1.0, centre);
        let parts = (0..64).map(|k| normal::between(from + f64::from(k) / 64.0, from + f64::from(k + 1) / 64.0, centre));
        let sum = parts.fold(point(0.0), |sum, part| sum + part);
        assert!(sum.lo <= whole.hi && whole.lo <= sum.hi, "{whole:?} {sum:?}");
        assert!(sum.hi - sum.lo < 1e-12 * sum.hi, "{sum:?}");
    }
    encloses("all", normal::between(f64::NEG_INFINITY, f64::INFINITY, 3.0), 1.0, 1e-14);
}

/// Against the sums that a transform is, and by there and back: errors stay within the bound that the proof states.
#[test]
fn transforms() {
    let mut state = 7u64;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    for bits in [4, 6, 9, 14] {
        let n = 1usize << bits;
        let roots = fourier::roots(n);
        let input: Vec<(f64, f64)> = (0..n).map(|_| (random(), 0.0)).collect();
        let sum: f64 = input.iter().map(|x| x.0).sum();
        let bound = f64::from(bits) * fourier::STAGE * sum;
        let mut values = input.clone();
        fourier::transform(&mut values, &roots);
        assert!((values[0].0 - sum).abs() <= bound);
        for j in [1, 3, n / 2, n - 1] {
            let direct = input.iter().enumerate().fold((0.0, 0.0), |all, (k, x)| {
                let angle = std::f64::consts::TAU * ((j * k) % n) as f64 / n as f64;
                (all.0 + x.0 * angle.cos(), all.1 + x.0 * angle.sin())
            });
            // The direct sum has errors of its own.
            let error = (values[j].0 - direct.0).hypot(values[j].1 - direct.1);
            assert!(error <= bound + 1e-15 * sum * f64::from(bits), "{n} {j}: {error:e} {bound:e}");
        }
        let modulus: f64 = values.iter().map(|x| x.0.hypot(x.1)).sum();
        values.iter_mut().for_each(|x| x.1 = -x.1);
        fourier::transform(&mut values, &roots);
        let most = (modulus * f64::from(bits) * fourier::STAGE + n as f64 * bound) / n as f64;
        assert!(values.iter().zip(&input).all(|(back, x)| (back.0 / n as f64 - x.0).abs() <= most));
    }
}
