//! A damaged Parquet file is an error, never a panic: the `parquet` library reports some damage by
//! panicking, which the loader turns into an error.

use dp_pvi_data::load;
use dp_pvi_schema::Schema;
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

const SCHEMA: &str = r#"
[[columns]]
name = "x"
kind = "number"
lower = 0
upper = 1
centre = 0
scale = 1
missing = "centre"
[[columns]]
name = "y"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

fn file() -> Vec<u8> {
    let message = parse_message_type("message m { OPTIONAL DOUBLE x; REQUIRED BYTE_ARRAY y (STRING); }").unwrap();
    let mut writer = SerializedFileWriter::new(Vec::new(), Arc::new(message), Arc::new(WriterProperties::builder().build())).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<DoubleType>().write_batch(&[0.25, 0.5], Some(&[1, 0, 1]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<ByteArrayType>().write_batch(&["yes", "no", "no"].map(ByteArray::from), None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.into_inner().unwrap()
}

#[test]
fn no_damaged_byte_panics() {
    let schema = Schema::asking("y ~ .", SCHEMA).unwrap();
    let bytes = file();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged.parquet");
    let mut tables = Vec::new();
    for position in 0..bytes.len() {
        for mask in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[position] ^= mask;
            std::fs::write(&path, damaged).unwrap();
            tables.push(std::panic::catch_unwind(|| load(&schema, &[&path]).is_ok()).map_err(|_| (position, mask)));
        }
    }
    let tables: Result<Vec<bool>, _> = tables.into_iter().collect();
    let tables = tables.expect("the loader panicked at this byte and mask");
    std::fs::write(&path, &bytes).unwrap();
    assert!(load(&schema, &[&path]).is_ok());
    // Some bytes are padding, statistics or values; most are structure.
    let refused = tables.iter().filter(|loaded| !**loaded).count();
    assert!(refused > tables.len() / 4, "only {refused} of {} damaged files were refused", tables.len());
}
