//! Gauss–Legendre rules.

use std::sync::LazyLock;

/// Nodes and weights on [−1, 1].
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) points: Vec<(f64, f64)>,
}

impl Rule {
    /// Newton iteration on the Legendre polynomial from Tricomi's starting points.
    fn new(n: u32) -> Self {
        let points = (0..n)
            .map(|i| {
                let mut x = (std::f64::consts::PI * (f64::from(i) + 0.75) / (f64::from(n) + 0.5)).cos();
                let mut slope = 1.0;
                for _ in 0..60 {
                    let (mut before, mut value) = (1.0, x);
                    for k in 2..=n {
                        let k = f64::from(k);
                        (before, value) = (value, ((2.0 * k - 1.0) * x * value - (k - 1.0) * before) / k);
                    }
                    slope = f64::from(n) * (x * value - before) / (x * x - 1.0);
                    let step = value / slope;
                    x -= step;
                    if step.abs() < 1e-17 {
                        break;
                    }
                }
                (x, 2.0 / ((1.0 - x * x) * slope * slope))
            })
            .collect();
        Self { points }
    }
}

pub(crate) static GAUSS_2: LazyLock<Rule> = LazyLock::new(|| Rule::new(2));
pub(crate) static GAUSS_3: LazyLock<Rule> = LazyLock::new(|| Rule::new(3));
pub(crate) static GAUSS_5: LazyLock<Rule> = LazyLock::new(|| Rule::new(5));
pub(crate) static GAUSS_16: LazyLock<Rule> = LazyLock::new(|| Rule::new(16));
pub(crate) static GAUSS_32: LazyLock<Rule> = LazyLock::new(|| Rule::new(32));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gauss_legendre_integrates_polynomials_of_twice_its_order_exactly() {
        for (rule, degree) in [(&*GAUSS_2, 2), (&*GAUSS_3, 4), (&*GAUSS_5, 8), (&*GAUSS_16, 30), (&*GAUSS_32, 60)] {
            let sum: f64 = rule.points.iter().map(|(x, w)| w * x.powi(degree)).sum();
            assert!((sum - 2.0 / f64::from(degree + 1)).abs() < 4e-16, "{degree}: {sum}");
        }
    }
}
