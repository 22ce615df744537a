//! CSV files, good and bad, through the public functions.

use dp_pvi_data::{CellProblem, DataError, inspect, load, load_for_prediction, load_for_run, load_public};
use dp_pvi_privacy::UnitTable;
use dp_pvi_records::RecordTable;
use dp_pvi_schema::Schema;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SCHEMA: &str = r#"
[missing]
tokens = ["", "?"]
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
centre = 50
scale = 25
missing = "centre"
[[columns]]
name = "ward"
kind = "category"
coding = "full"
values = ["surgery", "medicine"]
missing = "zero"
[[columns]]
name = "smoker"
kind = "boolean"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes", "yes."]
false_values = ["no", "no."]
"#;

const HEADER: &str = "age,ward,smoker,died";

fn schema(from: &str, to: &str) -> Schema {
    assert!(SCHEMA.contains(from), "{from}");
    Schema::asking("died ~ .", &SCHEMA.replacen(from, to, 1)).unwrap()
}

fn with_head(head: &str) -> Schema {
    Schema::asking("died ~ .", &format!("{head}\n{SCHEMA}")).unwrap()
}

fn write(directory: &TempDir, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    path
}

/// The records of one unit: dense rows and targets.
pub(crate) type Unit = Vec<(Vec<f64>, f64)>;

/// What a text becomes.
pub(crate) fn rows_of(table: &RecordTable) -> Vec<Unit> {
    (0..table.len())
        .map(|unit| {
            let dense = |record: dp_pvi_records::RecordView<'_>| {
                let mut row = vec![0.0; table.dimension()];
                record.entries().for_each(|(index, value)| row[index] = value);
                (row, record.target)
            };
            table.unit(unit).records().map(dense).collect()
        })
        .collect()
}

pub(crate) fn read(schema: &Schema, text: impl AsRef<[u8]>) -> Result<Vec<Unit>, DataError> {
    let directory = tempfile::tempdir().unwrap();
    let path = write(&directory, "cohort.csv", text);
    Ok(rows_of(load_public(schema, &[path], None)?.get()))
}

fn plain() -> Schema {
    Schema::asking("died ~ .", SCHEMA).unwrap()
}

#[test]
fn a_row_becomes_what_the_schema_says() {
    let rows = read(&plain(), format!("{HEADER}\n75,medicine,1,yes\n0, surgery ,false,no.\n")).unwrap();
    assert_eq!(rows, [vec![(vec![1.0, 0.0, 1.0, 1.0, 1.0], 1.0)], vec![(vec![-2.0, 1.0, 0.0, 0.0, 1.0], 0.0)]]);
}

#[test]
fn levels_become_entries_by_their_coding() {
    let text = format!("{HEADER}\n50,surgery,0,yes\n50,medicine,0,yes\n50,,0,yes\n");
    let of = |keys: &str| {
        let schema = Schema::asking("died ~ .", &SCHEMA.replace("coding = \"full\"", keys)).unwrap();
        read(&schema, &text).unwrap().into_iter().map(|unit| unit[0].0[1]).collect::<Vec<_>>()
    };
    assert_eq!(of(""), [0.0, 1.0, 0.0]);
    assert_eq!(of("reference = \"medicine\""), [1.0, 0.0, 0.0]);
    assert_eq!(of("coding = \"sum\""), [1.0, -1.0, 0.0]);
    assert_eq!(of("coding = \"full\""), [1.0, 0.0, 0.0]);
}

#[test]
fn columns_are_found_by_name_in_any_order_with_byte_order_mark_quotes_and_crlf() {
    let text = "\u{feff}smoker,\"died\",age,ward\r\ntrue,yes,\"75\",medicine\r\n\r\n";
    assert_eq!(read(&plain(), text).unwrap(), [vec![(vec![1.0, 0.0, 1.0, 1.0, 1.0], 1.0)]]);
}

#[test]
fn files_without_header_use_the_names_of_the_schema_and_skip_comments() {
    let schema = with_head("csv = { names = [\"ward\", \"age\", \"died\", \"smoker\"], delimiter = \";\", comment = \"|\" }");
    let rows = read(&schema, "|1x3 Cross validator\nmedicine; 75; yes.; 0\n").unwrap();
    assert_eq!(rows, [vec![(vec![1.0, 0.0, 1.0, 0.0, 1.0], 1.0)]]);
}

#[test]
fn blanks_can_be_part_of_a_value() {
    let schema = with_head("csv = { trim = false }");
    assert!(read(&schema, format!("{HEADER}\n75,medicine,1,yes\n")).is_ok());
    assert_eq!(problem(read(&schema, format!("{HEADER}\n75, medicine,1,yes\n"))), (1, "ward".into(), CellProblem::UnknownCategory));
}

#[test]
fn missing_values_follow_their_column() {
    let rows = read(&plain(), format!("{HEADER}\n?,,1,yes\n")).unwrap();
    assert_eq!(rows, [vec![(vec![0.0, 0.0, 0.0, 1.0, 1.0], 1.0)]]);
    assert_eq!(problem(read(&plain(), format!("{HEADER}\n1,medicine,?,yes"))), (1, "smoker".into(), CellProblem::Missing));
    assert_eq!(problem(read(&plain(), format!("{HEADER}\n1,medicine,1,?"))), (1, "died".into(), CellProblem::Missing));
}

#[test]
fn dropped_records_stay_units() {
    let schema = schema("kind = \"boolean\"", "kind = \"boolean\"\nmissing = \"drop\"");
    let text = format!("{HEADER}\n50,medicine,1,yes\n50,medicine,?,yes\n50,surgery,0,no\n");
    let rows = read(&schema, &text).unwrap();
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [1, 0, 1]);
    let directory = tempfile::tempdir().unwrap();
    let counts = load(&schema, &[write(&directory, "a.csv", text)]).unwrap().counts;
    assert_eq!((counts.units, counts.records, counts.dropped), (3, 3, 1));
}

#[test]
fn a_label_and_a_number_can_drop_their_record() {
    let label = schema("\"no.\"]", "\"no.\"]\nmissing = \"drop\"\ninvalid = \"drop\"");
    let text = format!("{HEADER}\n50,medicine,1,?\n50,medicine,1,perhaps\n50,surgery,0,no\n");
    assert_eq!(read(&label, text).unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1]);
    let number = schema("scale = 25", "scale = 25\noutside = \"drop\"\ninvalid = \"drop\"");
    let text = format!("{HEADER}\n150,medicine,1,no\nold,medicine,1,no\ninf,medicine,1,no\n50,surgery,0,no\n");
    assert_eq!(read(&number, text).unwrap().iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 0, 1]);
}

#[test]
fn numbers_are_clamped_or_rejected() {
    let rows = read(&plain(), format!("{HEADER}\n1e6,,0,no\n-3,,0,no\n")).unwrap();
    assert_eq!(rows.iter().map(|unit| unit[0].0[0]).collect::<Vec<_>>(), [2.0, -2.0]);
    let reject = schema("scale = 25", "scale = 25\noutside = \"reject\"");
    assert_eq!(problem(read(&reject, format!("{HEADER}\n1,,0,no\n101,,0,no\n"))), (2, "age".into(), CellProblem::Above));
    assert_eq!(problem(read(&reject, format!("{HEADER}\n-1,,0,no\n"))), (1, "age".into(), CellProblem::Below));
}

#[test]
fn levels_may_be_numbers_written_in_several_ways() {
    let schema = schema("values = [\"surgery\", \"medicine\"]", "values = [\"6\", \"0\"]\nmatching = \"number\"\ninvalid = \"zero\"");
    let rows = read(&schema, format!("{HEADER}\n50,6.0,0,no\n50,-0.0,0,no\n50,6e0,0,no\n50,7,0,no\n50,six,0,no\n")).unwrap();
    let wards: Vec<_> = rows.iter().map(|unit| (unit[0].0[1], unit[0].0[2])).collect();
    assert_eq!(wards, [(1.0, 0.0), (0.0, 1.0), (1.0, 0.0), (0.0, 0.0), (0.0, 0.0)]);
}

#[test]
fn a_numeric_label_is_clamped_centred_and_scaled() {
    let label = "kind = \"number\"\nlower = 0\nupper = 10\ncentre = 5\nscale = 2";
    let schema = schema("kind = \"boolean\"\ntrue_values = [\"yes\", \"yes.\"]\nfalse_values = [\"no\", \"no.\"]", label);
    let rows = read(&schema, format!("{HEADER}\n50,surgery,0,7\n50,surgery,0,99\n")).unwrap();
    assert_eq!(rows.iter().map(|unit| unit[0].1).collect::<Vec<_>>(), [1.0, 2.5]);
}

/// The target of a label of several classes is the position of its text. A text of no class drops or rejects its record.
#[test]
fn a_label_of_several_classes_is_the_position_in_the_list() {
    let two = "kind = \"boolean\"\ntrue_values = [\"yes\", \"yes.\"]\nfalse_values = [\"no\", \"no.\"]";
    let three = "kind = \"category\"\nvalues = [\"no\", \"yes\", \"unknown\"]";
    let text = format!("{HEADER}\n50,surgery,0,unknown\n50,surgery,0,no\n50,surgery,0, yes \n");
    let targets = |rows: Vec<Vec<(Vec<f64>, f64)>>| rows.iter().map(|unit| unit.first().map(|record| record.1)).collect::<Vec<_>>();
    assert_eq!(targets(read(&schema(two, three), &text).unwrap()), [Some(2.0), Some(0.0), Some(1.0)]);
    let text = text + "50,surgery,0,perhaps\n50,surgery,0,?\n";
    assert_eq!(problem(read(&schema(two, three), &text)), (4, "died".into(), CellProblem::UnknownCategory));
    let dropping = schema(two, &format!("{three}\nmissing = \"drop\"\ninvalid = \"drop\""));
    assert_eq!(targets(read(&dropping, &text).unwrap())[2..], [Some(1.0), None, None]);
    let directory = tempfile::tempdir().unwrap();
    let seen = inspect(&dropping, &[write(&directory, "a.csv", text)]).unwrap();
    let label = seen.columns.last().unwrap();
    assert_eq!(label.levels, [("no".to_owned(), 1), ("yes".to_owned(), 1), ("unknown".to_owned(), 1)]);
    assert_eq!((label.counts.invalid, label.counts.missing, seen.dropped), (1, 1, 2));
}

#[test]
fn long_rows_are_scaled_down_to_the_norm_bound() {
    let schema = with_head("norm_bound = 1.5");
    let rows = read(&schema, format!("{HEADER}\n100,medicine,1,yes\n50,,0,no\n")).unwrap();
    let norm = |row: &[f64]| row.iter().map(|value| value * value).sum::<f64>().sqrt();
    assert!((norm(&rows[0][0].0) - 1.5).abs() < 1e-12 && norm(&rows[0][0].0) <= 1.5);
    // Direction is kept: (2, 0, 1, 1, 1) / √7 · 1.5.
    assert!((rows[0][0].0[0] - 3.0 / 7_f64.sqrt()).abs() < 1e-12);
    assert_eq!(rows[1][0].0, [0.0, 0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn all_records_of_one_person_are_one_unit_across_files() {
    let schema = with_head("unit_column = \"patient\"");
    let directory = tempfile::tempdir().unwrap();
    let first = write(&directory, "a.csv", format!("patient,{HEADER}\nb,50,medicine,1,yes\na,75,medicine,1,no\n b ,25,surgery,0,no\n"));
    let second = write(&directory, "b.csv", format!("{HEADER},patient\n100,surgery,0,no,a\n50,surgery,0,no,c\n"));
    let files = [first, second];
    let table = load_public(&schema, &files, None).unwrap().into_inner();
    let ages: Vec<Vec<f64>> = rows_of(&table).iter().map(|unit| unit.iter().map(|record| record.0[0]).collect()).collect();
    assert_eq!(ages, [vec![0.0, -1.0], vec![1.0, 2.0], vec![0.0]]);
    let counts = load(&schema, &files).unwrap().counts;
    assert_eq!((counts.units, counts.records), (3, 5));
    let seen = inspect(&schema, &files).unwrap();
    assert_eq!((seen.units, seen.largest_unit), (3, 2));
}

#[test]
fn a_person_whose_records_are_all_dropped_stays_a_unit() {
    let text = SCHEMA.replacen("kind = \"boolean\"", "kind = \"boolean\"\nmissing = \"drop\"", 1);
    let schema = Schema::asking("died ~ .", &format!("unit_column = \"patient\"\n{text}")).unwrap();
    let rows = read(&schema, format!("patient,{HEADER}\n1,50,medicine,?,yes\n2,50,medicine,1,yes\n1,50,medicine,?,no\n")).unwrap();
    assert_eq!(rows.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_record_without_id_is_a_load_error_even_if_it_is_dropped() {
    let text = SCHEMA.replacen("kind = \"boolean\"", "kind = \"boolean\"\nmissing = \"drop\"", 1);
    let schema = Schema::asking("died ~ .", &format!("unit_column = \"patient\"\n{text}")).unwrap();
    for id in ["", "?", "  "] {
        let result = read(&schema, format!("patient,{HEADER}\n1,50,medicine,1,yes\n{id},50,medicine,?,yes\n"));
        assert_eq!(problem(result), (2, "patient".into(), CellProblem::NoUnit));
    }
}

#[test]
fn rows_for_prediction_need_no_label_and_keep_their_positions() {
    let text = SCHEMA.replacen("kind = \"boolean\"", "kind = \"boolean\"\nmissing = \"drop\"", 1);
    let schema = Schema::asking("died ~ .", &format!("unit_column = \"patient\"\n{text}")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = write(&directory, "new.csv", "age,ward,smoker\n75,medicine,1\n75,medicine,?\n25,surgery,0\n");
    let rows = rows_of(&load_for_prediction(&schema, &[path]).unwrap().table);
    assert_eq!(rows, [vec![(vec![1.0, 0.0, 1.0, 1.0, 1.0], 0.0)], vec![], vec![(vec![-1.0, 1.0, 0.0, 0.0, 1.0], 0.0)]]);
}

#[test]
fn gzip_is_told_by_its_bytes() {
    let text = format!("{HEADER}\n75,medicine,1,yes\n50,surgery,0,no\n");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    let bytes = gzip.finish().unwrap();
    assert_eq!(read(&plain(), &bytes).unwrap(), read(&plain(), text).unwrap());
    // Cut in the middle: an error of the file, not a shorter data set.
    assert!(matches!(read(&plain(), &bytes[..bytes.len() - 12]), Err(DataError::Io { .. })));
}

#[test]
fn files_that_do_not_fit_the_schema_have_errors_of_their_own() {
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(load(&plain(), &[] as &[PathBuf]), Err(DataError::NoFiles)));
    assert!(matches!(load(&plain(), &[directory.path().join("none.csv")]), Err(DataError::Io { .. })));
    for empty in ["", "\n\n", HEADER, "age,ward,smoker,died\n"] {
        assert!(matches!(read(&plain(), empty), Err(DataError::Empty { .. })), "{empty:?}");
    }
    let error = |text: &str| read(&plain(), text).unwrap_err().to_string();
    assert!(error("age,ward,died\n1,medicine,yes\n").contains("there is no column `smoker`"));
    assert!(error("age,ward,smoker,died,secret\n1,,1,yes,1\n").contains("column number 5 is not in the schema"));
    assert!(error("age,ward,smoker,died,age\n1,,1,yes,1\n").contains("two columns are named `age`"));
    assert!(error("age,ward,smoker,died\n1,,1,yes\n1,,1\n").contains("row 2 has 3 cells instead of 4"));
    assert!(error("age,ward,smoker,died\n1,,1,yes,\n").contains("row 1 has 5 cells instead of 4"));
    let ignoring = with_head("other_columns = \"ignore\"");
    assert!(read(&ignoring, "age,ward,smoker,died,secret\n1,,1,yes,1\n").is_ok());
    // A file without a header: its first record must not be quoted.
    let headless = error("471460592738,surgery,1,yes\n50,medicine,0,no\n");
    assert!(headless.contains("there is no column `age`") && !headless.contains("471460592738"), "{headless}");
}

#[test]
fn bad_cells_are_reported_by_row_and_column_never_by_value() {
    for (row, column, expected) in [
        ("SECRET,medicine,1,yes", "age", CellProblem::NotANumber),
        ("inf,medicine,1,yes", "age", CellProblem::NotFinite),
        ("-1e999,medicine,1,yes", "age", CellProblem::NotFinite),
        ("1,SECRET,1,yes", "ward", CellProblem::UnknownCategory),
        ("1,medicine,SECRET,yes", "smoker", CellProblem::NotBoolean),
        ("1,medicine,1,SECRET", "died", CellProblem::NotBoolean),
    ] {
        let result = read(&plain(), format!("{HEADER}\n\n50,surgery,0,no\n{row}\n"));
        let message = result.as_ref().err().unwrap().to_string();
        assert!(message.contains("cohort.csv: row 2, column") && !message.contains("SECRET"), "{message}");
        assert_eq!(problem(result), (2, column.into(), expected), "{row}");
    }
    let bytes = [b"age,ward,smoker,died\n".as_slice(), &[0xff, 0xfe], b",medicine,1,yes\n"].concat();
    assert_eq!(problem(read(&plain(), bytes)), (1, "age".into(), CellProblem::Encoding));
}

#[test]
fn inspecting_counts_rejected_cells_instead_of_stopping() {
    let schema = with_head("norm_bound = 2.0");
    let directory = tempfile::tempdir().unwrap();
    let first = write(&directory, "a.csv", format!("{HEADER}\n150,medicine,1,yes\n-5,?,0,no\nSECRET,medicine,1,yes\n?,surgery,0,no\n"));
    let second = write(&directory, "b.csv", format!("{HEADER}\n50,SECRET,1,yes\n50,medicine,0,SECRET\n"));
    let seen = inspect(&schema, &[first, second]).unwrap();
    assert_eq!((seen.records, seen.rejected, seen.dropped), (6, 3, 0));
    let listed: Vec<_> = seen.rejections.iter().map(|row| (row.file, row.row, row.problem.to_string())).collect();
    let starts = [(1, 3, "column `age`: "), (2, 1, "column `ward`: "), (2, 2, "column `died`: ")];
    assert!(listed.iter().zip(starts).all(|(found, (file, row, start))| (found.0, found.1) == (file, row) && found.2.starts_with(start)));
    let age = seen.columns[0].counts;
    assert_eq!((age.regular, age.missing, age.below, age.above, age.invalid), (2, 1, 1, 1, 1));
    assert_eq!(seen.columns[1].levels, [("surgery".to_owned(), 1), ("medicine".to_owned(), 2)]);
    assert_eq!(seen.columns[3].levels, [("false".to_owned(), 2), ("true".to_owned(), 1)]);
    // Norms √(4+1+1+1) and √(4+1) are above 2; √2 is in the eighth bar of width 0.2.
    assert_eq!(seen.norms, [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 2]);
    assert!((seen.scaled_share() - 2.0 / 3.0).abs() < 1e-12);
    let text = seen.to_string();
    assert!(text.contains("must not leave this site") && text.contains("rejects 3 records") && !text.contains("SECRET"), "{text}");
}

#[test]
fn public_data_has_no_ledger() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(&directory, "cohort.csv", format!("{HEADER}\n75,medicine,1,yes\n"));
    assert!(load_public(&plain(), std::slice::from_ref(&path), None).is_ok());
    let configured = load_public(&plain(), std::slice::from_ref(&path), Some(Path::new("/var/lib/ledger.db")));
    assert!(matches!(configured, Err(DataError::HasLedger { .. })));
    let mut header = b"SQLite format 3\0".to_vec();
    header.resize(68, 0);
    header.extend(dp_pvi_data::LEDGER_APPLICATION_ID.to_be_bytes());
    let under_another_name = path.parent().unwrap().join("hospital.db");
    std::fs::write(&under_another_name, &header).unwrap();
    assert!(matches!(load_public(&plain(), std::slice::from_ref(&path), None), Err(DataError::HasLedger { .. })));
    header[70] ^= 1;
    std::fs::write(&under_another_name, &header).unwrap();
    assert!(load_public(&plain(), std::slice::from_ref(&path), None).is_ok(), "some other database");
    for name in ["ledger.db", "cohort.ledger.db"] {
        let ledger = write(&directory, name, "");
        assert!(matches!(load_public(&plain(), std::slice::from_ref(&path), None), Err(DataError::HasLedger { .. })), "{name}");
        std::fs::remove_file(ledger).unwrap();
    }
    #[cfg(unix)]
    {
        // A link elsewhere to the private file does not help.
        write(&directory, "ledger.db", "");
        let elsewhere = tempfile::tempdir().unwrap();
        let link = elsewhere.path().join("public.csv");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(load_public(&plain(), &[link], None), Err(DataError::HasLedger { .. })));
    }
}

fn problem<T>(result: Result<T, DataError>) -> (u64, String, CellProblem) {
    match result.err() {
        Some(DataError::Cell { row, column, problem, .. }) => (row, column, problem),
        other => panic!("expected a rejected cell, got {other:?}"),
    }
}

/// A model of counts takes whole numbers: a record with another has no outcome for it. What the schema says of cells does not depend on the model.
#[test]
fn a_record_with_a_number_that_is_not_whole_has_no_count() {
    let text = |invalid: &str| {
        format!(
            "[[columns]]\nname = \"visits\"\nkind = \"number\"\nlower = 0\nupper = 20\ncentre = 0\nscale = 1\n{invalid}[[columns]]\nname = \"age\"\nkind = \"number\"\n\
             lower = 0\nupper = 100\ncentre = 50\nscale = 25\n"
        )
    };
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("counts.csv");
    std::fs::write(&file, "age,visits\n40,2\n50,1.5\n60,3.0\n").unwrap();
    let files = [file];
    let counts = Schema::asking("visits ~ .", &text("")).unwrap().with_counts();
    assert_eq!(load(&counts, &files).unwrap().counts.dropped, 1);
    let kept = load_public(&counts, &files, None).unwrap().into_inner();
    assert_eq!(kept.records().map(|record| record.target).collect::<Vec<_>>(), [2.0, 3.0]);
    assert_eq!(inspect(&counts, &files).unwrap().columns[0].counts.invalid, 0);
    // In a run the site reads its records before it knows the task.
    let described = Schema::parse(&text("")).unwrap();
    let read = load_for_run(&described, &files, &[1; 32]).unwrap();
    let left_out = |asked: &Schema| read.units(asked, None).map(|made| (made.omitted.left_out, made.omitted.without_outcome)).unwrap();
    assert_eq!(left_out(&counts), (1, 0));
    assert_eq!(left_out(&Schema::asking("visits ~ .", &text("")).unwrap()), (0, 0));
    // A model of numbers has no such rule.
    assert_eq!(load_public(&Schema::asking("visits ~ .", &text("")).unwrap(), &files, None).unwrap().into_inner().records().count(), 3);
}
