//! Origin of a site's rows, as the site declares it; no other party can check it.

use dp_pvi_names::ClientId;
use serde::{Deserialize, Serialize};

/// Where a site's rows come from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Origin {
    /// What makes a row.
    pub by: RowsBy,
    /// Tables of the description that hold nothing of any person, with their schemas.
    pub public_tables: Vec<String>,
    /// Views and other relations of the description for whose rows the site's operator vouches.
    pub vouched: Vec<String>,
}

/// What makes a row of a site's table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RowsBy {
    /// A row, or a unit, of its files.
    #[default]
    Files,
    /// A description of database tables, by which each person's rows are made of that person's records and public tables alone
    /// (`proofs/database_rows.md` of `dp-pvi-privacy`).
    Description,
    /// A query of which the site's operator says so.
    Query,
}

/// Relations that an origin may name.
pub const RELATIONS: usize = 32;
/// Bytes of the name of one: two names of 63 bytes and a point.
pub(crate) const RELATION_BYTES: usize = 127;

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.by {
            RowsBy::Files => "those of files",
            RowsBy::Description => "made by a description of database tables",
            RowsBy::Query => "made by a query that an operator vouches for",
        })?;
        for (what, relations) in [("public", &self.public_tables), ("vouched for", &self.vouched)] {
            if !relations.is_empty() {
                write!(f, ", {what}: {}", relations.join(", "))?;
            }
        }
        Ok(())
    }
}

impl Origin {
    /// What a reader of the statement should know; nothing for files.
    #[must_use]
    pub fn sentence(&self, site: &ClientId) -> Option<String> {
        let mut words = match self.by {
            RowsBy::Files => return None,
            RowsBy::Query => return Some(format!("Rows of {site} by a query that its operator vouches for.")),
            RowsBy::Description => format!("Rows of {site} by a description of database tables"),
        };
        if !self.public_tables.is_empty() {
            words.push_str(&format!("; without anything of a person, as its operator says: {}", self.public_tables.join(", ")));
        }
        if !self.vouched.is_empty() {
            words.push_str(&format!("; its operator vouches for the rows of {}", self.vouched.join(", ")));
        }
        words.push('.');
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_operator_s_is_told_from_a_construction() {
        let site = ClientId::new("hospital-3").unwrap();
        let described = Origin { by: RowsBy::Description, public_tables: vec!["v.concept".into()], vouched: Vec::new() };
        let of_view = Origin { vouched: vec!["public.seen".into()], ..described.clone() };
        let query = Origin { by: RowsBy::Query, ..Origin::default() };
        assert_eq!(Origin::default().sentence(&site), None);
        assert_eq!(query.sentence(&site).unwrap(), "Rows of hospital-3 by a query that its operator vouches for.");
        assert!(described.sentence(&site).unwrap().ends_with("as its operator says: v.concept."));
        assert!(of_view.sentence(&site).unwrap().ends_with("vouches for the rows of public.seen."));
    }
}
