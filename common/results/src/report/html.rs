//! What both the status page and the report need of HTML.

use std::fmt;

use dp_pvi_protocol::text::is_hidden;

pub use crate::report::style::PAGE_STYLE;

/// Text made safe for HTML: no markup, and no character that is hidden or turns the text around it. A line's end stays: on a page it forges
/// nothing.
pub struct Escaped<'a>(pub &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                c if is_hidden(c) && c != '\n' => write!(f, "{}", c.escape_default())?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_hidden_characters_are_shown() {
        let shown = Escaped("<script>\u{202e}a\u{1b}[1m&'\"\n").to_string();
        assert_eq!(shown, "&lt;script&gt;\\u{202e}a\\u{1b}[1m&amp;&#39;&quot;\n");
    }
}
