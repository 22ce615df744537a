//! A site in a run: whatever one record holds, it is a unit that contributes 0 at worst, and no other unit moves.
//!
//! The units are behind the release gate; what the tests compare are fingerprints of the whole table, which tell every number of every
//! record, and every boundary.

use dp_pvi_data::{Clue, DataError, LineProblem, RowProblem, inspect, load, load_for_prediction, load_for_run, load_public, load_to_disk};
use dp_pvi_names::Hash;
use dp_pvi_privacy::UnitTable;
use dp_pvi_schema::Schema;
use proptest::prelude::*;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const SCHEMA: &str = r#"
[csv]
comment = "4"
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 100
outside = "reject"
centre = 50
scale = 25
[[columns]]
name = "ward"
kind = "category"
coding = "full"
values = ["surgery", "medicine"]
[[columns]]
name = "smoker"
kind = "boolean"
missing = "drop"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

const HEADER: &str = "age,ward,smoker,died";
/// Three records that differ from each other; their places tell themselves apart.
const OTHERS: [&str; 3] = ["11,surgery,1,yes", "22,medicine,0,no", "33,surgery,0,yes"];
/// A record that the schema drops: its unit contributes 0.
const DROPPED: &str = "50,medicine,,no";

fn schema() -> Schema {
    Schema::asking("died ~ .", SCHEMA).unwrap()
}

fn of_persons() -> Schema {
    Schema::asking("died ~ .", &format!("unit_column = \"patient\"\n{SCHEMA}")).unwrap()
}

fn headless() -> Schema {
    let named = SCHEMA.replace("[csv]\n", "[csv]\nnames = [\"age\", \"ward\", \"smoker\", \"died\"]\n");
    Schema::asking("died ~ .", &named).unwrap()
}

fn write(directory: &TempDir, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn fingerprint(schema: &Schema, bytes: impl AsRef<[u8]>) -> Hash {
    let directory = tempfile::tempdir().unwrap();
    let files = [write(&directory, "cohort.csv", bytes)];
    let in_memory = load_for_run(schema, &files, &[7; 32]).unwrap().fingerprint;
    // Units on the disk are the same, whatever a record holds.
    let on_disk = load_to_disk(schema, &files, &[7; 32], tempfile::tempfile().unwrap()).unwrap();
    assert_eq!(on_disk.fingerprint, in_memory);
    let made = on_disk.units(schema, Some(tempfile::tempfile().unwrap())).unwrap();
    assert!(!made.units.is_in_memory());
    in_memory
}

/// A file of these lines.
fn lines<'a>(header: &str, rows: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut bytes = header.as_bytes().to_vec();
    for row in rows {
        bytes.push(b'\n');
        bytes.extend_from_slice(row);
    }
    bytes.push(b'\n');
    bytes
}

/// The other records with one more at a place.
fn with(header: &str, others: &[&str], place: usize, row: &[u8]) -> Vec<u8> {
    let mut rows: Vec<&[u8]> = others.iter().map(|other| other.as_bytes()).collect();
    rows.insert(place, row);
    lines(header, rows)
}

/// Records that no schema accepts, and what is wrong with each.
fn spoiled() -> Vec<(&'static str, Vec<u8>)> {
    let text = |what, row: &str| (what, row.as_bytes().to_vec());
    vec![
        text("a missing number", ",medicine,1,no"),
        text("not a number", "old,medicine,1,no"),
        text("not a finite number", "NaN,medicine,1,no"),
        text("an infinite number", "-1e999,medicine,1,no"),
        text("a number below its range", "-1,medicine,1,no"),
        text("a number above its range", "101,medicine,1,no"),
        text("a missing category", "50,,1,no"),
        text("an unknown category", "50,radiology,1,no"),
        text("neither true nor false", "50,medicine,perhaps,no"),
        text("a missing label", "50,medicine,1,"),
        text("an unknown label", "50,medicine,1,perhaps"),
        text("too few cells", "50,medicine,1"),
        text("too many cells", "50,medicine,1,no,no"),
        text("very many cells", &",".repeat(100_000)),
        text("one cell", "50"),
        text("a quote that is not closed", "\"50,medicine,1,no"),
        text("a quote that is not closed in the last cell", "50,medicine,1,\"no"),
        text("a quote that is closed too late", "50,\"medicine\"\",1,no"),
        text("a line that looks like a comment", "49,medicine,1,no"),
        text("an empty line", ""),
        text("a line of blanks", "   "),
        text("a carriage return in the middle", "50,medi\rcine,1,no"),
        text("a byte order mark", "50,medi\u{feff}cine,1,no"),
        ("bytes that are no UTF-8", b"\xff\xfe,medicine,1,no".to_vec()),
        ("zeros", b"50,medicine\0,1,no".to_vec()),
        ("the first bytes of a Parquet file", b"PAR1,medicine,1,no".to_vec()),
        ("the first bytes of a gzip file", b"\x1f\x8b\x08,medicine,1,no".to_vec()),
        ("a cell of a megabyte", [b"50,".as_slice(), &vec![b'x'; 1 << 20], b",1,no"].concat()),
    ]
}

#[test]
fn no_cell_and_no_line_stops_a_run() {
    let plain = fingerprint(&schema(), lines(HEADER, OTHERS.map(str::as_bytes)));
    for (what, row) in spoiled() {
        for place in 0..=OTHERS.len() {
            let found = fingerprint(&schema(), with(HEADER, &OTHERS, place, &row));
            let dropped = fingerprint(&schema(), with(HEADER, &OTHERS, place, DROPPED.as_bytes()));
            assert_eq!(found, dropped, "{what} at {place}");
            assert_ne!(found, plain, "{what}: its unit is a unit");
        }
    }
    // The people at the site are told before: all but lines that hold nothing are rejected.
    let directory = tempfile::tempdir().unwrap();
    for (what, row) in spoiled() {
        let files = [write(&directory, "cohort.csv", with(HEADER, &OTHERS, 1, &row))];
        let seen = inspect(&schema(), &files).unwrap();
        let nothing = row.is_empty() || row.starts_with(b"4");
        assert_eq!((seen.records, seen.rejected, seen.empty_lines), (4, u64::from(!nothing), u64::from(nothing)), "{what}");
        assert_eq!(load(&schema(), &files).is_ok(), nothing, "{what}");
    }
}

/// A line that does not fit into memory is passed over, without its bytes.
#[test]
fn a_line_without_end_is_one_unit() {
    let row = [b"50,".as_slice(), &vec![b'x'; (1 << 26) + 5], b",1,no"].concat();
    let found = fingerprint(&schema(), with(HEADER, &OTHERS, 1, &row));
    assert_eq!(found, fingerprint(&schema(), with(HEADER, &OTHERS, 1, DROPPED.as_bytes())));
    let directory = tempfile::tempdir().unwrap();
    let file = write(&directory, "cohort.csv", with(HEADER, &OTHERS, 1, &row));
    assert!(matches!(load(&schema(), &[file]), Err(DataError::Line { row: 2, problem: LineProblem::TooLong, .. })));
}

#[test]
fn the_number_and_the_places_of_units_do_not_depend_on_cells() {
    // An age of 50 that becomes 49 looks like a comment of this schema: the three others, and the fourth, stay units where they are.
    let schema = schema();
    let as_comment = fingerprint(&schema, with(HEADER, &OTHERS, 0, b"49,medicine,1,no"));
    let as_record = fingerprint(&schema, with(HEADER, &OTHERS, 0, b"50,medicine,1,no"));
    assert_eq!(as_comment, fingerprint(&schema, with(HEADER, &OTHERS, 0, DROPPED.as_bytes())));
    assert_ne!(as_comment, as_record);

    // A file of one column: a missing value is an empty line, and a record.
    let label = "[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\nmissing = \"drop\"\n";
    let schema = Schema::asking("died ~ .", label).unwrap();
    for place in 0..3 {
        let empty = fingerprint(&schema, with("died", &["yes", "no"], place, b""));
        assert_eq!(empty, fingerprint(&schema, with("died", &["yes", "no"], place, b"perhaps")), "{place}");
        let directory = tempfile::tempdir().unwrap();
        let counts = load(&schema, &[write(&directory, "cohort.csv", with("died", &["yes", "no"], place, b""))]).unwrap().counts;
        assert_eq!((counts.units, counts.dropped), (3, 1));
    }
}

/// In a file without a header the first bytes are a record's: they do not decide what the others are.
#[test]
fn the_first_record_does_not_say_what_a_file_is() {
    let file = |first: &[u8]| with(OTHERS[0], &OTHERS, 0, first)[OTHERS[0].len() + 1..].to_vec();
    let dropped = fingerprint(&headless(), file(DROPPED.as_bytes()));
    for (what, row) in spoiled() {
        assert_eq!(fingerprint(&headless(), file(&row)), dropped, "{what}");
    }
    assert_eq!(fingerprint(&headless(), file(b"49,medicine,1,no\r")), dropped, "a carriage return before the line feed");
    // What a file is, its name says.
    let directory = tempfile::tempdir().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&file(DROPPED.as_bytes())).unwrap();
    let packed = write(&directory, "cohort.csv.gz", gzip.finish().unwrap());
    assert_eq!(load_for_run(&headless(), &[packed], &[7; 32]).unwrap().fingerprint, dropped);
    let packed = write(&directory, "cohort.csv.zst", zstd::encode_all(&file(DROPPED.as_bytes())[..], 1).unwrap());
    assert_eq!(load_for_run(&headless(), &[packed], &[7; 32]).unwrap().fingerprint, dropped);
}

/// With a header the first bytes are its: a file is Zstandard whatever its name is, in one frame or several, and one that is cut is an error.
#[test]
fn a_file_in_zstandard_is_the_file() {
    let plain = lines(HEADER, OTHERS.map(str::as_bytes));
    let directory = tempfile::tempdir().unwrap();
    let schema = schema();
    let expected = fingerprint(&schema, plain.clone());
    let (first, second) = plain.split_at(plain.len() / 2);
    let whole = zstd::encode_all(&plain[..], 3).unwrap();
    let frames = [zstd::encode_all(first, 3).unwrap(), zstd::encode_all(second, 3).unwrap()].concat();
    for packed in [&whole, &frames] {
        let path = write(&directory, "cohort.csv", packed.clone());
        assert_eq!(load_for_run(&schema, &[path], &[7; 32]).unwrap().fingerprint, expected);
    }
    let cut = write(&directory, "cut.csv.zst", &whole[..whole.len() - 5]);
    assert!(load_for_run(&schema, &[cut], &[7; 32]).is_err());
}

#[test]
fn a_record_without_an_id_contributes_nothing_and_makes_no_unit() {
    let header = format!("patient,{HEADER}");
    let others = ["a,11,surgery,1,yes", "b,22,medicine,0,no", "a,33,surgery,0,yes"];
    let without = fingerprint(&of_persons(), lines(&header, others.map(str::as_bytes)));
    let nobodys = [
        "",
        "49,x",
        "?",
        ",50,medicine,1,no",
        "  ,50,medicine,1,no",
        ",old,medicine,1,no",
        "c,50,medicine,1",
        "c,50,medicine,1,no,no",
        "\"c,50,medicine,1,no",
        "c,50,medicine,1,\"no",
    ];
    for row in nobodys {
        for place in 0..=others.len() {
            assert_eq!(fingerprint(&of_persons(), with(&header, &others, place, row.as_bytes())), without, "{row:?} at {place}");
        }
    }
    // A person whose record cannot be used is a person.
    for (cells, _) in [("old,medicine,1,no", ()), ("101,medicine,1,no", ()), ("50,medicine,1,perhaps", ())] {
        let found = fingerprint(&of_persons(), with(&header, &others, 1, format!("c,{cells}").as_bytes()));
        assert_eq!(found, fingerprint(&of_persons(), with(&header, &others, 1, format!("c,{DROPPED}").as_bytes())));
        assert_ne!(found, without);
        // And a record of a person who has others adds nothing.
        assert_eq!(fingerprint(&of_persons(), with(&header, &others, 1, format!("a,{cells}").as_bytes())), without);
    }
}

#[test]
fn how_many_records_there_are_is_no_error() {
    let files = ["", "\n", "\n\n", "\n11,surgery,1,yes\n"].map(|rest| format!("{HEADER}{rest}"));
    let found: std::collections::BTreeSet<_> = files.iter().map(|file| fingerprint(&schema(), file).0).collect();
    assert_eq!(found.len(), 3, "no unit (with and without a line end), one that contributes nothing, one that does");
    let directory = tempfile::tempdir().unwrap();
    assert!(matches!(load(&schema(), &[write(&directory, "cohort.csv", &files[0])]), Err(DataError::Empty { .. })));
}

/// Where a file has no header it is empty when no one is in it: no unit in a run, and refused before, when someone looks.
#[test]
fn a_file_without_anybody_is_no_error_in_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let images = "kind = \"binary-image\"\n[binary_image]\nwidth = 2\nheight = 1\nthreshold = 127\n";
    let none_of = |count: u8| [0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 1, 0, 0, 0, 2];
    let cases: [(Schema, &str, Vec<u8>, Vec<u8>); 5] = [
        (headless(), "cohort.csv", vec![], b"11,surgery,1,yes\n".to_vec()),
        (headless(), "cohort.csv", vec![], b"49,surgery,1,yes\n".to_vec()),
        (Schema::parse(TEXT).unwrap(), "documents.txt", vec![], b"war\n".to_vec()),
        (Schema::parse(DOCWORD).unwrap(), "docword.txt", b"0\n4\n0\n".to_vec(), b"1\n4\n1\n1 1 3\n".to_vec()),
        (Schema::parse(images).unwrap(), "images.idx", none_of(0).to_vec(), [&none_of(1)[..], &[0, 255]].concat()),
    ];
    for (schema, name, nobody, somebody) in cases {
        let file = write(&directory, name, &nobody);
        let found = load_for_run(&schema, std::slice::from_ref(&file), &[7; 32]).unwrap().fingerprint;
        assert!(matches!(load(&schema, &[&file]), Err(DataError::Empty { .. })), "{name}");
        let other = load_for_run(&schema, &[write(&directory, name, &somebody)], &[7; 32]).unwrap().fingerprint;
        assert_ne!(found, other, "{name}: one unit more");
        // Beside another file of the same site nothing is missing.
        let more = write(&directory, &format!("more-{name}"), &somebody);
        write(&directory, name, &nobody);
        assert_eq!(load_for_run(&schema, &[&file, &more], &[7; 32]).unwrap().fingerprint, other, "{name}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever bytes one line holds, in whatever file, it is one unit and the others are what they were. The others begin with whatever a reader
    /// of CSV files may treat in another way at the start of a file, or after an open quote.
    #[test]
    fn one_line_of_any_bytes_moves_no_other(
        bytes in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => prop::sample::select(b"\",4\\#'; \t\r\0".to_vec())], 0..40),
        start in prop::sample::select(vec!["", "\"", "\u{feff}", "\u{feff}\"", "4"]),
        others in prop::collection::vec(prop::sample::select(STARTS.to_vec()), 3),
        place in 0_usize..4,
        header in any::<bool>(),
    ) {
        let mut row = start.as_bytes().to_vec();
        row.extend(bytes.into_iter().filter(|byte| *byte != b'\n'));
        let (schema, header) = if header { (schema(), HEADER) } else { (headless(), OTHERS[0]) };
        let directory = tempfile::tempdir().unwrap();
        let others: Vec<String> = others.iter().zip(OTHERS).map(|(start, other)| format!("{start}{other}")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let other = write(&directory, "other.csv", with(header, &others, place, DROPPED.as_bytes()));
        let file = write(&directory, "cohort.csv", with(header, &others, place, &row));
        let found = load_for_run(&schema, &[&file], &[7; 32]).unwrap().fingerprint;
        let dropped = load_for_run(&schema, &[&other], &[7; 32]).unwrap().fingerprint;
        // What the line is by itself.
        let alone = write(&directory, "alone.csv", lines(header, [row.as_slice()]));
        let accepted = load(&schema, &[&alone]).is_ok_and(|loaded| loaded.counts.dropped == 0);
        prop_assert_eq!(found == dropped, !accepted);
    }
}

/// Starts of lines that a reader may take for something else when it has read nothing, or when a quote is open.
const STARTS: [&str; 5] = ["", "\u{feff}", "\u{feff}\"", "\"", "\u{feff}\"x\","];

/// In a file without a header the first record is read as it would be anywhere else: the one before it may be taken away.
#[test]
fn the_first_line_without_a_header_is_read_like_the_others() {
    let alone = |row: &str| fingerprint(&headless(), lines(row, std::iter::empty()));
    let second = |row: &str| fingerprint(&headless(), lines(DROPPED, [row.as_bytes()]));
    let (taken, left) = (alone("11,surgery,1,yes"), second("11,surgery,1,yes"));
    for row in [
        "\u{feff}11,surgery,1,yes",
        "\u{feff}\u{feff}11,surgery,1,yes",
        "\u{feff}49,surgery,1,yes",
        "\u{feff}",
        "\u{feff}\"11\",surgery,1,yes",
    ] {
        assert_eq!(alone(row) == taken, second(row) == left, "{row:?}");
        let nothing = (alone(DROPPED), second(DROPPED));
        assert_eq!(alone(row) == nothing.0, second(row) == nothing.1, "{row:?}");
    }
}

/// A mark of the byte order that a reader strips from the start of its input. Whether it believes to be there was decided by the line before: one
/// that ended in an open quote made it begin anew.
#[test]
fn an_open_quote_does_not_decide_how_the_next_lines_are_read() {
    for (schema, header) in [(schema(), HEADER), (headless(), OTHERS[0])] {
        for line in ["\u{feff}11,surgery,1,yes", "\u{feff}\"11,surgery,1,yes", "\u{feff}\"11\",surgery,1,yes"] {
            let others = [line; 9];
            let of = |row: &str| fingerprint(&schema, with(header, &others, 0, row.as_bytes()));
            for row in ["\"50,medicine,0,no", "4", "", "50,medicine", "\u{feff}\"50,medicine,0,no"] {
                assert_eq!(of(row), of(DROPPED), "{row:?} before {line:?}");
            }
        }
    }
}

#[test]
fn what_is_wrong_with_a_whole_file_is_found_before_a_run() {
    let directory = tempfile::tempdir().unwrap();
    let run = |name: &str, bytes: &[u8]| load_for_run(&schema(), &[write(&directory, name, bytes)], &[7; 32]).err().unwrap();
    assert!(matches!(run("none.csv", b""), DataError::Empty { .. }));
    assert!(matches!(run("other.csv", b"years,ward\n1,2\n"), DataError::MissingColumn { .. }));
    assert!(matches!(run("quote.csv", b"age,\"ward,smoker,died\n1,2\n"), DataError::Header { problem: LineProblem::OpenQuote, .. }));
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&lines(HEADER, OTHERS.map(str::as_bytes))).unwrap();
    let packed = gzip.finish().unwrap();
    assert!(matches!(run("cut.csv.gz", &packed[..packed.len() - 9]), DataError::Io { .. }));
    assert!(matches!(run("damaged.parquet", b"PAR1 and nothing more"), DataError::Parquet { .. }));
    let missing = load_for_run(&schema(), &[directory.path().join("nowhere.csv")], &[7; 32]).err().unwrap();
    assert!(matches!(missing, DataError::Io { .. }));
}

/// What would never give a byte, or never stop giving them, is refused at once.
#[test]
fn directories_pipes_and_devices_are_no_data() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [directory.path(), pipe.as_path(), Path::new("/dev/zero")] {
        for error in [
            load_for_run(&schema(), &[path], &[7; 32]).err(),
            load(&schema(), &[path]).err(),
            inspect(&schema(), &[path]).err(),
            load_for_prediction(&schema(), &[path]).err(),
        ] {
            assert!(matches!(error, Some(DataError::NotAFile { .. })), "{}", path.display());
        }
    }
    let images = Schema::parse("kind = \"binary-image\"\n[binary_image]\nwidth = 3\nheight = 2\nthreshold = 127\n").unwrap();
    assert!(matches!(load_for_run(&images, &[pipe], &[7; 32]).err(), Some(DataError::NotAFile { .. })));
}

#[test]
fn a_header_in_another_format_is_told_by_its_name() {
    let utf16: Vec<u8> = "\u{feff}age,ward,smoker,died\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let of = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let (windows, big) = (of("\u{feff}age,ward,smoker,died\r\n1,surgery,1,yes\r\n"), of("\u{feff}age,ward,smoker,died\r\n"));
    let big: Vec<u8> = big.chunks(2).flat_map(|unit| [unit[1], unit[0]]).collect();
    let utf32: Vec<u8> = "\u{feff}age,ward,smoker,died\r\n".chars().flat_map(|c| u32::from(c).to_le_bytes()).collect();
    let cases: [(&[u8], Clue, &str); 13] = [
        (&windows, Clue::Utf16, "UTF-16"),
        (&big, Clue::Utf16, "UTF-16"),
        (&utf32, Clue::Utf32, "UTF-32"),
        (&utf32[4..], Clue::Utf32, "UTF-32"),
        (b"sep=;\r\nage;ward;smoker;died\r\n", Clue::Separator, "`sep=`"),
        (b"\xef\xbb\xbf\"sep=,\"\nage,ward,smoker,died\n", Clue::Separator, "`sep=`"),
        (b"age;ward;smoker;died\n1;surgery;1;yes\n", Clue::Delimiter(b';'), "`delimiter = \";\"` under `[csv]`"),
        (b"age\tward\tsmoker\tdied\n", Clue::Delimiter(b'\t'), "`delimiter = \"\\t\"`"),
        (b"age|ward|smoker|died\n", Clue::Delimiter(b'|'), "vertical bars"),
        (&utf16, Clue::Utf16, "UTF-16"),
        (&utf16[2..], Clue::Utf16, "iconv"),
        (b"PK\x03\x04\x14\0\x06\0\x08\0\0\0!\0", Clue::Workbook, ".xlsx"),
        (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", Clue::OldWorkbook, ".xls"),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (bytes, expected, words) in cases {
        let error = load(&schema(), &[write(&directory, "cohort.csv", bytes)]).err().unwrap();
        let DataError::MissingColumn { clue, .. } = &error else { panic!("{error}") };
        assert_eq!(*clue, Some(expected));
        assert!(error.to_string().contains("there is no column `age`") && error.to_string().contains(words), "{error}");
    }
    let error = load(&schema(), &[write(&directory, "cohort.csv", b"years,ward,smoker,died\n")]).err().unwrap();
    assert!(matches!(error, DataError::MissingColumn { clue: None, .. }) && error.to_string().contains("csv.names"), "{error}");
}

#[test]
fn a_row_that_cannot_be_read_is_an_empty_prediction() {
    let directory = tempfile::tempdir().unwrap();
    let text = "age,ward,smoker\n11,surgery,1\n22,radiology,1\n\n33,medicine,\n44,\"medicine,1\n49,medicine\n55,medicine,0\n";
    let schema = Schema::asking("died ~ .", &SCHEMA.replace("comment = \"4\"\n", "")).unwrap();
    let rows = load_for_prediction(&schema, &[write(&directory, "new.csv", text)]).unwrap();
    let filled: Vec<_> = (0..rows.table.len()).map(|row| rows.table.unit(row).records().count()).collect();
    assert_eq!(filled, [1, 0, 0, 0, 0, 1]);
    assert_eq!(rows.unreadable.iter().map(|row| row.row).collect::<Vec<_>>(), [2, 4, 5]);
    assert!(matches!(&rows.unreadable[0].problem, RowProblem::Cell { column, .. } if column == "ward"));
    assert_eq!(rows.unreadable[1].problem, RowProblem::Line(LineProblem::OpenQuote));
    assert_eq!(rows.unreadable[2].problem, RowProblem::Line(LineProblem::Length { expected: 3, found: 2 }));
}

/// A row that is predicted from other values than the file has is told; one that is dropped, or used as it is, is not.
#[test]
fn rows_that_the_schema_changes_are_told_where_they_are_predicted() {
    let number = |name: &str, outside: &str| {
        format!(
            "[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = 0\nupper = 10\ncentre = 0\nscale = 1\noutside = \"{outside}\"\n"
        )
    };
    let text = format!(
        "norm_bound = 12.0\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n{}{}{}",
        number("a", "clamp"),
        number("b", "clamp"),
        number("c", "drop")
    );
    let schema = Schema::asking("y ~ .", &text).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = write(&directory, "new.csv", "a,b,c\n1,2,3\n-1,2,3\n11,12,3\n11,2,30\n8,8,8\nx,11,1\n");
    let rows = load_for_prediction(&schema, &[file]).unwrap();
    let changed: Vec<_> = rows.changed.iter().map(|row| (row.row, row.columns.join("+"), row.shortened)).collect();
    assert_eq!(changed, [(2, "a".to_owned(), false), (3, "a+b".to_owned(), true), (5, String::new(), true)]);
}

#[test]
fn public_files_may_have_comments_and_empty_lines() {
    let directory = tempfile::tempdir().unwrap();
    let file = write(&directory, "public.csv", format!("4 comments\n\n{HEADER}\n\n{}\n49\n{}\n\n", OTHERS[0], OTHERS[1]));
    assert_eq!(load_public(&schema(), &[file], None).unwrap().get().len(), 2);
}

const DOCWORD: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 4\ndocument_length = 10\n";
const TEXT: &str =
    "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"text\"\nvocabulary = [\"war\", \"peace\", \"iraq\"]\ndocument_length = 6\n";

#[test]
fn no_line_of_a_file_of_documents_stops_a_run() {
    let schema = Schema::parse(DOCWORD).unwrap();
    let file = |lines: &[&str]| fingerprint(&schema, format!("4\n4\n3\n{}", lines.join("\n")));
    let (first, third) = ("1 1 3", "3 2 2");
    let expected = file(&[first, third]);
    assert_ne!(expected, file(&[first, "2 1 1", third]));
    // Document 2 cannot be read, in part or at all; entries that name no document belong to none. Their order and number do not count.
    for spoiled in ["2 0 1", "2 5 1", "2 1 0", "2 1", "2 1 x", "2 1 1 1", "2", "2 1 99999999999", "5 1 1", "0 1 1", "x 1 1", "", "-2 1 1"] {
        for lines in
            [vec![first, spoiled, third], vec![spoiled, first, third], vec![first, third, spoiled], vec![first, third, spoiled, spoiled]]
        {
            assert_eq!(file(&lines), expected, "{lines:?}");
        }
        if spoiled.starts_with('2') {
            assert_eq!(file(&[first, "2 1 1", spoiled, third]), expected, "{spoiled}: the document contributes nothing");
        }
    }
    assert_eq!(file(&[third, first]), expected);
    assert_eq!(file(&[first, &format!("2 1 {}", "1".repeat(300)), third]), expected, "a long line");

    let schema = Schema::parse(TEXT).unwrap();
    let file = |line: &[u8]| fingerprint(&schema, [b"war peace\n".as_slice(), line, b"\niraq"].concat());
    for spoiled in [b"\xff\xfe war".as_slice(), b"", b"\x1f\x8b", b"\0", b"PAR1"] {
        assert_eq!(file(spoiled), file(b"nothing known"));
    }
    assert_ne!(file(b"war"), file(b""));
    assert_eq!(
        fingerprint(&schema, b"\x1f\x8b\nwar\n"),
        fingerprint(&schema, b"\nwar\n"),
        "the first document does not say what the file is"
    );
}
