use super::super::catalogue::Planned;
use super::super::columns::Text;
use super::*;

const TEXT: &str = r#"
rows = "ROWS"
[persons]
table = "p"
key = "id"
[sources.events]
table = "e"
[index]
person = "start"
[[columns]]
name = "born"
person = "born"
give = "years-before-index"
[[columns]]
name = "first"
first = "value"
of = "events"
by = "day"
[[columns]]
name = "last"
last = "value"
of = "events"
by = "day"
[[columns]]
name = "least"
min = "value"
of = "events"
[[columns]]
name = "sum"
sum = "value"
of = "events"
[[columns]]
name = "mean"
mean = "value"
of = "events"
[[columns]]
name = "soon"
count = "events"
when = { day = { from = 0, to = 10 } }
[[columns]]
name = "ever"
any = "events"
"#;

/// Persons: start, born. Events: value, day.
fn of(rows: &str, persons: &[[&str; 2]], events: &[[&str; 2]]) -> Vec<Vec<String>> {
    let text = if rows.is_empty() { TEXT.replace("rows = \"ROWS\"\n", "") } else { TEXT.replace("ROWS", rows) };
    let description = Description::parse(&text).unwrap();
    let planned =
        |key, cells: &[Family]| Planned { select: String::new(), key, cells: cells.iter().map(|family| (Text::Same, *family)).collect() };
    let plan = Plan {
        sources: vec![planned(Family::Integer, &[Family::Date, Family::Date]), planned(Family::Integer, &[Family::Decimal, Family::Date])],
    };
    let cells = |rows: &[[&str; 2]]| -> Vec<Record> {
        rows.iter().map(|row| row.iter().map(|cell| (!cell.is_empty()).then(|| (*cell).into())).collect()).collect()
    };
    let mut groups = [cells(persons), cells(events)];
    let mut rows = Vec::new();
    super::rows(&description, &plan, &mut groups, &mut |row| {
        rows.push(row);
        Ok(())
    })
    .unwrap();
    rows.into_iter().map(|row| row.into_iter().map(|cell| cell.map_or_else(|| "-".to_owned(), Into::into)).collect()).collect()
}

const PERSON: [[&str; 2]; 1] = [["2020-03-01", "1950-03-02"]];

#[test]
fn a_row_a_person_has_what_the_rules_say() {
    let events = [["0.5", "2020-03-05"], ["10", "2020-03-11"], ["9", "2020-03-11"], ["", "2020-03-12"], ["2", "2020-02-28"]];
    assert_eq!(of("", &PERSON, &events), [["69", "2", "9", "0.5", "21.5", "5.375", "3", "true"]]);
    assert_eq!(of("", &PERSON, &[]), [["69", "-", "-", "-", "0", "-", "0", "false"]]);
}

#[test]
fn the_order_of_the_database_does_not_matter() {
    let events =
        [["0.1", "2020-03-05"], ["0.2", "2020-03-05"], ["1e9", "2020-03-05"], ["-1e9", "2020-03-05"], ["0.3", "2020-03-05 10:00:00"]];
    let first = of("", &PERSON, &events);
    for turn in 1..events.len() {
        let mut other = events;
        other.rotate_left(turn);
        assert_eq!(of("", &PERSON, &other), first, "turned by {turn}");
        other.reverse();
        assert_eq!(of("", &PERSON, &other), first, "turned by {turn} and back to front");
    }
}

#[test]
fn without_an_index_or_a_person_there_is_no_row() {
    assert!(of("", &[["", "1950-03-02"]], &[["1", "2020-01-01"]]).is_empty());
    assert!(of("", &[["infinity", "1950-03-02"]], &[]).is_empty());
    assert!(of("", &[], &[["1", "2020-01-01"]]).is_empty());
}

#[test]
fn each_row_of_a_source_gives_a_row() {
    assert_eq!(of("events", &PERSON, &[["1", "2020-03-01"], ["1", "2020-03-01"]]).len(), 2);
    assert!(of("events", &PERSON, &[]).is_empty());
}

#[test]
fn dates_are_read_or_passed_over() {
    for (text, read) in [
        ("2020-02-29", true),
        ("2020-02-29 23:59:59.5", true),
        ("2021-02-29", false),
        ("infinity", false),
        ("-infinity", false),
        ("0044-03-15 BC", false),
        ("12020-01-01", false),
        ("2020-1-01", false),
        ("2020-02-29T00:00", false),
        ("", false),
        ("ä020-02-29", false),
    ] {
        assert_eq!(day(text).is_some(), read, "{text}");
    }
}

#[test]
fn texts_are_found_as_a_schema_s_texts_are() {
    let texts = BTreeMap::from([("8507".to_owned(), "male".to_owned()), ("é".to_owned(), "accent".to_owned())]);
    for (value, found) in [
        ("8507", Some("male")),
        ("8507.0", Some("male")),
        (" 8507 ", Some("male")),
        ("8507.5", None),
        ("e\u{301}", Some("accent")),
        ("male", None),
    ] {
        assert_eq!(listed(&texts, value), found, "{value:?}");
    }
}
