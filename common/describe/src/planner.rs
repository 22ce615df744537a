//! How much of μ² each block gets: shares p with Σp = 1 that make Σ_items ω·(mean variance of the item's outputs) least.
//!
//! With N_b the information of a block at p_b = 1 and W the weight of what is shown, the objective is φ(p) = tr(W S), S = (Σ p_b N_b)⁻¹, and −∂φ/∂p_b = tr(S W S N_b). From equal shares
//! **p_b ← p_b √(−∂φ/∂p_b)**, scaled to sum to 1: it never rises (Silvey, Titterington & Torgersen 1978; Torsney 1983). After 60 rounds shares below 0.005 are dropped, and 60 more follow.
//!
//! # Sectors
//! Neither noise nor importance tells cells of one *class* apart: the bins of a number that has a ladder are one class, its other four cells another one, and all cells of any other column are one.
//! So S, W and all N_b commute with every permutation within classes, and fall apart into small systems, each of which stands for many equal ones (as for marginals without ladders in
//! Xiao, Ding, Zhang & Lei 2023, ResidualPlanner):
//!
//! * sums over classes: tables with a cell for each class;
//! * a contrast within a class of column a (its entries sum to 0): in each table (a, b) one number for each class of b, whose sum is the contrast of a's own table;
//! * a product of contrasts of two columns, and a contrast among siblings of a ladder: a number each.
//!
//! The systems have as many unknowns as there are classes and pairs, however many cells: planning costs no more for 3,000 cells than for 30.

use std::collections::BTreeMap;

use dp_pvi_accounting::Relation;
use nalgebra::DMatrix;

use crate::blocks::Kind;
use crate::least_squares::{Combination, Design};
use crate::{DescribeError, is_positive};

/// A column, as the planner sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Cells.
    pub cells: usize,
    /// Whether it is a number with four cells beside its bins: below, above, missing and invalid.
    pub is_number: bool,
}

/// What is asked for, and how much its variance matters.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// What.
    pub output: Output,
    /// ω: 1 for tables and ladders, 16 for moments, over accuracy² where one is asked for.
    pub importance: f64,
}

/// What is shown.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// All cells of a table over one or two columns.
    Table(Vec<usize>),
    /// F_k − pN at all fine edges of a number, for each p; in each group where one is named.
    Ladder {
        /// The number.
        column: usize,
        /// The group.
        by: Option<usize>,
        /// Children of a cell at each level.
        splits: Vec<usize>,
        /// Asked p.
        quantiles: Vec<f64>,
    },
    /// The two sums of a pair.
    Moment,
}

/// A block that may get a share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Candidate {
    /// All cells of a table over one or two columns.
    Table(Vec<usize>),
    /// A level of the ladder of this item.
    Level {
        /// Place of the item.
        item: usize,
        /// Level, from 0.
        level: usize,
    },
    /// The pair of this item.
    Moment {
        /// Place of the item.
        item: usize,
    },
}

/// A plan: blocks, each with its share of μ² and the standard deviation of its noise in its own units.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Blocks that are left.
    pub blocks: Vec<(Candidate, f64)>,
    /// φ at μ = 1.
    pub objective: f64,
    relation: Relation,
}

impl Plan {
    /// σ_b = √(c_b/p_b)/μ.
    #[must_use]
    pub fn sds(&self, mu: f64) -> Vec<f64> {
        self.blocks.iter().map(|(block, share)| (block.kind().cost(self.relation) / share).sqrt() / mu).collect()
    }
}

impl Candidate {
    /// What a unit puts in.
    #[must_use]
    pub fn kind(&self) -> Kind {
        if matches!(self, Self::Moment { .. }) { Kind::Signed } else { Kind::Cells }
    }
}

/// A small system that stands for equal ones, each weighed as `weight` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Sector {
    /// Weight of what is shown.
    pub weight: DMatrix<f64>,
    /// Information of each candidate that says something, at a share of 1.
    pub information: Vec<(usize, DMatrix<f64>)>,
}

/// Rounds of each of the two runs.
const ROUNDS: usize = 60;
/// Smaller shares may be dropped after the first run.
const LEAST_SHARE: f64 = 0.005;

/// The best shares, and the objective there.
///
/// # Errors
/// Candidates that leave something that is weighed unobserved.
pub fn shares(sectors: &[Sector], candidates: usize) -> Result<(Vec<f64>, f64), DescribeError> {
    #[allow(clippy::cast_precision_loss, reason = "a number of blocks")]
    let mut shares = vec![1.0 / candidates as f64; candidates];
    for run in 0..2 {
        if run == 1 {
            drop_small(sectors, &mut shares);
        }
        for _ in 0..ROUNDS {
            let (_, slopes) = objective(sectors, &shares, true)?;
            shares.iter_mut().zip(slopes).for_each(|(share, slope)| *share *= slope.max(0.0).sqrt());
            normalise(&mut shares);
        }
    }
    let (value, _) = objective(sectors, &shares, false)?;
    Ok((shares, value))
}

/// Drops shares that are not worth a block of their own, but none that alone says something.
fn drop_small(sectors: &[Sector], shares: &mut [f64]) {
    #[allow(clippy::cast_precision_loss, reason = "a number of blocks")]
    let least = LEAST_SHARE.min(0.5 / shares.len() as f64);
    let mut small: Vec<usize> = (0..shares.len()).filter(|block| shares[*block] < least).collect();
    small.sort_by(|a, b| shares[*a].total_cmp(&shares[*b]));
    for block in small {
        let before = std::mem::replace(&mut shares[block], 0.0);
        if objective(sectors, shares, false).is_err() {
            shares[block] = before;
        }
    }
    normalise(shares);
}

fn normalise(shares: &mut [f64]) {
    let total: f64 = shares.iter().sum();
    shares.iter_mut().for_each(|share| *share /= total);
}

/// φ, and where it is asked for −∂φ/∂p.
fn objective(sectors: &[Sector], shares: &[f64], with_slopes: bool) -> Result<(f64, Vec<f64>), DescribeError> {
    let (mut value, mut slopes) = (0.0, vec![0.0; shares.len()]);
    for Sector { weight, information } in sectors {
        let mut total = DMatrix::<f64>::zeros(weight.nrows(), weight.nrows());
        information.iter().for_each(|(block, of)| total.zip_apply(of, |sum, of| *sum += shares[*block] * of));
        let covariance = total.cholesky().ok_or(DescribeError::Unobserved)?.inverse();
        value += weight.dot(&covariance);
        if with_slopes {
            let along = &covariance * weight * &covariance;
            information.iter().for_each(|(block, of)| slopes[*block] += along.dot(of));
        }
    }
    Ok((value, slopes))
}

/// The best plan for what is wanted. Candidates are every item's blocks, and the tables of single columns of a pair.
///
/// # Errors
/// Items without a block, columns that are not there, or importances that are not positive.
pub fn plan(columns: &[Column], wanted: &[Wanted], relation: Relation, total_is_known: bool) -> Result<Plan, DescribeError> {
    let candidates = candidates(columns, wanted)?;
    let sectors = Builder::new(columns, wanted, &candidates, relation, total_is_known)?.sectors()?;
    let (shares, objective) = shares(&sectors, candidates.len())?;
    let blocks = candidates.into_iter().zip(shares).filter(|(_, share)| *share > 0.0).collect();
    Ok(Plan { blocks, objective, relation })
}

fn candidates(columns: &[Column], wanted: &[Wanted]) -> Result<Vec<Candidate>, DescribeError> {
    const FORM: DescribeError =
        DescribeError::Task("an item names a column that is not there, or the same one twice, or has no positive importance");
    let mut all = Vec::new();
    for (item, Wanted { output, importance }) in wanted.iter().enumerate() {
        let named = match output {
            Output::Table(places) => places.clone(),
            Output::Ladder { column, by, .. } => by.iter().copied().chain([*column]).collect(),
            Output::Moment => Vec::new(),
        };
        let fits = named.iter().all(|place| *place < columns.len()) && named.len() <= 2 && (named.len() < 2 || named[0] != named[1]);
        if !fits || !is_positive(*importance) {
            return Err(FORM);
        }
        match output {
            Output::Table(places) => {
                all.push(Candidate::Table(ordered(places)));
                all.extend(places.iter().map(|place| Candidate::Table(vec![*place])));
            }
            Output::Ladder { column, splits, .. } => {
                if !columns[*column].is_number || columns[*column].cells < 5 || splits.iter().any(|split| *split < 2) {
                    return Err(DescribeError::Task("a ladder is of a number with bins, and cuts a cell into 2 children or more"));
                }
                // Its bins are a table, by group where one is named.
                all.push(Candidate::Table(ordered(&named)));
                all.extend((0..splits.len()).map(|level| Candidate::Level { item, level }));
            }
            Output::Moment => all.push(Candidate::Moment { item }),
        }
    }
    all.sort();
    all.dedup();
    if all.is_empty() { Err(DescribeError::Task("nothing is asked for")) } else { Ok(all) }
}

fn ordered(places: &[usize]) -> Vec<usize> {
    let mut places = places.to_vec();
    places.sort_unstable();
    places
}

/// A function of a column's cells: the mean of each class, what is left of it in each class (its squared norm), and of a ladder's siblings at each level.
#[derive(Debug, Clone, Default)]
struct Profile {
    share: f64,
    means: Vec<f64>,
    rest: Vec<f64>,
    siblings: Vec<f64>,
}

struct Builder<'a> {
    columns: &'a [Column],
    wanted: &'a [Wanted],
    candidates: &'a [Candidate],
    relation: Relation,
    /// Sizes of the classes of each column.
    classes: Vec<Vec<f64>>,
    pairs: Vec<[usize; 2]>,
    /// Sums over classes.
    whole: System,
    /// Contrasts within class c of column a.
    contrasts: BTreeMap<(usize, usize), System>,
    /// Numbers: what is observed, and its weight.
    numbers: BTreeMap<Number, (f64, Vec<(usize, f64)>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Number {
    /// Product of contrasts in class c of column a and class d of column b, a < b.
    Product { columns: [usize; 2], classes: [usize; 2] },
    /// Contrast among the siblings of a level of an item's ladder.
    Siblings { item: usize, level: usize },
    /// The pair of an item.
    Moment { item: usize },
}

/// A design of class sums.
struct System {
    design: Design,
    weight: DMatrix<f64>,
    information: BTreeMap<usize, DMatrix<f64>>,
}

impl System {
    fn new(design: Design) -> Self {
        let size = design.parameters();
        Self { design, weight: DMatrix::zeros(size, size), information: BTreeMap::new() }
    }

    fn vector(&self, of: &Combination) -> nalgebra::DVector<f64> {
        let mut vector = nalgebra::DVector::zeros(self.weight.nrows());
        of.coefficients().for_each(|(parameter, value)| vector[parameter] += value);
        vector
    }

    fn weigh(&mut self, of: &Combination, weight: f64) {
        let vector = self.vector(of);
        self.weight.ger(weight, &vector, &vector, 1.0);
    }

    fn observe(&mut self, candidate: usize, of: &Combination, information: f64) {
        let vector = self.vector(of);
        let size = vector.len();
        self.information.entry(candidate).or_insert_with(|| DMatrix::zeros(size, size)).ger(information, &vector, &vector, 1.0);
    }

    fn sector(self) -> Sector {
        Sector { weight: self.weight, information: self.information.into_iter().collect() }
    }
}

/// The class of a number's bins, and that of all cells of other columns.
const BINS: usize = 0;

impl<'a> Builder<'a> {
    fn new(
        columns: &'a [Column],
        wanted: &'a [Wanted],
        candidates: &'a [Candidate],
        relation: Relation,
        total_is_known: bool,
    ) -> Result<Self, DescribeError> {
        let classes: Vec<Vec<f64>> = columns
            .iter()
            .enumerate()
            .map(|(place, column)| {
                let has_ladder = wanted.iter().any(|item| matches!(item.output, Output::Ladder { column, .. } if column == place));
                if has_ladder { vec![as_f64(column.cells - 4), 4.0] } else { vec![as_f64(column.cells)] }
            })
            .collect();
        let pair = |candidate: &Candidate| match candidate {
            Candidate::Table(places) => <[usize; 2]>::try_from(places.as_slice()).ok(),
            _ => None,
        };
        let pairs: Vec<_> = candidates.iter().filter_map(pair).collect();
        // Columns that no table is about stay out.
        let used =
            |place: usize| candidates.iter().any(|candidate| matches!(candidate, Candidate::Table(places) if places.contains(&place)));
        let sizes = (0..columns.len()).map(|place| if used(place) { classes[place].len() } else { 1 }).collect();
        let whole = System::new(Design::new(sizes, &pairs, total_is_known.then_some(0.0))?);
        let mut contrasts = BTreeMap::new();
        for place in (0..columns.len()).filter(|place| used(*place)) {
            let partners = pairs.iter().filter(|pair| pair.contains(&place)).map(|pair| classes[other(pair, place)].len());
            // The contrast of the column's own table is the total of this system, the tables (a, b) are its columns.
            let design = Design::new(partners.collect(), &[], None)?;
            (0..classes[place].len()).for_each(|class| drop(contrasts.insert((place, class), System::new(design.clone()))));
        }
        Ok(Self { columns, wanted, candidates, relation, classes, pairs, whole, contrasts, numbers: BTreeMap::new() })
    }

    fn sectors(mut self) -> Result<Vec<Sector>, DescribeError> {
        for candidate in 0..self.candidates.len() {
            self.observed(candidate);
        }
        for (place, item) in self.wanted.iter().enumerate() {
            self.asked(place, item);
        }
        let contrasts =
            self.contrasts.into_iter().filter(|((place, class), _)| self.classes[*place][*class] > 1.0).map(|(_, system)| system.sector());
        let number = |(weight, information): (f64, Vec<(usize, f64)>)| Sector {
            weight: DMatrix::from_element(1, 1, weight),
            information: information.into_iter().map(|(block, of)| (block, DMatrix::from_element(1, 1, of))).collect(),
        };
        let numbers = self.numbers.into_values().filter(|(weight, _)| *weight > 0.0).map(number);
        let all = std::iter::once(self.whole.sector()).chain(contrasts).chain(numbers);
        Ok(all.filter(|sector| sector.weight.nrows() > 0).collect())
    }

    /// Place of a pair among the columns of the contrasts of `place`.
    fn partner(&self, place: usize, pair: &[usize]) -> usize {
        self.pairs.iter().filter(|known| known.contains(&place)).position(|known| known == pair).unwrap_or(0)
    }

    /// What a block says of each system. A sum over n cells has n times the variance of one.
    fn observed(&mut self, candidate: usize) {
        let (places, only_bins, cells) = match &self.candidates[candidate] {
            Candidate::Table(places) => (places.clone(), None, 1.0),
            Candidate::Level { item, level } => {
                let Output::Ladder { column, by, splits, .. } = &self.wanted[*item].output else { return };
                let children = |levels: &[usize]| levels.iter().map(|split| as_f64(*split)).product::<f64>();
                for coarser in 0..=*level {
                    let information = 1.0 / children(&splits[coarser + 1..=*level]);
                    self.number(Number::Siblings { item: *item, level: coarser }, candidate, information);
                }
                let places: Vec<usize> = by.iter().copied().chain([*column]).collect();
                (ordered(&places), Some(*column), children(&splits[..=*level]))
            }
            Candidate::Moment { item } => return self.number(Number::Moment { item: *item }, candidate, 1.0),
        };
        let precision = 1.0 / (self.candidates[candidate].kind().cost(self.relation) * cells);
        let seen = |place: usize, class: usize| only_bins != Some(place) || class == BINS;
        let counts = self.classes.clone();
        let classes = |place: usize| (0..counts[place].len()).filter(move |class| seen(place, *class));
        match places[..] {
            [a] => {
                for c in classes(a) {
                    let sum = self.whole.design.cell(&[a], c).unwrap_or_default();
                    self.whole.observe(candidate, &sum, precision / counts[a][c]);
                    if let Some(system) = self.contrasts.get_mut(&(a, c)) {
                        let total = system.design.total();
                        system.observe(candidate, &total, precision);
                    }
                }
            }
            [a, b] => {
                let width = counts[b].len();
                for (c, d) in classes(a).flat_map(|c| classes(b).map(move |d| (c, d))) {
                    let sum = self.whole.design.cell(&[a, b], c * width + d).unwrap_or_default();
                    self.whole.observe(candidate, &sum, precision / (counts[a][c] * counts[b][d]));
                    for (mine, class, theirs, n) in [(a, c, d, counts[b][d]), (b, d, c, counts[a][c])] {
                        let partner = self.partner(mine, &[a, b]);
                        if let Some(system) = self.contrasts.get_mut(&(mine, class)) {
                            let sum = system.design.cell(&[partner], theirs).unwrap_or_default();
                            system.observe(candidate, &sum, precision / n);
                        }
                    }
                    let information = self.numbers.entry(Number::Product { columns: [a, b], classes: [c, d] }).or_default();
                    information.1.push((candidate, precision));
                }
            }
            _ => {}
        }
    }

    /// Information of a number, before the block's cost.
    fn number(&mut self, number: Number, candidate: usize, information: f64) {
        let cost = self.candidates[candidate].kind().cost(self.relation);
        self.numbers.entry(number).or_default().1.push((candidate, information / cost));
    }

    /// What an item weighs in each system.
    fn asked(&mut self, item: usize, Wanted { output, importance }: &Wanted) {
        let (places, profiles) = match output {
            Output::Table(places) => {
                let places = ordered(places);
                let profiles = places.iter().map(|place| self.each_cell(*place)).collect();
                (places, profiles)
            }
            Output::Ladder { column, by, splits, quantiles } => {
                let mut both: Vec<(usize, Vec<Profile>)> = by.iter().map(|by| (*by, self.each_cell(*by))).collect();
                both.push((*column, edges(self.columns[*column].cells - 4, splits, quantiles)));
                both.sort_by_key(|(place, _)| *place);
                both.into_iter().unzip()
            }
            Output::Moment => {
                self.numbers.entry(Number::Moment { item }).or_default().0 += importance;
                return;
            }
        };
        let profiles: Vec<Vec<Profile>> = profiles;
        match (&places[..], &profiles[..]) {
            ([a], [of_a]) => of_a.iter().for_each(|f| self.weigh_single(item, *a, f, importance * f.share)),
            ([a, b], [of_a, of_b]) => {
                for (f, g) in of_a.iter().flat_map(|f| of_b.iter().map(move |g| (f, g))) {
                    self.weigh_product(item, [*a, *b], [f, g], importance * f.share * g.share);
                }
            }
            _ => {}
        }
    }

    fn weigh_single(&mut self, item: usize, a: usize, f: &Profile, weight: f64) {
        let mut sum = Combination::default();
        for (c, mean) in f.means.iter().enumerate() {
            sum.add(&self.whole.design.cell(&[a], c).unwrap_or_default(), *mean);
            if let Some(system) = self.contrasts.get_mut(&(a, c)) {
                let total = system.design.total();
                system.weigh(&total, weight * f.rest[c]);
            }
        }
        self.whole.weigh(&sum, weight);
        self.weigh_siblings(item, f, weight);
    }

    fn weigh_product(&mut self, item: usize, [a, b]: [usize; 2], [f, g]: [&Profile; 2], weight: f64) {
        let width = g.means.len();
        let mut sum = Combination::default();
        for (c, d) in (0..f.means.len()).flat_map(|c| (0..width).map(move |d| (c, d))) {
            sum.add(&self.whole.design.cell(&[a, b], c * width + d).unwrap_or_default(), f.means[c] * g.means[d]);
            self.numbers.entry(Number::Product { columns: [a, b], classes: [c, d] }).or_default().0 += weight * f.rest[c] * g.rest[d];
        }
        self.whole.weigh(&sum, weight);
        for (mine, of_mine, of_other) in [(a, f, g), (b, g, f)] {
            let partner = self.partner(mine, &[a, b]);
            for (class, rest) in of_mine.rest.iter().enumerate() {
                let Some(system) = self.contrasts.get_mut(&(mine, class)) else { continue };
                let mut sum = Combination::default();
                for (other, mean) in of_other.means.iter().enumerate() {
                    sum.add(&system.design.cell(&[partner], other).unwrap_or_default(), *mean);
                }
                system.weigh(&sum, weight * rest);
            }
        }
        // One of the two is a cell of a group: its norm is 1.
        [f, g].into_iter().for_each(|profile| self.weigh_siblings(item, profile, weight));
    }

    fn weigh_siblings(&mut self, item: usize, f: &Profile, weight: f64) {
        for (level, norm) in f.siblings.iter().enumerate() {
            self.numbers.entry(Number::Siblings { item, level }).or_default().0 += weight * norm;
        }
    }

    /// Each cell of a column in turn: it is 1/n of its class's sum, and a contrast of squared norm 1 − 1/n.
    fn each_cell(&self, place: usize) -> Vec<Profile> {
        let classes = &self.classes[place];
        let total: f64 = classes.iter().sum();
        let only = |class: usize, value: f64| (0..classes.len()).map(|k| if k == class { value } else { 0.0 }).collect();
        let profile = |(class, n): (usize, &f64)| Profile {
            share: n / total,
            means: only(class, 1.0 / n),
            rest: only(class, 1.0 - 1.0 / n),
            siblings: Vec::new(),
        };
        classes.iter().enumerate().map(profile).collect()
    }
}

/// F_k − pN at all fine edges: 1 − p for each cell up to the edge, −p for the others that have a value.
fn edges(bins: usize, splits: &[usize], quantiles: &[f64]) -> Vec<Profile> {
    let children: usize = splits.iter().product();
    let cells = bins * children;
    let mut profiles = Vec::new();
    for (k, p) in (0..=cells).flat_map(|k| quantiles.iter().map(move |p| (k, *p))) {
        let full = k / children;
        let mut siblings = Vec::new();
        // Among siblings some are up to the edge, one may be so in part: the others of their parents are all equal.
        let mut below = k % children;
        let mut size = children;
        for split in splits {
            size /= split;
            let (whole, part) = (as_f64(below / size), as_f64(below % size) / as_f64(size));
            // Σ over the children of (mean of the child's cells − mean of all)².
            let mean = (whole + part) / as_f64(*split);
            siblings.push((whole + part * part - as_f64(*split) * mean * mean).max(0.0));
            below %= size;
        }
        let part = as_f64(k % children) / as_f64(children);
        let (sum, square) = if full < bins { (as_f64(full) + part, as_f64(full) + part * part) } else { (as_f64(bins), as_f64(bins)) };
        let mean = sum / as_f64(bins);
        let of_bins = square - as_f64(bins) * mean * mean;
        // Below and above: 1 − p and −p; missing and invalid: 0.
        let others = [1.0 - p, -p, 0.0, 0.0];
        let mean_of_others = others.iter().sum::<f64>() / 4.0;
        let of_others = others.iter().map(|x| (x - mean_of_others).powi(2)).sum();
        profiles.push(Profile { share: 0.0, means: vec![mean - p, mean_of_others], rest: vec![of_bins.max(0.0), of_others], siblings });
    }
    let share = 1.0 / as_f64(profiles.len().max(1));
    profiles.iter_mut().for_each(|profile| profile.share = share);
    profiles
}

fn other(pair: &[usize; 2], place: usize) -> usize {
    if pair[0] == place { pair[1] } else { pair[0] }
}

#[allow(clippy::cast_precision_loss, reason = "a number of cells")]
fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
