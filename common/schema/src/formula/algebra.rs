//! Wilkinson and Rogers's algebra: a formula's tree becomes a list of terms, each a set of variables.
//!
//! `a*b` = a + b + a:b; `:` distributes over sums, and x:x = x; `(S)^n` holds all products of up to n terms of S; `- t` removes t; `+ 0` and
//! `- 1` take the intercept away, `+ 1` and `- 0` put it back (the last one counts). Variables are numbered by first appearance, also where
//! they are taken away again. A term's variables are in that order; terms stand by their number of variables, then by first appearance
//! (as R's `terms.formula` orders them).

use std::collections::{BTreeSet, HashMap, HashSet};

use super::FormulaError;
use super::print;
use super::syntax::{Call, Called, Kind, Node, Variable};

/// A term: numbers of its variables.
pub(super) type Term = BTreeSet<usize>;

/// A group as it is written.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// Canonical text.
    pub(super) text: String,
    pub(super) at: usize,
    pub(super) effects: Expanded,
    pub(super) by: Variable,
}

/// A formula's right-hand side.
#[derive(Debug, Clone)]
pub(super) struct Expanded {
    pub(super) variables: Vec<Variable>,
    /// Without the intercept, in their order.
    pub(super) terms: Vec<Term>,
    pub(super) intercept: bool,
    pub(super) smooths: Vec<Call>,
    pub(super) groups: Vec<Group>,
    pub(super) offsets: Vec<Call>,
    /// Whether `.` is in it and nothing else makes coefficients.
    pub(super) only_every: bool,
}

/// More terms than this are no formula that someone reads.
const MOST_TERMS: usize = 1024;
/// Products that are formed on the way, those that are the same counted each time: what someone sends must not keep a site busy.
const MOST_PRODUCTS: usize = 1 << 16;
/// Columns and calls, factors of one term, and curves, groups and offsets.
const MOST_VARIABLES: usize = 256;
const MOST_FACTORS: usize = 16;
const MOST_PARTS: usize = 64;
/// Bytes of a column or call as it is printed: it is a part of many names.
const MOST_BYTES_OF_A_VARIABLE: usize = 512;

/// Expands a right-hand side; `every` are the columns that `.` stands for.
pub(super) fn expand(text: &str, terms: &Node, every: &[String]) -> Result<Expanded, FormulaError> {
    let mut expansion = Expansion {
        text,
        every,
        numbers: HashMap::new(),
        products: 0,
        expanded: Expanded {
            variables: Vec::new(),
            terms: Vec::new(),
            intercept: true,
            smooths: Vec::new(),
            groups: Vec::new(),
            offsets: Vec::new(),
            only_every: is_only_every(terms),
        },
    };
    if expansion.expanded.only_every {
        // Of any number of columns: nothing is multiplied.
        for (minus, summand) in summands(terms) {
            match &summand.kind {
                Kind::Intercept(one) => expansion.expanded.intercept = *one != minus,
                Kind::Call(call) => expansion.offset(call)?,
                _ => {}
            }
        }
        return Ok(expansion.expanded);
    }
    let mut terms = expansion.outermost(terms)?;
    terms.sort_by_key(BTreeSet::len);
    Ok(Expanded { terms, ..expansion.expanded })
}

/// Makes the terms of two operands those of an operator, whose right operand is at the given byte.
type Join<E> = fn(&mut E, &[Term], &[Term], usize) -> Result<Vec<Term>, FormulaError>;

struct Expansion<'t> {
    text: &'t str,
    every: &'t [String],
    numbers: HashMap<String, usize>,
    /// Products that were formed so far.
    products: usize,
    expanded: Expanded,
}

impl Expansion<'_> {
    fn fail<T>(&self, at: usize, problem: impl Into<String>) -> Result<T, FormulaError> {
        Err(FormulaError::new(self.text, at, problem))
    }

    /// The outermost sum: only here stand curves, groups and offsets.
    fn outermost(&mut self, node: &Node) -> Result<Vec<Term>, FormulaError> {
        let mut terms = Vec::new();
        for (minus, summand) in summands(node) {
            match &summand.kind {
                Kind::Call(call) if is_smooth(call) && !minus => self.smooth(call)?,
                Kind::Call(call) if is_offset(call) && !minus => self.offset(call)?,
                Kind::Group { effects, double, by } if !minus => self.group(summand.at, effects, *double, by)?,
                _ => self.add(&mut terms, (minus, false), summand)?,
            }
        }
        Ok(terms)
    }

    /// Before a curve, a group or an offset is added, whose text is this.
    fn check_part(&self, at: usize, text: &str) -> Result<(), FormulaError> {
        if text.len() > MOST_BYTES_OF_A_VARIABLE {
            return self.fail(at, format!("this has more than {MOST_BYTES_OF_A_VARIABLE} bytes: write fewer or shorter arguments"));
        }
        let expanded = &self.expanded;
        if expanded.smooths.len() + expanded.groups.len() + expanded.offsets.len() >= MOST_PARTS {
            return self.fail(at, format!("more than {MOST_PARTS} curves, groups and offsets stand here"));
        }
        Ok(())
    }

    fn offset(&mut self, call: &Call) -> Result<(), FormulaError> {
        self.check_part(call.at, &print::call(call))?;
        self.expanded.offsets.push(call.clone());
        Ok(())
    }

    fn smooth(&mut self, call: &Call) -> Result<(), FormulaError> {
        let text = print::call(call);
        self.check_part(call.at, &text)?;
        if self.expanded.smooths.iter().any(|other| print::call(other) == text) {
            return self.fail(call.at, format!("`{text}` stands twice: leave one out"));
        }
        self.expanded.smooths.push(call.clone());
        Ok(())
    }

    fn group(&mut self, at: usize, effects: &Node, double: bool, by: &Variable) -> Result<(), FormulaError> {
        let text = print::group(effects, double, by);
        self.check_part(at, &text)?;
        if self.expanded.groups.iter().any(|other| other.text == text) {
            return self.fail(at, format!("`{text}` stands twice: leave one out"));
        }
        let effects = Expanded { only_every: false, ..expand(self.text, effects, self.every)? };
        if !(effects.smooths.is_empty() && effects.groups.is_empty() && effects.offsets.is_empty()) {
            return self.fail(at, "inside a group only numbers have effects: `(1 + age | site)`");
        }
        if effects.terms.is_empty() && !effects.intercept {
            return self.fail(at, "this group has no effect: write `(1 | site)`, or the numbers whose coefficients differ");
        }
        self.expanded.groups.push(Group { text, at, effects, by: by.clone() });
        Ok(())
    }

    /// Adds a summand to a sum, or takes it away. The whole sum may itself be taken away, which decides what `1` and `0` in it mean for the intercept.
    fn add(&mut self, sum: &mut Vec<Term>, (minus, inside_minus): (bool, bool), summand: &Node) -> Result<(), FormulaError> {
        if let Kind::Intercept(one) = summand.kind {
            self.expanded.intercept = one != (minus != inside_minus);
            return Ok(());
        }
        let terms = self.terms(summand, minus != inside_minus)?;
        if minus {
            sum.retain(|term| !terms.contains(term));
            return Ok(());
        }
        self.extend(sum, terms, summand.at)
    }

    fn extend(&self, sum: &mut Vec<Term>, terms: Vec<Term>, at: usize) -> Result<(), FormulaError> {
        let mut known: HashSet<Term> = sum.iter().cloned().collect();
        sum.extend(terms.into_iter().filter(|term| known.insert(term.clone())));
        if sum.len() > MOST_TERMS {
            return self.fail(at, format!("more than {MOST_TERMS} terms come out here"));
        }
        Ok(())
    }

    /// The terms of an expression that is added, or taken away. As in R, `1` in a product is no term.
    fn terms(&mut self, node: &Node, minus: bool) -> Result<Vec<Term>, FormulaError> {
        match &node.kind {
            Kind::Intercept(_) => {
                let mut terms = Vec::new();
                self.add(&mut terms, (false, minus), node)?;
                Ok(terms)
            }
            Kind::Every => {
                let mut terms = Vec::new();
                for name in self.every {
                    let term = self.variable(print::column(name), node.at, Called::Column(name.clone()))?;
                    self.extend(&mut terms, vec![term], node.at)?;
                }
                Ok(terms)
            }
            Kind::Column(name) => self.variable(print::column(name), node.at, Called::Column(name.clone())).map(|term| vec![term]),
            Kind::Call(call) if is_smooth(call) || is_offset(call) => {
                let problem = format!("`{}` takes part in no `:`, `*`, `^` or `-`: it stands in the outermost sum", print::call(call));
                self.fail(node.at, problem)
            }
            Kind::Call(call) => self.variable(print::call(call), node.at, Called::Call(call.clone())).map(|term| vec![term]),
            Kind::Group { .. } => self.fail(node.at, "a group takes part in no `:`, `*`, `^` or `-`: it stands in the outermost sum"),
            Kind::Sum(summands) => {
                let mut sum = Vec::new();
                summands.iter().try_for_each(|(own, summand)| self.add(&mut sum, (*own, minus), summand))?;
                Ok(sum)
            }
            Kind::Interaction(parts) => self.folded(parts, minus, Self::products),
            Kind::Crossed(parts) => self.folded(parts, minus, Self::crossed),
            Kind::Power(base, power) => {
                let base = self.terms(base, minus)?;
                let mut terms = base.clone();
                for _ in 1..*power {
                    terms = self.crossed(&terms, &base, node.at)?;
                }
                Ok(terms)
            }
        }
    }

    fn variable(&mut self, text: String, at: usize, what: Called) -> Result<Term, FormulaError> {
        let next = self.expanded.variables.len();
        if text.len() > MOST_BYTES_OF_A_VARIABLE {
            return self.fail(at, format!("this has more than {MOST_BYTES_OF_A_VARIABLE} bytes: write fewer or shorter arguments"));
        }
        if next >= MOST_VARIABLES && !self.numbers.contains_key(&text) {
            return self.fail(at, format!("more than {MOST_VARIABLES} columns and calls stand in the formula"));
        }
        let number = *self.numbers.entry(text).or_insert(next);
        if number == next {
            self.expanded.variables.push(Variable { at, what });
        }
        Ok(Term::from([number]))
    }

    fn folded(&mut self, parts: &[Node], minus: bool, join: Join<Self>) -> Result<Vec<Term>, FormulaError> {
        let mut folded: Option<Vec<Term>> = None;
        for part in parts {
            let terms = self.terms(part, minus)?;
            folded = Some(match folded {
                None => terms,
                Some(before) => join(self, &before, &terms, part.at)?,
            });
        }
        Ok(folded.unwrap_or_default())
    }

    /// All products of a term of the one and a term of the other.
    fn products(&mut self, left: &[Term], right: &[Term], at: usize) -> Result<Vec<Term>, FormulaError> {
        self.products += left.len().max(1) * right.len().max(1);
        if self.products > MOST_PRODUCTS {
            return self.fail(at, format!("more than {MOST_PRODUCTS} products are formed up to here: write fewer terms"));
        }
        let mut products = Vec::new();
        let pairs = left.iter().flat_map(|first| right.iter().map(move |second| first | second)).collect();
        self.extend(&mut products, pairs, at)?;
        if products.iter().any(|term| term.len() > MOST_FACTORS) {
            return self.fail(at, format!("a product of more than {MOST_FACTORS} columns comes out here"));
        }
        Ok(products)
    }

    /// Both, and their products.
    fn crossed(&mut self, left: &[Term], right: &[Term], at: usize) -> Result<Vec<Term>, FormulaError> {
        let mut terms = left.to_vec();
        self.extend(&mut terms, right.to_vec(), at)?;
        let products = self.products(left, right, at)?;
        self.extend(&mut terms, products, at)?;
        Ok(terms)
    }
}

fn is_smooth(call: &Call) -> bool {
    call.name == "s"
}

fn is_offset(call: &Call) -> bool {
    call.name == "offset"
}

/// The summands of the outermost sum, and whether they are taken away.
pub(super) fn summands(node: &Node) -> impl Iterator<Item = (bool, &Node)> {
    let (sum, alone) = match &node.kind {
        Kind::Sum(summands) => (summands.as_slice(), None),
        _ => (&[][..], Some((false, node))),
    };
    sum.iter().map(|(minus, summand)| (*minus, summand)).chain(alone)
}

/// Whether a right-hand side is `.`, an intercept or none, and offsets.
fn is_only_every(node: &Node) -> bool {
    let is_every = |(minus, summand): &(bool, &Node)| !minus && matches!(summand.kind, Kind::Every);
    let is_other = |(minus, summand): &(bool, &Node)| match &summand.kind {
        Kind::Intercept(_) => true,
        Kind::Call(call) => !minus && is_offset(call),
        _ => false,
    };
    summands(node).any(|one| is_every(&one)) && summands(node).all(|one| is_every(&one) || is_other(&one))
}
