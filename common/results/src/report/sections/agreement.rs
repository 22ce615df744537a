//! Whether the sites agree: every site against all others.

use std::fmt::Write;

use crate::agreement::{Agreement, Comparison, SiteAgreement, Tested, Verdict};
use crate::document::PosteriorDocument;

use super::scrolled;
use crate::report::axis::{Axis, Labels};
use crate::report::html::Escaped;
use crate::report::numbers::{aligned, number, percent};
use crate::report::rows::{Full, Mark, Row, Rows};

/// Smaller probabilities are drawn here: they would flatten the picture.
const LEAST_DRAWN: f64 = 1e-6;

pub(super) fn write(html: &mut String, document: &PosteriorDocument) {
    let Some(agreement) = &document.agreement else { return };
    // Writing into a string cannot fail.
    let _ = write!(html, "<h2>Do the sites agree?</h2><p>{}{}</p>", word(agreement), Escaped(&agreement.sentence()));
    if let Agreement::Tested(tested) = agreement {
        picture(html, tested);
        table(html, tested);
    }
}

/// The answer in a word, where there is one.
pub(super) fn word(agreement: &Agreement) -> &'static str {
    let Agreement::Tested(tested) = agreement else { return "" };
    let bad = tested.sites.iter().any(|site| matches!(site.verdict, Verdict::Differs | Verdict::Impossible));
    if bad { "<span class=\"warn\">No.</span> " } else { "" }
}

/// The test of a site that could be tested.
fn comparison(site: &SiteAgreement) -> Option<&Comparison> {
    site.comparison.as_ref().filter(|_| matches!(site.verdict, Verdict::Ordinary | Verdict::Differs))
}

fn picture(html: &mut String, tested: &Tested) {
    let at = |probability: f64| probability.max(LEAST_DRAWN).ln();
    let probabilities = tested.sites.iter().filter_map(comparison).map(|comparison| comparison.p_adjusted);
    let Some(axis) = Axis::around(probabilities.chain([tested.level / 10.0, 1.0]).map(at), Labels::Exp, 6) else { return };
    let rows: Vec<Row<'_>> = tested
        .sites
        .iter()
        .map(|site| {
            let found = comparison(site).map(|comparison| comparison.p_adjusted);
            let full = if site.verdict == Verdict::Differs { Full::Yes } else { Full::No };
            let mark = found.map(|p| Mark::Interval { centre: at(p), inner: None, outer: None, full });
            let none = if site.verdict == Verdict::Impossible { "impossible" } else { "not tested" };
            Row { name: site.site.as_str(), mark, values: vec![found.map_or_else(|| none.into(), probability)] }
        })
        .collect();
    let note = format!(
        "How probable a difference from the other sites as large as this one is where there are only noise, chance and ordinary differences, \
         counted for all sites together. Left of the line at {} a site differs, and its dot is full.",
        percent(tested.level)
    );
    let table = Rows {
        title: "Every site against the others",
        note: &note,
        heads: ("site", "", &["probability"]),
        axis: &axis,
        reference: Some(at(tested.level)),
        rows: &rows,
    };
    html.push_str(&table.render());
}

fn table(html: &mut String, tested: &Tested) {
    let mut table =
        "<table><tr><th scope=\"col\">site</th><th scope=\"col\" class=\"n\">χ²</th><th scope=\"col\" class=\"n\">degrees of freedom</th>\
                     <th scope=\"col\" class=\"n\">p of this site alone</th><th scope=\"col\">differs most in</th>\
                     <th scope=\"col\" class=\"n\">by standard deviations</th></tr>"
            .to_owned();
    for (site, Comparison { statistic, degrees, p, farthest, .. }) in tested.sites.iter().filter_map(|site| Some((site, comparison(site)?)))
    {
        let _ = write!(
            table,
            "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{degrees}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td></tr>",
            Escaped(site.site.as_str()),
            aligned(*statistic),
            probability(*p),
            Escaped(&farthest.coefficient),
            aligned(farthest.z)
        );
    }
    table.push_str("</table>");
    html.push_str("<details><summary>The tests as a table</summary>");
    scrolled(html, "tests of the sites", &table);
    let _ = write!(
        html,
        "<p class=\"note\">No alarm are differences between sites with standard deviations of {} (intercept) and {} (other coefficients), and more where the \
         others differ by more among themselves. Adjusted for the number of sites by Holm's method.</p></details>",
        number(tested.allowance.intercept),
        number(tested.allowance.others)
    );
}

fn probability(p: f64) -> String {
    if p < LEAST_DRAWN { format!("&lt; {LEAST_DRAWN:e}") } else { number(p) }
}
