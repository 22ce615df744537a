//! The form in which Python prints objects: `Name(field=value, …)`, lists, numbers, strings.

use serde_json::{Map, Number, Value};

use super::{CLASS, DEEPEST, EventsError};

/// Reads one value; nothing may follow.
pub(super) fn value(text: &str) -> Result<Value, EventsError> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value(0)?;
    parser.skip();
    if parser.at < text.len() { Err(parser.wrong("nothing more was expected here")) } else { Ok(value) }
}

/// Fields by position, for events that are written without names.
pub(super) fn names(class: &str) -> &'static [&'static str] {
    match class {
        "GaussianDpEvent" | "LaplaceDpEvent" => &["noise_multiplier"],
        "SelfComposedDpEvent" => &["event", "count"],
        "ComposedDpEvent" => &["events"],
        "PoissonSampledDpEvent" => &["sampling_probability", "event"],
        "SampledWithoutReplacementDpEvent" => &["source_dataset_size", "sample_size", "event"],
        "RandomAllocationDpEvent" => &["num_batches", "event"],
        "ZCDpEvent" => &["rho", "xi"],
        "EpsilonDeltaDpEvent" => &["epsilon", "delta"],
        "UnivariateDiscreteGaussianDpEvent" => &["scale", "sensitivity"],
        "DiscreteLaplaceDpEvent" => &["noise_parameter", "sensitivity"],
        "RandomizedResponseDpEvent" => &["noise_parameter", "num_buckets"],
        _ => &[],
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
}

impl Parser<'_> {
    fn wrong(&self, what: &'static str) -> EventsError {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        EventsError::Text { line, column, what }
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn skip(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Takes a sign if it comes next.
    fn take(&mut self, sign: char) -> bool {
        self.skip();
        let next = self.rest().starts_with(sign);
        self.at += if next { sign.len_utf8() } else { 0 };
        next
    }

    fn require(&mut self, sign: char, what: &'static str) -> Result<(), EventsError> {
        if self.take(sign) { Ok(()) } else { Err(self.wrong(what)) }
    }

    /// As many characters as belong together.
    fn word(&mut self, belongs: impl Fn(char) -> bool) -> &str {
        let end = self.rest().find(|c| !belongs(c)).map_or(self.text.len(), |length| self.at + length);
        let start = std::mem::replace(&mut self.at, end);
        &self.text[start..end]
    }

    fn value(&mut self, depth: usize) -> Result<Value, EventsError> {
        if depth >= 2 * DEEPEST {
            return Err(EventsError::TooMany);
        }
        self.skip();
        match self.rest().chars().next() {
            Some('[') => self.list(depth),
            Some(c) if c.is_ascii_digit() || matches!(c, '-' | '+' | '.') => self.number(),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => self.name(depth),
            _ => Err(self.wrong("an event, a number or a list was expected")),
        }
    }

    fn list(&mut self, depth: usize) -> Result<Value, EventsError> {
        self.at += 1;
        let mut values = Vec::new();
        loop {
            if self.take(']') {
                return Ok(Value::Array(values));
            }
            values.push(self.value(depth + 1)?);
            if !self.take(',') {
                self.require(']', "a comma or ] was expected")?;
                return Ok(Value::Array(values));
            }
        }
    }

    fn number(&mut self) -> Result<Value, EventsError> {
        let start = self.at;
        let word = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '+' | '.' | '_'));
        let number = word.parse::<u64>().ok().map(Number::from).or_else(|| Number::from_f64(word.parse().ok()?));
        match number {
            Some(number) => Ok(Value::Number(number)),
            None => {
                self.at = start;
                Err(self.wrong("this is no finite number"))
            }
        }
    }

    fn name(&mut self, depth: usize) -> Result<Value, EventsError> {
        let start = self.at;
        // `dp_accounting.GaussianDpEvent` is the same.
        let word = self.word(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.')).to_owned();
        if word == "None" {
            return Ok(Value::Null);
        }
        if ["inf", "infinity", "nan"].contains(&word.rsplit('.').next().unwrap_or_default().to_ascii_lowercase().as_str()) {
            self.at = start;
            return Err(self.wrong("this is no finite number"));
        }
        let class = word.rsplit('.').next().unwrap_or_default().to_owned();
        if !self.take('(') {
            self.at = start;
            return Err(self.wrong("a name is followed by ( and its fields"));
        }
        if word.starts_with("np.") || word.starts_with("numpy.") {
            // A number of numpy prints its type around itself.
            self.skip();
            let number = self.number()?;
            self.require(')', "a number of numpy ends with )")?;
            return Ok(number);
        }
        let mut fields = Map::new();
        let mut position = 0;
        loop {
            if self.take(')') {
                break;
            }
            let name = match self.field() {
                Some(name) => name,
                None => {
                    let name = names(&class).get(position).ok_or_else(|| self.wrong("write the name of this field before its value"))?;
                    position += 1;
                    (*name).to_owned()
                }
            };
            let value = self.value(depth + 1)?;
            if name == CLASS || fields.insert(name, value).is_some() {
                return Err(self.wrong("a field is there twice"));
            }
            if !self.take(',') {
                self.require(')', "a comma or ) was expected")?;
                break;
            }
        }
        fields.insert(CLASS.to_owned(), Value::String(class));
        Ok(Value::Object(fields))
    }

    /// The name before `=`, if there is one.
    fn field(&mut self) -> Option<String> {
        self.skip();
        let start = self.at;
        let word = self.word(|c| c.is_ascii_alphanumeric() || c == '_').to_owned();
        if !word.is_empty() && self.take('=') {
            return Some(word);
        }
        self.at = start;
        None
    }
}
