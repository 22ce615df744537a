//! A task in words, so that reports need to know no model and no update.

use std::fmt::{Display, Formatter, Result};

use super::{Approximation, ScheduleSpec};

impl Display for Approximation {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        f.write_str(match self {
            Self::MeanField => "mean-field Gaussian",
            Self::FullCovariance => "full-covariance Gaussian",
        })
    }
}

impl Display for ScheduleSpec {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        match self {
            Self::Sequential { sweeps } => write!(f, "sequential, {sweeps} sweeps over the sites"),
            Self::Synchronous { rounds } => write!(f, "synchronous, {rounds} rounds"),
            Self::Asynchronous { sweeps, max_staleness } => {
                write!(f, "asynchronous, at most {sweeps} visits of every site, posteriors at most {max_staleness} rounds old")
            }
        }
    }
}

/// A number to four significant digits.
pub struct Short(pub f64);

impl Display for Short {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        // Scientific notation rounds to significant digits; reading it back gives the shortest form of the rounded number.
        let rounded: f64 = format!("{:.3e}", self.0).parse().unwrap_or(self.0);
        let size = rounded.abs();
        if size == 0.0 || (1e-4..1e6).contains(&size) { write!(f, "{rounded}") } else { write!(f, "{rounded:e}") }
    }
}

#[cfg(test)]
mod tests {
    use super::Short;
    use crate::spec::{Approximation, ScheduleSpec};

    #[test]
    fn tasks_are_described_in_words() {
        assert_eq!(Approximation::FullCovariance.to_string(), "full-covariance Gaussian");
        assert_eq!(ScheduleSpec::Sequential { sweeps: 4 }.to_string(), "sequential, 4 sweeps over the sites");
    }

    #[test]
    fn numbers_have_four_significant_digits() {
        for (number, text) in [(105.238_49, "105.2"), (0.051_191, "0.05119"), (1.0, "1"), (1e-5, "1e-5"), (0.0, "0"), (-2.5, "-2.5")] {
            assert_eq!(Short(number).to_string(), text);
        }
    }
}
