//! Logistic expectations under a Gaussian logit z ~ N(a, s²) by the trapezoid rule:
//! B0 = E softplus(z), B1 = E σ(z), B2 = E σ(z)(1 − σ(z)).
//!
//! The trapezoid rule on |u| ≤ 8.5 in z = a + su converges geometrically in the step: the error is about
//! exp(−2π²/(sη) + π²/(2s²)), below 5e-13 for the steps used here, where Gauss–Hermite rules of any practical size reach 1e-4 at s = 3.
//! Three identities make a node cheap:
//!
//! * nodes come in pairs ±u, and both nodes of a pair need only C = 2 cosh(su), with one division for the two of them;
//! * at equidistant nodes e^{su} is a geometric progression, so a call needs two exponentials in all;
//! * steps come from a short list, so weights are tables made at compile time.
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
        Some(level) => level.sigmoid_moments((-mean.abs()).exp(), sd),
        None => wide::sigmoid_moments(-mean.abs(), sd),
    };
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
/// Nodes are summed four at a time; tables are padded with zero weights.
const LANES: usize = 4;
/// Step in u and the largest s that it serves: sη ≤ 0.6, less for wide steps, where the error of the weights' own decay adds
/// to that of the poles of σ (at η = 0.5 and s = 1.2 they would give 5e-12 together). Errors are below 3e-13 up to the limits.
const STEPS: [(f64, f64); 9] =
    [(0.75, 0.5), (0.5, 1.05), (1.0 / 3.0, 1.7), (0.22, 2.65), (0.15, 4.0), (0.1, 6.0), (1.0 / 15.0, 9.0), (0.045, 13.3), (0.03, 20.0)];
/// Where the pairs of nodes of every step begin among those of all, and where the last end.
const STARTS: [usize; STEPS.len() + 1] = starts();
/// Number of pairs of nodes over all tables.
const PAIRS: usize = STARTS[STEPS.len()];

static TABLES: Tables = Tables::build();

struct Tables {
    weights: [f64; PAIRS],
    centre: [f64; STEPS.len()],
}

/// One trapezoid rule: weight of u = 0, and of the pairs ±kη for k = 1, 2, ….
struct Level {
    step: f64,
    centre: f64,
    weights: &'static [f64],
}

#[inline]
fn level(sd: f64) -> Option<Level> {
    let i = STEPS.iter().position(|&(_, limit)| sd <= limit)?;
    Some(Level { step: STEPS[i].0, centre: TABLES.centre[i], weights: &TABLES.weights[STARTS[i]..STARTS[i + 1]] })
}

impl Level {
    /// Sums over all nodes for a = ln `f` ≤ 0. For the pair a ± t with C = 2 cosh t and Q = 1/(1 + Cf + f²):
    /// S = σ(a+t) + σ(a−t) = f(C + 2f)Q ≤ 1, and σ(1−σ) summed over the pair is S(1 − f²)Q + 2f²Q: no term is negative.
    #[inline]
    fn sigmoid_moments(&self, f: f64, sd: f64) -> SigmoidMoments {
        let (square, complement) = (f * f, 1.0 - f * f);
        let mut first = [0.0; LANES];
        let mut second = [0.0; LANES];
        let mut powers = Powers::new(sd * self.step);
        for weights in self.weights.as_chunks::<LANES>().0 {
            let cosh = powers.next();
            for j in 0..LANES {
                let q = 1.0 / (1.0 + f * (cosh[j] + f));
                let sum = f * (cosh[j] + 2.0 * f) * q;
                first[j] += weights[j] * sum;
                second[j] += weights[j] * q * (sum * complement + 2.0 * square);
            }
        }
        let centre = f / (1.0 + f);
        SigmoidMoments {
            sigmoid: self.centre * centre + (first[0] + first[1]) + (first[2] + first[3]),
            // At a = 0 and s = 0 the sum of the weights is 1 up to rounding.
            curvature: (self.centre * centre / (1.0 + f) + (second[0] + second[1]) + (second[2] + second[3])).min(0.25),
        }
    }

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

/// Number of pairs of a step, padded to whole lanes.
const fn pairs(step: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 11 and 283")]
    let pairs = (REACH / step) as usize;
    pairs.div_ceil(LANES) * LANES
}

const fn starts() -> [usize; STEPS.len() + 1] {
    let (mut starts, mut i) = ([0; STEPS.len() + 1], 0);
    while i < STEPS.len() {
        starts[i + 1] = starts[i] + pairs(STEPS[i].0);
        i += 1;
    }
    starts
}

impl Tables {
    const fn build() -> Self {
        let mut tables = Self { weights: [0.0; PAIRS], centre: [0.0; STEPS.len()] };
        let mut i = 0;
        while i < STEPS.len() {
            let (step, start, end) = (STEPS[i].0, STARTS[i], STARTS[i + 1]);
            let (mut total, mut k, mut u) = (1.0, start, step);
            while k < end && u <= REACH {
                tables.weights[k] = exp_of_negative(0.5 * u * u);
                total += 2.0 * tables.weights[k];
                k += 1;
                #[allow(clippy::cast_precision_loss, reason = "below 300")]
                {
                    u = (k - start + 1) as f64 * step;
                }
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
