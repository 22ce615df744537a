//! `survival`, `survival_optimum`, `weibull`, `weibull_optimum`, the survival curves of `report`, and fits beside those of other programs.

use std::sync::Arc;

use dp_pvi_inference::capabilities::many_rows::ManyRowsModel;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_models::ModelSpec;
use dp_pvi_models::many_rows::{Cut, ManyRows, Place, PseudoRows};
use dp_pvi_models::prediction::{Example, Level};
use dp_pvi_models::survival::SurvivalModel;
use dp_pvi_models::survival_regression::SurvivalRegression;
use dp_pvi_models::weibull_regression::WeibullRegression;
use dp_pvi_schema::Schema;
use dp_pvi_schema::public::{Extra, TestRecords};

use super::many_rows::{near, optimum, oracle_fit, posterior, sums};
use crate::federation::{table, table_of};
use crate::read::{FIXED_POINT, Node, Outcome};

fn piecewise(node: &Node<'_>) -> Result<SurvivalRegression, String> {
    Ok(SurvivalRegression { cuts: node.at("cuts")?, baseline_mean: 0.0, baseline_scale: 1.0, least_exposure: 0.5 })
}

fn shape(node: &Node<'_>) -> Result<WeibullRegression, String> {
    Ok(WeibullRegression { time_unit: node.get("time_unit")?.number()?, shape_mean: 0.0, shape_scale: 0.5 })
}

/// Entry, time and event of every record.
fn times(node: &Node<'_>) -> Result<Vec<(f64, f64, bool)>, String> {
    let of = |record: &Node<'_>| Ok((record.get("entry")?.number()?, record.get("time")?.number()?, record.get("event")?.number()? > 0.5));
    node.get("records")?.list()?.iter().map(of).collect()
}

fn survival_table(node: &Node<'_>) -> Result<RecordTable, String> {
    let times = times(node)?;
    let target: Vec<f64> = times.iter().map(|(_, time, _)| *time).collect();
    table_of(&node.get("x")?.rows()?, &target, |i| (0.0, Extra { entry: times[i].0, event: times[i].2, ..Extra::NONE }))
}

/// Names, the rows that records become, their f, g and H, and the term of a person, whose rows are cut one by one and whose sum is clipped once.
pub(super) fn survival(node: &Node<'_>) -> Outcome {
    let (model, tolerance) = (piecewise(node)?, node.get("tolerance")?.number()?);
    let names: Vec<String> =
        node.get("baseline_names")?.list()?.iter().map(|name| name.text().map(str::to_owned)).collect::<Result<_, _>>()?;
    let schema = "[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n[[columns]]\nname = \"d\"\nkind = \"boolean\"\n\
                  [[columns]]\nname = \"x\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n";
    let ours =
        ModelSpec::from(model.clone()).rules().names(&Schema::asking("Surv(t, d) ~ 0 + .", schema).map_err(|error| error.to_string())?);
    if ours[..names.len()] != names {
        return Err(format!("names are {}", ours.join(", ")));
    }
    for (record, (entry, time, event)) in node.get("records")?.list()?.iter().zip(times(node)?) {
        let found: Vec<f64> = model
            .exposures(entry, time, event)
            .flat_map(|part| [f64::from(part.interval), part.time, f64::from(u8::from(part.event))])
            .collect();
        let mut expected = Vec::new();
        for row in record.get("rows")?.list()? {
            for key in ["interval", "exposure", "event"] {
                expected.push(row.get(key)?.number()?);
            }
        }
        if found.len() != expected.len() || found.iter().zip(&expected).any(|(a, b)| (a - b).abs() > tolerance * b.abs().max(1.0)) {
            return Err(format!("a record becomes {found:?}, and not {expected:?}"));
        }
    }
    let (data, q) = (survival_table(node)?, posterior(node)?);
    let d = q.mean().len();
    let records: Vec<Example<'_>> = data.examples().collect();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the number of a record")]
    let record = |number: f64| records.get(number as usize).copied().ok_or("no such record");
    for term in node.get("terms")?.list()? {
        let mut rows = PseudoRows::default();
        model.write(record(term.get("record")?.number()?)?, &Place::at(&q), &mut rows);
        let (gradient, hessian) = sums(&rows, d);
        term.key_equals("value", [rows.expected()], tolerance)?;
        term.key_equals("gradient", gradient.as_slice(), tolerance)?;
        term.key_equals("hessian", hessian.as_slice(), tolerance)?;
    }
    let unit = node.get("unit")?;
    let number = |key: &str| unit.get(key)?.number();
    let cut = Cut { residual: number("residual_bound")?, curvature: number("curvature_bound")?, ..Cut::NOTHING };
    let q = dp_pvi_math::expfam::gaussian::diagonal::Standard::new(q.mean().to_vec(), q.variances()).map_err(|error| error.to_string())?;
    let q = dp_pvi_math::expfam::any::Standard::Diagonal(q);
    let mut joint = vec![0.0; 2 * d];
    for of in unit.at("records")? {
        let mut rows = PseudoRows::default();
        model.write(record(of)?, &Place { cut, ..Place::at(&q) }, &mut rows);
        let (gradient, hessian) = sums(&rows, d);
        for j in 0..d {
            joint[j] += gradient[j];
            joint[d + j] += number("curvature_weight")? * hessian[(j, j)];
        }
    }
    let norm = joint.iter().map(|x| x * x).sum::<f64>().sqrt();
    unit.key_equals("norm", [norm], tolerance)?;
    let factor = (number("clip_norm")? / norm).min(1.0);
    unit.key_equals("term", joint.iter().map(|x| factor * x).collect::<Vec<_>>(), tolerance)
}

/// Over the records of `survival`.
pub(super) fn survival_optimum(root: &Node<'_>) -> Outcome {
    let (records, stated) = (root.get("survival")?, root.get("survival_optimum")?);
    let (model, data) = (piecewise(&records)?, survival_table(&records)?);
    optimum(&stated, "full", model.clone(), &data)?;
    optimum(&stated, "mean_field", model, &data)
}

pub(super) fn weibull(node: &Node<'_>) -> Outcome {
    let (model, tolerance, q) = (shape(node)?, node.get("tolerance")?.number()?, posterior(node)?);
    for point in node.get("points")?.list()? {
        let event = point.get("event")?.number()? > 0.5;
        let data = table_of(&[point.at("row")?], &[point.get("time")?.number()?], |_| (0.0, Extra { event, ..Extra::NONE }))?;
        let mut rows = PseudoRows::default();
        model.write(data.examples().next().ok_or("no record")?, &Place::at(&q), &mut rows);
        let (gradient, hessian) = sums(&rows, q.mean().len());
        point.key_equals("value", [rows.expected()], tolerance)?;
        point.key_equals("gradient", gradient.as_slice(), tolerance)?;
        point.key_equals("hessian", hessian.as_slice(), tolerance)?;
    }
    Ok(())
}

fn events(node: &Node<'_>, x: &[Vec<f64>]) -> Result<RecordTable, String> {
    let event = node.at("event")?;
    table_of(x, &node.at("time")?, |i| (0.0, Extra { event: event[i] > 0.5, ..Extra::NONE }))
}

pub(super) fn weibull_optimum(node: &Node<'_>) -> Outcome {
    let (model, data) = (shape(node)?, events(node, &node.get("x")?.rows()?)?);
    optimum(node, "full", model, &data)?;
    optimum(node, "mean_field", model, &data)
}

/// The other programs' estimates are of ln λ and β; those of Cox regression are of β alone.
pub(super) fn survival_oracle(node: &Node<'_>) -> Outcome {
    let part = node.get("survival")?;
    let data = events(&part, &node.get("x")?.rows()?)?;
    let model = piecewise(&part)?;
    let baseline = model.cuts.len() - 1;
    let (q, sd) = oracle_fit(node, &part, ManyRowsModel(Arc::new(model)), &data, part.at("mean")?.len())?;
    near(&part, q.standard().mean(), &sd)?;
    let far = part
        .at("cox")?
        .iter()
        .zip(&q.standard().mean()[baseline..])
        .zip(&sd[baseline..])
        .any(|((cox, own), sd)| (cox - own).abs() > 0.5 * sd);
    if far { Err("survival: the fit is more than half a standard deviation from that of Cox regression".into()) } else { Ok(()) }
}

pub(super) fn weibull_oracle(node: &Node<'_>) -> Outcome {
    let part = node.get("weibull")?;
    let x: Vec<Vec<f64>> = node.get("x")?.rows()?.into_iter().map(|row| [vec![1.0], row].concat()).collect();
    let (q, sd) = oracle_fit(node, &part, ManyRowsModel(Arc::new(shape(&part)?)), &events(&part, &x)?, part.at("mean")?.len())?;
    near(&part, q.standard().mean(), &sd)
}

pub(super) fn survival_curve(report: &Node<'_>, level: Level) -> Outcome {
    let part = report.get("survival_curve")?;
    curve(&part, &piecewise(&part)?, level)
}

pub(super) fn weibull_curve(report: &Node<'_>, level: Level) -> Outcome {
    let part = report.get("weibull_curve")?;
    curve(&part, &shape(&part)?, level)
}

/// Survival at all times of one record, with its band.
fn curve(part: &Node<'_>, model: &impl SurvivalModel, level: Level) -> Outcome {
    let (data, q) = (table(&[part.at("row")?], &[0.0])?, posterior(part)?);
    let row = data.examples().next().ok_or("no record")?;
    let hazards: Vec<_> = part.at("times")?.iter().map(|time| model.log_cumulative_hazard(&q, row, *time)).collect();
    let bands: Vec<_> = hazards.iter().map(|hazard| hazard.band(level)).collect();
    part.key_equals("estimate", hazards.iter().map(|hazard| hazard.survival()).collect::<Vec<_>>(), FIXED_POINT)?;
    part.key_equals("lower", bands.iter().map(|band| band.lower).collect::<Vec<_>>(), FIXED_POINT)?;
    part.key_equals("upper", bands.iter().map(|band| band.upper).collect::<Vec<_>>(), FIXED_POINT)
}
