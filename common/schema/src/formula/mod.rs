//! Model formulas: `died ~ s(age, k = 8) + sex*ward + bin(bmi, [18.5, 25, 30]) + offset(log(days)) + (1 | site)`.
//!
//! A formula says which entries a record's row has. It is compiled from public values alone: the schema, and the list of sites. No knot,
//! level, centre, cut or scale is ever computed from records, so a row depends on its own record only, and its norm has a public bound
//! ([`Design::worst_case_norm`]).
//!
//! Syntax and algebra are those of R's model formulas (Wilkinson and Rogers 1973); names of coefficients are those of R's `model.matrix`. What
//! differs: knots are equally spaced over the stated range and not at quantiles of the data, and polynomials are orthogonal on the range.

mod algebra;
mod arguments;
pub mod bases;
mod compile;
mod design;
mod lexer;
mod piece;
mod print;
mod response;
mod scope;
mod syntax;
#[cfg(test)]
mod tests;
mod together;

use std::fmt;

use crate::{Column, Label};
use compile::compile;
pub use design::{Design, Record, RowSpace, ScaleGroup, Term, Use};
pub use piece::Cell;
use scope::Scope;

/// A longer formula is refused.
const MOST_BYTES: usize = 1 << 16;

/// Why a text is no formula, or none for its schema; it says where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormulaError {
    formula: String,
    at: usize,
    problem: String,
}

/// A formula that can be read. What its names mean, a schema says: see [`Schema::with_formula`](crate::Schema::with_formula).
#[derive(Debug, Clone)]
pub struct Formula {
    text: String,
    tree: syntax::Tree,
}

impl Formula {
    /// Reads a formula, in Unicode's composed form as all names are ([`crate::text`]).
    ///
    /// # Errors
    /// The text does not follow the grammar; the error says where.
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        if text.len() > MOST_BYTES {
            return Err(FormulaError::new("", 0, format!("the formula has more than {MOST_BYTES} bytes")));
        }
        let text = crate::text::composed(text).into_owned();
        Ok(Self { tree: syntax::parse(&text)?, text })
    }

    /// Why the first summand that `is` says yes to, by its canonical text, can be no part of a model; where there is none, the right-hand side.
    #[must_use]
    pub fn refused(&self, is: impl Fn(&str) -> bool, problem: &str) -> FormulaError {
        let terms = &self.tree.terms;
        let at = first_summand(terms, &is).unwrap_or(terms.at);
        FormulaError::new(&self.text, at, problem)
    }

    /// The text, composed.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// What a formula means for a schema.
pub(crate) struct Asked {
    pub(crate) label: Label,
    /// Positions of the label's columns.
    pub(crate) outcome: Vec<usize>,
    pub(crate) design: Design,
}

/// What a formula means for a schema's columns, its column of units, and that of the records' weights.
pub(crate) fn asked(
    text: &str,
    sites: &[String],
    columns: &[Column],
    (unit, weights): (Option<&str>, Option<&str>),
) -> Result<Asked, FormulaError> {
    let read = || {
        let formula = Formula::parse(text)?;
        let nothing = Label::absent();
        let (label, outcome) =
            response::of(&formula.tree.response, &Scope { text: formula.text(), columns, label: &nothing, unit, weights })?;
        let scope = Scope { text: formula.text(), columns, label: &label, unit, weights };
        let design = compile(&formula, &scope, sites)?;
        Ok(Asked { label, outcome, design })
    };
    read().map_err(|error: FormulaError| error.in_view_of(columns.iter().map(|column| column.name.as_str())))
}

/// A column's name as it is in a formula.
#[must_use]
pub fn in_formula(name: &str) -> String {
    print::column(name)
}

/// Where the first summand that `is` says yes to begins.
fn first_summand(node: &syntax::Node, is: &impl Fn(&str) -> bool) -> Option<usize> {
    match &node.kind {
        syntax::Kind::Sum(summands) => summands.iter().find_map(|(_, summand)| first_summand(summand, is)),
        _ => is(&print::summand(node)).then_some(node.at),
    }
}

/// The canonical text; reading it gives the same formula.
impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print::formula(&self.tree))
    }
}

impl FormulaError {
    fn new(formula: &str, at: usize, problem: impl Into<String>) -> Self {
        Self { formula: formula.to_owned(), at, problem: problem.into() }
    }

    /// The same where these are the names of columns: one that is at the place of the error without the backticks that it needs is what is wrong.
    fn in_view_of<'a>(mut self, names: impl Iterator<Item = &'a str>) -> Self {
        let is_word = |name: &str, at: usize| {
            let (before, after) = (self.formula[..at].chars().next_back(), self.formula[at + name.len()..].chars().next());
            let ends = name.starts_with(lexer::is_name) && before.is_some_and(lexer::is_name);
            before != Some('`') && !ends && !(name.ends_with(lexer::is_name) && after.is_some_and(lexer::is_name))
        };
        let stands =
            |name: &str| self.formula.match_indices(name).any(|(at, _)| (at..at + name.len()).contains(&self.at) && is_word(name, at));
        let there = names
            .filter(|name| !name.is_empty() && !name.contains('`') && !lexer::is_plain(name) && stands(name))
            .max_by_key(|name| name.len());
        if let Some(name) = there
            && !(self.problem.contains("backticks") && self.problem.contains(&format!("`{name}`")))
        {
            self.problem = format!("this column's name has signs that mean something else in a formula: write `{name}` in backticks");
        }
        self
    }

    /// Byte of the formula at which the first offending token begins.
    #[must_use]
    pub fn at(&self) -> usize {
        self.at
    }

    /// What is wrong, and what to write instead.
    #[must_use]
    pub fn problem(&self) -> &str {
        &self.problem
    }
}

/// One line: where, what is there, and what is wrong.
impl fmt::Display for FormulaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 32;
        let plain = |text: &str| text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let rest = plain(self.formula.get(self.at..).unwrap_or_default());
        let shown: String = rest.chars().take(SHOWN).collect();
        let place = match (shown.as_str(), shown.len() < rest.len()) {
            ("", _) => "its end".to_owned(),
            (shown, true) => format!("`{shown}…`"),
            (shown, false) => format!("`{shown}`"),
        };
        write!(f, "formula, at byte {}, {place}: {}", self.at, plain(&self.problem))
    }
}

impl std::error::Error for FormulaError {}
