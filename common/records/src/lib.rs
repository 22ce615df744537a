//! Records grouped into privacy units, in compressed sparse rows.
//!
//! A table is built once by a loader and then only read. Indices are `u32` and values `f64`; a row of one-hot and numeric
//! columns takes 12 bytes an entry, and the rows of one unit lie side by side, so that a random unit costs a few cache lines.
//! A unit is a record, or all records of one person; it may be empty (its records were dropped) and then contributes 0.

mod bytes;
mod source;

pub use bytes::{NotUnits, record_bytes, write_record};
pub use source::{CellValue, LineProblem, Row, Source, Visitor};

use dp_pvi_privacy::{ContentId, StableIds, UnitTable};
use dp_pvi_schema::public::{Example, Extra, TestRecords};

/// A row that a table cannot hold. Messages name positions, never values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// `push` came before the first `start_unit`.
    #[error("a record was pushed before its unit was started: call start_unit first")]
    NoUnit,
    /// Index and value slices differ in length.
    #[error("a record has {indices} indices but {values} values: give one value for every index")]
    Lengths {
        /// Number of indices.
        indices: usize,
        /// Number of values.
        values: usize,
    },
    /// Indices are not strictly ascending.
    #[error("the indices of a record must be strictly ascending")]
    Order,
    /// An index is not below the dimension.
    #[error("an index of a record is not below the dimension {dimension}: check the schema")]
    Dimension {
        /// The dimension.
        dimension: usize,
    },
    /// More than 2³²−1 entries or units.
    #[error("more entries than one table can hold (4294967295): split the data set between sites")]
    TooLarge,
}

/// One record, borrowed: the non-zero features and the target (0 or 1 for a binary class).
#[derive(Clone, Copy)]
pub struct RecordView<'a> {
    /// Positions of the non-zero features, strictly ascending.
    pub indices: &'a [u32],
    /// Their values.
    pub values: &'a [f64],
    /// What is predicted.
    pub target: f64,
    /// What is added to the linear predictor without a coefficient: 0, unless the task's formula has an offset.
    pub offset: f64,
    /// Weight and survival time.
    pub extra: Extra,
}

impl<'a> RecordView<'a> {
    /// The same numbers as a row to predict or to score, where no one has to protect them or nothing leaves.
    #[must_use]
    pub fn example(self) -> Example<'a> {
        let Self { indices, values, target, offset, extra } = self;
        Example { indices, values, target, offset, extra }
    }

    /// Pairs (position, value).
    #[inline]
    pub fn entries(self) -> impl Iterator<Item = (usize, f64)> + 'a {
        self.indices.iter().zip(self.values).map(|(&index, &value)| (index as usize, value))
    }

    /// Whether every number is finite. A record that is not contributes 0, everywhere.
    #[inline]
    #[must_use]
    pub fn is_finite(&self) -> bool {
        self.target.is_finite()
            && self.offset.is_finite()
            && self.extra.weight.is_finite()
            && self.extra.entry.is_finite()
            && self.values.iter().all(|value| value.is_finite())
    }
}

/// All records of one unit, borrowed.
#[derive(Clone, Copy)]
pub struct UnitView<'a> {
    table: &'a RecordTable,
    first: u32,
    end: u32,
}

impl<'a> UnitView<'a> {
    /// The unit's records.
    #[inline]
    pub fn records(self) -> impl Iterator<Item = RecordView<'a>> {
        (self.first as usize..self.end as usize).map(move |record| self.table.record(record))
    }
}

/// Records of all units of a data set.
///
/// Not `Debug`: nothing prints records.
#[derive(Clone)]
pub struct RecordTable {
    dimension: usize,
    /// Units' first records, with a closing entry.
    units: Vec<u32>,
    /// Records' first entries, with a closing entry.
    rows: Vec<u32>,
    indices: Vec<u32>,
    values: Vec<f64>,
    targets: Vec<f64>,
    /// One a record, or none at all where no record has one.
    offsets: Vec<f64>,
    /// One a record, or none at all where no record has one.
    extras: Vec<Extra>,
}

impl RecordTable {
    /// A builder for rows with `dimension` features.
    #[must_use]
    pub fn builder(dimension: usize) -> RecordTableBuilder {
        RecordTableBuilder {
            table: Self {
                dimension,
                units: Vec::new(),
                rows: vec![0],
                indices: Vec::new(),
                values: Vec::new(),
                targets: Vec::new(),
                offsets: Vec::new(),
                extras: Vec::new(),
            },
        }
    }

    /// Number of features d.
    #[inline]
    #[must_use]
    pub fn dimension(&self) -> usize {
        self.dimension
    }

    /// All records, unit by unit. Used on public data, and inside `Units::map`.
    #[inline]
    pub fn records(&self) -> impl ExactSizeIterator<Item = RecordView<'_>> {
        (0..self.targets.len()).map(|record| self.record(record))
    }

    /// The record at a position below the number of records.
    #[inline]
    fn record(&self, position: usize) -> RecordView<'_> {
        let entries = self.rows[position] as usize..self.rows[position + 1] as usize;
        let offset = self.offsets.get(position).copied().unwrap_or(0.0);
        let extra = self.extras.get(position).copied().unwrap_or(Extra::NONE);
        RecordView { indices: &self.indices[entries.clone()], values: &self.values[entries], target: self.targets[position], offset, extra }
    }
}

impl UnitTable for RecordTable {
    type Unit<'a> = UnitView<'a>;

    fn len(&self) -> usize {
        self.units.len() - 1
    }

    #[inline]
    fn unit(&self, position: usize) -> UnitView<'_> {
        UnitView { table: self, first: self.units[position], end: self.units[position + 1] }
    }

    /// Reads the first lines of memory of its first record.
    #[inline]
    fn approach(&self, position: usize) {
        let first = self.units.get(position).map_or(0, |first| *first as usize);
        let start = self.rows.get(first).map_or(0, |start| *start as usize);
        // A line holds eight values.
        let values = [0, 8].map(|next| self.values.get(start.saturating_add(next)).copied());
        std::hint::black_box((values, self.indices.get(start).copied(), self.targets.get(first).copied()));
    }
}

impl TestRecords for RecordTable {
    fn examples(&self) -> impl Iterator<Item = Example<'_>> {
        self.records().map(RecordView::example)
    }
}

/// A unit's id is made of its records, all numbers of them: neither its position nor other units play a part.
impl StableIds for RecordTable {
    fn id(&self, position: usize) -> u64 {
        let mut id = ContentId::default();
        for record in self.unit(position).records() {
            id.absorb(record.indices.len() as u64);
            id.absorb(record.target.to_bits());
            if record.offset != 0.0 {
                // No number of entries is this large.
                id.absorb(u64::MAX);
                id.absorb(record.offset.to_bits());
            }
            if record.extra != Extra::NONE {
                id.absorb(u64::MAX - 1);
                words(record.extra).into_iter().for_each(|word| id.absorb(word));
            }
            for (&index, value) in record.indices.iter().zip(record.values) {
                id.absorb(index.into());
                id.absorb(value.to_bits());
            }
        }
        id.finish()
    }
}

/// The bits of what a record has beside features, target and offset, for fingerprints.
#[must_use]
pub fn words(extra: Extra) -> [u64; 3] {
    [extra.weight.to_bits(), extra.entry.to_bits(), extra.event.into()]
}

/// Whether indices and values are those of a row of `dimension` features.
fn check(indices: &[u32], values: &[f64], dimension: usize) -> Result<(), RecordError> {
    if indices.len() != values.len() {
        return Err(RecordError::Lengths { indices: indices.len(), values: values.len() });
    }
    if indices.windows(2).any(|pair| pair[0] >= pair[1]) {
        return Err(RecordError::Order);
    }
    if indices.last().is_some_and(|&last| last as usize >= dimension) {
        return Err(RecordError::Dimension { dimension });
    }
    Ok(())
}

/// Builds a [`RecordTable`] unit by unit.
pub struct RecordTableBuilder {
    /// `units` has no closing entry yet.
    table: RecordTable,
}

impl RecordTableBuilder {
    /// Starts the next unit. Without a following [`push`](Self::push) the unit stays empty and contributes 0.
    pub fn start_unit(&mut self) {
        // `push` keeps the number of records below 2^32.
        #[allow(clippy::cast_possible_truncation, reason = "push keeps the number of records below 2^32")]
        self.table.units.push(self.table.targets.len() as u32);
    }

    /// Adds a record to the current unit. Zeros need not be given; non-finite numbers are kept and make the record contribute 0.
    ///
    /// # Errors
    /// The row has no unit, is not sorted, does not fit the dimension, or the table is full.
    pub fn push(&mut self, indices: &[u32], values: &[f64], target: f64) -> Result<(), RecordError> {
        self.push_record(RecordView { indices, values, target, offset: 0.0, extra: Extra::NONE })
    }

    /// [`push`](Self::push) of a record that may have an offset, a weight and a survival time.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_record(&mut self, record: RecordView<'_>) -> Result<(), RecordError> {
        let RecordView { indices, values, target, offset, extra } = record;
        let table = &mut self.table;
        if table.units.is_empty() {
            return Err(RecordError::NoUnit);
        }
        check(indices, values, table.dimension)?;
        let end = u32::try_from(table.indices.len() + indices.len()).map_err(|_| RecordError::TooLarge)?;
        u32::try_from(table.targets.len() + 1).map_err(|_| RecordError::TooLarge)?;
        table.indices.extend_from_slice(indices);
        table.values.extend_from_slice(values);
        table.rows.push(end);
        if offset != 0.0 {
            // Records before the first one with an offset have none.
            table.offsets.resize(table.targets.len(), 0.0);
            table.offsets.push(offset);
        }
        if extra != Extra::NONE || !table.extras.is_empty() {
            table.extras.resize(table.targets.len(), Extra::NONE);
            table.extras.push(extra);
        }
        table.targets.push(target);
        Ok(())
    }

    /// The finished table.
    #[must_use]
    pub fn finish(self) -> RecordTable {
        let mut table = self.table;
        #[allow(clippy::cast_possible_truncation, reason = "push keeps the number of records below 2^32")]
        table.units.push(table.targets.len() as u32);
        table.units.shrink_to_fit();
        table.rows.shrink_to_fit();
        table.indices.shrink_to_fit();
        table.values.shrink_to_fit();
        table.targets.shrink_to_fit();
        table.offsets.shrink_to_fit();
        table.extras.shrink_to_fit();
        table
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn units_keep_their_records_and_empty_units_stay() {
        let mut builder = RecordTable::builder(4);
        builder.start_unit();
        builder.push(&[0, 3], &[1.0, 2.0], 1.0).unwrap();
        builder.push(&[], &[], 0.0).unwrap();
        builder.start_unit();
        builder.start_unit();
        builder.push(&[2], &[-1.0], 0.5).unwrap();
        let table = builder.finish();
        assert_eq!((table.len(), table.dimension(), table.records().len()), (3, 4, 3));
        let copy = |r: RecordView<'_>| (r.indices.to_vec(), r.values.to_vec(), r.target);
        let units: Vec<Vec<_>> = (0..3).map(|unit| table.unit(unit).records().map(copy).collect()).collect();
        assert_eq!(units[0], vec![(vec![0, 3], vec![1.0, 2.0], 1.0), (vec![], vec![], 0.0)]);
        assert!(units[1].is_empty());
        assert_eq!(units[2], vec![(vec![2], vec![-1.0], 0.5)]);
        assert_eq!(RecordTable::builder(4).finish().len(), 0);
    }

    #[test]
    fn a_record_has_the_offset_that_it_was_given_and_others_have_none() {
        let mut builder = RecordTable::builder(1);
        builder.start_unit();
        builder.push(&[0], &[1.0], 1.0).unwrap();
        let plain = RecordView { indices: &[0], values: &[1.0], target: 1.0, offset: 0.0, extra: Extra::NONE };
        builder.push_record(RecordView { offset: 0.5, ..plain }).unwrap();
        builder.push(&[0], &[1.0], 1.0).unwrap();
        builder.start_unit();
        builder.push_record(RecordView { offset: f64::NAN, ..plain }).unwrap();
        let table = builder.finish();
        let offsets: Vec<f64> = table.records().map(|record| record.offset).collect();
        assert_eq!(offsets[..3], [0.0, 0.5, 0.0]);
        assert_eq!(table.records().filter(RecordView::is_finite).count(), 3);
        assert_ne!(table.id(0), table.id(1));
    }

    #[test]
    fn a_record_has_the_weight_and_the_times_that_it_was_given_and_others_have_none() {
        let mut builder = RecordTable::builder(1);
        let plain = RecordView { indices: &[0], values: &[1.0], target: 1.0, offset: 0.0, extra: Extra::NONE };
        let extras = [Extra::NONE, Extra { weight: 2.0, ..Extra::NONE }, Extra::NONE, Extra { entry: 0.5, event: true, ..Extra::NONE }];
        for extra in extras {
            builder.start_unit();
            builder.push_record(RecordView { extra, ..plain }).unwrap();
        }
        let table = builder.finish();
        assert_eq!(table.records().map(|record| record.extra).collect::<Vec<_>>(), extras);
        assert_eq!((0..4).map(|unit| table.id(unit)).collect::<std::collections::BTreeSet<_>>().len(), 3);
        let odd = RecordView { extra: Extra { weight: f64::NAN, ..Extra::NONE }, ..plain };
        assert!(plain.is_finite() && !odd.is_finite());
    }

    #[test]
    fn a_units_id_depends_on_all_its_records_and_on_nothing_else() {
        type Unit = Vec<(Vec<u32>, Vec<f64>, f64)>;
        let ids = |units: &[Unit]| -> Vec<u64> {
            let mut builder = RecordTable::builder(4);
            for unit in units {
                builder.start_unit();
                unit.iter().for_each(|(indices, values, target)| builder.push(indices, values, *target).unwrap());
            }
            let table = builder.finish();
            (0..table.len()).map(|position| table.id(position)).collect()
        };
        let record = |index, value, target| (vec![index], vec![value], target);
        let units: Vec<Unit> = vec![
            vec![record(0, 1.0, 1.0)],
            vec![record(0, 1.0, 0.0)],
            vec![record(1, 1.0, 1.0)],
            vec![record(0, 2.0, 1.0)],
            vec![record(0, 1.0, 1.0), record(0, 1.0, 1.0)],
            vec![(vec![0, 1], vec![1.0, 1.0], 1.0)],
            vec![],
        ];
        let all = ids(&units);
        assert_eq!(all.iter().collect::<std::collections::BTreeSet<_>>().len(), units.len());
        for gone in 0..units.len() {
            let (mut fewer, mut expected) = (units.clone(), all.clone());
            fewer.remove(gone);
            expected.remove(gone);
            assert_eq!(ids(&fewer), expected);
        }
    }

    /// Every number, to the last bit, of units with and without records, offsets, weights and times; and any run of units.
    #[test]
    fn units_come_back_from_bytes_as_they_were() {
        for dimension in [5, 70_000] {
            let last = u32::try_from(dimension).unwrap() - 1;
            let plain =
                RecordView { indices: &[0, 3, last], values: &[1.0, f64::NAN, 5e-324], target: -0.0, offset: 0.0, extra: Extra::NONE };
            let survival = Extra { weight: 2.0, entry: 0.5, event: true };
            let units: [&[RecordView<'_>]; 7] = [
                &[plain],
                &[],
                &[RecordView { offset: 0.25, ..plain }, plain],
                &[RecordView { extra: survival, ..plain }, RecordView { indices: &[], values: &[], ..plain }],
                &[RecordView { extra: Extra { event: false, ..survival }, offset: f64::NAN, ..plain }],
                &[],
                &[plain, plain, plain],
            ];
            let mut builder = RecordTable::builder(dimension);
            let mut bytes = Vec::new();
            for unit in units {
                builder.start_unit();
                bytes.extend_from_slice(&u32::try_from(unit.len()).unwrap().to_le_bytes());
                for record in unit {
                    builder.push_record(*record).unwrap();
                    write_record(*record, dimension, &mut bytes).unwrap();
                }
            }
            let table = builder.finish();
            let mut window = RecordTable::empty(dimension);
            for start in 0..units.len() {
                for end in start..=units.len() {
                    window.clear();
                    window.append(&bytes, start..end).unwrap();
                    assert_eq!(window.len(), end - start);
                    (start..end).for_each(|unit| assert_eq!(window.id(unit - start), table.id(unit), "{unit}"));
                }
            }
            // Cut off anywhere, longer than they are, or of a table of fewer features.
            for cut in 0..bytes.len() {
                assert_eq!(RecordTable::empty(dimension).append(&bytes[..cut], 0..units.len()), Err(NotUnits), "{cut}");
            }
            assert_eq!(RecordTable::empty(dimension).append(&bytes, 0..units.len() + 1), Err(NotUnits));
            assert_eq!(RecordTable::empty(2).append(&bytes, 0..1), Err(NotUnits));
        }
        let odd = RecordView { indices: &[2, 1], values: &[1.0, 1.0], target: 0.0, offset: 0.0, extra: Extra::NONE };
        assert_eq!(write_record(odd, 3, &mut Vec::new()), Err(RecordError::Order));
    }

    #[test]
    fn rows_that_do_not_fit_are_refused_and_leave_no_trace() {
        let mut builder = RecordTable::builder(3);
        assert_eq!(builder.push(&[0], &[1.0], 1.0), Err(RecordError::NoUnit));
        builder.start_unit();
        assert_eq!(builder.push(&[0, 1], &[1.0], 1.0), Err(RecordError::Lengths { indices: 2, values: 1 }));
        assert_eq!(builder.push(&[1, 1], &[1.0, 1.0], 1.0), Err(RecordError::Order));
        assert_eq!(builder.push(&[2, 1], &[1.0, 1.0], 1.0), Err(RecordError::Order));
        assert_eq!(builder.push(&[3], &[1.0], 1.0), Err(RecordError::Dimension { dimension: 3 }));
        let table = builder.finish();
        assert_eq!((table.len(), table.records().len()), (1, 0));
    }
}
