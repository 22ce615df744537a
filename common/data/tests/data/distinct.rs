//! One record, one term: no file is read twice, whatever names and copies there are.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use dp_pvi_data::{DataError, inspect, load, load_for_prediction, load_for_run};
use dp_pvi_schema::Schema;
use tempfile::TempDir;

const SCHEMA: &str = "[label]\ncolumn = \"y\"\nkind = \"binary\"\npositive = [\"1\"]\nnegative = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1\n";
const FIRST: &str = "x,y\n1,0\n2,1\n";

fn schema() -> Schema {
    Schema::parse(SCHEMA).unwrap()
}

fn write(folder: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

/// Everything that reads records says the same.
#[track_caller]
fn refused(files: &[PathBuf], what: fn(&DataError) -> bool) {
    let schema = schema();
    let errors = [
        load_for_run(&schema, files, &[1; 32]).map(drop).unwrap_err(),
        load(&schema, files).map(drop).unwrap_err(),
        inspect(&schema, files).map(drop).unwrap_err(),
    ];
    for error in errors {
        assert!(what(&error), "{error}");
    }
}

#[test]
fn a_file_that_two_names_lead_to_is_refused() {
    let same = |error: &DataError| matches!(error, DataError::SameFile { .. });
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, "a.csv", FIRST);
    refused(&[first.clone(), first.clone()], same);
    std::fs::create_dir(folder.path().join("x")).unwrap();
    refused(&[first.clone(), folder.path().join("x/../a.csv")], same);
    let (link, hard) = (folder.path().join("b.csv"), folder.path().join("c.csv"));
    std::os::unix::fs::symlink("a.csv", &link).unwrap();
    std::fs::hard_link(&first, &hard).unwrap();
    refused(&[first.clone(), link], same);
    let third = write(&folder, "d.csv", "x,y\n3,0\n");
    refused(&[first, third, hard], same);
}

#[test]
fn a_copy_is_refused_packed_or_not() {
    let same = |error: &DataError| matches!(error, DataError::SameContent { .. });
    let folder = tempfile::tempdir().unwrap();
    let first = write(&folder, "a.csv", FIRST);
    refused(&[first.clone(), write(&folder, "b.csv", FIRST)], same);
    refused(&[first.clone(), write(&folder, "c.csv.gz", gzip(FIRST))], same);
    refused(
        &[first, write(&folder, "d.csv", "x,y\n3,0\n"), write(&folder, "e.csv.zst", zstd::encode_all(FIRST.as_bytes(), 1).unwrap())],
        same,
    );
    // They are told apart by more than how they begin.
    let long = |last: &str| format!("x,y\n{}{last}", "1,0\n".repeat(50_000));
    let (one, two) = (write(&folder, "f.csv", long("2,1\n")), write(&folder, "g.csv", long("2,0\n")));
    load_for_run(&schema(), &[one.clone(), two], &[1; 32]).unwrap();
    refused(&[one, write(&folder, "h.csv", long("2,1\n"))], same);
}

#[test]
fn exports_without_a_record_may_be_alike_and_rows_to_predict_may_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let empty = ["a.csv", "b.csv"].map(|name| write(&folder, name, "x,y\n\n"));
    load_for_run(&schema(), &empty, &[1; 32]).unwrap();
    let rows: &Path = &write(&folder, "c.csv", FIRST);
    assert!(load_for_prediction(&schema(), &[rows, rows]).unwrap().unreadable.is_empty());
}
