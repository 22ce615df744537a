//! Small systems against one dense one, and what the shares are best at.

use super::*;

const NUMBER: Column = Column { cells: 7, is_number: true };

fn level(cells: usize) -> Column {
    Column { cells, is_number: false }
}

fn table(places: &[usize], importance: f64) -> Wanted {
    Wanted { output: Output::Table(places.to_vec()), importance }
}

fn sectors_of(columns: &[Column], wanted: &[Wanted], relation: Relation, known: bool) -> (Vec<Candidate>, Vec<Sector>) {
    let candidates = candidates(columns, wanted).unwrap();
    let sectors = Builder::new(columns, wanted, &candidates, relation, known).unwrap().sectors().unwrap();
    (candidates, sectors)
}

/// One sector with a row for every cell of every table.
fn dense(columns: &[Column], wanted: &[Wanted], candidates: &[Candidate], relation: Relation, known: bool) -> Sector {
    let pairs: Vec<[usize; 2]> = candidates
        .iter()
        .filter_map(|candidate| if let Candidate::Table(places) = candidate { places.as_slice().try_into().ok() } else { None })
        .collect();
    let design = Design::new(columns.iter().map(|column| column.cells).collect(), &pairs, known.then_some(1.0)).unwrap();
    let outer = |places: &[usize]| {
        let mut sum = DMatrix::<f64>::zeros(design.parameters(), design.parameters());
        for cell in 0..design.cells(places) {
            let mut vector = nalgebra::DVector::<f64>::zeros(design.parameters());
            design.cell(places, cell).unwrap().coefficients().for_each(|(k, value)| vector[k] += value);
            sum += &vector * vector.transpose();
        }
        sum
    };
    let mut weight = DMatrix::<f64>::zeros(design.parameters(), design.parameters());
    for Wanted { output, importance } in wanted {
        let Output::Table(places) = output else { panic!() };
        weight += outer(places) * (importance / design.cells(places) as f64);
    }
    let information = candidates.iter().enumerate().map(|(place, candidate)| {
        let Candidate::Table(places) = candidate else { panic!() };
        (place, outer(places) / candidate.kind().cost(relation))
    });
    Sector { weight, information: information.collect() }
}

/// Tables over several columns, with n known or not: objective, slopes and best shares are those of the dense system.
#[test]
fn sectors_are_the_dense_system() {
    let columns = [level(3), level(4), NUMBER, level(2)];
    let wanted = [table(&[0, 1], 1.0), table(&[2, 1], 3.0), table(&[3], 0.5), table(&[3, 0], 1.0)];
    for (relation, known) in [(Relation::ReplaceOne, true), (Relation::ReplaceOne, false), (Relation::AddRemove, false)] {
        let (candidates, sectors) = sectors_of(&columns, &wanted, relation, known);
        let dense = [dense(&columns, &wanted, &candidates, relation, known)];
        let mut some: Vec<f64> = (0..candidates.len()).map(|k| 1.0 + (k * k % 5) as f64).collect();
        normalise(&mut some);
        let ((small, slopes), (large, others)) = (objective(&sectors, &some, true).unwrap(), objective(&dense, &some, true).unwrap());
        assert!((small / large - 1.0).abs() < 1e-10, "{small} {large}");
        assert!(slopes.iter().zip(&others).all(|(a, b)| (a / b - 1.0).abs() < 1e-8), "{slopes:?} {others:?}");
        let ((mine, value), (theirs, other)) = (shares(&sectors, candidates.len()).unwrap(), shares(&dense, candidates.len()).unwrap());
        assert!((value / other - 1.0).abs() < 1e-9 && mine.iter().zip(&theirs).all(|(a, b)| (a - b).abs() < 1e-7), "{mine:?} {theirs:?}");
    }
}

/// A ladder with two levels, alone and by group: the objective is that of a dense system over all finest cells.
#[test]
fn a_ladder_s_sectors_are_the_dense_system() {
    let (splits, quantiles, groups) = (vec![2, 3], vec![0.25, 0.5], 3);
    for by in [None, Some(0)] {
        let columns = [level(groups), NUMBER];
        let ladder = Output::Ladder { column: 1, by, splits: splits.clone(), quantiles: quantiles.clone() };
        let wanted = [Wanted { output: ladder, importance: 2.0 }, table(&[1], 1.0)];
        let (candidates, sectors) = sectors_of(&columns, &wanted, Relation::ReplaceOne, false);
        let mut some: Vec<f64> = (0..candidates.len()).map(|k| 1.0 + k as f64).collect();
        normalise(&mut some);
        let (found, slopes) = objective(&sectors, &some, true).unwrap();

        // Finest cells of each group: below, 3 bins of 6, above, missing, invalid.
        let (rows, width) = (by.map_or(1, |_| groups), 22);
        let size = rows * width;
        let bin_of = |cell: usize| {
            if cell == 0 {
                0
            } else if cell < 19 {
                1 + (cell - 1) / 6
            } else {
                cell - 15
            }
        };
        let outer = |holds: &dyn Fn(usize, usize) -> bool| {
            let vector = nalgebra::DVector::<f64>::from_fn(size, |k, _| f64::from(u8::from(holds(k / width, k % width))));
            &vector * vector.transpose()
        };
        let information: Vec<(usize, DMatrix<f64>)> = candidates
            .iter()
            .enumerate()
            .map(|(place, candidate)| {
                let mut sum = DMatrix::<f64>::zeros(size, size);
                match candidate {
                    Candidate::Table(places) if places == &[1] => (0..7).for_each(|bin| sum += outer(&|_, cell| bin_of(cell) == bin)),
                    Candidate::Table(_) => {
                        (0..rows).for_each(|row| (0..7).for_each(|bin| sum += outer(&|r, cell| r == row && bin_of(cell) == bin)));
                    }
                    Candidate::Level { level, .. } => {
                        let each = if *level == 0 { 3 } else { 1 };
                        for (row, k) in (0..rows).flat_map(|row| (0..18 / each).map(move |k| (row, k))) {
                            sum += outer(&|r, cell| r == row && (1..19).contains(&cell) && (cell - 1) / each == k);
                        }
                    }
                    Candidate::Moment { .. } => panic!(),
                }
                (place, sum / 2.0)
            })
            .collect();
        let mut weight = DMatrix::<f64>::zeros(size, size);
        for (row, k, p) in (0..rows).flat_map(|row| (0..=18).flat_map(move |k| [0.25, 0.5].map(|p| (row, k, p)))) {
            let vector = nalgebra::DVector::<f64>::from_fn(size, |place, _| match place % width {
                cell if place / width != row || cell > 19 => 0.0,
                cell if cell <= k => 1.0 - p,
                _ => -p,
            });
            weight += &vector * vector.transpose() * (2.0 / (rows * 19 * 2) as f64);
        }
        (0..7).for_each(|bin| weight += outer(&|_, cell| bin_of(cell) == bin) / 7.0);
        // The group's own table says nothing more where there is one group.
        let (value, others) = objective(&[Sector { weight, information }], &some, true).unwrap();
        assert!((found / value - 1.0).abs() < 1e-9, "{by:?}: {found} {value}");
        assert!(slopes.iter().zip(&others).all(|(a, b)| (a - b).abs() < 1e-8 * b.abs().max(1e-3)), "{by:?}: {slopes:?} {others:?}");
    }
}

/// At the best shares −∂φ/∂p is the same for all that are left, and not larger for the others (Kiefer & Wolfowitz 1960).
#[test]
fn best_shares_meet_the_equivalence_theorem() {
    let columns = [level(5), level(6), NUMBER];
    let ladder = Output::Ladder { column: 2, by: Some(1), splits: vec![4, 2], quantiles: vec![0.5] };
    let wanted = [
        table(&[0, 1], 1.0),
        Wanted { output: ladder, importance: 1.0 },
        Wanted { output: Output::Moment, importance: 16.0 },
        Wanted { output: Output::Moment, importance: 1.0 },
    ];
    let (candidates, sectors) = sectors_of(&columns, &wanted, Relation::AddRemove, true);
    let (best, value) = shares(&sectors, candidates.len()).unwrap();
    let (_, slopes) = objective(&sectors, &best, true).unwrap();
    for (share, slope) in best.iter().zip(&slopes) {
        assert!(*slope < value * 1.02, "{best:?} {slopes:?} {value}");
        assert!(*share == 0.0 || (slope / value - 1.0).abs() < 0.02, "{best:?} {slopes:?} {value}");
    }
    let plan = plan(&columns, &wanted, Relation::AddRemove, true).unwrap();
    assert_eq!(plan.objective.to_bits(), value.to_bits());
    let costs: Vec<f64> = plan.blocks.iter().map(|(block, _)| block.kind().cost(Relation::AddRemove)).collect();
    assert!((crate::blocks::mu_of(&costs, &plan.sds(0.3)) / 0.3 - 1.0).abs() < 1e-12);
}

#[test]
fn what_cannot_be_planned_is_refused() {
    let columns = [level(3), NUMBER];
    let ladder = |column, splits| Wanted { output: Output::Ladder { column, by: None, splits, quantiles: vec![0.5] }, importance: 1.0 };
    for wanted in [
        vec![],
        vec![table(&[2], 1.0)],
        vec![table(&[0, 0], 1.0)],
        vec![table(&[0], 0.0)],
        vec![ladder(0, vec![2])],
        vec![ladder(1, vec![1])],
    ] {
        assert!(plan(&columns, &wanted, Relation::ReplaceOne, true).is_err(), "{wanted:?}");
    }
}

/// Hundreds of blocks have shares far below 0.005 each, and an item of next to no importance has a block of which nothing else tells: neither is dropped.
#[test]
fn a_block_that_alone_says_something_is_kept() {
    let columns: Vec<Column> = (0..=300).map(|_| level(5)).collect();
    let wanted: Vec<Wanted> = (1..=300).map(|place| table(&[0, place], 1.0)).collect();
    let found = plan(&columns, &wanted, Relation::ReplaceOne, true).unwrap();
    let has = |wanted: &[usize]| found.blocks.iter().any(|(block, _)| *block == Candidate::Table(wanted.to_vec()));
    assert!((1..=300).all(|place| has(&[0, place])));
    let moment = Wanted { output: Output::Moment, importance: 1e-8 };
    let found = plan(&columns[..2], &[table(&[0, 1], 1.0), moment], Relation::ReplaceOne, true).unwrap();
    let share = found.blocks.iter().find(|(block, _)| *block == Candidate::Moment { item: 1 }).unwrap().1;
    assert!(share > 0.0 && share < 0.001, "{share}");
}
