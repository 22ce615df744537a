//! Rows by a formula with two splines and an interaction: six columns, 29 coefficients.
//!
//! `cargo bench -p dp-pvi-schema`. Cells are parsed before; reading them from a file is measured in `dp-pvi-data`.
#![allow(clippy::unwrap_used, missing_docs)]

use dp_pvi_schema::Schema;
use dp_pvi_schema::formula::{Cell, Record, RowSpace};

const RECORDS: usize = 1024;
const SCHEMA: &str = r#"
version = 2
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 110
centre = 50
scale = 20
[[columns]]
name = "bmi"
kind = "number"
lower = 10
upper = 60
centre = 25
scale = 10
[[columns]]
name = "stays"
kind = "number"
lower = 0
upper = 40
centre = 0
scale = 4
[[columns]]
name = "sex"
kind = "category"
values = ["f", "m"]
[[columns]]
name = "ward"
kind = "category"
values = ["surgery", "medicine", "icu", "other"]
[[columns]]
name = "smoker"
kind = "boolean"
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

fn main() {
    divan::main();
}

/// Cells of records, random enough for branch predictors.
fn cells() -> Vec<[Cell; 6]> {
    let record = |number: usize| {
        let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut draw = |below: usize| {
            state = state.wrapping_mul(0xD129_0428_8A5B_7A3D).wrapping_add(0x1234_5678_9ABC_DEF1);
            (state >> 33) % below
        };
        [
            Cell::Number(draw(1101) as f64 / 10.0),
            Cell::Number(10.0 + draw(501) as f64 / 10.0),
            Cell::Number(draw(41) as f64),
            Cell::Level(draw(2) as u32),
            Cell::Level(draw(4) as u32),
            Cell::Level(draw(2) as u32),
        ]
    };
    (0..RECORDS).map(record).collect()
}

fn rows(bencher: divan::Bencher<'_, '_>, formula: &str) {
    let schema = Schema::parse(SCHEMA).unwrap().with_formula(formula, &[]).unwrap();
    let (design, cells, mut space) = (schema.design().unwrap(), cells(), RowSpace::default());
    let mut row = Vec::with_capacity(64);
    bencher.counter(divan::counter::ItemsCount::new(RECORDS)).bench_local(|| {
        let mut entries = 0;
        for cells in &cells {
            row.clear();
            design.row(&Record { cells, filled: &[false; 6], site: None }, &mut space, |position, value| row.push((position, value)));
            entries += row.len();
        }
        entries
    });
}

#[divan::bench]
fn two_splines_and_an_interaction(bencher: divan::Bencher<'_, '_>) {
    rows(bencher, "died ~ bs(age, df = 8) + ns(bmi, df = 6) + stays + sex*ward + smoker");
}

#[divan::bench]
fn a_spline_times_a_factor(bencher: divan::Bencher<'_, '_>) {
    rows(bencher, "died ~ bs(age, df = 8)*ward + bin(bmi, [18.5, 25, 30]) + smoker");
}

#[divan::bench]
fn columns_as_they_are(bencher: divan::Bencher<'_, '_>) {
    rows(bencher, "died ~ age + bmi + stays + sex + ward + smoker");
}
