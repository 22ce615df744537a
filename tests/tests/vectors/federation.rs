//! A federation without wire and without noise: the engine's local optimum at the sites, the server's rule between them.

use dp_pvi_inference::models;
use dp_pvi_inference::records::{RecordTable, RecordView};
use dp_pvi_math::expfam::Factor;
use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_posterior::methods::PviRule;
use dp_pvi_posterior::task::ModelSpec;
use dp_pvi_schema::public::Extra;

use super::read::{Node, Outcome, message};

/// Rows `rows` of X and y, one record a unit.
pub(crate) fn table(x: &[Vec<f64>], y: &[f64]) -> Result<RecordTable, String> {
    table_of(x, y, |_| (0.0, Extra::NONE))
}

/// The same, every record with what `beside` gives for its number: offset, weight and times.
pub(crate) fn table_of(x: &[Vec<f64>], y: &[f64], beside: impl Fn(usize) -> (f64, Extra)) -> Result<RecordTable, String> {
    let mut builder = RecordTable::builder(x.first().map_or(0, Vec::len));
    for (number, (row, &target)) in x.iter().zip(y).enumerate() {
        builder.start_unit();
        let entries = (0_u32..).zip(row).filter(|(_, v)| **v != 0.0);
        let (indices, values): (Vec<u32>, Vec<f64>) = entries.map(|(j, v)| (j, *v)).unzip();
        let (offset, extra) = beside(number);
        builder.push_record(RecordView { indices: &indices, values: &values, target, offset, extra }).map_err(message)?;
    }
    Ok(builder.finish())
}

/// Data, prior and sites of a first-level key.
pub(crate) struct Problem {
    pub(crate) model: ModelSpec,
    pub(crate) family: Family,
    pub(crate) prior: Vec<f64>,
    pub(crate) all: RecordTable,
    pub(crate) sites: Vec<RecordTable>,
}

impl Problem {
    /// Reads `X`, `y` and `client_sizes`.
    pub(crate) fn read(node: &Node<'_>, model: ModelSpec, family: fn(usize) -> Family) -> Result<Self, String> {
        let (x, y) = (node.get("X")?.rows()?, node.at("y")?);
        let d = x.first().map_or(0, Vec::len);
        if x.len() != y.len() || x.iter().any(|row| row.len() != d) {
            return Err("X and y do not belong together".into());
        }
        let family = family(d);
        let mut sites = Vec::new();
        let mut start = 0;
        for size in node.at("client_sizes")? {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of rows")]
            let end = start + size as usize;
            let (rows, targets) = x.get(start..end).zip(y.get(start..end)).ok_or("client_sizes exceed the data")?;
            sites.push(table(rows, targets)?);
            start = end;
        }
        if start != x.len() {
            return Err("client_sizes do not cover the data".into());
        }
        Ok(Self { model, family, prior: family.isotropic(0.0, 1.0), all: table(&x, &y)?, sites })
    }

    /// The engine's argmax of the local bound.
    pub(crate) fn optimum(&self, data: &RecordTable, cavity: &[f64], start: &[f64]) -> Result<Gaussian, String> {
        let gaussian = |natural: &[f64]| Gaussian::from_natural(self.family, natural.to_vec()).map_err(message);
        let model = models::from_spec(&self.model).map_err(message)?;
        let optimum = model.local_optimum().ok_or("the model has no local optimum")?;
        optimum.local_optimum(data, &gaussian(cavity)?, &gaussian(start)?).map_err(message)
    }

    /// The optimum over all data, from the prior.
    pub(crate) fn global_optimum(&self) -> Result<Gaussian, String> {
        self.optimum(&self.all, &self.prior, &self.prior)
    }

    /// Σ E_q log p(record) − KL(q‖prior).
    pub(crate) fn elbo(&self, q: &Gaussian) -> Result<f64, String> {
        let model = models::from_spec(&self.model).map_err(message)?;
        let prior = Gaussian::from_natural(self.family, self.prior.clone()).map_err(message)?;
        Ok(self.all.records().map(|record| model.expected_log_likelihood(record, q)).sum::<f64>() - q.kl(&prior))
    }

    /// The state before the first round.
    pub(crate) fn start(&self, damping: f64) -> Federation<'_> {
        let rule = PviRule::from_parts(self.family, self.prior.clone(), PrecisionFloor::LogConcave, vec![damping]);
        Federation {
            lambda: rule.initial(),
            factors: vec![Factor::zero(self.family); self.sites.len()],
            correction: Factor::zero(self.family),
            rule,
            problem: self,
        }
    }
}

/// λ at the server and λ_m at the sites.
pub(crate) struct Federation<'a> {
    problem: &'a Problem,
    rule: PviRule,
    pub(crate) lambda: Vec<f64>,
    pub(crate) factors: Vec<Factor<Family>>,
    correction: Factor<Family>,
}

impl Federation<'_> {
    /// One server commit with these sites.
    pub(crate) fn round(&mut self, sites: &[usize]) -> Outcome {
        let family = self.problem.family;
        let global = Factor::new(family, self.lambda.clone()).map_err(message)?;
        let mut sum = Factor::zero(family);
        for &site in sites {
            let cavity = global.clone() - &self.factors[site];
            let optimum = self.problem.optimum(&self.problem.sites[site], cavity.natural(), &self.lambda)?;
            let change = optimum.factor().clone() - &global;
            sum += &change;
            self.factors[site] += &change.scale(self.rule.damping(0));
        }
        let step = self.rule.apply(&self.lambda, 0, sum.natural());
        self.lambda = step.state;
        if let Some(correction) = step.correction {
            self.correction += &Factor::new(family, correction).map_err(message)?;
        }
        self.books_balance()
    }

    /// λ = λ0 + Σλ_m + Σr after every round.
    fn books_balance(&self) -> Outcome {
        let mut total = Factor::new(self.problem.family, self.problem.prior.clone()).map_err(message)? + &self.correction;
        self.factors.iter().for_each(|factor| total += factor);
        let size = self.lambda.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
        let error = total.natural().iter().zip(&self.lambda).fold(0.0_f64, |m, (a, b)| m.max((a - b).abs()));
        if error <= 1e-10 * size { Ok(()) } else { Err(format!("lambda is not the prior plus the factors: off by {error:e}")) }
    }

    /// Rounds with one site in turn, or all at once, until λ stands still.
    pub(crate) fn run(&mut self, turns: &[Vec<usize>], sweeps: u32) -> Outcome {
        for _ in 0..sweeps {
            let before = self.lambda.clone();
            for sites in turns {
                self.round(sites)?;
            }
            let size = self.lambda.iter().fold(1.0_f64, |m, v| m.max(v.abs()));
            if before.iter().zip(&self.lambda).all(|(a, b)| (a - b).abs() <= 1e-13 * size) {
                break;
            }
        }
        Ok(())
    }

    /// Every site alone.
    pub(crate) fn in_turn(&self) -> Vec<Vec<usize>> {
        (0..self.factors.len()).map(|site| vec![site]).collect()
    }

    /// All sites at once.
    pub(crate) fn at_once(&self) -> Vec<Vec<usize>> {
        vec![(0..self.factors.len()).collect()]
    }
}

/// Checks a list of factors `{h, prec}` in the family of `federation`.
pub(crate) fn factors_equal(node: &Node<'_>, federation: &Federation<'_>, tolerance: f64) -> Outcome {
    let expected = node.list()?;
    if expected.len() != federation.factors.len() {
        return Err(format!("there are {} sites, the file has {} factors", federation.factors.len(), expected.len()));
    }
    expected
        .iter()
        .zip(&federation.factors)
        .try_for_each(|(expected, factor)| natural_equals(expected, *factor.family(), factor.natural(), tolerance))
}

/// Checks `{h, prec}`; a full precision is written as a matrix.
pub(crate) fn natural_equals(node: &Node<'_>, family: Family, natural: &[f64], tolerance: f64) -> Outcome {
    let (h, precision) = natural.split_at(family.dimension());
    node.key_equals("h", h, tolerance)?;
    match family {
        Family::DiagonalGaussian { .. } => node.key_equals("prec", precision, tolerance),
        Family::FullGaussian { dimension } => {
            node.key_equals("prec", dp_pvi_math::expfam::gaussian::full::unsvec(precision, dimension).as_slice(), tolerance)
        }
    }
}
