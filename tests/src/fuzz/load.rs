//! A site's files as they are read in a run: tables in every form, documents and images. Whatever a record holds, reading goes on.

use dp_pvi_data::{DataError, load_for_run};
use dp_pvi_schema::Schema;

use super::{Input, files};

const PERSONS: &str = "unit_column = \"p\"\n[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n\
    [[columns]]\nname = \"a\"\nkind = \"category\"\nvalues = [\"u\", \"v\"]\nmissing = \"zero\"\n";
const DOCWORD: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 4\ndocument_length = 10\n";
const TEXT: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"text\"\nvocabulary = [\"war\", \"peace\"]\ndocument_length = 6\n";
const IMAGE: &str = "kind = \"binary-image\"\n[binary_image]\nwidth = 3\nheight = 2\nthreshold = 127\n";

/// Schema and file name of every content.
const CONTENTS: [(&str, &str); 7] = [
    (files::SCHEMA, "a.csv"),
    (files::SCHEMA, "a.csv.gz"),
    (files::SCHEMA, "a.parquet"),
    (PERSONS, "p.csv"),
    (DOCWORD, "docword.txt"),
    (TEXT, "text.txt"),
    (IMAGE, "images.idx"),
];

fn marked(mark: u8, bytes: impl AsRef<[u8]>) -> Vec<u8> {
    [&[mark], bytes.as_ref()].concat()
}

/// A file of every content, each after its number.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    use std::io::Write;
    let table = "a,y\n0.5,1\n-1,0\n\"x\",1\n,\n#,\n\n";
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let gz = gz.write_all(table.as_bytes()).and_then(|()| gz.finish()).expect("memory takes it");
    let head: Vec<u8> = [2051_u32, 2, 2, 3].iter().flat_map(|number| number.to_be_bytes()).collect();
    let images = [head, vec![0, 127, 128, 255, 1, 200, 9, 0, 250, 0, 0, 0]].concat();
    vec![
        marked(0, table),
        marked(1, gz),
        marked(2, parquet()),
        marked(3, "p,a,y\n1,u,1\n1,v,0\n2,,1\n,u,0\n"),
        marked(4, "4\n4\n5\n1 1 3\n1 4 1\n3 2 2\n3 1 1\n3 2 1\n"),
        marked(5, "war war peace\n\npeace\n"),
        marked(6, images),
    ]
}

/// The table as a Parquet file, with a cell that is missing.
fn parquet() -> Vec<u8> {
    use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
    use parquet::errors::ParquetError;
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::SerializedFileWriter;
    let write = || -> Result<Vec<u8>, ParquetError> {
        let message = parquet::schema::parser::parse_message_type("message m { OPTIONAL DOUBLE a; REQUIRED BYTE_ARRAY y (STRING); }")?;
        let mut writer = SerializedFileWriter::new(Vec::new(), message.into(), WriterProperties::builder().build().into())?;
        let mut group = writer.next_row_group()?;
        let mut column = group.next_column()?.expect("the first column");
        column.typed::<DoubleType>().write_batch(&[0.5, 3.0], Some(&[1, 0, 1]), None)?;
        column.close()?;
        let mut column = group.next_column()?.expect("the second column");
        column.typed::<ByteArrayType>().write_batch(&["1", "0", "x"].map(ByteArray::from), None, None)?;
        column.close()?;
        group.close()?;
        writer.into_inner()
    };
    write().expect("memory takes it")
}

/// Reads a file as a run does: it ends, and what stops it is the file as a whole, never a record.
pub(super) fn load(bytes: &[u8]) {
    let mut input = Input(bytes);
    let (schema, name) = CONTENTS[usize::from(input.byte()) % CONTENTS.len()];
    let schema = Schema::parse(schema).expect("the schema is valid");
    let file = files::written(name, input.0);
    let loaded = load_for_run(&schema, &[&file], &[7; 32]);
    if let Err(error @ (DataError::Cell { .. } | DataError::Line { .. })) = loaded {
        panic!("a record stopped a run: {error}")
    }
    std::fs::remove_file(&file).expect("it was written above");
}
