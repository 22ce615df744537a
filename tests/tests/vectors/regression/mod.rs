//! `regression.json`: what formulas, likelihoods and reports of regressions must give.
//!
//! One line for every first-level key of the file: `KEY ok`, `KEY not built` for what is still to come, with the parts that are there in
//! brackets, or `FAIL KEY: …`. A key of the list that the file does not have is skipped; a key of the file that the list does not have fails.

mod formula;
mod likelihoods;
mod many_rows;
mod personal;
mod report;
mod scales;
mod survival;

use nalgebra::DMatrix;

use super::read::{Node, Outcome};

/// A check of a key's value.
type Check = fn(&Node<'_>) -> Outcome;

/// How much of a first-level key the engine has.
enum Coverage {
    /// All of it: one check.
    Whole(Check),
    /// All of it: one check, which is given the whole file.
    OfFile(Check),
    /// Its second-level keys have checks of their own; without one a part is still to come.
    Parts(&'static [(&'static str, Option<Check>)]),
}

use Coverage::{OfFile, Parts, Whole};

/// Every first-level key, in the file's order.
const KEYS: &[(&str, Coverage)] = &[
    ("formula", Whole(formula::cases)),
    ("formula_names", Whole(formula::names)),
    ("formula_errors", Whole(formula::errors)),
    ("bases", Whole(formula::bases)),
    ("multinomial", Whole(likelihoods::multinomial)),
    ("multinomial_optimum", Parts(many_rows::MULTINOMIAL_OPTIMUM)),
    ("negative_binomial", Whole(likelihoods::negative_binomial)),
    ("negative_binomial_optimum", Parts(likelihoods::NEGATIVE_BINOMIAL_OPTIMUM)),
    ("robust", Whole(likelihoods::robust)),
    ("robust_optimum", Parts(likelihoods::ROBUST_OPTIMUM)),
    ("ordinal", Whole(many_rows::ordinal_points)),
    ("ordinal_optimum", Parts(many_rows::ORDINAL_OPTIMUM)),
    ("survival", Whole(survival::survival)),
    ("survival_optimum", OfFile(survival::survival_optimum)),
    ("weibull", Whole(survival::weibull)),
    ("weibull_optimum", Whole(survival::weibull_optimum)),
    ("mean_field_gradients", Whole(many_rows::mean_field_gradients)),
    ("bounds", Whole(many_rows::bounds)),
    ("scale_update", Whole(scales::update)),
    ("noise_aware_scale", Whole(scales::noise_aware)),
    ("site_effects", Whole(scales::site_effects)),
    ("personalised", Parts(personal::PARTS)),
    ("report", Parts(report::PARTS)),
    ("oracle", Parts(likelihoods::ORACLE)),
];

/// First-level keys about the file itself.
const HEADER: &[&str] = &["about", "version", "tolerance"];

/// Parts that say how others are meant; they are checked and not named.
const INPUTS: &[&str] = &[
    "level",
    "normal_quantile",
    "x",
    "target",
    "offset",
    "weights",
    "dispersion",
    "classes",
    "nu",
    "sd",
    "prior_mean",
    "prior_precision",
    "prior_sd",
    "note",
];

/// Whether a file is one of these: it has a key of the list.
pub(crate) fn is_this(root: &Node<'_>) -> Result<bool, String> {
    Ok(root.fields()?.iter().any(|field| KEYS.iter().any(|(key, _)| *key == field.name())))
}

/// Prints a line for every key and returns the number of failures.
pub(crate) fn run(root: &Node<'_>) -> Result<usize, String> {
    let mut failures = 0;
    for field in root.fields()?.iter().filter(|field| !HEADER.contains(&field.name())) {
        match verdict(root, field) {
            Ok(line) => println!("{} {line}", field.name()),
            Err(message) => {
                println!("FAIL {}: {message}", field.name());
                failures += 1;
            }
        }
    }
    Ok(failures)
}

/// What is said of a first-level key, or why it fails.
fn verdict(root: &Node<'_>, field: &Node<'_>) -> Result<String, String> {
    let Some((_, coverage)) = KEYS.iter().find(|(key, _)| *key == field.name()) else {
        return Err("no such key is known: this checker, or the file, is of another version".into());
    };
    let parts = match coverage {
        Whole(check) => return check(field).map(|()| "ok".into()),
        OfFile(check) => return check(root).map(|()| "ok".into()),
        Parts(parts) => parts,
    };
    let (mut checked, mut missing) = (Vec::new(), 0);
    for part in field.fields()? {
        match parts.iter().find(|(name, _)| *name == part.name()) {
            Some((name, Some(check))) => {
                // A part may need a number that is beside it.
                check(field)?;
                checked.push(*name);
            }
            Some((_, None)) => missing += 1,
            None => return Err(format!("no such part is known: {}", part.name())),
        }
    }
    let named = parts.iter().map(|(name, _)| *name).filter(|name| checked.contains(name) && !INPUTS.contains(name));
    let done = named.collect::<Vec<_>>().join(", ");
    Ok(match (missing, done.as_str()) {
        (0, _) => "ok".into(),
        (_, "") => "not built".into(),
        (_, done) => format!("not built ({done} ok)"),
    })
}

/// A square matrix, from the list of its rows.
fn square(node: &Node<'_>, key: &str) -> Result<DMatrix<f64>, String> {
    let rows = node.get(key)?.rows()?;
    if rows.iter().any(|row| row.len() != rows.len()) {
        return Err(format!("{key} is not square"));
    }
    Ok(DMatrix::from_fn(rows.len(), rows.len(), |i, j| rows[i][j]))
}
