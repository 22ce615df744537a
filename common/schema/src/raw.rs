//! The schema file as it is written, and how it becomes a checked [`Schema`].

use super::coding::Coding;
use super::content::Content;
use super::csv;
use super::dates::{DateFormat, DateRule};
use super::fill;
use super::published::{self, Form};
use super::{
    BooleanRule, CategoryRule, CellPolicy, Column, ColumnKind, Label, Matching, NumberRule, OtherColumns, Outside, Schema, SchemaError,
    Transform, first_repeated, text,
};
use serde::Deserialize;

mod texts;
use texts::{check_missing, read_table, read_text};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawSchema {
    version: Option<u32>,
    norm_bound: Option<f64>,
    unit_column: Option<String>,
    #[serde(default = "reject_others")]
    other_columns: OtherColumns,
    #[serde(default)]
    missing: RawMissing,
    #[serde(default)]
    csv: csv::Raw,
    // Columns are read one by one, so that an error can name the column.
    #[serde(default)]
    columns: Vec<toml::Table>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMissing {
    tokens: Vec<String>,
}

impl Default for RawMissing {
    fn default() -> Self {
        Self { tokens: vec![String::new()] }
    }
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum RawColumn {
    Number(RawNumber),
    Date(RawDate),
    Category(RawCategory),
    Boolean(RawBoolean),
    Ignored {},
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawNumber {
    lower: f64,
    upper: f64,
    #[serde(default = "clamp")]
    outside: Outside,
    #[serde(default = "identity")]
    transform: Transform,
    centre: f64,
    scale: f64,
    report_per: Option<f64>,
    fill: Option<RawFill>,
    #[serde(default)]
    missing: RawGap,
    #[serde(default)]
    invalid: RawPolicy,
}

/// A number in days, whose cells are dates.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawDate {
    since: String,
    format: Option<String>,
    lower: f64,
    upper: f64,
    #[serde(default = "clamp")]
    outside: Outside,
    #[serde(default = "identity")]
    transform: Transform,
    centre: f64,
    scale: f64,
    report_per: Option<f64>,
    fill: Option<RawFill>,
    #[serde(default)]
    missing: RawGap,
    #[serde(default)]
    invalid: RawPolicy,
}

impl RawDate {
    /// How cells become days, and the rule of the days.
    fn parts(self) -> Result<(DateRule, RawNumber), String> {
        let format = match &self.format {
            None => DateFormat::Iso,
            Some(name) => DateFormat::ALL.into_iter().find(|format| format.name() == name).ok_or_else(|| {
                let names = DateFormat::ALL.map(|format| format!("\"{}\"", format.name())).join(", ");
                format!("`format` must be one of {names}")
            })?,
        };
        let date = DateRule::new(format, &self.since).ok_or("`since` must be a date, such as \"2015-01-01\": it is day 0")?;
        let Self { lower, upper, outside, transform, centre, scale, report_per, fill, missing, invalid, .. } = self;
        Ok((date, RawNumber { lower, upper, outside, transform, centre, scale, report_per, fill, missing, invalid }))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawCategory {
    values: Vec<String>,
    coding: Option<RawCoding>,
    reference: Option<String>,
    #[serde(default = "by_text")]
    matching: Matching,
    #[serde(default)]
    missing: RawGap,
    #[serde(default)]
    invalid: RawPolicy,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBoolean {
    true_values: Option<Vec<String>>,
    false_values: Option<Vec<String>>,
    #[serde(default)]
    missing: RawGap,
    #[serde(default)]
    invalid: RawPolicy,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawCoding {
    Treatment,
    Sum,
    Full,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RawPolicy {
    Zero,
    Centre,
    Drop,
    #[default]
    Reject,
}

/// `missing` of a column.
#[derive(Clone, Deserialize)]
#[serde(try_from = "toml::Value")]
enum RawGap {
    Policy(RawPolicy),
    Indicator,
    Filled { fill: RawFill },
}

/// What stands in for a missing number.
#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "a number, or a table `{ constant = 27.1, age = 0.02 }`")]
enum RawFill {
    Number(f64),
    /// By other columns.
    Table(toml::Table),
}

impl TryFrom<toml::Value> for RawGap {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fill {
            fill: RawFill,
        }
        if value.as_str() == Some("indicator") {
            return Ok(Self::Indicator);
        }
        let known = "`missing` is \"zero\", \"centre\", \"drop\", \"reject\" or \"indicator\", or for a number `{ fill = 42 }` or `{ fill = { constant = 27.1, age = 0.02 } }`";
        let wrong = |error: toml::de::Error| format!("{known} ({})", error.message());
        match value {
            toml::Value::Table(table) => table.try_into().map(|Fill { fill }| Self::Filled { fill }).map_err(wrong),
            value => value.try_into().map(Self::Policy).map_err(wrong),
        }
    }
}

impl Default for RawGap {
    fn default() -> Self {
        Self::Policy(RawPolicy::default())
    }
}

fn reject_others() -> OtherColumns {
    OtherColumns::Reject
}
fn clamp() -> Outside {
    Outside::Clamp
}
fn identity() -> Transform {
    Transform::Identity
}
fn by_text() -> Matching {
    Matching::Text
}

/// Version of the schema's form.
const VERSION: u32 = 2;

pub(super) fn parse(text: &str) -> Result<Schema, SchemaError> {
    let mut raw: RawSchema = toml::from_str(text)
        .map_err(|e| named_outcome(text).unwrap_or_else(|| SchemaError::Unreadable(e.to_string().trim_end().to_owned())))?;
    let blanks = raw.csv.blanks();
    raw.unit_column = raw.unit_column.map(|name| text::read(&name).into_owned());
    raw.missing.tokens.iter_mut().for_each(|token| *token = read_text(token, blanks));
    raw.columns.iter_mut().try_for_each(|table| read_table(table, blanks)).map_err(SchemaError::Whole)?;
    if raw.version.is_some_and(|version| version != VERSION) {
        return Err(SchemaError::Whole(format!(
            "`version` must be {VERSION}, the only one: write `version = {VERSION}`, or leave the key out; a category with an entry for every level has `coding = \"full\"`"
        )));
    }
    let mut columns = Vec::with_capacity(raw.columns.len());
    let mut fills = Vec::new();
    for (position, table) in raw.columns.into_iter().enumerate() {
        let (column, fill) = column(position, table)?;
        fills.extend(fill.map(|fill| (position, fill)));
        columns.push(column);
    }
    check_missing(&columns, &raw.missing.tokens)?;
    check_names(&columns, raw.unit_column.as_deref())?;
    let fills = fill::resolve(fills, &columns)?;
    let csv = raw.csv.checked()?;
    if let Some(names) = &csv.names {
        csv::check_names(names, &columns, raw.unit_column.as_deref(), raw.other_columns)?;
    }
    if raw.norm_bound.is_some_and(|bound| !(bound.is_finite() && bound > 0.0)) {
        return Err(SchemaError::Whole("`norm_bound` must be a finite number above 0; leave it out to use the worst case".into()));
    }
    let described = columns.iter().filter(|column| column.kind != ColumnKind::Ignored).count();
    if described == 0 {
        return Err(SchemaError::Whole("there is nothing to learn: describe at least one column".into()));
    }
    let dimension = u32::try_from(described).map_err(|_| SchemaError::Whole("more than 4294967295 columns".into()))?;
    Ok(Schema {
        content: Content::Table,
        columns,
        label: Label::absent(),
        outcome: Vec::new(),
        unit_column: raw.unit_column,
        missing_tokens: raw.missing.tokens,
        other_columns: raw.other_columns,
        intercept: None,
        csv,
        dimension,
        max_nonzeros: dimension,
        worst_case_norm: f64::INFINITY,
        norm_bound: raw.norm_bound.unwrap_or(f64::INFINITY),
        written_bound: raw.norm_bound,
        design: None,
        fills,
    })
}

/// What is wrong with a schema that says what is predicted: a task does, of which the schema knows nothing.
fn named_outcome(text: &str) -> Option<SchemaError> {
    // What cannot be read as TOML is reported with line and column.
    let table = text.parse::<toml::Table>().ok()?;
    let problem = if table.contains_key("label") {
        "`[label]` is no part of a schema: describe the column under `[[columns]]` as every other, and let the task say what is predicted: `outcome = \"died\"` under [model], or a formula, \
         `died ~ age + ward`"
    } else if table.contains_key("intercept") {
        "`intercept` is no part of a schema: the task's formula says it, `died ~ 0 + .` where there is none"
    } else {
        return None;
    };
    Some(SchemaError::Whole(problem.into()))
}

/// The coding of a category from its keys.
fn coding(values: &[String], coding: Option<RawCoding>, reference: Option<&str>) -> Result<Coding, String> {
    let coding = coding.unwrap_or(RawCoding::Treatment);
    if reference.is_some() && coding != RawCoding::Treatment {
        return Err("only `coding = \"treatment\"` has a `reference`: leave one of the two keys out".into());
    }
    if values.len() == 1 && coding != RawCoding::Full {
        return Err("has one level, which can be compared with no other: list a second one, or leave the column out".into());
    }
    match (coding, reference) {
        (RawCoding::Full, _) => Ok(Coding::Full),
        (RawCoding::Sum, _) => Ok(Coding::Sum),
        (RawCoding::Treatment, None) => Ok(Coding::Treatment { reference: 0 }),
        (RawCoding::Treatment, Some(level)) => match values.iter().position(|value| value == level) {
            Some(reference) => Ok(Coding::Treatment { reference }),
            None => Err(format!("`reference = \"{level}\"` is none of `values`: write one of its texts")),
        },
    }
}

/// A column, with what stands in for its missing numbers if that follows from other columns.
fn column(position: usize, mut table: toml::Table) -> Result<(Column, Option<toml::Table>), SchemaError> {
    let name = match table.remove("name") {
        Some(toml::Value::String(name)) if !name.is_empty() => name,
        _ => return Err(SchemaError::Whole(format!("entry {} of `[[columns]]` needs `name = \"…\"`", position + 1))),
    };
    let fail = |problem: String| SchemaError::Column { column: name.clone(), problem };
    let published = published::Raw::take(&mut table).map_err(fail)?;
    let raw = RawColumn::deserialize(toml::Value::Table(table)).map_err(|e| fail(e.message().to_owned()))?;
    let has_indicator = raw.has_indicator();
    let mut by_others = None;
    let mut date = None;
    let raw = match raw {
        RawColumn::Date(raw) => {
            let (rule, number) = raw.parts().map_err(fail)?;
            date = Some(rule);
            RawColumn::Number(number)
        }
        other => other,
    };
    let kind = match raw {
        // Dates have become numbers above.
        RawColumn::Date(_) => ColumnKind::Ignored,
        RawColumn::Number(raw) => {
            let missing = raw.missing.number_policy();
            let fill = match raw.missing.fill(raw.fill).map_err(fail)? {
                Some(RawFill::Number(fill)) => Some(fill),
                Some(RawFill::Table(table)) => {
                    by_others = Some(table);
                    None
                }
                None => None,
            };
            let rule = NumberRule {
                lower: raw.lower,
                upper: raw.upper,
                outside: raw.outside,
                transform: raw.transform,
                centre: raw.centre,
                scale: raw.scale,
                report_per: raw.report_per.unwrap_or(1.0),
                missing,
                fill,
                invalid: number_policy(raw.invalid),
                date,
            };
            ColumnKind::Number(checked_number(rule).map_err(fail)?)
        }
        RawColumn::Category(raw) => {
            let rule = CategoryRule {
                missing: raw.missing.policy().map_err(fail)?,
                invalid: policy(raw.invalid, "invalid").map_err(fail)?,
                states_coding: raw.coding.is_some() || raw.reference.is_some(),
                coding: coding(&raw.values, raw.coding, raw.reference.as_deref()).map_err(fail)?,
                values: raw.values,
                matching: raw.matching,
            };
            ColumnKind::Category(checked_category(rule).map_err(fail)?)
        }
        RawColumn::Boolean(raw) => {
            let (true_values, false_values) = truth(raw.true_values, raw.false_values).map_err(fail)?;
            let (missing, invalid) = (raw.missing.policy().map_err(fail)?, policy(raw.invalid, "invalid").map_err(fail)?);
            let rule = BooleanRule { missing, invalid, true_values, false_values };
            ColumnKind::Boolean(checked_boolean(rule).map_err(fail)?)
        }
        RawColumn::Ignored {} => ColumnKind::Ignored,
    };
    let form = match &kind {
        ColumnKind::Number(rule) => Form::Moments(rule),
        ColumnKind::Category(rule) => Form::Shares(rule.values.len()),
        ColumnKind::Boolean(_) => Form::Share,
        ColumnKind::Ignored => Form::Nothing,
    };
    let published = published.checked(form).map_err(fail)?;
    Ok((Column { name, kind, has_indicator, published }, by_others))
}

fn checked_number(rule: NumberRule) -> Result<NumberRule, String> {
    if !(rule.lower.is_finite() && rule.upper.is_finite() && rule.lower < rule.upper) {
        return Err("`lower` and `upper` must be finite numbers with lower < upper: the range bounds what one record can do".into());
    }
    if !(rule.scale.is_finite() && rule.scale > 0.0) {
        return Err("`scale` must be a finite number above 0".into());
    }
    if !(rule.report_per.is_finite() && rule.report_per > 0.0 && (rule.report_per / rule.scale).is_finite()) {
        return Err(
            "`report_per` must be a finite number above 0: effects are reported for so many units of the file; without the key for 1"
                .into(),
        );
    }
    if !rule.centre.is_finite() {
        return Err("`centre` must be a finite number".into());
    }
    if rule.fill.is_some_and(|fill| !(rule.lower..=rule.upper).contains(&fill)) {
        return Err("`fill` stands in for a missing value: it must lie between `lower` and `upper`".into());
    }
    if rule.transform == Transform::Log1p && rule.lower <= -1.0 {
        return Err("`transform = \"log1p\"` needs `lower` above -1".into());
    }
    if !rule.max_abs().is_finite() {
        return Err("the ends of the range are too large for this `scale`: use a larger one".into());
    }
    Ok(rule)
}

fn checked_category(rule: CategoryRule) -> Result<CategoryRule, String> {
    if rule.values.is_empty() {
        return Err("`values` is empty: list the levels that the category can have".into());
    }
    let compare = |value: &String| if rule.matching == Matching::Text { compared(value) } else { value.clone() };
    let listed: Vec<String> = rule.values.iter().map(compare).collect();
    if let Some(value) = first_repeated(listed.iter().map(String::as_str)) {
        return Err(format!("the level `{value}` is listed twice in `values`: list it once"));
    }
    // Cells with a truth value are found without regard to capital letters, and could be either.
    let truths: Vec<String> =
        rule.values.iter().filter(|value| text::is_truth(value.as_bytes())).map(|value| value.to_ascii_lowercase()).collect();
    if let Some(value) = first_repeated(truths.iter().map(String::as_str)) {
        return Err(format!(
            "the level `{value}` is listed twice in `values`, in capital and in small letters, which programs write for one truth value: list it once"
        ));
    }
    if rule.matching == Matching::Number {
        let mut numbers: Vec<f64> = Vec::with_capacity(rule.values.len());
        for value in &rule.values {
            match value.parse::<f64>() {
                Ok(number) if number.is_finite() => numbers.push(number),
                _ => return Err(format!("the level `{value}` is no number: use `matching = \"text\"`")),
            }
        }
        numbers.sort_by(f64::total_cmp);
        if numbers.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err("two levels of `values` are the same number: list it once".into());
        }
    }
    Ok(rule)
}

/// The texts of true and of false: as they are written, or the usual ones. One list alone would take an unlisted text for neither.
fn truth(true_values: Option<Vec<String>>, false_values: Option<Vec<String>>) -> Result<(Vec<String>, Vec<String>), String> {
    match (true_values, false_values) {
        (Some(true_values), Some(false_values)) => Ok((true_values, false_values)),
        (None, None) => Ok((["true", "1"].map(String::from).into(), ["false", "0"].map(String::from).into())),
        _ => Err("`true_values` and `false_values` stand together: list both, or neither for `true` and `1`, `false` and `0`".into()),
    }
}

fn checked_boolean(rule: BooleanRule) -> Result<BooleanRule, String> {
    if rule.true_values.is_empty() || rule.false_values.is_empty() {
        return Err("`true_values` and `false_values` must both list a text".into());
    }
    let twice = first_repeated(rule.true_values.iter().chain(&rule.false_values).map(String::as_str));
    if let Some(text) = twice.or_else(|| in_both(&rule.true_values, &rule.false_values, |text| compared(text).to_uppercase())) {
        return Err(format!("the text `{text}` is listed twice in `true_values` and `false_values`: keep it in one place"));
    }
    Ok(rule)
}

/// A text of one list that is compared as one of the other is.
fn in_both<'t, T: PartialEq>(one: &'t [String], other: &'t [String], compared: impl Fn(&'t str) -> T) -> Option<&'t str> {
    one.iter().map(String::as_str).find(|text| other.iter().any(|listed| compared(listed) == compared(text)))
}

/// A listed text as cells are compared with it.
fn compared(listed: &str) -> String {
    String::from_utf8_lossy(&text::plain(listed.as_bytes(), b'.')).into_owned()
}

impl RawColumn {
    fn has_indicator(&self) -> bool {
        let gap = match self {
            Self::Number(raw) => &raw.missing,
            Self::Date(raw) => &raw.missing,
            Self::Category(raw) => &raw.missing,
            Self::Boolean(raw) => &raw.missing,
            Self::Ignored {} => return false,
        };
        matches!(gap, RawGap::Indicator)
    }
}

impl RawGap {
    fn number_policy(&self) -> CellPolicy {
        match self {
            Self::Policy(policy) => number_policy(*policy),
            Self::Indicator | Self::Filled { .. } => CellPolicy::Zero,
        }
    }

    /// What stands in for a missing number, from both places that can say it.
    fn fill(self, beside: Option<RawFill>) -> Result<Option<RawFill>, String> {
        match (self, beside) {
            (Self::Filled { fill }, None) => Ok(Some(fill)),
            (Self::Indicator, fill) => Ok(fill),
            (_, None) => Ok(None),
            (_, Some(_)) => Err("`fill` belongs to `missing = \"indicator\"`; without an indicator write `missing = { fill = … }`".into()),
        }
    }

    /// Of a category or a truth value.
    fn policy(self) -> Result<CellPolicy, String> {
        match self {
            Self::Policy(raw) => policy(raw, "missing"),
            Self::Indicator => Ok(CellPolicy::Zero),
            Self::Filled { .. } => Err("`fill` is for numbers: a missing category sets no entry (\"zero\", \"indicator\")".into()),
        }
    }
}

fn number_policy(raw: RawPolicy) -> CellPolicy {
    match raw {
        RawPolicy::Zero | RawPolicy::Centre => CellPolicy::Zero,
        RawPolicy::Drop => CellPolicy::Drop,
        RawPolicy::Reject => CellPolicy::Reject,
    }
}

fn policy(raw: RawPolicy, key: &str) -> Result<CellPolicy, String> {
    match raw {
        RawPolicy::Centre => Err(format!("`{key} = \"centre\"` is for numbers: use \"zero\", \"drop\" or \"reject\"")),
        other => Ok(number_policy(other)),
    }
}

fn check_names(columns: &[Column], unit_column: Option<&str>) -> Result<(), SchemaError> {
    if unit_column == Some("") {
        return Err(SchemaError::Whole("`unit_column` is empty: name the column that says whose record a row is, or leave it out".into()));
    }
    match first_repeated(columns.iter().map(|column| column.name.as_str()).chain(unit_column)) {
        None => Ok(()),
        Some(name) => Err(SchemaError::Column {
            column: name.to_owned(),
            problem: "is described more than once: a name stands once, under `[[columns]]` or as `unit_column`".into(),
        }),
    }
}
