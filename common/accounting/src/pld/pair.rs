//! One step as a pair of distributions: the privacy loss L = ln(dP/dQ) under P.

/// Where a continuous part of the loss comes from; L increases with the coordinate y.
///
/// With r = (shift of the sampled unit)/σ and ℓ(y) = ln(1 − q + q·e^{ry − r²/2}), the log-ratio of (1−q)N(0,1) + qN(r,1) to N(0,1):
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Map {
    /// P = the mixture, Q = N(0,1): L = ℓ(y).
    Remove,
    /// P = N(0,1), Q = the mixture, reflected: L = −ℓ(−y).
    Add,
    /// P = the mixture, Q = the mixture with −r: L = ℓ(y) − ℓ(−y).
    Replace,
    /// Laplace noise between its two kinks: L = 2y, density ½e^{y−r/2} for |y| ≤ r/2.
    Laplace,
}

/// A part of the loss distribution: `map` for y in [low, high].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Segment {
    pub(crate) map: Map,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Where the grid must meet the losses exactly so that a narrow peak of them costs nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Anchor {
    /// The grid contains 0.
    Zero,
    /// A peak at the smallest loss.
    Bottom,
    /// A peak at the largest loss.
    Top,
}

/// A dominating pair of one step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pair {
    pub(crate) ratio: f64,
    pub(crate) rate: f64,
    rest: f64,
    log_rate: f64,
    pub(crate) segments: Vec<Segment>,
    /// (loss, mass under P), besides the segments.
    pub(crate) atoms: Vec<(f64, f64)>,
    /// Mass under P where Q has none.
    pub(crate) infinite: f64,
    pub(crate) anchor: Anchor,
    /// Losses `offset + step·k` exactly, masses in `atoms` in the order of k.
    pub(crate) lattice: Option<Lattice>,
}

/// A loss that takes equidistant values only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lattice {
    pub(crate) first: i64,
    pub(crate) offset: f64,
    pub(crate) step: f64,
}

const WHOLE: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);
/// ½ ln 2π.
const HALF_LOG_TAU: f64 = 0.918_938_533_204_672_7;

impl Pair {
    fn continuous(map: Map, ratio: f64, rate: f64, anchor: Anchor) -> Self {
        Self {
            ratio,
            rate,
            rest: 1.0 - rate,
            log_rate: rate.ln(),
            segments: vec![Segment { map, low: WHOLE.0, high: WHOLE.1 }],
            atoms: Vec::new(),
            infinite: 0.0,
            anchor,
            lattice: None,
        }
    }

    /// N(ratio, 1) against N(0, 1).
    pub(crate) fn gaussian(ratio: f64) -> Self {
        Self::continuous(Map::Remove, ratio, 1.0, Anchor::Zero)
    }

    /// (1−q)N(0,1) + qN(ratio,1) against N(0,1).
    pub(crate) fn remove(ratio: f64, rate: f64) -> Self {
        Self::continuous(Map::Remove, ratio, rate, if rate < 1.0 { Anchor::Bottom } else { Anchor::Zero })
    }

    /// N(0,1) against (1−q)N(0,1) + qN(ratio,1).
    pub(crate) fn add(ratio: f64, rate: f64) -> Self {
        Self::continuous(Map::Add, ratio, rate, if rate < 1.0 { Anchor::Top } else { Anchor::Zero })
    }

    /// The replace pair: (1−q)N(0,1) + qN(ratio,1) against (1−q)N(0,1) + qN(−ratio,1).
    pub(crate) fn replace(ratio: f64, rate: f64) -> Self {
        Self::continuous(Map::Replace, ratio, rate, Anchor::Zero)
    }

    /// The symmetrised pair of Zhu, Dong & Wang (2022): with U = (1−q)N(0,1) + qN(ratio,1) and V = N(0,1), the loss of U against V where it is
    /// positive with the mass of U, mirrored with the mass of V, and the rest at 0.
    pub(crate) fn symmetrised(ratio: f64, rate: f64) -> Self {
        let cut = 0.5 * ratio;
        let mut pair = Self::continuous(Map::Remove, ratio, rate, Anchor::Zero);
        pair.segments = vec![Segment { map: Map::Add, low: WHOLE.0, high: -cut }, Segment { map: Map::Remove, low: cut, high: WHOLE.1 }];
        // 1 − U(y > r/2) − V(y > r/2) = (1−q)(1 − 2Φ(−r/2)).
        let atom = pair.rest * libm::erf(cut / std::f64::consts::SQRT_2);
        if atom > 0.0 {
            pair.atoms.push((0.0, atom));
        }
        pair
    }

    /// Laplace noise of scale Δ/`epsilon` for sensitivity Δ.
    pub(crate) fn laplace(epsilon: f64) -> Self {
        let mut pair = Self::continuous(Map::Laplace, epsilon, 1.0, Anchor::Zero);
        pair.segments = vec![Segment { map: Map::Laplace, low: -0.5 * epsilon, high: 0.5 * epsilon }];
        pair.atoms = vec![(-epsilon, 0.5 * (-epsilon).exp()), (epsilon, 0.5)];
        pair
    }

    /// The worst (ε, δ) mechanism (Kairouz, Oh & Viswanath 2015).
    pub(crate) fn approximate(epsilon: f64, delta: f64) -> Self {
        let mut pair = Self::continuous(Map::Laplace, epsilon, 1.0, Anchor::Zero);
        pair.segments.clear();
        let high = (1.0 - delta) / (1.0 + (-epsilon).exp());
        pair.atoms = if epsilon > 0.0 { vec![(-epsilon, high * (-epsilon).exp()), (epsilon, high)] } else { vec![(0.0, 1.0 - delta)] };
        pair.infinite = delta;
        pair
    }

    /// Finitely many losses, ascending, with their masses, and a mass at infinity; its Rényi divergences are at most those of the shift `ratio`
    /// without sampling.
    pub(crate) fn table(ratio: f64, atoms: Vec<(f64, f64)>, infinite: f64) -> Self {
        let mut pair = Self::continuous(Map::Laplace, ratio, 1.0, Anchor::Zero);
        pair.segments.clear();
        pair.atoms = atoms;
        pair.infinite = infinite;
        pair
    }

    /// Whether it is a [`Pair::table`].
    pub(crate) fn is_table(&self) -> bool {
        self.lattice.is_none() && self.segments.is_empty() && self.atoms.len() > 2
    }

    /// The atoms without those far out of a table: below, mass e^{−low}; above, mass e^{−high}. And the masses that are left out below and above.
    pub(crate) fn atoms_within(&self, (low, high): (f64, f64)) -> (&[(f64, f64)], f64, f64) {
        if !self.is_table() {
            return (&self.atoms, 0.0, 0.0);
        }
        let count = |most: f64, masses: &mut dyn Iterator<Item = f64>| {
            let mut sum = 0.0;
            let number = masses
                .take_while(|mass| {
                    let all = sum + mass <= most;
                    sum += if all { *mass } else { 0.0 };
                    all
                })
                .count();
            (number, sum)
        };
        let (above, high) = count((-high).exp(), &mut self.atoms.iter().rev().map(|atom| atom.1));
        let rest = &self.atoms[..self.atoms.len() - above];
        let (below, low) = count((-low).exp(), &mut rest.iter().map(|atom| atom.1));
        (&rest[below..], low, high)
    }

    /// Discrete Gaussian of parameter `scale` on the integers, shifted by `shift`.
    pub(crate) fn discrete_gaussian(scale: f64, shift: u64) -> Self {
        #[allow(clippy::cast_precision_loss, reason = "shifts are small integers")]
        let shift_by = shift as f64;
        let mut pair = Self::continuous(Map::Remove, shift_by / scale, 1.0, Anchor::Zero);
        pair.segments.clear();
        let reach = (scale * 40.0).ceil() + 2.0;
        #[allow(clippy::cast_possible_truncation, reason = "the caller bounds the scale")]
        let (first, last) = ((shift_by - reach) as i64, (shift_by + reach) as i64);
        #[allow(clippy::cast_precision_loss, reason = "small integers")]
        let mass = |x: i64| (-0.5 * ((x as f64 - shift_by) / scale).powi(2)).exp();
        let total: f64 = (first..=last).map(mass).sum();
        let step = shift_by / (scale * scale);
        let offset = -0.5 * shift_by * shift_by / (scale * scale);
        #[allow(clippy::cast_precision_loss, reason = "small integers")]
        {
            pair.atoms = (first..=last).map(|x| (offset + step * x as f64, mass(x) / total)).collect();
        }
        pair.lattice = Some(Lattice { first, offset, step });
        pair
    }

    /// ℓ(y).
    fn mixture(&self, y: f64) -> f64 {
        let a = self.ratio * (y - 0.5 * self.ratio);
        if self.rest <= 0.0 {
            a
        } else if a > 30.0 {
            a + self.log_rate + (self.rest / self.rate * (-a).exp()).ln_1p()
        } else if a < -1.0 && self.rate > 0.5 {
            (self.rest + self.rate * a.exp()).ln()
        } else {
            (self.rate * a.exp_m1()).ln_1p()
        }
    }

    /// ℓ′(y) = r(1 − (1−q)e^{−ℓ}), without cancellation.
    fn mixture_slope(&self, y: f64) -> f64 {
        let a = self.ratio * (y - 0.5 * self.ratio);
        // q e^a / (1 − q + q e^a)
        if self.rest <= 0.0 { self.ratio } else { self.ratio / (1.0 + self.rest / self.rate * (-a).exp()) }
    }

    /// y with ℓ(y) = l; −∞ below the infimum.
    fn mixture_inverse(&self, l: f64) -> f64 {
        let a = if self.rest <= 0.0 {
            l
        } else if l > 1.0 {
            l + (-self.rest * (-l).exp()).ln_1p() - self.log_rate
        } else if l < -0.5 && self.rate > 0.5 {
            let excess = l.exp() - self.rest;
            if excess > 0.0 { (excess / self.rate).ln() } else { return f64::NEG_INFINITY }
        } else {
            let excess = l.exp_m1() / self.rate;
            if excess > -1.0 { excess.ln_1p() } else { return f64::NEG_INFINITY }
        };
        a / self.ratio + 0.5 * self.ratio
    }

    /// (L(y), ln of the density of y under P).
    pub(crate) fn at(&self, map: Map, y: f64) -> (f64, f64) {
        let normal = -0.5 * y * y - HALF_LOG_TAU;
        match map {
            Map::Remove => {
                let loss = self.mixture(y);
                (loss, normal + loss)
            }
            Map::Add => (-self.mixture(-y), normal),
            Map::Replace => {
                let up = self.mixture(y);
                (up - self.mixture(-y), normal + up)
            }
            Map::Laplace => (2.0 * y, y - 0.5 * self.ratio - std::f64::consts::LN_2),
        }
    }

    /// L′(y).
    pub(crate) fn slope(&self, map: Map, y: f64) -> f64 {
        match map {
            Map::Remove => self.mixture_slope(y),
            Map::Add => self.mixture_slope(-y),
            Map::Replace => self.mixture_slope(y) + self.mixture_slope(-y),
            Map::Laplace => 2.0,
        }
    }

    /// d ln f/dL for f the density of the loss under P, at L(y): ((ln p)′ − L″/L′)/L′.
    pub(crate) fn steepness(&self, map: Map, y: f64) -> f64 {
        // w = q e^a/(1 − q + q e^a): ℓ′ = r·w, ℓ″ = r²·w(1 − w).
        let share = |y: f64| self.mixture_slope(y) / self.ratio;
        let r = self.ratio;
        match map {
            Map::Remove => {
                let w = share(y);
                2.0 - (y / r + 1.0) / w
            }
            Map::Add => {
                let w = share(-y);
                ((1.0 - w) - y / r) / w
            }
            Map::Replace => {
                let (up, down) = (share(y), share(-y));
                let sum = up + down;
                let bend = (up * (1.0 - up) - down * (1.0 - down)) / sum;
                (up - y / r - bend) / sum
            }
            Map::Laplace => 0.5,
        }
    }

    /// y with L(y) = l; ∓∞ outside the range.
    pub(crate) fn inverse(&self, map: Map, l: f64) -> f64 {
        match map {
            Map::Remove => self.mixture_inverse(l),
            Map::Add => -self.mixture_inverse(-l),
            Map::Replace => {
                if self.rest <= 0.0 {
                    return 0.5 * l / self.ratio;
                }
                // ry = l/2 + asinh((1−q)/q · e^{r²/2} · sinh(l/2))
                let half = 0.5 * l.abs();
                let log_sinh = if half > 20.0 { half - std::f64::consts::LN_2 } else { half.sinh().ln() };
                let log = (self.rest / self.rate).ln() + 0.5 * self.ratio * self.ratio + log_sinh;
                let rest = if log > 20.0 { log + std::f64::consts::LN_2 } else { log.exp().asinh() };
                (half + rest).copysign(l) / self.ratio
            }
            Map::Laplace => 0.5 * l,
        }
    }

    /// The largest finite loss there is.
    pub(crate) fn largest_loss(&self) -> f64 {
        let segments = self.segments.iter().map(|segment| match segment.map {
            Map::Add if segment.high == f64::INFINITY && self.rest > 0.0 => -self.rest.ln(),
            Map::Laplace => self.ratio,
            Map::Add if segment.high < f64::INFINITY => 0.0,
            _ => f64::INFINITY,
        });
        segments.chain(self.atoms.iter().map(|atom| atom.0)).fold(0.0, f64::max)
    }

    /// δ(0), rounded up, where it has a closed form.
    pub(crate) fn variation(&self) -> Option<f64> {
        let shift = match self.segments.as_slice() {
            [Segment { map: Map::Remove | Map::Add, low, .. }] if *low == f64::NEG_INFINITY => 0.5 * self.ratio,
            // Of the symmetrised pair only the upper half has losses above 0.
            [_, Segment { map: Map::Remove, .. }] => 0.5 * self.ratio,
            [Segment { map: Map::Replace, .. }] => self.ratio,
            _ => return None,
        };
        Some(self.rate * libm::erf(shift * std::f64::consts::FRAC_1_SQRT_2) * (1.0 + 1e-14) + self.infinite)
    }

    /// Whether it is a Gaussian (or lattice noise) without sampling: D_α = αr²/2, for lattice noise at most.
    pub(crate) fn is_plain(&self) -> bool {
        self.lattice.is_some()
            || matches!(self.segments.as_slice(), [Segment { map: Map::Remove | Map::Add, low: f64::NEG_INFINITY, high: f64::INFINITY }] if self.rest <= 0.0)
    }

    /// Upper bound on the Rényi divergence: that of the same pair without sampling (joint quasi-convexity; the symmetrised pair lies below the curve of
    /// its unsampled Gaussians in both directions), for Laplace noise the largest loss.
    pub(crate) fn unsampled_renyi(&self, order: f64) -> f64 {
        match self.segments.first().map(|segment| segment.map) {
            Some(Map::Laplace) => self.ratio,
            Some(Map::Replace) => 2.0 * order * self.ratio * self.ratio,
            _ => 0.5 * order * self.ratio * self.ratio,
        }
    }

    /// Where ℓ bends: q·e^a = 1 − q.
    pub(crate) fn bend(&self) -> Option<f64> {
        (self.rest > 0.0).then(|| ((self.rest / self.rate).ln() + 0.5 * self.ratio * self.ratio) / self.ratio)
    }

    /// Coordinates between which all but `e^-nats` of every normal component of P lies.
    pub(crate) fn reach(&self, segment: &Segment, nats: f64) -> (f64, f64) {
        let z = (2.0 * nats).sqrt() + 0.5;
        let (low, high) = match segment.map {
            Map::Remove | Map::Replace => (-z, self.ratio + z),
            Map::Add => (-z, z),
            Map::Laplace => WHOLE,
        };
        (low.max(segment.low), high.min(segment.high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inverses_are_inverse() {
        for (ratio, rate) in [(1.0, 0.01), (0.02, 0.5), (3.0, 0.001), (1e-5, 1e-9), (20.0, 0.3), (1.0, 1.0), (0.3, 0.999)] {
            let pair = Pair::remove(ratio, rate);
            for map in [Map::Remove, Map::Add, Map::Replace] {
                for i in -60..=60 {
                    let y = f64::from(i) * 0.1;
                    let (loss, _) = pair.at(map, y);
                    let back = pair.at(map, pair.inverse(map, loss)).0;
                    assert!((back - loss).abs() <= 1e-12 * loss.abs() + 1e-15, "{map:?} {ratio} {rate} {y}: {loss:e} {back:e}");
                }
            }
        }
    }

    #[test]
    fn slopes_are_slopes() {
        for (ratio, rate) in [(1.0, 0.01), (0.5, 0.5), (3.0, 0.001)] {
            let pair = Pair::remove(ratio, rate);
            for map in [Map::Remove, Map::Add, Map::Replace] {
                for y in [-3.0, -0.2, 0.7, 4.0] {
                    let numeric = (pair.at(map, y + 1e-5).0 - pair.at(map, y - 1e-5).0) / 2e-5;
                    assert!((pair.slope(map, y) - numeric).abs() < 1e-8 * ratio, "{map:?} {ratio} {rate} {y}");
                }
            }
        }
    }
}
