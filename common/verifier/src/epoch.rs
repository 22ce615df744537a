//! Epochs of random allocation: the law of their likelihood ratio, on points so that it is worse than the true one. Proof: [`crate::proof`], "Epochs".

use crate::{interval::Interval, interval::point, normal::between};

/// Points on either side of 1, beside 0 and the last one.
const SIDE: i32 = 800;
/// The last point. It keeps the mean of what lies beyond the one before it.
const LAST: f64 = 1e200;

/// Values, ascending, and their masses.
pub(crate) struct MassFunction(Vec<(f64, f64)>);

impl MassFunction {
    /// No mass, at values that are dense where the mean of `count` variables e^{rz − r²/2} is.
    fn empty(r: f64, count: f64) -> Self {
        let (far, near) = (r * (10.0 + 0.5 * r), (100.0 * (r * r).exp() / count).sqrt());
        // Far above by one of them that is large, far below by all together.
        let reach = (far.exp() / count).ln_1p().max(if near < 0.9 { -(-near).ln_1p() } else { far });
        let step = ((r * r).exp_m1() / count).sqrt().min(r) / 100.0;
        let bend = (1.5 * (reach / step / f64::from(SIDE)).ln()).max(0.1);
        let inner = (-SIDE..=SIDE).map(|k| (reach * (bend * f64::from(k) / f64::from(SIDE)).sinh() / bend.sinh()).exp());
        Self(std::iter::once(0.0).chain(inner).chain([LAST]).map(|value| (value, 0.0)).collect())
    }

    /// Puts a mass at a value that is known to 1e-15 of itself: on the points around it, each with at least what keeps the mean. The search begins at the point `k`.
    fn put(&mut self, k: &mut usize, value: f64, mass: f64) {
        let (low, high, last) = (value * (1.0 - 1e-15), value * (1.0 + 1e-15), self.0.len() - 1);
        *k = if self.0[*k].0 > low { 0 } else { *k };
        while *k + 1 < last && self.0[*k + 1].0 <= low {
            *k += 1;
        }
        let next = (*k + 1..last).find(|next| self.0[*next].0 >= high).unwrap_or(last);
        let (from, to) = (self.0[*k].0, self.0[next].0);
        for (place, share) in [(*k, to - low), (next, high - from)] {
            let part = mass * (share.max(0.0) / (to - from)) * (1.0 + 2e-15) + 1e-300;
            self.0[place].1 = (self.0[place].1 + part).next_up();
        }
    }

    /// The law of Y = e^{rz − r²/2}.
    fn single(r: f64) -> Self {
        let mut law = Self::empty(r, 1.0);
        let (mut from, mut low, last) = (f64::NEG_INFINITY, point(0.0), law.0.len() - 1);
        for end in 1..last {
            let to = law.0[end].0.ln() / r + 0.5 * r;
            let high = (point(r) * (point(to) + point(-0.5 * r))).exp();
            let (mass, mean) = (between(from, to, 0.0), between(from, to, r));
            let inverse = (point(high.hi) + point(-low.lo)).reciprocal();
            law.put(&mut 0, low.lo, ((point(high.hi) * mass + -mean) * inverse).mass());
            law.put(&mut 0, high.hi, ((mean + -(point(low.lo) * mass)) * inverse).mass());
            (from, low) = (to, high);
        }
        law.put(&mut 0, low.lo, between(from, f64::INFINITY, 0.0).mass());
        law.0[last].1 = (law.0[last].1 + between(from, f64::INFINITY, r).mass() / LAST * 2.0).next_up();
        law
    }

    /// Puts (n·A + B)/(n + 1) into an empty law, for independent A of this one and B of the other one.
    fn mean(&self, other: &Self, n: f64, mut law: Self) -> Self {
        for (value, mass) in &self.0 {
            let mut k = 0;
            other.0.iter().for_each(|(also, part)| law.put(&mut k, (n * value + also) / (n + 1.0), mass * part));
        }
        law
    }

    /// The law of the mean of so many independent Y.
    pub(crate) fn of(r: f64, count: u32) -> Self {
        if count == 1 {
            return Self::single(r);
        }
        let (half, even) = (Self::of(r, count / 2), count & !1);
        let law = half.mean(&half, 1.0, Self::empty(r, even.into()));
        if even == count { law } else { law.mean(&Self::single(r), even.into(), Self::empty(r, count.into())) }
    }

    /// Losses with their masses, and the mass of infinite ones: of the data set with the unit against the one without, or the reverse.
    pub(crate) fn losses(&self, with: bool) -> (Vec<(Interval, Interval)>, Interval) {
        let all: Vec<_> = self.0.iter().map(|(value, mass)| (point(*value), point(*mass))).collect();
        let loss = |&(x, mass): &(Interval, Interval)| if with { (x.ln(), x * mass) } else { (-x.ln(), mass) };
        let (least, most) = (all[0], all[all.len() - 1]);
        (all[1..all.len() - 1].iter().map(loss).collect(), if with { most.0 * most.1 } else { least.1 + most.1 })
    }
}
