//! Ids that differ so little that a person would ask whether they are one.

use std::collections::HashMap;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use dp_pvi_schema::text;

/// Pairs that are listed.
const LISTED: usize = 10;

/// Where a unit's first record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Position of the file in the list, from 1.
    pub file: usize,
    /// Row from 1.
    pub row: u64,
}

/// Units whose ids are near another's ([`text::near`]). If they are the same persons, each of them is several units, and what is promised for one unit does not hold for the person.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Near {
    /// How many there are.
    pub units: u64,
    /// Two such units by their first records, for the first of them.
    pub places: Vec<(Place, Place)>,
}

impl Near {
    /// Looks through all ids.
    pub(crate) fn of<'i>(ids: impl Iterator<Item = (&'i [u8], Place)>) -> Self {
        let mut ids: Vec<(Place, u64)> = ids
            .map(|(id, place)| {
                let mut hash = DefaultHasher::new();
                text::near(&String::from_utf8_lossy(id)).hash(&mut hash);
                (place, hash.finish())
            })
            .collect();
        ids.sort_unstable();
        let mut first: HashMap<u64, (Place, bool)> = HashMap::with_capacity(ids.len());
        let mut near = Self::default();
        for (place, hash) in ids {
            let Some((other, counted)) = first.get_mut(&hash) else {
                first.insert(hash, (place, false));
                continue;
            };
            near.units += if std::mem::replace(counted, true) { 1 } else { 2 };
            if near.places.len() < LISTED {
                near.places.push((*other, place));
            }
        }
        near
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.units == 0
    }
}

/// One line. No id is in it.
impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} units have an id that differs from another's in capital letters, blanks, punctuation, leading zeros, the Unicode form or the spelling of a number alone. If they are the same persons, each of \
             them counts as several units and the privacy of one unit is not that of the person: write each id in one way. The first, by their first records:",
            self.units
        )?;
        for (position, (one, two)) in self.places.iter().enumerate() {
            let comma = if position > 0 { ";" } else { "" };
            write!(f, "{comma} file {}, row {} and file {}, row {}", one.file, one.row, two.file, two.row)?;
        }
        Ok(())
    }
}
