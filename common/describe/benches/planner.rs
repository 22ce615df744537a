//! How long a plan takes, and its tables afterwards: of so many free cells together. `cargo bench -p dp-pvi-describe`.

use dp_pvi_accounting::Relation;
use dp_pvi_describe::least_squares::{Design, Observation};
use dp_pvi_describe::planner::{Column, Output, Wanted, plan};

fn main() {
    divan::main();
}

/// Columns of this many cells, all pairs of them, and a ladder of the first one.
fn all_pairs(columns: usize, cells: usize) -> (Vec<Column>, Vec<Wanted>) {
    let pairs = (0..columns).flat_map(|a| (a + 1..columns).map(move |b| Output::Table(vec![a, b])));
    let ladder = Output::Ladder { column: 0, by: None, splits: vec![4, 4], quantiles: vec![0.25, 0.5, 0.75] };
    let wanted = pairs.chain([ladder]).map(|output| Wanted { output, importance: 1.0 }).collect();
    ((0..columns).map(|place| Column { cells, is_number: place == 0 }).collect(), wanted)
}

/// 6 columns of 7 cells: 577 parameters. 12 of 7: 2,449. 8 of 11: 2,881.
#[divan::bench(args = [(6, 7), (12, 7), (8, 11)])]
fn pairs_of_columns(bencher: divan::Bencher, (columns, cells): (usize, usize)) {
    let (columns, wanted) = all_pairs(columns, cells);
    bencher.bench(|| plan(&columns, &wanted, Relation::ReplaceOne, false).expect("a plan"));
}

/// Many columns by one group.
#[divan::bench(args = [10, 100, 300])]
fn columns_by_group(bencher: divan::Bencher, columns: usize) {
    let all: Vec<Column> = (0..=columns).map(|_| Column { cells: 5, is_number: false }).collect();
    let wanted: Vec<Wanted> = (1..=columns).map(|place| Wanted { output: Output::Table(vec![0, place]), importance: 1.0 }).collect();
    bencher.bench(|| plan(&all, &wanted, Relation::ReplaceOne, true).expect("a plan"));
}

/// The dense system of all pairs: the least squares solution and the standard deviations of all cells.
#[divan::bench(args = [(6, 7), (8, 11)], sample_count = 2, sample_size = 1)]
fn tables_of_all_pairs(bencher: divan::Bencher, (columns, cells): (usize, usize)) {
    let pairs: Vec<[usize; 2]> = (0..columns).flat_map(|a| (a + 1..columns).map(move |b| [a, b])).collect();
    let design = Design::new(vec![cells; columns], &pairs, None).expect("at most 3000 parameters");
    let observed = |pair: &[usize; 2]| Observation::of_table(pair.to_vec(), vec![10.0; cells * cells], 2.0);
    let observations: Vec<Observation> = pairs.iter().map(observed).collect();
    bencher.bench(|| {
        let solution = design.solve(&observations).expect("every table is observed");
        pairs.iter().map(|pair| solution.table(pair).expect("it is in the design").sd[0]).sum::<f64>()
    });
}
