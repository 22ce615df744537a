//! `defaults.json`: priors, residuals, and posteriors of runs that are right by default.
//!
//! The file is a list of entries with a name, inputs, outputs and a tolerance; several have one name. One line for every entry: `NAME ok`, `NAME not covered`, or `FAIL NAME: …`.

mod public;
mod released;

use nalgebra::{DMatrix, DVector};

use super::read::{Node, Outcome};

/// A check of an entry.
type Check = fn(&Entry<'_>) -> Outcome;

/// What the engine has.
const CHECKS: &[(&str, Check)] = &[
    ("priors and typical row", public::priors),
    ("weight of a record (logistic)", public::weight_of_a_record),
    ("centred residual of a count", public::count),
    ("cut residual of a number", public::number),
    ("weights of sites", public::weights_of_sites),
    ("weighted sum of sites", public::weighted_sum),
    ("check: vectors of units", public::vectors_of_units),
    ("check: scale from the mean of t", public::scale),
    ("check: robust covariance of scores", public::robust),
    ("looks taken to theta (logistic)", released::looks),
    ("prior against data", released::prior_against_data),
    ("scales averaged, and nothing learned", released::scales_averaged),
    ("sites as a hierarchy", released::sites),
];

/// An entry of the file.
struct Entry<'a> {
    inputs: Node<'a>,
    outputs: Node<'a>,
    tolerance: f64,
}

impl<'a> Entry<'a> {
    fn number(&self, key: &str) -> Result<f64, String> {
        self.inputs.get(key)?.number()
    }

    fn vector(&self, key: &str) -> Result<DVector<f64>, String> {
        self.inputs.at(key).map(DVector::from_vec)
    }

    fn vectors(&self, key: &str) -> Result<Vec<DVector<f64>>, String> {
        self.inputs.get(key)?.list()?.iter().map(|node| node.numbers().map(DVector::from_vec)).collect()
    }

    fn matrix(&self, key: &str) -> Result<DMatrix<f64>, String> {
        matrix(&self.inputs.get(key)?)
    }

    fn matrices(&self, key: &str) -> Result<Vec<DMatrix<f64>>, String> {
        self.inputs.get(key)?.list()?.iter().map(matrix).collect()
    }

    /// Whether an output is these numbers, row by row.
    fn is(&self, key: &str, found: impl AsRef<[f64]>) -> Outcome {
        self.outputs.key_equals(key, found, self.tolerance)
    }

    /// Whether an output is this symmetric matrix.
    fn is_matrix(&self, key: &str, found: &DMatrix<f64>) -> Outcome {
        self.is(key, found.as_slice())
    }
}

/// A square matrix, from the list of its rows.
fn matrix(node: &Node<'_>) -> Result<DMatrix<f64>, String> {
    let (numbers, d) = (node.numbers()?, node.list()?.len());
    if numbers.len() == d * d { Ok(DMatrix::from_row_slice(d, d, &numbers)) } else { Err("a matrix is not square".into()) }
}

/// Whether a file is one of these.
pub(crate) fn is_this(root: &Node<'_>) -> Result<bool, String> {
    Ok(root.fields()?.iter().any(|field| field.name() == "entries"))
}

/// Prints a line for every entry and returns the number of failures.
pub(crate) fn run(root: &Node<'_>) -> Result<usize, String> {
    let mut failures = 0;
    for node in root.get("entries")?.list()? {
        let name = node.get("name")?.text()?;
        let entry = Entry { inputs: node.get("inputs")?, outputs: node.get("outputs")?, tolerance: node.get("tolerance")?.number()? };
        match CHECKS.iter().find(|(known, _)| *known == name).map(|(_, check)| check(&entry)) {
            Some(Ok(())) => println!("{name} ok"),
            Some(Err(message)) => {
                println!("FAIL {name}: {message}");
                failures += 1;
            }
            None => println!("{name} not covered"),
        }
    }
    Ok(failures)
}

/// What a function had to find.
fn found<T>(what: Option<T>) -> Result<T, String> {
    what.ok_or_else(|| "nothing was found".into())
}
