//! How the levels of a category become entries of the feature row.

/// How L levels become entries. Every coding but [`Coding::Full`] leaves room for an intercept: its coefficients can be read alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// L entries, 1 at the record's level. With an intercept only differences of two coefficients have a meaning.
    Full,
    /// L − 1 entries, 1 at the record's level, none at the reference. A coefficient is the level's difference from the reference.
    Treatment {
        /// Position of the reference in the list of levels.
        reference: usize,
    },
    /// L − 1 entries, 1 at the record's level, all −1 at the last one. A coefficient is the level's difference from the mean of all
    /// levels.
    Sum,
}

/// The entries of one level that are not 0. Positions count from the column's offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelEntries {
    /// None: the reference level.
    None,
    /// A 1 at this position.
    One(u32),
    /// −1 at each of so many positions, from the first one on.
    MinusOnes(u32),
}

impl LevelEntries {
    /// The entries as (position, value).
    pub fn iter(self) -> impl Iterator<Item = (u32, f64)> {
        let (range, value) = match self {
            Self::None => (0..0, 0.0),
            Self::One(position) => (position..position + 1, 1.0),
            Self::MinusOnes(count) => (0..count, -1.0),
        };
        range.map(move |position| (position, value))
    }
}

impl Coding {
    /// Number of entries of L levels.
    #[must_use]
    pub fn width(self, levels: usize) -> usize {
        match self {
            Self::Full => levels,
            Self::Treatment { .. } | Self::Sum => levels - 1,
        }
    }

    /// The entries of one of L levels, by its position in the list of levels.
    #[must_use]
    #[inline]
    pub fn entries(self, level: u32, levels: usize) -> LevelEntries {
        match self {
            Self::Full => LevelEntries::One(level),
            Self::Treatment { reference } => match (level as usize).cmp(&reference) {
                std::cmp::Ordering::Less => LevelEntries::One(level),
                std::cmp::Ordering::Equal => LevelEntries::None,
                std::cmp::Ordering::Greater => LevelEntries::One(level - 1),
            },
            Self::Sum if level as usize + 1 == levels => LevelEntries::MinusOnes(level),
            Self::Sum => LevelEntries::One(level),
        }
    }

    /// Names of the coefficients of a column: `ward=surgery`, under sum coding `ward=surgery vs mean`.
    pub(crate) fn names(self, column: &str, levels: &[String]) -> Vec<String> {
        let suffix = if self == Self::Sum { " vs mean" } else { "" };
        let is_named = |level: u32| matches!(self.entries(level, levels.len()), LevelEntries::One(_));
        (0_u32..).zip(levels).filter(|(level, _)| is_named(*level)).map(|(_, value)| format!("{column}={value}{suffix}")).collect()
    }

    /// The greatest number of entries that one of L levels fills; all of them are 1 or −1, so it is also the greatest squared norm.
    #[must_use]
    pub(crate) fn most_entries(self, levels: usize) -> usize {
        match self {
            Self::Full | Self::Treatment { .. } => 1,
            Self::Sum => self.width(levels),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use crate::{ColumnKind, Schema};

    /// A schema with one category of three levels.
    fn schema(head: &str, keys: &str) -> String {
        format!(
            "{head}\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n\
             [[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = [\"a\", \"b\", \"c\"]\n{keys}"
        )
    }

    /// The rows of the levels a, b and c.
    fn rows(schema: &Schema) -> Vec<Vec<f64>> {
        let ColumnKind::Category(rule) = &schema.columns()[1].kind else { panic!("a category") };
        (0..3)
            .map(|level| {
                let mut row = vec![0.0; rule.coding.width(rule.values.len())];
                rule.coding.entries(level, rule.values.len()).iter().for_each(|(position, value)| row[position as usize] = value);
                row
            })
            .collect()
    }

    #[test]
    fn the_first_level_is_the_reference() {
        let schema = Schema::asking("died ~ .", &schema("", "")).unwrap();
        assert_eq!(schema.coefficient_names(), ["ward=b", "ward=c", "(intercept)"]);
        assert_eq!(rows(&schema), [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]);
        assert_eq!((schema.dimension(), schema.max_nonzeros(), schema.intercept()), (3, 2, Some(2)));
        assert!((schema.worst_case_norm() - 2_f64.sqrt()).abs() < 1e-11);
    }

    #[test]
    fn a_named_reference_leaves_out_its_own_entry() {
        let schema = Schema::asking("died ~ .", &schema("version = 2", "coding = \"treatment\"\nreference = \"b\"")).unwrap();
        assert_eq!(schema.coefficient_names(), ["ward=a", "ward=c", "(intercept)"]);
        assert_eq!(rows(&schema), [[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]]);
    }

    #[test]
    fn the_last_level_of_a_sum_coding_is_minus_the_others_and_sets_the_bound() {
        let schema = Schema::asking("died ~ .", &schema("version = 2", "coding = \"sum\"")).unwrap();
        assert_eq!(schema.coefficient_names(), ["ward=a vs mean", "ward=b vs mean", "(intercept)"]);
        assert_eq!(rows(&schema), [[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]);
        assert_eq!((schema.dimension(), schema.max_nonzeros()), (3, 3));
        // Two entries of the last level and the intercept.
        assert!((schema.worst_case_norm() - 3_f64.sqrt()).abs() < 1e-11);
        assert!((schema.max_abs_entry() - 1.0).abs() < 1e-15);
    }

    #[test]
    fn full_coding_has_one_entry_for_every_level() {
        let schema = Schema::asking("died ~ .", &schema("version = 2", "coding = \"full\"")).unwrap();
        assert_eq!(schema.coefficient_names(), ["ward=a", "ward=b", "ward=c", "(intercept)"]);
        assert_eq!(rows(&schema), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]);
    }

    #[test]
    fn without_an_intercept_the_first_category_keeps_all_levels() {
        let second = "[[columns]]\nname = \"sex\"\nkind = \"category\"\nvalues = [\"f\", \"m\"]\n";
        let text = schema("version = 2", second);
        assert_eq!(Schema::asking("died ~ 0 + .", &text).unwrap().coefficient_names(), ["ward=a", "ward=b", "ward=c", "sex=m"]);
        let stated = text.replace("\"c\"]", "\"c\"]\ncoding = \"treatment\"");
        assert_eq!(Schema::asking("died ~ 0 + .", &stated).unwrap().coefficient_names(), ["ward=b", "ward=c", "sex=m"]);
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for (head, keys, part) in [
            ("version = 1", "", "`version` must be 2, the only one"),
            ("version = 3", "", "`version` must be 2, the only one"),
            ("version = 2", "coding = \"helmert\"", "helmert"),
            ("version = 2", "reference = \"d\"", "`reference = \"d\"` is none of `values`"),
            ("version = 2", "coding = \"sum\"\nreference = \"a\"", "treatment"),
        ] {
            let error = Schema::asking("died ~ .", &schema(head, keys)).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        for coding in ["treatment", "sum"] {
            let text = schema("version = 2", &format!("coding = \"{coding}\"")).replace(", \"b\", \"c\"", "");
            let error = Schema::asking("died ~ .", &text).unwrap_err().to_string();
            assert!(error.contains("one level"), "{error}");
        }
    }
}
