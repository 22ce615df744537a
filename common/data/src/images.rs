//! Images in IDX files (plain or gzip), made black and white by the schema's public threshold. Every image is a unit; labels are not read.

use crate::LocalCounts;
use crate::assemble::{Assembled, Predicted};
use crate::encode::Purpose;
use crate::error::{DataError, ImageProblem};
use crate::screen::Screen;
use crate::source::{RecordFile, Start, open_plain};
use dp_pvi_records::RecordTable;
use dp_pvi_schema::content::ImageRule;
use std::io::{BufReader, ErrorKind, Read};
use std::path::Path;

/// Unsigned bytes in three dimensions.
const MAGIC: u32 = 0x0000_0803;

/// Reads all images of all files. Every pixel is a number that the schema has a use for, so there is nothing to reject in an image: what
/// can be wrong is the header, and the length of the file.
pub(crate) fn load(rule: &ImageRule, files: &[impl RecordFile], purpose: Purpose) -> Result<Assembled, DataError> {
    if files.is_empty() {
        return Err(DataError::NoFiles);
    }
    let pixels = rule.width as usize * rule.height as usize;
    let mut table = RecordTable::builder(pixels);
    let mut counts = LocalCounts { units: 0, records: 0, dropped: 0 };
    let mut image = vec![0u8; pixels];
    let ones = vec![1.0; pixels];
    let mut indices = Vec::with_capacity(pixels);
    for source in files {
        let path = source.name();
        let mut file = File { path, reader: BufReader::with_capacity(1 << 16, open_plain(source, Start::Header)?), image: 0 };
        if file.number()? != MAGIC {
            return Err(file.fault(ImageProblem::NotImages));
        }
        let [count, height, width] = [file.number()?, file.number()?, file.number()?];
        if (width, height) != (rule.width, rule.height) {
            return Err(file.fault(ImageProblem::OtherSize));
        }
        if count == 0 && purpose != Purpose::Run {
            return Err(DataError::Empty { path: path.to_owned() });
        }
        for number in 1..=count {
            file.image = number;
            file.fill(&mut image)?;
            indices.clear();
            indices.extend((0_u32..).zip(&image).filter(|(_, pixel)| **pixel > rule.threshold).map(|(place, _)| place));
            table.start_unit();
            table.push(&indices, &ones[..indices.len()], 0.0)?;
        }
        if file.has_more()? {
            return Err(file.fault(ImageProblem::TooLong));
        }
        counts.units += u64::from(count);
    }
    counts.records = counts.units;
    Ok(Assembled { table: table.finish(), counts, predicted: Predicted::default(), screen: Screen::of_all(counts.records) })
}

struct File<'a> {
    path: &'a Path,
    reader: BufReader<Box<dyn Read>>,
    /// Number of the image that is being read, from 1; 0 in the header.
    image: u32,
}

impl File<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), DataError> {
        match self.reader.read_exact(bytes) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(self.fault(ImageProblem::Truncated)),
            Err(source) => Err(DataError::Io { path: self.path.to_owned(), source }),
        }
    }

    fn number(&mut self) -> Result<u32, DataError> {
        let mut bytes = [0; 4];
        self.fill(&mut bytes)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn has_more(&mut self) -> Result<bool, DataError> {
        let read = self.reader.read(&mut [0]).map_err(|source| DataError::Io { path: self.path.to_owned(), source })?;
        Ok(read > 0)
    }

    fn fault(&self, problem: ImageProblem) -> DataError {
        DataError::Image { path: self.path.to_owned(), image: self.image, problem }
    }
}
