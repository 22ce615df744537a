//! Damping schedules: functions of the visit number only, so they cost no privacy. They are resolved into
//! one explicit ρ per visit before the run, so that both sides compute with the same numbers.

use serde::{Deserialize, Serialize};

/// Damping as a person writes it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "damping must be a number, or { start = 0.3, end = 0.1 } (with decay = 0.95, if it is to fall faster), or { start = 0.5, slowing = 0.2 }, or { offset = 1, power = 0.7 }"
)]
pub enum Damping {
    /// The same ρ at every visit.
    Constant(f64),
    /// A ρ that falls exponentially.
    Decay(Decay),
    /// A ρ that falls hyperbolically.
    Hyperbolic(Hyperbolic),
    /// A ρ that falls as stochastic approximation wants it.
    RobbinsMonro(RobbinsMonro),
}

/// ρ_t = start/(1 + slowing·t).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hyperbolic {
    /// ρ of the first visit.
    pub start: f64,
    /// κ.
    pub slowing: f64,
}

/// ρ_t = (offset + t)^−power, with offset ≥ 1 and power in (½, 1]: Σρ diverges and Σρ² does not. A large offset never leaves the prior in a few
/// visits (offset 1024 and power 0.7 begin at 0.008).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RobbinsMonro {
    /// τ0.
    pub offset: f64,
    /// κ.
    pub power: f64,
}

/// Exponential decay.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decay {
    /// ρ of the first visit.
    pub start: f64,
    /// Smallest ρ.
    pub end: f64,
    /// With it ρ_t = max(end, start·decayᵗ); without it the decay that reaches `end` at the last visit.
    pub decay: Option<f64>,
}

/// A ρ that is no damping factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "damping must be above 0 and at most 1, and must not grow (damping = 0.5, damping = {{ start = 0.3, end = 0.1 }}, damping = {{ start = 0.5, slowing = 0.2 }}, \
     or damping = {{ offset = 1, power = 0.7 }} with offset at least 1 and power in (0.5, 1])"
)]
pub struct InvalidDamping;

impl Damping {
    /// ρ of every visit.
    ///
    /// # Errors
    /// A value outside (0, 1], an end above the start, or a decay outside (0, 1].
    pub fn resolve(self, visits: u32) -> Result<Vec<f64>, InvalidDamping> {
        let Decay { start, end, decay } = match self {
            Self::Constant(rho) => Decay { start: rho, end: rho, decay: None },
            Self::Decay(decay) => decay,
            Self::Hyperbolic(Hyperbolic { start, slowing }) => {
                let valid = start > 0.0 && start <= 1.0 && slowing >= 0.0 && slowing.is_finite();
                return valid.then(|| (0..visits).map(|t| start / (1.0 + slowing * f64::from(t))).collect()).ok_or(InvalidDamping);
            }
            Self::RobbinsMonro(RobbinsMonro { offset, power }) => {
                let valid = offset >= 1.0 && offset.is_finite() && power > 0.5 && power <= 1.0;
                return valid.then(|| (0..visits).map(|t| (offset + f64::from(t)).powf(-power)).collect()).ok_or(InvalidDamping);
            }
        };
        if !(start <= 1.0 && end > 0.0 && end <= start && decay.is_none_or(|d| d > 0.0 && d <= 1.0)) {
            return Err(InvalidDamping);
        }
        let last = visits.saturating_sub(1);
        let at = |t: u32| match decay {
            Some(decay) => (start * decay.powf(f64::from(t))).max(end),
            None if t == 0 => start,
            None if t == last => end,
            None => start * (end / start).powf(f64::from(t) / f64::from(last)),
        };
        Ok((0..visits).map(at).collect())
    }

    /// Default for updates that carry noise, sites in turn: the first visits move fast, the last ones average the noise.
    pub const SEQUENTIAL: Self = Self::Decay(Decay { start: 0.5, end: 0.1, decay: None });

    /// Default of client-level updates: ρ²T stays below 2 for tens of rounds.
    pub const CLIENT_LEVEL: Self = Self::Decay(Decay { start: 0.5, end: 0.2, decay: None });

    /// Default for sums over shards: the stability bound min(1, 1.5/s), at most ½ because the sum is noisy.
    #[must_use]
    pub fn shards(max_nonzeros: u32) -> Self {
        Self::Constant((1.5 / f64::from(max_nonzeros.max(1))).min(0.5))
    }

    /// Default for all `sites` at once. Mean-field updates in parallel are a Jacobi iteration: with at most `max_nonzeros` = s
    /// entries in a row every ρ < 2/s is stable, however many shards there are, and 1/`sites` is safe for a few large
    /// sites. The larger of 1.5/s and 1/`sites`.
    #[must_use]
    pub fn synchronous(sites: u32, max_nonzeros: u32) -> Self {
        let jacobi = (1.5 / f64::from(max_nonzeros.max(1))).min(1.0);
        Self::Constant(jacobi.max(1.0 / f64::from(sites.max(1))))
    }

    /// Default where every site goes at its own pace: that of all sites at once, and at most 1/(1 + `max_staleness`).
    #[must_use]
    pub fn asynchronous(sites: u32, max_nonzeros: u32, max_staleness: u32) -> Self {
        let largest = 1.0 / (1.0 + f64::from(max_staleness));
        match Self::synchronous(sites, max_nonzeros) {
            Self::Constant(rho) => Self::Constant(rho.min(largest)),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Damping, Decay, Hyperbolic, RobbinsMonro};

    #[test]
    fn hyperbolic_and_robbins_monro_schedules_are_what_they_say() {
        assert_eq!(Damping::Hyperbolic(Hyperbolic { start: 0.5, slowing: 1.0 }).resolve(3), Ok(vec![0.5, 0.25, 0.5 / 3.0]));
        let robbins = Damping::RobbinsMonro(RobbinsMonro { offset: 1.0, power: 1.0 });
        assert_eq!(robbins.resolve(4), Ok(vec![1.0, 0.5, 1.0 / 3.0, 0.25]));
        for (offset, power) in [(0.5, 0.7), (1.0, 0.5), (1.0, 1.1), (f64::NAN, 0.7)] {
            assert!(Damping::RobbinsMonro(RobbinsMonro { offset, power }).resolve(2).is_err());
        }
        for (start, slowing) in [(0.0, 1.0), (1.1, 1.0), (0.5, -0.1), (0.5, f64::INFINITY)] {
            assert!(Damping::Hyperbolic(Hyperbolic { start, slowing }).resolve(2).is_err());
        }
    }

    #[test]
    fn an_old_posterior_moves_the_new_one_less() {
        assert_eq!(Damping::asynchronous(3, 14, 4), Damping::Constant(0.2));
        assert_eq!(Damping::asynchronous(10, 14, 1), Damping::Constant(1.5 / 14.0));
    }

    /// How they are written.
    #[test]
    fn every_schedule_is_read_from_its_keys() {
        #[derive(serde::Deserialize)]
        struct Holder {
            damping: Damping,
        }
        for (text, expected) in [
            ("0.5", Damping::Constant(0.5)),
            ("{ start = 0.3, end = 0.1 }", Damping::Decay(Decay { start: 0.3, end: 0.1, decay: None })),
            ("{ start = 0.5, slowing = 0.2 }", Damping::Hyperbolic(Hyperbolic { start: 0.5, slowing: 0.2 })),
            ("{ offset = 1.0, power = 0.7 }", Damping::RobbinsMonro(RobbinsMonro { offset: 1.0, power: 0.7 })),
        ] {
            let read: Result<Holder, _> = toml::from_str(&format!("damping = {text}"));
            assert_eq!(read.map(|holder| holder.damping).ok(), Some(expected), "{text}");
        }
    }

    #[test]
    fn schedules_are_geometric_and_explicit() {
        assert_eq!(Damping::Constant(0.3).resolve(3), Ok(vec![0.3; 3]));
        let decay = Damping::Decay(Decay { start: 0.8, end: 0.2, decay: None }).resolve(3).unwrap_or_default();
        assert!((decay[0] - 0.8).abs() < 1e-15 && (decay[1] - 0.4).abs() < 1e-15 && (decay[2] - 0.2).abs() < 1e-15);
        assert_eq!(Damping::SEQUENTIAL.resolve(1), Ok(vec![0.5]));
        let sequential = Damping::SEQUENTIAL.resolve(40).unwrap_or_default();
        assert!((sequential[13] - 0.5 * 0.2f64.powf(1.0 / 3.0)).abs() < 1e-15 && (sequential[39] - 0.1).abs() < 1e-15);
        assert_eq!(Damping::Constant(0.5).resolve(0), Ok(vec![]));
    }

    #[test]
    fn factors_outside_zero_to_one_are_refused() {
        for bad in [0.0, -0.1, 1.01, f64::NAN, f64::INFINITY] {
            assert!(Damping::Constant(bad).resolve(2).is_err(), "{bad}");
        }
        assert!(Damping::Decay(Decay { start: 0.1, end: 0.5, decay: None }).resolve(2).is_err());
    }

    #[test]
    fn the_synchronous_default_lies_between_one_site_and_the_stability_bound() {
        assert_eq!(Damping::synchronous(10, 14), Damping::Constant(1.5 / 14.0));
        assert_eq!(Damping::synchronous(3, 14), Damping::Constant(1.0 / 3.0));
        assert_eq!(Damping::synchronous(1, 5), Damping::Constant(1.0));
    }
}
