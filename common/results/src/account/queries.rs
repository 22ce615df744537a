//! Tables of questions: rows as in the reference table. Answers that a row brings along are never read.

use dp_pvi_accounting::calibrate::{self, Target};
use dp_pvi_accounting::comparison::zcdp_epsilon;
use dp_pvi_accounting::unit::{Delta, Epsilon};
use dp_pvi_accounting::{AccountantError, Interval, Mechanism, Neighbours, Phase, Plan, Sampling};
use dp_pvi_exchange::unambiguous;
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
    let text = text.trim_start_matches('\u{feff}');
    match unambiguous(text) {
        Ok(Value::Object(mut table)) if table.contains_key("rows") => match table.remove("rows") {
            Some(Value::Array(rows)) => Ok(rows),
            _ => Err(QueryError::Field("rows")),
        },
        Ok(Value::Array(rows)) => Ok(rows),
        // A field twice is no form of its own.
        Err(error) if error.is_data() => Err(error.into()),
        _ => Ok(text.lines().filter(|line| !line.trim().is_empty()).map(unambiguous).collect::<Result<_, _>>()?),
    }
}

/// Answers rows, one after the other. A plan that goes on from that of the row before is read on and not begun again.
#[derive(Debug, Default)]
pub(super) struct Answers {
    last: Option<Plan>,
}

/// Plans with fewer phases are begun anew: that costs little, and their digits do not depend on the row before.
const SHARED_FROM: usize = 8;

impl Answers {
    /// The plan of a row, with what the readings of the row before left where that is a part of it.
    fn plan(&mut self, row: &Value) -> Result<&Plan, QueryError> {
        let plan = plan(row)?;
        let before = self.last.take().filter(|last| last.phases().len() >= SHARED_FROM);
        let grown = before.and_then(|mut last| {
            let more = plan.beyond(&last)?;
            more.into_iter().try_for_each(|phase| last.append(phase)).ok()?;
            Some(last)
        });
        Ok(self.last.insert(grown.unwrap_or(plan)))
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

impl Answers {
    /// Answers one row.
    ///
    /// # Errors
    /// The row is refused: a field is missing, a number is out of range, or no bound is known.
    pub(super) fn answer(&mut self, row: &Value) -> Result<Answer, QueryError> {
        match row["query"].as_str() {
            Some("eps") => {
                let delta = delta(row)?;
                let plan = self.plan(row)?;
                let mut interval = plan.epsilon(delta);
                // Batches of fixed size under replace-one: the interval certifies the symmetrised pair; what is certain to be lost is less.
                if plan.relation() == Neighbours::ReplaceOne
                    && plan.phases().iter().any(|p| matches!(p.sampling, Sampling::WithoutReplacement(_)))
                {
                    interval.lower = plan.attained(delta).min(interval.lower);
                }
                Ok(Answer::One(interval))
            }
            Some("delta") => Ok(Answer::One(self.plan(row)?.delta(Epsilon::new(number(row, "eps")?)?))),
            Some("advantage") => Ok(Answer::One(self.plan(row)?.advantage())),
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
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn row(phases: usize, more: &str) -> Value {
        let all: Vec<_> = (0..phases)
            .map(|k| format!(r#"{{"sigma": {}, "q": 0.01, "T": 10}}"#, 1.0 + 0.01 * f64::from(u32::try_from(k).unwrap())))
            .collect();
        let all = all.join(",");
        let text = format!(
            r#"{{"query": "eps", "mechanism": "subsampled_gaussian_heterogeneous", "sampling": "poisson", "relation": "add-remove", "phases": [{all}], "delta": 1e-5 {more}}}"#
        );
        unambiguous(&text).unwrap()
    }

    fn one(answer: Answer) -> Interval {
        match answer {
            Answer::One(interval) => interval,
            Answer::Many { .. } => panic!("one number"),
        }
    }

    /// A plan that goes on from the row before keeps what its readings left; any other one is read as if it were alone.
    #[test]
    fn a_table_of_growing_plans_reads_on() {
        let mut answers = Answers::default();
        let mut before = 0.0;
        for phases in 1..=24 {
            let found = one(answers.answer(&row(phases, "")).unwrap());
            assert!(
                found.lower > before && found.upper - found.lower <= 1e-4 * found.upper.max(0.05),
                "{phases}: {found:?} after {before}"
            );
            before = found.upper;
            assert_eq!(answers.last.as_ref().unwrap().phases().len(), phases);
        }
        let alone = one(Answers::default().answer(&row(24, "")).unwrap());
        let last = one(answers.answer(&row(24, "")).unwrap());
        assert!(last.lower <= alone.upper && alone.lower <= last.upper);
        let fewer = one(answers.answer(&row(12, "")).unwrap());
        assert_eq!(fewer, one(Answers::default().answer(&row(12, "")).unwrap()));
    }

    #[test]
    fn a_row_with_a_field_twice_is_refused() {
        for text in [
            r#"{"rows": [{"query": "eps", "sigma": 1.0, "sigma": 2.0}]}"#,
            "{\"query\": \"eps\"}\n{\"query\": \"eps\", \"query\": \"delta\"}",
            "[{\n\"a\": {\"b\": 1,\n\"b\": 2}}]",
        ] {
            assert!(rows(text).unwrap_err().to_string().contains("there twice"), "{text}");
        }
        assert_eq!(rows("\u{feff}{\"a\": 1}\n\n{\"a\": 2}").unwrap().len(), 2);
    }
}
