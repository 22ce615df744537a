//! Survival times with entry and event, and weights of records.

use dp_pvi_data::{Omitted, Unwatched, inspect, load, load_for_prediction, load_for_run, load_public, select_public};
use dp_pvi_schema::Schema;
use dp_pvi_schema::public::Extra;
use std::path::PathBuf;

const SCHEMA: &str = r#"
unit_column = "patient"
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 25
[[columns]]
name = "w"
kind = "number"
lower = 0
upper = 3
centre = 0
scale = 1
missing = "drop"
[[columns]]
name = "days"
kind = "number"
lower = 0
upper = 365
missing = "drop"
centre = 0
scale = 1
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
missing = "drop"
[[columns]]
name = "since"
kind = "number"
lower = 0
upper = 365
centre = 0
scale = 1
"#;

const ROWS: &str = "patient,since,days,died,age,w\n\
                    1,0,100,yes,75,1\n\
                    2,30,500,yes,50,9\n\
                    1,100,200.5,no,75,0.5\n\
                    3,0,10,,50,1\n\
                    4,0,10,no,50,\n";

fn file(text: &str) -> (tempfile::TempDir, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.csv");
    std::fs::write(&path, text).unwrap();
    (folder, vec![path])
}

fn schema() -> Schema {
    Schema::parse(SCHEMA).unwrap().with_formula("Surv(since, days, died) ~ age", &[]).unwrap()
}

#[test]
fn times_entries_events_and_weights_are_read() {
    let (_folder, files) = file(ROWS);
    let weighted = schema().with_weights("w").unwrap();
    assert_eq!((weighted.dimension(), weighted.max_weight(), weighted.max_abs_target()), (2, 3.0, 365.0));
    let table = load_public(&weighted, &files, None).unwrap().into_inner();
    let found: Vec<(f64, Extra)> = table.records().map(|record| (record.target, record.extra)).collect();
    let extra = |weight, entry, event| Extra { weight, entry, event };
    // No one is watched beyond the range: who dies later is alive at its end. Records of one person stand side by side; a dropped one is none.
    assert_eq!(found, [(100.0, extra(1.0, 0.0, true)), (200.5, extra(0.5, 100.0, false)), (365.0, extra(3.0, 30.0, false))]);
    // So they are in a selection, which held-out records are.
    let all = load_public(&weighted, &files, None).unwrap();
    let chosen = select_public(2, &[(&all, &[1, 0])]).into_inner();
    let kept: Vec<(f64, Extra)> = chosen.records().map(|record| (record.target, record.extra)).collect();
    assert_eq!(kept, [found[2], found[0], found[1]]);
    let unweighted = load_public(&schema(), &files, None).unwrap().into_inner();
    assert!(unweighted.records().all(|record| record.extra.weight.to_bits() == 1f64.to_bits()));
    assert_eq!(unweighted.records().count(), 3);
}

#[test]
fn what_is_no_time_and_no_event_is_refused_before_a_run() {
    for (from, to, column) in
        [("1,0,100,yes", "1,0,100,perhaps", "`died`"), ("2,30,500", "2,early,500", "`since`"), ("1,0,100", "1,0,x", "`days`")]
    {
        let (_folder, files) = file(&ROWS.replace(from, to));
        let error = load(&schema(), &files).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(column) && !error.contains("perhaps"), "{error}");
    }
}

#[test]
fn every_column_of_the_outcome_is_counted() {
    let (_folder, files) = file(ROWS);
    let report = inspect(&schema(), &files).unwrap();
    let of_label: Vec<(&str, usize)> = report.columns[2..].iter().map(|column| (column.name.as_str(), column.levels.len())).collect();
    assert_eq!(of_label, [("days", 0), ("died", 2), ("since", 0)]);
}

/// Deaths on the day of entry, also on day 0 and before it, are told to the site; so is who left before they came.
#[test]
fn records_that_were_watched_for_no_time_are_counted_at_the_site() {
    let rows = "patient,since,days,died,age,w\n1,0,100,yes,50,1\n2,50,50,yes,60,1\n3,60,50,yes,70,1\n4,0,0,yes,70,1\n5,-3,-2,yes,70,1\n6,9,9,no,70,1\n";
    let (_folder, files) = file(rows);
    let report = inspect(&schema(), &files).unwrap();
    assert_eq!(report.unwatched, Unwatched { events: 3, nothing: 1, reversed: 1 });
    let text = report.to_string();
    assert!(
        text.contains("Watched for no time: 4, with an event at the time of entry: 3.") && text.contains("Left before they came: 1;"),
        "{text}"
    );
    // Who left before they came did so beyond the range, too: before its lower end, beyond its upper one, and over it.
    let rows = "patient,since,days,died,age,w\n1,-2,-3,yes,70,1\n2,90000,80000,yes,70,1\n3,90000,80000,no,70,1\n4,90000,5,yes,70,1\n5,80000,90000,yes,70,1\n";
    let (_folder, files) = file(rows);
    assert_eq!(inspect(&schema(), &files).unwrap().unwatched, Unwatched { events: 0, nothing: 1, reversed: 4 });
    // Where all were watched nothing is said.
    let (_folder, files) = file(ROWS);
    assert!(!inspect(&schema(), &files).unwrap().to_string().contains("Watched for no time"));
}

/// A site reads its records before it knows the task, and one without an outcome is dropped by the task alone: nothing stands in for it, whatever the schema says of the column.
#[test]
fn records_that_a_task_cannot_use_are_counted_at_the_site() {
    let rows = "patient,since,days,died,age,w\n1,0,100,yes,50,1\n1,60,50,yes,70,1\n2,0,9,,70,1\n3,0,9,no,70,1\n3,0,,no,70,1\n4,9,9,yes,70,1\n5,0,0,no,70,1\n";
    let text = SCHEMA.replace("missing = \"drop\"", "missing = \"zero\"");
    let (_folder, files) = file(rows);
    let read = load_for_run(&Schema::parse(&text).unwrap(), &files, &[1; 32]).unwrap();
    for on_disk in [false, true] {
        let omitted = |formula: &str| {
            let place = on_disk.then(|| tempfile::tempfile().unwrap());
            read.units(&Schema::asking(formula, &text).unwrap(), place).unwrap().omitted
        };
        assert_eq!(omitted("Surv(since, days, died) ~ age"), Omitted { without_outcome: 2, unwatched: 2, left_out: 1 });
        assert_eq!(omitted("Surv(days, died) ~ age"), Omitted { without_outcome: 2, unwatched: 1, left_out: 0 });
        assert_eq!(omitted("died ~ age + days"), Omitted { without_outcome: 1, ..Omitted::default() });
        assert_eq!(omitted("age ~ died + days"), Omitted::default());
    }
}

/// To predict, neither times nor the unit are looked at.
#[test]
fn rows_to_predict_need_no_label() {
    let (_folder, files) = file("age,w\n75,1\n50,2\n");
    let rows = load_for_prediction(&schema(), &files).unwrap().table;
    assert_eq!(rows.records().map(|record| record.target).collect::<Vec<_>>(), [0.0, 0.0]);
}
