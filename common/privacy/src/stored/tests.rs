//! A store for tests of the mechanisms, and what becomes of whole tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::records::{Argument, Units};

/// A table whose windows are copies of its units; the disk breaks at a chosen read.
pub(crate) struct Pieces<T> {
    table: T,
    copy: fn(&T, &[usize]) -> T,
    breaks_at: usize,
    pub(crate) reads: Arc<AtomicUsize>,
}

impl<T> Pieces<T> {
    pub(crate) fn of(table: T, copy: fn(&T, &[usize]) -> T) -> Self {
        Self { table, copy, breaks_at: usize::MAX, reads: Arc::default() }
    }

    pub(crate) fn breaking_at(self, read: usize) -> Self {
        Self { breaks_at: read, ..self }
    }
}

impl<T: UnitTable> UnitStore<T> for Pieces<T> {
    fn len(&self) -> usize {
        self.table.len()
    }

    fn whole(&self) -> Result<T, Unread> {
        if self.breaks_at == 0 {
            return Err(Unread(Unreadable::Damaged));
        }
        Ok((self.copy)(&self.table, &(0..self.table.len()).collect::<Vec<_>>()))
    }

    fn reader(&self) -> Box<dyn UnitReader<T> + '_> {
        Box::new(Piece { pieces: self, window: None })
    }
}

struct Piece<'p, T> {
    pieces: &'p Pieces<T>,
    window: Option<T>,
}

impl<T> UnitReader<T> for Piece<'_, T> {
    fn read(&mut self, positions: Positions<'_>) -> Result<&T, Unread> {
        let Pieces { table, copy, breaks_at, reads } = self.pieces;
        if reads.fetch_add(1, Ordering::SeqCst) >= *breaks_at {
            return Err(Unread(Unreadable::Damaged));
        }
        let positions = match positions {
            Positions::Run(run) => run.collect(),
            Positions::Some(some) => some.to_vec(),
        };
        assert!(positions.len() <= WINDOW, "a window has a bound");
        Ok(self.window.insert(copy(table, &positions)))
    }
}

struct Numbers(Vec<f64>);

impl UnitTable for Numbers {
    type Unit<'a> = f64;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn unit(&self, position: usize) -> f64 {
        self.0[position]
    }
}

fn some(table: &Numbers, positions: &[usize]) -> Numbers {
    Numbers(positions.iter().map(|position| table.0[*position]).collect())
}

#[test]
fn a_function_of_the_whole_table_brings_it_into_memory_once() {
    let pieces = Pieces::of(Numbers(vec![1.0, 2.0, 4.0]), some);
    let units = Units::stored(Box::new(pieces));
    assert!(!units.is_in_memory());
    let sum = |units: &Units<Numbers>| units.map(&Argument::nothing(), |(), table: &Numbers| table.0.iter().sum::<f64>());
    assert_eq!(sum(&units).value(), Some(&7.0));
    assert!(units.is_in_memory());
    assert_eq!(sum(&units).value(), Some(&7.0));
    let broken = Units::stored(Box::new(Pieces::of(Numbers(vec![1.0]), some).breaking_at(0)));
    assert_eq!(broken.bring_into_memory(), Err(Unread(Unreadable::Damaged)));
}
