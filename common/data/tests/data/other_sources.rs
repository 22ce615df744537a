//! A table that is no file, through the public API alone: what a reader of a new kind of data has to write.

use std::ops::ControlFlow;
use std::path::Path;

use dp_pvi_data::{CellProblem, DataError, load_for_run, load_sources, load_sources_for_run};
use dp_pvi_records::{CellValue, LineProblem, Row, Source, Visitor};
use dp_pvi_schema::Schema;

const KEY: &[u8; 32] = &[7; 32];

fn schema(more: &str) -> Schema {
    let columns = "[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"true\"]\nfalse_values = [\"false\"]\n\
                   [[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 100\noutside = \"reject\"\ncentre = 50\nscale = 25\n\
                   [[columns]]\nname = \"ward\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [\"surgery\", \"medicine\"]\n";
    Schema::asking("died ~ .", &format!("other_columns = \"ignore\"\n{more}{columns}")).unwrap()
}

/// A record of a store that keeps its values typed.
enum Stored {
    Admission { patient: i64, age: f64, ward: &'static str, died: bool },
    Torn,
    Blank,
}

const COLUMNS: [&str; 5] = ["ward", "died", "note", "patient", "age"];

/// Where reading it fails as a whole.
#[derive(Clone, Copy, PartialEq)]
enum Fails {
    Never,
    AtColumns,
    AtRows,
}

struct Store<'a> {
    records: &'a [Stored],
    fails: Fails,
    visited: usize,
}

#[derive(Debug, thiserror::Error)]
#[error("the store does not answer")]
struct Silent;

impl From<Silent> for DataError {
    fn from(error: Silent) -> Self {
        Self::Source(Box::new(error))
    }
}

struct Seen<'a>(&'a Stored, &'a [Option<usize>]);

impl Row for Seen<'_> {
    fn cell(&self, field: usize) -> CellValue<'_> {
        let Stored::Admission { patient, age, ward, died } = self.0 else { return CellValue::Null };
        match self.1[field].map(|position| COLUMNS[position]) {
            Some("patient") => CellValue::Integer((*patient).into()),
            Some("age") => CellValue::Number(*age),
            Some("ward") => CellValue::Text(ward.as_bytes()),
            Some("died") => CellValue::Boolean(*died),
            _ => CellValue::Null,
        }
    }
}

impl Source for Store<'_> {
    type Error = Silent;

    fn name(&self) -> &Path {
        Path::new("admissions")
    }

    fn columns(&mut self) -> Result<Vec<Vec<u8>>, Silent> {
        if self.fails == Fails::AtColumns { Err(Silent) } else { Ok(COLUMNS.map(|name| name.as_bytes().to_vec()).to_vec()) }
    }

    fn visit(&mut self, fields: &[Option<usize>], visitor: &mut impl Visitor) -> Result<(), Silent> {
        for record in self.records {
            self.visited += 1;
            let visited = match record {
                Stored::Admission { .. } => visitor.row(&Seen(record, fields)),
                Stored::Torn => visitor.broken(LineProblem::OpenQuote, &()),
                Stored::Blank => {
                    visitor.nothing();
                    ControlFlow::Continue(())
                }
            };
            if visited.is_break() {
                return Ok(());
            }
        }
        if self.fails == Fails::AtRows { Err(Silent) } else { Ok(()) }
    }
}

fn store(records: &[Stored]) -> Store<'_> {
    Store { records, fails: Fails::Never, visited: 0 }
}

fn admissions() -> Vec<Stored> {
    let admission = |patient, age, ward, died| Stored::Admission { patient, age, ward, died };
    vec![
        admission(7, 61.5, "surgery", true),
        admission(3, 18.0, "medicine", false),
        Stored::Torn,
        admission(7, 62.0, "medicine", false),
        Stored::Blank,
        admission(9, 140.0, "surgery", true),
        admission(4, 33.0, "garden", true),
    ]
}

const AS_CSV: &str = "age,ward,died,patient\n61.5,surgery,true,7\n18,medicine,false,3\n\"torn\n62,medicine,false,7\n\n140,surgery,true,9\n33,garden,true,4\n";

/// The units of a run, told by the fingerprint of the table: the same from the store as from the file.
#[test]
fn another_source_gives_the_table_and_the_fingerprint_of_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("a.csv");
    std::fs::write(&file, AS_CSV).unwrap();
    let mut seen = Vec::new();
    for more in ["", "unit_column = \"patient\"\n"] {
        let schema = schema(more);
        let of_file = load_for_run(&schema, &[&file], KEY).unwrap().fingerprint;
        let records = admissions();
        assert_eq!(load_sources_for_run(&schema, &mut [store(&records)], KEY).unwrap().fingerprint, of_file);
        // Two sources are one data set.
        let (first, second) = records.split_at(3);
        assert_eq!(load_sources_for_run(&schema, &mut [store(first), store(second)], KEY).unwrap().fingerprint, of_file);
        assert_ne!(load_sources_for_run(&schema, &mut [store(second), store(first)], KEY).unwrap().fingerprint, of_file);
        seen.push(of_file);
    }
    assert_ne!(seen[0], seen[1]);
}

/// Before a run the first rejected record ends the reading, and the message says which one it is.
#[test]
fn a_check_names_the_record() {
    let records = admissions();
    let mut source = [store(&records)];
    let error = load_sources(&schema(""), &mut source).err().unwrap();
    assert!(matches!(&error, DataError::Line { row: 3, problem: LineProblem::OpenQuote, .. }), "{error}");
    assert!(error.to_string().starts_with("admissions: row 3 "), "{error}");
    assert_eq!(source[0].visited, 3, "nothing is read after it");
    let error = load_sources(&schema(""), &mut [store(&records[3..])]).err().unwrap();
    assert!(matches!(&error, DataError::Cell { row: 3, problem: CellProblem::Above, .. }), "{error}");
    let counts = load_sources(&schema("unit_column = \"patient\"\n"), &mut [store(&records[..2]), store(&records[3..4])]).unwrap().counts;
    assert_eq!((counts.units, counts.records, counts.dropped), (2, 3, 0));
}

#[test]
fn what_concerns_the_table_as_a_whole_is_an_error_in_a_run_too() {
    let records = admissions();
    for fails in [Fails::AtColumns, Fails::AtRows] {
        let error = load_sources_for_run(&schema(""), &mut [Store { fails, ..store(&records) }], KEY).err().unwrap();
        assert_eq!(error.to_string(), "the store does not answer");
    }
    let more = Schema::asking(
        "died ~ .",
        "[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"true\"]\nfalse_values = [\"false\"]\n[[columns]]\nname = \"stay\"\nkind = \"boolean\"\n",
    );
    let error = load_sources_for_run(&more.unwrap(), &mut [store(&records)], KEY).err().unwrap();
    assert!(error.to_string().contains("admissions: there is no column `stay`"), "{error}");
    assert!(load_sources_for_run(&schema(""), &mut [store(&[])], KEY).is_ok(), "how many records there are is no error in a run");
    assert!(matches!(load_sources(&schema(""), &mut [store(&[])]), Err(DataError::Empty { .. })));
    assert!(matches!(load_sources::<Store<'_>>(&schema(""), &mut []), Err(DataError::NoFiles)));
}
