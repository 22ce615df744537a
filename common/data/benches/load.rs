//! Loading: an Adult-like file (5 numbers, 8 categories with 99 levels, one ignored column) of 48,842 records.
//!
//! `cargo bench -p dp-pvi-data`. The file is made here, so the figure needs no shared data.
#![allow(clippy::unwrap_used, missing_docs)]

use dp_pvi_data::load;
use dp_pvi_schema::Schema;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;

const RECORDS: usize = 48_842;
const LEVELS: [usize; 8] = [8, 16, 7, 14, 6, 5, 2, 41];

fn main() {
    divan::main();
}

/// The schema and a directory with the file, plain and gzip.
fn files() -> (Schema, tempfile::TempDir, [PathBuf; 2]) {
    let mut schema =
        "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\">50K\"]\nfalse_values = [\"<=50K\"]\n[csv]\nnames = [".to_owned();
    (0..5).for_each(|number| write!(schema, "\"n{number}\", ").unwrap());
    (0..8).for_each(|number| write!(schema, "\"c{number}\", ").unwrap());
    schema += "\"skip\", \"y\"]\n[[columns]]\nname = \"skip\"\nkind = \"ignored\"\n";
    for number in 0..5 {
        write!(schema, "[[columns]]\nname = \"n{number}\"\nkind = \"number\"\nlower = 0\nupper = 100\ncentre = 40\nscale = 20\n").unwrap();
    }
    for (number, levels) in LEVELS.iter().enumerate() {
        let values: Vec<_> = (0..*levels).map(|level| format!("\"Category-level-{level}\"")).collect();
        write!(schema, "[[columns]]\nname = \"c{number}\"\nkind = \"category\"\ncoding = \"full\"\nvalues = [{}]\n", values.join(", "))
            .unwrap();
    }
    let mut text = String::new();
    for record in 0..RECORDS {
        // A multiplicative hash is random enough for branch predictors.
        let mut state = record.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = |below: usize| {
            state = state.wrapping_mul(0xD129_0428_8A5B_7A3D).wrapping_add(0x1234_5678_9ABC_DEF1);
            (state >> 33) % below
        };
        (0..5).for_each(|_| write!(text, "{}, ", draw(101)).unwrap());
        LEVELS.iter().for_each(|&levels| write!(text, "Category-level-{}, ", draw(levels)).unwrap());
        writeln!(text, "{}, {}", draw(1_000_000), if draw(4) == 0 { ">50K" } else { "<=50K" }).unwrap();
    }
    let directory = tempfile::tempdir().unwrap();
    let paths = [directory.path().join("plain.csv"), directory.path().join("packed.csv.gz")];
    std::fs::write(&paths[0], &text).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(std::fs::File::create(&paths[1]).unwrap(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    gzip.finish().unwrap();
    (Schema::asking("y ~ .", &schema).unwrap(), directory, paths)
}

#[divan::bench(sample_count = 30)]
fn plain_csv(bencher: divan::Bencher<'_, '_>) {
    let (schema, _directory, paths) = files();
    bencher.counter(divan::counter::ItemsCount::new(RECORDS)).bench(|| load(&schema, &paths[..1]).unwrap().counts.units);
}

#[divan::bench(sample_count = 30)]
fn gzip_csv(bencher: divan::Bencher<'_, '_>) {
    let (schema, _directory, paths) = files();
    bencher.counter(divan::counter::ItemsCount::new(RECORDS)).bench(|| load(&schema, &paths[1..]).unwrap().counts.units);
}
