//! What both the status page and the report need of HTML.

use std::fmt;

use dp_pvi_protocol::text::is_hidden;

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

/// Looks of a page.
pub const PAGE_STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;color:#1c2430;background:#fff;max-width:64rem;margin:2rem auto;\
padding:0 1rem}h1{font-size:1.6rem;margin-bottom:.2rem}h2{font-size:1.2rem;margin-top:2.2rem}table{border-collapse:collapse;margin:.6rem 0}\
th,td{text-align:left;padding:.25rem .9rem .25rem 0;border-bottom:1px solid #dde2e8;vertical-align:top}th{font-weight:600}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font-size:.85em;overflow-wrap:anywhere}.note{color:#56606d;font-size:.92rem}\
svg{max-width:100%;height:auto}a{color:#1f5fa8}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_and_hidden_characters_are_shown() {
        let shown = Escaped("<script>\u{202e}a\u{1b}[1m&'\"\n").to_string();
        assert_eq!(shown, "&lt;script&gt;\\u{202e}a\\u{1b}[1m&amp;&#39;&quot;\n");
    }
}
