//! One record, one term: no file is read twice, whatever names and copies there are.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use dp_pvi_data::{DataError, inspect, load, load_for_prediction, load_for_run};
use dp_pvi_schema::Schema;
use tempfile::TempDir;

const SCHEMA: &str = "other_columns = \"ignore\"\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1\n";
const FIRST: &str = "x,y\n1,0\n2,1\n3,0\n";

fn schema() -> Schema {
    Schema::asking("y ~ .", SCHEMA).unwrap()
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
    let third = write(&folder, "d.csv", "x,y\n4,0\n");
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
        &[first, write(&folder, "d.csv", "x,y\n4,0\n"), write(&folder, "e.csv.zst", zstd::encode_all(FIRST.as_bytes(), 1).unwrap())],
        same,
    );
    // They are distinguished by more than how they begin.
    let long = |last: &str| format!("x,y\n{}{last}", "1,0\n2,0\n".repeat(50_000));
    let (one, two) = (write(&folder, "f.csv", long("2,1\n")), write(&folder, "g.csv", long("1,1\n")));
    load_for_run(&schema(), &[one.clone(), two], &[1; 32]).unwrap();
    refused(&[one, write(&folder, "h.csv", long("2,1\n"))], same);
}

/// Records with an id that the schema does not name.
fn with_ids(ids: std::ops::Range<u32>) -> String {
    let row = |id: u32| format!("{id},{}.5,{}\n", id % 7, id % 2);
    std::iter::once("id,x,y\n".to_owned()).chain(ids.map(row)).collect()
}

#[test]
fn a_copy_with_other_bytes_is_refused() {
    let same = |error: &DataError| matches!(error, DataError::SameContent { .. });
    for rows in [3, 100] {
        let folder = tempfile::tempdir().unwrap();
        let text = with_ids(0..rows);
        let first = write(&folder, "a.csv", &text);
        let lines: Vec<&str> = text.lines().collect();
        let turned: Vec<&str> = lines[..1].iter().chain(lines[1..].iter().rev()).copied().collect();
        let columns: Vec<String> = lines.iter().map(|line| line.split(',').rev().collect::<Vec<_>>().join(",")).collect();
        let quoted: Vec<String> = lines.iter().map(|line| format!("\"{}\"", line.replace(',', "\",\""))).collect();
        for other in [
            text.replace('\n', "\r\n"),
            text.trim_end().to_owned(),
            format!("\u{feff}{text}"),
            text.replace(".5", ".50"),
            text.replace(',', " , "),
            format!("{text}\n\n"),
            turned.join("\n"),
            columns.join("\n"),
            quoted.join("\n"),
        ] {
            refused(&[first.clone(), write(&folder, "b.csv", other)], same);
        }
    }
}

#[test]
fn a_file_whose_records_another_one_has_is_refused_where_this_is_no_chance() {
    let inside = |error: &DataError| matches!(error, DataError::Contained { .. });
    let folder = tempfile::tempdir().unwrap();
    let earlier = write(&folder, "a.csv", with_ids(0..100));
    let later = write(&folder, "b.csv", with_ids(0..150));
    refused(&[earlier.clone(), later.clone()], inside);
    refused(&[later, earlier.clone()], inside);
    // A column more, or other ids: what the schema makes of them is the same.
    let with = |name: &str, ids: std::ops::Range<u32>, shift: u32| {
        let row = |id: u32| format!("{},{}.{id},{},later\n", id + shift, id % 7, id % 2);
        write(&folder, name, std::iter::once("id,x,y,when\n".to_owned()).chain(ids.map(row)).collect::<String>())
    };
    refused(&[with("c.csv", 0..60, 0), with("d.csv", 0..70, 1000)], inside);
    // One record in a hundred was changed, and three are new.
    let changed = with_ids(0..100).replace("\n50,", "\n1050,")
        + &with_ids(300..303).lines().skip(1).map(|line| format!("{line}\n")).collect::<String>();
    refused(&[earlier.clone(), write(&folder, "h.csv", changed)], inside);
    // A join that wrote every record twice.
    let rows: String = with_ids(0..100).lines().skip(1).map(|line| format!("{line}\n{line}\n")).collect();
    let twice = write(&folder, "t.csv", with_ids(0..0) + &rows);
    refused(&[earlier.clone(), twice.clone()], inside);
    refused(&[twice, earlier.clone()], inside);
    // Half of them are others: told, and not refused.
    load_for_run(&schema(), &[&earlier, &write(&folder, "i.csv", with_ids(50..150))], &[1; 32]).unwrap();
    // Few values: that all of one file's records are in another one is what chance makes.
    let few = |name: &str, rows: u32| {
        let row = |id: u32| format!("{},{}\n", id % 4, id % 2);
        write(&folder, name, std::iter::once("x,y\n".to_owned()).chain((0..rows).map(row)).collect::<String>())
    };
    load_for_run(&schema(), &[few("e.csv", 100), few("f.csv", 2000)], &[1; 32]).unwrap();
    // Other persons.
    load_for_run(&schema(), &[earlier, write(&folder, "g.csv", with_ids(200..300))], &[1; 32]).unwrap();
}

#[test]
fn records_that_two_files_have_are_shown_with_their_number() {
    let folder = tempfile::tempdir().unwrap();
    let shown = |first: &str, second: &str| {
        let files = [write(&folder, "a.csv", first), write(&folder, "b.csv", second)];
        load_for_run(&schema(), &files, &[1; 32]).unwrap();
        let shared = inspect(&schema(), &files).unwrap().shared;
        shared.iter().map(|shared| (shared.file, shared.other, shared.records, shared.of)).collect::<Vec<_>>()
    };
    assert_eq!(shown(&with_ids(0..100), &with_ids(90..150)), [(2, 1, 10, 60)]);
    assert_eq!(shown(&with_ids(0..3), &with_ids(0..5)), [(1, 2, 3, 3)]);
    assert_eq!(shown(&with_ids(0..100), &with_ids(100..200)), []);
    let text =
        inspect(&schema(), &[write(&folder, "a.csv", with_ids(0..9)), write(&folder, "b.csv", with_ids(8..12))]).unwrap().to_string();
    assert!(text.contains("1 of 4 records of file 2 are also in file 1"), "{text}");
}

/// An export with another text for a missing value, or with a column of row numbers, is a copy, although few of its records differ.
#[test]
fn a_copy_that_the_schema_reads_alike_is_refused_where_chance_cannot_make_it() {
    let folder = tempfile::tempdir().unwrap();
    let rows = |header: &str, row: &dyn Fn(usize) -> String, records: usize| header.to_owned() + &(0..records).map(row).collect::<String>();
    let plain = rows("x,y\n", &|n| format!("{},{}\n", n % 7, n % 2), 400);
    let numbered = rows("n,x,y\n", &|n| format!("{n},{},{}\n", n % 7, n % 2), 400);
    let files = |other: &str| [write(&folder, "a.csv", &plain), write(&folder, "b.csv", other)];
    refused(&files(&numbered), |error| matches!(error, DataError::SameContent { .. }));
    // One record less is shown, and so are few records that are alike.
    let shown = |files: &[PathBuf]| {
        load_for_run(&schema(), files, &[1; 32]).unwrap();
        inspect(&schema(), files).unwrap().shared.iter().map(|shared| (shared.records, shared.of)).collect::<Vec<_>>()
    };
    assert_eq!(shown(&files(&rows("n,x,y\n", &|n| format!("{n},{},{}\n", n % 7, n % 2), 399))), [(399, 399)]);
    let few = [write(&folder, "c.csv", FIRST), write(&folder, "d.csv", "n,x,y\n1,1,0\n2,2,1\n3,3,0\n")];
    assert_eq!(shown(&few), [(3, 3)]);
    // Another year's records are no copy.
    assert_eq!(shown(&files(&rows("n,x,y\n", &|n| format!("{n},{},{}\n", n % 7, n % 3 % 2), 400))), []);
}

/// Two months with one patient each may be alike: the site is told, and runs.
#[test]
fn few_records_may_be_alike() {
    let folder = tempfile::tempdir().unwrap();
    for (rows, records) in [("x,y\n1,0\n", 1), ("x,y\n1,0\n1,0\n2,1\n", 3)] {
        let files = ["a.csv", "b.csv"].map(|name| write(&folder, name, rows));
        load_for_run(&schema(), &files, &[1; 32]).unwrap();
        let shared = inspect(&schema(), &files).unwrap().shared;
        assert_eq!(shared.iter().map(|shared| (shared.records, shared.of)).collect::<Vec<_>>(), [(records, records)]);
    }
}

/// A person's records are one unit, wherever they stand.
#[test]
fn of_persons_a_copy_is_refused_and_a_later_export_is_shown() {
    let schema = Schema::asking("y ~ .", &format!("unit_column = \"id\"\n{SCHEMA}")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (one, later) = (write(&folder, "a.csv", with_ids(0..50)), write(&folder, "b.csv", with_ids(0..60)));
    load_for_run(&schema, &[one.clone(), later.clone()], &[1; 32]).unwrap();
    assert_eq!(inspect(&schema, &[one.clone(), later]).unwrap().shared[0].records, 50);
    let copy = write(&folder, "c.csv", with_ids(0..50).replace('\n', "\r\n"));
    assert!(matches!(load_for_run(&schema, &[one, copy], &[1; 32]).map(drop), Err(DataError::SameContent { .. })));
}

#[test]
fn copies_of_images_and_documents_are_refused_whatever_their_bytes() {
    let images = Schema::parse("kind = \"binary-image\"\n[binary_image]\nwidth = 4\nheight = 2\nthreshold = 127\n").unwrap();
    let idx = |pixel: fn(u32) -> u8| {
        let header = [0x803_u32, 40, 2, 4].iter().flat_map(|word| word.to_be_bytes());
        header.chain((0..320).map(pixel)).collect::<Vec<u8>>()
    };
    let folder = tempfile::tempdir().unwrap();
    let one = write(&folder, "a.idx", idx(|pixel| if ((pixel / 8) >> (pixel % 8)) & 1 == 1 { 255 } else { 0 }));
    let brighter = write(&folder, "b.idx", idx(|pixel| if ((pixel / 8) >> (pixel % 8)) & 1 == 1 { 200 } else { b'\n' }));
    for other in [write(&folder, "c.idx", std::fs::read(&one).unwrap()), brighter] {
        assert!(matches!(load_for_run(&images, &[&one, &other], &[1; 32]).map(drop), Err(DataError::SameContent { .. })));
    }
    let words = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"text\"\nvocabulary = [\"fever\", \"cough\"]\ndocument_length = 10\n";
    let documents = Schema::parse(words).unwrap();
    let read = |one: &str, two: &str| {
        let files = [write(&folder, "1.txt", one), write(&folder, "2.txt", two)];
        (load_for_run(&documents, &files, &[1; 32]).map(drop), inspect(&documents, &files).map(|inspection| inspection.shared.len()))
    };
    let (loaded, inspected) = read("fever\ncough\nfever cough\n", "fever cough\r\ncough\r\nfever");
    assert!(matches!(loaded, Err(DataError::SameContent { .. })) && matches!(inspected, Err(DataError::SameContent { .. })));
    let (loaded, inspected) = read("fever and cough\n", "fever and cough\n");
    assert!(loaded.is_ok() && inspected.unwrap() == 1);
}

#[test]
fn exports_without_a_record_may_be_alike_and_rows_to_predict_may_repeat() {
    let folder = tempfile::tempdir().unwrap();
    let empty = ["a.csv", "b.csv"].map(|name| write(&folder, name, "x,y\n\n"));
    load_for_run(&schema(), &empty, &[1; 32]).unwrap();
    let rows: &Path = &write(&folder, "c.csv", FIRST);
    assert!(load_for_prediction(&schema(), &[rows, rows]).unwrap().unreadable.is_empty());
}
