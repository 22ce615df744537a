//! `formula`, `formula_names`, `formula_errors` and `bases`: what formulas mean, and the functions they are made of.

use std::fmt::Write as _;

use dp_pvi_schema::Schema;
use dp_pvi_schema::coding::Coding;
use dp_pvi_schema::formula::bases::{BSpline, NaturalSpline, Smooth, legendre};
use dp_pvi_schema::formula::{Cell, Design, Record, RowSpace};
use dp_pvi_schema::{Column, ColumnKind};

use crate::read::{FIXED_POINT, Node, Outcome, message};

/// A schema of the file's columns, with a label of this name.
pub(super) fn schema(columns: &Node<'_>, label: &str) -> Result<Schema, String> {
    Schema::parse(&schema_text(columns, label)?).map_err(message)
}

/// Its text.
pub(super) fn schema_text(columns: &Node<'_>, label: &str) -> Result<String, String> {
    let mut text = String::new();
    for column in columns.list()? {
        write!(text, "[[columns]]\nname = {:?}\nkind = {:?}\n", column.get("name")?.text()?, column.get("kind")?.text()?)
            .map_err(message)?;
        for key in ["lower", "upper", "centre", "scale", "fill"] {
            if let Ok(value) = column.get(key) {
                writeln!(text, "{key} = {:?}", value.number()?).map_err(message)?;
            }
        }
        if column.get("kind")?.text()? == "number" && column.get("centre").is_err() {
            text += "centre = 0\nscale = 1\n";
        }
        if let Ok(transform) = column.get("transform") {
            writeln!(text, "transform = {:?}", transform.text()?).map_err(message)?;
        }
        if let Ok(values) = column.get("values") {
            let values = values.list()?.iter().map(Node::text).collect::<Result<Vec<_>, _>>()?;
            writeln!(text, "values = {values:?}").map_err(message)?;
        }
        let missing = column.get("missing").ok().map_or(Ok("zero"), |missing| missing.text())?;
        writeln!(text, "missing = {missing:?}").map_err(message)?;
    }
    // Behind the others, whose positions are those of the file.
    Ok(text + &format!("[[columns]]\nname = {label:?}\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n"))
}

pub(super) fn label(formula: &str) -> &str {
    formula.split('~').next().unwrap_or_default().trim()
}

pub(super) fn compiled(schema: &Schema, formula: &str, sites: &[String]) -> Result<Schema, String> {
    schema.clone().with_formula(formula, sites).map_err(|error| format!("{formula}: {error}"))
}

pub(super) fn names(node: &Node<'_>) -> Outcome {
    for case in node.get("cases")?.list()? {
        let formula = case.get("formula")?.text()?;
        let schema = compiled(&schema(&node.get("columns")?, label(formula))?, formula, &[])?;
        same_texts(&case.get("names")?, &schema.coefficient_names(), formula)?;
    }
    Ok(())
}

pub(super) fn same_texts(stated: &Node<'_>, found: &[String], formula: &str) -> Outcome {
    let stated = stated.list()?.iter().map(Node::text).collect::<Result<Vec<_>, _>>()?;
    if stated == found { Ok(()) } else { Err(format!("{formula}: {found:?}, the file has {stated:?}")) }
}

pub(super) fn errors(node: &Node<'_>) -> Outcome {
    let top = node.top("formula")?;
    for formula in node.get("formulas")?.list()? {
        let formula = formula.text()?;
        let schema = schema(&top.get("columns")?, "died")?;
        match schema.with_formula(formula, &[]) {
            Err(error) if !error.to_string().is_empty() => {}
            _ => return Err(format!("`{formula}` was not refused")),
        }
    }
    Ok(())
}

pub(super) fn cases(node: &Node<'_>) -> Outcome {
    let sites = node.get("sites")?.list()?.iter().map(|site| site.text().map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
    for case in node.get("cases")?.list()? {
        let formula = case.get("formula")?.text()?;
        let schema = compiled(&schema(&node.get("columns")?, label(formula))?, formula, &sites)?;
        let design = schema.design().ok_or("there is no design")?;
        same_texts(&case.get("names")?, design.names(), formula)?;
        case.key_equals("row_norm_bound", [design.worst_case_norm()], FIXED_POINT)?;
        if schema.row_norm_bound() < design.worst_case_norm() {
            return Err(format!("{formula}: the bound is rounded down"));
        }
        terms(&case, design)?;
        scale_groups(&case, design)?;
        rows(&case, &schema, design, &node.get("frame")?)?;
    }
    Ok(())
}

fn terms(case: &Node<'_>, design: &Design) -> Outcome {
    let stated = case.get("terms")?.list()?;
    if stated.len() != design.terms().len() {
        return Err(format!("{}: {} terms", design.formula(), design.terms().len()));
    }
    for (stated, term) in stated.iter().zip(design.terms()) {
        stated.key_equals("count", [f64::from(term.count)], 0.0)?;
        stated.key_equals("bound", [term.bound], FIXED_POINT)?;
    }
    Ok(())
}

fn scale_groups(case: &Node<'_>, design: &Design) -> Outcome {
    let stated = case.get("scale_groups")?.list()?;
    if stated.len() != design.scale_groups().len() {
        return Err(format!("{}: {} groups with a scale", design.formula(), design.scale_groups().len()));
    }
    for (stated, group) in stated.iter().zip(design.scale_groups()) {
        stated.key_equals("first", [f64::from(group.first)], 0.0)?;
        stated.key_equals("count", [f64::from(group.count)], 0.0)?;
        let fixed = stated.get("fixed_sd")?;
        match (fixed.number(), group.fixed_sd) {
            (Ok(_), Some(sd)) => fixed.equals([sd], FIXED_POINT)?,
            (Err(_), None) => {}
            _ => return Err(format!("{}: whether the scale of `{}` is learned", design.formula(), group.term)),
        }
    }
    Ok(())
}

fn rows(case: &Node<'_>, schema: &Schema, design: &Design, frame: &Node<'_>) -> Outcome {
    let (mut dense, mut offsets) = (Vec::new(), Vec::new());
    let mut space = RowSpace::default();
    for record in frame.list()? {
        // What is predicted is no part of the frame.
        let read =
            |(position, column)| if schema.outcome().contains(&position) { Ok((Cell::Missing, true)) } else { cell(column, &record) };
        let cells = schema.columns().iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        let (cells, filled): (Vec<Cell>, Vec<bool>) = cells.into_iter().unzip();
        let site = record.get("site")?.text()?;
        let site = design.sites().iter().position(|other| other == site).map(|site| site as u32);
        let record = Record { cells: &cells, filled: &filled, site };
        let mut row = vec![0.0; design.names().len()];
        let (mut last, mut count) = (None, 0);
        design.row(&record, &mut space, |position, value| {
            assert!(last.is_none_or(|last| last < position) && value != 0.0, "ascending positions and no zeros");
            (last, count) = (Some(position), count + 1);
            row[position as usize] = value;
        });
        let norm = row.iter().map(|value| value * value).sum::<f64>().sqrt();
        let largest = row.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
        if norm > schema.row_norm_bound() || count > schema.max_nonzeros() || largest > schema.max_abs_entry() * (1.0 + 1e-12) {
            return Err(format!("{}: a row is beyond its bounds", design.formula()));
        }
        dense.extend(row);
        offsets.push(design.offset(&record));
    }
    case.key_equals("rows", dense, FIXED_POINT)?;
    case.key_equals("offset", offsets, FIXED_POINT)
}

/// A cell of the frame, and whether it had no value.
fn cell(column: &Column, record: &Node<'_>) -> Result<(Cell, bool), String> {
    let value = record.get(&column.name)?;
    let cell = match &column.kind {
        ColumnKind::Number(rule) => match value.number() {
            Ok(number) => Cell::Number(number.clamp(rule.lower, rule.upper)),
            Err(_) => return Ok((Cell::Number(rule.stand_in()), true)),
        },
        ColumnKind::Category(rule) => match value.text() {
            Ok(text) => Cell::Level(rule.values.iter().position(|level| level == text).ok_or("an unknown level")? as u32),
            Err(_) => return Ok((Cell::Missing, true)),
        },
        ColumnKind::Boolean(_) => match value.flag() {
            Ok(truth) => Cell::Level(u32::from(truth)),
            Err(_) => return Ok((Cell::Missing, true)),
        },
        ColumnKind::Ignored => Cell::Missing,
    };
    Ok((cell, false))
}

pub(super) fn bases(node: &Node<'_>) -> Outcome {
    let range = (node.get("lower")?.number()?, node.get("upper")?.number()?);
    let points = node.at("x")?;
    let dense = |count: usize, fill: &dyn Fn(f64, &mut [f64])| -> Vec<f64> {
        let row = |x: &f64| {
            let mut row = vec![0.0; count];
            fill(*x, &mut row);
            row
        };
        points.iter().flat_map(row).collect()
    };

    let part = node.get("bs")?;
    let splines = BSpline::clamped(range, &part.at("knots")?, part.get("degree")?.number()? as usize);
    part.key_equals(
        "values",
        dense(splines.count(), &|x, row| splines.entries(x).for_each(|(j, value)| row[j as usize] = value)),
        FIXED_POINT,
    )?;

    for key in ["ns", "ns_linear"] {
        let part = node.get(key)?;
        let splines = NaturalSpline::new(range, &part.at("knots")?);
        part.key_equals("values", dense(splines.count(), &|x, row| splines.entries(x, |(j, value)| row[j as usize] = value)), FIXED_POINT)?;
    }

    let part = node.get("poly")?;
    let degree = part.get("degree")?.number()? as u32;
    let polynomials = dense(degree as usize, &|x, row| {
        let mut entries = row.iter_mut();
        legendre(x, range, degree, |value| entries.next().into_iter().for_each(|entry| *entry = value));
    });
    part.key_equals("values", polynomials, FIXED_POINT)?;

    smooth(node, range, &points)?;
    node.get("s_omega")?.list()?.iter().try_for_each(|other| {
        let smooth = Smooth::new(range, other.get("k")?.number()? as usize);
        other.key_equals("omega", [smooth.omega()], FIXED_POINT)
    })?;
    bins(node, range, &points)
}

fn smooth(node: &Node<'_>, range: (f64, f64), points: &[f64]) -> Outcome {
    let part = node.get("s")?;
    let smooth = Smooth::new(range, part.get("k")?.number()? as usize);
    part.key_equals("knots", smooth.splines().knots(), FIXED_POINT)?;
    part.key_equals("E", smooth.deviations().transpose().as_slice(), FIXED_POINT)?;
    part.key_equals("omega", [smooth.omega()], FIXED_POINT)?;
    let (mut basis, mut rows) = (Vec::new(), Vec::new());
    for x in points {
        let mut values = vec![0.0; smooth.splines().count()];
        smooth.splines().entries(*x).for_each(|(j, value)| values[j as usize] = value);
        basis.extend(values);
        smooth.row(*x, |value| rows.push(value));
    }
    part.key_equals("basis", basis, FIXED_POINT)?;
    part.key_equals("rows", rows, FIXED_POINT)?;
    // EE⁺ projects on what second differences see: DE = I says that DᵀD = (E⁺)ᵀE⁺.
    let inverse = smooth.deviations().clone().pseudo_inverse(1e-12).map_err(message)?;
    part.key_equals("penalty", (inverse.transpose() * inverse).as_slice(), FIXED_POINT)
}

/// Levels of a binned number, through a formula.
fn bins(node: &Node<'_>, range: (f64, f64), points: &[f64]) -> Outcome {
    let part = node.get("bin")?;
    let cuts = part.at("cuts")?;
    let text = format!(
        "[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = {:?}\nupper = {:?}\ncentre = 0\nscale = 1\n\
         [[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n",
        range.0, range.1
    );
    let schema = Schema::parse(&text).map_err(message)?;
    let schema = compiled(&schema, &format!("y ~ 0 + bin(x, {cuts:?})"), &[])?;
    let design = schema.design().ok_or("there is no design")?;
    if design.names().len() != Coding::Full.width(cuts.len() + 1) {
        return Err("a bin has no entry".into());
    }
    let mut levels = Vec::new();
    for x in points {
        let record = Record { cells: &[Cell::Number(*x)], filled: &[false], site: None };
        design.row(&record, &mut RowSpace::default(), |position, _| levels.push(f64::from(position)));
    }
    part.key_equals("level", levels, 0.0)
}
