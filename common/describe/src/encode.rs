//! What a unit puts into the vector: one cell of each table and ladder level for each record, and pairs of bounded numbers.
//!
//! All blocks of cells come first, in the order of the items, then all signed ones. The order of cells is part of a task's meaning:
//!
//! | column | cells |
//! |---|---|
//! | number | `below` (v < e₀), bins 1…K, `above` (v > e_K), `missing`, `invalid` |
//! | category, boolean (false, true) | its levels, `missing`, `invalid` |
//! | survival with cuts 0 = t₀ < … < t_J | event in interval 1…J, censored in 1…J, `beyond`, `missing`, `invalid` |
//!
//! Bins and intervals are [e₀, e₁], (e₁, e₂], …. `beyond`: no event up to t_J. A record has exactly one cell of each column, so that every table sums to the number of units.

use crate::DescribeError;
use crate::blocks::{Block, Kind};

/// A column, as far as cells go.
#[derive(Debug, Clone, PartialEq)]
pub enum Column {
    /// A number with public bins.
    Number {
        /// Lower end of its range.
        lower: f64,
        /// Upper end.
        upper: f64,
        /// Edges of the bins, ascending.
        edges: Vec<f64>,
    },
    /// So many levels; a boolean has two.
    Levels(u32),
    /// A time with or without an event, and the cuts of its life table, the first of which is 0.
    Survival(Vec<f64>),
}

/// A record's entry of a column, before clamp, transform and fill.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// Nothing is there.
    Missing,
    /// It cannot be read, or is a level that the schema does not list.
    Invalid,
    /// A number.
    Number(f64),
    /// The place of a level among those of the schema.
    Level(u32),
    /// A time that is not negative, and whether it ended with an event.
    Time {
        /// How long.
        time: f64,
        /// Whether an event ended it.
        event: bool,
    },
}

/// What a task asks for, by places of columns.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Counts over one or two columns; the last one varies fastest.
    Table(Vec<usize>),
    /// Finer and finer cells within the bins of a number, by group where one is named.
    Ladder {
        /// The number.
        column: usize,
        /// The group.
        by: Option<usize>,
        /// Into how many equal children a cell is cut at each level.
        splits: Vec<u32>,
    },
    /// x and x² of a number, by group where one is named.
    Moment {
        /// The number.
        column: usize,
        /// The group.
        by: Option<usize>,
    },
}

/// How the records of a person count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerPerson {
    /// Each of m records 1/m: tables sum to persons.
    Mean,
    /// Each min(1, k/m), over k: tables sum to records, at most k of a person, in units of k.
    AtMost(u32),
}

impl Column {
    /// Cells.
    ///
    /// # Panics
    /// Never: a schema has fewer than 2³² edges.
    #[must_use]
    pub fn cells(&self) -> u32 {
        let count = |list: &[f64]| u32::try_from(list.len()).unwrap_or(u32::MAX).saturating_sub(1);
        match self {
            Self::Number { edges, .. } => count(edges) + 4,
            Self::Levels(levels) => levels + 2,
            Self::Survival(cuts) => 2 * count(cuts) + 3,
        }
    }

    /// The one cell of a value. What is of another kind than the column is invalid.
    #[must_use]
    pub fn cell(&self, value: Value) -> u32 {
        let (missing, invalid) = (self.cells() - 2, self.cells() - 1);
        match (self, value) {
            (_, Value::Missing) => missing,
            (Self::Number { edges, .. }, Value::Number(v)) if v.is_finite() => match (edges.first(), edges.last()) {
                (Some(first), _) if v < *first => 0,
                (_, Some(last)) if v > *last => missing - 1,
                _ => interval(edges, v),
            },
            (Self::Levels(levels), Value::Level(level)) if level < *levels => level,
            (Self::Survival(cuts), Value::Time { time, event }) if time >= 0.0 => {
                let (intervals, last) = ((self.cells() - 3) / 2, cuts.last().copied().unwrap_or(0.0));
                if time > last || (time >= last && !event) {
                    2 * intervals
                } else {
                    interval(cuts, time) - 1 + if event { 0 } else { intervals }
                }
            }
            _ => invalid,
        }
    }
}

/// Number k ≥ 1 of the interval [e₀, e₁], (e₁, e₂], … that holds a value between the ends.
fn interval(edges: &[f64], value: f64) -> u32 {
    u32::try_from(edges.partition_point(|edge| *edge < value)).unwrap_or(u32::MAX).max(1)
}

/// (x, 2(x² − ¼)) of x ∈ [−½, ½], of norm at most ½: x² + 4(x² − ¼)² = ¼ − x²(1 − 4x²).
#[must_use]
pub fn pair(x: f64) -> [f64; 2] {
    [x, 2.0 * (x * x - 0.25)]
}

/// The vector's blocks, and where each item's are.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    columns: Vec<Column>,
    /// Blocks in the order of the vector: of which item, which level of a ladder, and where it begins.
    placed: Vec<Placed>,
}

#[derive(Debug, Clone, PartialEq)]
struct Placed {
    block: Block,
    item: usize,
    start: u32,
    content: Content,
}

#[derive(Debug, Clone, PartialEq)]
enum Content {
    Table(Vec<usize>),
    /// Children of a bin at this level.
    Level {
        column: usize,
        by: Option<usize>,
        children: u32,
    },
    Moment {
        column: usize,
        by: Option<usize>,
    },
}

/// Coordinates of a vector, at most.
const MOST: u64 = 1 << 20;

impl Layout {
    /// The blocks of these items, and where each begins.
    ///
    /// # Errors
    /// A column that is not there or of another kind, an item without a column or with more than two, edges that do not ascend, and more than 2²⁰ coordinates.
    pub fn new(columns: Vec<Column>, items: &[Item]) -> Result<Self, DescribeError> {
        const PLACE: DescribeError = DescribeError::Task("a table, ladder or moment names a column that is not there");
        check(&columns)?;
        let mut contents = Vec::new();
        for (item, of) in items.iter().enumerate() {
            match of {
                Item::Table(places) => contents.push((item, Kind::Cells, Content::Table(places.clone()))),
                Item::Ladder { column, by, splits } => {
                    let mut children: u32 = 1;
                    for split in splits {
                        let more = children.checked_mul(*split).filter(|more| *split >= 2 && u64::from(*more) <= MOST);
                        children =
                            more.ok_or(DescribeError::Task("a split of a ladder makes at least 2 children, and at most 2^20 in all"))?;
                        contents.push((item, Kind::Cells, Content::Level { column: *column, by: *by, children }));
                    }
                }
                Item::Moment { column, by } => contents.push((item, Kind::Signed, Content::Moment { column: *column, by: *by })),
            }
        }
        contents.sort_by_key(|(_, kind, _)| *kind == Kind::Signed);
        let (mut placed, mut start) = (Vec::new(), 0u64);
        for (item, kind, content) in contents {
            let column = |place: usize| columns.get(place).ok_or(PLACE);
            let group = |by: Option<usize>| by.map_or(Ok(1), |by| column(by).map(|column| u64::from(column.cells())));
            let number = |place: usize| match column(place)? {
                Column::Number { edges, .. } => Ok(edges.len() as u64 - 1),
                _ => Err(DescribeError::Task("a ladder or a moment is of a number")),
            };
            let size = match &content {
                Content::Table(places) if (1..=2).contains(&places.len()) && places.first() != places.get(1) => {
                    places.iter().try_fold(1, |size, place| Ok::<_, DescribeError>(size * u64::from(column(*place)?.cells())))?
                }
                Content::Table(_) => return Err(DescribeError::Task("a table is over one column, or over two that are not the same")),
                Content::Level { column, by, children } => group(*by)? * number(*column)? * u64::from(*children),
                Content::Moment { column, by } => {
                    number(*column)?;
                    2 * group(*by)?
                }
            };
            let end = start.saturating_add(size);
            let (Ok(size), Ok(begins), true) = (u32::try_from(size), u32::try_from(start), end <= MOST) else {
                return Err(DescribeError::Task("the vector has more than 2^20 coordinates: leave out the largest tables"));
            };
            placed.push(Placed { block: Block { kind, size }, item, start: begins, content });
            start = end;
        }
        Ok(Self { columns, placed })
    }

    /// The blocks, in the order of the vector.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        self.placed.iter().map(|placed| placed.block).collect()
    }

    /// Coordinates of the vector.
    #[must_use]
    pub fn dimension(&self) -> u32 {
        self.placed.last().map_or(0, |last| last.start + last.block.size)
    }

    /// Coordinates of each block of an item, in the order of the vector.
    pub fn of_item(&self, item: usize) -> impl Iterator<Item = std::ops::Range<u32>> + '_ {
        self.placed.iter().filter(move |placed| placed.item == item).map(|placed| placed.start..placed.start + placed.block.size)
    }

    /// The block of a coordinate.
    #[must_use]
    pub fn block_of(&self, coordinate: u32) -> usize {
        self.placed.partition_point(|placed| placed.start <= coordinate) - 1
    }

    /// What a unit adds, before weights: coordinates, ascending, and entries that are not 0. `records` have a value for every column; a unit that cannot be read is one record that
    /// is invalid in every column.
    ///
    /// A unit's cells of a block are not negative and sum to at most 1; its signed numbers of a block have norm at most ½ (means of records keep to both).
    #[must_use]
    pub fn unit(&self, records: &[Vec<Value>], per_person: PerPerson) -> Vec<(u32, f64)> {
        #[allow(clippy::cast_precision_loss, reason = "records of a person")]
        let count = records.len() as f64;
        let share = match per_person {
            PerPerson::Mean => 1.0 / count,
            PerPerson::AtMost(most) => (f64::from(most) / count).min(1.0) / f64::from(most.max(1)),
        };
        let mut entries: Vec<(u32, f64)> = Vec::new();
        for placed in &self.placed {
            let begin = entries.len();
            for record in records {
                self.record(placed, record, |coordinate, entry| {
                    match entries[begin..].iter_mut().find(|(known, _)| *known == placed.start + coordinate) {
                        Some((_, sum)) => *sum += entry * share,
                        None => entries.push((placed.start + coordinate, entry * share)),
                    }
                });
            }
            entries[begin..].sort_by_key(|(coordinate, _)| *coordinate);
        }
        entries.retain(|(_, entry)| entry.abs() > 0.0);
        entries
    }

    /// Entries of a record in a block.
    fn record(&self, placed: &Placed, record: &[Value], mut add: impl FnMut(u32, f64)) {
        let value = |place: usize| record.get(place).copied().unwrap_or(Value::Invalid);
        let cell = |place: usize| self.columns[place].cell(value(place));
        let group = |by: Option<usize>| by.map_or(0, cell);
        match &placed.content {
            Content::Table(places) => add(places.iter().fold(0, |index, place| index * self.columns[*place].cells() + cell(*place)), 1.0),
            Content::Level { column, by, children } => {
                let (Column::Number { edges, .. }, Value::Number(v)) = (&self.columns[*column], value(*column)) else { return };
                let bins = self.columns[*column].cells() - 4;
                let bin = cell(*column);
                if (1..=bins).contains(&bin) {
                    let (low, high) = (edges[bin as usize - 1], edges[bin as usize]);
                    let place = ((v - low) / (high - low) * f64::from(*children)).ceil() - 1.0;
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and the number of children")]
                    let child = place.clamp(0.0, f64::from(*children - 1)) as u32;
                    add((group(*by) * bins + bin - 1) * children + child, 1.0);
                }
            }
            Content::Moment { column, by } => {
                let (Column::Number { lower, upper, .. }, Value::Number(v)) = (&self.columns[*column], value(*column)) else { return };
                if v.is_finite() {
                    let [x, square] = pair((v.clamp(*lower, *upper) - 0.5 * (lower + upper)) / (upper - lower));
                    add(2 * group(*by), x);
                    add(2 * group(*by) + 1, square);
                }
            }
        }
    }
}

fn check(columns: &[Column]) -> Result<(), DescribeError> {
    let ascends =
        |edges: &[f64]| edges.len() >= 2 && edges.iter().all(|edge| edge.is_finite()) && edges.windows(2).all(|two| two[0] < two[1]);
    for column in columns {
        match column {
            Column::Number { lower, upper, edges } if !(ascends(edges) && ascends(&[*lower, *upper])) => {
                return Err(DescribeError::Task("bins need two edges or more that ascend, and a number a range"));
            }
            Column::Survival(cuts) if !(ascends(cuts) && cuts[0].abs() <= 0.0) => {
                return Err(DescribeError::Task("the cuts of a life table begin with 0 and ascend"));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_at_edges_belong_to_the_interval_that_ends_there() {
        let number = Column::Number { lower: 0.0, upper: 10.0, edges: vec![0.0, 5.0, 10.0] };
        let cells = [-0.1, 0.0, 5.0, 5.1, 10.0, 10.1].map(|v| number.cell(Value::Number(v)));
        assert_eq!(cells, [0, 1, 1, 2, 2, 3]);
        assert_eq!([Value::Missing, Value::Invalid, Value::Number(f64::NAN), Value::Level(0)].map(|v| number.cell(v)), [4, 5, 5, 5]);
        let survival = Column::Survival(vec![0.0, 1.0, 2.0]);
        let time = |time, event| survival.cell(Value::Time { time, event });
        assert_eq!([time(0.0, true), time(1.0, true), time(1.5, true), time(2.0, true), time(2.1, true)], [0, 0, 1, 1, 4]);
        assert_eq!([time(0.0, false), time(1.0, false), time(1.5, false), time(2.0, false), time(-1.0, true)], [2, 2, 3, 4, 6]);
        let levels = Column::Levels(3);
        assert_eq!([Value::Level(2), Value::Level(3), Value::Missing].map(|v| levels.cell(v)), [2, 4, 3]);
    }

    /// Whatever a unit holds, its cells of a block sum to at most 1 and its signed numbers have norm at most ½; and every table has all of its weight.
    #[test]
    fn a_unit_keeps_to_the_sizes_that_blocks_have() {
        let columns = vec![
            Column::Number { lower: -1.0, upper: 3.0, edges: vec![-1.0, 0.0, 0.5, 3.0] },
            Column::Levels(2),
            Column::Survival(vec![0.0, 1.0, 4.0]),
        ];
        let items = [
            Item::Moment { column: 0, by: Some(1) },
            Item::Table(vec![1, 0]),
            Item::Ladder { column: 0, by: Some(1), splits: vec![2, 3] },
            Item::Table(vec![2]),
        ];
        let layout = Layout::new(columns, &items).unwrap();
        assert_eq!(layout.dimension(), 4 * 7 + 4 * 3 * 2 + 4 * 3 * 6 + 7 + 2 * 4);
        let values = [Value::Missing, Value::Invalid, Value::Number(-5.0), Value::Number(0.0), Value::Number(0.7), Value::Number(9.0)];
        let groups = [Value::Level(0), Value::Level(1), Value::Level(7), Value::Missing];
        let record = |k: usize| vec![values[k % 6], groups[k / 2 % 4], Value::Time { time: (k % 5) as f64, event: k.is_multiple_of(3) }];
        for (start, many) in (0..40).flat_map(|start| [1, 2, 5].map(|many| (start, many))) {
            let records: Vec<_> = (0..many).map(|k| record(start + 7 * k)).collect();
            for per_person in [PerPerson::Mean, PerPerson::AtMost(1), PerPerson::AtMost(3)] {
                let unit = layout.unit(&records, per_person);
                assert!(unit.windows(2).all(|two| two[0].0 < two[1].0));
                for (place, block) in layout.blocks().iter().enumerate() {
                    let mine: Vec<f64> = unit.iter().filter(|(c, _)| layout.block_of(*c) == place).map(|(_, e)| *e).collect();
                    let total: f64 = mine.iter().sum();
                    match block.kind {
                        Kind::Cells => assert!(mine.iter().all(|e| *e > 0.0) && total <= 1.0 + 1e-12),
                        Kind::Signed => assert!(mine.iter().map(|e| e * e).sum::<f64>() <= 0.25 + 1e-12),
                    }
                    if [0, 3].contains(&place) && per_person == PerPerson::Mean {
                        assert!((total - 1.0).abs() < 1e-12);
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_no_layout_is_refused() {
        let number = || Column::Number { lower: 0.0, upper: 1.0, edges: vec![0.0, 1.0] };
        for (column, item) in [
            (number(), Item::Table(vec![])),
            (number(), Item::Table(vec![0, 0])),
            (number(), Item::Table(vec![1])),
            (number(), Item::Ladder { column: 0, by: None, splits: vec![1] }),
            (number(), Item::Ladder { column: 0, by: None, splits: vec![1 << 11, 1 << 11] }),
            (Column::Levels(2), Item::Moment { column: 0, by: None }),
            (Column::Levels(1 << 21), Item::Table(vec![0])),
            (Column::Number { lower: 1.0, upper: 1.0, edges: vec![0.0, 1.0] }, Item::Table(vec![0])),
            (Column::Survival(vec![1.0, 2.0]), Item::Table(vec![0])),
        ] {
            assert!(matches!(Layout::new(vec![column], &[item]), Err(DescribeError::Task(_))));
        }
    }
}
