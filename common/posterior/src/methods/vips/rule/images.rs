//! Sigmoid belief networks: the state and its M-step.

use dp_pvi_accounting::ClipNorm;

use super::VipsRule;
use crate::methods::{Clip, ImagesSpec, Setting};
use crate::methods::{Step, VisitSum};
use dp_pvi_models::StatisticsForm;
use dp_pvi_models::sigmoid_belief::shrinkage::Shrinkage;
use dp_pvi_models::sigmoid_belief::{BLOCKS, Network, NetworkError, Priors, Shape, SigmoidBeliefSpec, m_step};
use dp_pvi_privacy::clipping::adaptive::{next_bound, share_within};

/// [λ | shrinkage | running sums, where some damping is below 1 | variance of the noise on a coordinate of the sixth | C].
struct State {
    network: Network,
    shrinkage: Shrinkage,
    running: Vec<f64>,
    variance: f64,
    clip: ClipNorm,
}

/// What a run's rule knows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Images {
    spec: ImagesSpec,
    model: SigmoidBeliefSpec,
    shape: Shape,
    keeps_sums: bool,
}

impl VipsRule {
    /// Network of a state of a sigmoid belief network.
    ///
    /// # Errors
    /// The state is not one of this rule.
    pub fn network(task: &Setting<'_>, state: &[f64]) -> Result<Network, NetworkError> {
        let Some(StatisticsForm::Images(model)) = task.model.rules().statistics() else { return Err(NetworkError::Parameters) };
        let shape = model.shape(task.features).map_err(|_| NetworkError::Size)?;
        Network::from_natural(shape, task.posterior(state))
    }
}

impl Images {
    pub(crate) fn new(task: &Setting<'_>, spec: ImagesSpec) -> Option<Self> {
        let Some(StatisticsForm::Images(model)) = task.model.rules().statistics() else { return None };
        Some(Self { spec, model, shape: model.shape(task.features).ok()?, keeps_sums: spec.keeps_sums(task) })
    }

    fn running_length(&self) -> usize {
        if self.keeps_sums { self.shape.coordinates() } else { 0 }
    }

    pub(crate) fn initial(&self) -> Vec<f64> {
        let (visible, hidden) = (self.shape.visible(), self.shape.hidden());
        let state = State {
            network: Network::start(self.shape, self.model.start_seed.into(), self.model.start_scale),
            shrinkage: Shrinkage::new(visible, hidden),
            running: vec![0.0; self.running_length()],
            variance: 0.0,
            clip: self.spec.clip_norm,
        };
        state.into_vec()
    }

    /// The next state; `noise` is the standard deviation on a coordinate of the sum that arrived.
    pub(crate) fn step(&self, rho: f64, noise: f64, state: &[f64], received: &VisitSum<'_>) -> Option<Step> {
        let State { network, mut shrinkage, running, variance, clip } = self.read(state)?;
        let (released, indicator) = received.sum.split_at_checked(self.shape.coordinates())?;
        if !received.sum.iter().all(|v| v.is_finite()) {
            return None;
        }
        // There is nothing yet that could be kept.
        let rho = if received.visit == 0 || !self.keeps_sums { 1.0 } else { rho };
        let rate = self.spec.sampling_rate.get();
        let scales = self.spec.scales(&self.shape).map(|scale| scale * clip.get() / rate);
        let mut sums = running;
        sums.resize(self.shape.coordinates(), 0.0);
        let mut rest = (sums.as_mut_slice(), released);
        for (length, scale) in self.shape.block_lengths().into_iter().zip(scales) {
            let ((block, later), (new, after)) = (rest.0.split_at_mut(length), rest.1.split_at(length));
            block.iter_mut().zip(new).for_each(|(old, new)| *old += rho * (new * scale - *old));
            rest = (later, after);
        }
        let variance = (1.0 - rho).powi(2) * variance + (rho * noise * scales[BLOCKS - 1]).powi(2);
        let priors = Priors {
            visible_sd: self.model.bias_scale,
            hidden_sd: self.model.bias_scale,
            records: self.spec.images,
            noise_sd: variance.sqrt(),
        };
        let (network, floored) = m_step(&network, &mut shrinkage, &priors, &sums).ok()?;
        let clip = match (self.spec.clip, indicator) {
            (Clip::Fixed {}, []) => clip,
            (Clip::Learned { units, target, rate: step, weight }, [sum]) => {
                next_bound(clip, self.spec.clip_norm, share_within(sum / weight, units * rate), target, step)
            }
            _ => return None,
        };
        sums.truncate(self.running_length());
        let state = State { network, shrinkage, running: sums, variance, clip }.into_vec();
        state.iter().all(|v| v.is_finite()).then_some(Step { state, correction: None, floored })
    }

    fn read(&self, state: &[f64]) -> Option<State> {
        let (visible, hidden) = (self.shape.visible(), self.shape.hidden());
        let parameters = 2 * (visible * hidden + visible + hidden);
        let (natural, rest) = state.split_at_checked(parameters)?;
        let (shrinkage, rest) = rest.split_at_checked(Shrinkage::state_length(visible, hidden))?;
        let (running, rest) = rest.split_at_checked(self.running_length())?;
        let &[variance, clip] = rest else { return None };
        Some(State {
            network: Network::from_natural(self.shape, natural).ok()?,
            shrinkage: Shrinkage::from_state(visible, hidden, shrinkage)?,
            running: running.to_vec(),
            variance,
            clip: ClipNorm::new(clip).ok()?,
        })
    }
}

impl State {
    fn into_vec(self) -> Vec<f64> {
        let mut state = self.network.natural();
        state.extend(self.shrinkage.to_state());
        state.extend(self.running);
        state.extend([self.variance, self.clip.get()]);
        state
    }
}
