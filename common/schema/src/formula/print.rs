//! The canonical text of a formula and its parts: the one that names of coefficients are made of.

use super::lexer::is_plain;
use super::syntax::{Argument, Call, Called, Kind, Name, Node, Response, Tree, Value, Variable};

/// The formula with one blank around operators; reading it again gives the same tree.
pub(super) fn formula(tree: &Tree) -> String {
    let response = match &tree.response {
        Response::Nothing => String::new(),
        Response::Column(name) => format!("{} ", column(&name.text)),
        Response::Survival { columns, .. } => {
            format!("Surv({}) ", joined(columns, ", ", |name: &Name| column(&name.text)))
        }
    };
    format!("{response}~ {}", node(&tree.terms, 0))
}

/// A column as it is in a formula.
pub(super) fn column(name: &str) -> String {
    if is_plain(name) && name != "TRUE" && name != "FALSE" { name.to_owned() } else { format!("`{name}`") }
}

/// A call: `f(a, b, name = value)`, arguments as they were written.
pub(super) fn call(call: &Call) -> String {
    format!("{}({})", call.name, joined(&call.arguments, ", ", argument))
}

/// A group: `(1 + age | site)`.
pub(super) fn group(effects: &Node, double: bool, by: &Variable) -> String {
    format!("({} {} {})", node(effects, 0), if double { "||" } else { "|" }, variable(by))
}

/// A column or a call.
pub(super) fn variable(variable: &Variable) -> String {
    match &variable.what {
        Called::Column(name) => column(name),
        Called::Call(inner) => call(inner),
    }
}

fn argument(argument: &Argument) -> String {
    match &argument.name {
        Some(name) => format!("{name} = {}", value(&argument.value)),
        None => value(&argument.value),
    }
}

fn value(value: &Value) -> String {
    match value {
        Value::Number(number) => number.to_string(),
        // A text holds at most one of the two quotes, as it was read between the other.
        Value::Text(text) if text.contains('"') => format!("'{text}'"),
        Value::Text(text) => format!("\"{text}\""),
        Value::Truth(truth) => if *truth { "TRUE" } else { "FALSE" }.to_owned(),
        Value::Column(name) => column(name),
        Value::Call(inner) => call(inner),
        Value::List(values) => format!("[{}]", joined(values, ", ", self::value)),
    }
}

/// A summand.
pub(super) fn summand(summand: &Node) -> String {
    node(summand, 1)
}

/// An expression where only parts that bind at least as tight as `tightness` stand without parentheses: 0 sums, 1 `*`, 2 `:`, 3 `^`.
fn node(node: &Node, tightness: u8) -> String {
    let (own, text) = match &node.kind {
        Kind::Intercept(true) => (4, "1".to_owned()),
        Kind::Intercept(false) => (4, "0".to_owned()),
        Kind::Every => (4, ".".to_owned()),
        Kind::Column(name) => (4, column(name)),
        Kind::Call(inner) => (4, call(inner)),
        Kind::Group { effects, double, by } => (4, group(effects, *double, by)),
        Kind::Power(base, power) => (3, format!("{}^{power}", self::node(base, 4))),
        Kind::Interaction(parts) => (2, joined(parts, ":", |part| self::node(part, 3))),
        Kind::Crossed(parts) => (1, joined(parts, " * ", |part| self::node(part, 2))),
        Kind::Sum(summands) => (0, sum(summands)),
    };
    if own < tightness { format!("({text})") } else { text }
}

fn sum(summands: &[(bool, Node)]) -> String {
    let mut text = String::new();
    for (position, (minus, summand)) in summands.iter().enumerate() {
        text += match (position, minus) {
            (0, false) => "",
            (0, true) => "-",
            (_, false) => " + ",
            (_, true) => " - ",
        };
        text += &node(summand, 1);
    }
    text
}

fn joined<T>(parts: &[T], sign: &str, print: impl Fn(&T) -> String) -> String {
    parts.iter().map(print).collect::<Vec<_>>().join(sign)
}
