//! `look.json`: what tables, quantiles, moments, life tables and averages must give.
//!
//! Its cases have a kind each. One line for every kind: `KIND ok`, `KIND not covered` for what the engine does not have yet, or `FAIL KIND: …`. A kind that is not in the list fails.

use dp_pvi_accounting::{ClipNorm, Delta, Epsilon, Gdp, LatticePath, NoiseMultiplier, Relation};
use dp_pvi_describe::blocks::{self, Block, Kind, Weights};
use dp_pvi_describe::encode::{Column, Item, Layout, PerPerson, Value};
use dp_pvi_describe::intervals::{self, Interval, Level, Ratio};
use dp_pvi_describe::ladder::{self, Fine, Upward};
use dp_pvi_describe::least_squares::{Design, Observation, Solution};
use dp_pvi_describe::moments::{Difference, Spread, Sums};
use dp_pvi_describe::planner::{self, Output, Wanted};
use dp_pvi_describe::quantiles::{Grid, Place, Quantile};
use dp_pvi_describe::survival::{self, Counts};
use dp_pvi_describe::{price, shown, sites};
use dp_pvi_privacy::mechanism::LatticeSum;
use nalgebra::DMatrix;

use super::read::{Node, Outcome, message};

/// A check of one case: its input, what is expected, and the tolerance.
type Check = fn(&Node<'_>, &Node<'_>, f64) -> Outcome;

/// Every kind of the file, in its order; those without a check are not covered.
const KINDS: &[(&str, Option<Check>)] = &[
    ("mu", Some(mu)),
    ("block-weights", Some(block_weights)),
    ("accuracy-to-price", Some(accuracy_to_price)),
    ("lattice-weights", Some(lattice_weights)),
    ("encode", Some(encode)),
    ("encode-person", Some(encode)),
    ("sensitivity", Some(sensitivity)),
    ("optimal-weights", Some(optimal_weights)),
    ("gls", Some(gls)),
    ("ladder", Some(ladder)),
    ("simplex-projection", Some(simplex_projection)),
    ("transport-projection", Some(transport_projection)),
    ("count-interval", Some(count_interval)),
    ("share-interval", Some(share_interval)),
    ("delta-method", Some(delta_method)),
    ("refine", Some(refine)),
    ("mean-sd", Some(mean_sd)),
    ("ratio-interval", Some(ratio_interval)),
    ("balance", Some(balance)),
    ("life-table", Some(life_table)),
    ("restricted-mean", Some(restricted_mean)),
    ("sum-of-sites", Some(sum_of_sites)),
    ("merge-of-releases", Some(merge_of_releases)),
    ("describe-end-to-end", Some(describe_end_to_end)),
    ("hold-out-id", None),
    ("hold-out-content", None),
    ("price-of-parts", None),
    ("g-computation-logistic", None),
    ("g-computation-poisson", None),
    ("g-computation-survival", None),
    ("average-interval", None),
    ("metric-units", None),
    ("auc", None),
    ("net-benefit", None),
    ("ranked-probability", None),
    ("residual", None),
    ("concordance", None),
    ("observed-expected", None),
    ("average-end-to-end", None),
];

/// Whether a file is one of these.
pub(crate) fn is_this(root: &Node<'_>) -> Result<bool, String> {
    Ok(root.fields()?.iter().any(|field| field.name() == "cases"))
}

/// Prints a line for every kind and returns the number of failures.
pub(crate) fn run(root: &Node<'_>) -> Result<usize, String> {
    let cases = root.get("cases")?.list()?;
    let mut kinds: Vec<&str> = Vec::new();
    for case in &cases {
        let kind = case.get("kind")?.text()?;
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    let mut failures = 0;
    for kind in kinds {
        let verdict = match KINDS.iter().find(|(name, _)| *name == kind) {
            None => Err("no such kind is known: this checker, or the file, is of another version".to_owned()),
            Some((_, None)) => Ok("not covered"),
            Some((_, Some(check))) => {
                let mut mine = cases.iter().filter(|case| case.get("kind").and_then(|of| of.text()) == Ok(kind));
                mine.try_for_each(|case| of_case(case, *check)).map(|()| "ok")
            }
        };
        match verdict {
            Ok(line) => println!("{kind} {line}"),
            Err(why) => {
                println!("FAIL {kind}: {why}");
                failures += 1;
            }
        }
    }
    Ok(failures)
}

fn of_case(case: &Node<'_>, check: Check) -> Outcome {
    let id = case.get("id")?.text()?;
    let checked = check(&case.get("input")?, &case.get("expect")?, case.get("tolerance")?.number()?);
    checked.map_err(|why| format!("{id}: {why}"))
}

/// A number under a key.
fn number(of: &Node<'_>, key: &str) -> Result<f64, String> {
    of.get(key)?.number()
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small whole numbers of the file")]
fn whole(x: f64) -> usize {
    x as usize
}

fn wholes(of: &Node<'_>, key: &str) -> Result<Vec<usize>, String> {
    Ok(of.at(key)?.into_iter().map(whole).collect())
}

fn relation(of: &Node<'_>) -> Result<Relation, String> {
    match of.get("relation")?.text()? {
        "replace-one" => Ok(Relation::ReplaceOne),
        "add-remove" => Ok(Relation::AddRemove),
        other => Err(format!("no relation {other}")),
    }
}

fn kind(text: &str) -> Result<Kind, String> {
    match text {
        "onehot" | "cells" => Ok(Kind::Cells),
        "moment" | "signed" => Ok(Kind::Signed),
        other => Err(format!("no kind of block {other}")),
    }
}

fn square(of: &Node<'_>, key: &str) -> Result<DMatrix<f64>, String> {
    let rows = of.get(key)?.rows()?;
    let width = rows.first().map_or(0, Vec::len);
    Ok(DMatrix::from_row_slice(rows.len(), width, &rows.concat()))
}

fn level(of: &Node<'_>) -> Result<Level, String> {
    Level::new(number(of, "level")?).ok_or_else(|| "no level".to_owned())
}

fn ends(interval: Interval) -> [f64; 2] {
    [interval.lower, interval.upper]
}

fn mu(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let epsilon = Epsilon::new(number(input, "epsilon")?).map_err(message)?;
    let delta = Delta::new(number(input, "delta")?).map_err(message)?;
    let mu = price::mu(epsilon, delta).map_err(message)?;
    expect.key_equals("mu", [mu], tolerance)?;
    expect.key_equals("sigma_over_sensitivity", [1.0 / mu], tolerance)?;
    expect.key_equals("delta_back", [Gdp::of_ratio(mu).delta(epsilon)], 1e-12)
}

fn block_weights(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let (relation, blocks) = (relation(input)?, input.get("blocks")?.list()?);
    let kinds = blocks.iter().map(|block| kind(block.get("kind")?.text()?)).collect::<Result<Vec<_>, _>>()?;
    let costs: Vec<f64> = kinds.iter().map(|kind| kind.cost(relation)).collect();
    let importances = blocks.iter().map(|block| number(block, "importance")).collect::<Result<Vec<_>, _>>()?;
    let epsilon = Epsilon::new(number(input, "epsilon")?).map_err(message)?;
    let mu = price::mu(epsilon, Delta::new(number(input, "delta")?).map_err(message)?).map_err(message)?;
    let sds = blocks::by_importance(&costs, &importances, mu);
    expect.key_equals("costs", &costs, tolerance)?;
    expect.key_equals("sigmas", &sds, tolerance)?;
    expect.key_equals("spent", [blocks::mu_of(&costs, &sds)], tolerance)
}

fn accuracy_to_price(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    expect.key_equals("mu", [blocks::mu_of(&input.at("costs")?, &input.at("wanted_sd")?)], tolerance)
}

#[allow(clippy::cast_precision_loss, reason = "numbers of the file")]
fn lattice_weights(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let relation = relation(input)?;
    let kinds = input.get("kinds")?.list()?;
    // The case does not say how many coordinates its signed block has. Its largest size has 1 for √d/2: that of two pairs.
    let block = |of: &Node<'_>| Ok::<_, String>(Block { kind: kind(of.text()?)?, size: 4 });
    let blocks = kinds.iter().map(block).collect::<Result<Vec<_>, _>>()?;
    let weights = Weights::new(relation, &blocks, &input.at("sigmas")?, number(input, "mu")?).map_err(message)?;
    expect.key_equals("weights", &weights.relative, tolerance)?;
    expect.key_equals("clip_norm", [weights.clip.get()], tolerance)?;
    expect.key_equals("noise_multiplier", [weights.noise.get()], tolerance)?;
    let whole = |x: u128| [x as f64];
    expect.key_equals("exponent", [f64::from(weights.exponent)], 0.0)?;
    expect.key_equals("scale", whole(weights.scale.into()), 0.0)?;
    expect.key_equals("steps", weights.steps.iter().map(|steps| *steps as f64).collect::<Vec<_>>(), 0.0)?;
    expect.key_equals("term_squared", whole(weights.largest), 0.0)?;
    expect.key_equals("bound_squared", whole(weights.bound_squared), 0.0)?;
    expect.key_equals("noise_sd_in_records", (0..blocks.len()).map(|block| weights.sd(block)).collect::<Vec<_>>(), tolerance)?;
    gate_agrees(relation, &blocks, &weights)
}

/// The gate's own mechanism has this lattice and this bound.
fn gate_agrees(relation: Relation, blocks: &[Block], weights: &Weights) -> Outcome {
    let dimension = blocks.iter().map(|block| block.size).sum();
    let (clip, noise): (ClipNorm, NoiseMultiplier) = (weights.clip, weights.noise);
    let sum = LatticeSum::new(dimension, clip, noise, None, blocks::terms(relation, blocks), LatticePath::Term).map_err(message)?;
    let dp_pvi_accounting::DpEvent::DiscreteGaussian(event) = sum.event() else { return Err("another event".into()) };
    let same = (event.exponent, event.scale, event.bound_squared) == (weights.exponent, weights.scale, weights.bound_squared);
    if same { Ok(()) } else { Err(format!("the gate has {event:?}")) }
}

/// A schema of the file, and the values of its records.
struct Schema<'a> {
    names: Vec<String>,
    columns: Vec<Column>,
    levels: Vec<Vec<&'a str>>,
}

impl<'a> Schema<'a> {
    fn of(input: &Node<'a>) -> Result<Self, String> {
        let (mut names, mut columns, mut levels) = (Vec::new(), Vec::new(), Vec::new());
        for column in input.get("schema")?.fields()? {
            names.push(column.name().to_owned());
            let mut known = Vec::new();
            columns.push(match column.get("kind")?.text()? {
                "number" => {
                    Column::Number { lower: number(&column, "lower")?, upper: number(&column, "upper")?, edges: column.at("bins")? }
                }
                "boolean" => Column::Levels(2),
                "survival" => Column::Survival(column.at("cuts")?),
                _ => {
                    known = column.get("values")?.list()?.iter().map(Node::text).collect::<Result<_, _>>()?;
                    Column::Levels(u32::try_from(known.len()).map_err(message)?)
                }
            });
            levels.push(known);
        }
        Ok(Self { names, columns, levels })
    }

    fn place(&self, name: &str) -> Result<usize, String> {
        self.names.iter().position(|known| known == name).ok_or_else(|| format!("no column {name}"))
    }

    fn layout(&self, input: &Node<'_>) -> Result<Layout, String> {
        let mut items = Vec::new();
        for item in input.get("items")?.list()? {
            let by = item.get("by").ok().map(|by| self.place(by.text()?)).transpose()?;
            items.push(match item.get("kind")?.text()? {
                "cells" => Item::Table(item.get("columns")?.list()?.iter().map(|name| self.place(name.text()?)).collect::<Result<_, _>>()?),
                "ladder" => {
                    let splits = item.at("splits")?.into_iter().map(|split| u32::try_from(whole(split)).map_err(message));
                    Item::Ladder { column: self.place(item.get("column")?.text()?)?, by, splits: splits.collect::<Result<_, _>>()? }
                }
                _ => Item::Moment { column: self.place(item.get("column")?.text()?)?, by },
            });
        }
        Layout::new(self.columns.clone(), &items).map_err(message)
    }

    fn value(&self, place: usize, of: &Node<'_>) -> Result<Value, String> {
        if of.is_null() {
            return Ok(Value::Missing);
        }
        if let Ok(text) = of.text() {
            let level = self.levels[place].iter().position(|level| *level == text);
            return Ok(level.map_or(Value::Invalid, |level| Value::Level(u32::try_from(level).unwrap_or(u32::MAX))));
        }
        if let Ok(flag) = of.flag() {
            return Ok(Value::Level(u32::from(flag)));
        }
        match of.list() {
            Ok(time) => Ok(Value::Time { time: time[0].number()?, event: time[1].flag()? }),
            Err(_) => Ok(Value::Number(of.number()?)),
        }
    }

    fn records(&self, unit: &Node<'_>) -> Result<Vec<Vec<Value>>, String> {
        let record = |record: &Node<'_>| self.names.iter().enumerate().map(|(place, name)| self.value(place, &record.get(name)?)).collect();
        unit.list()?.iter().map(record).collect()
    }
}

fn encode(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let schema = Schema::of(input)?;
    let layout = schema.layout(input)?;
    if expect.get("dimension").is_ok() {
        expect.key_equals("dimension", [f64::from(layout.dimension())], 0.0)?;
    }
    let entries = layout.unit(&schema.records(&input.get("unit")?)?, PerPerson::Mean);
    expect.key_equals("entries", entries.iter().flat_map(|(place, entry)| [f64::from(*place), *entry]).collect::<Vec<_>>(), tolerance)
}

fn sensitivity(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let schema = Schema::of(input)?;
    let layout = schema.layout(input)?;
    let kinds: Vec<Kind> = layout.blocks().iter().map(|block| block.kind).collect();
    expect.key_equals("rule_replace_one", [blocks::sensitivity(Relation::ReplaceOne, &kinds)], tolerance)?;
    expect.key_equals("rule_add_remove", [blocks::sensitivity(Relation::AddRemove, &kinds)], tolerance)?;
    let dense = |unit: &Node<'_>| {
        let mut dense = vec![0.0; layout.dimension() as usize];
        layout.unit(&schema.records(unit)?, PerPerson::Mean).into_iter().for_each(|(place, entry)| dense[place as usize] = entry);
        Ok::<_, String>(dense)
    };
    let units = input.get("units")?.list()?.iter().map(dense).collect::<Result<Vec<_>, _>>()?;
    let distance = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt();
    let largest = units.iter().flat_map(|a| units.iter().map(|b| distance(a, b))).fold(0.0, f64::max);
    let norm = units.iter().map(|a| distance(a, &vec![0.0; a.len()])).fold(0.0, f64::max);
    expect.key_equals("largest_distance_of_these", [largest], tolerance)?;
    expect.key_equals("largest_norm_of_these", [norm], tolerance)
}

fn optimal_weights(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let columns: Vec<_> = wholes(input, "sizes")?.into_iter().map(|cells| planner::Column { cells, is_number: false }).collect();
    let of_output = |output: &Node<'_>| {
        Ok::<_, String>(Wanted { output: Output::Table(wholes(output, "attributes")?), importance: number(output, "importance")? })
    };
    let wanted = input.get("outputs")?.list()?.iter().map(of_output).collect::<Result<Vec<_>, _>>()?;
    let plan = planner::plan(&columns, &wanted, relation(input)?, input.get("total")?.text()? == "known").map_err(message)?;
    let share = |attributes: Vec<usize>| {
        plan.blocks.iter().find(|(block, _)| *block == planner::Candidate::Table(attributes.clone())).map_or(0.0, |(_, share)| *share)
    };
    let candidates = input.get("candidates")?.list()?;
    let shares = candidates
        .iter()
        .map(|candidate| Ok(share(candidate.numbers()?.into_iter().map(whole).collect())))
        .collect::<Result<Vec<_>, String>>()?;
    expect.key_equals("shares", shares, tolerance)?;
    expect.key_equals("objective_at_mu_1", [plan.objective], tolerance)
}

fn total(input: &Node<'_>, key: &str) -> Result<Option<f64>, String> {
    let total = input.get(key)?;
    if total.is_null() { Ok(None) } else { total.number().map(Some) }
}

fn gls(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let mut observations = Vec::new();
    for observation in input.get("observations")?.list()? {
        observations.push(Observation::of_table(
            wholes(&observation, "attributes")?,
            observation.at("noised")?,
            number(&observation, "sd")?,
        ));
    }
    let pairs: Vec<[usize; 2]> = observations.iter().filter_map(|of| of.columns.as_slice().try_into().ok()).collect();
    let design = Design::new(wholes(input, "sizes")?, &pairs, total(input, "total")?).map_err(message)?;
    let solution = design.solve(&observations).map_err(message)?;
    let (total, sd) = solution.total();
    expect.key_equals("total", [total], tolerance)?;
    expect.key_equals("total_sd", [sd], tolerance)?;
    for table in expect.get("tables")?.list()? {
        let found = solution.table(&wholes(&table, "attributes")?).ok_or("no such table")?;
        table.key_equals("estimate", &found.estimate, tolerance)?;
        table.key_equals("sd", &found.sd, tolerance)?;
    }
    Ok(())
}

fn place(place: Place, edges: &[f64]) -> f64 {
    match place {
        Place::At(value) => value,
        Place::Below => edges[0],
        Place::Above => edges[edges.len() - 1],
    }
}

fn interval_of(quantile: Quantile, edges: &[f64]) -> [f64; 2] {
    [place(quantile.lower, edges), place(quantile.upper, edges)]
}

/// Edges of the finest cells.
fn fine_edges(edges: &[f64], children: usize) -> Vec<f64> {
    #[allow(clippy::cast_precision_loss, reason = "a number of children")]
    let within = |two: &[f64]| (0..children).map(|k| two[0] + (two[1] - two[0]) * k as f64 / children as f64).collect::<Vec<_>>();
    edges.windows(2).flat_map(within).chain(edges.last().copied()).collect()
}

fn ladder(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let (edges, splits) = (input.at("edges")?, wholes(input, "splits")?);
    let bins = edges.len() - 1;
    let mut levels = Vec::new();
    for ((level, split), sd) in input.get("levels")?.list()?.iter().zip(&splits).zip(input.at("levels_sd")?) {
        levels.push(ladder::Level { split: *split, values: level.numbers()?, variance: sd * sd });
    }
    let upward = Upward::of(bins, &levels).map_err(message)?;
    let (sums, variance) = upward.bins().ok_or("no level")?;
    expect.key_equals("upward", &sums, tolerance)?;
    expect.key_equals("upward_variance", vec![variance; bins], tolerance)?;
    let design = Design::new(vec![bins], &[], total(input, "total")?).map_err(message)?;
    let solution = design
        .solve(&[
            Observation::of_table(vec![0], input.at("bins")?, number(input, "bins_sd")?),
            Observation::of_table(vec![0], sums, variance.sqrt()),
        ])
        .map_err(message)?;
    let table = solution.table(&[0]).ok_or("no table")?;
    expect.key_equals("bins", &table.estimate, tolerance)?;
    let fine = upward.down(&table.estimate, solution.table_covariance(&[0]).ok_or("no table")?, &vec![true; bins]);
    expect.key_equals("finest", &fine.counts, tolerance)?;
    let edges = fine_edges(&edges, splits.iter().product());
    let grid = Grid::new(edges.clone(), &fine, [false; 2]).map_err(message)?;
    cumulative(&grid, expect, tolerance)?;
    let quantiles = expect.get("quantiles")?.list()?;
    for quantile in &quantiles {
        let p = number(quantile, "p")?;
        let found = grid.quantile(p, Level::NINETY_FIVE);
        quantile.key_equals("value", [place(found.value, &edges)], tolerance)?;
        quantile.key_equals("interval", interval_of(found, &edges), tolerance)?;
        let together = grid.quantile(p, Level::NINETY_FIVE.of_each(quantiles.len()));
        quantile.key_equals("interval_simultaneous", interval_of(together, &edges), tolerance)?;
        quantile.key_equals("interval_population", interval_of(grid.quantile_of_population(p, Level::NINETY_FIVE), &edges), tolerance)?;
    }
    Ok(())
}

/// Counts up to each edge but the first. The last standard deviation is the root of rounding errors where the total is known.
fn cumulative(grid: &Grid, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let (counts, sds) = grid.cumulative();
    expect.key_equals("cumulative", &counts[1..], tolerance)?;
    let squares = |sds: &[f64]| sds.iter().map(|sd| sd * sd).collect::<Vec<_>>();
    let expected = squares(&expect.at("cumulative_sd")?);
    let close = |(found, expected): (&f64, &f64)| (found - expected).abs() <= tolerance * expected.max(1.0);
    let found = squares(&sds[1..]);
    if found.len() == expected.len() && found.iter().zip(&expected).all(close) { Ok(()) } else { Err(format!("cumulative_sd: {sds:?}")) }
}

fn refine(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let edges = input.at("edges")?;
    let fine = Fine { counts: input.at("fine")?, covariance: square(input, "fine_covariance")? };
    let grid = Grid::new(edges.clone(), &fine, [false; 2]).map_err(message)?;
    let values: Vec<Place> = input.at("quantiles")?.into_iter().map(Place::At).collect();
    let cuts = grid.cuts(&values);
    #[allow(clippy::cast_precision_loss, reason = "a place")]
    let with_ends: Vec<f64> = [0].iter().chain(&cuts).chain(&[edges.len() - 1]).map(|cut| *cut as f64).collect();
    expect.key_equals("cuts", with_ends, 0.0)?;
    let refined = fine.refined(&grid.groups(&cuts), &input.at("noised")?, number(input, "sd")?.powi(2)).map_err(message)?;
    expect.key_equals("fine", &refined.counts, tolerance)?;
    let grid = Grid::new(edges.clone(), &refined, [false; 2]).map_err(message)?;
    cumulative(&grid, expect, tolerance)?;
    for quantile in expect.get("quantiles")?.list()? {
        let found = grid.quantile(number(&quantile, "p")?, Level::NINETY_FIVE);
        quantile.key_equals("value", [place(found.value, &edges)], tolerance)?;
        quantile.key_equals("interval", interval_of(found, &edges), tolerance)?;
    }
    Ok(())
}

fn simplex_projection(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    expect.key_equals("projected", shown::table(&input.at("values")?, number(input, "total")?), tolerance)
}

fn transport_projection(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let found = shown::pair(&square(input, "values")?, &input.at("rows")?, &input.at("columns")?);
    expect.key_equals("projected", found.transpose().as_slice(), tolerance)
}

fn count_interval(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let found = intervals::count(number(input, "estimate")?, number(input, "sd")?, number(input, "n")?, level(input)?);
    expect.key_equals("interval", ends(found), tolerance)?;
    let word = if found.is_at_most() { "at most" } else { "interval" };
    let expected = expect.get("shown_as")?.text()?;
    if expected == word { Ok(()) } else { Err(format!("shown as {word}, the file has {expected}")) }
}

fn share_interval(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let found = intervals::share(number(input, "estimate")?, number(input, "sd")?, number(input, "n")?, level(input)?);
    expect.key_equals("interval_population", ends(found), tolerance)
}

fn delta_method(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let [noise, sampling] = intervals::delta(&input.at("cells")?, &input.at("gradient")?, &square(input, "noise_covariance")?);
    expect.key_equals("variance_noise", [noise], tolerance)?;
    expect.key_equals("variance_sampling", [sampling], tolerance)
}

fn mean_sd(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let range = Interval { lower: number(input, "lower")?, upper: number(input, "upper")? };
    let sums = Sums {
        first: number(input, "sum")?,
        second: number(input, "sum_second")?,
        sd: number(input, "sums_sd")?,
        count: number(input, "present")?,
        count_variance: number(input, "present_sd")?.powi(2),
    };
    let found = Spread::of(&sums, range, number(input, "kurtosis")?, level(input)?);
    for (key, value) in [
        ("mean", found.mean),
        ("mean_sd", found.mean_sd),
        ("mean_sd_population", found.mean_sd_population),
        ("variance", found.variance),
        ("variance_sd", found.variance_sd),
        ("sd", found.variance.sqrt()),
        ("variance_sd_population", found.variance_sd_population),
    ] {
        expect.key_equals(key, [value], tolerance)?;
    }
    expect.key_equals("mean_interval", ends(found.mean_interval), tolerance)?;
    expect.key_equals("mean_interval_population", ends(found.mean_interval_population), tolerance)?;
    expect.key_equals("sd_interval", ends(found.sd_interval), tolerance)?;
    expect.key_equals("sd_interval_population", ends(found.sd_interval_population), tolerance)
}

fn ratio_interval(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let of = Ratio {
        sum: number(input, "sum")?,
        sum_variance: number(input, "sum_variance")?,
        count: number(input, "count")?,
        count_variance: number(input, "count_variance")?,
        extra: number(input, "extra_variance")?,
    };
    let range = Interval { lower: number(input, "lower")?, upper: number(input, "upper")? };
    expect.key_equals("interval", ends(intervals::ratio(of, range, level(input)?)), tolerance)
}

fn balance(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let group = |group: &Node<'_>| {
        Ok::<_, String>(Sums {
            first: number(group, "sum")?,
            second: number(group, "sum_second")?,
            sd: number(group, "sums_sd")?,
            count: number(group, "present")?,
            count_variance: number(group, "present_variance")?,
        })
    };
    let groups = input.get("groups")?.list()?;
    let found = Difference::of(&[group(&groups[0])?, group(&groups[1])?]).ok_or("no difference")?;
    expect.key_equals("smd", [found.estimate], tolerance)?;
    expect.key_equals("sd_noise", [found.sd], tolerance)?;
    expect.key_equals("sd_population", [found.sd_population], tolerance)
}

fn life_table(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let of = Counts {
        cuts: input.at("cuts")?,
        events: input.at("events")?,
        censored: input.at("censored")?,
        beyond: number(input, "beyond")?,
        covariance: square(input, "noise_covariance")?,
    };
    let found = survival::life_table(&of, level(input)?);
    let rows = expect.get("rows")?.list()?;
    if rows.len() != found.len() {
        return Err(format!("{} rows, the file has {}", found.len(), rows.len()));
    }
    for (row, found) in rows.iter().zip(found) {
        for (key, value) in [
            ("time", found.time),
            ("survival", found.survival),
            ("sd_log_noise", found.sd_log_noise),
            ("sd_log_sampling", found.sd_log_sampling),
        ] {
            row.key_equals(key, [value], tolerance)?;
        }
        row.key_equals("interval", ends(found.interval), tolerance)?;
        row.key_equals("interval_population", ends(found.interval_population), tolerance)?;
    }
    Ok(())
}

fn restricted_mean(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let (mean, gradient) = survival::restricted_mean(&input.at("cuts")?, &input.at("survival")?);
    expect.key_equals("mean", [mean], tolerance)?;
    expect.key_equals("gradient", gradient, tolerance)
}

fn releases(input: &Node<'_>, key: &str) -> Result<Vec<(Vec<f64>, f64)>, String> {
    input.get(key)?.list()?.iter().map(|release| Ok((release.at("estimate")?, number(release, "sd")?))).collect()
}

fn sum_of_sites(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let (total, sd) = sites::sum(&releases(input, "sites")?);
    expect.key_equals("total", total, tolerance)?;
    expect.key_equals("sd", [sd], tolerance)
}

fn merge_of_releases(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let (merged, sd) = sites::merge(&releases(input, "releases")?);
    expect.key_equals("estimate", merged, tolerance)?;
    expect.key_equals("sd", [sd], tolerance)
}

/// One pair of columns, the bins of a number, a ladder with one level and its pair of sums: from records to what is shown.
#[allow(clippy::cast_precision_loss, reason = "numbers of the file")]
fn describe_end_to_end(input: &Node<'_>, expect: &Node<'_>, tolerance: f64) -> Outcome {
    let (schema, relation) = (Schema::of(input)?, relation(input)?);
    let layout = schema.layout(input)?;
    let blocks = layout.blocks();
    // The case has equal importances.
    let costs: Vec<f64> = blocks.iter().map(|block| block.kind.cost(relation)).collect();
    let sds = blocks::by_importance(&costs, &vec![1.0; blocks.len()], number(input, "mu")?);
    let weights = Weights::new(relation, &blocks, &sds, number(input, "mu")?).map_err(message)?;
    expect.key_equals("exponent", [f64::from(weights.exponent)], 0.0)?;
    expect.key_equals("scale", [weights.scale as f64], 0.0)?;
    expect.key_equals("steps", weights.steps.iter().map(|steps| *steps as f64).collect::<Vec<_>>(), 0.0)?;
    gate_agrees(relation, &blocks, &weights)?;
    let mut sum = vec![0i64; layout.dimension() as usize];
    for unit in input.get("units")?.list()? {
        for (place, entry) in layout.unit(&schema.records(&unit)?, PerPerson::Mean) {
            sum[place as usize] += weights.whole(layout.block_of(place), entry);
        }
    }
    expect.key_equals("sum", sum.iter().map(|x| *x as f64).collect::<Vec<_>>(), 0.0)?;
    #[allow(clippy::cast_possible_truncation, reason = "whole numbers of the file")]
    let sent: Vec<i64> = sum.iter().zip(input.at("noise")?).map(|(x, noise)| x + noise as i64).collect();
    expect.key_equals("sent", sent.iter().map(|x| *x as f64).collect::<Vec<_>>(), 0.0)?;
    expect.key_equals("sds", (0..blocks.len()).map(|block| weights.sd(block)).collect::<Vec<_>>(), tolerance)?;

    // Each item of the case has one block, in the order of the items.
    let decoded = |block: usize| {
        let places = layout.of_item(block).flatten();
        places.map(|place| weights.decode(block, sent[place as usize])).collect::<Vec<f64>>()
    };
    let cells: Vec<usize> = schema.columns.iter().map(|column| column.cells() as usize).collect();
    // Fields of an object come in any order.
    let [group, yes, x] = [schema.place("group")?, schema.place("yes")?, schema.place("x")?];
    let bins = cells[x] - 4;
    let variance = |block: usize| weights.sd(block).powi(2);
    let level = ladder::Level { split: 2, values: decoded(2), variance: variance(2) };
    let upward = Upward::of(bins, &[level]).map_err(message)?;
    let (sums, of_sums) = upward.bins().ok_or("no level")?;
    let design = Design::new(cells.clone(), &[[group, yes]], total(input, "exact_units")?).map_err(message)?;
    let solution = design
        .solve(&[
            Observation::of_table(vec![group, yes], decoded(0), weights.sd(0)),
            Observation::of_table(vec![x], decoded(1), weights.sd(1)),
            Observation { columns: vec![x], cells: (1..=bins).collect(), values: sums, variances: vec![of_sums; bins] },
        ])
        .map_err(message)?;
    shown_tables(&solution, [group, yes, x], expect, tolerance)?;
    let margin = solution.table(&[x]).ok_or("no table")?;
    let is_bin: Vec<bool> = (0..cells[x]).map(|cell| (1..=bins).contains(&cell)).collect();
    let fine = upward.down(&margin.estimate, solution.table_covariance(&[x]).ok_or("no table")?, &is_bin);
    expect.key_equals("fine", &fine.counts[1..=2 * bins], tolerance)?;
    // All cells with a value: not the last two.
    let present = fine.counts.len() - 2;
    let with_value =
        Fine { counts: fine.counts[..present].to_vec(), covariance: fine.covariance.view((0, 0), (present, present)).into_owned() };
    let Column::Number { edges, .. } = &schema.columns[x] else { return Err("no number".into()) };
    let (count, sd) = Grid::new(fine_edges(edges, 2), &with_value, [true; 2]).map_err(message)?.present();
    expect.key_equals("present", [count], tolerance)?;
    expect.key_equals("present_sd", [sd], tolerance)
}

/// The pair, the three margins, and what is shown of them.
fn shown_tables(solution: &Solution, places: [usize; 3], expect: &Node<'_>, tolerance: f64) -> Outcome {
    let (total, _) = solution.total();
    expect.key_equals("total", [total], tolerance)?;
    let mut margins = Vec::new();
    for (place, margin) in places.into_iter().zip(expect.get("margins")?.list()?) {
        let found = solution.table(&[place]).ok_or("no table")?;
        margin.key_equals("estimate", &found.estimate, tolerance)?;
        margin.key_equals("sd", &found.sd, tolerance)?;
        let shown = shown::table(&found.estimate, total);
        margin.key_equals("shown", &shown, tolerance)?;
        let cells = found.estimate.iter().zip(&found.sd);
        let intervals: Vec<f64> =
            cells.flat_map(|(estimate, sd)| ends(intervals::count(*estimate, *sd, total, Level::NINETY_FIVE))).collect();
        margin.key_equals("interval_95", intervals, tolerance)?;
        margins.push(shown);
    }
    let (pair, found) = (expect.get("table")?, solution.table(&places[..2]).ok_or("no table")?);
    pair.key_equals("estimate", &found.estimate, tolerance)?;
    pair.key_equals("sd", &found.sd, tolerance)?;
    let estimate = DMatrix::from_row_slice(margins[0].len(), margins[1].len(), &found.estimate);
    pair.key_equals("shown", shown::pair(&estimate, &margins[0], &margins[1]).transpose().as_slice(), tolerance)
}
