//! Topic models: the state and its M-step.

use dp_pvi_accounting::ClipNorm;

use crate::methods::{Clip, Counts, DocumentsSpec, Setting};
use crate::methods::{Step, VisitSum};
use dp_pvi_models::StatisticsForm;
use dp_pvi_models::latent_dirichlet::denoise::{NoisedTotals, expected_counts, word_shares};
use dp_pvi_models::latent_dirichlet::{Shape, Topics};
use dp_pvi_privacy::clipping::adaptive::{next_bound, share_within};

/// What a run's rule knows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Documents {
    spec: DocumentsSpec,
    shape: Shape,
}

/// [λ | Dirichlet parameters | totals of words, running counts, variances of the noise on a total and on a count | C]; the middle part
/// where counts are expectations.
struct State {
    topics: Topics,
    noised: Option<Noised>,
    clip: ClipNorm,
}

/// Released sums, as they are.
struct Noised {
    words: Vec<f64>,
    counts: Vec<f64>,
    /// Variances of the noise on an entry of either.
    variances: [f64; 2],
}

impl Documents {
    pub(crate) fn new(task: &Setting<'_>, spec: DocumentsSpec) -> Option<Self> {
        let Some(StatisticsForm::Documents(model)) = task.model.rules().statistics() else { return None };
        Some(Self { spec, shape: model.shape(task.features).ok()? })
    }

    pub(crate) fn initial(&self) -> Option<Vec<f64>> {
        #[allow(clippy::cast_precision_loss, reason = "below 2^32")]
        let mass = self.shape.coordinates() as f64;
        let topics = Topics::new(self.shape, self.shape.start(self.spec.start_seed, mass)).ok()?;
        let nothing =
            || Noised { words: vec![0.0; self.shape.words()], counts: vec![0.0; self.shape.coordinates()], variances: [0.0, 0.0] };
        let noised = matches!(self.spec.counts, Counts::Expected { .. }).then(nothing);
        State { topics, noised, clip: self.spec.clip_norm }.into_vec()
    }

    /// The next state; `noise` is the standard deviation on a coordinate of the sum that arrived, `scales` are those of its blocks.
    pub(crate) fn step(&self, rho: f64, noise: f64, scales: &[f64], state: &[f64], received: &VisitSum<'_>) -> Option<Step> {
        let State { topics, noised, clip } = self.read(state)?;
        let rate = self.spec.sampling_rate.get();
        let unit = clip.get() / rate;
        let words = if scales.len() > 1 { self.shape.words() } else { 0 };
        let (words, rest) = received.sum.split_at_checked(words)?;
        let (counts, indicator) = rest.split_at_checked(self.shape.coordinates())?;
        if !received.sum.iter().all(|v| v.is_finite()) {
            return None;
        }
        let scale = unit * scales.last()?;
        let floored = counts.iter().filter(|s| **s < 0.0).count();
        let (lambda, noised) = match noised {
            None => {
                let counts: Vec<f64> = counts.iter().map(|s| s * scale).collect();
                (self.shape.m_step(topics.lambda(), rho, &counts), None)
            }
            Some(mut noised) => {
                if !words.is_empty() {
                    let scale = unit * scales.first()?;
                    noised.words = words.iter().map(|s| s * scale).collect();
                    noised.variances[0] = (noise * scale).powi(2);
                }
                // There is nothing yet that could be kept.
                let rho = if received.visit == 0 { 1.0 } else { rho };
                noised.counts.iter_mut().zip(counts).for_each(|(old, new)| *old += rho * (new * scale - *old));
                noised.variances[1] = (1.0 - rho).powi(2) * noised.variances[1] + (rho * noise * scale).powi(2);
                let [word_sd, count_sd] = noised.variances.map(f64::sqrt);
                let shares = word_shares(NoisedTotals { totals: &noised.words, noise_sd: word_sd });
                let expected = expected_counts(&self.shape, &noised.counts, count_sd, &shares);
                (expected.iter().map(|s| self.shape.eta() + s).collect(), Some(noised))
            }
        };
        let clip = match (self.spec.clip, indicator) {
            (Clip::Fixed {}, []) => clip,
            (Clip::Learned { units, target, rate: step, weight }, [sum]) => {
                next_bound(clip, self.spec.clip_norm, share_within(sum / weight, units * rate), target, step)
            }
            _ => return None,
        };
        let topics = Topics::new(self.shape, lambda).ok()?;
        Some(Step { state: State { topics, noised, clip }.into_vec()?, correction: None, floored })
    }

    fn read(&self, state: &[f64]) -> Option<State> {
        let (cells, words) = (self.shape.coordinates(), self.shape.words());
        let (_, rest) = state.split_at_checked(2 * cells)?;
        let (lambda, rest) = rest.split_at_checked(cells)?;
        let (&clip, rest) = rest.split_last()?;
        let noised = match self.spec.counts {
            Counts::Clamped {} => None,
            Counts::Expected { .. } => {
                let (totals, rest) = rest.split_at_checked(words)?;
                let (counts, &[one, two]) = rest.split_at_checked(cells)? else { return None };
                Some(Noised { words: totals.to_vec(), counts: counts.to_vec(), variances: [one, two] })
            }
        };
        Some(State { topics: Topics::new(self.shape, lambda.to_vec()).ok()?, noised, clip: ClipNorm::new(clip).ok()? })
    }
}

impl State {
    fn into_vec(self) -> Option<Vec<f64>> {
        let moments = self.topics.moments();
        let mut state: Vec<f64> = moments.iter().map(|[mean, variance]| mean / variance).collect();
        state.extend(moments.iter().map(|[_, variance]| 1.0 / variance));
        state.extend(self.topics.lambda());
        if let Some(Noised { words, counts, variances }) = self.noised {
            state.extend(words);
            state.extend(counts);
            state.extend(variances);
        }
        state.push(self.clip.get());
        state.iter().all(|v| v.is_finite()).then_some(state)
    }
}
