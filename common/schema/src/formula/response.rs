//! The outcome: what is before `~`, as the schema's columns say it.

use super::FormulaError;
use super::scope::Scope;
use super::syntax::{Name, Response};
use crate::{Column, ColumnKind, EntryRule, Label, LabelKind, NumberRule, SurvivalRule, Transform};

/// The outcome, and the positions of its columns.
pub(super) fn of(response: &Response, scope: &Scope<'_>) -> Result<(Label, Vec<usize>), FormulaError> {
    match response {
        Response::Nothing => Ok((Label::absent(), Vec::new())),
        Response::Column(name) => {
            let position = find(scope, name)?;
            let column = &scope.columns[position];
            let label = Label { column: column.name.clone(), kind: kind(column), published: column.published.clone() };
            Ok((label, vec![position]))
        }
        Response::Survival { at, columns } => survival(*at, columns, scope),
    }
}

fn kind(column: &Column) -> LabelKind {
    match &column.kind {
        ColumnKind::Number(rule) => LabelKind::Number { rule: *rule, whole: false },
        ColumnKind::Category(rule) => LabelKind::Classes { values: rule.values.clone() },
        ColumnKind::Boolean(rule) => LabelKind::Binary { positive: rule.true_values.clone() },
        // Was refused.
        ColumnKind::Ignored => LabelKind::Absent,
    }
}

fn survival(at: usize, names: &[Name], scope: &Scope<'_>) -> Result<(Label, Vec<usize>), FormulaError> {
    let (entry, time, event) = match names {
        [entry, time, event] => (Some(entry), time, event),
        [time, event] => (None, time, event),
        _ => return scope.fail(at, "write `Surv(time, event)` or `Surv(entry, time, event)`"),
    };
    let again = (1..names.len()).find(|number| names[..*number].iter().any(|name| name.text == names[*number].text));
    if let Some(number) = again {
        return scope.fail(names[number].at, "one column stands twice in `Surv(…)`: entry, time and event are three");
    }
    let time_at = |name: &Name| -> Result<(usize, NumberRule), FormulaError> {
        let position = find(scope, name)?;
        let ColumnKind::Number(rule) = &scope.columns[position].kind else {
            return scope.fail(name.at, format!("`{}` is a time here, and no number: give the column kind = \"number\"", name.text));
        };
        if rule.lower < 0.0 {
            return scope.fail(
                name.at,
                format!("`{}` is a time here, and times are counted from 0: give the column `lower` of 0 or more", name.text),
            );
        }
        // Times stay in the unit of the file.
        Ok((position, NumberRule { transform: Transform::Identity, centre: 0.0, scale: 1.0, ..*rule }))
    };
    let (position, rule) = time_at(time)?;
    let event_position = find(scope, event)?;
    let ColumnKind::Boolean(event_rule) = &scope.columns[event_position].kind else {
        return scope.fail(
            event.at,
            format!(
                "`{}` says here whether the time ended with the event: give the column kind = \"boolean\", with its true_values",
                event.text
            ),
        );
    };
    let mut positions = vec![position, event_position];
    let entry = match entry {
        None => None,
        Some(entry) => {
            let (position, rule) = time_at(entry)?;
            positions.push(position);
            Some(EntryRule { column: scope.columns[position].name.clone(), rule })
        }
    };
    let event_column = scope.columns[event_position].name.clone();
    let kind = LabelKind::Survival(SurvivalRule { time: rule, event_column, event: event_rule.clone(), entry });
    Ok((Label { column: scope.columns[position].name.clone(), kind, published: None }, positions))
}

/// The position of a column that can be an outcome.
fn find(scope: &Scope<'_>, name: &Name) -> Result<usize, FormulaError> {
    if scope.weights == Some(name.text.as_str()) {
        return scope.fail(name.at, format!("`{}` is the weight of records: it can be no outcome", name.text));
    }
    scope.find(&name.text, name.at)
}
