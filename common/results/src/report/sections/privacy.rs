//! What was spent, in plain words and in numbers.

use std::fmt::Write;

use crate::document::PosteriorDocument;
use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_posterior::task::Trust;
use dp_pvi_protocol::statement::PrivacyStatement;

use super::scrolled;
use crate::report::Run;
use crate::report::axis::{Axis, Labels};
use crate::report::html::Escaped;
use crate::report::numbers::{bound, count, number};
use crate::report::rows::{Mark, Row, Rows};

/// False alarms of the attacker in the example.
const FALSE_ALARMS: f64 = 0.01;

/// The statement that promises least; no one's where a site has none.
fn weakest(document: &PosteriorDocument) -> Option<(&PrivacyStatement, f64)> {
    let all: Option<Vec<_>> = document.privacy.iter().map(|statement| Some((statement, statement.epsilon?))).collect();
    all?.into_iter().max_by(|a, b| a.1.total_cmp(&b.1))
}

/// The guarantee in a sentence.
pub(super) fn in_short(document: &PosteriorDocument) -> String {
    let Some((statement, epsilon)) = weakest(document) else {
        return "<span class=\"warn\">No guarantee.</span> At least one site took part without protection (ε = ∞).".into();
    };
    format!(
        "<span class=\"nb\">ε = {}</span>, <span class=\"nb\">δ = {}</span> for every {} of every site, {}.",
        bound(epsilon),
        number(statement.delta),
        protected(statement.unit),
        match statement.trust {
            Trust::Local => "also against the coordinator and all other sites together",
            Trust::Aggregated => "as long as coordinator and summer do not work together",
        }
    )
}

fn protected(unit: PrivacyUnit) -> &'static str {
    match unit {
        PrivacyUnit::Record => "record",
        PrivacyUnit::Person => "person",
        PrivacyUnit::Site => "site as a whole",
    }
}

/// What an attacker in the example does not know: which of two neighbouring data sets it is. Under add-remove that is no exchange, which costs more than ε.
fn doubt(unit: PrivacyUnit, relation: Relation) -> &'static str {
    match (unit, relation) {
        (PrivacyUnit::Record, Relation::ReplaceOne) => "whether one record is that of Mrs A or of Mrs B",
        (PrivacyUnit::Record, Relation::AddRemove) => "whether a record of Mrs A is among them or not",
        (PrivacyUnit::Person, Relation::ReplaceOne) => "whether one person is Mrs A or Mrs B",
        (PrivacyUnit::Person, Relation::AddRemove) => "whether Mrs A is among the persons or not",
        (PrivacyUnit::Site, Relation::ReplaceOne) => "which of two data sets one site has",
        (PrivacyUnit::Site, Relation::AddRemove) => "whether one site takes part with its records or with none",
    }
}

/// Bound on the share of right alarms of an attacker with this share of false ones: (ε, δ) differential privacy bounds it by e^ε α + δ, and by
/// 1 − e^(−ε)(1 − δ − α) (Wasserman and Zhou 2010; Kairouz, Oh and Viswanath 2015).
fn right_alarms(epsilon: f64, delta: f64, false_alarms: f64) -> f64 {
    let upper = epsilon.exp() * false_alarms + delta;
    let lower = 1.0 - (-epsilon).exp() * (1.0 - delta - false_alarms);
    upper.min(lower).clamp(0.0, 1.0)
}

/// In percent, rounded up to a tenth.
fn percent_up(share: f64) -> String {
    format!("{:.1} %", (1000.0 * share - 1e-9).ceil() / 10.0)
}

/// What neighbours are, as something that one could do to the data.
fn change(statement: &PrivacyStatement) -> &'static str {
    match (statement.unit, statement.relation) {
        (PrivacyUnit::Record, Relation::ReplaceOne) => "Take any record of a site and exchange it for any other record",
        (PrivacyUnit::Record, Relation::AddRemove) => "Take any record of a site away, or add one",
        (PrivacyUnit::Person, Relation::ReplaceOne) => {
            "Take all records of any person at a site and exchange them for those of any other person"
        }
        (PrivacyUnit::Person, Relation::AddRemove) => "Take all records of any person at a site away, or add a person",
        (PrivacyUnit::Site, Relation::ReplaceOne) => "Take all records of a site and exchange them for any others",
        (PrivacyUnit::Site, Relation::AddRemove) => "Take a whole site away, or add one",
    }
}

fn in_words(html: &mut String, statement: &PrivacyStatement, epsilon: f64) {
    let delta = statement.delta;
    let observer = match statement.trust {
        Trust::Local => {
            "It holds against everybody, whatever they know besides, and also against the coordinator together with all other sites."
        }
        Trust::Aggregated => {
            "It holds against everybody but the coordinator and the summer working together, and counts on the number of honest sites that the task names. \
             If all others work together, the larger ε of the table is what is left."
        }
    };
    // Writing into a string cannot fail.
    let _ = write!(
        html,
        "<p>{}. Then the probability of whatever could be seen in the whole run becomes at most <b class=\"nb\">{} times</b> what it was, plus \
         <span class=\"nb\">{}</span>. {observer}</p>\
         <p>An example: somebody knows everything except {}, sees the whole run, and may raise a false alarm in one of \
         a hundred cases. Without the run he is right in 1 % of cases as well; with it in at most <b class=\"nb\">{}</b>.</p>",
        change(statement),
        factor(epsilon),
        one_in(delta),
        doubt(statement.unit, statement.relation),
        percent_up(right_alarms(epsilon, delta, FALSE_ALARMS))
    );
    html.push_str(
        "<p>What it does not say:</p><ul><li>It does not hide what is true of people in general. If the study shows that smoking doubles a risk, that is \
         learned about every smoker, in the data or not.</li><li>It is for this run. Runs on the same data add up, and each site's ledger counts them; somebody \
         whose records are at two sites adds up both.</li><li>It does not cover what is public: the task, the schema, the declared numbers of records, who took \
         part and when, and the evaluator's test records.</li></ul>",
    );
}

/// e^ε, rounded up.
fn factor(epsilon: f64) -> String {
    let factor = epsilon.exp();
    match factor {
        factor if factor < 100.0 => format!("{:.2}", (100.0 * factor - 1e-9).ceil() / 100.0),
        factor if factor < 1e6 => format!("{:.0}", factor.ceil()),
        factor if factor.is_finite() => format!("{factor:.0e}"),
        _ => "∞".into(),
    }
}

/// δ as one in so many.
fn one_in(delta: f64) -> String {
    let many = 1.0 / delta;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and 1e15")]
    if delta > 0.0 && (1.0..1e15).contains(&many) { format!("one in {}", count((many + 1e-6).floor() as u64)) } else { number(delta) }
}

pub(super) fn write(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    html.push_str("<h2>What it cost in privacy</h2>");
    match weakest(document) {
        Some((statement, epsilon)) => in_words(html, statement, epsilon),
        None => html.push_str(
            "<p><span class=\"warn\">At least one site has no guarantee: its ε is infinite.</span> What it sent may tell anything about its records to \
             whoever sees it.</p>",
        ),
    }
    html.push_str(&spent(run, document));
    numbers(html, run, document);
}

/// ε of every site as bars.
fn spent(run: &Run<'_>, document: &PosteriorDocument) -> String {
    let stated = run.task.privacy.epsilon.map(|epsilon| epsilon.get()).filter(|epsilon| epsilon.is_finite());
    let planned: Vec<(&str, f64)> = document.privacy.iter().filter_map(|s| Some((s.site.as_str(), s.epsilon?))).collect();
    let Some(axis) = Axis::around(planned.iter().map(|(_, epsilon)| *epsilon).chain(stated).chain([0.0]), Labels::Plain, 6) else {
        return String::new();
    };
    let rows: Vec<Row<'_>> =
        planned.iter().map(|(name, epsilon)| Row { name, mark: Some(Mark::Bar(*epsilon)), values: vec![bound(*epsilon)] }).collect();
    let note = match stated {
        Some(stated) => format!(
            "Of the whole plan, answered or not, at δ = {}. The line is what the task states: {}.",
            number(run.task.privacy.delta.get()),
            number(stated)
        ),
        None => format!("Of the whole plan, answered or not, at δ = {}.", number(run.task.privacy.delta.get())),
    };
    Rows { title: "ε of every site", note: &note, heads: ("site", "", &["ε"]), axis: &axis, reference: stated, rows: &rows }.render()
}

fn numbers(html: &mut String, run: &Run<'_>, document: &PosteriorDocument) {
    let aggregated = document.privacy.iter().any(|statement| statement.fallback_epsilon.is_some());
    let fallback = if aggregated { "<th scope=\"col\" class=\"n\">ε if all others collude</th>" } else { "" };
    let mut table = format!(
        "<table><tr><th scope=\"col\">site</th><th scope=\"col\" class=\"n\">declared units</th><th scope=\"col\">unit</th><th scope=\"col\">neighbours</th>\
         <th scope=\"col\" class=\"n\">ε</th>{fallback}<th scope=\"col\" class=\"n\">δ</th><th scope=\"col\" class=\"n\">visits answered</th>\
         <th scope=\"col\">trust</th></tr>"
    );
    for statement in &document.privacy {
        let units = run.members.get(&statement.site).and_then(|member| member.units);
        let _ = write!(
            table,
            "<tr><td class=\"nb\">{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"nb\">{}</td><td class=\"n\">{}</td>",
            statement.site,
            units.map_or_else(|| "–".into(), count),
            match statement.unit {
                PrivacyUnit::Record => "record",
                PrivacyUnit::Person => "person",
                PrivacyUnit::Site => "site",
            },
            match statement.relation {
                Relation::AddRemove => "add or remove one",
                Relation::ReplaceOne => "replace one",
            },
            statement.epsilon.map_or_else(|| "∞".into(), bound)
        );
        if aggregated {
            let _ = write!(table, "<td class=\"n\">{}</td>", statement.fallback_epsilon.map_or_else(|| "–".into(), bound));
        }
        let _ = write!(
            table,
            "<td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td></tr>",
            number(statement.delta),
            statement.releases,
            match statement.trust {
                Trust::Local => "local: every site protects itself",
                Trust::Aggregated => "aggregated: noise is whole only in the sum",
            }
        );
    }
    table.push_str("</table>");
    scrolled(html, "privacy statement of every site", &table);
    for words in document.privacy.iter().filter_map(|statement| statement.rows.sentence(&statement.site)) {
        let _ = write!(html, "<p class=\"note\">{}</p>", Escaped(&words));
    }
    if let Some(statement) = document.privacy.first() {
        let _ = write!(html, "<p class=\"note\">Released {}.</p><ul class=\"note\">", Escaped(&statement.released));
        for remark in &statement.remarks {
            let _ = write!(html, "<li>{}</li>", Escaped(remark));
        }
        html.push_str("</ul>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attacker_is_right_as_often_as_epsilon_and_delta_allow() {
        // Nothing seen: as often right as wrong.
        assert!((right_alarms(0.0, 0.0, 0.01) - 0.01).abs() < 1e-15);
        assert!((right_alarms(1.0, 0.0, 0.01) - 0.01 * 1.0_f64.exp()).abs() < 1e-15);
        // At large ε the second bound decides: 1 − e^(−ε) · 0.99.
        assert!((right_alarms(5.0, 0.0, 0.01) - (1.0 - 0.99 * (-5.0_f64).exp())).abs() < 1e-12);
        assert!(right_alarms(50.0, 1e-5, 0.01) <= 1.0);
    }

    /// An exchange of one unit for another is what replace-one hides, and nothing else.
    #[test]
    fn an_attacker_tells_neighbouring_data_sets_apart() {
        for unit in [PrivacyUnit::Record, PrivacyUnit::Person] {
            assert!(doubt(unit, Relation::ReplaceOne).contains("Mrs B"));
            let words = doubt(unit, Relation::AddRemove);
            assert!(words.contains("Mrs A") && !words.contains("Mrs B"), "{words}");
        }
    }

    #[test]
    fn bounds_in_words_are_rounded_up() {
        assert_eq!((factor(1.0), factor(0.0), factor(5.0)), ("2.72".into(), "1.00".into(), "149".into()));
        assert_eq!(percent_up(0.027_183), "2.8 %");
        assert_eq!((one_in(1e-5), one_in(0.0), one_in(3e-6)), ("one in 100,000".into(), "0".into(), "one in 333,333".into()));
    }
}
