//! Numbers out of the file, and comparing them.

use serde_json::Value;

/// Why a check failed; `Ok` when it did not.
pub(crate) type Outcome = Result<(), String>;

/// Closed forms of exponential families.
pub(crate) const CLOSED_FORM: f64 = 1e-10;
/// Optima and fixed points.
pub(crate) const FIXED_POINT: f64 = 1e-8;

/// A value with its place in the file, for messages.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    file: &'a Value,
    value: &'a Value,
    path: Vec<String>,
}

impl<'a> Node<'a> {
    pub(crate) fn root(value: &'a Value) -> Self {
        Self { file: value, value, path: Vec::new() }
    }

    pub(crate) fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    fn child(&self, value: &'a Value, name: String) -> Self {
        let mut path = self.path.clone();
        path.push(name);
        Self { file: self.file, value, path }
    }

    fn fail<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("{}: {what}", self.path.join(".")))
    }

    /// A first-level key of the file: some keys use another's data.
    pub(crate) fn top(&self, key: &str) -> Result<Self, String> {
        Self::root(self.file).get(key)
    }

    pub(crate) fn get(&self, key: &str) -> Result<Self, String> {
        match self.value.get(key) {
            Some(value) => Ok(self.child(value, key.to_owned())),
            None => self.fail(&format!("there is no key {key}")),
        }
    }

    /// All entries of an object, in the file's order.
    pub(crate) fn fields(&self) -> Result<Vec<Self>, String> {
        match self.value {
            Value::Object(map) => Ok(map.iter().map(|(key, value)| self.child(value, key.clone())).collect()),
            _ => self.fail("not an object"),
        }
    }

    /// All entries of a list.
    pub(crate) fn list(&self) -> Result<Vec<Self>, String> {
        match self.value {
            Value::Array(list) => Ok(list.iter().enumerate().map(|(i, value)| self.child(value, i.to_string())).collect()),
            _ => self.fail("not a list"),
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str, String> {
        self.value.as_str().map_or_else(|| self.fail("not a text"), Ok)
    }

    pub(crate) fn is_null(&self) -> bool {
        self.value.is_null()
    }

    pub(crate) fn flag(&self) -> Result<bool, String> {
        self.value.as_bool().map_or_else(|| self.fail("not true or false"), Ok)
    }

    pub(crate) fn number(&self) -> Result<f64, String> {
        self.value.as_f64().map_or_else(|| self.fail("not a number"), Ok)
    }

    /// A number, a list or nested lists, flattened row by row.
    pub(crate) fn numbers(&self) -> Result<Vec<f64>, String> {
        match self.value {
            Value::Array(_) => Ok(self.list()?.iter().map(Self::numbers).collect::<Result<Vec<_>, _>>()?.concat()),
            _ => Ok(vec![self.number()?]),
        }
    }

    /// Shorthand for the numbers under a key.
    pub(crate) fn at(&self, key: &str) -> Result<Vec<f64>, String> {
        self.get(key)?.numbers()
    }

    /// A list of lists.
    pub(crate) fn rows(&self) -> Result<Vec<Vec<f64>>, String> {
        self.list()?.iter().map(Self::numbers).collect()
    }

    /// Whether `got` equals this value: every number to `tolerance`·max(1, |value|).
    pub(crate) fn equals(&self, got: impl AsRef<[f64]>, tolerance: f64) -> Outcome {
        let (got, expected) = (got.as_ref(), self.numbers()?);
        if got.len() != expected.len() {
            return self.fail(&format!("{} numbers were computed, the file has {}", got.len(), expected.len()));
        }
        for (i, (g, e)) in got.iter().zip(&expected).enumerate() {
            // NaN is not within.
            let within = (g - e).abs() <= tolerance * e.abs().max(1.0);
            if !within {
                return self.fail(&format!("number {i} is {g:e}, the file has {e:e} (difference {:e}, tolerance {tolerance:e})", g - e));
            }
        }
        Ok(())
    }

    /// [`Self::equals`] for a key below.
    pub(crate) fn key_equals(&self, key: &str, got: impl AsRef<[f64]>, tolerance: f64) -> Outcome {
        self.get(key)?.equals(got, tolerance)
    }
}

/// Turns any error into a message.
pub(crate) fn message(error: impl std::fmt::Display) -> String {
    error.to_string()
}
