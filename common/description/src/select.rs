//! The SQL that is made of a description. Names are quoted, operators and types are those of `pg_catalog`, and no expression of it can fail on a value:
//! there are columns, comparisons of columns with constants of their own type, and joins of public tables by equality.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::family::Family;
use crate::{Description, Filter, Source, Table, Test};

/// An identifier.
#[must_use]
pub fn name(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// A literal, with `standard_conforming_strings` on.
#[must_use]
pub fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn relation_name(table: &Table, only: bool) -> String {
    format!("{}{}.{}", if only { "ONLY " } else { "" }, name(&table.schema), name(&table.name))
}

/// Keeps the tables of a description until the transaction ends: `TRUNCATE` and changes of columns, keys and rules wait. New indexes, statistics and partitions do not
/// wait: the catalogue is asked once more when all questions are planned.
#[must_use]
pub fn locks(description: &Description) -> String {
    let tables = description.sources.iter().map(|source| &source.table).chain(&description.public);
    let tables: BTreeSet<&Table> = tables.filter(|table| !description.vouched.contains(table)).collect();
    let names: Vec<String> = tables.into_iter().map(|table| relation_name(table, false)).collect();
    if names.is_empty() { String::new() } else { format!("LOCK TABLE {} IN ACCESS SHARE MODE", names.join(", ")) }
}

/// Asks the catalogue for a relation: oid, kind, row security, whether tables inherit from it, whether a partition is no ordinary table, whether it is a
/// partition, whether its rows are stored by another method than PostgreSQL's own, whether functions of the site's stand where the planner calls them, whether operators of
/// the site's stand among those that are asked with.
///
/// The planner computes what is constant in expressions of indexes, statistics and partition keys. PostgreSQL's own objects have numbers below 16384. Of the site's types
/// enumerations and arrays of them alone call nothing of the site's when they are compared.
#[must_use]
pub fn relation(table: &Table) -> String {
    format!(
        "SELECT c.oid, c.relkind, c.relrowsecurity, \
         EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid), \
         c.relkind = 'p' AND EXISTS (SELECT 1 FROM pg_catalog.pg_partition_tree(c.oid) t JOIN pg_catalog.pg_class p ON p.oid = t.relid WHERE p.relkind NOT IN ('r', 'p')), \
         c.relispartition, \
         EXISTS (SELECT 1 FROM pg_catalog.pg_class m JOIN pg_catalog.pg_am a ON a.oid = m.relam WHERE a.amname <> 'heap' AND (m.oid = c.oid \
         OR c.relkind = 'p' AND m.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(c.oid) t))), \
         EXISTS (SELECT 1 FROM pg_catalog.pg_depend d JOIN (SELECT c.oid UNION SELECT t.relid FROM pg_catalog.pg_partition_tree(c.oid) t) parts(oid) \
         ON d.classid = 'pg_catalog.pg_class'::pg_catalog.regclass AND (d.objid = parts.oid AND d.objsubid = 0 \
         OR d.objid IN (SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = parts.oid)) \
         OR d.classid = 'pg_catalog.pg_statistic_ext'::pg_catalog.regclass \
         AND d.objid IN (SELECT s.oid FROM pg_catalog.pg_statistic_ext s WHERE s.stxrelid = parts.oid) \
         WHERE d.refobjid >= 16384 AND d.refclassid IN ('pg_catalog.pg_proc'::pg_catalog.regclass, 'pg_catalog.pg_operator'::pg_catalog.regclass, \
         'pg_catalog.pg_opclass'::pg_catalog.regclass, 'pg_catalog.pg_type'::pg_catalog.regclass) \
         AND (d.refclassid IN ('pg_catalog.pg_proc'::pg_catalog.regclass, 'pg_catalog.pg_operator'::pg_catalog.regclass) \
         OR d.refclassid = 'pg_catalog.pg_opclass'::pg_catalog.regclass AND d.objid = parts.oid \
         OR d.refclassid = 'pg_catalog.pg_type'::pg_catalog.regclass AND d.refobjid NOT IN \
         (SELECT k.oid FROM pg_catalog.pg_type k LEFT JOIN pg_catalog.pg_type e ON e.oid = k.typelem AND k.typcategory = 'A' \
         WHERE k.typtype = 'e' OR k.typtype = 'b' AND e.typtype = 'e'))) \
         OR EXISTS (SELECT 1 FROM pg_catalog.pg_partitioned_table p JOIN pg_catalog.pg_attribute a ON a.attrelid = p.partrelid AND a.attnum = ANY (p.partattrs::pg_catalog.int2[]) \
         JOIN pg_catalog.pg_type k ON k.oid = a.atttypid WHERE k.oid >= 16384 AND k.typtype <> 'e' \
         AND p.partrelid IN (SELECT c.oid UNION SELECT t.relid FROM pg_catalog.pg_partition_tree(c.oid) t)), \
         EXISTS (SELECT 1 FROM pg_catalog.pg_operator o WHERE o.oid >= 16384 AND o.oprnamespace = 'pg_catalog'::pg_catalog.regnamespace \
         AND o.oprname IN ('=', '<=', '>=') AND (o.oprleft < 16384 OR o.oprright < 16384)) \
         OR EXISTS (SELECT 1 FROM pg_catalog.pg_collation o WHERE o.oid >= 16384 AND o.collname = 'C' AND o.collnamespace = 'pg_catalog'::pg_catalog.regnamespace) \
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = {} AND c.relname = {}",
        literal(&table.schema),
        literal(&table.name)
    )
}

/// Asks the catalogue for the columns of a relation: name, not null, generated, schema (none of a type that is not PostgreSQL's own), name and kind of the type without domains, whether its collation
/// is deterministic, whether it alone is unique.
#[must_use]
pub fn columns(oid: &str) -> String {
    format!(
        "WITH RECURSIVE kinds AS (\
         SELECT a.attnum, a.attname, a.attnotnull, EXISTS (SELECT 1 FROM pg_catalog.pg_attribute g WHERE g.attname = a.attname AND g.attgenerated <> '' \
         AND (g.attrelid = a.attrelid OR g.attrelid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(a.attrelid) t))) AS generated, a.attcollation, a.atttypid AS kind \
         FROM pg_catalog.pg_attribute a WHERE a.attrelid = {oid}::pg_catalog.oid AND a.attnum > 0 AND NOT a.attisdropped \
         UNION ALL SELECT k.attnum, k.attname, k.attnotnull, k.generated, k.attcollation, t.typbasetype \
         FROM kinds k JOIN pg_catalog.pg_type t ON t.oid = k.kind WHERE t.typtype = 'd') \
         SELECT k.attname, k.attnotnull, k.generated, CASE WHEN t.oid < 16384 THEN n.nspname ELSE '' END, t.typname, t.typtype, \
         NOT EXISTS (SELECT 1 FROM pg_catalog.pg_collation c WHERE c.oid = k.attcollation AND NOT c.collisdeterministic), \
         EXISTS (SELECT 1 FROM pg_catalog.pg_index i JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[0] AND o.oid < 16384 \
         WHERE i.indrelid = {oid}::pg_catalog.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL \
         AND i.indnkeyatts = 1 AND i.indkey[0] = k.attnum AND o.opcdefault) \
         FROM kinds k JOIN pg_catalog.pg_type t ON t.oid = k.kind JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE t.typtype <> 'd'"
    )
}

/// The rows of a source: its key and its cells, ordered by the key.
#[must_use]
pub fn source(source: &Source, key: Family, only: &dyn Fn(&Table) -> bool, family: &dyn Fn(&Table, &str) -> Family) -> String {
    let from = |table: &Table| relation_name(table, only(table));
    let mut cells = format!("t.{}", name(&source.key));
    let mut joins = String::new();
    // Writing to a text cannot fail.
    for (place, fetched) in source.fetched.iter().enumerate() {
        let column = format!("t.{}", name(&fetched.column));
        match &fetched.lookup {
            None => {
                let _ = write!(cells, ", {column}");
            }
            Some(lookup) => {
                let own = comparable(&column, family(&source.table, &fetched.column));
                let key = format!("l{place}.{}", name(&lookup.key));
                let key = comparable(&key, family(&lookup.table, &lookup.key));
                let _ = write!(cells, ", l{place}.{}", name(&lookup.column));
                let _ = write!(joins, " LEFT JOIN {} AS l{place} ON {own} OPERATOR(pg_catalog.=) {key}", from(&lookup.table));
            }
        }
    }
    let own = format!("t.{}", name(&source.key));
    let mut conditions = format!("{own} IS NOT NULL");
    for filter in &source.filters {
        let _ = write!(conditions, " AND {}", condition("t", &source.table, filter, &from, family));
    }
    format!("SELECT {cells} FROM {} AS t{joins} WHERE {conditions} ORDER BY {}", from(&source.table), comparable(&own, key))
}

/// A column whose equality and order are those of its bytes or numbers. As a text: of `varchar` the site may have a default order of its own.
fn comparable(column: &str, family: Family) -> String {
    if family == Family::Text { format!("{column}::pg_catalog.text COLLATE pg_catalog.\"C\"") } else { column.to_owned() }
}

fn condition(
    alias: &str,
    table: &Table,
    filter: &Filter,
    from: &dyn Fn(&Table) -> String,
    family: &dyn Fn(&Table, &str) -> Family,
) -> String {
    let kind = family(table, &filter.column);
    let plain = format!("{alias}.{}", name(&filter.column));
    let column = comparable(&plain, kind);
    let against = |operator: &str, constant: &str| format!("{column} OPERATOR(pg_catalog.{operator}) {}", typed(kind, constant));
    match &filter.test {
        Test::Missing(missing) => format!("{plain} IS {}NULL", if *missing { "" } else { "NOT " }),
        Test::In(values) if kind == Family::Integer => {
            format!("{column} OPERATOR(pg_catalog.=) ANY ('{{{}}}'::pg_catalog.int8[])", values.join(","))
        }
        Test::In(values) => {
            let each: Vec<String> = values.iter().map(|value| against("=", value)).collect();
            format!("({})", each.join(" OR "))
        }
        Test::Between { from, to } => {
            let bounds = [(">=", from), ("<=", to)];
            let each: Vec<String> = bounds.iter().filter_map(|(operator, bound)| Some(against(operator, bound.as_ref()?))).collect();
            format!("({})", each.join(" AND "))
        }
        Test::Among { table: public, column: of, filters } => {
            let value = comparable(&format!("s.{}", name(of)), family(public, of));
            let conditions: Vec<String> = filters.iter().map(|filter| condition("s", public, filter, from, family)).collect();
            let conditions = if conditions.is_empty() { String::new() } else { format!(" WHERE {}", conditions.join(" AND ")) };
            format!("{column} OPERATOR(pg_catalog.=) ANY (SELECT {value} FROM {} AS s{conditions})", from(public))
        }
    }
}

/// A constant as a literal of the column's family.
fn typed(family: Family, constant: &str) -> String {
    let kind = match family {
        Family::Integer => "int8",
        Family::Decimal => "numeric",
        Family::Float => "float8",
        Family::Real => "float4",
        Family::Text | Family::Enumeration => "text",
        Family::Truth => "bool",
        Family::Date | Family::Time => "timestamp",
        Family::Uuid => "uuid",
    };
    format!("{}::pg_catalog.{kind}", literal(constant))
}
