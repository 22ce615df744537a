//! Words of a peer, made fit for a terminal, a log or a page.
//!
//! A name, a reason or a status text that someone else wrote may hold characters that a terminal obeys (escape sequences, carriage
//! returns, newlines that forge another line) or that turn the order of what is read around. [`visible`] shows such a character as
//! its code and leaves all others as they are. Everything that a peer says goes through it before a person sees it.

use std::borrow::Cow;
use std::fmt;

/// Whether a character changes how the text around it is shown, or is not shown itself.
#[must_use]
pub const fn is_hidden(c: char) -> bool {
    matches!(
        c,
        // C0 and C1 control characters and DEL: terminals obey them.
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Soft hyphen, marks of direction, overrides, isolates, invisible operators, line and paragraph separators.
        | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
        // Annotations, and tags that repeat ASCII without being seen.
        | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
    )
}

/// The text with every hidden character written as its code: a newline becomes `\n`, an escape `\u{1b}`.
///
/// Text without hidden characters is not copied.
#[must_use]
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.contains(is_hidden) { Cow::Owned(Visible(text).to_string()) } else { Cow::Borrowed(text) }
}

/// JSON with every hidden character as a `\u` escape, so that it means the same and can be looked at.
///
/// In valid JSON a hidden character other than a line's end can only stand inside a string, where the escape means that character.
#[must_use]
pub fn visible_json(text: &str) -> Cow<'_, str> {
    let shown = |c: char| is_hidden(c) && c != '\n';
    if !text.contains(shown) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if shown(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                safe.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

/// [`visible`] for a formatter.
#[derive(Debug, Clone, Copy)]
pub struct Visible<'a>(pub &'a str);

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(is_hidden) {
            let (plain, from) = rest.split_at(at);
            f.write_str(plain)?;
            let mut chars = from.chars();
            if let Some(c) = chars.next() {
                write!(f, "{}", c.escape_default())?;
            }
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forged line of a price, colours, a bell, a title, an override of direction.
    const FORGED: &str = "adult\u{1b}[2K\r\ncost    this run spends epsilon 0.0001\u{7}\u{202e}\u{9b}31m<script>";

    #[test]
    fn what_a_terminal_would_obey_is_shown_as_its_code() {
        let shown = visible(FORGED);
        assert!(!shown.contains(is_hidden));
        assert_eq!(shown.lines().count(), 1);
        assert_eq!(shown, "adult\\u{1b}[2K\\r\\ncost    this run spends epsilon 0.0001\\u{7}\\u{202e}\\u{9b}31m<script>");
        assert_eq!(Visible(FORGED).to_string(), shown);
    }

    #[test]
    fn other_text_stays_as_it_is() {
        for text in ["", "a test", "Krankenhaus Süd – Außenstelle", "病院", "e\u{301}", "\\n"] {
            assert!(matches!(visible(text), Cow::Borrowed(same) if same == text));
            assert!(matches!(visible_json(text), Cow::Borrowed(_)));
        }
    }

    #[test]
    fn json_keeps_its_meaning() {
        let line = "{\"reason\":\"a\u{202e}b\u{9b}\u{e0041}\"}\n";
        let safe = visible_json(line);
        assert_eq!(safe, "{\"reason\":\"a\\u202eb\\u009b\\udb40\\udc41\"}\n");
    }
}
