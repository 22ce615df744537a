//! B1 and B2 of several logits in a processor's lanes, whose width is found at run time.
//!
//! A lane holds one logit. All lanes of a call use one rule, so that they take the same number of steps; logits of a block that have another one wait for their own call. A lane's numbers
//! come from its own mean and standard deviation by additions, multiplications and divisions that are written out here, each rounded by itself. So the bits are those of [`one`], on every
//! instruction set: a fused multiplication or a vendor's exponential, which differ between processors, has no place here.

use pulp::{Arch, Scalar, Simd, WithSimd};

use super::{Level, RULES, SigmoidMoments, number, rule};

/// Logits that are sorted by their rules at once.
pub(super) const BLOCK: usize = 64;

/// Moments of a block at −|mean|.
pub(super) struct Lower {
    sigmoid: [f64; BLOCK],
    curvature: [f64; BLOCK],
}

impl Default for Lower {
    fn default() -> Self {
        Self { sigmoid: [0.0; BLOCK], curvature: [0.0; BLOCK] }
    }
}

impl Lower {
    #[inline]
    pub(super) fn at(&self, place: usize) -> SigmoidMoments {
        SigmoidMoments { sigmoid: self.sigmoid[place], curvature: self.curvature[place] }
    }
}

/// The moments at −|`mean`|.
#[inline]
pub(super) fn one(mean: f64, sd: f64, level: &Level) -> SigmoidMoments {
    let (sigmoid, curvature) = sums(Scalar, exp_of_minus(mean), exp(sd * level.step), level);
    SigmoidMoments { sigmoid, curvature: at_most_a_quarter(curvature) }
}

/// The moments at −|mean| of at most [`BLOCK`] logits. Of those that no rule serves nothing is said.
pub(super) fn many(means: &[f64], sds: &[f64], lower: &mut Lower) {
    Arch::new().dispatch(Many { means, sds, lower });
}

struct Many<'a> {
    means: &'a [f64],
    sds: &'a [f64],
    lower: &'a mut Lower,
}

impl WithSimd for Many<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { means, sds, lower } = self;
        let numbers: [usize; BLOCK] = std::array::from_fn(|place| sds.get(place).and_then(|sd| number(*sd)).unwrap_or(RULES.len()));
        let wanted = numbers[..sds.len()].iter().fold(0_u32, |wanted, number| wanted | 1 << number);
        for number in (0..RULES.len()).filter(|number| wanted >> number & 1 == 1) {
            let level = rule(number);
            let (mut places, mut count) = ([0; BLOCK], 0);
            for (place, _) in numbers[..sds.len()].iter().enumerate().filter(|(_, own)| **own == number) {
                places[count] = place;
                count += 1;
            }
            let places = &places[..count];
            // Lanes without a logit compute something that no one reads.
            let (mut f, mut up) = ([1.0; BLOCK], [1.0; BLOCK]);
            for ((f, up), place) in f.iter_mut().zip(&mut up).zip(places) {
                (*f, *up) = (means[*place], sds[*place]);
            }
            let wide = count.next_multiple_of(8).min(BLOCK);
            f[..wide].iter_mut().for_each(|f| *f = exp_of_minus(*f));
            up[..wide].iter_mut().for_each(|up| *up = exp(*up * level.step));
            let (mut sigmoid, mut curvature) = ([0.0; BLOCK], [0.0; BLOCK]);
            {
                // A lane is 1, 2, 4 or 8 numbers wide: nothing is left over.
                let (f, up) = (S::as_simd_f64s(&f[..wide]).0, S::as_simd_f64s(&up[..wide]).0);
                let out = S::as_mut_simd_f64s(&mut sigmoid[..wide]).0.iter_mut().zip(S::as_mut_simd_f64s(&mut curvature[..wide]).0);
                for ((sigmoid, curvature), (f, up)) in out.zip(f.iter().zip(up)) {
                    (*sigmoid, *curvature) = sums(simd, *f, *up, &level);
                }
            }
            for (place, (sigmoid, curvature)) in places.iter().zip(sigmoid.iter().zip(&curvature)) {
                (lower.sigmoid[*place], lower.curvature[*place]) = (*sigmoid, at_most_a_quarter(*curvature));
            }
        }
    }
}

/// At a = 0 and s = 0 the sum of the weights is 1 up to rounding. What is no number stays so.
#[inline(always)]
fn at_most_a_quarter(curvature: f64) -> f64 {
    if curvature > 0.25 { 0.25 } else { curvature }
}

/// Sums over all nodes for a = ln f ≤ 0, with `up` = e^{sη}. For the pair a ± t with C = 2 cosh t and Q = 1/(1 + Cf + f²): S = σ(a+t) + σ(a−t) = f(C + 2f)Q ≤ 1, and σ(1−σ) summed over the pair
/// is S(1 − f²)Q + 2f²Q. So four sums are enough, of wQ, wCQ, wQ² and wCQ²; no term is negative.
#[inline(always)]
fn sums<S: Simd>(simd: S, f: S::f64s, up: S::f64s, level: &Level) -> (S::f64s, S::f64s) {
    let add = |a, b| simd.add_f64s(a, b);
    let mul = |a, b| simd.mul_f64s(a, b);
    let div = |a, b| simd.div_f64s(a, b);
    let one = simd.splat_f64s(1.0);
    let down = div(one, up);
    let (mut rising, mut falling) = (up, down);
    let [mut q, mut cq, mut qq, mut cqq] = [simd.splat_f64s(0.0); 4];
    // The tables hold pairs of pairs: their lengths are multiples of four.
    for weights in level.weights.as_chunks::<2>().0 {
        let [w0, w1] = weights.map(|w| simd.splat_f64s(w));
        let c0 = add(rising, falling);
        (rising, falling) = (mul(rising, up), mul(falling, down));
        let c1 = add(rising, falling);
        (rising, falling) = (mul(rising, up), mul(falling, down));
        let n0 = add(one, mul(f, add(c0, f)));
        let n1 = add(one, mul(f, add(c1, f)));
        // Below e^{2·8.5·20}: no overflow.
        let both = div(one, mul(n0, n1));
        let (q0, q1) = (mul(both, n1), mul(both, n0));
        let (wq0, wq1) = (mul(w0, q0), mul(w1, q1));
        let (wcq0, wcq1) = (mul(wq0, c0), mul(wq1, c1));
        q = add(q, add(wq0, wq1));
        cq = add(cq, add(wcq0, wcq1));
        qq = add(qq, add(mul(wq0, q0), mul(wq1, q1)));
        cqq = add(cqq, add(mul(wcq0, q0), mul(wcq1, q1)));
    }
    let square = mul(f, f);
    let twice = add(square, square);
    let complement = simd.sub_f64s(one, square);
    let of_centre = div(one, add(one, f));
    let centre = mul(simd.splat_f64s(level.centre), mul(f, of_centre));
    let shared = mul(twice, q);
    let sigmoid = add(centre, add(mul(f, cq), shared));
    let curvature = add(mul(centre, of_centre), add(mul(complement, add(mul(f, cqq), mul(twice, qq))), shared));
    (sigmoid, curvature)
}

/// e^{−|x|}; half of the exponent at a time, so that what is too small becomes 0 and not something else.
#[inline(always)]
fn exp_of_minus(x: f64) -> f64 {
    let half = -0.5 * x.abs();
    // What is no number is not below.
    let root = exp(if half < -400.0 { -400.0 } else { half });
    root * root
}

/// e^x for |x| ≤ 700, to two units in the last place: x = n ln 2 + r, and Taylor's polynomial of degree 13 of |r| ≤ ½ ln 2. The same bits on every machine.
#[inline(always)]
fn exp(x: f64) -> f64 {
    // A number below 2⁵¹ plus this is rounded to a whole one, which is in the last bits.
    const SHIFT: f64 = 1.5 * (1_u64 << 52) as f64;
    const LN_2_HIGH: f64 = 0.693_147_180_369_123_8;
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    let shifted = x * std::f64::consts::LOG2_E + SHIFT;
    let n = shifted - SHIFT;
    let r = (x - n * LN_2_HIGH) - n * LN_2_LOW;
    let r2 = r * r;
    let r4 = r2 * r2;
    let low = (1.0 + r) + r2 * (1.0 / 2.0 + r * (1.0 / 6.0));
    let middle = (1.0 / 24.0 + r * (1.0 / 120.0)) + r2 * (1.0 / 720.0 + r * (1.0 / 5_040.0));
    let high = (1.0 / 40_320.0 + r * (1.0 / 362_880.0)) + r2 * (1.0 / 3_628_800.0 + r * (1.0 / 39_916_800.0));
    let highest = 1.0 / 479_001_600.0 + r * (1.0 / 6_227_020_800.0);
    let polynomial = low + r4 * (middle + r4 * (high + r4 * highest));
    polynomial * f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// On this machine's lanes, and on all narrower ones.
    pub(in super::super) fn instruction_sets_agree(logits: &[(f64, f64)]) {
        for block in logits.chunks(BLOCK - 3) {
            let means: Vec<f64> = block.iter().map(|logit| logit.0).collect();
            let sds: Vec<f64> = block.iter().map(|logit| logit.1.max(0.0).sqrt()).collect();
            let by = |run: &dyn Fn(Many<'_>)| {
                let mut lower = Lower::default();
                run(Many { means: &means, sds: &sds, lower: &mut lower });
                [lower.sigmoid, lower.curvature].map(|numbers| numbers.map(|x| if x.is_nan() { 0 } else { x.to_bits() }))
            };
            let alone = by(&|many| many.with_simd(Scalar));
            assert_eq!(by(&|many| Arch::new().dispatch(many)), alone);
            #[cfg(target_arch = "x86_64")]
            if let Some(narrower) = pulp::x86::V3::try_new() {
                assert_eq!(by(&|many| Simd::vectorize(narrower, many)), alone);
            }
        }
    }

    #[test]
    fn the_exponential_is_that_of_the_library_to_two_units_in_the_last_place() {
        for k in -7000..=7000 {
            let x = f64::from(k) * 0.099_7;
            assert!((exp(x) / x.exp() - 1.0).abs() < 4.5e-16, "{x}: {} {}", exp(x), x.exp());
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(f64::NAN).is_nan() && exp_of_minus(f64::NAN).is_nan());
        assert_eq!([1e300, -1e5, f64::INFINITY].map(exp_of_minus), [0.0; 3]);
    }
}
