//! Residuals that are cut and have mean 0 all the same.
//!
//! A few records with very large residuals would set the noise that all sums need. So a residual is cut at a number of standard deviations. For a number with normal errors that
//! leaves its mean at 0. For a count it does not, and the mean is taken off:
//!
//! u = (y − m)/√V with V = m + m²/φ, a = E clip(u), r = (m/√V)(clip(u) − a), c = (m²/V) E[clip(u) u].
//!
//! c is what the mean of r falls by when the predictor ln m rises, where m is right: ∂E r/∂η at fixed truth. E r = 0 and |r| ≤ (m/√V)(cut + |a|) ≤ about 2.7√φ. Expectations are closed forms: y
//! times a negative binomial mass is m times that of y − 1 with φ + 1 in place of φ.
//!
//! **Source**: this project; robust quasi-likelihood of Cantoni and Ronchetti 2001 has the same centred residual.

use crate::normal::{cdf, density};

/// Counts and dispersions from here on have continuous or summed forms in place of incomplete beta functions, whose fractions do not end.
const MANY: f64 = 1e4;
/// From this shape on a gamma variable is normal as far as a residual can tell.
const NORMAL: f64 = 1e6;
/// A mass this far below the largest is left out.
const NEGLIGIBLE: f64 = 1e-20;

/// E clip(u), E clip(u)u and E clip(u)² of a variable u of mean 0 and variance 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cut {
    /// a.
    pub mean: f64,
    /// E clip(u) u.
    pub slope: f64,
    /// E clip(u)² − a².
    pub variance: f64,
}

impl Cut {
    /// For a standard normal u.
    #[must_use]
    pub(crate) fn of_normal(cut: f64) -> Self {
        let outside = 2.0 * cdf(-cut);
        Self { mean: 0.0, slope: 1.0 - outside, variance: 1.0 - outside - 2.0 * cut * density(cut) + cut * cut * outside }
    }

    /// Of what lies below −cut, between, and above cut.
    fn of_parts([below, between, above]: [Moments; 3], cut: f64) -> Self {
        let mean = cut * (above.mass - below.mass) + between.first;
        let slope = cut * (above.first - below.first) + between.second;
        Self { mean, slope, variance: cut * cut * (above.mass + below.mass) + between.second - mean * mean }
    }
}

/// E 1, E u and E u² over a part of the line.
#[derive(Debug, Clone, Copy)]
struct Moments {
    mass: f64,
    first: f64,
    second: f64,
}

impl Moments {
    /// Of all: mean 0, variance 1.
    const ALL: Self = Self { mass: 1.0, first: 0.0, second: 1.0 };

    /// From E 1, E y and E y² of a y of mean m and standard deviation s.
    fn standard([mass, first, second]: [f64; 3], mean: f64, sd: f64) -> Self {
        let centred = first - mean * mass;
        Self { mass, first: centred / sd, second: (second - mean * first - mean * centred) / (sd * sd) }
    }

    fn without(self, other: Self) -> Self {
        Self { mass: self.mass - other.mass, first: self.first - other.first, second: self.second - other.second }
    }
}

/// The cut and centred residual of a count.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutCount {
    /// m.
    mean: f64,
    /// √V.
    sd: f64,
    cut: f64,
    /// What the cut leaves.
    pub of: Cut,
}

impl CutCount {
    /// Of counts with mean e^`predictor` and dispersion φ, ∞ for a Poisson distribution; `cut` is in standard deviations of the count. The mean is kept within e^±300.
    #[must_use]
    pub fn new(predictor: f64, dispersion: f64, cut: f64) -> Self {
        let mean = predictor.clamp(-300.0, 300.0).exp();
        let sd = (mean * (1.0 + mean / dispersion)).sqrt();
        let shape = mean / (1.0 + mean / dispersion);
        let of = match (mean < MANY, dispersion < MANY) {
            (true, true) => Cut::of_parts(negative_binomial(mean, sd, dispersion, cut), cut),
            (true, false) => Cut::of_parts(summed(mean, sd, dispersion, cut), cut),
            (false, _) if shape < NORMAL => Cut::of_parts(gamma(mean, sd, shape, cut), cut),
            (false, _) => Cut::of_normal(cut),
        };
        Self { mean, sd, cut, of }
    }

    /// r of a count.
    #[must_use]
    pub fn residual(&self, count: f64) -> f64 {
        self.unit() * (((count - self.mean) / self.sd).clamp(-self.cut, self.cut) - self.of.mean)
    }

    /// c, the same for all counts.
    #[must_use]
    pub fn curvature(&self) -> f64 {
        self.unit().powi(2) * self.of.slope
    }

    /// What |r| is at most, whatever the count is.
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.unit() * (self.cut + self.of.mean.abs())
    }

    /// Var r.
    #[must_use]
    pub fn score_variance(&self) -> f64 {
        self.unit().powi(2) * self.of.variance
    }

    /// m/√V.
    fn unit(&self) -> f64 {
        self.mean / self.sd
    }
}

/// Below, between and above, of counts with a dispersion.
fn negative_binomial(mean: f64, sd: f64, dispersion: f64, cut: f64) -> [Moments; 3] {
    let q = dispersion / (dispersion + mean);
    // P(Y ≤ k).
    let below = |k: f64, dispersion: f64| if k < 0.0 { 0.0 } else { statrs::function::beta::beta_reg(dispersion, k + 1.0, q) };
    let up_to = |k: f64| {
        let first = mean * below(k - 1.0, dispersion + 1.0);
        let of_pairs = mean * mean * (1.0 + 1.0 / dispersion) * below(k - 2.0, dispersion + 2.0);
        Moments::standard([below(k, dispersion), first, of_pairs + first], mean, sd)
    };
    // The largest counts that are below −cut, and not above cut.
    parts(up_to((mean - cut * sd).ceil() - 1.0), up_to((mean + cut * sd).floor()))
}

/// The same by a sum over counts, of which a large dispersion has few that matter.
fn summed(mean: f64, sd: f64, dispersion: f64, cut: f64) -> [Moments; 3] {
    // p(y + 1)/p(y).
    let ratio = |y: f64| (1.0 + y / dispersion) * mean / ((y + 1.0) * (1.0 + mean / dispersion));
    let mut sums = [[0.0; 3]; 3];
    let mut add = |y: f64, mass: f64| {
        let u = (y - mean) / sd;
        let part = if u < -cut { 0 } else { 1 + usize::from(u > cut) };
        sums[part].iter_mut().zip([mass, mass * u, mass * u * u]).for_each(|(sum, value)| *sum += value);
    };
    let (middle, mut mass) = (mean.floor(), 1.0);
    let mut y = middle;
    while mass > NEGLIGIBLE {
        add(y, mass);
        mass *= ratio(y);
        y += 1.0;
    }
    (y, mass) = (middle, 1.0);
    while y > 0.0 && mass > NEGLIGIBLE {
        mass /= ratio(y - 1.0);
        y -= 1.0;
        add(y, mass);
    }
    let total: f64 = sums.iter().map(|part| part[0]).sum();
    sums.map(|[mass, first, second]| Moments { mass: mass / total, first: first / total, second: second / total })
}

/// The same of a gamma variable of this mean and variance, which large counts are.
fn gamma(mean: f64, sd: f64, shape: f64, cut: f64) -> [Moments; 3] {
    let up_to = |y: f64| {
        let below = |more: f64| if y <= 0.0 { 0.0 } else { statrs::function::gamma::gamma_lr(shape + more, shape * y / mean) };
        Moments::standard([below(0.0), mean * below(1.0), mean * mean * (1.0 + 1.0 / shape) * below(2.0)], mean, sd)
    };
    parts(up_to(mean - cut * sd), up_to(mean + cut * sd))
}

fn parts(below: Moments, not_above: Moments) -> [Moments; 3] {
    [below, not_above.without(below), Moments::ALL.without(not_above)]
}

/// The cut residual of a number with normal errors of standard deviation σ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CutNumber {
    sd: f64,
    cut: f64,
    of: Cut,
}

impl CutNumber {
    /// `cut` is in units of σ = `sd`.
    #[must_use]
    pub fn new(sd: f64, cut: f64) -> Self {
        Self { sd, cut, of: Cut::of_normal(cut) }
    }

    /// r = clip(e/σ)/σ of an error e.
    #[must_use]
    pub fn residual(&self, error: f64) -> f64 {
        (error / self.sd).clamp(-self.cut, self.cut) / self.sd
    }

    /// c = (2Φ(cut) − 1)/σ².
    #[must_use]
    pub fn curvature(&self) -> f64 {
        self.of.slope / (self.sd * self.sd)
    }

    /// What |r| is at most.
    #[must_use]
    pub fn bound(&self) -> f64 {
        self.cut / self.sd
    }

    /// Var r.
    #[must_use]
    pub fn score_variance(&self) -> f64 {
        self.of.variance / (self.sd * self.sd)
    }
}

#[cfg(test)]
mod tests {
    use super::{Cut, CutCount, CutNumber};
    use crate::count::negative_binomial::log_mass;

    /// E r and Var r by a sum over counts, and by how much E r falls when m rises and the truth stays.
    #[test]
    fn a_cut_count_has_mean_0_and_its_curvature_is_the_slope() {
        for (predictor, dispersion) in [(-2.0, 0.4), (0.3, 1.5), (2.0, 30.0), (1.0, f64::INFINITY), (3.0, 2e4)] {
            let moments = |at: &CutCount| -> [f64; 2] {
                let of = |y: u32| {
                    let (p, r) = (log_mass(f64::from(y), dispersion, predictor, 0.0).exp(), at.residual(f64::from(y)));
                    [p * r, p * r * r]
                };
                (0..3000).map(of).fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d])
            };
            let at = CutCount::new(predictor, dispersion, 2.5);
            let [mean, square] = moments(&at);
            assert!(mean.abs() < 1e-9 && (square - at.score_variance()).abs() < 1e-8, "{predictor} {dispersion}: {mean} {square}");
            // Of the law, not of r: ∂E r/∂η_truth = E r·(y − m)m/V = c.
            let covariance: f64 = (0..3000)
                .map(f64::from)
                .map(|y| log_mass(y, dispersion, predictor, 0.0).exp() * at.residual(y) * (y - at.mean) * at.mean / (at.sd * at.sd))
                .sum();
            assert!((covariance - at.curvature()).abs() < 1e-8, "{covariance} {}", at.curvature());
            assert!((0..3000).all(|y| at.residual(f64::from(y)).abs() <= at.bound()));
        }
    }

    /// Where one form takes over from another nothing jumps.
    #[test]
    fn all_forms_of_a_count_meet() {
        let at = |mean: f64, dispersion: f64| CutCount::new(mean.ln(), dispersion, 2.5).of;
        let near = |a: Cut, b: Cut, tolerance: f64| {
            let off = [a.mean - b.mean, a.slope - b.slope, a.variance - b.variance];
            assert!(off.iter().all(|off| off.abs() < tolerance), "{a:?} {b:?}");
        };
        near(at(50.0, 9_999.0), at(50.0, 10_001.0), 1e-5);
        near(at(9_999.0, 3.0), at(10_001.0, 3.0), 5e-5);
        near(at(9_999.0, f64::INFINITY), at(10_001.0, f64::INFINITY), 5e-4);
        near(at(1e9, 9e5), at(1e9, 2e6), 5e-4);
        near(at(7.0, 1e12), at(7.0, f64::INFINITY), 1e-9);
        for far in [-1e9, 1e9, f64::MAX] {
            let of = CutCount::new(far, 1.5, 2.5);
            assert!(of.bound().is_finite() && of.curvature() >= 0.0 && of.curvature().is_finite(), "{far}");
        }
    }

    #[test]
    fn a_cut_that_nothing_reaches_changes_nothing() {
        let number = CutNumber::new(2.0, 40.0);
        assert_eq!((number.residual(3.0), number.curvature(), number.score_variance()), (0.75, 0.25, 0.25));
        let count = CutCount::new(1.0, 2.0, 1e3);
        let of = count.of;
        assert!(of.mean.abs() < 1e-12 && (of.slope - 1.0).abs() < 1e-12 && (of.variance - 1.0).abs() < 1e-12, "{of:?}");
    }
}
