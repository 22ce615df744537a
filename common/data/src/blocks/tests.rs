#![allow(clippy::unwrap_used)]
use std::fs;

use ::parquet::file::reader::SerializedFileReader;
use ::parquet::record::RowAccessor;
use dp_pvi_privacy::danger::assume_public;
use dp_pvi_privacy::{Argument, UnitTable};

use super::*;

fn table(units: u32) -> RecordTable {
    let mut table = RecordTable::builder(3);
    for unit in 0..units {
        table.start_unit();
        (0..unit % 3).for_each(|record| table.push(&[record], &[f64::from(unit)], f64::from(record)).unwrap());
    }
    table.finish()
}

fn written(units: u32, parent: &Path, key: &SiteKey, snapshot: Hash) -> Vec<(i64, i32, Vec<u8>)> {
    let cache = Cache::of(&table(units), tempfile::tempfile().unwrap()).unwrap();
    let folder = folder_of(parent, snapshot);
    write(&cache, &folder, key, snapshot).unwrap();
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
            let seen = assume_public(opened.map(&Argument::nothing(), |(), table: &RecordTable| {
                (0..table.len())
                    .map(|unit| table.unit(unit).records().map(|r| (r.values.to_vec(), r.target)).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            }))
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
