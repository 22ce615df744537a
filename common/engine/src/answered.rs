//! What an executor remembers of the questions that it answered.
//!
//! # Privacy
//! An answer is sealed, and how long it takes is not: with an old question that he kept, a scheduler could have one block summed as often as he likes, and take the time of it. So an executor answers the
//! newest question about a snapshot only, and opens a block for it as often as the library may compute a part again, and no more. It forgets when it ends.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use dp_pvi_names::Hash;
use dp_pvi_privacy::partial_sums::Question;

/// Times that a part is computed again after its executor was lost.
pub(crate) const AGAIN: usize = 8;

/// Snapshots whose questions are answered: that of the head, and those of heads before it that have not ended long ago.
const SNAPSHOTS: usize = 4;

/// Which question it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Which {
    snapshot: Hash,
    number: u64,
    /// Two questions of one number are not both the head's.
    digest: Hash,
}

impl Which {
    pub(crate) fn of(question: &Question, bytes: &[u8]) -> Self {
        let digest = Hash::of("dp-pvi question that an executor remembers", &[bytes]);
        Self { snapshot: question.snapshot(), number: question.number(), digest }
    }
}

/// A question that is not answered any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// There was a newer one.
    Old,
    /// A block was opened for it too often.
    TooOften,
}

impl std::fmt::Display for Again {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Old => "refused: this question was followed by a newer one",
            Self::TooOften => "refused: a block was summed for this question as often as a part is computed again",
        })
    }
}

/// The newest question of each snapshot.
#[derive(Default)]
pub(crate) struct AnsweredQuestions(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// In the order in which they were first asked about.
    newest: Vec<Newest>,
    /// Snapshots that are over.
    over: HashSet<Hash>,
}

struct Newest {
    which: Which,
    /// How often each block was opened for it, by its first unit.
    opened: HashMap<u64, usize>,
}

impl AnsweredQuestions {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before a block is opened for a question.
    pub(crate) fn claim(&self, which: Which, first: u64) -> Result<(), Again> {
        let mut known = self.known();
        let opened = known.newest(which)?.opened.entry(first).or_default();
        if *opened >= AGAIN {
            return Err(Again::TooOften);
        }
        *opened += 1;
        Ok(())
    }

    /// It was none of the head's blocks.
    pub(crate) fn give_back(&self, which: Which, first: u64) {
        if let Ok(newest) = self.known().newest(which)
            && let Some(opened) = newest.opened.get_mut(&first)
        {
            *opened -= 1;
            if *opened == 0 {
                newest.opened.remove(&first);
            }
        }
    }
}

impl Known {
    fn newest(&mut self, which: Which) -> Result<&mut Newest, Again> {
        let place = match self.newest.iter().position(|newest| newest.which.snapshot == which.snapshot) {
            Some(place) => place,
            None if self.over.contains(&which.snapshot) => return Err(Again::Old),
            None => {
                if self.newest.len() == SNAPSHOTS {
                    let over = self.newest.remove(0);
                    self.over.insert(over.which.snapshot);
                }
                self.newest.push(Newest { which, opened: HashMap::new() });
                self.newest.len() - 1
            }
        };
        let newest = &mut self.newest[place];
        if newest.which.number < which.number {
            *newest = Newest { which, opened: HashMap::new() };
        }
        if newest.which == which { Ok(newest) } else { Err(Again::Old) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn which(snapshot: u8, number: u64) -> Which {
        Which { snapshot: Hash([snapshot; 32]), number, digest: Hash([u8::try_from(number).unwrap_or(0); 32]) }
    }

    #[test]
    fn the_newest_question_is_answered_and_each_block_a_few_times() {
        let asked = AnsweredQuestions::default();
        (0..AGAIN).for_each(|_| assert_eq!(asked.claim(which(0, 1), 32), Ok(())));
        assert_eq!(asked.claim(which(0, 1), 32), Err(Again::TooOften));
        assert_eq!(asked.claim(which(0, 1), 64), Ok(()), "another block");
        let forged = Which { digest: Hash::default(), ..which(0, 1) };
        assert_eq!(asked.claim(forged, 64), Err(Again::Old), "another question of its number");
        assert_eq!(asked.claim(which(0, 2), 32), Ok(()), "a newer question");
        assert_eq!(asked.claim(which(0, 1), 96), Err(Again::Old), "the one before it");
        // What was no block of the head's is not remembered.
        (0..2 * AGAIN).for_each(|_| {
            assert_eq!(asked.claim(which(0, 2), 7), Ok(()));
            asked.give_back(which(0, 2), 7);
        });
        assert!(!asked.known().newest(which(0, 2)).is_ok_and(|newest| newest.opened.contains_key(&7)));
    }

    #[test]
    fn snapshots_of_long_ago_are_over() {
        let asked = AnsweredQuestions::default();
        let snapshots = 0..=u8::try_from(SNAPSHOTS).unwrap_or(u8::MAX);
        snapshots.for_each(|snapshot| assert_eq!(asked.claim(which(snapshot, 0), 0), Ok(())));
        assert_eq!(asked.claim(which(0, 9), 0), Err(Again::Old));
        assert_eq!(asked.claim(which(1, 0), 0), Ok(()));
    }
}
