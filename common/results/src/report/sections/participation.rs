//! Who took part in which round.

use std::fmt::Write;

use dp_pvi_protocol::message::RoundOutcome;

use super::scrolled;
use crate::report::Run;

pub(super) fn write(html: &mut String, run: &Run<'_>) {
    html.push_str("<h2>Who took part</h2>");
    let mut table =
        "<table><tr><th scope=\"col\">site</th><th scope=\"col\" class=\"n\">updates sent</th><th scope=\"col\" class=\"n\">included</th>\
                     <th scope=\"col\">refusals</th></tr>"
            .to_owned();
    for (site, releases) in run.sites() {
        let included = run.rounds.iter().filter(|round| round.included.contains(site)).count();
        let refusals: Vec<String> = run
            .refusals
            .iter()
            .filter(|refusal| refusal.release.client == *site)
            .map(|refusal| format!("round {} ({:?})", refusal.release.round, refusal.reason).to_lowercase())
            .collect();
        // Writing into a string cannot fail.
        let _ = write!(
            table,
            "<tr><td class=\"nb\">{site}</td><td class=\"n\">{releases}</td><td class=\"n\">{included}</td><td>{}</td></tr>",
            if refusals.is_empty() { "–".to_owned() } else { refusals.join(", ") }
        );
    }
    table.push_str("</table>");
    scrolled(html, "participation of every site", &table);
    let incomplete: Vec<String> = run
        .rounds
        .iter()
        .enumerate()
        .filter(|(_, round)| round.outcome != RoundOutcome::Complete)
        .map(|(number, round)| format!("{number} ({:?}, {} included)", round.outcome, round.included.len()).to_lowercase())
        .collect();
    let _ = if incomplete.is_empty() {
        write!(html, "<p class=\"note\">Every round closed with all sites that were asked.</p>")
    } else {
        write!(html, "<p class=\"note\">Rounds that closed without somebody: {}.</p>", incomplete.join(", "))
    };
}
