//! A formula's text as tokens, each with the byte at which it begins.

use super::FormulaError;

/// What the grammar is made of.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A column, a call's name or an argument's name, and whether it stood in backticks.
    Name { text: String, quoted: bool },
    /// Without a sign.
    Number(f64),
    /// Between `'` or `"`.
    Text(String),
    /// `~ + - * : ^ ( ) [ ] , = | || .`.
    Sign(&'static str),
    /// After the last one.
    End,
}

/// A token and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) at: usize,
}

/// Longer signs first.
const SIGNS: [&str; 13] = ["||", "|", "~", "+", "-", "*", ":", "^", "(", ")", "[", "]", ","];

/// All tokens; the last one is [`Token::End`].
pub(super) fn tokens(text: &str) -> Result<Vec<Placed>, FormulaError> {
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(first) = text[at..].chars().next() {
        if first.is_whitespace() {
            at += first.len_utf8();
            continue;
        }
        let (token, length) = next(text, at, first)?;
        tokens.push(Placed { token, at });
        at += length;
    }
    tokens.push(Placed { token: Token::End, at: text.len() });
    Ok(tokens)
}

/// The token that begins at `at` with the character `first`, and its length in bytes.
fn next(text: &str, at: usize, first: char) -> Result<(Token, usize), FormulaError> {
    let rest = &text[at..];
    match first {
        '\'' | '"' => enclosed(text, at, first).map(|inside| (Token::Text(inside.to_owned()), inside.len() + 2)),
        '`' => enclosed(text, at, first).map(|inside| (Token::Name { text: inside.to_owned(), quoted: true }, inside.len() + 2)),
        '=' => Ok((Token::Sign("="), 1)),
        _ if first.is_alphabetic() => {
            let length = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
            Ok((Token::Name { text: rest[..length].to_owned(), quoted: false }, length))
        }
        _ if first.is_ascii_digit() || first == '.' => number(text, at),
        _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            Some(sign) => Ok((Token::Sign(sign), sign.len())),
            None => Err(unknown(text, at, first)),
        },
    }
}

/// What may follow the first letter of a name that needs no backticks.
pub(super) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '.'
}

/// Whether a column's name can stand without backticks.
pub(super) fn is_plain(name: &str) -> bool {
    name.chars().next().is_some_and(char::is_alphabetic) && name.chars().all(is_name)
}

fn enclosed(text: &str, at: usize, quote: char) -> Result<&str, FormulaError> {
    let inside = &text[at + 1..];
    match inside.find(quote) {
        Some(end) if end > 0 || quote != '`' => Ok(&inside[..end]),
        Some(_) => Err(FormulaError::new(text, at, "a column has a name: write it between the backticks")),
        None => Err(FormulaError::new(text, at, format!("the closing {quote} is missing"))),
    }
}

/// Digits with a point and an exponent.
fn number(text: &str, at: usize) -> Result<(Token, usize), FormulaError> {
    let bytes = &text.as_bytes()[at..];
    let digits = |from: usize| bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = digits(0);
    if bytes.get(length) == Some(&b'.') {
        length += 1 + digits(length + 1);
    }
    if matches!(bytes.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(length + 1), Some(b'+' | b'-')));
        if digits(length + 1 + sign) > 0 {
            length += 1 + sign + digits(length + 1 + sign);
        }
    }
    match text[at..at + length].parse::<f64>() {
        Ok(value) if value.is_finite() => Ok((Token::Number(value), length)),
        _ if length == 1 && text[at + 1..].starts_with(|c: char| is_name(c)) => Err(FormulaError::new(text, at, in_backticks(&text[at..]))),
        _ if length == 1 && bytes[0] == b'.' => Ok((Token::Sign("."), 1)),
        _ => Err(FormulaError::new(text, at, "this is no number")),
    }
}

/// What to write for a name that begins with a sign.
fn in_backticks(rest: &str) -> String {
    let name: String = rest.chars().take_while(|c| is_name(*c)).collect();
    format!("a name that begins with such a sign stands in backticks: write `{name}` with them")
}

fn unknown(text: &str, at: usize, first: char) -> FormulaError {
    if first == '_' {
        return FormulaError::new(text, at, in_backticks(&text[at..]));
    }
    let advice = match first {
        '/' => "`a/b` is not known: write `a + a:b`",
        '%' => "`%in%` is not known: write the interaction with `:`",
        _ => "this character means nothing in a formula; a column whose name has it stands in backticks",
    };
    FormulaError::new(text, at, advice)
}
