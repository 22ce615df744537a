//! `pbp`: one record through a network, forward and back, and one refinement of a prior factor.

use dp_pvi_inference::capabilities::tilted::{Scratch, Sites};
use dp_pvi_inference::models::pbp_network::NetworkSites;
use dp_pvi_inference::records::RecordView;
use dp_pvi_models::pbp_network::noise::log_normalisers;
use dp_pvi_models::pbp_network::{Activations, Network, Posterior, Site, refine_site};

use super::read::{FIXED_POINT, Node, Outcome, message};

/// Everything that the key gives: a network of one hidden layer or more, W1, W2, … with means and variances.
struct Problem {
    network: Network,
    posterior: Posterior,
    x: Vec<f64>,
    indices: Vec<u32>,
    y: f64,
}

impl Problem {
    fn read(root: &Node<'_>) -> Result<Self, String> {
        let x = root.at("x")?;
        let (mut mean, mut variance, mut units) = (Vec::new(), Vec::new(), Vec::new());
        let mut layer = 1;
        while let Ok(weights) = root.get(&format!("W{layer}_mean")) {
            units.push(weights.rows()?.len());
            mean.extend(weights.numbers()?);
            variance.extend(root.at(&format!("W{layer}_var"))?);
            layer += 1;
        }
        let hidden = units.split_last().map_or(&[][..], |(_, hidden)| hidden);
        let network = Network::new(x.len(), hidden).map_err(message)?;
        let posterior = Posterior { mean, variance, shape: root.get("noise_shape")?.number()?, rate: root.get("noise_rate")?.number()? };
        let indices = (0..u32::try_from(x.len()).map_err(message)?).collect();
        if posterior.mean.len() != network.weights() || posterior.variance.len() != network.weights() {
            return Err("the weights are not those of a network with one output".into());
        }
        Ok(Self { network, posterior, indices, y: root.get("y")?.number()?, x })
    }

    fn record(&self) -> RecordView<'_> {
        RecordView { indices: &self.indices, values: &self.x, target: self.y, offset: 0.0, extra: Default::default() }
    }

    fn activations(&self) -> Activations {
        let mut activations = Activations::new(&self.network);
        activations.set_input(self.record().entries());
        activations.forward(&self.network, &self.posterior.mean, &self.posterior.variance);
        activations
    }

    fn sites(&self) -> Result<NetworkSites, String> {
        NetworkSites::at(self.network.clone(), &self.posterior.natural()).ok_or_else(|| "the posterior is not a cavity".into())
    }
}

pub(crate) fn forward(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    let activations = problem.activations();
    let sums = activations.sums();
    node.key_equals("hidden_pre_mean", sums.iter().map(|s| s[0]).collect::<Vec<_>>(), FIXED_POINT)?;
    node.key_equals("hidden_pre_var", sums.iter().map(|s| s[1]).collect::<Vec<_>>(), FIXED_POINT)?;
    // Inputs of the layers above, without the constant.
    let hidden = 1..problem.network.layers().len();
    let inputs = |of: &dyn Fn(usize) -> Vec<f64>| {
        hidden.clone().flat_map(|l| of(l)[..problem.network.layers()[l].inputs].to_vec()).collect::<Vec<_>>()
    };
    node.key_equals("hidden_mean", inputs(&|l| activations.input_means(l).to_vec()), FIXED_POINT)?;
    node.key_equals("hidden_var", inputs(&|l| activations.input_variances(l).to_vec()), FIXED_POINT)?;
    node.key_equals("out_mean", [activations.output()[0]], FIXED_POINT)?;
    node.key_equals("out_var", [activations.output()[1]], FIXED_POINT)
}

pub(crate) fn log_z(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    let Posterior { shape, rate, .. } = problem.posterior;
    node.equals(log_normalisers(problem.y, problem.activations().output(), shape, rate), FIXED_POINT)
}

pub(crate) fn by_mean(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    node.equals(problem.sites()?.gradients(problem.record()).0, FIXED_POINT)
}

pub(crate) fn by_variance(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    node.equals(problem.sites()?.gradients(problem.record()).1, FIXED_POINT)
}

/// Cavity plus site.
pub(crate) fn new(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    let mut lambda = problem.posterior.natural();
    let mut site = vec![0.0; lambda.len()];
    if !problem.sites()?.site(problem.record(), &mut Scratch::default(), &mut site) {
        return Err("the record has no site".into());
    }
    lambda.iter_mut().zip(&site).for_each(|(l, s)| *l += s);
    let updated = Posterior::from_natural(&problem.network, &lambda).map_err(message)?;
    for (l, layer) in problem.network.layers().iter().enumerate() {
        node.key_equals(&format!("W{}_mean", l + 1), &updated.mean[layer.weights()], FIXED_POINT)?;
        node.key_equals(&format!("W{}_var", l + 1), &updated.variance[layer.weights()], FIXED_POINT)?;
    }
    node.key_equals("noise_shape", [updated.shape], FIXED_POINT)?;
    node.key_equals("noise_rate", [updated.rate], FIXED_POINT)
}

pub(crate) fn prior_refinement(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    let input = node.get("inp")?;
    let read = |key: &str| input.get(key)?.number();
    let site =
        Site { h: read("site_h")?, precision: read("site_prec")?, shape: read("site_shape")?, negative_rate: read("site_rate_neg")? };
    let refined = refine_site(read("m")?, read("v")?, read("prior_shape")?, read("prior_rate")?, site).ok_or("the factor has no cavity")?;
    let results = [
        ("m", refined.mean),
        ("v", refined.variance),
        ("site_h", refined.site.h),
        ("site_prec", refined.site.precision),
        ("site_shape", refined.site.shape),
        ("site_nat_rate", refined.site.negative_rate),
        ("prior_shape", refined.shape),
        ("prior_rate", refined.rate),
    ];
    results.into_iter().try_for_each(|(key, value)| node.key_equals(key, [value], FIXED_POINT))
}
