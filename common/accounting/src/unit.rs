//! Checked numbers: a bare `f64` never means ε, δ, a clipping norm, a noise multiplier or a sampling rate.

use serde::{Deserialize, Serialize};

/// A number that is not what its name says.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{name} must be {expected}")]
pub struct InvalidUnit {
    /// What the number was meant to be.
    pub name: &'static str,
    /// The range that it must lie in.
    pub expected: &'static str,
}

macro_rules! checked {
    ($(#[$doc:meta])* $name:ident, $label:literal, $expected:literal, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            /// Checks the value.
            ///
            /// # Errors
            /// The value lies outside the range that the type promises.
            pub fn new(value: f64) -> Result<Self, InvalidUnit> {
                let check: fn(f64) -> bool = $check;
                if check(value) {
                    Ok(Self(value))
                } else {
                    Err(InvalidUnit { name: $label, expected: $expected })
                }
            }

            /// The plain number.
            #[must_use]
            pub fn get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = InvalidUnit;
            fn try_from(value: f64) -> Result<Self, InvalidUnit> {
                Self::new(value)
            }
        }

        impl From<$name> for f64 {
            fn from(value: $name) -> f64 {
                value.0
            }
        }
    };
}

checked!(
    /// Privacy loss ε ≥ 0; infinity says "no guarantee".
    Epsilon,
    "epsilon",
    "a number that is at least 0 (or infinity)",
    |v| v >= 0.0
);
checked!(
    /// Failure probability δ in (0, 1).
    Delta,
    "delta",
    "a number strictly between 0 and 1",
    |v| v > 0.0 && v < 1.0
);
checked!(
    /// z = standard deviation of the noise on the sum, divided by the clipping norm C (decisions: never by a sensitivity).
    NoiseMultiplier,
    "noise multiplier",
    "a finite number above 0",
    |v| v > 0.0 && v.is_finite()
);
checked!(
    /// C = bound on the L2 norm of one summed term.
    ClipNorm,
    "clipping norm",
    "a finite number above 0",
    |v| v > 0.0 && v.is_finite()
);

impl Epsilon {
    /// No guarantee at all.
    pub const INFINITE: Self = Self(f64::INFINITY);
    /// No loss.
    pub const ZERO: Self = Self(0.0);
}

/// Poisson sampling rate q: an integer over 2³². That same integer is sampled and accounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct SamplingRate(u64);

impl SamplingRate {
    /// 2³², the denominator of every rate.
    pub const DENOMINATOR: u64 = 1 << 32;

    /// The rate `numerator`/2³².
    ///
    /// # Errors
    /// The numerator is 0 or above 2³².
    pub fn from_numerator(numerator: u64) -> Result<Self, InvalidUnit> {
        if (1..=Self::DENOMINATOR).contains(&numerator) {
            Ok(Self(numerator))
        } else {
            Err(InvalidUnit { name: "sampling rate", expected: "in (0, 1]" })
        }
    }

    /// The representable rate nearest to `rate`.
    ///
    /// # Errors
    /// The rate is not in (0, 1] or rounds to 0.
    pub fn nearest(rate: f64) -> Result<Self, InvalidUnit> {
        if !(rate > 0.0 && rate <= 1.0) {
            return Err(InvalidUnit { name: "sampling rate", expected: "in (0, 1]" });
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 < rate <= 1 keeps the product in range")]
        Self::from_numerator((rate * 4_294_967_296.0).round() as u64)
    }

    /// The integer numerator over 2³².
    #[must_use]
    pub fn numerator(self) -> u64 {
        self.0
    }

    /// The rate as a number; exact, since the numerator has at most 33 bits.
    #[must_use]
    pub fn get(self) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "at most 33 bits")]
        {
            self.0 as f64 / 4_294_967_296.0
        }
    }
}

impl TryFrom<u64> for SamplingRate {
    type Error = InvalidUnit;
    fn try_from(value: u64) -> Result<Self, InvalidUnit> {
        Self::from_numerator(value)
    }
}

impl From<SamplingRate> for u64 {
    fn from(value: SamplingRate) -> u64 {
        value.0
    }
}
/// A bound for people, with so many digits after the point: never below `value`, and above it by less than one in the last place.
#[must_use]
pub fn rounded_up(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    if !value.is_finite() || text.parse::<f64>().is_ok_and(|shown| shown >= value) {
        return text;
    }
    let unit = 10f64.powi(-i32::try_from(digits).unwrap_or(i32::MAX));
    // Rounded to nearest it was below: the next one is above.
    format!("{:.digits$}", value + 0.6 * unit)
}

/// The same for a lower bound: never above `value`, and below it by less than one in the last place.
#[must_use]
pub fn rounded_down(value: f64, digits: usize) -> String {
    rounded_up(-value, digits).trim_start_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::{rounded_down, rounded_up};

    #[test]
    fn a_lower_bound_is_never_shown_larger_than_it_is() {
        for (value, digits, shown) in
            [(2.594_383_9, 6, "2.594383"), (0.0, 4, "0.0000"), (1.0, 2, "1.00"), (0.999_99, 4, "0.9999"), (f64::INFINITY, 2, "inf")]
        {
            assert_eq!(rounded_down(value, digits), shown);
        }
    }

    #[test]
    fn a_bound_is_never_shown_smaller_than_it_is() {
        for (value, digits, shown) in [
            (2.594_383_38, 6, "2.594384"),
            (0.045_142_9, 4, "0.0452"),
            (1.000_000_000_008_9, 6, "1.000001"),
            (0.5, 1, "0.5"),
            (0.0, 4, "0.0000"),
            (0.999_95, 4, "1.0000"),
            (1e-9, 4, "0.0001"),
            (12.0, 0, "12"),
            (f64::INFINITY, 4, "inf"),
        ] {
            assert_eq!(rounded_up(value, digits), shown);
        }
        let mut value = 1e-6_f64;
        while value < 1e6 {
            let shown: f64 = rounded_up(value, 5).parse().unwrap_or(f64::NAN);
            assert!(shown >= value && shown < value + 1.001e-5, "{value}: {shown}");
            value *= 1.0173;
        }
    }
}
