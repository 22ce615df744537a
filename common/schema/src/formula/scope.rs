//! The columns that a formula can name, and what its calls make of them.

use super::FormulaError;
use super::algebra::summands;
use super::arguments::{Arguments, listed};
use super::bases::{BSpline, NaturalSpline, Smooth, equal_knots};
use super::piece::{Levels, Map, Piece, Step, Values, bare_number, bin_labels};
use super::print;
use super::syntax::{Call, Called, Kind, Node, Value, Variable};
use crate::coding::Coding;
use crate::{Column, ColumnKind, Label, NumberRule};

/// What a formula is compiled against: public values only.
pub(crate) struct Scope<'a> {
    /// The formula's text, for errors.
    pub(crate) text: &'a str,
    pub(crate) columns: &'a [Column],
    pub(crate) label: &'a Label,
    pub(crate) unit: Option<&'a str>,
    /// The column of the records' weights.
    pub(crate) weights: Option<&'a str>,
}

/// A curve and how far it may bend.
pub(super) struct Curve {
    pub(super) piece: Piece,
    /// τ, where it is stated.
    pub(super) sd: Option<f64>,
}

/// The columns that are in a call.
fn columns_of<'c>(call: &'c Call, columns: &mut Vec<&'c str>) {
    for argument in &call.arguments {
        match &argument.value {
            Value::Column(name) => columns.push(name),
            Value::Call(inner) => columns_of(inner, columns),
            _ => {}
        }
    }
}

const CALLS: [&str; 12] = ["log", "log1p", "sqrt", "center", "scale", "poly", "bs", "ns", "s", "bin", "C", "offset"];
/// More entries of one curve than this are no curve that records can show.
const MOST_FUNCTIONS: u32 = 200;

impl Scope<'_> {
    pub(super) fn fail<T>(&self, at: usize, problem: impl Into<String>) -> Result<T, FormulaError> {
        Err(FormulaError::new(self.text, at, problem))
    }

    /// The columns that `.` stands for: all that are described and have no other part, neither as label, id or weight nor in an offset.
    pub(super) fn every(&self, terms: &Node) -> Vec<usize> {
        let offsets = summands(terms).filter_map(|(_, summand)| match &summand.kind {
            Kind::Call(call) if call.name == "offset" => Some(call),
            _ => None,
        });
        let mut taken: Vec<&str> = self.label.columns().chain(self.unit).chain(self.weights).collect();
        offsets.for_each(|call| columns_of(call, &mut taken));
        let is_free = |column: &Column| column.kind != ColumnKind::Ignored && !taken.contains(&column.name.as_str());
        self.columns.iter().enumerate().filter(|(_, column)| is_free(column)).map(|(position, _)| position).collect()
    }

    /// The entries of a variable; a factor's by its contrasts.
    pub(super) fn piece(&self, variable: &Variable) -> Result<Piece, FormulaError> {
        match &variable.what {
            Called::Column(name) => self.bare(name, variable.at),
            Called::Call(call) => self.called(call),
        }
    }

    /// The position of a column that can be a term.
    pub(super) fn find(&self, name: &str, at: usize) -> Result<usize, FormulaError> {
        if self.label.columns().any(|column| column == name) {
            return self.fail(at, format!("`{name}` stands before `~`: it is predicted, and can be no term"));
        }
        if self.unit == Some(name) {
            return self.fail(at, format!("`{name}` says whose record a row is (`unit_column`): it can be no part of a formula"));
        }
        match self.columns.iter().position(|column| column.name == name) {
            Some(position) if self.columns[position].kind == ColumnKind::Ignored => {
                self.fail(at, format!("`{name}` has kind = \"ignored\" in the schema: describe it there, or leave it out here"))
            }
            Some(position) => Ok(position),
            None => {
                let used: Vec<&str> =
                    self.columns.iter().filter(|column| column.kind != ColumnKind::Ignored).map(|column| column.name.as_str()).collect();
                self.fail(at, format!("the schema has no column `{name}`: it has {}", listed(&used)))
            }
        }
    }

    /// A column that has to be a number.
    fn number_column(&self, name: &str, at: usize) -> Result<(usize, NumberRule), FormulaError> {
        let position = self.find(name, at)?;
        match &self.columns[position].kind {
            ColumnKind::Number(rule) if (rule.upper - rule.lower).is_finite() => Ok((position, *rule)),
            ColumnKind::Number(_) => self.fail(at, format!("the range of `{name}` is too wide for a computer: use one of ordinary size")),
            _ => self.fail(at, format!("`{name}` is no number: only numbers stand in this call")),
        }
    }

    fn bare(&self, name: &str, at: usize) -> Result<Piece, FormulaError> {
        let position = self.find(name, at)?;
        match &self.columns[position].kind {
            ColumnKind::Number(rule) => Ok(bare_number(name, position, *rule)),
            _ => self.factor(print::column(name), name, at, None),
        }
    }

    /// A category or a truth value as a factor; without a coding that of the schema.
    pub(super) fn factor(&self, text: String, name: &str, at: usize, coding: Option<Coding>) -> Result<Piece, FormulaError> {
        let column = self.find(name, at)?;
        let (names, own) = match &self.columns[column].kind {
            ColumnKind::Category(rule) => (rule.values.clone(), rule.coding),
            ColumnKind::Boolean(_) => (vec!["FALSE".to_owned(), "TRUE".to_owned()], Coding::Treatment { reference: 0 }),
            ColumnKind::Number(_) | ColumnKind::Ignored => {
                return self.fail(at, format!("`{name}` is no category: cut a number into levels by `bin({name}, [cuts])`"));
            }
        };
        if names.len() < 2 {
            return self
                .fail(at, format!("`{name}` has one level, which can be compared with no other: leave it out, or list a second level"));
        }
        Ok(Piece { text, column, values: Values::Levels(Levels { names, coding: coding.unwrap_or(own), cuts: None }) })
    }

    fn called(&self, call: &Call) -> Result<Piece, FormulaError> {
        let text = print::call(call);
        match call.name.as_str() {
            "log" | "log1p" | "sqrt" | "center" | "scale" => {
                let (column, map) = self.map(call)?;
                Ok(Piece { text, column, values: Values::Number(map) })
            }
            "poly" => self.poly(text, call),
            "bs" => self.b_spline(text, call),
            "ns" => self.natural(text, call),
            "bin" => self.binned(text, call),
            "C" => self.coded(text, call),
            other => self.fail(call.at, format!("there is no call `{other}`: the calls are {}", listed(&CALLS))),
        }
    }

    /// An offset: a number column in the unit of the file, or a call on one.
    pub(super) fn offset(&self, call: &Call) -> Result<(usize, Map), FormulaError> {
        self.argument(&Arguments::new(self.text, call, &["e"])?)
    }

    /// The number that a call's first argument is.
    fn argument(&self, arguments: &Arguments<'_>) -> Result<(usize, Map), FormulaError> {
        match arguments.first()? {
            (Value::Column(name), at) => {
                let (column, rule) = self.number_column(name, at)?;
                Ok((column, Map::of_file((rule.lower, rule.upper))))
            }
            (Value::Call(inner), _) => self.map(inner),
            (_, at) => self.fail(at, "here stands a number column, or a call on one such as `log(column)`"),
        }
    }

    /// A nested call on a number column.
    fn map(&self, call: &Call) -> Result<(usize, Map), FormulaError> {
        let parameters: &[&str] = match call.name.as_str() {
            "log" | "log1p" | "sqrt" => &["e"],
            "center" => &["e", "c"],
            "scale" => &["e", "c", "s"],
            other => {
                return self
                    .fail(call.at, format!("`{other}` gives no single number: here stand `log`, `log1p`, `sqrt`, `center` or `scale`"));
            }
        };
        let arguments = Arguments::new(self.text, call, parameters)?;
        let (column, map) = self.argument(&arguments)?;
        let step = self.step(call, &arguments, map.ends())?;
        let map = map.then(step);
        if map.max_abs().is_finite() {
            return Ok((column, map));
        }
        self.fail(call.at, "the ends of the range become no finite numbers here: use a smaller range or a larger scale")
    }

    fn step(&self, call: &Call, arguments: &Arguments<'_>, (low, high): (f64, f64)) -> Result<Step, FormulaError> {
        let domain = |bound: &str| format!("`{}` needs values {bound}, and they begin at {low}: raise `lower` of the column", call.name);
        match call.name.as_str() {
            "log" if low <= 0.0 => arguments.fail(domain("above 0") + ", or use `log1p`"),
            "log1p" if low <= -1.0 => arguments.fail(domain("above -1")),
            "sqrt" if low < 0.0 => arguments.fail(domain("of 0 or more")),
            "log" => Ok(Step::Log),
            "log1p" => Ok(Step::Log1p),
            "sqrt" => Ok(Step::Sqrt),
            _ => {
                let centre = arguments.number("c")?.unwrap_or(low + (high - low) / 2.0);
                if call.name == "center" {
                    return Ok(Step::Scale { centre, scale: 1.0 });
                }
                let scale = arguments.number("s")?.unwrap_or((high - low) / 2.0);
                if scale > 0.0 { Ok(Step::Scale { centre, scale }) } else { arguments.wrong("s", "the scale must be above 0") }
            }
        }
    }

    fn poly(&self, text: String, call: &Call) -> Result<Piece, FormulaError> {
        let arguments = Arguments::new(self.text, call, &["x", "degree", "raw"])?;
        let (name, at) = arguments.column()?;
        let (column, rule) = self.number_column(name, at)?;
        let Some(degree) = arguments.whole("degree", 1, 10)? else {
            return arguments.fail("`poly` needs a degree: `poly(column, 2)`");
        };
        let values = if arguments.truth("raw")? {
            if !rule.max_abs().powi(degree as i32).is_finite() {
                return arguments.fail("this power of the column is no finite number: give the column a larger `scale`");
            }
            Values::Powers { rule, degree }
        } else {
            Values::Legendre { range: (rule.lower, rule.upper), degree }
        };
        Ok(Piece { text, column, values })
    }

    /// Inner knots of `bs` and `ns`: those that are written, or so many at equal distances that `df` entries come out.
    fn knots(&self, arguments: &Arguments<'_>, range: (f64, f64), others: u32) -> Result<Vec<f64>, FormulaError> {
        match (arguments.whole("df", 1, MOST_FUNCTIONS)?, arguments.inside("knots", range)?) {
            (Some(_), Some(_)) => arguments.wrong("df", "give `df` or `knots`, not both"),
            (None, None) => arguments.fail("give `df = 5`, the number of entries, or `knots = [40, 60]`, where the pieces meet"),
            (None, Some(knots)) if knots.len() <= MOST_FUNCTIONS as usize => Ok(knots),
            (None, Some(_)) => arguments.wrong("knots", format!("more than {MOST_FUNCTIONS} knots: records cannot show such a curve")),
            (Some(df), None) if df >= others => {
                let knots = equal_knots(range, (df - others) as usize);
                let ends = std::iter::once(range.0).chain(knots.iter().copied()).chain([range.1]).collect::<Vec<f64>>();
                if ends.windows(2).all(|pair| pair[0] < pair[1]) {
                    return Ok(knots);
                }
                arguments.wrong("df", "the range of the column is too narrow for so many knots")
            }
            (Some(_), None) => {
                arguments.wrong("df", format!("without inner knots there are {others} entries: `df` must be {others} or more"))
            }
        }
    }

    fn b_spline(&self, text: String, call: &Call) -> Result<Piece, FormulaError> {
        let arguments = Arguments::new(self.text, call, &["x", "df", "knots", "degree", "intercept"])?;
        let (name, at) = arguments.column()?;
        let (column, rule) = self.number_column(name, at)?;
        let range = (rule.lower, rule.upper);
        let degree = arguments.whole("degree", 1, 5)?.unwrap_or(3);
        let intercept = arguments.truth("intercept")?;
        let knots = self.knots(&arguments, range, degree + u32::from(intercept))?;
        let splines = BSpline::clamped(range, &knots, degree as usize);
        Ok(Piece { text, column, values: Values::Spline { splines, intercept } })
    }

    fn natural(&self, text: String, call: &Call) -> Result<Piece, FormulaError> {
        let arguments = Arguments::new(self.text, call, &["x", "df", "knots", "intercept"])?;
        let (name, at) = arguments.column()?;
        let (column, rule) = self.number_column(name, at)?;
        let range = (rule.lower, rule.upper);
        let intercept = arguments.truth("intercept")?;
        let knots = self.knots(&arguments, range, 1 + u32::from(intercept))?;
        Ok(Piece { text, column, values: Values::Natural { splines: NaturalSpline::new(range, &knots), intercept } })
    }

    fn binned(&self, text: String, call: &Call) -> Result<Piece, FormulaError> {
        let arguments = Arguments::new(self.text, call, &["x", "cuts"])?;
        let (name, at) = arguments.column()?;
        let (column, rule) = self.number_column(name, at)?;
        let range = (rule.lower, rule.upper);
        match arguments.inside("cuts", range)? {
            Some(cuts) if cuts.len() > MOST_FUNCTIONS as usize => {
                arguments.wrong("cuts", format!("more than {MOST_FUNCTIONS} cuts: use a curve, `ns({name}, df = 5)`"))
            }
            Some(cuts) if !cuts.is_empty() => {
                let levels = Levels { names: bin_labels(range, &cuts), coding: Coding::Treatment { reference: 0 }, cuts: Some(cuts) };
                Ok(Piece { text, column, values: Values::Levels(levels) })
            }
            _ => arguments.fail("`bin` needs the cuts between the levels: `bin(bmi, [18.5, 25, 30])`"),
        }
    }

    fn coded(&self, text: String, call: &Call) -> Result<Piece, FormulaError> {
        let arguments = Arguments::new(self.text, call, &["x", "coding"])?;
        let (name, at) = arguments.column()?;
        let position = self.find(name, at)?;
        let coding = match arguments.value("coding") {
            Some(Value::Column(word)) if word == "treatment" => Coding::Treatment { reference: 0 },
            Some(Value::Column(word)) if word == "sum" => Coding::Sum,
            Some(Value::Column(word)) if word == "full" => Coding::Full,
            Some(Value::Call(inner)) if inner.name == "treatment" => Coding::Treatment { reference: self.reference(inner, position)? },
            _ => return arguments.wrong("coding", "the coding is `treatment('level')`, `treatment`, `sum` or `full`"),
        };
        self.factor(text, name, at, Some(coding))
    }

    /// The position of the level that `treatment('level')` names.
    fn reference(&self, call: &Call, column: usize) -> Result<usize, FormulaError> {
        let truths = ["FALSE".to_owned(), "TRUE".to_owned()];
        let levels = match &self.columns[column].kind {
            ColumnKind::Category(rule) => rule.values.as_slice(),
            _ => truths.as_slice(),
        };
        let arguments = Arguments::new(self.text, call, &["level"])?;
        match arguments.first()? {
            (Value::Text(level), at) => match levels.iter().position(|other| other == level) {
                Some(reference) => Ok(reference),
                None => self.fail(at, format!("`{level}` is no level of `{}`: it has {}", self.columns[column].name, listed(levels))),
            },
            (_, at) => self.fail(at, "the level stands in quotes: `treatment('level')`"),
        }
    }

    /// A smooth curve.
    pub(super) fn smooth(&self, call: &Call) -> Result<Curve, FormulaError> {
        let arguments = Arguments::new(self.text, call, &["x", "k", "sd"])?;
        let (name, at) = arguments.column()?;
        let (column, rule) = self.number_column(name, at)?;
        let k = arguments.whole("k", 5, MOST_FUNCTIONS)?.unwrap_or(10);
        let sd = match arguments.value("sd") {
            None => None,
            Some(Value::Text(word)) if word == "learned" => None,
            Some(Value::Number(sd)) if *sd > 0.0 => Some(*sd),
            Some(_) => {
                return arguments.wrong("sd", "`sd` is \"learned\", or a number above 0: how far the curve may leave a straight line");
            }
        };
        let smooth = Smooth::new((rule.lower, rule.upper), k as usize);
        Ok(Curve { piece: Piece { text: print::call(call), column, values: Values::Smooth(Box::new(smooth)) }, sd })
    }
}
