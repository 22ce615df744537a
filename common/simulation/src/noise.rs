//! Randomness as a pure function of (seed, number of the run, client, round, step, purpose): independent of the order of calls, so that a run
//! that crashed and went on draws what an undisturbed one draws. The task is no part of it: another wording of a task meets the same noise. It exists for simulation only: the production client cannot
//! name it, because it does not depend on this crate.

use chacha20::ChaCha20Rng;
use chacha20::rand_core::SeedableRng;
use dp_pvi_names::{Hash, ReleaseId};
use dp_pvi_privacy::noise::NoRandomness;
use dp_pvi_privacy::{NoiseSource, Purpose};
use dp_pvi_unsealed::Sealed;

/// Seeded noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeededNoise {
    seed: u64,
}

impl SeededNoise {
    /// The source of a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }
}

impl Sealed for SeededNoise {}

impl NoiseSource for SeededNoise {
    type Stream = ChaCha20Rng;

    fn stream(&self, release: &ReleaseId, step: u64, purpose: Purpose) -> Result<ChaCha20Rng, NoRandomness> {
        let purpose: u8 = match purpose {
            Purpose::Coins => 0,
            Purpose::Noise => 1,
            Purpose::Draws => 2,
        };
        let key = Hash::of(
            "dp-pvi simulation noise v2",
            &[
                &self.seed.to_le_bytes(),
                &release.run.number.to_le_bytes(),
                release.client.as_str().as_bytes(),
                &release.round.to_le_bytes(),
                &step.to_le_bytes(),
                &[purpose],
            ],
        );
        Ok(ChaCha20Rng::from_seed(key.0))
    }
}

/// A stream for anything else that a simulation draws (splits, faults, keys), by name and number.
#[must_use]
pub fn stream(seed: u64, purpose: &str, number: u64) -> ChaCha20Rng {
    ChaCha20Rng::from_seed(Hash::of("dp-pvi simulation stream v1", &[&seed.to_le_bytes(), purpose.as_bytes(), &number.to_le_bytes()]).0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use dp_pvi_names::{ClientId, RunId};
    use rand_core::Rng;

    use super::*;

    #[test]
    fn streams_depend_on_every_argument_and_on_nothing_else() {
        let draw = |seed, task, number, client: &str, round, step, purpose| {
            let run = RunId { task: Hash::of("test task", &[&[task]]), number };
            let release = ReleaseId { run, client: ClientId::new(client).unwrap(), round };
            SeededNoise::new(seed).stream(&release, step, purpose).unwrap().next_u64()
        };
        let base = draw(1, 0, 1, "a", 0, 0, Purpose::Noise);
        assert_eq!(base, draw(1, 1, 1, "a", 0, 0, Purpose::Noise), "the task's wording decides no noise");
        for other in [
            draw(2, 0, 1, "a", 0, 0, Purpose::Noise),
            draw(1, 0, 2, "a", 0, 0, Purpose::Noise),
            draw(1, 0, 1, "b", 0, 0, Purpose::Noise),
            draw(1, 0, 1, "a", 1, 0, Purpose::Noise),
            draw(1, 0, 1, "a", 0, 1, Purpose::Noise),
            draw(1, 0, 1, "a", 0, 0, Purpose::Coins),
            draw(1, 0, 1, "a", 0, 0, Purpose::Draws),
        ] {
            assert_ne!(base, other);
        }
    }
}
