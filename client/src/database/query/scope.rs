//! Relations that a `SELECT` sees, whose rows theirs are, and which of their ids are equal.

use sqlparser::ast::{BinaryOperator, DataType, Expr, Ident};

use super::Asked;

/// Whose rows a relation has.
#[derive(Clone, PartialEq)]
pub(super) enum Whose {
    /// Nobody's.
    Public,
    /// A table: its id is in the key column.
    Table,
    /// A query: ids are in these columns.
    Columns(Vec<String>),
}

/// A relation in a `FROM`, under its name there.
pub(super) struct Relation {
    pub(super) name: String,
    /// The table's name, as the text writes it, where it is one.
    pub(super) table: Option<String>,
    pub(super) whose: Whose,
    /// Number of the set of relations with which its ids are equal.
    pub(super) joined: usize,
    /// An outer join may have no row of it: its id is then missing in rows that are somebody's all the same.
    pub(super) nullable: bool,
}

/// What is in sight inside one `SELECT`.
pub(super) struct Scope<'o> {
    pub(super) relations: Vec<Relation>,
    pub(super) outer: Option<&'o Scope<'o>>,
    /// Persons' relations are about the person of the row outside.
    pub(super) tied: bool,
}

/// Where a condition stands.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Place {
    Where,
    Join,
}

impl Scope<'_> {
    /// The relation that is called so, here or outside.
    pub(super) fn called(&self, name: &str) -> Option<&Relation> {
        self.relations.iter().find(|relation| relation.name == name).or_else(|| self.outer.and_then(|outer| outer.called(name)))
    }

    pub(super) fn personal(&self) -> bool {
        self.relations.iter().any(|relation| relation.whose != Whose::Public)
    }

    /// Which relation's id column an expression is, if it is one.
    fn id_of(&self, expression: &Expr, asked: &Asked<'_>) -> Option<usize> {
        match expression {
            Expr::Nested(inner) => self.id_of(inner, asked),
            // The texts of two ids differ if the ids do; their numbers may not.
            Expr::Cast { expr, data_type: DataType::Text, .. } => self.id_of(expr, asked),
            Expr::Identifier(name) => {
                let name = lower(name);
                let holding = |nullable: bool| self.relations.iter().position(|r| r.nullable == nullable && r.holds(&name, asked));
                holding(false).or_else(|| holding(true))
            }
            Expr::CompoundIdentifier(names) => {
                let [.., table, name] = names.as_slice() else { return None };
                let (table, name) = (lower(table), lower(name));
                self.relations.iter().position(|relation| relation.name == table && relation.holds(&name, asked))
            }
            _ => None,
        }
    }

    /// Whether an expression is the id of the person whose row this is, in every row.
    pub(super) fn is_id(&self, expression: &Expr, asked: &Asked<'_>) -> bool {
        self.id_of(expression, asked).is_some_and(|at| !self.relations[at].nullable)
    }

    /// Whether an expression is the id of the row outside. A name without a table means what is nearest, and what a table has is not looked up.
    fn is_outer_id(&self, expression: &Expr, asked: &Asked<'_>) -> bool {
        let Expr::CompoundIdentifier(names) = expression else { return false };
        let here = names.iter().rev().nth(1).is_some_and(|table| self.relations.iter().any(|relation| relation.name == lower(table)));
        !here && self.outer.is_some_and(|outer| outer.is_id(expression, asked) || outer.is_outer_id(expression, asked))
    }

    /// Remembers which ids a condition makes equal: those of its parts that all must hold.
    pub(super) fn equal(&mut self, condition: &Expr, place: Place, asked: &Asked<'_>) {
        let mut condition = condition;
        loop {
            match condition {
                Expr::Nested(inner) => condition = inner,
                Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                    self.equal(right, place, asked);
                    condition = left;
                }
                Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                    let tied = |scope: &Self, outside: &Expr| {
                        // An outer join keeps rows for which its condition does not hold.
                        place == Place::Where && asked.unit_column.is_some() && scope.is_outer_id(outside, asked)
                    };
                    match (self.id_of(left, asked), self.id_of(right, asked)) {
                        (Some(left), Some(right)) => self.join(left, right),
                        (Some(_), None) if tied(self, right) => self.tied = true,
                        (None, Some(_)) if tied(self, left) => self.tied = true,
                        _ => {}
                    }
                    return;
                }
                _ => return,
            }
        }
    }

    pub(super) fn join(&mut self, left: usize, right: usize) {
        let (from, to) = (self.relations[right].joined, self.relations[left].joined);
        self.relations.iter_mut().filter(|relation| relation.joined == from).for_each(|relation| relation.joined = to);
    }
}

impl Relation {
    pub(super) fn ids(&self, asked: &Asked<'_>) -> Vec<String> {
        match &self.whose {
            _ if self.nullable => Vec::new(),
            Whose::Public => Vec::new(),
            Whose::Table => vec![asked.unit_key.to_owned()],
            Whose::Columns(ids) => ids.clone(),
        }
    }

    pub(super) fn holds(&self, column: &str, asked: &Asked<'_>) -> bool {
        match &self.whose {
            Whose::Public => false,
            Whose::Table => column == asked.unit_key,
            Whose::Columns(ids) => ids.iter().any(|id| id == column),
        }
    }
}

/// A name as PostgreSQL compares it.
pub(super) fn lower(name: &Ident) -> String {
    if name.quote_style.is_some() { name.value.clone() } else { name.value.to_lowercase() }
}
