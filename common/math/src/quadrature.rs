//! Logistic expectations under a Gaussian logit z ~ N(a, s²) by the trapezoid rule:
//! B0 = E softplus(z), B1 = E σ(z), B2 = E σ(z)(1 − σ(z)).
//!
//! The trapezoid rule on |u| ≤ 8.5 in z = a + su converges geometrically in the step: the error is about
//! exp(−2π²/(sη) + π²/(2s²)), below 5e-13 for the steps used here, where Gauss–Hermite rules of any practical size reach 1e-4 at s = 3.
//! What makes a node cheap:
//!
//! * nodes come in pairs ±u, and both nodes of a pair need only C = 2 cosh(su); two pairs share a division;
//! * at equidistant nodes e^{su} is a geometric progression, so a call needs two exponentials in all;
//! * numbers of nodes come from a short list, so weights are tables made at compile time;
//! * several logits lie side by side in a processor's lanes ([`sigmoid_moments_of`]).
//!
//! Wide logits (s > 20) are integrated in z around 0, where σ differs from a probit whose expectation is known in closed form:
//! the cost stays bounded however wide the logit.

/// B1 and B2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SigmoidMoments {
    /// B1 = E σ(z).
    pub sigmoid: f64,
    /// B2 = E σ(z)(1 − σ(z)), in [0, ¼].
    pub curvature: f64,
}

/// B0, B1 and B2.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LogitMoments {
    /// B0 = E softplus(z).
    pub softplus: f64,
    /// B1 = E σ(z).
    pub sigmoid: f64,
    /// B2 = E σ(z)(1 − σ(z)), in [0, ¼].
    pub curvature: f64,
}

/// B1 and B2 for z ~ N(`mean`, `variance`); a negative variance counts as 0. Absolute error below 1e-12.
#[must_use]
#[inline]
pub fn sigmoid_moments(mean: f64, variance: f64) -> SigmoidMoments {
    let sd = variance.max(0.0).sqrt();
    // σ(z) = 1 − σ(−z): the sums below are for a ≤ 0, where no digit is lost.
    let lower = match level(sd) {
        Some(level) => lanes::one(mean, sd, &level),
        None => wide::sigmoid_moments(-mean.abs(), sd),
    };
    mirrored(mean, lower)
}

/// [`sigmoid_moments`] of many: `at` gives mean and variance of an item, and `put` takes what belongs to it.
///
/// What an item is given is [`sigmoid_moments`] of its own numbers to the last bit, whatever the others are, how many there are, where it stands among them, and
/// whatever lanes the processor has: every lane does the same additions, multiplications and divisions in the same order, and none of them is fused.
pub fn sigmoid_moments_of<T>(items: &mut [T], at: impl Fn(&T) -> (f64, f64), put: impl Fn(&mut T, SigmoidMoments)) {
    for items in items.chunks_mut(lanes::BLOCK) {
        let (mut means, mut sds, mut lower) = ([0.0; lanes::BLOCK], [0.0; lanes::BLOCK], lanes::Lower::default());
        for (item, (mean, sd)) in items.iter().zip(means.iter_mut().zip(&mut sds)) {
            let (own, variance) = at(item);
            (*mean, *sd) = (own, variance.max(0.0).sqrt());
        }
        lanes::many(&means[..items.len()], &sds[..items.len()], &mut lower);
        for (place, (item, (mean, sd))) in items.iter_mut().zip(means.iter().zip(&sds)).enumerate() {
            let own = if level(*sd).is_some() { lower.at(place) } else { wide::sigmoid_moments(-mean.abs(), *sd) };
            put(item, mirrored(*mean, own));
        }
    }
}

/// The moments at `mean`, given those at −|`mean`|.
#[inline]
fn mirrored(mean: f64, lower: SigmoidMoments) -> SigmoidMoments {
    if mean > 0.0 { SigmoidMoments { sigmoid: 1.0 - lower.sigmoid, ..lower } } else { lower }
}

/// B0 for z ~ N(`mean`, `variance`); a negative variance counts as 0. Error below 1e-12·(1 + B0).
#[must_use]
pub fn softplus(mean: f64, variance: f64) -> f64 {
    let sd = variance.max(0.0).sqrt();
    let lower = match level(sd) {
        Some(level) => level.softplus((-mean.abs()).exp(), sd),
        None => wide::softplus(-mean.abs(), sd),
    };
    // softplus(z) = z + softplus(−z).
    mean.max(0.0) + lower
}

/// B0, B1 and B2 for z ~ N(`mean`, `variance`).
#[must_use]
pub fn logit_moments(mean: f64, variance: f64) -> LogitMoments {
    let SigmoidMoments { sigmoid, curvature } = sigmoid_moments(mean, variance);
    LogitMoments { softplus: softplus(mean, variance), sigmoid, curvature }
}

/// ln E σ(z): the log predictive probability of a success, accurate also where the probability is tiny.
#[must_use]
pub fn log_sigmoid_expectation(mean: f64, variance: f64) -> f64 {
    if mean > 0.0 { (-sigmoid_moments(-mean, variance).sigmoid).ln_1p() } else { sigmoid_moments(mean, variance).sigmoid.ln() }
}

/// Largest |u| of a node.
const REACH: f64 = 8.5;
/// `softplus` sums nodes four at a time.
const LANES: usize = 4;
/// Pairs of nodes, and the largest s that they serve: the step η in u is `REACH` over the pairs. Errors are below 2.2e-13 up to the limits, where sη grows from 0.4 to 0.66: at wide steps the
/// weights' own decay adds to the poles of σ.
const RULES: [(usize, f64); 14] = [
    (12, 0.58),
    (16, 0.96),
    (20, 1.29),
    (24, 1.6),
    (32, 2.2),
    (40, 2.8),
    (48, 3.4),
    (56, 4.0),
    (72, 5.2),
    (96, 7.0),
    (128, 9.5),
    (176, 13.3),
    (224, 17.1),
    (264, 20.0),
];
/// Where the pairs of nodes of every rule begin among those of all, and where the last end.
const STARTS: [usize; RULES.len() + 1] = starts();
/// Number of pairs of nodes over all tables.
const PAIRS: usize = STARTS[RULES.len()];

static TABLES: Tables = Tables::build();

struct Tables {
    weights: [f64; PAIRS],
    centre: [f64; RULES.len()],
}

/// One trapezoid rule: weight of u = 0, and of the pairs ±kη for k = 1, 2, ….
struct Level {
    step: f64,
    centre: f64,
    weights: &'static [f64],
}

/// Which rule serves a standard deviation; none where it is wide.
#[inline]
fn number(sd: f64) -> Option<usize> {
    RULES.iter().position(|&(_, limit)| sd <= limit)
}

#[inline]
fn rule(number: usize) -> Level {
    Level { step: step(number), centre: TABLES.centre[number], weights: &TABLES.weights[STARTS[number]..STARTS[number + 1]] }
}

#[inline]
fn level(sd: f64) -> Option<Level> {
    number(sd).map(rule)
}

impl Level {
    /// softplus over a pair is ln(1 + Cf + f²).
    fn softplus(&self, f: f64, sd: f64) -> f64 {
        let mut sum = self.centre * f.ln_1p();
        let mut powers = Powers::new(sd * self.step);
        for weights in self.weights.as_chunks::<LANES>().0 {
            let cosh = powers.next();
            for j in 0..LANES {
                sum += weights[j] * (f * (cosh[j] + f)).ln_1p();
            }
        }
        sum
    }
}

/// 2 cosh(kx) for k = 1, 2, …, four at a time.
struct Powers {
    up: [f64; LANES],
    down: [f64; LANES],
    ratio: (f64, f64),
}

impl Powers {
    #[inline]
    fn new(x: f64) -> Self {
        let up = x.exp();
        let down = 1.0 / up;
        let ladder = |r: f64| [r, r * r, r * r * r, (r * r) * (r * r)];
        let (up, down) = (ladder(up), ladder(down));
        Self { up, down, ratio: (up[3], down[3]) }
    }

    #[inline]
    fn next(&mut self) -> [f64; LANES] {
        let cosh = std::array::from_fn(|j| self.up[j] + self.down[j]);
        self.up.iter_mut().for_each(|p| *p *= self.ratio.0);
        self.down.iter_mut().for_each(|p| *p *= self.ratio.1);
        cosh
    }
}

/// η.
#[allow(clippy::cast_precision_loss, reason = "below 300")]
const fn step(number: usize) -> f64 {
    REACH / RULES[number].0 as f64
}

const fn starts() -> [usize; RULES.len() + 1] {
    let (mut starts, mut i) = ([0; RULES.len() + 1], 0);
    while i < RULES.len() {
        starts[i + 1] = starts[i] + RULES[i].0;
        i += 1;
    }
    starts
}

impl Tables {
    const fn build() -> Self {
        let mut tables = Self { weights: [0.0; PAIRS], centre: [0.0; RULES.len()] };
        let mut i = 0;
        while i < RULES.len() {
            let (start, end) = (STARTS[i], STARTS[i + 1]);
            let (mut total, mut k) = (1.0, start);
            while k < end {
                #[allow(clippy::cast_precision_loss, reason = "below 300")]
                let u = (k - start + 1) as f64 * step(i);
                tables.weights[k] = exp_of_negative(0.5 * u * u);
                total += 2.0 * tables.weights[k];
                k += 1;
            }
            tables.centre[i] = 1.0 / total;
            k = start;
            while k < end {
                tables.weights[k] /= total;
                k += 1;
            }
            i += 1;
        }
        tables
    }
}

/// e^{−x} for 0 ≤ x ≤ 100 at compile time, to a few units in the last place.
const fn exp_of_negative(x: f64) -> f64 {
    const LN_2_HIGH: f64 = 0.693_147_180_369_123_8; // 33 bits: products with the small integers below are exact.
    const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 145")]
    let halvings = (x / std::f64::consts::LN_2 + 0.5) as u64;
    #[allow(clippy::cast_precision_loss, reason = "below 145")]
    let n = halvings as f64;
    let rest = (n * LN_2_HIGH - x) + n * LN_2_LOW;
    let (mut sum, mut k) = (1.0, 20.0);
    while k > 0.5 {
        sum = 1.0 + sum * rest / k;
        k -= 1.0;
    }
    sum * f64::from_bits((1023 - halvings) << 52)
}

mod lanes;

/// Logits wider than the tables: σ(z) = Φ(z/c) + a smooth function that is nothing beyond |z| = 40.
mod wide {
    use std::f64::consts::{FRAC_1_SQRT_2, PI};

    use super::SigmoidMoments;

    /// c of the probit that is near the logistic function.
    const SCALE: f64 = 1.7;
    /// Step in z: σ has poles at ±iπ, so the error is about exp(−2π²/0.6) = 5e-15.
    const STEP: f64 = 0.6;
    /// Nodes on one side; σ is 0 or 1 to the last bit beyond.
    const NODES: u32 = 70;

    pub(super) fn sigmoid_moments(mean: f64, sd: f64) -> SigmoidMoments {
        let t = SCALE.hypot(sd);
        let mut sigmoid = normal_cdf(mean / t);
        let mut curvature = 0.25 * STEP * density(0.0, mean, sd);
        for z in nodes() {
            let (left, right) = (density(-z, mean, sd), density(z, mean, sd));
            let tail = (-z).exp() / (1.0 + (-z).exp());
            // σ(−z) − Φ(−z/c), which is odd in z.
            sigmoid += STEP * (left - right) * (tail - normal_cdf(-z / SCALE));
            curvature += STEP * (left + right) * tail * (1.0 - tail);
        }
        SigmoidMoments { sigmoid: sigmoid.max(0.0), curvature: curvature.min(0.25) }
    }

    pub(super) fn softplus(mean: f64, sd: f64) -> f64 {
        // E max(0, z + cn) with n ~ N(0, 1) is the expectation of the probit's integral.
        let expected_ramp = |m: f64, t: f64| m * normal_cdf(m / t) + t * normal_density(m / t);
        let mut sum = expected_ramp(mean, SCALE.hypot(sd));
        sum += STEP * density(0.0, mean, sd) * (std::f64::consts::LN_2 - expected_ramp(0.0, SCALE));
        for z in nodes() {
            let gap = (-z).exp().ln_1p() - expected_ramp(-z, SCALE);
            sum += STEP * (density(-z, mean, sd) + density(z, mean, sd)) * gap;
        }
        sum.max(0.0)
    }

    fn nodes() -> impl Iterator<Item = f64> {
        (1..=NODES).map(|k| f64::from(k) * STEP)
    }

    fn density(z: f64, mean: f64, sd: f64) -> f64 {
        normal_density((z - mean) / sd) / sd
    }

    fn normal_density(u: f64) -> f64 {
        (-0.5 * u * u).exp() / (2.0 * PI).sqrt()
    }

    fn normal_cdf(u: f64) -> f64 {
        0.5 * libm::erfc(-u * FRAC_1_SQRT_2)
    }
}

#[cfg(test)]
mod tests;
