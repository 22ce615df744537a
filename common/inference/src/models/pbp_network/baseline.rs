//! What expectation propagation is compared with, for the same network and priors: mean-field variational inference and a point estimate.
//!
//! Both climb by Adam over minibatches. Nothing here is private; it serves reproductions and tests.
//!
//! * [`Objective::Variational`]: the bound Σ E_q ln N(y; f, 1/γ) − KL over means and log standard deviations of all weights. The moments of f are those that
//!   [`Activations`](dp_pvi_models::pbp_network::Activations) propagate, so that no samples are drawn: E (y − f)² = (y − m)² + v. q(γ) and q(λ_w) are
//!   Gammas, set to their optima after every pass: a = 6 + N/2, b = 6 + ½ΣE(y − f)², and a = 6 + W/2, b = 6 + ½Σ(m² + v).
//! * [`Objective::Point`]: certain weights with the prior N(0, 1), and γ at its posterior given them: what "the usual stochastic gradient descent" fits.

use dp_pvi_math::optim::Adam;
use dp_pvi_models::pbp_network::{HYPERPRIOR, Network, Posterior};
use dp_pvi_posterior::methods::NOISE_PRIOR;

use super::{backward, forward};
use dp_pvi_records::RecordView;

/// What is climbed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Objective {
    /// The evidence lower bound.
    Variational,
    /// The joint density at certain weights.
    Point,
}

/// Numbers of a fit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fit {
    /// What is climbed.
    pub objective: Objective,
    /// Passes over the records.
    pub passes: u32,
    /// Records of a step.
    pub batch: usize,
    /// Adam's step at the first pass; it falls geometrically to a fiftieth at the last.
    pub rate: f64,
}

/// Standard deviation of weights at which variational inference begins.
const START_SD: f64 = 0.05;
/// Variance of a certain weight: above 0, so that a rectified unit has derivatives.
const CERTAIN: f64 = 1e-12;

/// Fits from `means`; `shuffle` puts the positions of the records in another order before every pass.
///
/// # Panics
/// `means` are not as many as the network has weights.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "numbers of records and weights are far below 2^52")]
pub fn fit(network: &Network, records: &[RecordView<'_>], means: &[f64], fit: Fit, mut shuffle: impl FnMut(&mut [usize])) -> Posterior {
    let weights = network.weights();
    assert_eq!(means.len(), weights, "means of another network");
    let variational = fit.objective == Objective::Variational;
    // Means, and log standard deviations.
    let mut parameters = [means, &vec![START_SD.ln(); weights]].concat();
    let mut adam = Adam::new(2 * weights);
    let mut gradient = vec![0.0; 2 * weights];
    let (n, count) = (records.len() as f64, weights as f64);
    let start = if variational { START_SD * START_SD } else { CERTAIN };
    let mut q = Posterior { mean: means.to_vec(), variance: vec![start; weights], shape: NOISE_PRIOR.0, rate: NOISE_PRIOR.1 };
    let mut weight_precision = HYPERPRIOR.0 / HYPERPRIOR.1;
    let mut order: Vec<usize> = (0..records.len()).collect();
    let (mut memory, mut scratch) = (None, Vec::new());
    for pass in 0..fit.passes {
        shuffle(&mut order);
        let progress = f64::from(pass) / f64::from(fit.passes.max(2) - 1);
        let rate = fit.rate * 50_f64.powf(-progress);
        let mut squares = 0.0;
        for batch in order.chunks(fit.batch.max(1)) {
            gradient.fill(0.0);
            let precision = q.shape / q.rate;
            for &position in batch {
                let record = records[position];
                let activations = forward(network, &q, record, &mut memory);
                let [mean, variance] = activations.output();
                let error = record.target - mean;
                squares += error * error + variance;
                // Of −E ln N(y; f, 1/γ).
                let top = [-precision * error, if variational { 0.5 * precision } else { 0.0 }];
                let (by_mean, by_scale) = gradient.split_at_mut(weights);
                backward(network, &q, activations, top, &mut scratch, |i, g, w| {
                    by_mean[i] += g;
                    by_scale[i] += w;
                });
            }
            // The sum over all records, and the prior's share.
            let share = n / batch.len() as f64;
            for i in 0..weights {
                let (m, v) = (q.mean[i], q.variance[i]);
                gradient[i] = share * gradient[i] + weight_precision * m;
                let by_scale = 2.0 * v * share * gradient[weights + i] + weight_precision * v - 1.0;
                gradient[weights + i] = if variational { by_scale } else { 0.0 };
            }
            adam.step(&mut parameters, &gradient, rate);
            q.mean.copy_from_slice(&parameters[..weights]);
            if variational {
                q.variance.iter_mut().zip(&parameters[weights..]).for_each(|(v, log)| *v = (2.0 * log).exp());
            }
        }
        (q.shape, q.rate) = (NOISE_PRIOR.0 + 0.5 * n, NOISE_PRIOR.1 + 0.5 * squares);
        if variational {
            let second: f64 = q.mean.iter().zip(&q.variance).map(|(m, v)| m * m + v).sum();
            weight_precision = (HYPERPRIOR.0 + 0.5 * count) / (HYPERPRIOR.1 + 0.5 * second);
        }
    }
    q
}
