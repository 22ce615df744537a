//! What a task may name, from the registries.

use std::fmt::Write;

use crate::methods;
use dp_pvi_models as models;

/// All that `[model] family` and `[pvi] update` may name, a line each with what it is for: the end of a program's `--help`.
#[must_use]
pub fn names() -> String {
    let mut text = String::new();
    let families: Vec<_> = models::registered().collect();
    let updates: Vec<_> = methods::registered().collect();
    let width = families.iter().chain(&updates).map(|(name, _)| name.len()).max().unwrap_or(0);
    for (key, entries) in [("[model] family", families), ("[pvi] update", updates)] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}{key} of a task:", if text.is_empty() { "" } else { "\n" });
        for (name, help) in entries {
            let _ = writeln!(text, "  {name:width$}  {help}");
        }
    }
    text
}
