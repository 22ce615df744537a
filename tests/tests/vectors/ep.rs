//! `ep`: fixed points of expectation propagation and of its shared-factor form, and the derivatives of one-dimensional normalisers.

use dp_pvi_inference::capabilities::tilted::{MomentMatching, PredictorMatching, rank_one};
use dp_pvi_inference::methods::propagation::{Factors, Shared};
use dp_pvi_inference::records::RecordTable;
use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_models::logistic_regression::LogisticRegression;
use dp_pvi_models::predictor::TiltedPredictor;
use dp_pvi_models::probit_regression::ProbitRegression;

use super::read::{CLOSED_FORM, FIXED_POINT, Node, Outcome, message};

const SWEEPS: u32 = 20_000;
/// A pass that changes less ends the iteration.
const STILL: f64 = 1e-13;

/// The data of `logreg` with prior N(0, I).
struct Problem {
    rows: Vec<Vec<f64>>,
    table: RecordTable,
}

impl Problem {
    /// `ep` has no data of its own: it uses X and y of `logreg`, unless the file gives them.
    fn read(root: &Node<'_>) -> Result<Self, String> {
        let data = if root.get("X").is_ok() { root.clone() } else { root.top("logreg")? };
        let (rows, targets) = (data.get("X")?.rows()?, data.at("y")?);
        let dimension = rows.first().map_or(0, Vec::len);
        let mut builder = RecordTable::builder(dimension);
        for (row, y) in rows.iter().zip(&targets) {
            builder.start_unit();
            let indices: Vec<u32> = (0..u32::try_from(dimension).map_err(message)?).collect();
            builder.push(&indices, row, if *y > 0.0 { 1.0 } else { 0.0 }).map_err(message)?;
        }
        Ok(Self { rows, table: builder.finish() })
    }

    fn family(&self, full: bool) -> Family {
        let dimension = self.table.dimension();
        if full { Family::FullGaussian { dimension } } else { Family::DiagonalGaussian { dimension } }
    }
}

/// EP to its fixed point: factors begin at zero.
fn fixed_point(problem: &Problem, model: &dyn MomentMatching, family: Family, damping: f64) -> Result<(Factors, Gaussian), String> {
    let mut ep = Factors::new(model, &family.isotropic(0.0, 1.0), &vec![0.0; family.len()], problem.rows.len());
    for _ in 0..SWEEPS {
        if ep.pass(problem.table.records(), damping).change < STILL {
            let q = Gaussian::from_natural(family, ep.lambda.clone()).map_err(message)?;
            return Ok((ep, q));
        }
    }
    Err("expectation propagation does not come to rest".into())
}

fn full(root: &Node<'_>, node: &Node<'_>, model: impl TiltedPredictor + Clone + 'static) -> Outcome {
    let problem = Problem::read(root)?;
    let family = problem.family(true);
    let (ep, q) = fixed_point(&problem, &PredictorMatching { model, family }, family, 1.0)?;
    let Standard::Full(standard) = q.standard() else { return Err("not a full covariance".into()) };
    node.key_equals("mean", standard.mean().as_slice(), FIXED_POINT)?;
    node.key_equals("cov", standard.covariance().as_slice(), FIXED_POINT)?;
    let sites: Vec<(f64, f64)> = problem.rows.iter().enumerate().map(|(n, x)| rank_one(ep.factor(n), x)).collect();
    node.key_equals("tau", sites.iter().map(|s| s.0).collect::<Vec<_>>(), FIXED_POINT)?;
    node.key_equals("nu", sites.iter().map(|s| s.1).collect::<Vec<_>>(), FIXED_POINT)
}

pub(crate) fn probit_full(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    full(root, node, ProbitRegression {})
}

pub(crate) fn logit_full(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    full(root, node, LogisticRegression {})
}

pub(crate) fn probit_mean_field(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    let family = problem.family(false);
    let (_, q) = fixed_point(&problem, &PredictorMatching { model: ProbitRegression {}, family }, family, 0.5)?;
    node.key_equals("mean", q.standard().mean(), FIXED_POINT)?;
    node.key_equals("var", q.standard().variances(), FIXED_POINT)
}

pub(crate) fn probit_sep(root: &Node<'_>, node: &Node<'_>) -> Outcome {
    let problem = Problem::read(root)?;
    let family = problem.family(false);
    let prior = family.isotropic(0.0, 1.0);
    #[allow(clippy::cast_precision_loss, reason = "a number of records")]
    let mut sep = Shared::new(&PredictorMatching { model: ProbitRegression {}, family }, prior.clone(), prior, problem.rows.len() as f64);
    let rounds = (0..SWEEPS).find(|_| sep.batch(problem.table.records(), 0.2).change < STILL);
    rounds.ok_or("the shared factor does not come to rest")?;
    let q = Gaussian::from_natural(family, sep.lambda.clone()).map_err(message)?;
    node.key_equals("mean", q.standard().mean(), FIXED_POINT)?;
    node.key_equals("var", q.standard().variances(), FIXED_POINT)?;
    let factor = sep.factor();
    node.key_equals("f_h", &factor[..family.dimension()], FIXED_POINT)?;
    node.key_equals("f_prec", &factor[family.dimension()..], FIXED_POINT)
}

pub(crate) fn tilted_examples(_: &Node<'_>, node: &Node<'_>) -> Outcome {
    for example in node.list()? {
        let (a, s2, y) = (example.get("a")?.number()?, example.get("s2")?.number()?, example.get("y")?.number()?);
        for (key, tilted) in [("probit", ProbitRegression {}.tilted(a, s2, y)), ("logit", LogisticRegression {}.tilted(a, s2, y))] {
            example.key_equals(key, [tilted.log_normaliser, tilted.slope, tilted.curvature], CLOSED_FORM)?;
        }
    }
    Ok(())
}
