//! Tables of questions: rows as in the reference table. Answers that a row brings along are never read.

use dp_pvi_accounting::calibrate::{self, Target};
use dp_pvi_accounting::comparison::zcdp_epsilon;
use dp_pvi_accounting::unit::{Delta, Epsilon};
use dp_pvi_accounting::{AccountantError, Interval, Mechanism, Neighbours, Phase, Plan, Sampling};
use serde::Serialize;
use serde_json::Value;

/// A row without an answer.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// A field is missing or not what it should be.
    #[error("{0} is missing or not as in the reference table")]
    Field(&'static str),
    /// No bound.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
    /// A number out of range.
    #[error(transparent)]
    Number(#[from] dp_pvi_accounting::unit::InvalidUnit),
    /// Not a table.
    #[error("not a table: neither an object with `rows` nor one JSON object a line ({0})")]
    Table(#[from] serde_json::Error),
}

/// The three fields: numbers, or arrays in the order of the row.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(super) enum Answer {
    /// One number each.
    One(Interval),
    /// One number each for every order.
    Many {
        /// Lower bounds; their distance from the estimates is measured, not proved.
        lower: Vec<f64>,
        /// Estimates.
        estimate: Vec<f64>,
        /// Upper bounds, likewise, and never above the proved ones without sampling.
        upper: Vec<f64>,
    },
}

/// The rows of a file: an object with `rows`, an array, or JSON lines.
///
/// # Errors
/// Neither of them.
pub(super) fn rows(text: &str) -> Result<Vec<Value>, QueryError> {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Object(mut table)) if table.contains_key("rows") => match table.remove("rows") {
            Some(Value::Array(rows)) => Ok(rows),
            _ => Err(QueryError::Field("rows")),
        },
        Ok(Value::Array(rows)) => Ok(rows),
        _ => Ok(text.lines().filter(|line| !line.trim().is_empty()).map(serde_json::from_str).collect::<Result<_, _>>()?),
    }
}

fn number(row: &Value, name: &'static str) -> Result<f64, QueryError> {
    row[name].as_f64().ok_or(QueryError::Field(name))
}

fn steps(row: &Value) -> Result<u64, QueryError> {
    let value = if row["T"].is_null() { &row["steps"] } else { &row["T"] };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number below 2^53")]
    let whole = |v: f64| ((0.0..9e15).contains(&v) && v.fract() == 0.0).then_some(v as u64);
    value.as_u64().or_else(|| value.as_f64().and_then(whole)).ok_or(QueryError::Field("T"))
}

fn relation(row: &Value) -> Result<Neighbours, QueryError> {
    match row["relation"].as_str() {
        Some("add_remove" | "add-remove") => Ok(Neighbours::AddRemove),
        Some("replace_special" | "zero_out" | "zero-out") => Ok(Neighbours::ZeroOut),
        Some("substitute" | "replace_one" | "replace-one") => Ok(Neighbours::ReplaceOne),
        _ => Err(QueryError::Field("relation")),
    }
}

fn sampling(row: &Value, phase: &Value) -> Result<Sampling, QueryError> {
    let rate = || match phase["q"].as_f64() {
        Some(q) => Ok(q),
        None => Ok(number(row, "batch")? / number(row, "n")?),
    };
    match row["sampling"].as_str() {
        Some("none") => Ok(Sampling::None),
        Some("poisson") => rate().map(Sampling::Poisson),
        Some("without_replacement" | "without-replacement") => rate().map(Sampling::WithoutReplacement),
        #[allow(clippy::cast_precision_loss, reason = "passes")]
        Some("shuffled" | "shuffle") => Ok(Sampling::ShuffledPasses((rate()? * steps(phase)? as f64).max(f64::MIN_POSITIVE))),
        _ => Err(QueryError::Field("sampling")),
    }
}

fn phase(row: &Value, part: &Value, mechanism: Mechanism) -> Result<Phase, QueryError> {
    let sampling = sampling(row, part)?;
    if steps(part)? == 0 {
        return Ok(Phase { mechanism, sampling: Sampling::None, steps: 0 });
    }
    let steps = if matches!(sampling, Sampling::ShuffledPasses(_)) { 1 } else { steps(part)? };
    Ok(Phase { mechanism, sampling, steps })
}

fn plan(row: &Value) -> Result<Plan, QueryError> {
    let mut plan = Plan::new(relation(row)?);
    let gaussian = |part: &Value| -> Result<Mechanism, QueryError> { Ok(Mechanism::Gaussian { sigma: number(part, "sigma")? }) };
    match row["mechanism"].as_str() {
        Some("discrete_gaussian") => {
            let sensitivity = row["sensitivity"].as_u64().ok_or(QueryError::Field("sensitivity"))?;
            plan.append(phase(row, row, Mechanism::DiscreteGaussian { scale: number(row, "sigma")?, sensitivity })?)?;
        }
        Some("laplace") => {
            plan.append(phase(row, row, Mechanism::Laplace { scale: number(row, "scale").or_else(|_| number(row, "sigma"))? })?)?
        }
        Some("gaussian" | "subsampled_gaussian" | "subsampled_gaussian_heterogeneous" | "rdp_subsampled_gaussian") => {
            match row["phases"].as_array() {
                Some(phases) => {
                    for part in phases {
                        plan.append(phase(row, part, gaussian(part)?)?)?;
                    }
                }
                None => plan.append(phase(row, row, gaussian(row)?)?)?,
            }
        }
        _ => return Err(QueryError::Field("mechanism")),
    }
    Ok(plan)
}

fn delta(row: &Value) -> Result<Delta, QueryError> {
    Ok(Delta::new(number(row, "delta")?)?)
}

/// Answers one row.
///
/// # Errors
/// The row is refused: a field is missing, a number is out of range, or no bound is known.
pub(super) fn answer(row: &Value) -> Result<Answer, QueryError> {
    match row["query"].as_str() {
        Some("eps") => {
            let (plan, delta) = (plan(row)?, delta(row)?);
            let mut interval = plan.epsilon(delta);
            // Batches of fixed size under replace-one: the interval certifies pair D; what is certain to be lost is less.
            if plan.relation() == Neighbours::ReplaceOne
                && plan.phases().iter().any(|p| matches!(p.sampling, Sampling::WithoutReplacement(_)))
            {
                interval.lower = plan.attained(delta).min(interval.lower);
            }
            Ok(Answer::One(interval))
        }
        Some("delta") => Ok(Answer::One(plan(row)?.delta(Epsilon::new(number(row, "eps")?)?))),
        Some("advantage") => Ok(Answer::One(plan(row)?.advantage())),
        Some("zcdp_to_eps") => {
            let (rho, delta) = (number(row, "rho")?, delta(row)?);
            let upper = zcdp_epsilon(rho, delta)?;
            // The conversion is a bound; what a zCDP mechanism really loses may be nothing.
            Ok(Answer::One(Interval { lower: 0.0, estimate: upper, upper }))
        }
        Some("rdp") => {
            let plan = plan(row)?;
            let orders = row["orders"].as_array().ok_or(QueryError::Field("orders"))?;
            let mut bounds = Vec::with_capacity(orders.len());
            for order in orders {
                let order = order.as_f64().filter(|a| *a > 1.0 && *a <= 1e6).ok_or(QueryError::Field("orders"))?;
                bounds.push(plan.renyi(order));
            }
            let field = |f: fn(&Interval) -> f64| bounds.iter().map(f).collect();
            Ok(Answer::Many { lower: field(|b| b.lower), estimate: field(|b| b.estimate), upper: field(|b| b.upper) })
        }
        Some("calibrate_sigma") => {
            let target = Target { epsilon: Epsilon::new(number(row, "eps")?)?, delta: delta(row)? };
            let relation = relation(row)?;
            let with = |sigma: f64| Plan::of(relation, Phase { mechanism: Mechanism::Gaussian { sigma }, ..base(row)? });
            fn base(row: &Value) -> Result<Phase, AccountantError> {
                phase(row, row, Mechanism::Gaussian { sigma: 1.0 })
                    .map_err(|_| AccountantError::Unsupported("a row without sampling, q or T"))
            }
            Ok(Answer::One(calibrate::sigma_of(target, with)?))
        }
        _ => Err(QueryError::Field("query")),
    }
}
