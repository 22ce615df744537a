//! One table from every writer of files: the same bits, or a refusal in the words of its type. `tests/conformance/write.py` writes them; what is beside it are some of each kind,
//! and `DP_PVI_CONFORMANCE` names a folder of fresh ones (`tests/long.sh conformance`).

use std::path::{Path, PathBuf};

use dp_pvi_data::types::{CellType, page};
use dp_pvi_data::{DataError, load_for_run};
use dp_pvi_names::Hash;
use dp_pvi_schema::Schema;

const SCHEMA: &str = r#"
version = 2
unit_column = "patient"
[missing]
tokens = ["", "NA"]
[[columns]]
name = "âge"
kind = "number"
lower = 0
upper = 100
centre = 0
scale = 1
missing = "centre"
[[columns]]
name = "weight"
kind = "number"
lower = 0
upper = 100
centre = 0
scale = 1
missing = "centre"
[[columns]]
name = "cost"
kind = "number"
lower = -1e9
upper = 1e9
centre = 0
scale = 1
missing = "centre"
[[columns]]
name = "ward"
kind = "category"
values = ["surgery", "Gynäkologie", "3"]
missing = "zero"
[[columns]]
name = "smoker"
kind = "boolean"
missing = "zero"
[[columns]]
name = "seen"
kind = "date"
since = "2000-01-01"
lower = -99999
upper = 99999
centre = 0
scale = 1
missing = "centre"
[[columns]]
name = "left"
kind = "date"
since = "2000-01-01"
lower = -99999
upper = 99999
centre = 0
scale = 1
missing = "centre"
[[columns]]
name = "stays"
kind = "number"
lower = 0
upper = 100
centre = 0
scale = 1
missing = "centre"
[[columns]]
name = "note"
kind = "number"
lower = 0
upper = 100
centre = 1
scale = 1
missing = "zero"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

/// The table as someone would write it by hand, who knows of none of the writers.
const BY_HAND: &str = "patient,âge,weight,cost,ward,smoker,seen,left,stays,note,died
12,50.5,0.1,50.25,Gynäkologie,true,2024-05-17,2024-05-17,1,,yes
100000,,72.3,0,surgery,false,1969-12-31,1969-12-31,2,,no
7,71,,-3.1,,,,,,,no
12,0.1,1,,Gynäkologie,true,2024-02-29,2024-02-29,4,,yes
18446744073,0.001,3.25,1234567.89,3,false,2000-01-01,2000-01-01,5,,no
";

/// As R's `write.csv` and `readr` write it.
const BY_R: &str = "\"patient\",\"âge\",\"weight\",\"cost\",\"ward\",\"smoker\",\"seen\",\"left\",\"stays\",\"note\",\"died\"
12,50.5,0.1,50.25,\"Gynäkologie\",TRUE,2024-05-17,2024-05-17 08:30:00,1,NA,\"yes\"
1e+05,NA,72.3,0,\"surgery\",FALSE,1969-12-31,1969-12-31 23:59:59,2,NA,\"no\"
7,71,NA,-3.1,NA,NA,NA,NA,NA,NA,\"no\"
12,0.1,1,NA,\"Gynäkologie\",TRUE,2024-02-29,2024-02-29,4,NA,\"yes\"
18446744073,0.001,3.25,1234567.89,\"3\",FALSE,2000-01-01,2000-01-01 12:00:00,5,NA,\"no\"
";

fn bits(path: &Path) -> Result<Hash, DataError> {
    load_for_run(&Schema::asking("died ~ .", SCHEMA).unwrap(), &[path], &[7; 32]).map(|snapshot| snapshot.fingerprint)
}

fn expected() -> Hash {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("by-hand.csv");
    std::fs::write(&path, BY_HAND).unwrap();
    bits(&path).unwrap()
}

/// What the files of a folder are held to; how many there are.
fn hold(folder: &Path) -> usize {
    let expected = expected();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "csv" || ending == "parquet"));
    files.sort();
    let mut wrong = Vec::new();
    for path in &files {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let read = bits(path);
        let holds = match name.split('-').collect::<Vec<_>>()[..] {
            ["same", ..] => read.as_ref().is_ok_and(|bits| *bits == expected),
            ["twice", ..] => matches!(&read, Err(DataError::RepeatedColumn { column, .. }) if column == "stays"),
            ["refused", kind, ..] => {
                let cell = CellType::ALL.into_iter().find(|cell| format!("{cell:?}") == kind).unwrap();
                let words = cell.check().unwrap_err().to_string();
                read.as_ref().is_err_and(|error| error.to_string().ends_with(&words))
            }
            _ => false,
        };
        if !holds {
            wrong.push(format!("{name}: {}", read.map_or_else(|error| error.to_string(), |_| "other bits".into())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    files.len()
}

#[test]
fn the_guides_page_shows_the_table_of_types() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/guide/src/sources.md");
    assert!(std::fs::read_to_string(path).unwrap().contains(&page()), "deploy/guide/src/sources.md needs this table:\n\n{}", page());
}

#[test]
fn types_of_postgresql_are_found_by_their_names() {
    for (name, cell) in [
        ("numeric", CellType::Decimal),
        ("bpchar", CellType::Text),
        ("timestamptz", CellType::ZonedTime),
        ("interval", CellType::Duration),
        ("_int4", CellType::Nested),
        ("money", CellType::Other),
    ] {
        assert_eq!(CellType::of_postgres(name), cell, "{name}");
    }
}

#[test]
fn the_same_table_of_every_writer_is_read_to_the_same_bits() {
    let found = hold(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance"));
    assert!(found > 20, "{found}");
}

#[test]
fn what_r_writes_is_the_same_table() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("same-r.csv"), BY_R).unwrap();
    assert_eq!(hold(folder.path()), 1);
}

/// Files that `write.py` has just written.
#[test]
#[ignore = "long: tests/long.sh conformance"]
fn conformance_of_fresh_files() {
    let folder = std::env::var_os("DP_PVI_CONFORMANCE").unwrap();
    let found = hold(Path::new(&folder));
    println!("{found} files");
    assert!(found > 40, "{found}");
}
