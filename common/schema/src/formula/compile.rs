//! A formula becomes a design: coefficients with names, bounds and priors.

use std::collections::{BTreeSet, HashSet};

use super::algebra::{Expanded, Group, Term as Set, expand};
use super::design::{By, Design, Grouped, Offset, ScaleGroup};
use super::piece::{Levels, Piece, Values, bare_number};
use super::scope::Scope;
use super::syntax::{Called, Node};
use super::{Formula, FormulaError};
use crate::coding::Coding;
use crate::{Column, ColumnKind};

/// Its name beside columns that stand as the schema codes them.
const INTERCEPT: &str = "(intercept)";
/// A model with more coefficients than this is refused.
const MOST_COEFFICIENTS: usize = 1 << 20;
/// Bytes of all names.
const MOST_BYTES_OF_NAMES: usize = 1 << 26;
/// Entries of a row that are not 0. What a row takes in memory and time grows with them, and they depend on the record.
const MOST_NONZEROS: usize = 4096;
/// Squared bounds neither overflow nor vanish between these.
const NORMS: std::ops::Range<f64> = 1e-100..1e100;

/// Compiles a formula against public values. `sites` are the names of all sites; they are needed by groups `(… | site)` only.
pub(crate) fn compile(formula: &Formula, scope: &Scope<'_>, sites: &[String]) -> Result<Design, FormulaError> {
    let every = scope.every(&formula.tree.terms);
    let names: Vec<String> = every.iter().map(|column| scope.columns[*column].name.clone()).collect();
    let expanded = expand(scope.text, &formula.tree.terms, &names)?;
    let mut compiler = Compiler { scope, design: Design::empty(formula.to_string(), sorted(sites)), used: BTreeSet::new() };
    if expanded.only_every {
        compiler.offsets(&expanded)?;
        compiler.every(&every, expanded.intercept);
        return compiler.finish_every(&formula.tree.terms);
    }
    compiler.fixed(&expanded)?;
    let curves = expanded.smooths.iter().map(|call| scope.smooth(call)).collect::<Result<Vec<_>, _>>()?;
    if let (Some(call), false) = (expanded.smooths.first(), expanded.intercept) {
        return scope.fail(call.at, "a curve `s(…)` has mean 0 and needs an intercept: leave `0` or `- 1` out");
    }
    compiler.used.extend(curves.iter().map(|curve| curve.piece.column));
    let groups = expanded.groups.iter().map(|group| compiler.group(group)).collect::<Result<Vec<_>, _>>()?;
    compiler.offsets(&expanded)?;
    // Indicators are between fixed terms and curves, and are those of all columns that the formula uses.
    compiler.indicators();
    curves.into_iter().for_each(|curve| compiler.curve(curve.piece, curve.sd));
    for (group, written) in groups.into_iter().zip(&expanded.groups) {
        compiler.check_total(group.effects.len().checked_mul(group.levels.len()), written.at)?;
        compiler.design.add_group(group);
    }
    compiler.finish(&formula.tree.terms)
}

fn sorted(sites: &[String]) -> Vec<String> {
    let mut sites = sites.to_vec();
    sites.sort_unstable();
    sites.dedup();
    sites
}

struct Compiler<'s> {
    scope: &'s Scope<'s>,
    design: Design,
    /// Columns that the formula uses.
    used: BTreeSet<usize>,
}

impl Compiler<'_> {
    /// What `.` alone makes: one column after the other in the schema's order, what marks missing values, and the intercept.
    fn every(&mut self, columns: &[usize], intercept: bool) {
        let mut needs_all_levels = !intercept;
        for position in columns {
            let column = &self.scope.columns[*position];
            let Some(piece) = coded(column, *position, needs_all_levels) else { continue };
            needs_all_levels &= !matches!(column.kind, ColumnKind::Category(_));
            self.used.insert(*position);
            self.design.add_column(&piece, column);
        }
        self.indicators();
        if intercept {
            self.design.add_intercept(INTERCEPT);
        }
    }

    /// The intercept and the products of columns and calls.
    fn fixed(&mut self, expanded: &Expanded) -> Result<(), FormulaError> {
        if expanded.intercept {
            self.design.add_intercept("(Intercept)");
        }
        // Also those that were taken away again: what is written has to mean something.
        let mut pieces = Vec::with_capacity(expanded.variables.len());
        for variable in &expanded.variables {
            pieces.push(self.scope.piece(variable)?);
            // Levels are copied for every factor.
            self.check_total(pieces.iter().map(Piece::width).try_fold(0_usize, usize::checked_add), variable.at)?;
        }
        let mut needs_all_levels = !expanded.intercept;
        for (place, set) in expanded.terms.iter().enumerate() {
            let before = &expanded.terms[..place];
            let mut factors = Vec::with_capacity(set.len());
            for variable in set {
                let piece = &pieces[*variable];
                let is_first_factor = needs_all_levels && piece.is_factor();
                needs_all_levels &= !is_first_factor;
                let contrasts = !is_first_factor && has_margin(set, *variable, before);
                factors.push(if contrasts { piece.clone() } else { piece.with_all_levels() });
            }
            self.used.extend(factors.iter().map(|piece| piece.column));
            let at = set.first().map_or(0, |variable| expanded.variables[*variable].at);
            self.check_size(&factors, at)?;
            self.design.add_product(&factors);
        }
        Ok(())
    }

    /// Before anything of that size is built.
    fn check_size(&self, factors: &[Piece], at: usize) -> Result<(), FormulaError> {
        let width = factors.iter().try_fold(1_usize, |width, piece| width.checked_mul(piece.width()));
        self.check_total(width, at)?;
        let longest = |piece: &Piece| piece.text.len() + piece.suffixes().iter().map(String::len).max().unwrap_or(0) + 1;
        let bytes = factors.iter().map(longest).try_fold(0_usize, usize::checked_add);
        match bytes.zip(width).and_then(|(bytes, width)| bytes.checked_mul(width)) {
            Some(bytes) if bytes <= MOST_BYTES_OF_NAMES => Ok(()),
            _ => {
                self.scope.fail(at, format!("the names of these coefficients take more than {MOST_BYTES_OF_NAMES} bytes: use fewer levels"))
            }
        }
    }

    /// Before so many more coefficients are built.
    fn check_total(&self, more: Option<usize>, at: usize) -> Result<(), FormulaError> {
        match more.and_then(|more| more.checked_add(self.design.names().len())) {
            Some(count) if count <= MOST_COEFFICIENTS => Ok(()),
            _ => self.scope.fail(at, format!("more than {MOST_COEFFICIENTS} coefficients come out here: leave out a factor or a term")),
        }
    }

    fn curve(&mut self, piece: Piece, sd: Option<f64>) {
        let term = piece.text.clone();
        let first = self.design.add_product(&[piece]);
        let count = self.design.dimension() - first;
        // The straight line is a coefficient like every other.
        self.design.add_scale_group(ScaleGroup { term, effect: None, first: first + 1, count: count - 1, fixed_sd: sd });
    }

    fn group(&mut self, group: &Group) -> Result<Grouped, FormulaError> {
        let (by, levels) = self.levels(group)?;
        let mut effects = Vec::new();
        if group.effects.intercept {
            effects.push(("(Intercept)".to_owned(), Vec::new()));
        }
        for set in &group.effects.terms {
            let factors =
                set.iter().map(|variable| self.scope.piece(&group.effects.variables[*variable])).collect::<Result<Vec<_>, _>>()?;
            if !factors.iter().all(Piece::is_number) {
                return self.scope.fail(group.at, "inside a group only numbers have effects: `(1 + age | site)`");
            }
            self.used.extend(factors.iter().map(|piece| piece.column));
            let name = factors.iter().map(|piece| piece.text.as_str()).collect::<Vec<_>>().join(":");
            effects.push((name, factors));
        }
        self.check_total(effects.len().checked_mul(levels.len()), group.at)?;
        Ok(Grouped { term: group.text.clone(), effects, by, of: super::print::variable(&group.by), levels })
    }

    /// What a group's coordinates belong to: sites, or the levels of a column.
    fn levels(&mut self, group: &Group) -> Result<(By, Vec<String>), FormulaError> {
        let (scope, by) = (self.scope, &group.by);
        let name = match &by.what {
            Called::Column(name) => name,
            Called::Call(call) => {
                if call.name != "bin" {
                    let problem =
                        "a group stands over levels: over a category, `site`, or a number that is cut, `(1 | bin(age, [40, 60]))`";
                    return scope.fail(by.at, problem);
                }
                let piece = scope.piece(by)?;
                self.used.insert(piece.column);
                let piece = piece.with_all_levels();
                let levels = piece.suffixes();
                return Ok((By::Piece(piece), levels));
            }
        };
        if name == "site" {
            let sites = self.design.sites().to_vec();
            if sites.is_empty() {
                return scope
                    .fail(by.at, "effects of sites need the list of all sites: `sites = [\"north\", \"south\"]` under [model] of the task, `--site` for each with `data inspect`");
            }
            return Ok((By::Site, sites));
        }
        let column = scope.find(name, by.at)?;
        if matches!(scope.columns[column].kind, ColumnKind::Number(_)) {
            return scope.fail(by.at, format!("`{name}` is a number: a group stands over a category, over `site`, or over a number that is cut, `(1 | bin({name}, [cuts]))`"));
        }
        self.used.insert(column);
        let piece = scope.factor(super::print::column(name), name, by.at, None)?.with_all_levels();
        let levels = piece.suffixes();
        Ok((By::Piece(piece), levels))
    }

    fn offsets(&mut self, expanded: &Expanded) -> Result<(), FormulaError> {
        for call in &expanded.offsets {
            let (column, map) = self.scope.offset(call)?;
            self.used.insert(column);
            self.design.add_offset(Offset { column, map });
        }
        Ok(())
    }

    fn indicators(&mut self) {
        let marked = |column: &Column| column.has_indicator;
        for column in std::mem::take(&mut self.used).into_iter().filter(|column| marked(&self.scope.columns[*column])) {
            self.design.add_indicator(column, &self.scope.columns[column].name);
        }
    }

    /// What the schema lists has no bound but that of a computer's numbers.
    fn finish_every(self, terms: &Node) -> Result<Design, FormulaError> {
        if self.design.names().is_empty() {
            return self.scope.fail(terms.at, "there is nothing to learn: describe a column, or keep the intercept");
        }
        if u32::try_from(self.design.names().len()).is_err() {
            return self.scope.fail(terms.at, "more than 4294967295 feature entries: list fewer category values");
        }
        if self.design.worst_case_norm().is_finite() {
            return Ok(self.design);
        }
        let problem = "the longest row that the ranges allow is not a finite number: use smaller ranges or larger scales";
        self.scope.fail(terms.at, problem)
    }

    fn finish(self, terms: &Node) -> Result<Design, FormulaError> {
        let names = self.design.names();
        if names.is_empty() {
            return self.scope.fail(terms.at, "no coefficient is left: there is nothing to learn");
        }
        let mut seen = HashSet::new();
        if let Some(name) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return self.scope.fail(terms.at, format!("two coefficients have the name `{name}`: rename a column or a level"));
        }
        if self.design.max_nonzeros() as usize > MOST_NONZEROS {
            let problem = format!("a row can have more than {MOST_NONZEROS} entries that are not 0: leave out products of curves");
            return self.scope.fail(terms.at, problem);
        }
        if NORMS.contains(&self.design.worst_case_norm()) {
            return Ok(self.design);
        }
        self.scope.fail(terms.at, "the longest row is too long or too short for a computer: use ranges and scales of ordinary size")
    }
}

/// A column as the schema codes it; nothing of one that is ignored.
fn coded(column: &Column, position: usize, needs_all_levels: bool) -> Option<Piece> {
    let levels = |names: Vec<String>, coding: Coding| {
        let values = Values::Levels(Levels { names, coding, cuts: None });
        Piece { text: super::print::column(&column.name), column: position, values }
    };
    match &column.kind {
        ColumnKind::Number(rule) => Some(bare_number(&column.name, position, *rule)),
        ColumnKind::Boolean(_) => Some(levels(vec!["FALSE".into(), "TRUE".into()], Coding::Treatment { reference: 0 })),
        ColumnKind::Category(rule) => {
            let piece = levels(rule.values.clone(), rule.coding);
            Some(if needs_all_levels && !rule.states_coding { piece.with_all_levels() } else { piece })
        }
        ColumnKind::Ignored => None,
    }
}

/// Whether the term without this variable is before it, or is empty: then a factor has contrasts only.
fn has_margin(set: &Set, variable: usize, before: &[Set]) -> bool {
    let mut margin = set.clone();
    margin.remove(&variable);
    margin.is_empty() || before.iter().any(|term| margin.is_subset(term))
}
