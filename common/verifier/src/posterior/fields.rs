//! Objects of a JSON text, field by field as it is spelt.

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{FIELDS, Unproved, demand, refused};
use crate::Refusal;

/// The fields of an object, each of which is there once.
pub(super) struct Fields<'a>(Vec<(String, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Each;
        impl<'de> Visitor<'de> for Each {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields: Vec<(String, &'de RawValue)> = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, _>()? {
                    if fields.iter().any(|(known, _)| *known == name) {
                        return Err(A::Error::custom("a field twice"));
                    }
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Each)
    }
}

impl<'a> Fields<'a> {
    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn need(&self, name: &str) -> Result<&'a RawValue, Unproved> {
        self.get(name).map_or_else(|| refused(format!("`{name}` is missing")), Ok)
    }

    pub(super) fn text(&self, name: &str) -> Result<String, Unproved> {
        text(self.need(name)?).map_or_else(|| refused(format!("`{name}` is no text")), Ok)
    }

    pub(super) fn number<N: serde::de::DeserializeOwned>(&self, name: &str) -> Result<N, Unproved> {
        serde_json::from_str(self.need(name)?.get()).or_else(|_| refused(format!("`{name}` is no number")))
    }

    /// All fields, which are whole numbers.
    pub(super) fn numbers(&self) -> Result<Vec<(String, u32)>, Unproved> {
        let number = |raw: &RawValue| serde_json::from_str(raw.get()).or_else(|_| refused("a number that is none"));
        self.0.iter().map(|(name, value)| Ok((name.clone(), number(value)?))).collect()
    }

    /// Refuses a field that the specification does not name at this place.
    pub(super) fn only_known(&self, place: &str) -> Result<(), Unproved> {
        let own = |field: &&str| field.split(['.', '[']).next().unwrap_or_default().to_owned();
        let known = |name: &String| FIELDS.iter().filter_map(|(field, _)| field.strip_prefix(place)).any(|field| own(&field) == *name);
        demand(self.0.iter().all(|(name, _)| known(name)), "it has a field that no specification names")
    }

    /// Refuses another value than the one that follows. Texts are compared as texts; numbers as they are spelt, because two spellings of one number can be two
    /// numbers to another reader.
    pub(super) fn is(&self, name: &str, expected: &Value) -> Result<(), Unproved> {
        let found = self.need(name)?;
        let same = match expected {
            Value::String(expected) => text(found).is_some_and(|found| found == *expected),
            expected => {
                let expected = expected.to_string();
                found.get() == expected
            }
        };
        demand(same, format!("`{name}` is not {}", short(expected)))
    }
}

/// What a field has to be, in a few words: a text of the task can be long.
fn short(expected: &Value) -> String {
    let text = expected.to_string();
    if text.chars().count() > 100 { "what the task says".to_owned() } else { text }
}

fn text(raw: &RawValue) -> Option<String> {
    serde_json::from_str(raw.get()).ok()
}

pub(super) fn spelt(raw: &RawValue) -> String {
    raw.get().to_owned()
}

pub(super) fn object(raw: &RawValue) -> Result<Fields<'_>, Unproved> {
    serde_json::from_str(raw.get()).map_err(|_| Refusal::Form("a field twice, or no object where one belongs").into())
}
