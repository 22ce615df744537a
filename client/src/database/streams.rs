//! The rows of several sources side by side, person by person. Each source comes ordered by the person's key, so that one person's rows of every source
//! are in memory at a time.

use std::cmp::Ordering;

use tokio_postgres::SimpleQueryRow;

use super::catalogue::Planned;
use super::columns::Text;
use super::connection::{BATCH, Connection};
use super::person::Record;
use crate::error::{ClientError, Result};
use dp_pvi_description::family::Family;

/// Bytes of the rows of one person, in all sources, with what the program needs to hold them.
pub(super) const LONGEST_PERSON: usize = 1 << 30;

/// What a row and a cell take in memory beside their text.
const HELD: usize = 48;
/// Rows of the first answer.
const FIRST_BATCH: usize = 64;
/// Bytes of an answer below which more rows are asked for, and above which fewer.
const SHORT_ANSWER: usize = 1 << 20;
const LONG_ANSWER: usize = 1 << 22;

/// A person's key, in the order in which the database gives it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    Number(i64),
    /// By bytes.
    Text(Box<str>),
}

impl Key {
    /// As it is written.
    pub(super) fn text(&self) -> Box<str> {
        match self {
            Self::Number(number) => number.to_string().into(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// A cursor over the rows of a source.
pub(super) struct Stream<'a> {
    planned: &'a Planned,
    cursor: String,
    /// Rows that came and are not taken, the last first.
    waiting: Vec<(Key, Record)>,
    last: Option<Key>,
    /// Rows that are asked for at once: fewer where they are long.
    batch: usize,
    ended: bool,
}

impl<'a> Stream<'a> {
    /// Declares the cursor of the source at this place.
    ///
    /// # Errors
    /// See [`super::fetch`].
    pub(super) async fn open(connection: &Connection, planned: &'a Planned, place: usize) -> Result<Self> {
        let cursor = format!("source{place}");
        connection.execute(&format!("DECLARE {cursor} NO SCROLL CURSOR FOR {}", planned.select)).await?;
        Ok(Self { planned, cursor, waiting: Vec::new(), last: None, batch: FIRST_BATCH, ended: false })
    }

    /// The key of the next row.
    ///
    /// # Errors
    /// See [`super::fetch`].
    pub(super) async fn next_key(&mut self, connection: &Connection) -> Result<Option<&Key>> {
        if self.waiting.is_empty() && !self.ended {
            let (answer, bytes) = connection.measured(&format!("FETCH FORWARD {} FROM {}", self.batch, self.cursor)).await?;
            self.batch = match bytes {
                0..SHORT_ANSWER => (self.batch * 2).min(BATCH),
                SHORT_ANSWER..LONG_ANSWER => self.batch,
                _ => (self.batch / 8).max(1),
            };
            let mut rows = Vec::with_capacity(answer.len());
            for row in &answer {
                let (key, record) = self.read(connection, row)?;
                // The order is asked for, and nothing is right without it.
                if self.last.as_ref().is_some_and(|last| *last > key) {
                    return Err(ClientError::Failed("the database gives keys in another order than was asked for".into()));
                }
                self.last = Some(key.clone());
                rows.push((key, record));
            }
            self.ended = rows.is_empty();
            rows.reverse();
            self.waiting = rows;
        }
        Ok(self.waiting.last().map(|(key, _)| key))
    }

    fn read(&self, connection: &Connection, row: &SimpleQueryRow) -> Result<(Key, Record)> {
        let cell = |place: usize| row.try_get(place).map_err(|e| connection.failed(&e));
        let unlike = || ClientError::Failed("the database gives a key that is not of its column's type".into());
        let key = cell(0)?.ok_or_else(unlike)?;
        let key = match self.planned.key {
            Family::Integer => Key::Number(key.parse().map_err(|_| unlike())?),
            _ => Key::Text(key.into()),
        };
        let mut record = Record::with_capacity(self.planned.cells.len());
        for (place, (text, _)) in self.planned.cells.iter().enumerate() {
            record.push(cell(place + 1)?.map(|cell| Text::read(*text, cell).into()));
        }
        Ok((key, record))
    }

    /// Takes the rows with this key and their bytes, at most so many, after those of smaller keys, which are no one's.
    ///
    /// # Errors
    /// See [`super::fetch`].
    pub(super) async fn take(&mut self, connection: &Connection, key: &Key, most: usize) -> Result<(Vec<Record>, usize)> {
        let (mut rows, mut bytes) = (Vec::new(), 0_usize);
        while let Some(order) = self.next_key(connection).await?.map(|next| next.cmp(key)) {
            if order == Ordering::Greater {
                break;
            }
            if let Some((_, record)) = self.waiting.pop()
                && order == Ordering::Equal
            {
                bytes += HELD + record.iter().map(|cell| HELD + cell.as_ref().map_or(0, |cell| cell.len())).sum::<usize>();
                rows.push(record);
            }
            if bytes > most {
                return Err(ClientError::Unavailable(
                    format!("one person's rows take more than {LONGEST_PERSON} bytes: narrow the source that has them by `where`").into(),
                ));
            }
        }
        Ok((rows, bytes))
    }
}
