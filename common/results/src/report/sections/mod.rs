//! The parts of the page, in the order in which a board reads them.

mod agreement;
mod classes;
mod convergence;
mod details;
mod effects;
mod forecast;
mod participation;
mod predictions;
mod privacy;
mod summary;
mod survival;
mod terms;

use std::fmt::Write;

use crate::document::PosteriorDocument;

use crate::report::Run;
use crate::report::html::Escaped;
use crate::report::style::PAGE_STYLE;

/// The whole page.
pub(crate) fn page(run: &Run<'_>, document: &PosteriorDocument) -> String {
    let mut html = String::new();
    // Writing into a string cannot fail.
    let _ = write!(
        html,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>{federation}: {task}</title><style>{PAGE_STYLE}</style></head><body><main><h1>{task}</h1><p class=\"lead\">{federation}, run {}</p>",
        run.number,
        federation = Escaped(run.federation),
        task = Escaped(&run.task.name)
    );
    let mut section = |id: &str, write: &dyn Fn(&mut String)| {
        let mut part = String::new();
        write(&mut part);
        if !part.is_empty() {
            let _ = write!(html, "<section id=\"{id}\">{part}</section>");
        }
    };
    section("short", &|html| summary::write(html, run, document));
    if document.problem.is_none() {
        section("effects", &|html| effects::write(html, run, document));
        section("terms", &|html| terms::write(html, run, document));
        section("survival", &|html| survival::write(html, run, document));
    }
    section("predictions", &|html| predictions::write(html, run, document));
    if document.problem.is_none() {
        section("convergence", &|html| convergence::write(html, document));
        section("forecast", &|html| forecast::write(html, run, document));
    }
    section("agreement", &|html| agreement::write(html, document));
    section("privacy", &|html| privacy::write(html, run, document));
    section("participation", &|html| participation::write(html, run));
    section("details", &|html| details::write(html, run, document));
    html.push_str("</main></body></html>");
    html
}

/// A table that scrolls in a box of its own where the page is narrow; `label` names the box to a screen reader.
fn scrolled(html: &mut String, label: &str, table: &str) {
    let _ = write!(html, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{}\">{table}</div>", Escaped(label));
}
