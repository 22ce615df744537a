//! Whether the run converged.

use std::fmt::Write;

use crate::convergence::Verdict;
use crate::document::PosteriorDocument;

use crate::report::axis::{Axis, Labels};
use crate::report::html::Escaped;
use crate::report::numbers::{aligned, fixed, percent};
use crate::report::rows::{Mark, Row, Rows};

/// So many distances are drawn; the table of coefficients has them all.
const DRAWN: usize = 12;
/// Distance up to which a run counts as converged, marked in the picture.
const CONVERGED: f64 = 2.0;

pub(super) fn write(html: &mut String, document: &PosteriorDocument) {
    html.push_str("<h2>Did the run converge?</h2>");
    let Some(convergence) = &document.convergence else {
        html.push_str("<p>Not known: this method leaves no second reading of its released values to compare the posterior with.</p>");
        return;
    };
    let (look, word) = match convergence.verdict {
        Verdict::Converged => ("good", "Yes."),
        Verdict::Extrapolated => ("warn", "Not quite."),
        Verdict::NotConverged => ("warn", "No."),
    };
    let sentence = convergence.sentence(document.coefficients.iter().map(|c| c.name.as_str()));
    // Writing into a string cannot fail.
    let _ = write!(html, "<p><span class=\"{look}\">{word}</span> {}</p>", Escaped(&sentence));
    let mut far: Vec<(&str, f64)> =
        document.coefficients.iter().map(|c| c.name.as_str()).zip(convergence.distances.iter().copied()).collect();
    far.sort_by(|a, b| b.1.total_cmp(&a.1));
    let all = far.len();
    far.truncate(DRAWN);
    let Some(axis) = Axis::around(far.iter().map(|(_, distance)| *distance).chain([0.0, 1.25 * CONVERGED]), Labels::Plain, 6) else {
        return;
    };
    let rows: Vec<Row<'_>> =
        far.iter().map(|(name, distance)| Row { name, mark: Some(Mark::Bar(*distance)), values: vec![fixed(*distance, 2)] }).collect();
    let title = if all > DRAWN {
        format!("Distance of the run's own posterior, the {DRAWN} farthest of {all}")
    } else {
        "Distance of the run's own posterior".into()
    };
    let table = Rows {
        title: &title,
        note: "In standard deviations, from where all released values together place it. Up to the line at 2 a run counts as converged.",
        heads: ("coefficient", "", &["distance"]),
        axis: &axis,
        reference: Some(CONVERGED),
        rows: &rows,
    };
    html.push_str(&table.render());
    if let Some(share) = convergence.noise_share {
        let _ = write!(
            html,
            "<p class=\"note\">Root mean square of all distances: {}. Of what widens the intervals, {} is noise; the rest comes from rounds that are missing.</p>",
            aligned(convergence.overall),
            percent(share)
        );
    }
}
