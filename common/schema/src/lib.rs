#![doc = include_str!("../README.md")]

use std::collections::HashSet;

pub mod coding;
pub mod content;
mod counts;
mod csv;
pub mod dates;
pub mod fill;
pub mod formula;
mod plain;
pub mod public;
pub mod published;
mod raw;
#[cfg(test)]
mod tests;
pub mod text;

/// Why a text is not a schema. Every message names the column and says what to write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// Not TOML, or a key that does not exist.
    #[error("the schema cannot be read: {0}")]
    Unreadable(String),
    /// A column that contradicts itself.
    #[error("schema, column `{column}`: {problem}")]
    Column {
        /// Name of the column.
        column: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// The schema as a whole.
    #[error("schema: {0}")]
    Whole(String),
    /// A formula that is none, or none for this schema.
    #[error(transparent)]
    Formula(#[from] formula::FormulaError),
}

/// A checked public schema. See the [module](self) for its file format.
#[derive(Debug, Clone, PartialEq)]
pub struct Schema {
    content: content::Content,
    columns: Vec<Column>,
    label: Label,
    /// Positions of the label's columns.
    outcome: Vec<usize>,
    unit_column: Option<String>,
    missing_tokens: Vec<String>,
    other_columns: OtherColumns,
    intercept: Option<u32>,
    csv: CsvFormat,
    dimension: u32,
    max_nonzeros: u32,
    worst_case_norm: f64,
    norm_bound: f64,
    /// What the text says of the longest row.
    written_bound: Option<f64>,
    design: Option<Box<formula::Design>>,
    fills: Vec<fill::Fill>,
}

/// One described column.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// Name in the file.
    pub name: String,
    /// What it holds.
    pub kind: ColumnKind,
    /// Whether a formula that uses the column has an entry that is 1 where it has no value.
    pub has_indicator: bool,
    /// What has been published about it, for forecasts.
    pub published: Option<published::Published>,
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnKind {
    /// One entry of x.
    Number(NumberRule),
    /// Entries of x by the levels' coding.
    Category(CategoryRule),
    /// One entry of x: 1 for true.
    Boolean(BooleanRule),
    /// No entry of x; never parsed.
    Ignored,
}

/// A number: clamp to [`lower`, `upper`], transform, subtract `centre`, divide by `scale`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NumberRule {
    /// Least value, in the unit of the file.
    pub lower: f64,
    /// Greatest value, in the unit of the file.
    pub upper: f64,
    /// What happens to a value outside.
    pub outside: Outside,
    /// Applied before centre and scale.
    pub transform: Transform,
    /// Public constant that becomes 0, after the transform.
    pub centre: f64,
    /// Public constant that becomes 1 above the centre.
    pub scale: f64,
    /// So many units of the file, after the transform, are the step for which an effect is reported; it does not enter the encoding.
    pub report_per: f64,
    /// What happens to a missing value.
    pub missing: CellPolicy,
    /// What stands in for a missing value, in the unit of the file and inside the range; absent: what has the entry 0, or what [`Schema::fills`] say.
    pub fill: Option<f64>,
    /// What happens to text that is no finite number.
    pub invalid: CellPolicy,
    /// Cells are dates, and the number is in days; absent: cells are numbers.
    pub date: Option<dates::DateRule>,
}

/// A category: entries of x by the levels' coding.
#[derive(Debug, Clone, PartialEq)]
pub struct CategoryRule {
    /// Levels in the order of their entries; at least two, but for full coding.
    pub values: Vec<String>,
    /// How they become entries.
    pub coding: coding::Coding,
    /// Whether the schema says so itself: otherwise the first category beside no intercept has an entry for every level.
    pub states_coding: bool,
    /// When a cell is a level.
    pub matching: Matching,
    /// What happens to a missing value.
    pub missing: CellPolicy,
    /// What happens to a level that is not listed.
    pub invalid: CellPolicy,
}

/// A truth value: true is 1, false is 0.
#[derive(Debug, Clone, PartialEq)]
pub struct BooleanRule {
    /// Texts that mean true.
    pub true_values: Vec<String>,
    /// Texts that mean false.
    pub false_values: Vec<String>,
    /// What happens to a missing value.
    pub missing: CellPolicy,
    /// What happens to a text in neither list.
    pub invalid: CellPolicy,
}

/// What a formula predicts: the outcome, as a column or several of the schema say it.
#[derive(Debug, Clone, PartialEq)]
pub struct Label {
    /// Name of the column; for survival that of the time. Empty where nothing is predicted.
    pub column: String,
    /// What it holds.
    pub kind: LabelKind,
    /// What has been published about it, for forecasts.
    pub published: Option<published::Published>,
}

/// What an outcome is.
#[derive(Debug, Clone, PartialEq)]
pub enum LabelKind {
    /// Of a boolean: the target is 1 for true and 0 for false.
    Binary {
        /// Texts of the class 1.
        positive: Vec<String>,
    },
    /// Of a category: the target is the position of the level in the list, from 0.
    Classes {
        /// Their texts, in order: at least two, each once.
        values: Vec<String>,
    },
    /// Of a number: the target is its entry.
    Number {
        /// The column's rule; for counts without transform, centre and scale.
        rule: NumberRule,
        /// Whether a number that is not whole is none.
        whole: bool,
    },
    /// A time until an event, or until the record was not watched any more.
    Survival(SurvivalRule),
    /// Nothing is predicted; every target is 0.
    Absent,
}

/// A survival time: the target is the time, in the unit of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct SurvivalRule {
    /// Times, without transform, centre and scale. Who is watched beyond the upper end without `outside = "reject"` or `"drop"` counts as watched until there, without
    /// an event.
    pub time: NumberRule,
    /// Name of the column that says whether the time ended with the event.
    pub event_column: String,
    /// Its rule.
    pub event: BooleanRule,
    /// The time from which on a record was watched; absent: from 0 on.
    pub entry: Option<EntryRule>,
}

/// The time from which on a record was watched.
#[derive(Debug, Clone, PartialEq)]
pub struct EntryRule {
    /// Name of the column.
    pub column: String,
    /// Its rule, without transform, centre and scale.
    pub rule: NumberRule,
}

/// What happens to a number outside its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outside {
    /// It becomes the nearer end.
    Clamp,
    /// As [`CellPolicy::Reject`].
    Reject,
    /// The record contributes 0.
    Drop,
}

/// What happens to a cell that holds no value of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellPolicy {
    /// Every entry of the field is 0 (for a number: as if the value were its centre, or the fill where the column has one).
    Zero,
    /// Before a run an error that names row and column; in a run the record contributes 0.
    Reject,
    /// The record contributes 0.
    Drop,
}

/// Change of a number before centre and scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Transform {
    /// None.
    Identity,
    /// log(1 + x), for skewed amounts.
    Log1p,
}

/// When a cell is a level of a category.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matching {
    /// The texts are equal.
    Text,
    /// The numbers are equal: `3` is `3.0`.
    Number,
}

/// What happens to columns of a file that the schema does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OtherColumns {
    /// The file is not loaded.
    Reject,
    /// They are not read.
    Ignore,
}

/// How text files are cut into cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsvFormat {
    /// Between two cells.
    pub delimiter: u8,
    /// Names of the columns in order, for files without a header line.
    pub names: Option<Vec<String>>,
    /// Blanks around the text of a cell; of Parquet's and a database's, too.
    pub blanks: Blanks,
    /// First character of lines that hold no values.
    pub comment: Option<u8>,
    /// Before the decimals of a number: `.` or `,`.
    pub decimal: u8,
    /// What the bytes of a file mean.
    pub encoding: Encoding,
}

/// What the bytes of a text file mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// UTF-8.
    Utf8,
    /// Two bytes a unit, the lower one first.
    Utf16Le,
    /// Two bytes a unit, the higher one first.
    Utf16Be,
    /// One byte a character, by the name of the encoding.
    Single(&'static str),
}

impl Encoding {
    /// Names of all encodings, as a schema writes them.
    pub const NAMES: [&'static str; 15] = [
        "utf-8",
        "utf-16le",
        "utf-16be",
        "windows-1250",
        "windows-1251",
        "windows-1252",
        "windows-1253",
        "windows-1254",
        "windows-1257",
        "iso-8859-1",
        "iso-8859-2",
        "iso-8859-5",
        "iso-8859-7",
        "iso-8859-9",
        "iso-8859-15",
    ];

    /// The encoding of a name, in small or capital letters.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let name = Self::NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name))?;
        Some(match name {
            "utf-8" => Self::Utf8,
            "utf-16le" => Self::Utf16Le,
            "utf-16be" => Self::Utf16Be,
            name => Self::Single(name),
        })
    }

    /// As a schema writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "utf-8",
            Self::Utf16Le => "utf-16le",
            Self::Utf16Be => "utf-16be",
            Self::Single(name) => name,
        }
    }
}

/// Blanks around the text of a cell, whatever the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blanks {
    /// Are not part of the value.
    Trimmed,
    /// Are part of the value.
    Kept,
}

impl Schema {
    /// Parses and checks the text of a schema file. Names and texts in it are read as those of records are ([`text`]).
    ///
    /// # Errors
    /// See [`SchemaError`].
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        plain::check(text)?;
        match content::parse(text)? {
            Some(schema) => Ok(schema),
            None => raw::parse(text),
        }
    }

    /// The same schema for the records of one site, whose rows have its effects. Where the formula has no effects of sites, this is the same schema.
    ///
    /// # Errors
    /// The site is not in the formula's list.
    pub fn of_site(self, name: &str) -> Result<Self, SchemaError> {
        let Some(design) = self.design.as_deref().cloned().filter(|design| !design.sites().is_empty()) else { return Ok(self) };
        let known = design.sites().join(", ");
        match design.of_site(name) {
            Some(design) => Ok(Self { design: Some(Box::new(design)), ..self }),
            None => Err(SchemaError::Whole(format!(
                "site `{name}` is not in the list of sites that the formula's effects of sites are for ({known}): it belongs into [model] sites of the task, on which all sites agree"
            ))),
        }
    }

    /// The same schema with rows that are made by a formula. `sites` are the names of all sites, in any order; only effects of sites need them.
    ///
    /// # Errors
    /// The formula is none, names what the schema does not have, or predicts what a fill of its columns looks at.
    pub fn with_formula(self, text: &str, sites: &[String]) -> Result<Self, SchemaError> {
        if self.content != content::Content::Table {
            return Err(SchemaError::Whole("a formula is for tables: documents and images have no columns".into()));
        }
        self.asked(text, sites, None)
    }

    /// The schema of a text, with a formula: for one that is asked one question.
    ///
    /// # Errors
    /// See [`Self::parse`] and [`Self::with_formula`].
    pub fn asking(formula: &str, text: &str) -> Result<Self, SchemaError> {
        Self::parse(text)?.with_formula(formula, &[])
    }

    fn asked(self, text: &str, sites: &[String], weights: Option<&str>) -> Result<Self, SchemaError> {
        let asked = formula::asked(text, sites, &self.columns, (self.unit_column(), weights))?;
        let schema = Self { label: asked.label, outcome: asked.outcome, ..self }.with_design(asked.design);
        match schema.fill_of_outcome() {
            None => Ok(schema),
            Some(error) => Err(error),
        }
    }

    /// What refuses a fill of a used column that looks at the outcome: nothing that is predicted may depend on it.
    fn fill_of_outcome(&self) -> Option<SchemaError> {
        let used: Vec<&str> = self.used_columns().map(|column| column.name.as_str()).collect();
        let is_used = |fill: &&fill::Fill| used.contains(&self.columns[fill.column()].name.as_str());
        let looks = |fill: &&fill::Fill| fill.sources().any(|source| self.outcome.contains(&source));
        let fill = self.fills.iter().filter(is_used).find(looks)?;
        Some(SchemaError::Column {
            column: self.columns[fill.column()].name.clone(),
            problem: format!(
                "its `fill` looks at `{}`, which the formula predicts: leave the column out of the formula, or the other one out of the fill",
                self.label.column
            ),
        })
    }

    /// The same without a coefficient for the intercept of a formula, which counts for the coding of factors all the same: of models that have other constants.
    #[must_use]
    pub fn without_intercept(mut self) -> Self {
        match self.design.take() {
            Some(design) => self.with_design(design.without_intercept()),
            None => self,
        }
    }

    fn with_design(self, design: formula::Design) -> Self {
        let worst_case_norm = rounded_up(design.worst_case_norm());
        Self {
            intercept: design.intercept(),
            dimension: design.dimension(),
            max_nonzeros: design.max_nonzeros(),
            worst_case_norm,
            norm_bound: self.written_bound.map_or(worst_case_norm, |bound| bound.min(worst_case_norm)),
            design: Some(Box::new(design)),
            ..self
        }
    }

    /// The same schema whose records count as many times as a number column says: its value in the unit of the file, clamped to its range. The formula does not name it.
    ///
    /// # Errors
    /// There is no formula, or the column is no number that is 0 or more and that every record has.
    pub fn with_weights(mut self, column: &str) -> Result<Self, SchemaError> {
        let column = &*text::read(column);
        let fail = |problem: &str| Err(SchemaError::Column { column: column.to_owned(), problem: problem.to_owned() });
        let Some(position) = self.columns.iter().position(|described| described.name == column) else {
            return fail("is to be the weight of records and is not described: add it to `[[columns]]` with kind = \"number\"");
        };
        let described = &self.columns[position];
        let ColumnKind::Number(rule) = &described.kind else {
            return fail("is to be the weight of records and is no number: give it kind = \"number\"");
        };
        if rule.lower < 0.0 {
            return fail("is the weight of records: it needs `lower` of 0 or more");
        }
        if rule.missing == CellPolicy::Zero || rule.invalid == CellPolicy::Zero || described.has_indicator {
            return fail(
                "is the weight of records, for which nothing stands in: use `missing = \"drop\"` or \"reject\", and so for `invalid`",
            );
        }
        let greatest = rule.upper;
        let Some(design) = self.design.take() else {
            return Err(SchemaError::Whole("`weights` is for tables: documents and images have no columns".into()));
        };
        // Of `.` the weight is no part.
        let (formula, sites) = (design.formula().to_owned(), design.sites().to_vec());
        let without_intercept = design.intercept().is_none();
        let mut asked = self.asked(&formula, &sites, Some(column))?;
        if without_intercept {
            asked = asked.without_intercept();
        }
        match &mut asked.design {
            Some(design) if !design.uses(position) => design.set_weights(position, greatest),
            _ => return fail("is the weight of records: it can be no term and no offset of the formula"),
        }
        Ok(asked)
    }

    /// The greatest weight of a record: 1 where records have none.
    #[must_use]
    pub fn max_weight(&self) -> f64 {
        self.design().map_or(1.0, formula::Design::max_weight)
    }

    /// How a formula makes rows; absent: columns fill entries one after the other.
    #[must_use]
    pub fn design(&self) -> Option<&formula::Design> {
        self.design.as_deref()
    }

    /// What the files hold.
    #[must_use]
    pub fn content(&self) -> &content::Content {
        &self.content
    }

    /// Number of entries d of a feature row, with the intercept.
    #[must_use]
    pub fn dimension(&self) -> u32 {
        self.dimension
    }

    /// The d names of the coefficients, in order: `age`, `ward=surgery`, `(intercept)`.
    #[must_use]
    pub fn coefficient_names(&self) -> Vec<String> {
        if let Some(design) = self.design() {
            return design.names().to_vec();
        }
        content::names(&self.content)
    }

    /// What every entry of a row is, in order.
    #[must_use]
    pub fn entries(&self) -> Vec<EntryKind> {
        if let Some(design) = self.design() {
            return design.entries();
        }
        vec![EntryKind::Number; self.dimension as usize]
    }

    /// Least and greatest xᵀm of a row x with these coefficients m: an intercept is the same for every row, and the rest of a row is no longer than its bound.
    #[must_use]
    pub fn ends_of_products(&self, coefficients: &[f64]) -> (f64, f64) {
        let kinds = self.entries();
        let (mut same, mut square) = (0.0, 0.0);
        for (entry, coefficient) in coefficients.iter().enumerate() {
            match kinds.get(entry) {
                Some(EntryKind::Intercept) => same += coefficient,
                _ => square += coefficient * coefficient,
            }
        }
        let rest = self.row_norm_bound() * f64::sqrt(square);
        (same - rest, same + rest)
    }

    /// How many entries share out one record, in the order of the entries: the levels of a category, the pieces of a spline; 1 for an entry that
    /// stands for itself. They sum to the dimension of a table's rows.
    #[must_use]
    pub fn widths(&self) -> Vec<usize> {
        if let Some(design) = self.design() {
            return design.widths();
        }
        vec![1; self.dimension as usize]
    }

    /// R: no row that a loader makes is longer (L2).
    #[must_use]
    pub fn row_norm_bound(&self) -> f64 {
        self.norm_bound
    }

    /// The longest row (L2) that the ranges allow before rows are scaled down to [`Schema::row_norm_bound`]; rounded up.
    #[must_use]
    pub fn worst_case_norm(&self) -> f64 {
        self.worst_case_norm
    }

    /// Largest number of entries of a row that are not 0.
    #[must_use]
    pub fn max_nonzeros(&self) -> u32 {
        self.max_nonzeros
    }

    /// Upper bound on |x_j| over all entries.
    #[must_use]
    pub fn max_abs_entry(&self) -> f64 {
        if let Some(design) = self.design() {
            return design.max_abs_entry().min(self.norm_bound);
        }
        content::max_abs_entry(&self.content).min(self.norm_bound)
    }

    /// Upper bound on the target's absolute value, after centre and scale.
    #[must_use]
    pub fn max_abs_target(&self) -> f64 {
        match &self.label.kind {
            LabelKind::Binary { .. } => 1.0,
            LabelKind::Classes { values } => values.len().saturating_sub(1) as f64,
            LabelKind::Number { rule, .. } => rule.max_abs(),
            LabelKind::Survival(rule) => rule.time.max_abs(),
            LabelKind::Absent => 0.0,
        }
    }

    /// The column that says whose record a row is; absent: every record is a unit.
    #[must_use]
    pub fn unit_column(&self) -> Option<&str> {
        self.unit_column.as_deref()
    }

    /// What one privacy unit of the files is, in words that stay the same: a ledger holds the schema to them.
    #[must_use]
    pub fn unit_in_words(&self) -> String {
        match (&self.content, self.unit_column()) {
            (content::Content::Table, Some(column)) => format!("all rows of a table with one value of `{column}`"),
            (content::Content::Table, None) => "one row of a table".into(),
            (content::Content::Documents(_), _) => "one document".into(),
            (content::Content::Images(_), _) => "one image".into(),
        }
    }

    /// What is predicted.
    #[must_use]
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// Positions of the columns that are predicted: one; of a survival time those of time, event and, where there is one, entry; none without a formula.
    #[must_use]
    pub fn outcome(&self) -> &[usize] {
        &self.outcome
    }

    /// The described columns, in order.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// What stands in for missing numbers where it follows from other columns, in the order in which it is to be computed.
    #[must_use]
    pub fn fills(&self) -> &[fill::Fill] {
        &self.fills
    }

    /// The columns that rows are made of: all that are not ignored, or those that the formula uses, and those that fills of these look at.
    pub fn used_columns(&self) -> impl Iterator<Item = &Column> {
        let mut used: Vec<bool> = self.columns.iter().map(|column| column.kind != ColumnKind::Ignored).collect();
        if let Some(design) = self.design() {
            used.iter_mut().enumerate().for_each(|(position, used)| *used = design.uses(position));
            // Backwards: what a fill looks at may have a fill of its own.
            for fill in self.fills.iter().rev() {
                if used[fill.column()] {
                    fill.sources().for_each(|source| used[source] = true);
                }
            }
        }
        self.columns.iter().zip(used).filter(|(_, used)| *used).map(|(column, _)| column)
    }

    /// Position of the entry that is always 1.
    #[must_use]
    pub fn intercept(&self) -> Option<u32> {
        self.intercept
    }

    /// Texts that mean a missing value.
    #[must_use]
    pub fn missing_tokens(&self) -> &[String] {
        &self.missing_tokens
    }

    /// What happens to columns of a file that are not named here.
    #[must_use]
    pub fn other_columns(&self) -> OtherColumns {
        self.other_columns
    }

    /// How text files are cut into cells.
    #[must_use]
    pub fn csv(&self) -> &CsvFormat {
        &self.csv
    }
}

impl Label {
    /// Nothing is predicted.
    pub(crate) fn absent() -> Self {
        Self { column: String::new(), kind: LabelKind::Absent, published: None }
    }

    /// The columns that it is read from: one, or for survival time, event and, where there is one, entry.
    pub fn columns(&self) -> impl Iterator<Item = &str> + Clone {
        let survival = match &self.kind {
            LabelKind::Survival(rule) => Some(rule),
            _ => None,
        };
        let others = survival
            .into_iter()
            .flat_map(|rule| std::iter::once(rule.event_column.as_str()).chain(rule.entry.iter().map(|entry| entry.column.as_str())));
        Some(self.column.as_str()).filter(|column| !column.is_empty()).into_iter().chain(others)
    }
}

/// What an entry of a row can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKind {
    /// Anything.
    Number,
    /// 0 or 1, and 1 for at most one entry of its group.
    Indicator {
        /// Entries of one group have the same number.
        group: usize,
    },
    /// Always 1.
    Intercept,
}

/// Where a number lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the range.
    Inside,
    /// Below the lower end.
    Below,
    /// Above the upper end.
    Above,
}

impl NumberRule {
    /// Where a finite value lies.
    #[must_use]
    pub fn place(&self, value: f64) -> Place {
        if value < self.lower {
            Place::Below
        } else if value > self.upper {
            Place::Above
        } else {
            Place::Inside
        }
    }

    /// The entry of x: clamped, transformed, centred, scaled. Non-decreasing in `value`, so its bounds are those of the ends.
    #[must_use]
    pub fn encode(&self, value: f64) -> f64 {
        (self.transform.apply(value.clamp(self.lower, self.upper)) - self.centre) / self.scale
    }

    /// What stands in for a missing value, in the unit of the file: the fill, or the value of the range that is nearest to the entry 0.
    #[must_use]
    pub fn stand_in(&self) -> f64 {
        self.fill.unwrap_or_else(|| self.decode(0.0).clamp(self.lower, self.upper))
    }

    /// The value in the unit of the file that has this entry: what a prediction of a numeric label means.
    #[must_use]
    pub fn decode(&self, entry: f64) -> f64 {
        self.transform.undo(entry * self.scale + self.centre)
    }

    /// The greatest |entry|.
    #[must_use]
    pub(crate) fn max_abs(&self) -> f64 {
        self.encode(self.lower).abs().max(self.encode(self.upper).abs())
    }
}

impl Transform {
    fn apply(self, value: f64) -> f64 {
        match self {
            Self::Identity => value,
            Self::Log1p => libm::log1p(value),
        }
    }

    fn undo(self, value: f64) -> f64 {
        match self {
            Self::Identity => value,
            Self::Log1p => libm::expm1(value),
        }
    }
}

/// A bound that the rounding of a row's own norm cannot exceed.
fn rounded_up(norm: f64) -> f64 {
    norm * (1.0 + 1e-12)
}

/// The first name that occurs twice.
fn first_repeated<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = HashSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}
