//! Intervals cover: data sets of a known law, noise as a task would have it, and how often the truth is inside.
//! Draws are seeded: the figures are the same in every run.
#![allow(clippy::unwrap_used, clippy::cast_precision_loss, clippy::print_stdout)]

use dp_pvi_accounting::{Delta, Epsilon, Relation};
use dp_pvi_describe::blocks;
use dp_pvi_describe::encode::pair;
use dp_pvi_describe::intervals::{Interval, Level, count, share};
use dp_pvi_describe::ladder::{Fine, Level as Rung, Upward};
use dp_pvi_describe::least_squares::{Design, Observation};
use dp_pvi_describe::moments::{Difference, Spread, Sums};
use dp_pvi_describe::planner::{Candidate, Column, Output, Wanted, plan};
use dp_pvi_describe::price;
use dp_pvi_describe::quantiles::{Grid, Place};
use dp_pvi_describe::survival::{Counts, life_table, restricted_mean};
use dp_pvi_math::draws::Draws;
use nalgebra::DMatrix;

const LEVEL: Level = Level::NINETY_FIVE;
const TABLES: [&[usize]; 5] = [&[0], &[1], &[2], &[0, 1], &[1, 2]];

fn mu(epsilon: f64) -> f64 {
    price::mu(Epsilon::new(epsilon).unwrap(), Delta::new(1e-5).unwrap()).unwrap()
}

/// How often something held.
#[derive(Default)]
struct Share(u32, u32);

impl Share {
    fn see(&mut self, holds: bool) {
        self.0 += u32::from(holds);
        self.1 += 1;
    }

    fn within(&self, what: &str, least: f64, most: f64) {
        let share = f64::from(self.0) / f64::from(self.1);
        println!("{what}: {share:.4} of {}", self.1);
        assert!((least..=most).contains(&share), "{what}: {share} of {}", self.1);
    }
}

fn holds(interval: Interval, truth: f64) -> bool {
    interval.lower <= truth && truth <= interval.upper
}

/// A cell by these weights.
fn cell(draws: &mut Draws, weights: &[f64]) -> usize {
    let mut left = draws.uniform() * weights.iter().sum::<f64>();
    weights
        .iter()
        .position(|weight| {
            left -= weight;
            left < 0.0
        })
        .unwrap_or(weights.len() - 1)
}

/// Tables over three columns and two pairs at the planner's shares: counts of these records, margins and cells of pairs, and shares of the population.
#[test]
fn counts_and_shares_cover() {
    let sizes = [4, 3, 5];
    let columns = sizes.map(|cells| Column { cells, is_number: false });
    let wanted: Vec<Wanted> = TABLES.iter().map(|table| Wanted { output: Output::Table(table.to_vec()), importance: 1.0 }).collect();
    for (n, epsilon, seed) in [(500usize, 0.1, 1u8), (500, 1.0, 2), (5_000, 0.1, 3), (5_000, 1.0, 4)] {
        let plan = plan(&columns, &wanted, Relation::ReplaceOne, true).unwrap();
        let sds = plan.sds(mu(epsilon));
        let design = Design::new(sizes.to_vec(), &[[0, 1], [1, 2]], Some(n as f64)).unwrap();
        let mut draws = Draws::of(&[seed]);
        let (mut of_margins, mut of_pairs, mut of_shares) = (Share::default(), Share::default(), Share::default());
        // Levels of the second column depend on the first one, those of the third on the second; some cells are rare.
        let first = [0.5, 0.3, 0.19, 0.01];
        let second = |a: usize| [0.7 - 0.1 * a as f64, 0.25, 0.05 + 0.1 * a as f64];
        let third = |b: usize| [0.3, 0.3 - 0.1 * b as f64, 0.2 + 0.1 * b as f64, 0.195, 0.005];
        let likely = |a: usize| first[a];
        for _ in 0..500 {
            let mut truth: Vec<Vec<f64>> = TABLES.iter().map(|table| vec![0.0; design.cells(table)]).collect();
            for _ in 0..n {
                let a = cell(&mut draws, &first);
                let b = cell(&mut draws, &second(a));
                let record = [a, b, cell(&mut draws, &third(b))];
                for (table, truth) in TABLES.iter().zip(&mut truth) {
                    truth[table.iter().fold(0, |index, column| index * sizes[*column] + record[*column])] += 1.0;
                }
            }
            let observed = |((block, _), sd): (&(Candidate, f64), &f64)| {
                let Candidate::Table(table) = block else { panic!() };
                let place = TABLES.iter().position(|known| known == table).unwrap();
                (table.clone(), place, *sd)
            };
            let blocks: Vec<_> = plan.blocks.iter().zip(&sds).map(observed).collect();
            let observations: Vec<Observation> = blocks
                .into_iter()
                .map(|(table, place, sd)| {
                    let values = truth[place].iter().map(|x| x + sd * draws.normal()).collect();
                    Observation::of_table(table, values, sd)
                })
                .collect();
            let solution = design.solve(&observations).unwrap();
            for (table, truth) in TABLES.iter().zip(&truth) {
                let found = solution.table(table).unwrap();
                for ((estimate, sd), truth) in found.estimate.iter().zip(&found.sd).zip(truth) {
                    let kind = if table.len() == 1 { &mut of_margins } else { &mut of_pairs };
                    kind.see(holds(count(*estimate, *sd, n as f64, LEVEL), *truth));
                }
            }
            let found = solution.table(&[0]).unwrap();
            (0..4).for_each(|a| of_shares.see(holds(share(found.estimate[a], found.sd[a], n as f64, LEVEL), likely(a))));
        }
        of_margins.within("margins", 0.935, 0.995);
        of_pairs.within("cells of pairs", 0.94, 0.995);
        of_shares.within("shares of the population", 0.935, 0.995);
    }
}

/// Values of a number between 0 and 80: two humps.
fn value(draws: &mut Draws) -> f64 {
    let centre = if draws.uniform() < 0.6 { 25.0 } else { 55.0 };
    (centre + 9.0 * draws.normal()).clamp(0.0, 80.0)
}

/// Bins and two levels of a ladder with n known, before and after a second round: quantiles of these records and of the population.
#[test]
fn quantiles_cover() {
    let (bins, splits, n) = (8usize, [4usize, 2], 2_000usize);
    let cells = 64;
    let edges: Vec<f64> = (0..=cells).map(|k| 80.0 * f64::from(k) / 64.0).collect();
    let asked = [0.1, 0.25, 0.5, 0.75, 0.9];
    let mut draws = Draws::of(&[11]);
    let reference: Vec<f64> = {
        let mut many: Vec<f64> = (0..400_000).map(|_| value(&mut draws)).collect();
        many.sort_by(f64::total_cmp);
        asked.map(|p| many[(p * 400_000.0) as usize]).to_vec()
    };
    for epsilon in [0.3, 1.0] {
        // Three blocks of cells with equal shares of 0.6 of μ², and 0.4 for the second round.
        let sd = (2.0 * 3.0 / 0.6f64).sqrt() / mu(epsilon);
        let second = (2.0 / 0.4f64).sqrt() / mu(epsilon);
        let [mut records, mut population, mut refined, mut together] = std::array::from_fn(|_| Share::default());
        for _ in 0..400 {
            let mut values: Vec<f64> = (0..n).map(|_| value(&mut draws)).collect();
            values.sort_by(f64::total_cmp);
            let mut fine = vec![0.0; 64];
            values.iter().for_each(|v| fine[((v / 1.25).ceil() as usize).clamp(1, 64) - 1] += 1.0);
            let mut noised =
                |size: usize, sd: f64| fine.chunks(size).map(|part| part.iter().sum::<f64>() + sd * draws.normal()).collect::<Vec<f64>>();
            let own = noised(8, sd);
            let rungs = [
                Rung { split: splits[0], values: noised(2, sd), variance: sd * sd },
                Rung { split: splits[1], values: noised(1, sd), variance: sd * sd },
            ];
            let upward = Upward::of(bins, &rungs).unwrap();
            let (sums, variance) = upward.bins().unwrap();
            let design = Design::new(vec![bins], &[], Some(n as f64)).unwrap();
            let observations = [Observation::of_table(vec![0], own, sd), Observation::of_table(vec![0], sums, variance.sqrt())];
            let solution = design.solve(&observations).unwrap();
            let estimate: Fine = upward.down(&solution.table(&[0]).unwrap().estimate, solution.table_covariance(&[0]).unwrap(), &[true; 8]);
            let grid = Grid::new(edges.clone(), &estimate, [false; 2]).unwrap();
            let first: Vec<Place> = asked.iter().map(|p| grid.quantile(*p, LEVEL).value).collect();
            let groups = grid.groups(&grid.cuts(&first));
            let mut start = 0;
            let again: Vec<f64> = groups
                .iter()
                .map(|end| {
                    let sum: f64 = fine[start..*end].iter().sum();
                    start = *end;
                    sum + second * draws.normal()
                })
                .collect();
            let after = Grid::new(edges.clone(), &estimate.refined(&groups, &again, second * second).unwrap(), [false; 2]).unwrap();
            let inside = |quantile: dp_pvi_describe::quantiles::Quantile, truth: f64| {
                let (Place::At(lower), Place::At(upper)) = (quantile.lower, quantile.upper) else { panic!() };
                lower <= truth && truth <= upper
            };
            let mut all = true;
            for (p, of_law) in asked.iter().zip(&reference) {
                let truth = values[((p * n as f64).ceil() as usize).clamp(1, n) - 1];
                records.see(inside(grid.quantile(*p, LEVEL), truth));
                population.see(inside(grid.quantile_of_population(*p, LEVEL), *of_law));
                refined.see(inside(after.quantile(*p, LEVEL), truth));
                all &= inside(grid.quantile(*p, LEVEL.of_each(asked.len())), truth);
            }
            together.see(all);
        }
        records.within("quantiles of these records", 0.945, 1.0);
        population.within("quantiles of the population", 0.945, 1.0);
        refined.within("quantiles after the second round", 0.945, 1.0);
        together.within("five quantiles together", 0.945, 1.0);
    }
}

/// Pairs of sums with a noised count, in two groups: means, standard deviations, standardised differences.
#[test]
fn means_spreads_and_differences_cover() {
    let range = Interval { lower: 0.0, upper: 80.0 };
    let mut draws = Draws::of(&[21]);
    for (n, epsilon) in [(1_000usize, 0.5), (5_000, 0.1), (5_000, 1.0)] {
        // A pair and a count block at equal shares.
        let [pair_sd, count_sd] = [1.0, 2.0f64].map(|cost| (2.0 * cost).sqrt() / mu(epsilon));
        let [mut means, mut spreads, mut of_population, mut differences] = std::array::from_fn(|_| Share::default());
        for _ in 0..1_000 {
            let mut group = |shift: f64, n: usize| {
                let values: Vec<f64> = (0..n).map(|_| (30.0 + shift + 12.0 * draws.normal()).clamp(0.0, 80.0)).collect();
                let mean = values.iter().sum::<f64>() / n as f64;
                let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
                let coded = values.iter().map(|v| pair((v - 40.0) / 80.0)).fold([0.0; 2], |sum, pair| [sum[0] + pair[0], sum[1] + pair[1]]);
                let sums = Sums {
                    first: coded[0] + pair_sd * draws.normal(),
                    second: coded[1] + pair_sd * draws.normal(),
                    sd: pair_sd,
                    count: n as f64 + count_sd * draws.normal(),
                    count_variance: count_sd * count_sd,
                };
                (sums, mean, variance)
            };
            let ((first, mean, variance), (second, other, of_other)) = (group(0.0, n), group(4.0, n / 2));
            let spread = Spread::of(&first, range, 3.0, LEVEL);
            means.see(holds(spread.mean_interval, mean));
            spreads.see(holds(spread.sd_interval, variance.sqrt()));
            // The cut at 0 and 80 moves the mean of the law by 0.004.
            of_population.see(holds(spread.mean_interval_population, 30.004));
            if let Some(found) = Difference::of(&[first, second]) {
                let truth = (other - mean) / (0.5 * (variance + of_other)).sqrt();
                differences.see((found.estimate - truth).abs() <= LEVEL.z() * found.sd);
            }
        }
        means.within("means", 0.92, 0.985);
        spreads.within("standard deviations", 0.92, 0.995);
        of_population.within("means of the population", 0.92, 0.985);
        differences.within("standardised differences", 0.92, 1.0);
    }
}

/// One noised survival table: survival at each cut and the restricted mean, of these records and of the population.
#[test]
fn life_tables_cover() {
    let cuts = vec![0.0, 90.0, 180.0, 365.0];
    let mut draws = Draws::of(&[31]);
    for (n, epsilon) in [(5_000usize, 0.1), (5_000, 1.0), (50_000, 0.5)] {
        let sd = 2f64.sqrt() / mu(epsilon);
        let covariance = DMatrix::identity(7, 7) * (sd * sd);
        let estimate = |truth: &[f64; 7]| Counts {
            cuts: cuts.clone(),
            events: truth[..3].to_vec(),
            censored: truth[3..6].to_vec(),
            beyond: truth[6],
            covariance: covariance.clone(),
        };
        let [mut records, mut population, mut areas] = std::array::from_fn(|_| Share::default());
        for _ in 0..600 {
            let mut truth = [0.0; 7];
            for _ in 0..n {
                // Exponential with a mean of 600 days; a third is censored uniformly in two years, in the middle of an interval on the average.
                let (time, end) = (-600.0 * draws.uniform().ln(), if draws.uniform() < 0.33 { 730.0 * draws.uniform() } else { 1e9 });
                let (seen, event) = (time.min(end), time <= end);
                let interval = cuts[1..].iter().position(|cut| seen <= *cut);
                truth[interval.map_or(6, |j| if event { j } else { 3 + j })] += 1.0;
            }
            let exact = life_table(&estimate(&truth), LEVEL);
            let found = life_table(&estimate(&truth.map(|x| x + sd * draws.normal())), LEVEL);
            for (j, (exact, found)) in exact.iter().zip(&found).enumerate() {
                records.see(holds(found.interval, exact.survival));
                population.see(holds(found.interval_population, (-cuts[j + 1] / 600.0).exp()));
            }
            if found.len() == 3 {
                let of = |rows: &[dp_pvi_describe::survival::Row]| rows.iter().map(|row| row.survival).collect::<Vec<_>>();
                let ((area, gradient), (truth, _)) = (restricted_mean(&cuts, &of(&found)), restricted_mean(&cuts, &of(&exact)));
                let along: Vec<f64> = (0..7).map(|cell| found.iter().zip(&gradient).map(|(row, g)| g * row.gradient[cell]).sum()).collect();
                let noise = along.iter().map(|g| g * g).sum::<f64>().sqrt() * sd;
                areas.see((area - truth).abs() <= LEVEL.z() * noise);
            }
        }
        records.within("survival of these records", 0.925, 1.0);
        population.within("survival of the population", 0.925, 1.0);
        areas.within("restricted means", 0.92, 0.985);
    }
}

/// Weights of the planner cost what was asked for: blocks of a whole look, under both relations.
#[test]
fn a_plan_s_noise_spends_mu() {
    let columns = [Column { cells: 14, is_number: true }, Column { cells: 5, is_number: false }];
    let ladder = Output::Ladder { column: 0, by: Some(1), splits: vec![4], quantiles: vec![0.5] };
    let wanted = [
        Wanted { output: Output::Table(vec![1, 0]), importance: 1.0 },
        Wanted { output: ladder, importance: 1.0 },
        Wanted { output: Output::Moment, importance: 16.0 },
    ];
    for relation in [Relation::AddRemove, Relation::ReplaceOne] {
        let plan = plan(&columns, &wanted, relation, false).unwrap();
        let costs: Vec<f64> = plan.blocks.iter().map(|(block, _)| block.kind().cost(relation)).collect();
        assert!((blocks::mu_of(&costs, &plan.sds(mu(0.5))) / mu(0.5) - 1.0).abs() < 1e-12);
    }
}
