//! Leaves of a JSON text and where they are in it, to change one and nothing else.

use std::ops::Range;

/// A number, text, truth value or null.
#[derive(Clone)]
pub(crate) struct Leaf {
    /// Names of fields, with `[]` for every entry of a list.
    pub(crate) path: String,
    pub(crate) token: String,
    range: Range<usize>,
}

/// A place in a text that is JSON.
struct Scanner<'a> {
    text: &'a str,
    at: usize,
    leaves: Vec<Leaf>,
}

impl Scanner<'_> {
    fn space(&mut self) {
        self.at += self.text[self.at..].len() - self.text[self.at..].trim_start().len();
    }

    fn next(&self) -> char {
        self.text[self.at..].chars().next().unwrap()
    }

    /// The token from here on, whose end is found.
    fn token(&mut self) -> Range<usize> {
        let (start, bytes) = (self.at, self.text.as_bytes());
        if bytes[start] == b'"' {
            self.at += 1;
            while bytes[self.at] != b'"' {
                self.at += if bytes[self.at] == b'\\' { 2 } else { 1 };
            }
            self.at += 1;
        } else {
            self.at += self.text[start..].find([',', ']', '}', '\n', ' ']).unwrap_or(self.text.len() - start);
        }
        start..self.at
    }

    fn value(&mut self, path: &str) {
        self.space();
        match self.next() {
            '{' => self.entries(path, '}'),
            '[' => self.entries(path, ']'),
            _ => {
                let range = self.token();
                self.leaves.push(Leaf { path: path.to_owned(), token: self.text[range.clone()].to_owned(), range });
            }
        }
    }

    fn entries(&mut self, path: &str, close: char) {
        let (from, before) = (self.at, self.leaves.len());
        loop {
            self.at += 1;
            self.space();
            if self.next() == close {
                break;
            }
            if close == '}' {
                let name: String = {
                    let range = self.token();
                    serde_json::from_str(&self.text[range]).unwrap()
                };
                self.space();
                self.at += 1;
                self.value(&if path.is_empty() { name } else { format!("{path}.{name}") });
            } else {
                self.value(&format!("{path}[]"));
            }
            self.space();
            if self.next() == close {
                break;
            }
        }
        self.at += 1;
        // What is empty is a leaf.
        if self.leaves.len() == before && self.text[from..self.at].len() < 4 {
            self.leaves.push(Leaf { path: path.to_owned(), token: self.text[from..self.at].to_owned(), range: from..self.at });
        }
    }
}

/// All leaves, in order.
pub(crate) fn leaves(text: &str) -> Vec<Leaf> {
    let mut scanner = Scanner { text, at: 0, leaves: Vec::new() };
    scanner.value("");
    assert_eq!(text[scanner.at..].trim(), "");
    scanner.leaves
}

impl Leaf {
    /// The text with another token here.
    pub(crate) fn with(&self, text: &str, token: &str) -> String {
        format!("{}{token}{}", &text[..self.range.start], &text[self.range.end..])
    }

    /// Other tokens: other values of the same kind, other kinds, and other spellings of the same number.
    pub(crate) fn others(&self) -> Vec<String> {
        let token = &self.token;
        let mut others: Vec<String> = ["null", "0", "-1", "\"\"", "{}", "[]", "true"].map(str::to_owned).into();
        match token.chars().next().unwrap() {
            '"' => {
                let text: String = serde_json::from_str(token).unwrap();
                let more = [format!("{text} "), format!("{text}x"), text.chars().skip(1).collect(), text.to_uppercase()];
                let names = [
                    "record",
                    "person",
                    "site",
                    "add-remove",
                    "replace-one",
                    "local",
                    "aggregated",
                    "add_remove",
                    "zero_out",
                    "hospital-9",
                ];
                let texts = more.iter().map(String::as_str).chain(names);
                others.extend(texts.map(|text| serde_json::to_string(text).unwrap()));
            }
            '-' | '0'..='9' => {
                let value: f64 = token.parse().unwrap();
                others.extend(
                    [value * 0.5, value * 0.999, value + 1.0, value.next_down(), value.next_up()].map(|number| format!("{number:?}")),
                );
                if let Ok(whole) = token.parse::<u64>() {
                    others.extend([whole.saturating_add(1), whole.saturating_sub(1)].map(|number| number.to_string()));
                }
                // The same number, and one that some readers take for it.
                others.extend([format!("{token}e0"), format!("{token}E+0"), format!("\"{token}\"")]);
                others.push(if token.contains('.') { format!("{token}0") } else { format!("{token}.0") });
            }
            _ => others.push("false".to_owned()),
        }
        others.retain(|other| other != token);
        others.sort();
        others.dedup();
        others
    }
}

/// The text with the tokens of two leaves exchanged.
pub(crate) fn exchanged(text: &str, one: &Leaf, other: &Leaf) -> String {
    let (first, second) = if one.range.start < other.range.start { (one, other) } else { (other, one) };
    let behind = second.with(text, &first.token);
    first.with(&behind, &second.token)
}

/// The file with one field or entry removed, doubled, added or moved: where, what was done, and the text.
pub(crate) fn reshaped(text: &str) -> Vec<(String, &'static str, String)> {
    use serde_json::{Value, json};
    let whole: Value = serde_json::from_str(text).unwrap();
    let mut all = Vec::new();
    // Pointers to all objects and lists, with their paths.
    let mut open = vec![(String::new(), String::new())];
    while let Some((pointer, path)) = open.pop() {
        let mut put = |path: String, what, change: &dyn Fn(&mut Value)| {
            let mut changed = whole.clone();
            change(changed.pointer_mut(&pointer).unwrap());
            all.push((path, what, changed.to_string()));
        };
        match whole.pointer(&pointer).unwrap() {
            Value::Object(fields) => {
                put(path.clone(), "added", &|object| object["and one more"] = json!(1));
                for (name, value) in fields {
                    let inner = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    put(inner.clone(), "removed", &|object| drop(object.as_object_mut().unwrap().remove(name)));
                    if value.is_object() || value.is_array() {
                        open.push((format!("{pointer}/{name}"), inner));
                    }
                }
            }
            Value::Array(entries) if !entries.is_empty() => {
                put(path.clone(), "an entry less", &|list| drop(list.as_array_mut().unwrap().pop()));
                put(path.clone(), "an entry twice", &|list| list.as_array_mut().unwrap().push(entries[0].clone()));
                if entries.iter().rev().ne(entries) {
                    put(path.clone(), "turned round", &|list| list.as_array_mut().unwrap().reverse());
                }
                // The first entries of a list stand for all: there are as many statements.
                let inner = entries.iter().take(3).enumerate().filter(|(_, entry)| entry.is_object() || entry.is_array());
                open.extend(inner.map(|(number, _)| (format!("{pointer}/{number}"), format!("{path}[]"))));
            }
            _ => {}
        }
    }
    all
}
