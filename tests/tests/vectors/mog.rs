//! `mog`: the mixture of Gaussians with known variance, q factorised over components and coordinates.

use dp_pvi_inference::methods::propagation::{Factors, Shared};
use dp_pvi_inference::models::gaussian_mixture::{GaussianMixture, MixtureSites};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_models::gaussian_mixture::{Components, Covariance, MixtureShape};

use super::read::{CLOSED_FORM, FIXED_POINT, Node, Outcome, message};

const SWEEPS: u32 = 50_000;
/// A pass that changes less ends the iteration.
const STILL: f64 = 1e-13;

struct Problem {
    model: GaussianMixture,
    prior: Vec<f64>,
    points: Vec<Vec<f64>>,
    table: RecordTable,
}

impl Problem {
    fn read(root: &Node<'_>) -> Result<Self, String> {
        let (points, means) = (root.get("x")?.rows()?, root.get("prior_mean")?.rows()?);
        let dimension = means.first().map_or(0, Vec::len);
        let shape = MixtureShape { components: means.len(), dimension, covariance: Covariance::Diagonal };
        let mut builder = RecordTable::builder(dimension);
        let indices: Vec<u32> = (0..u32::try_from(dimension).map_err(message)?).collect();
        for x in &points {
            builder.start_unit();
            builder.push(&indices, x, 0.0).map_err(message)?;
        }
        let prior = shape.isotropic(&means.concat(), 1.0);
        Ok(Self { model: GaussianMixture { shape, variance: root.get("s2")?.number()? }, prior, points, table: builder.finish() })
    }

    fn moments_equal(&self, node: &Node<'_>, components: &Components, tolerance: f64) -> Outcome {
        let means: Vec<f64> = components.parts.iter().flat_map(|(m, _)| m.iter().copied()).collect();
        let variances: Vec<f64> = components.parts.iter().flat_map(|(_, v)| v.diagonal().iter().copied().collect::<Vec<_>>()).collect();
        node.key_equals("mean", means, tolerance)?;
        node.key_equals("var", variances, tolerance)
    }

    fn posterior_equals(&self, node: &Node<'_>, lambda: &[f64]) -> Outcome {
        self.moments_equal(node, &Components::from_natural(self.model.shape, lambda).map_err(message)?, FIXED_POINT)
    }
}

pub(crate) fn one_step(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    let sites = MixtureSites::at(problem.model, &problem.prior).ok_or("the prior is not a cavity")?;
    let first = problem.points.first().ok_or("there is no point")?;
    let tilted = sites.tilted(first).ok_or("the first point has no tilted distribution")?;
    node.key_equals("logZ", [tilted.log_normaliser], CLOSED_FORM)?;
    node.key_equals("resp", &tilted.responsibilities, CLOSED_FORM)?;
    problem.moments_equal(node, &tilted.components, CLOSED_FORM)
}

pub(crate) fn ep_fixed_point(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    let len = problem.prior.len();
    let mut ep = Factors::new(&problem.model, &problem.prior, &vec![0.0; len], problem.points.len());
    let passes = (0..SWEEPS).find(|_| ep.pass(problem.table.records(), 0.3).change < STILL);
    passes.ok_or("expectation propagation does not come to rest")?;
    problem.posterior_equals(node, &ep.lambda)?;
    let means = problem.model.shape.means();
    let sites: Vec<&[f64]> = (0..problem.points.len()).map(|n| ep.factor(n)).collect();
    node.key_equals("site_h", sites.iter().map(|s| &s[..means]).collect::<Vec<_>>().concat(), FIXED_POINT)?;
    node.key_equals("site_prec", sites.iter().map(|s| &s[means..]).collect::<Vec<_>>().concat(), FIXED_POINT)
}

pub(crate) fn sep_fixed_point(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    #[allow(clippy::cast_precision_loss, reason = "a number of records")]
    let mut sep = Shared::new(&problem.model, problem.prior.clone(), problem.prior.clone(), problem.points.len() as f64);
    let rounds = (0..SWEEPS).find(|_| sep.batch(problem.table.records(), 0.2).change < STILL);
    rounds.ok_or("the shared factor does not come to rest")?;
    problem.posterior_equals(node, &sep.lambda)?;
    let (factor, means) = (sep.factor(), problem.model.shape.means());
    node.key_equals("f_h", &factor[..means], FIXED_POINT)?;
    node.key_equals("f_prec", &factor[means..], FIXED_POINT)
}
