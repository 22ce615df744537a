//! Wilkinson and Rogers's algebra: a formula's tree becomes a list of terms, each a set of variables.
//!
//! `a*b` = a + b + a:b; `:` distributes over sums, and x:x = x; `(S)^n` holds all products of up to n terms of S; `- t` removes t; `+ 0` and
//! `- 1` take the intercept away, `+ 1` and `- 0` put it back (the last one counts). Variables are numbered by first appearance, also where
//! they are taken away again. A term's variables stand in that order; terms stand by their number of variables, then by first appearance
//! (as R's `terms.formula` orders them).

use std::collections::{BTreeSet, HashMap};

use super::FormulaError;
use super::print;
use super::syntax::{Call, Kind, Name, Node};

/// A term: numbers of its variables. The intercept is the empty set.
pub(super) type Term = BTreeSet<usize>;

/// A column or a call that can be part of a product.
#[derive(Debug, Clone)]
pub(super) struct Variable {
    pub(super) at: usize,
    pub(super) what: Called,
}

/// A column that stands bare, or a call.
#[derive(Debug, Clone)]
pub(super) enum Called {
    Column(String),
    Call(Call),
}

/// A group as it is written.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// Canonical text.
    pub(super) text: String,
    pub(super) at: usize,
    pub(super) effects: Expanded,
    pub(super) by: Name,
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
}

/// More terms than this are no formula that somebody reads.
const MOST_TERMS: usize = 1024;
/// Products that are formed on the way, those that are the same counted each time: what somebody sends must not keep a site busy.
const MOST_PRODUCTS: usize = 1 << 18;

/// Expands a right-hand side.
pub(super) fn expand(text: &str, terms: &Node) -> Result<Expanded, FormulaError> {
    let mut expansion = Expansion {
        text,
        numbers: HashMap::new(),
        products: 0,
        expanded: Expanded {
            variables: Vec::new(),
            terms: Vec::new(),
            intercept: true,
            smooths: Vec::new(),
            groups: Vec::new(),
            offsets: Vec::new(),
        },
    };
    let mut terms = expansion.outermost(terms)?;
    terms.retain(|term| !term.is_empty());
    terms.sort_by_key(BTreeSet::len);
    Ok(Expanded { terms, ..expansion.expanded })
}

struct Expansion<'t> {
    text: &'t str,
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
        let alone = [(false, node.clone())];
        let summands = match &node.kind {
            Kind::Sum(summands) => summands.as_slice(),
            _ => &alone,
        };
        let mut terms = Vec::new();
        for (minus, summand) in summands {
            match &summand.kind {
                Kind::Call(call) if is_smooth(call) && !minus => self.smooth(call)?,
                Kind::Call(call) if is_offset(call) && !minus => self.expanded.offsets.push(call.clone()),
                Kind::Group { effects, double, by } if !minus => self.group(summand.at, effects, *double, by)?,
                _ => self.add(&mut terms, *minus, summand)?,
            }
        }
        Ok(terms)
    }

    fn smooth(&mut self, call: &Call) -> Result<(), FormulaError> {
        let text = print::call(call);
        if self.expanded.smooths.iter().any(|other| print::call(other) == text) {
            return self.fail(call.at, format!("`{text}` stands twice: leave one out"));
        }
        self.expanded.smooths.push(call.clone());
        Ok(())
    }

    fn group(&mut self, at: usize, effects: &Node, double: bool, by: &Name) -> Result<(), FormulaError> {
        let text = print::group(effects, double, &by.text);
        let effects = expand(self.text, effects)?;
        if !(effects.smooths.is_empty() && effects.groups.is_empty() && effects.offsets.is_empty()) {
            return self.fail(at, "inside a group only numbers have effects: `(1 + age | site)`");
        }
        if effects.terms.is_empty() && !effects.intercept {
            return self.fail(at, "this group has no effect: write `(1 | site)`, or the numbers whose coefficients differ");
        }
        self.expanded.groups.push(Group { text, at, effects, by: by.clone() });
        Ok(())
    }

    /// Adds a summand to a sum, or takes it away.
    fn add(&mut self, sum: &mut Vec<Term>, minus: bool, summand: &Node) -> Result<(), FormulaError> {
        if let Kind::Intercept(one) = summand.kind {
            self.expanded.intercept = one != minus;
            if one && !minus {
                sum.push(Term::new());
            }
            return Ok(());
        }
        let terms = self.terms(summand)?;
        if minus {
            sum.retain(|term| !terms.contains(term));
            return Ok(());
        }
        self.extend(sum, terms, summand.at)
    }

    fn extend(&self, sum: &mut Vec<Term>, terms: Vec<Term>, at: usize) -> Result<(), FormulaError> {
        for term in terms {
            if !sum.contains(&term) {
                sum.push(term);
            }
        }
        if sum.len() > MOST_TERMS {
            return self.fail(at, format!("more than {MOST_TERMS} terms come out here"));
        }
        Ok(())
    }

    fn terms(&mut self, node: &Node) -> Result<Vec<Term>, FormulaError> {
        match &node.kind {
            Kind::Intercept(_) => {
                let mut terms = Vec::new();
                self.add(&mut terms, false, node)?;
                Ok(terms)
            }
            Kind::Column(name) => Ok(vec![self.variable(print::column(name), node.at, Called::Column(name.clone()))]),
            Kind::Call(call) if is_smooth(call) || is_offset(call) => {
                let problem = format!("`{}` takes part in no `:`, `*`, `^` or `-`: it stands in the outermost sum", print::call(call));
                self.fail(node.at, problem)
            }
            Kind::Call(call) => Ok(vec![self.variable(print::call(call), node.at, Called::Call(call.clone()))]),
            Kind::Group { .. } => self.fail(node.at, "a group takes part in no `:`, `*`, `^` or `-`: it stands in the outermost sum"),
            Kind::Sum(summands) => {
                let mut sum = Vec::new();
                summands.iter().try_for_each(|(minus, summand)| self.add(&mut sum, *minus, summand))?;
                Ok(sum)
            }
            Kind::Interaction(parts) => self.folded(parts, Self::products),
            Kind::Crossed(parts) => self.folded(parts, Self::crossed),
            Kind::Power(base, power) => {
                let base = self.terms(base)?;
                let mut terms = base.clone();
                for _ in 1..*power {
                    terms = self.crossed(&terms, &base, node.at)?;
                }
                Ok(terms)
            }
        }
    }

    fn variable(&mut self, text: String, at: usize, what: Called) -> Term {
        let next = self.expanded.variables.len();
        let number = *self.numbers.entry(text).or_insert(next);
        if number == next {
            self.expanded.variables.push(Variable { at, what });
        }
        Term::from([number])
    }

    fn folded(
        &mut self,
        parts: &[Node],
        join: fn(&mut Self, &[Term], &[Term], usize) -> Result<Vec<Term>, FormulaError>,
    ) -> Result<Vec<Term>, FormulaError> {
        let mut folded: Option<Vec<Term>> = None;
        for part in parts {
            let terms = self.terms(part)?;
            folded = Some(match folded {
                None => terms,
                Some(before) => join(self, &before, &terms, part.at)?,
            });
        }
        Ok(folded.unwrap_or_default())
    }

    /// All products of a term of the one and a term of the other.
    fn products(&mut self, left: &[Term], right: &[Term], at: usize) -> Result<Vec<Term>, FormulaError> {
        self.products += left.len() * right.len();
        if self.products > MOST_PRODUCTS {
            return self.fail(at, format!("more than {MOST_PRODUCTS} products are formed up to here: write fewer terms"));
        }
        let mut products = Vec::new();
        for first in left {
            self.extend(&mut products, right.iter().map(|second| first | second).collect(), at)?;
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
