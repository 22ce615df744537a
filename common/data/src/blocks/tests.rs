#![allow(clippy::unwrap_used)]
use std::fs;

use ::parquet::file::reader::SerializedFileReader;
use ::parquet::record::RowAccessor;
use dp_pvi_privacy::danger::assume_public;
use dp_pvi_privacy::{Argument, UnitTable};
use dp_pvi_schema::Schema;

use super::*;
use dp_pvi_unsealed::Unsealed;

fn table(units: u32) -> RecordTable {
    let mut table = RecordTable::builder(3);
    for unit in 0..units {
        table.start_unit();
        (0..unit % 3).for_each(|record| table.push(&[record], &[f64::from(unit)], f64::from(record)).unwrap());
    }
    table.finish()
}

/// Three numbers a record; whose record it is, if `unit` is a key of a schema that says so.
fn schema(unit: &str) -> Schema {
    let column = |name| format!("[[columns]]\nname = \"{name}\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n");
    let label = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n";
    Schema::asking("y ~ .", &format!("version = 2\nnorm_bound = 2.0\n{unit}\n{label}{}", ["a", "b", "c"].map(column).concat())).unwrap()
}

const PERSONS: &str = "unit_column = \"person\"";

type Row = (i64, i32, Vec<u8>);

fn written(units: u32, parent: &Path, key: &SiteKey, snapshot: Hash) -> Vec<Row> {
    put(&table(units), &schema(PERSONS), parent, key, snapshot)
}

fn put(table: &RecordTable, schema: &Schema, parent: &Path, key: &SiteKey, snapshot: Hash) -> Vec<Row> {
    let cache = Cache::of(table, tempfile::tempfile().unwrap()).unwrap();
    let folder = folder_of(parent, snapshot);
    write(&cache, Length::of(schema), &folder, key, snapshot).unwrap();
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let rows = files.iter().flat_map(|file| SerializedFileReader::new(fs::File::open(file).unwrap()).unwrap().into_iter());
    rows.map(|row| row.unwrap())
        .map(|row| (row.get_long(0).unwrap(), row.get_int(1).unwrap(), row.get_bytes(2).unwrap().data().to_vec()))
        .collect()
}

#[test]
fn every_unit_is_in_one_block_and_only_the_key_opens_it() {
    let (parent, key) = (tempfile::tempdir().unwrap(), SiteKey::new([1; 32].into()));
    for count in [0, 1, 31, 33, 20_000] {
        let name = Hash::of("snapshot", &[&u32::to_le_bytes(count)]);
        let rows = written(count, parent.path(), &key, name);
        let all = table(count);
        let blocks = Blocks::new(&key, name, 3);
        let mut next = 0;
        for (first, units, sealed) in &rows {
            assert_eq!(*first, next);
            next += i64::from(*units);
            let opened = blocks.open(first.cast_unsigned(), units.cast_unsigned(), sealed).unwrap();
            let seen = assume_public(
                Unsealed,
                opened.map(&Argument::nothing(), |(), table: &RecordTable| {
                    (0..table.len())
                        .map(|unit| table.unit(unit).records().map(|r| (r.values.to_vec(), r.target)).collect::<Vec<_>>())
                        .collect::<Vec<_>>()
                }),
            )
            .into_inner();
            let from = usize::try_from(*first).unwrap();
            let here =
                (from..from + seen.len()).map(|unit| all.unit(unit).records().map(|r| (r.values.to_vec(), r.target)).collect::<Vec<_>>());
            assert!(seen.iter().cloned().eq(here));
        }
        assert_eq!(next, i64::from(count));
        assert!(count < 1000 || rows.len() > 100, "{} blocks to share out", rows.len());
        if let [(first, units, sealed), ..] = &*rows {
            let (first, units) = (first.cast_unsigned(), units.cast_unsigned());
            let refused = |blocks: &Blocks, first, units, sealed: &[u8]| blocks.open(first, units, sealed).is_err();
            assert!(refused(&Blocks::new(&SiteKey::new([2; 32].into()), name, 3), first, units, sealed), "another key");
            assert!(refused(&Blocks::new(&key, Hash::default(), 3), first, units, sealed), "another snapshot");
            assert!(refused(&blocks, first + 1, units, sealed), "another place");
            assert!(refused(&blocks, first, units + 1, sealed), "another number");
            assert!(refused(&blocks, first, units, &sealed[1..]));
        }
    }
    let value = 19_999.0_f64.to_le_bytes();
    let file = fs::read_dir(folder_of(parent.path(), Hash::of("snapshot", &[&u32::to_le_bytes(20_000)]))).unwrap().next().unwrap().unwrap();
    assert!(!fs::read(file.path()).unwrap().windows(8).any(|window| window == value), "no record stands in the folder");
    crate::remove_snapshots(parent.path()).unwrap();
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
}

/// First unit, number of units and length of every block of a table of these units, each with so many records of so many entries; and how long the files are.
fn lengths(schema: &Schema, units: impl Iterator<Item = (u32, u32)>) -> (Vec<(i64, i32, usize)>, Vec<u64>) {
    let mut table = RecordTable::builder(4);
    for (records, entries) in units {
        table.start_unit();
        let (indices, values): (Vec<_>, Vec<_>) = (0..entries).map(|index| (index, 0.5)).unzip();
        (0..records).for_each(|_| table.push(&indices, &values, 1.0).unwrap());
    }
    let parent = tempfile::tempdir().unwrap();
    let rows = put(&table.finish(), schema, parent.path(), &SiteKey::new([1; 32].into()), Hash::default());
    let mut files: Vec<_> = fs::read_dir(folder_of(parent.path(), Hash::default())).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    (
        rows.iter().map(|(first, units, sealed)| (*first, *units, sealed.len())).collect(),
        files.iter().map(|file| fs::metadata(file).unwrap().len()).collect(),
    )
}

/// Entries that are 0 and rows that were dropped are not seen in a folder, and neither is a last unit in a block of its own.
#[test]
fn blocks_of_as_many_units_have_the_same_lengths() {
    let schema = schema("");
    for count in [1_u32, 31, 32, 33, 63, 64, 65, 8_193, 40_000, 40_031] {
        let full = lengths(&schema, (0..count).map(|_| (1, 4)));
        assert_eq!(full, lengths(&schema, (0..count).map(|_| (1, 0))), "{count}: nothing but zeros");
        assert_eq!(full, lengths(&schema, (0..count).map(|unit| (unit % 2, unit % 5))), "{count}: dropped rows");
        assert!(full.0.iter().all(|block| block.1 >= 32 || full.0.len() == 1), "{count}: {:?}", full.0.last());
        // Number of records, number of entries, target, and four entries, the intercept's among them; 16 bytes of authentication.
        let exact = full.0.iter().all(|(_, units, length)| *length == (4 + 4 + 8 + 4 * 10) * usize::try_from(*units).unwrap() + 16);
        assert!(exact, "nothing is padded that is full");
    }
    assert_ne!(lengths(&schema, (0..64).map(|_| (1, 4))), lengths(&schema, (0..65).map(|_| (1, 4))));
}

/// Persons have room for some records each; where a block's have more, its length is the next that is twice another one.
#[test]
fn a_block_of_persons_is_as_long_as_others_or_twice_as_long() {
    let schema = schema(PERSONS);
    let few = lengths(&schema, (0..10_000).map(|_| (1, 4)));
    assert_eq!(few, lengths(&schema, (0..10_000).map(|unit| (unit % 9, unit % 5))), "four of them on average");
    let usual = few.0[0].2 - 16;
    let one = |records| lengths(&schema, (0..10_000).map(|unit| if unit == 0 { (records, 4) } else { (1, 4) }));
    for (records, times) in [(100, 1), (200, 2), (400, 2), (500, 4)] {
        let (blocks, _) = one(records);
        assert_eq!(blocks[0].2, times * usual + 16, "{records} records of one person");
        assert_eq!(blocks[1..], few.0[1..]);
    }
}
