//! Whether a run arrived: how far its own posterior is from where its released sums place it.

use serde::{Deserialize, Serialize};

use crate::reading::summary::Coefficient;

/// Distance, in standard deviations of the noise-aware posterior, up to which a run counts as arrived. Noise alone moves the plain mean by about one.
const ARRIVED: f64 = 2.0;

/// Share of noise in the noise-aware posterior's extra width below which the rest of the way decides.
const LEAST_NOISE_SHARE: f64 = 0.5;

/// Distance of a run's own (plain) posterior from its noise-aware one. Computed from released values only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convergence {
    /// What it means.
    pub verdict: Verdict,
    /// |plain mean − mean| / sd of every coefficient, in their order; sd is that of the noise-aware posterior.
    pub distances: Vec<f64>,
    /// Root of the mean of their squares.
    pub overall: f64,
    /// Share of the intervals' extra width that is noise; the rest is what is not known of the way that was left. Absent where the update does
    /// not tell them apart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_share: Option<f64>,
}

/// Whether a run arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Plain and noise-aware posterior lie together.
    Arrived,
    /// They do not; the released sums tell where the run leads, and the noise-aware posterior stands there.
    Carried,
    /// The released sums were taken too far away to tell it well: the intervals are wide for that reason.
    NotArrived,
}

impl Convergence {
    /// Compares two posteriors with the same coefficients.
    pub(crate) fn new(plain: &[Coefficient], aware: &[Coefficient], noise_share: Option<f64>) -> Self {
        let distances: Vec<f64> = plain.iter().zip(aware).map(|(plain, aware)| (plain.mean - aware.mean).abs() / aware.sd).collect();
        #[allow(clippy::cast_precision_loss, reason = "a number of coefficients")]
        let overall = (distances.iter().map(|z| z * z).sum::<f64>() / distances.len().max(1) as f64).sqrt();
        let farthest = distances.iter().copied().fold(0.0, f64::max);
        let verdict = if noise_share.is_some_and(|share| share < LEAST_NOISE_SHARE) {
            Verdict::NotArrived
        } else if farthest <= ARRIVED {
            Verdict::Arrived
        } else {
            Verdict::Carried
        };
        Self { verdict, distances, overall, noise_share }
    }

    /// The verdict as a sentence; `names` are those of the coefficients.
    #[must_use]
    pub fn sentence<'a>(&self, names: impl Iterator<Item = &'a str>) -> String {
        let farthest = names.zip(&self.distances).max_by(|a, b| a.1.total_cmp(b.1));
        let (name, distance) = farthest.map_or(("", 0.0), |(name, distance)| (name, *distance));
        match self.verdict {
            Verdict::Arrived => {
                format!(
                    "The run arrived: its own posterior is at most {distance:.1} standard deviations ({name}) from where the released sums place it."
                )
            }
            Verdict::Carried => format!(
                "The run had not arrived, or noise threw it off: its own posterior is {distance:.1} standard deviations ({name}) from where the released sums place it. \
                 The posterior that is shown stands there. More rounds bring the two together."
            ),
            Verdict::NotArrived => format!(
                "The run had not arrived: its released sums were taken too far away to say well where it leads, and the intervals are wide for \
                 that reason more than for the noise. Run it with more rounds. (Largest distance: {distance:.1} standard deviations, {name}.)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Convergence, Verdict};
    use crate::reading::summary::{Coefficient, Level};

    fn coefficient(mean: f64, sd: f64) -> Coefficient {
        let (interval_90, interval_95) = (Level::P90.interval(mean, sd), Level::P95.interval(mean, sd));
        Coefficient { name: format!("x{mean}"), mean, sd, interval_90, interval_95 }
    }

    #[test]
    fn the_verdict_follows_the_farthest_coefficient_and_the_share_of_noise() {
        let aware = [coefficient(0.0, 0.5), coefficient(1.0, 0.1)];
        let at = |second: f64, share| Convergence::new(&[coefficient(0.1, 0.2), coefficient(second, 0.05)], &aware, share);
        let near = at(1.1, None);
        assert_eq!(near.verdict, Verdict::Arrived);
        assert!((near.distances[0] - 0.2).abs() < 1e-12 && (near.distances[1] - 1.0).abs() < 1e-9);
        assert!((near.overall - (0.52_f64).sqrt()).abs() < 1e-9);
        let far = at(1.4, Some(0.9));
        assert_eq!(far.verdict, Verdict::Carried);
        assert!(far.sentence(["age", "rare"].into_iter()).contains("4.0 standard deviations (rare)"));
        assert_eq!(at(1.1, Some(0.3)).verdict, Verdict::NotArrived);
    }
}
