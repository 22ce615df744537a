//! Arguments of a call, by name or by position.

use super::FormulaError;
use super::syntax::{Argument, Call, Value};

/// The arguments of one call, in the order of the parameters.
pub(super) struct Arguments<'c> {
    text: &'c str,
    call: &'c Call,
    /// One a parameter.
    given: Vec<Option<&'c Argument>>,
    parameters: &'static [&'static str],
}

impl<'c> Arguments<'c> {
    /// Assigns what is written to the parameters: named ones first, the others by position among those that are left.
    pub(super) fn new(text: &'c str, call: &'c Call, parameters: &'static [&'static str]) -> Result<Self, FormulaError> {
        let mut given: Vec<Option<&Argument>> = vec![None; parameters.len()];
        for argument in &call.arguments {
            let Some(name) = &argument.name else { continue };
            match parameters.iter().position(|parameter| parameter == name) {
                Some(place) if given[place].is_none() => given[place] = Some(argument),
                Some(_) => return Err(FormulaError::new(text, argument.at, format!("`{name}` is given twice"))),
                None => {
                    let problem = format!("`{}` has no argument `{name}`: it has {}", call.name, listed(parameters));
                    return Err(FormulaError::new(text, argument.at, problem));
                }
            }
        }
        for argument in call.arguments.iter().filter(|argument| argument.name.is_none()) {
            match given.iter().position(Option::is_none) {
                Some(place) => given[place] = Some(argument),
                None => {
                    let problem = format!("`{}` has fewer arguments: {}", call.name, listed(parameters));
                    return Err(FormulaError::new(text, argument.at, problem));
                }
            }
        }
        Ok(Self { text, call, given, parameters })
    }

    /// An error at the call.
    pub(super) fn fail<T>(&self, problem: impl Into<String>) -> Result<T, FormulaError> {
        Err(FormulaError::new(self.text, self.call.at, problem))
    }

    /// An error at an argument, or at the call where it is not given.
    pub(super) fn wrong<T>(&self, parameter: &str, problem: impl Into<String>) -> Result<T, FormulaError> {
        let at = self.get(parameter).map_or(self.call.at, |argument| argument.at);
        Err(FormulaError::new(self.text, at, problem))
    }

    fn get(&self, parameter: &str) -> Option<&'c Argument> {
        let place = self.parameters.iter().position(|name| *name == parameter)?;
        self.given[place]
    }

    /// The value of the first parameter, which has to be there.
    pub(super) fn first(&self) -> Result<(&'c Value, usize), FormulaError> {
        match self.given[0] {
            Some(argument) => Ok((&argument.value, argument.at)),
            None => self.fail(format!("`{}` needs a column as its first argument", self.call.name)),
        }
    }

    /// The column that is the first argument.
    pub(super) fn column(&self) -> Result<(&'c str, usize), FormulaError> {
        match self.first()? {
            (Value::Column(name), at) => Ok((name, at)),
            (_, at) => Err(FormulaError::new(self.text, at, format!("the first argument of `{}` is a column", self.call.name))),
        }
    }

    /// A value that has no default and is none of the others.
    pub(super) fn value(&self, parameter: &str) -> Option<&'c Value> {
        self.get(parameter).map(|argument| &argument.value)
    }

    /// A number.
    pub(super) fn number(&self, parameter: &str) -> Result<Option<f64>, FormulaError> {
        match self.value(parameter) {
            None => Ok(None),
            Some(Value::Number(value)) => Ok(Some(*value)),
            Some(_) => self.wrong(parameter, format!("`{parameter}` of `{}` is a number", self.call.name)),
        }
    }

    /// A whole number from `least` to `most`.
    pub(super) fn whole(&self, parameter: &str, least: u32, most: u32) -> Result<Option<u32>, FormulaError> {
        match self.number(parameter)? {
            None => Ok(None),
            Some(value) if value.fract() == 0.0 && (f64::from(least)..=f64::from(most)).contains(&value) => Ok(Some(value as u32)),
            Some(_) => self.wrong(parameter, format!("`{parameter}` of `{}` is a whole number from {least} to {most}", self.call.name)),
        }
    }

    /// `TRUE` or `FALSE`; `FALSE` where it is not given.
    pub(super) fn truth(&self, parameter: &str) -> Result<bool, FormulaError> {
        match self.value(parameter) {
            None => Ok(false),
            Some(Value::Truth(truth)) => Ok(*truth),
            Some(_) => self.wrong(parameter, format!("`{parameter}` of `{}` is TRUE or FALSE", self.call.name)),
        }
    }

    /// Numbers that ascend strictly inside a range. A number alone is a list of one.
    pub(super) fn inside(&self, parameter: &str, (lo, hi): (f64, f64)) -> Result<Option<Vec<f64>>, FormulaError> {
        let wrong = || {
            let problem = format!("`{parameter}` of `{}` are numbers that ascend, above {lo} and below {hi}: `[…, …]`", self.call.name);
            self.wrong(parameter, problem)
        };
        let values = match self.value(parameter) {
            None => return Ok(None),
            Some(Value::List(values)) => values.as_slice(),
            Some(value) => std::slice::from_ref(value),
        };
        let mut numbers = Vec::with_capacity(values.len());
        for value in values {
            match value {
                Value::Number(number) if *number > *numbers.last().unwrap_or(&lo) && *number < hi => numbers.push(*number),
                _ => return wrong(),
            }
        }
        Ok(Some(numbers))
    }
}

/// `a`, `b` and `c`.
pub(super) fn listed<T: std::fmt::Display>(names: &[T]) -> String {
    match names {
        [] => "none".into(),
        [one] => format!("`{one}`"),
        [others @ .., last] => {
            let others: Vec<String> = others.iter().map(|name| format!("`{name}`")).collect();
            format!("{} and `{last}`", others.join(", "))
        }
    }
}
