//! First-order optimisers as state and step.

use pulp::{Arch, Simd, WithSimd};
use serde::{Deserialize, Serialize};

/// Adam (Kingma & Ba 2015, algorithm 1) with its published constants β₁ = 0.9, β₂ = 0.999, ε = 1e-8.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Adam {
    first: Vec<f64>,
    second: Vec<f64>,
    /// β₁ᵗ and β₂ᵗ.
    decay: (f64, f64),
}

impl Adam {
    const BETA_1: f64 = 0.9;
    const BETA_2: f64 = 0.999;
    const EPSILON: f64 = 1e-8;

    /// The state before the first step, for `len` parameters.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self { first: vec![0.0; len], second: vec![0.0; len], decay: (1.0, 1.0) }
    }

    /// The state after `steps` steps, from its moments.
    #[must_use]
    pub fn resume(first: Vec<f64>, second: Vec<f64>, steps: u32) -> Self {
        let power = |beta: f64| beta.powi(steps.try_into().unwrap_or(i32::MAX));
        Self { first, second, decay: (power(Self::BETA_1), power(Self::BETA_2)) }
    }

    /// First and second moments: with the number of steps, the whole state.
    #[must_use]
    pub fn moments(&self) -> (&[f64], &[f64]) {
        (&self.first, &self.second)
    }

    /// Moves `parameters` one step down `gradient`.
    ///
    /// # Panics
    /// The slices do not have the length of the state.
    pub fn step(&mut self, parameters: &mut [f64], gradient: &[f64], learning_rate: f64) {
        assert!(parameters.len() == self.first.len() && gradient.len() == self.first.len(), "Adam was made for another length");
        self.decay = (self.decay.0 * Self::BETA_1, self.decay.1 * Self::BETA_2);
        let rate = learning_rate / (1.0 - self.decay.0);
        let unbias = 1.0 / (1.0 - self.decay.1);
        Arch::new().dispatch(Step { adam: self, parameters, gradient, rate, unbias });
    }
}

/// One step, in the widest lanes that the processor has: entry by entry, so that their width does not show.
struct Step<'a> {
    adam: &'a mut Adam,
    parameters: &'a mut [f64],
    gradient: &'a [f64],
    rate: f64,
    unbias: f64,
}

impl WithSimd for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { adam, parameters, gradient, rate, unbias } = self;
        for (((p, g), m), v) in parameters.iter_mut().zip(gradient).zip(&mut adam.first).zip(&mut adam.second) {
            *m = Adam::BETA_1 * *m + (1.0 - Adam::BETA_1) * g;
            *v = Adam::BETA_2 * *v + (1.0 - Adam::BETA_2) * g * g;
            *p -= rate * *m / ((*v * unbias).sqrt() + Adam::EPSILON);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Adam;

    #[test]
    fn first_steps_follow_the_published_recursion() {
        // With one gradient g the bias-corrected ratio is sign(g) up to epsilon; the second step is computed by hand.
        let mut adam = Adam::new(2);
        let mut p = [1.0, -1.0];
        adam.step(&mut p, &[4.0, -0.5], 0.1);
        assert!((p[0] - 0.9).abs() < 1e-8 && (p[1] + 0.9).abs() < 1e-8);
        adam.step(&mut p, &[2.0, -0.5], 0.1);
        let (m, v): (f64, f64) = ((0.9 * 0.4 + 0.2) / 0.19, (0.999 * 0.016 + 0.004) / 0.001_999);
        assert!((p[0] - (0.9 - 0.1 * m / v.sqrt())).abs() < 1e-8, "{p:?}");
    }

    #[test]
    fn a_quadratic_is_minimised() {
        let mut adam = Adam::new(2);
        let mut p = [5.0, -3.0];
        for t in 0..4000 {
            let gradient = [p[0] - 1.0, 10.0 * (p[1] - 2.0)];
            adam.step(&mut p, &gradient, 0.1 * 0.998_f64.powi(t));
        }
        assert!((p[0] - 1.0).abs() < 1e-3 && (p[1] - 2.0).abs() < 1e-3, "{p:?}");
    }
}
