//! Draws for public simulations: a fixed stream, the same bits for everyone. They protect nothing and no noise of a mechanism comes from here.

use crate::start;

/// A stream of numbers that follows from its first state (splitmix64).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draws(u64);

impl Draws {
    /// The stream of these bytes' first eight.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(bytes.iter().take(8).fold(0, |word, byte| word << 8 | u64::from(*byte)))
    }

    /// Another stream, for one part of the simulation.
    #[must_use]
    pub fn part(&self, number: u64) -> Self {
        let mut state = self.0 ^ number.wrapping_mul(0xd605_bbb5_8c8a_bbfd);
        start::uniform(&mut state);
        Self(state ^ (state >> 29))
    }

    /// Uniform on [0, 1).
    pub fn uniform(&mut self) -> f64 {
        start::uniform(&mut self.0)
    }

    /// Uniform on [`low`, `high`).
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.uniform()
    }

    /// Standard normal, by the polar method.
    pub fn normal(&mut self) -> f64 {
        self.normals().0
    }

    /// Two independent standard normals.
    fn normals(&mut self) -> (f64, f64) {
        loop {
            let (u, v) = (self.between(-1.0, 1.0), self.between(-1.0, 1.0));
            let square = u * u + v * v;
            if square < 1.0 && square > 0.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                return (factor * u, factor * v);
            }
        }
    }

    /// Adds independent normal numbers of standard deviation `sd`.
    pub fn add_normals(&mut self, sd: f64, to: &mut [f64]) {
        let mut pairs = to.chunks_exact_mut(2);
        for pair in &mut pairs {
            let (a, b) = self.normals();
            pair[0] += sd * a;
            pair[1] += sd * b;
        }
        for last in pairs.into_remainder() {
            *last += sd * self.normal();
        }
    }

    /// Gamma with this shape and scale 1 (Marsaglia and Tsang 2000).
    pub fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            // A gamma of shape + 1 times U^(1/shape).
            let u = 1.0 - self.uniform();
            return self.gamma(shape + 1.0) * u.powf(1.0 / shape);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.uniform()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return d * v;
            }
        }
    }

    /// Beta with these two shapes.
    pub fn beta(&mut self, a: f64, b: f64) -> f64 {
        let (x, y) = (self.gamma(a), self.gamma(b));
        if x + y > 0.0 { x / (x + y) } else { f64::from(u8::from(self.uniform() * (a + b) < a)) }
    }

    /// Poisson with this rate; rounded normal where the rate is large.
    pub fn poisson(&mut self, rate: f64) -> f64 {
        if rate > 100.0 {
            return (rate + rate.sqrt() * self.normal()).round().max(0.0);
        }
        let (mut count, mut left) = (0.0, rate);
        loop {
            left += (1.0 - self.uniform()).ln();
            if left < 0.0 {
                return count;
            }
            count += 1.0;
        }
    }

    /// Brings a list into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a position in a list")]
            let j = ((i as f64 + 1.0) * self.uniform()) as usize;
            list.swap(i, j.min(i));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Draws;

    /// Mean and variance of 40,000 draws, within five standard errors of the mean (and 5 % for the variance).
    fn check(mean: f64, variance: f64, mut draw: impl FnMut(&mut Draws) -> f64) {
        let mut draws = Draws::of(b"a test of draws").part(7);
        let values: Vec<f64> = (0..40_000).map(|_| draw(&mut draws)).collect();
        let average = values.iter().sum::<f64>() / 4e4;
        let spread = values.iter().map(|v| (v - average).powi(2)).sum::<f64>() / 4e4;
        assert!((average - mean).abs() < 5.0 * (variance / 4e4).sqrt(), "{average} {mean}");
        assert!((spread / variance - 1.0).abs() < 0.05, "{spread} {variance}");
    }

    #[test]
    fn draws_have_their_moments() {
        check(0.5, 1.0 / 12.0, Draws::uniform);
        check(0.0, 1.0, Draws::normal);
        for shape in [0.4, 1.0, 7.5] {
            check(shape, shape, |draws| draws.gamma(shape));
        }
        check(0.25, 0.25 * 0.75 / 5.0, |draws| draws.beta(1.0, 3.0));
        for rate in [0.3, 20.0, 400.0] {
            check(rate, rate, |draws| draws.poisson(rate));
        }
        check(2.0, 9.0, |draws| {
            let mut one = [2.0; 3];
            draws.add_normals(3.0, &mut one);
            one[2]
        });
    }

    #[test]
    fn streams_are_the_same_for_everybody_and_their_parts_differ() {
        let first = |mut draws: Draws| draws.uniform();
        let root = Draws::of(&[1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(first(root.clone()).to_bits(), first(Draws::of(&[1, 2, 3, 4, 5, 6, 7, 8])).to_bits());
        assert!((first(root.part(0)) - first(root.part(1))).abs() > 1e-9);
        let mut order: Vec<usize> = (0..50).collect();
        root.part(2).shuffle(&mut order);
        assert_ne!(order, (0..50).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..50).collect::<Vec<_>>());
    }
}
