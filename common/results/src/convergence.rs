//! Convergence of a run: the distance of its own posterior from the one to which its released sums extrapolate.

use dp_pvi_math::expfam::any::Gaussian;
use serde::{Deserialize, Serialize};

use dp_pvi_posterior::methods::noise_aware::{Absent, History};
use dp_pvi_posterior::noise_aware;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_protocol::early_end::LEAST_NOISE_SHARE;
use dp_pvi_protocol::summary::{Coefficient, coefficients};

/// Distance, in standard deviations of the noise-aware posterior, up to which a run counts as converged. Noise alone moves the plain mean by about one.
const CONVERGED: f64 = 2.0;

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
    /// Share of the intervals' extra width that is noise; the rest is what is not known of the way that was left. Where what lies ahead of the run outweighs records and
    /// noise together, their share in the whole width. Absent if the update does not separate the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise_share: Option<f64>,
}

/// Whether a run has converged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Plain and noise-aware posterior lie together.
    Converged,
    /// They do not; the noise-aware posterior is where the released sums extrapolate to.
    Extrapolated,
    /// The released sums were taken too far away for a good extrapolation, and the intervals are wide for that reason.
    NotConverged,
}

impl Verdict {
    fn of(distances: &[f64], noise_share: Option<f64>) -> Self {
        if noise_share.is_some_and(|share| share < LEAST_NOISE_SHARE) {
            Self::NotConverged
        } else if distances.iter().all(|distance| *distance <= CONVERGED) {
            Self::Converged
        } else {
            Self::Extrapolated
        }
    }
}

/// Root of the mean of the squares.
#[allow(clippy::cast_precision_loss, reason = "a number of coefficients")]
fn overall(distances: &[f64]) -> f64 {
    (distances.iter().map(|z| z * z).sum::<f64>() / distances.len().max(1) as f64).sqrt()
}

impl Convergence {
    /// How far a run with this public history is, after its last closed round.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn of_run(task: &ResolvedTask, history: &History) -> Result<Self, Absent> {
        let aware = noise_aware::of_run(task, history)?;
        let state = &history.rounds.last().ok_or(Absent::NoRound)?.state;
        // A task that was read has names.
        let names = task.parameter_names().map_err(|_| Absent::Unknown)?;
        let of = |natural: Vec<f64>| -> Result<Vec<Coefficient>, Absent> {
            Gaussian::from_natural(task.family(), natural).map(|q| coefficients(&names, q.standard())).map_err(|_| Absent::Diverged)
        };
        Ok(Self::new(&of(task.posterior(state).to_vec())?, &of(aware.natural_parameters)?, aware.noise_share))
    }

    /// Compares two posteriors with the same coefficients.
    pub(crate) fn new(plain: &[Coefficient], aware: &[Coefficient], noise_share: Option<f64>) -> Self {
        let distances: Vec<f64> = plain.iter().zip(aware).map(|(plain, aware)| (plain.mean - aware.mean).abs() / aware.sd).collect();
        let (verdict, overall) = (Verdict::of(&distances, noise_share), overall(&distances));
        Self { verdict, distances, overall, noise_share }
    }

    /// Whether this is the comparison of these two posteriors, up to the rounding of different machines. `noise_share` is taken as it is stated: the
    /// two posteriors do not tell it.
    pub(crate) fn compares(&self, plain: &[Coefficient], aware: &[Coefficient]) -> bool {
        let expected = Self::new(plain, aware, self.noise_share);
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (1.0 + b.abs());
        self.noise_share.is_none_or(|share| (0.0..=1.0 + 1e-9).contains(&share))
            && self.distances.len() == expected.distances.len()
            && self.distances.iter().zip(&expected.distances).all(|(a, b)| close(*a, *b))
            && close(self.overall, expected.overall)
            // By the stated distances: one that lies on the border may round to either side.
            && self.verdict == Verdict::of(&self.distances, self.noise_share)
    }

    /// The verdict as a sentence; `names` are those of the coefficients.
    #[must_use]
    pub fn sentence<'a>(&self, names: impl Iterator<Item = &'a str>) -> String {
        let farthest = names.zip(&self.distances).max_by(|a, b| a.1.total_cmp(b.1));
        let (name, distance) = farthest.map_or(("", 0.0), |(name, distance)| (name, *distance));
        match self.verdict {
            Verdict::Converged => {
                format!(
                    "The run converged: its own posterior is at most {distance:.1} standard deviations ({name}) from where the released sums place it."
                )
            }
            Verdict::Extrapolated => format!(
                "The run had not converged, or noise threw it off: its own posterior is {distance:.1} standard deviations ({name}) from where the released sums place it. \
                 The posterior that is shown stands there. More rounds bring the two together."
            ),
            Verdict::NotConverged => format!(
                "The run had not converged: its released sums were taken too far away to say well where it leads, and the intervals are wide for \
                 that reason more than for the noise. Run it with more rounds. (Largest distance: {distance:.1} standard deviations, {name}.)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Convergence, Verdict};
    use dp_pvi_models::prediction::Level;
    use dp_pvi_protocol::summary::Coefficient;

    fn coefficient(mean: f64, sd: f64) -> Coefficient {
        let (interval_90, interval_95) = (Level::P90.interval(mean, sd), Level::P95.interval(mean, sd));
        Coefficient { name: format!("x{mean}"), mean, sd, interval_90, interval_95 }
    }

    #[test]
    fn the_verdict_follows_the_farthest_coefficient_and_the_share_of_noise() {
        let aware = [coefficient(0.0, 0.5), coefficient(1.0, 0.1)];
        let at = |second: f64, share| Convergence::new(&[coefficient(0.1, 0.2), coefficient(second, 0.05)], &aware, share);
        let near = at(1.1, None);
        assert_eq!(near.verdict, Verdict::Converged);
        assert!((near.distances[0] - 0.2).abs() < 1e-12 && (near.distances[1] - 1.0).abs() < 1e-9);
        assert!((near.overall - (0.52_f64).sqrt()).abs() < 1e-9);
        let far = at(1.4, Some(0.9));
        assert_eq!(far.verdict, Verdict::Extrapolated);
        assert!(far.sentence(["age", "rare"].into_iter()).contains("4.0 standard deviations (rare)"));
        assert_eq!(at(1.1, Some(0.3)).verdict, Verdict::NotConverged);
    }

    #[test]
    fn a_comparison_is_that_of_its_posteriors() {
        let (plain, aware) = ([coefficient(0.1, 0.2), coefficient(1.4, 0.05)], [coefficient(0.0, 0.5), coefficient(1.0, 0.1)]);
        let right = Convergence::new(&plain, &aware, Some(0.7));
        assert!(right.compares(&plain, &aware));
        let wrong = |change: fn(&mut Convergence)| {
            let mut changed = right.clone();
            change(&mut changed);
            !changed.compares(&plain, &aware)
        };
        assert!(wrong(|c| c.verdict = Verdict::Converged));
        assert!(wrong(|c| c.distances[1] = 1.0));
        assert!(wrong(|c| c.distances.truncate(1)));
        assert!(wrong(|c| c.distances[0] = f64::NAN));
        assert!(wrong(|c| c.overall = 0.1));
        assert!(wrong(|c| c.noise_share = Some(0.4)), "a verdict that the share contradicts");
        assert!(wrong(|c| c.noise_share = Some(1.5)));
        assert!(!right.compares(&aware, &aware));
    }
}
