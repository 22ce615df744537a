//! Follows whose rows a query's rows are: from tables through joins, groups, windows and subqueries.
//!
//! A *relation* of a `FROM` is public, or it is persons': then some of its columns hold the id of the person whose row it is. Persons' relations of one
//! `SELECT` must be joined by equal ids, so that a row of the result is made of rows of one person. Aggregates, windows and `DISTINCT` must have
//! an id among what they go by. A subquery in an expression must be about the same person: joined to the row outside by id, or asked `id IN (…)`.

use std::collections::{BTreeSet, HashMap};

use sqlparser::ast::{
    BinaryOperator, DataType, Distinct, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArguments,
    GroupByExpr, Ident, InTarget, Join, JoinConstraint, JoinOperator, ObjectName, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, SetOperator, SetQuantifier, TableAliasColumnDef, TableFactor, TableWithJoins, Value,
    WindowType,
};

use super::scope::{Place, Relation, Scope, Whose, lower};
use super::words::{self, Kind};
use super::{Asked, Judged, Verdict};

/// The promise is broken, and why.
struct Broken(String);

type Checked<T> = Result<T, Broken>;

fn broken<T>(why: impl Into<String>) -> Checked<T> {
    Err(Broken(why.into()))
}

/// What a query gives.
#[derive(Clone)]
struct Given {
    personal: bool,
    /// Its rows are about the person of the row outside.
    tied: bool,
    /// Per column: its name, and whether it holds the id.
    columns: Vec<(Option<String>, bool)>,
    /// `*` of something: further columns that hold the id.
    further: Vec<String>,
}

impl Given {
    fn whose(&self) -> Whose {
        if !self.personal {
            return Whose::Public;
        }
        let named = self.columns.iter().filter(|(_, id)| *id).filter_map(|(name, _)| name.clone());
        Whose::Columns(named.chain(self.further.iter().cloned()).collect())
    }

    fn id_in(&self, column: &str) -> bool {
        matches!(self.whose(), Whose::Columns(ids) if ids.iter().any(|id| id == column))
    }
}

type Named = HashMap<String, Whose>;

/// One look at a query.
pub(super) struct Checker<'a> {
    asked: &'a Asked<'a>,
    undecided: Vec<String>,
    /// Persons' tables, as the text writes their names.
    tables: BTreeSet<String>,
    /// Tables with the columns that are named with them.
    columns: BTreeSet<(String, String)>,
    /// The `SELECT` that is looked at has an aggregate over its rows.
    aggregates: bool,
}

impl<'a> Checker<'a> {
    pub(super) fn new(asked: &'a Asked<'a>) -> Self {
        Self { asked, undecided: Vec::new(), tables: BTreeSet::new(), columns: BTreeSet::new(), aggregates: false }
    }

    /// What is to be said of a query, and what the database must have for that to be true.
    pub(super) fn judged(mut self, query: &Query) -> Judged {
        let checked = self.query(query, &Named::new(), None).and_then(|given| match self.asked.unit_column {
            Some(unit) if given.personal && !given.id_in(unit) => broken(format!(
                "its column `{unit}`, the schema's unit_column, is not the person's id: select the column `{}` of a persons' table under this name",
                self.asked.unit_key
            )),
            _ => Ok(()),
        });
        let verdict = match checked {
            Err(Broken(why)) => Verdict::Broken(why),
            Ok(()) if self.undecided.is_empty() => Verdict::Kept,
            Ok(()) => Verdict::Undecided(self.undecided),
        };
        Judged { verdict, tables: self.tables, columns: self.columns }
    }

    fn doubt(&mut self, why: impl Into<String>) {
        let why = why.into();
        if !self.undecided.contains(&why) {
            self.undecided.push(why);
        }
    }

    fn persons(&self) -> bool {
        self.asked.unit_column.is_some()
    }

    fn query(&mut self, query: &Query, named: &Named, outer: Option<&Scope<'_>>) -> Checked<Given> {
        if query.limit_clause.is_some() || query.fetch.is_some() {
            return broken(
                "LIMIT, OFFSET and FETCH let some rows decide whether others are there: say by a condition which rows are meant",
            );
        }
        if !query.locks.is_empty() || query.for_clause.is_some() || !query.pipe_operators.is_empty() || query.settings.is_some() {
            return broken("FOR and settings of a query have no place here: only read");
        }
        let mut named = named.clone();
        if let Some(with) = &query.with {
            if with.recursive {
                self.doubt("WITH RECURSIVE is not followed");
            }
            for cte in &with.cte_tables {
                let name = lower(&cte.alias.name);
                let whose = if with.recursive {
                    Whose::Table
                } else {
                    let given = self.query(&cte.query, &named, outer)?;
                    self.renamed(given, &cte.alias.columns).whose()
                };
                named.insert(name, whose);
            }
        }
        let given = self.body(&query.body, &named, outer)?;
        // By itself the order of rows changes none of them; with DISTINCT ON it says which one stays.
        if let Some(OrderByKind::Expressions(list)) = query.order_by.as_ref().map(|order| &order.kind) {
            for by in list {
                self.order(&by.expr)?;
            }
        }
        Ok(given)
    }

    /// What rows are ordered by: names and positions.
    fn order(&mut self, by: &Expr) -> Checked<()> {
        match by {
            Expr::Identifier(name) => self.column(name),
            Expr::CompoundIdentifier(names) => names.last().map_or(Ok(()), |name| self.column(name)),
            Expr::Value(_) => Ok(()),
            _ => {
                self.doubt("ORDER BY of something else than a column is not followed");
                Ok(())
            }
        }
    }

    fn body(&mut self, body: &SetExpr, named: &Named, outer: Option<&Scope<'_>>) -> Checked<Given> {
        match body {
            SetExpr::Select(select) => self.select(select, named, outer),
            SetExpr::Query(query) => self.query(query, named, outer),
            SetExpr::SetOperation { left, op, set_quantifier, right } => {
                let (left, right) = (self.body(left, named, outer)?, self.body(right, named, outer)?);
                if !self.persons() && left.personal && right.personal {
                    self.doubt("a record that is in both parts of a UNION is two units");
                }
                if self.persons() && left.personal != right.personal {
                    return broken(
                        "rows of public tables are nobody's, and beside a person's they would count as that person's: join public tables, or leave that part out",
                    );
                }
                let together = self.both(&left, &right);
                let all = *op == SetOperator::Union && *set_quantifier == SetQuantifier::All;
                if together.personal && !all && (!self.persons() || !together.columns.iter().any(|(_, id)| *id)) {
                    return broken(
                        "UNION without ALL, INTERSECT and EXCEPT compare the rows of different persons: use UNION ALL, or select the person's id on both sides",
                    );
                }
                Ok(together)
            }
            SetExpr::Values(values) => {
                if !values.rows.iter().flat_map(|row| row.content.iter()).all(|cell| matches!(cell, Expr::Value(_) | Expr::TypedString(_)))
                {
                    self.doubt("VALUES of something else than constants is not followed");
                }
                Ok(Given { personal: false, tied: false, columns: Vec::new(), further: Vec::new() })
            }
            _ => broken("only SELECT is read: write out what is meant"),
        }
    }

    /// Of rows of one or the other, columns one by one.
    fn both(&mut self, left: &Given, right: &Given) -> Given {
        if !(left.further.is_empty() && right.further.is_empty()) {
            self.doubt("`*` in a UNION is not followed: name the columns");
        }
        let id = |given: &Given, at: usize| !given.personal || given.columns.get(at).is_some_and(|(_, id)| *id);
        let columns = left.columns.iter().enumerate().map(|(at, (name, _))| (name.clone(), id(left, at) && id(right, at)));
        let tied = |given: &Given| !given.personal || given.tied;
        Given {
            personal: left.personal || right.personal,
            tied: tied(left) && tied(right),
            columns: columns.collect(),
            further: Vec::new(),
        }
    }

    fn select(&mut self, select: &Select, named: &Named, outer: Option<&Scope<'_>>) -> Checked<Given> {
        if select.top.is_some() || select.into.is_some() {
            return broken("TOP and INTO have no place here: only read, and all rows");
        }
        let mut scope = Scope { relations: Vec::new(), outer, tied: false };
        for table in &select.from {
            self.tables(table, named, &mut scope)?;
        }
        if let Some(condition) = &select.selection {
            scope.equal(condition, Place::Where, self.asked);
        }
        self.joined(&scope)?;
        let personal = scope.personal();
        if let Some(condition) = &select.selection {
            self.expression(condition, &scope, named)?;
        }
        let groups = self.groups(select, &scope, named)?;
        let outside = std::mem::take(&mut self.aggregates);
        for item in &select.projection {
            if let SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } = item {
                self.expression(expression, &scope, named)?;
            }
        }
        if let Some(having) = &select.having {
            self.expression(having, &scope, named)?;
        }
        let aggregates = std::mem::replace(&mut self.aggregates, outside) || select.having.is_some();
        if !select.lateral_views.is_empty() || select.qualify.is_some() || !select.connect_by.is_empty() || !select.named_window.is_empty()
        {
            self.doubt("named windows and clauses that PostgreSQL does not have are not followed");
        }
        let (columns, further) = self.columns(select, &scope);
        let by_person = scope.tied || !personal;
        let has_id = columns.iter().any(|(_, id)| *id) || !further.is_empty();
        let distinct = match &select.distinct {
            None | Some(Distinct::All) => true,
            Some(Distinct::Distinct) => self.persons() && has_id,
            Some(Distinct::On(by)) => {
                if personal {
                    self.doubt("DISTINCT ON keeps the first of equal rows, and which one that is can depend on other rows of the table: order by enough columns");
                }
                self.persons() && by.iter().any(|by| names_input(by, select, &scope) && self.id_or_position(by, select, &scope))
            }
        };
        if !(by_person || distinct) {
            return broken("DISTINCT without the person's id keeps one row of several persons: select the id, or leave DISTINCT out");
        }
        match groups {
            Groups::None if aggregates && !by_person => {
                broken("an aggregate without GROUP BY is about all persons: group by the person's id")
            }
            Groups::Others if !by_person => {
                broken("GROUP BY without the person's id puts several persons into one row: group by the id as well")
            }
            _ => Ok(Given { personal, tied: scope.tied, columns, further }),
        }
    }

    /// Columns under the names that an alias gives them.
    fn renamed(&mut self, mut given: Given, names: &[TableAliasColumnDef]) -> Given {
        if !(names.is_empty() || given.further.is_empty()) {
            self.doubt("new names for the columns of a `*` are not followed: name the columns where they are selected");
        }
        given.columns.iter_mut().zip(names).for_each(|(column, name)| column.0 = Some(lower(&name.name)));
        given
    }

    /// Persons' relations must be about one person.
    fn joined(&mut self, scope: &Scope<'_>) -> Checked<()> {
        if !self.persons() {
            let personal = scope.relations.iter().filter(|relation| relation.whose != Whose::Public).count();
            if personal > 1 {
                return broken(
                    "without a unit_column in the schema a row of the answer must come from one row of one table: describe a unit_column, or join public tables only",
                );
            }
            if personal == 1 && scope.relations.len() > 1 {
                self.doubt("a join may make several rows of one record, or none");
            }
            return Ok(());
        }
        self.one_person(&scope.relations)
    }

    fn one_person(&self, relations: &[Relation]) -> Checked<()> {
        let mut personal = relations.iter().filter(|relation| relation.whose != Whose::Public);
        let Some(first) = personal.next() else { return Ok(()) };
        match personal.find(|other| other.joined != first.joined) {
            None => Ok(()),
            Some(other) => broken(format!(
                "`{}` and `{}` are not joined by the person's id (`{}` = `{}`), so a row may be about two persons. A table that holds nothing of any \
                 person belongs into [database] public_tables",
                first.name, other.name, self.asked.unit_key, self.asked.unit_key
            )),
        }
    }

    fn tables(&mut self, table: &TableWithJoins, named: &Named, scope: &mut Scope<'_>) -> Checked<()> {
        let first = scope.relations.len();
        self.table(&table.relation, named, scope)?;
        for join in &table.joins {
            let before = scope.relations.len();
            self.table(&join.relation, named, scope)?;
            self.join(join, first, before, named, scope)?;
        }
        Ok(())
    }

    /// Joins the relations from `before` on to those from `first` on.
    fn join(&mut self, join: &Join, first: usize, before: usize, named: &Named, scope: &mut Scope<'_>) -> Checked<()> {
        let Some((constraint, outer)) = constraint(&join.join_operator) else {
            self.doubt("this kind of JOIN is not followed");
            return Ok(());
        };
        let (left, right) = (first..before, before..scope.relations.len());
        if outer != Outer::Neither && self.persons() {
            // A row that finds no other stays: what it is made of must be about one person before.
            for side in [left.clone(), right.clone()] {
                self.one_person(&scope.relations[side])?;
            }
        }
        match constraint {
            JoinConstraint::On(condition) => {
                scope.equal(condition, Place::Join, self.asked);
                self.expression(condition, scope, named)?;
            }
            JoinConstraint::Using(columns) => {
                for column in columns.iter().map(last) {
                    let with = |mut side: std::ops::Range<usize>, scope: &Scope<'_>| {
                        side.find(|at| scope.relations[*at].holds(&column, self.asked))
                    };
                    if let (Some(left), Some(right)) = (with(left.clone(), scope), with(right.clone(), scope)) {
                        scope.join(left, right);
                    }
                }
            }
            JoinConstraint::None => {}
            JoinConstraint::UsingAlias(..) | JoinConstraint::Natural => self.doubt("NATURAL JOIN is not followed: write ON or USING"),
        }
        let missing = match outer {
            Outer::Neither => 0..0,
            Outer::Left => right,
            Outer::Right => left,
            Outer::Full => first..scope.relations.len(),
        };
        scope.relations[missing].iter_mut().for_each(|relation| relation.nullable = true);
        Ok(())
    }

    fn table(&mut self, table: &TableFactor, named: &Named, scope: &mut Scope<'_>) -> Checked<()> {
        let joined = scope.relations.len();
        match table {
            TableFactor::Table { name, alias, args, sample, version, .. } => {
                if sample.is_some() {
                    return broken("TABLESAMPLE is chance of its own: the run draws its samples itself");
                }
                if args.is_some() || version.is_some() {
                    self.doubt(format!("the table function `{name}` is not followed"));
                }
                let full = name.0.iter().filter_map(|part| part.as_ident()).map(lower).collect::<Vec<_>>().join(".");
                let of_query = named.get(&full).filter(|_| name.0.len() == 1);
                let table = (of_query.is_none() && args.is_none()).then(|| name.to_string());
                let whose = match of_query {
                    Some(whose) => whose.clone(),
                    // What a function gives is told by nobody here: the doubt above stands for it.
                    None if args.is_some() => Whose::Public,
                    None if self.asked.public_tables.contains(&full) => Whose::Public,
                    None => {
                        self.tables.insert(name.to_string());
                        Whose::Table
                    }
                };
                let called = alias.as_ref().map_or_else(|| last(name), |alias| lower(&alias.name));
                if alias.as_ref().is_some_and(|alias| !alias.columns.is_empty()) {
                    self.doubt("a list of columns after a table's alias is not followed");
                }
                if scope.relations.iter().any(|relation| relation.name == called) {
                    self.doubt(format!("two tables are called `{called}`"));
                }
                scope.relations.push(Relation { name: called, table, whose, joined, nullable: false });
            }
            TableFactor::Derived { lateral, subquery, alias, sample } => {
                if sample.is_some() {
                    return broken("TABLESAMPLE is chance of its own: the run draws its samples itself");
                }
                if *lateral {
                    self.doubt("LATERAL is not followed");
                }
                let given = self.query(subquery, named, None)?;
                let (called, columns) = alias.as_ref().map_or((String::new(), &[][..]), |alias| (lower(&alias.name), &alias.columns[..]));
                let whose = self.renamed(given, columns).whose();
                scope.relations.push(Relation { name: called, table: None, whose, joined, nullable: false });
            }
            TableFactor::NestedJoin { table_with_joins, alias: None } => self.tables(table_with_joins, named, scope)?,
            _ => {
                self.doubt("a table function in FROM is not followed");
                scope.relations.push(Relation { name: String::new(), table: None, whose: Whose::Public, joined, nullable: false });
            }
        }
        Ok(())
    }

    fn groups(&mut self, select: &Select, scope: &Scope<'_>, named: &Named) -> Checked<Groups> {
        let GroupByExpr::Expressions(list, modifiers) = &select.group_by else {
            self.doubt("GROUP BY ALL is not followed");
            return Ok(Groups::None);
        };
        if list.is_empty() {
            return Ok(Groups::None);
        }
        let sets = list.iter().any(|by| matches!(by, Expr::Rollup(_) | Expr::Cube(_) | Expr::GroupingSets(_)));
        if sets || !modifiers.is_empty() {
            return broken("ROLLUP, CUBE and GROUPING SETS make rows about several persons: group by the person's id alone");
        }
        for by in list {
            self.expression(by, scope, named)?;
        }
        let by_person = self.persons() && list.iter().any(|by| self.id_or_position(by, select, scope));
        Ok(if by_person { Groups::Persons } else { Groups::Others })
    }

    /// Whether an expression is the person's id, or the position of a column that is. (A name may mean a table's column or an alias.)
    fn id_or_position(&self, by: &Expr, select: &Select, scope: &Scope<'_>) -> bool {
        if scope.is_id(by, self.asked) {
            return true;
        }
        let Expr::Value(value) = by else { return false };
        let item = match &value.value {
            // Behind a `*` nobody knows here which column a position means.
            Value::Number(text, _) => text.parse::<usize>().ok().and_then(|position| {
                let items = select.projection.get(..position)?;
                let all = items.iter().any(|item| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..)));
                items.last().filter(|_| !all)
            }),
            _ => None,
        };
        matches!(item, Some(SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. }) if scope.is_id(expression, self.asked))
    }

    /// The columns of a `SELECT`, and ids behind a `*`.
    fn columns(&mut self, select: &Select, scope: &Scope<'_>) -> (Vec<(Option<String>, bool)>, Vec<String>) {
        let (mut columns, mut further) = (Vec::new(), Vec::new());
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(expression) => columns.push((column_name(expression), scope.is_id(expression, self.asked))),
                SelectItem::ExprWithAlias { expr, alias } => columns.push((Some(lower(alias)), scope.is_id(expr, self.asked))),
                SelectItem::Wildcard(_) => scope.relations.iter().for_each(|relation| further.extend(relation.ids(self.asked))),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    let called = last(name);
                    scope
                        .relations
                        .iter()
                        .filter(|relation| relation.name == called)
                        .for_each(|relation| further.extend(relation.ids(self.asked)));
                }
                _ => self.doubt("a column that is no expression is not followed"),
            }
        }
        (columns, further)
    }

    fn expression(&mut self, expression: &Expr, scope: &Scope<'_>, named: &Named) -> Checked<()> {
        // A long chain of AND is a deep tree: its left side is followed in a loop.
        let mut expression = expression;
        while let Expr::BinaryOp { left, op, right } = expression {
            if matches!(op, BinaryOperator::Custom(_) | BinaryOperator::PGCustomBinaryOperator(_)) {
                self.doubt(format!("the operator `{op}` is not known here"));
            }
            self.expression(right, scope, named)?;
            expression = left;
        }
        let each = |checker: &mut Self, list: &[&Expr]| list.iter().try_for_each(|one| checker.expression(one, scope, named));
        match expression {
            Expr::Identifier(name) => self.column(name),
            Expr::CompoundIdentifier(names) => {
                self.qualified(names, scope);
                names.last().map_or(Ok(()), |name| self.column(name))
            }
            Expr::Value(value) => {
                self.text(&value.value);
                Ok(())
            }
            Expr::TypedString(typed) => {
                self.text(&typed.value.value);
                Ok(())
            }
            Expr::Interval(interval) => self.expression(&interval.value, scope, named),
            Expr::Nested(one)
            | Expr::IsFalse(one)
            | Expr::IsNotFalse(one)
            | Expr::IsTrue(one)
            | Expr::IsNotTrue(one)
            | Expr::IsNull(one)
            | Expr::IsNotNull(one)
            | Expr::IsUnknown(one)
            | Expr::IsNotUnknown(one)
            | Expr::UnaryOp { expr: one, .. }
            | Expr::Cast { expr: one, .. }
            | Expr::Extract { expr: one, .. }
            | Expr::Ceil { expr: one, .. }
            | Expr::Floor { expr: one, .. }
            | Expr::Collate { expr: one, .. } => self.expression(one, scope, named),
            Expr::IsDistinctFrom(a, b) | Expr::IsNotDistinctFrom(a, b) | Expr::Position { expr: a, r#in: b } => each(self, &[a, b]),
            Expr::AtTimeZone { timestamp, time_zone } => each(self, &[timestamp, time_zone]),
            Expr::Between { expr, low, high, .. } => each(self, &[expr, low, high]),
            Expr::Like { expr, pattern, .. } | Expr::ILike { expr, pattern, .. } | Expr::SimilarTo { expr, pattern, .. } => {
                each(self, &[expr, pattern])
            }
            Expr::Substring { expr, substring_from, substring_for, .. } => {
                let parts = [substring_from, substring_for].into_iter().flatten().map(AsRef::as_ref);
                each(self, &std::iter::once(expr.as_ref()).chain(parts).collect::<Vec<_>>())
            }
            Expr::Trim { expr, trim_what, .. } => {
                each(self, &std::iter::once(expr.as_ref()).chain(trim_what.as_deref()).collect::<Vec<_>>())
            }
            Expr::Case { operand, conditions, else_result, .. } => {
                let conditions = conditions.iter().flat_map(|when| [&when.condition, &when.result]);
                each(self, &operand.as_deref().into_iter().chain(conditions).chain(else_result.as_deref()).collect::<Vec<_>>())
            }
            Expr::Tuple(list) => each(self, &list.iter().collect::<Vec<_>>()),
            Expr::Array(array) => each(self, &array.elem.iter().collect::<Vec<_>>()),
            Expr::Function(function) => self.function(function, scope, named),
            Expr::Exists { subquery, .. } | Expr::Subquery(subquery) => {
                let given = self.query(subquery, named, Some(scope))?;
                about_the_same(&given, given.tied)
            }
            Expr::In { expr, target, negated, .. } => {
                self.expression(expr, scope, named)?;
                match target {
                    InTarget::List(list) => each(self, &list.iter().collect::<Vec<_>>()),
                    InTarget::Subquery(subquery) => {
                        let given = self.query(subquery, named, Some(scope))?;
                        // With NOT an id that is missing in any row would decide over all others.
                        let by_id = !negated && self.persons() && scope.is_id(expr, self.asked) && matches!(given.columns[..], [(_, true)]);
                        about_the_same(&given, given.tied || by_id)
                    }
                    _ => {
                        self.doubt("an expression of a rare kind is not followed");
                        Ok(())
                    }
                }
            }
            _ => {
                self.doubt("an expression of a rare kind is not followed");
                Ok(())
            }
        }
    }

    fn column(&self, name: &Ident) -> Checked<()> {
        let name_here = lower(name);
        match name_here.as_str() {
            column if words::physical(column) => {
                broken(format!("`{column}` says where a row is stored, which depends on other rows: leave it out"))
            }
            column if name.quote_style.is_none() && words::bare(column) => volatile(column),
            _ => Ok(()),
        }
    }

    /// `v.f` is a function of v's whole row, where v has no column of this name.
    fn qualified(&mut self, names: &[Ident], scope: &Scope<'_>) {
        let [.., table, column] = names else { return };
        match scope.called(&lower(table)).map(|relation| relation.table.clone()) {
            Some(Some(table)) => drop(self.columns.insert((table, lower(column)))),
            // Functions that take any row.
            _ if !matches!(words::kind(&lower(column), 1), Kind::Aggregate | Kind::Sum | Kind::List | Kind::Window | Kind::Row) => {}
            _ => self.doubt(format!("`{column}` of `{table}` may be a function: give the column another name")),
        }
    }

    fn text(&mut self, value: &Value) {
        if let Some(text) = value.clone().into_string()
            && words::passing(&text)
        {
            self.doubt("`now`, `today`, `tomorrow` and `yesterday` as dates depend on time: write the date that is meant");
        }
    }

    fn function(&mut self, function: &Function, scope: &Scope<'_>, named: &Named) -> Checked<()> {
        let name = last(&function.name);
        if function.name.0.len() > 1 && function.name.0.first().and_then(|part| part.as_ident()).map(lower).as_deref() != Some("pg_catalog")
        {
            self.doubt(format!("the function `{}` is not known here", function.name));
        }
        let (mut arguments, mut exact, mut ordered) = (0, true, !function.within_group.is_empty());
        match &function.args {
            FunctionArguments::None => {}
            FunctionArguments::Subquery(_) => self.doubt("a subquery as a function's argument is not followed"),
            FunctionArguments::List(list) => {
                arguments = list.args.len();
                for clause in &list.clauses {
                    match clause {
                        FunctionArgumentClause::OrderBy(by) => {
                            // Equal ones of the list are the same then.
                            ordered |= matches!(&list.args[..], [FunctionArg::Unnamed(FunctionArgExpr::Expr(one)), ..] if by.iter().any(|by| by.expr == *one));
                            by.iter().try_for_each(|by| self.expression(&by.expr, scope, named))?;
                        }
                        _ => self.doubt(format!("a clause of `{name}` is not followed")),
                    }
                }
                for argument in &list.args {
                    match argument {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(one)) => {
                            exact &= is_exact(one);
                            self.expression(one, scope, named)?;
                        }
                        FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => {}
                        _ => self.doubt(format!("an argument of `{name}` is not followed")),
                    }
                }
            }
        }
        if let Some(filter) = &function.filter {
            self.expression(filter, scope, named)?;
        }
        for OrderByExpr { expr, .. } in &function.within_group {
            self.expression(expr, scope, named)?;
        }
        let kind = words::kind(&name, arguments);
        match kind {
            Kind::Volatile => return volatile(&name),
            Kind::Unknown => self.doubt(format!("the function `{name}` is not known here")),
            Kind::Sum if !exact && scope.personal() => self.doubt(format!(
                "the last bits of `{name}` of floating-point numbers depend on the order of rows: write `{name}(x::numeric)`"
            )),
            Kind::List if !ordered && scope.personal() => {
                self.doubt(format!("`{name}` depends on the order of rows: write `{name}(x ORDER BY x)`"));
            }
            Kind::Row if scope.personal() => self.doubt(format!(
                "of rows that its window orders equally `{name}` takes one, which can depend on other rows of the table: order by enough columns"
            )),
            _ => {}
        }
        if scope.outer.is_some() && !self.persons() && matches!(kind, Kind::Aggregate | Kind::Sum | Kind::List) {
            self.doubt(format!("`{name}` in a subquery may be about the rows outside"));
        }
        self.aggregates |= function.over.is_none() && matches!(kind, Kind::Aggregate | Kind::Sum | Kind::List);
        match &function.over {
            None => Ok(()),
            Some(WindowType::NamedWindow(_)) => {
                self.doubt("named windows are not followed");
                Ok(())
            }
            Some(WindowType::WindowSpec(window)) => {
                for one in window.partition_by.iter().chain(window.order_by.iter().map(|by| &by.expr)) {
                    self.expression(one, scope, named)?;
                }
                if window.window_name.is_some() {
                    self.doubt("named windows are not followed");
                }
                let by_person = self.persons() && window.partition_by.iter().any(|by| scope.is_id(by, self.asked));
                if by_person || scope.tied || !scope.personal() {
                    return Ok(());
                }
                broken(format!("the window of `{name}` goes over several persons: PARTITION BY the person's id"))
            }
        }
    }
}

/// Whether a name in `DISTINCT ON` means a column of a table: it means a column of the answer first, where one is called so. A position does not matter here.
fn names_input(by: &Expr, select: &Select, scope: &Scope<'_>) -> bool {
    let Expr::Identifier(name) = by else { return true };
    let name = lower(name);
    select.projection.iter().all(|item| match item {
        SelectItem::UnnamedExpr(expression) => column_name(expression).is_none_or(|called| called != name) || is_name(expression, &name),
        SelectItem::ExprWithAlias { alias, expr } => lower(alias) != name || is_name(expr, &name),
        // Of several tables another one may have a column of this name.
        _ => scope.relations.len() == 1,
    })
}

/// Whether an expression is this column and nothing else.
fn is_name(expression: &Expr, name: &str) -> bool {
    matches!(expression, Expr::Identifier(column) if lower(column) == name)
}

/// By what a `SELECT` groups.
enum Groups {
    None,
    Persons,
    Others,
}

fn about_the_same(given: &Given, same: bool) -> Checked<()> {
    if !given.personal || same {
        return Ok(());
    }
    broken(
        "a subquery is not about the person of its row: compare the ids of both, with the tables' names (`inner.id = outer.id`), or ask `id IN (SELECT id …)`",
    )
}

/// Whether sums of an expression are exact, whatever their order. A column's type is not known here.
fn is_exact(expression: &Expr) -> bool {
    match expression {
        Expr::Nested(one) => is_exact(one),
        Expr::Cast { data_type, .. } => matches!(
            data_type,
            DataType::Numeric(_)
                | DataType::Decimal(_)
                | DataType::BigInt(None)
                | DataType::Int(None)
                | DataType::Integer(None)
                | DataType::SmallInt(None)
        ),
        Expr::Value(_) => true,
        Expr::Case { conditions, else_result, .. } => {
            conditions.iter().map(|when| &when.result).chain(else_result.as_deref()).all(is_exact)
        }
        _ => false,
    }
}

fn volatile<T>(name: &str) -> Checked<T> {
    broken(format!("`{name}` depends on time, chance or who asks: the same records must give the same rows; write the date that is meant"))
}

/// Which side of a join stays where it finds nothing.
#[derive(Clone, Copy, PartialEq)]
enum Outer {
    Neither,
    Left,
    Right,
    Full,
}

fn constraint(operator: &JoinOperator) -> Option<(&JoinConstraint, Outer)> {
    match operator {
        JoinOperator::Join(on) | JoinOperator::Inner(on) | JoinOperator::CrossJoin(on) => Some((on, Outer::Neither)),
        JoinOperator::Left(on) | JoinOperator::LeftOuter(on) => Some((on, Outer::Left)),
        JoinOperator::Right(on) | JoinOperator::RightOuter(on) => Some((on, Outer::Right)),
        JoinOperator::FullOuter(on) => Some((on, Outer::Full)),
        _ => None,
    }
}

/// The name under which PostgreSQL gives a column.
fn column_name(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Identifier(name) => Some(lower(name)),
        Expr::CompoundIdentifier(names) => names.last().map(lower),
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => column_name(inner),
        _ => None,
    }
}

fn last(name: &ObjectName) -> String {
    name.0.last().and_then(|part| part.as_ident()).map_or_else(String::new, lower)
}
