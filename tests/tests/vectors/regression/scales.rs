//! `scale_update`, `noise_aware_scale` and `site_effects`: scales that coefficients share, and what one site says of its own effect.

use dp_pvi_inference::methods::Job;
use dp_pvi_inference::methods::natural_gradient::Terms;
use dp_pvi_inference::models;
use dp_pvi_inference::records::RecordTable;
use dp_pvi_math::expfam::any::{Family, Gaussian, Standard};
use dp_pvi_math::expfam::gaussian::full;
use dp_pvi_math::expfam::gaussian::full::svec;
use dp_pvi_math::noisy_likelihood;
use dp_pvi_math::scales::{Group, NoisyScales, fill};
use dp_pvi_models::effects::{CurvePoint, Place, Scale, curves};
use dp_pvi_models::linear_regression::LinearRegression;
use dp_pvi_models::logistic_regression::LogisticRegression;
use dp_pvi_models::prediction::Level;
use dp_pvi_posterior::task::{ModelSpec, RawTask, ResolveContext, ResolvedTask, UpdateSpec};
use dp_pvi_privacy::SiteState;
use dp_pvi_privacy::mechanism::Term;
use dp_pvi_schema::Schema;
use dp_pvi_schema::formula::{Cell, Record, RowSpace};
use nalgebra::{DMatrix, DVector};

use super::formula::{compiled, label, same_texts, schema, schema_text};
use super::likelihoods::ORACLE_TOLERANCE;
use super::square;
use crate::read::{FIXED_POINT, Node, Outcome, message};

/// Agreement of two searches for a fixed point.
const SEARCH: f64 = 1e-7;

fn groups(node: &Node<'_>) -> Result<Vec<Group>, String> {
    let group = |stated: &Node<'_>| -> Result<Group, String> {
        let number = |key| stated.get(key)?.number();
        Ok(Group {
            first: number("first")? as usize,
            count: number("count")? as usize,
            shape: number("shape")?,
            rate: number("rate")?,
            fixed: None,
        })
    };
    node.get("groups")?.list()?.iter().map(group).collect()
}

pub(super) fn update(node: &Node<'_>) -> Outcome {
    let (mean, variance) = (node.at("mean")?, node.at("variance")?);
    let found: Vec<f64> = groups(node)?.iter().map(|group| group.scale(&mean, &variance)).collect();
    node.key_equals("tau2", found, 1e-12)
}

/// Prior mean and precision of all coefficients: those of groups have mean 0.
fn prior(node: &Node<'_>, groups: &[Group], d: usize) -> Result<(Vec<f64>, Vec<f64>), String> {
    let pad = |mut values: Vec<f64>, filler| {
        values.resize(d, filler);
        values
    };
    let (mean, mut precision) = (pad(node.at("prior_mean")?, 0.0), pad(node.at("prior_precision")?, 1.0));
    fill(groups, &groups.iter().map(Group::start).collect::<Vec<_>>(), &mut precision);
    Ok((mean, precision))
}

pub(super) fn noise_aware(node: &Node<'_>) -> Outcome {
    let (h, curvature, noise) = (node.at("h")?, square(node, "H")?, square(node, "noise")?);
    let (d, groups) = (h.len(), groups(node)?);
    let (mean, precision) = prior(node, &groups, d)?;
    let start = node.at("start_tau2")?;
    let wide = Family::FullGaussian { dimension: d };
    let told = noisy_likelihood::full(&vec![0.0; wide.len()], &[h.as_slice(), &svec(&curvature)].concat(), &noise).ok_or("H + N")?;
    let diagonal = |matrix: &DMatrix<f64>| matrix.diagonal().as_slice().to_vec();
    let narrow = noisy_likelihood::diagonal(&vec![0.0; 2 * d], &[h, diagonal(&curvature)].concat(), &diagonal(&noise));
    for (key, family, told) in [("full", wide, told), ("mean_field", Family::DiagonalGaussian { dimension: d }, narrow)] {
        let part = node.get(key)?;
        let known = NoisyScales::new(family, &told, (&mean, &precision), &groups);
        part.key_equals("first_tau2", known.step(&start).ok_or("the first step")?.scales, FIXED_POINT)?;
        let end = known.fixed_point(&start).ok_or("the fixed point")?;
        part.key_equals("tau2", &end.scales, FIXED_POINT)?;
        part.key_equals("mean", end.mean.as_slice(), FIXED_POINT)?;
        part.key_equals("variance", &end.variance, FIXED_POINT)?;
    }
    Ok(())
}

pub(super) fn site_effects(node: &Node<'_>) -> Outcome {
    let formula = node.get("formula")?.text()?;
    let sites = node.get("sites")?.list()?.iter().map(|site| site.text().map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
    let plain = schema(&node.get("columns")?, label(formula))?;
    let compiled = compiled(&plain, formula, &sites)?;
    same_texts(&node.get("names")?, &compiled.coefficient_names(), formula)?;
    let everybody = table(node, &compiled, |_| true)?;
    let groups = groups(node)?;
    let d = compiled.dimension() as usize;
    let (mean, precision) = prior(node, &groups, d)?;
    for (key, family) in [("full", Family::FullGaussian { dimension: d }), ("mean_field", Family::DiagonalGaussian { dimension: d })] {
        let part = node.get(key)?;
        let (q, scales) = fixed_point(&ModelSpec::from(LogisticRegression {}), &everybody, family, &mean, &precision, &groups)?;
        part.key_equals("tau2", &scales, SEARCH)?;
        part.key_equals("mean", q.standard().mean(), SEARCH)?;
        let stated = if key == "full" { svec(&square(&part, "precision")?) } else { part.at("precision")? };
        for (found, stated) in q.natural()[d..].iter().zip(&stated) {
            if (found - stated).abs() > SEARCH * stated.abs().max(1.0) {
                return Err(format!("a precision is {found:e}, the file has {stated:e}"));
            }
        }
        if key == "full" {
            says(node, &compiled, &sites, &part)?;
        }
    }
    Ok(())
}

/// The optimum of the bound over q and τ²: one after the other until neither moves.
fn fixed_point(
    model: &ModelSpec,
    records: &RecordTable,
    family: Family,
    mean: &[f64],
    precision: &[f64],
    groups: &[Group],
) -> Result<(Gaussian, Vec<f64>), String> {
    let model = models::from_spec(model).map_err(message)?;
    let optimum = model.local_optimum().ok_or("no exact optimum")?;
    let mut scales: Vec<f64> = groups.iter().map(Group::start).collect();
    let mut start: Option<Gaussian> = None;
    for _ in 0..2000 {
        let mut precision = precision.to_vec();
        fill(groups, &scales, &mut precision);
        let h = mean.iter().zip(&precision).map(|(m, p)| m * p);
        let block = match family {
            Family::DiagonalGaussian { .. } => precision.clone(),
            Family::FullGaussian { .. } => svec(&DMatrix::from_diagonal(&DVector::from_vec(precision.clone()))),
        };
        let prior = Gaussian::from_natural(family, h.chain(block).collect()).map_err(message)?;
        let q = optimum.local_optimum(records, &prior, start.as_ref().unwrap_or(&prior)).map_err(message)?;
        let variances = q.standard().variances();
        let new: Vec<f64> = groups.iter().map(|group| group.scale(q.standard().mean(), &variances)).collect();
        let moved = new.iter().zip(&scales).map(|(new, old)| (new / old).ln().abs()).fold(0.0, f64::max);
        if moved < 1e-12 {
            return Ok((q, new));
        }
        (start, scales) = (Some(q), new);
    }
    Err("no fixed point of q and the scales".into())
}

/// The records of these sites, as rows.
fn table(node: &Node<'_>, schema: &Schema, keep: impl Fn(&str) -> bool) -> Result<RecordTable, String> {
    let design = schema.design().ok_or("no design")?;
    let mut builder = RecordTable::builder(schema.dimension() as usize);
    let mut space = RowSpace::default();
    for record in node.get("records")?.list()? {
        let name = record.get("site")?.text()?;
        if !keep(name) {
            continue;
        }
        let cells = schema.columns().iter().map(|column| Ok(Cell::Number(record.get(&column.name)?.number()?)));
        let cells = cells.collect::<Result<Vec<_>, String>>()?;
        let site = design.sites().iter().position(|other| other == name).map(|site| site as u32);
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        design.row(&Record { cells: &cells, filled: &vec![false; cells.len()], site }, &mut space, |position, value| {
            indices.push(position);
            values.push(value);
        });
        builder.start_unit();
        builder.push(&indices, &values, record.get("y")?.number()?).map_err(message)?;
    }
    Ok(builder.finish())
}

/// What one site says at the stated posterior: its own coordinates and no others.
fn says(node: &Node<'_>, compiled: &Schema, sites: &[String], q: &Node<'_>) -> Outcome {
    let stated = node.get("message")?;
    let name = stated.get("site")?.text()?;
    let task = task(node, sites)?;
    let UpdateSpec::NaturalGradient(spec) = &task.update else { return Err("another update".into()) };
    let (d, family, site) = (compiled.dimension() as usize, task.family(), task.site(name).map_err(message)?);
    let places = spec.places(&task.setting(), 1, site).map_err(message)?.ok_or("all coordinates would travel")?;
    let (own, products) = places.split_at(places.partition_point(|place| (*place as usize) < d));
    stated.key_equals("coordinates", own.iter().map(|place| f64::from(*place)).collect::<Vec<_>>(), 0.0)?;

    // The point of the gradient: the stated mean and precision, in a state of the update.
    let (mean, precision) = (DVector::from_vec(q.at("mean")?), square(q, "precision")?);
    let mut state = task.rule().initial();
    state[..d].copy_from_slice((&precision * &mean).as_slice());
    state[d..family.len()].copy_from_slice(&svec(&precision));
    state[family.len()..family.len() + d].copy_from_slice(mean.as_slice());
    let model = models::from_spec(&task.model).map_err(message)?;
    let job = Job { task: &task, visit: 1, lambda: &state, site, state: &SiteState::None };
    let stated_posterior = Gaussian::from_natural(family, state[..family.len()].to_vec()).map_err(message)?;
    let terms = Terms::at(&stated_posterior, spec, &job, model.as_ref()).map_err(message)?;
    let mut sum = vec![0.0; family.len()];
    for record in table(node, compiled, |other| other == name)?.records() {
        let mut term = Term::default();
        terms.add(record, &mut term);
        term.entries().for_each(|(index, value)| sum[index as usize] += value);
    }
    if let Some(other) = (0..sum.len()).find(|j| sum[*j] != 0.0 && places.binary_search(&(*j as u32)).is_err()) {
        return Err(format!("coordinate {other}, which is not the site's, is not 0"));
    }
    stated.key_equals("gradient", own.iter().map(|place| sum[*place as usize]).collect::<Vec<_>>(), FIXED_POINT)?;
    let curvature: Vec<f64> = products.iter().map(|place| sum[*place as usize] / spec.curvature_weight).collect();
    stated.key_equals("curvature_svec", &curvature, FIXED_POINT)?;
    let mut first = 0;
    let diagonal = (0..own.len()).map(|i| {
        first += own.len() - i;
        curvature[first - (own.len() - i)]
    });
    stated.key_equals("curvature_diagonal", diagonal.collect::<Vec<_>>(), FIXED_POINT)
}

/// A task of natural gradients whose terms are not weighted.
fn task(node: &Node<'_>, sites: &[String]) -> Result<ResolvedTask, String> {
    let formula = node.get("formula")?.text()?;
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\napproximation = \"full-covariance\"\nformula = {formula:?}\nsites = {sites:?}\n\
         [schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 4\nupdate = \"natural-gradient\"\nweighted = false\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "vectors", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    let schema = schema_text(&node.get("columns")?, label(formula))?;
    RawTask::parse(&text).and_then(|raw| raw.resolve(&schema, context)).map_err(message)
}

/// `oracle`: effects of sites and a smooth curve beside the fits of other programs.
pub(super) fn site_oracle(node: &Node<'_>) -> Outcome {
    let part = node.get("site")?;
    let names = part.get("site")?.list()?.iter().map(|site| site.text().map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
    let mut sites = names.clone();
    sites.sort();
    sites.dedup();
    let x: Vec<f64> = node.get("x")?.rows()?.iter().map(|row| row[0]).collect();
    let rows = x.iter().zip(&names).map(|(x, name)| {
        let own = 2 + sites.iter().position(|site| site == name).unwrap_or(0);
        (vec![0, 1, own as u32], vec![1.0, *x, 1.0])
    });
    let group = fitted_group(&part, 2, sites.len())?;
    let model = ModelSpec::from(LogisticRegression {});
    let (q, scales) = oracle_fit(node, &part, &model, rows.collect(), &group)?;
    let tolerance = part.get("tolerance_sd")?.number()?;
    let others = [part.at("oracle_fixed")?, part.at("oracle_effects")?].concat();
    let sds = q.standard().variances();
    if others.iter().zip(q.standard().mean()).zip(&sds).any(|((other, own), v)| (other - own).abs() > tolerance * v.sqrt()) {
        return Err(format!("site: a coefficient is more than {tolerance} standard deviations from the other program's"));
    }
    let other = part.get("oracle_tau2")?.number()?;
    if (scales[0] / other).ln().abs() > 2f64.ln() { Err(format!("site: τ² is {} and not near {other}", scales[0])) } else { Ok(()) }
}

pub(super) fn smooth_oracle(node: &Node<'_>) -> Outcome {
    let part = node.get("smooth")?;
    let number = |key| part.get(key)?.number();
    let (lower, upper, k) = (number("lower")?, number("upper")?, number("k")? as usize);
    let schema = smooth_schema(lower, upper, k)?;
    let design = schema.design().ok_or("no design")?;
    let mut space = RowSpace::default();
    let rows = part.at("z")?.into_iter().map(|z| {
        let (mut indices, mut values) = (Vec::new(), Vec::new());
        let record = Record { cells: &[Cell::Number(z)], filled: &[false], site: None };
        design.row(&record, &mut space, |position, value| {
            indices.push(position);
            values.push(value);
        });
        (indices, values)
    });
    let rows: Vec<_> = rows.collect();
    let model = ModelSpec::from(LinearRegression { noise_sd: number("noise_sd")? });
    let (q, _) = oracle_fit(node, &part, &model, rows, &fitted_group(&part, 2, k - 2)?)?;
    // Every fifth point of the curve is a point of the file's.
    let curve = curves(&model, &schema, q.standard()).pop().ok_or("no curve")?;
    let grid = number("grid")? as usize;
    let step = (curve.points.len() - 1) / (grid - 1);
    let points: Vec<_> = curve.points.iter().step_by(step).collect();
    let centre = points.iter().map(|point| point.mean).sum::<f64>() / points.len() as f64;
    let values: Vec<f64> = points.iter().map(|point| point.mean - centre).collect();
    part.key_equals("curve", &values, ORACLE_TOLERANCE)?;
    let tolerance = number("tolerance_sd")?;
    let other = part.at("oracle_curve")?;
    let far = |((own, other), point): ((&f64, &f64), &&CurvePoint)| (own - other).abs() > tolerance * point.sd.unwrap_or(0.0);
    if values.iter().zip(&other).zip(&points).any(far) { Err("smooth: the curve is not the other program's".into()) } else { Ok(()) }
}

/// One group with the file's hyperparameters.
fn fitted_group(part: &Node<'_>, first: usize, count: usize) -> Result<Vec<Group>, String> {
    let number = |key| part.get(key)?.number();
    Ok(vec![Group { first, count, shape: number("shape")?, rate: number("rate")?, fixed: None }])
}

/// The fixed point over these rows; compared with the file's own fit.
#[allow(clippy::type_complexity, reason = "rows as the builder takes them")]
fn oracle_fit(
    node: &Node<'_>,
    part: &Node<'_>,
    model: &ModelSpec,
    rows: Vec<(Vec<u32>, Vec<f64>)>,
    groups: &[Group],
) -> Result<(Gaussian, Vec<f64>), String> {
    let d = groups[0].first + groups[0].count;
    let mut builder = RecordTable::builder(d);
    for ((indices, values), target) in rows.iter().zip(part.at("target")?) {
        builder.start_unit();
        builder.push(indices, values, target).map_err(message)?;
    }
    let precision = vec![node.get("prior_sd")?.number()?.powi(-2); d];
    let family = Family::FullGaussian { dimension: d };
    let (q, scales) = fixed_point(model, &builder.finish(), family, &vec![0.0; d], &precision, groups)?;
    part.key_equals("mean", q.standard().mean(), ORACLE_TOLERANCE)?;
    part.key_equals("tau2", &scales, ORACLE_TOLERANCE)?;
    if part.get("sd").is_ok() {
        part.key_equals("sd", q.standard().variances().iter().map(|v| v.sqrt()).collect::<Vec<_>>(), ORACLE_TOLERANCE)?;
    }
    Ok((q, scales))
}

/// A schema whose rows are the intercept and a smooth of one column.
fn smooth_schema(lower: f64, upper: f64, k: usize) -> Result<Schema, String> {
    let text = format!(
        "[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = {lower:?}\nupper = {upper:?}\ncentre = 0\nscale = 1\n\
         [[columns]]\nname = \"y\"\nkind = \"number\"\nlower = -1000\nupper = 1000\ncentre = 0\nscale = 1\n"
    );
    Schema::parse(&text).and_then(|schema| schema.with_formula(&format!("y ~ s(x, k = {k})"), &[])).map_err(message)
}

/// `report`: a curve with its band.
pub(super) fn curve(report: &Node<'_>) -> Outcome {
    let part = report.get("curve")?;
    let number = |key| part.get(key)?.number();
    let schema = smooth_schema(number("lower_end")?, number("upper_end")?, number("k")? as usize)?;
    let (own, block) = (part.at("mean")?, square(&part, "covariance")?);
    // Before the term stands the intercept, of which a curve says nothing.
    let d = own.len() + 1;
    let mean = DVector::from_fn(d, |j, _| if j == 0 { 3.0 } else { own[j - 1] });
    let covariance = DMatrix::from_fn(d, d, |i, j| match (i, j) {
        (0, 0) => 2.0,
        (0, _) | (_, 0) => 0.0,
        _ => block[(i - 1, j - 1)],
    });
    let posterior = Standard::Full(full::Standard::new(mean, covariance).map_err(message)?);
    let curve = curves(&ModelSpec::from(LinearRegression { noise_sd: 1.0 }), &schema, &posterior).pop().ok_or("no curve")?;
    part.key_equals("grid", [curve.points.len() as f64], 0.0)?;
    part.key_equals("estimate", curve.points.iter().map(|point| point.mean).collect::<Vec<_>>(), FIXED_POINT)?;
    let bands: Vec<_> = curve.points.iter().filter_map(|point| point.interval(Level::P90)).collect();
    part.key_equals("lower", bands.iter().map(|band| band.lower).collect::<Vec<_>>(), FIXED_POINT)?;
    part.key_equals("upper", bands.iter().map(|band| band.upper).collect::<Vec<_>>(), FIXED_POINT)
}

/// What a report says of a group with these marginals.
fn scale(part: &Node<'_>, group: &Group) -> Result<Scale, String> {
    let (mean, variance) = (DVector::from_vec(part.at("mean")?), DVector::from_vec(part.at("variance")?));
    let posterior = Standard::Full(full::Standard::new(mean, DMatrix::from_diagonal(&variance)).map_err(message)?);
    let names: Vec<String> = (0..group.count).map(|k| format!("b[(Intercept) site:{k}]")).collect();
    let place = Place { term: "(1 | site)", class: None, effect: Some("(Intercept)") };
    Ok(Scale::new(place, group, &names, &posterior, None))
}

pub(super) fn reported_sites(report: &Node<'_>) -> Outcome {
    let part = report.get("site_effects")?;
    let count = part.at("mean")?.len();
    let group = Group { first: 0, count, shape: 1.0, rate: 0.25, fixed: Some(part.get("tau2")?.number()?) };
    let members = scale(&part, &group)?.members;
    part.key_equals("lower", members.iter().map(|member| member.interval_90.lower).collect::<Vec<_>>(), FIXED_POINT)?;
    part.key_equals("upper", members.iter().map(|member| member.interval_90.upper).collect::<Vec<_>>(), FIXED_POINT)?;
    part.key_equals("shrinkage", members.iter().map(|member| member.known).collect::<Vec<_>>(), FIXED_POINT)?;
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by(|&a, &b| members[a].mean.total_cmp(&members[b].mean));
    part.key_equals("order", order.into_iter().map(|k| k as f64).collect::<Vec<_>>(), 0.0)
}

pub(super) fn reported_scale(report: &Node<'_>) -> Outcome {
    let part = report.get("tau_interval")?;
    let number = |key| part.get(key)?.number();
    let group = Group { first: 0, count: part.at("mean")?.len(), shape: number("shape")?, rate: number("rate")?, fixed: None };
    let interval = scale(&part, &group)?.interval_90.ok_or("no interval")?;
    part.key_equals("lower", [interval.lower], FIXED_POINT)?;
    part.key_equals("upper", [interval.upper], FIXED_POINT)
}
