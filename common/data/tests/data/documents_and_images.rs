//! Documents and images: what becomes of them, and what is refused. Messages name lines and images, never what they hold.

use dp_pvi_data::{DataError, DocumentProblem, ImageProblem, inspect, load, load_for_prediction};
use dp_pvi_privacy::UnitTable;
use dp_pvi_schema::Schema;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const DOCWORD: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 4\ndocument_length = 10\n";
const TEXT: &str =
    "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"text\"\nvocabulary = [\"war\", \"peace\", \"iraq\"]\ndocument_length = 6\n";
const IMAGE: &str = "kind = \"binary-image\"\n[binary_image]\nwidth = 3\nheight = 2\nthreshold = 127\n";

fn file(directory: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// One unit's entries (position, value); an empty unit has no record.
type Entries = Option<Vec<(usize, f64)>>;

fn units(schema: &str, paths: &[&Path]) -> Result<Vec<Entries>, DataError> {
    let table = load_for_prediction(&Schema::parse(schema).unwrap(), paths)?.table;
    Ok((0..table.len()).map(|unit| table.unit(unit).records().next().map(|record| record.entries().collect())).collect())
}

#[test]
fn docword_files_give_scaled_counts_and_empty_documents_stay_units() {
    let directory = TempDir::new().unwrap();
    // Document 2 is empty, document 4 too; document 3 has its words out of order and one of them twice.
    let text = b"4\n4\n5\n1 1 3\n1 4 1\n3 2 2\n3 1 1\n3 2 1\n";
    let plain = file(&directory, "docword.txt", text);
    let packed = file(&directory, "docword.txt.gz", &gzip(text));
    let expected = vec![Some(vec![(0, 7.5), (3, 2.5)]), None, Some(vec![(0, 2.5), (1, 7.5)]), None];
    assert_eq!(units(DOCWORD, &[&plain]).unwrap(), expected);
    assert_eq!(units(DOCWORD, &[&packed]).unwrap(), expected);
    assert_eq!(units(DOCWORD, &[&plain, &packed]).unwrap().len(), 8);
    let schema = Schema::parse(DOCWORD).unwrap();
    let counts = load(&schema, &[&plain]).unwrap().counts;
    assert_eq!((counts.units, counts.records, counts.dropped), (4, 4, 2));
    let inspection = inspect(&schema, &[&plain]).unwrap();
    assert_eq!((inspection.units, inspection.dropped, inspection.columns.len(), inspection.norms.iter().sum::<u64>()), (4, 2, 0, 2));
}

#[test]
fn text_files_count_the_words_of_the_vocabulary_only() {
    let directory = TempDir::new().unwrap();
    let path = file(&directory, "posts.txt", "War, war and PEACE!\nnothing known here\n\niraq\r\niraq-war".as_bytes());
    let expected = vec![Some(vec![(0, 4.0), (1, 2.0)]), None, None, Some(vec![(2, 6.0)]), Some(vec![(0, 3.0), (2, 3.0)])];
    assert_eq!(units(TEXT, &[&path]).unwrap(), expected);
}

#[test]
fn files_that_are_not_as_they_say_are_refused_by_line() {
    let directory = TempDir::new().unwrap();
    for (text, at, expected) in [
        ("4\n4\n1\n", 3, DocumentProblem::Truncated),
        ("4\n4\n", 2, DocumentProblem::Truncated),
        ("4\n5\n1\n1 1 1\n", 3, DocumentProblem::OtherVocabulary),
        ("4\n4\n2\n2 1 1\n1 1 1\n", 5, DocumentProblem::DocumentNumber),
        ("4\n4\n1\n5 1 1\n", 4, DocumentProblem::DocumentNumber),
        ("4\n4\n1\n1 0 1\n", 4, DocumentProblem::WordNumber),
        ("4\n4\n1\n1 5 1\n", 4, DocumentProblem::WordNumber),
        ("4\n4\n1\n1 1 0\n", 4, DocumentProblem::Count),
        ("4\n4\n1\n1 1\n", 4, DocumentProblem::NotNumbers),
        ("4\n4\n1\n1 1 777777777777777777777\n", 4, DocumentProblem::NotNumbers),
        ("4\n4\n1\n1 1 -7\n", 4, DocumentProblem::NotNumbers),
        ("4\n4\n1\n1 1 1 1\n", 4, DocumentProblem::NotNumbers),
        ("4\n4\n1\n1 1 1\n1 2 1\n", 5, DocumentProblem::TooManyEntries),
        ("secret,words\n", 1, DocumentProblem::NotNumbers),
    ] {
        let path = file(&directory, "bad.txt", text.as_bytes());
        match units(DOCWORD, &[&path]) {
            Err(DataError::Document { line, problem, .. }) => assert_eq!((line, problem), (at, expected), "{text:?}"),
            other => panic!("{text:?}: {other:?}"),
        }
        let message = units(DOCWORD, &[&path]).unwrap_err().to_string();
        assert!(message.contains(&format!("line {at}")) && !message.contains("7777777") && !message.contains("secret"), "{message}");
    }
    let path = file(&directory, "bytes.txt", b"war\n\xff\xfe\n");
    assert!(matches!(units(TEXT, &[&path]), Err(DataError::Document { line: 2, problem: DocumentProblem::NotText, .. })));
    for empty in [units(TEXT, &[&file(&directory, "empty.txt", b"")]), units(DOCWORD, &[&file(&directory, "none.txt", b"0\n4\n0\n")])] {
        assert!(matches!(empty, Err(DataError::Empty { .. })));
    }
    assert!(matches!(units(TEXT, &[]), Err(DataError::NoFiles)));
    assert!(matches!(units(IMAGE, &[]), Err(DataError::NoFiles)));
    assert!(matches!(units(TEXT, &[Path::new("/nowhere/at/all")]), Err(DataError::Io { .. })));
}

fn idx(magic: u32, count: u32, height: u32, width: u32, pixels: &[u8]) -> Vec<u8> {
    [magic, count, height, width].iter().flat_map(|n| n.to_be_bytes()).chain(pixels.iter().copied()).collect()
}

#[test]
fn images_are_black_and_white_by_the_public_threshold() {
    let directory = TempDir::new().unwrap();
    let pixels = [0, 127, 128, 255, 1, 200, 0, 0, 0, 0, 0, 0];
    for bytes in [idx(2051, 2, 2, 3, &pixels), gzip(&idx(2051, 2, 2, 3, &pixels))] {
        let path = file(&directory, "images", &bytes);
        assert_eq!(units(IMAGE, &[&path]).unwrap(), vec![Some(vec![(2, 1.0), (3, 1.0), (5, 1.0)]), Some(vec![])]);
    }
}

#[test]
fn image_files_that_are_not_as_they_say_are_refused_by_image() {
    let directory = TempDir::new().unwrap();
    let pixels = [9_u8; 12];
    for (bytes, at, expected) in [
        (idx(2049, 2, 2, 3, &pixels), 0, ImageProblem::NotImages),
        (idx(2051, 2, 3, 2, &pixels), 0, ImageProblem::OtherSize),
        (idx(2051, 2, 2, 3, &pixels[..11]), 2, ImageProblem::Truncated),
        (idx(2051, 2, 2, 3, &[9_u8; 13]), 2, ImageProblem::TooLong),
        (vec![0, 0, 8], 0, ImageProblem::Truncated),
        (idx(2051, u32::MAX, 2, 3, &pixels), 3, ImageProblem::Truncated),
    ] {
        let path = file(&directory, "bad", &bytes);
        match units(IMAGE, &[&path]) {
            Err(DataError::Image { image, problem, .. }) => assert_eq!((image, problem), (at, expected)),
            other => panic!("{other:?}"),
        }
    }
    let path = file(&directory, "none", &idx(2051, 0, 2, 3, &[]));
    assert!(matches!(units(IMAGE, &[&path]), Err(DataError::Empty { .. })));
}

/// The public files: the counts that their description states.
#[test]
fn shared_files_have_the_stated_sizes() {
    let shared = std::env::var_os("DP_PVI_SHARED")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared"), PathBuf::from)
        .join("data");
    let words = shared.join("text/kos/docword.kos.txt.gz");
    let digits = shared.join("mnist/t10k-images-idx3-ubyte.gz");
    if !(words.exists() && digits.exists()) {
        eprintln!("skipped: {} is not there", shared.display());
        return;
    }
    let schema = DOCWORD.replace("words = 4", "words = 6906").replace("length = 10", "length = 500");
    let documents = units(&schema, &[&words]).unwrap();
    assert_eq!(documents.len(), 3_430);
    assert_eq!(documents.iter().flatten().map(Vec::len).sum::<usize>(), 353_160);
    assert!(documents.iter().flatten().all(|document| (document.iter().map(|(_, count)| count).sum::<f64>() - 500.0).abs() < 1e-9));
    let schema = IMAGE.replace("width = 3", "width = 28").replace("height = 2", "height = 28");
    let images = units(&schema, &[&digits]).unwrap();
    assert_eq!(images.len(), 10_000);
    // About an eighth of the pixels of a digit is on.
    let on = images.iter().flatten().map(Vec::len).sum::<usize>();
    assert!((900_000..1_200_000).contains(&on), "{on}");
}
