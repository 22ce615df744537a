//! Sums whose parts other processes make: the same bits, every unit once, and nothing that anyone but the head can read.

use std::sync::{Arc, Mutex};

use super::*;
use crate::partial_sums::{Elsewhere, ExecutorChannel, NoSum, NotAsked, Part, Question, SiteKey};
use crate::records::Argument;

fn key(byte: u8) -> SiteKey {
    SiteKey::new([byte; 32].into())
}

/// Executors in this process: each sums the units of its ranges, one after the other. What is carried is kept.
struct Executors {
    rows: Vec<Vec<(u32, f64)>>,
    mechanism: LatticeSum,
    ranges: Vec<Vec<std::ops::Range<usize>>>,
    key: u8,
    carried: Arc<Mutex<Vec<Vec<u8>>>>,
    spoil: fn(&mut Vec<Vec<u8>>),
}

impl Executors {
    fn answer(&self, question: &Question, ranges: &[std::ops::Range<usize>]) -> Vec<u8> {
        let (argument, ()) = question.argument().unwrap();
        let mut part = Part::new(&SumMechanism::Local(self.mechanism.clone()), question).unwrap();
        for range in ranges {
            let units = Units::new(Rows(self.rows[range.clone()].to_vec()));
            part.add::<_, _, ReleaseError>(&units, range.start as u64, &argument, entries).unwrap();
        }
        part.seal(question).unwrap()
    }
}

impl ExecutorChannel for Executors {
    fn ask(&self, question: &[u8]) -> Result<Vec<Vec<u8>>, NoSum> {
        let opened = Question::open(question, &key(self.key)).map_err(|_| NoSum::Unanswered)?;
        let mut answers: Vec<_> = self.ranges.iter().map(|ranges| self.answer(&opened, ranges)).collect();
        let mut carried = self.carried.lock().unwrap();
        carried.push(question.to_vec());
        carried.extend(answers.iter().cloned());
        (self.spoil)(&mut answers);
        Ok(answers)
    }
}

fn rows(count: usize) -> Vec<Vec<(u32, f64)>> {
    let mut random = ChaCha20Rng::from_seed([7; 32]);
    let mut number = || f64::from(random.next_u32()) / f64::from(1_u32 << 29) - 4.0;
    (0..count).map(|_| (0..3).map(|index| (index, number())).collect()).collect()
}

fn executors(mechanism: &LatticeSum, count: usize, parts: usize) -> Executors {
    let size = count.div_ceil(parts).max(1);
    // The parts come in another order than the units, and each of them in two pieces.
    let pieces = |start: usize| {
        let (end, middle) = ((start + size).min(count), start + (size / 2).min(count - start));
        vec![start..middle, middle..end]
    };
    let ranges = (0..count).step_by(size).map(pieces).rev().collect();
    Executors { rows: rows(count), mechanism: mechanism.clone(), ranges, key: 1, carried: Arc::default(), spoil: |_| {} }
}

fn elsewhere(mechanism: &LatticeSum, count: usize, executors: Executors) -> Result<Vec<i64>, ReleaseError> {
    let units: Units<Rows> = Units::elsewhere(Elsewhere::new(count, Hash::default(), key(1), Box::new(executors)));
    let released = mechanism.release_sum(&units, &Argument::nothing(), entries, permit(mechanism), &Seeded(3))?;
    Ok(released.into_inner().values)
}

#[test]
fn parts_give_the_bits_of_one_process_for_any_number_of_them() {
    for mechanism in [sum(3, 1.0, 2.0, None), sum(3, 1.0, 2.0, None).on(vec![0, 2]).unwrap(), cells(1)] {
        let here = release(&mechanism, &rows(1000), 3);
        // The premise: the sum is more than its noise.
        assert_ne!(here, release(&mechanism, &rows(999), 3));
        for parts in [1, 2, 7, 1000] {
            assert_eq!(elsewhere(&mechanism, 1000, executors(&mechanism, 1000, parts)).unwrap(), here, "{parts} parts");
        }
    }
    let mechanism = sum(3, 1.0, 2.0, None);
    assert_eq!(elsewhere(&mechanism, 0, executors(&mechanism, 0, 1)).unwrap(), release(&mechanism, &[], 3), "no units, no parts");
}

fn cells(cells: u32) -> LatticeSum {
    let (clip, noise) = (ClipNorm::new(1.0).unwrap(), NoiseMultiplier::new(2.0).unwrap());
    LatticeSum::new(3, clip, noise, None, Terms::Cells { cells }, LatticePath::Term).unwrap()
}

/// Executors that would check terms by another rule than the head's event says do not answer.
#[test]
fn a_part_is_checked_by_the_rule_that_the_head_asks_for() {
    struct Asks(Arc<Mutex<Vec<u8>>>);
    impl ExecutorChannel for Asks {
        fn ask(&self, question: &[u8]) -> Result<Vec<Vec<u8>>, NoSum> {
            *self.0.lock().unwrap() = question.to_vec();
            Err(NoSum::Unanswered)
        }
    }
    let (units, three) = (sum(3, 1.0, 2.0, None), [cells(0), cells(1), cells(2)]);
    for (mine, asked) in three.iter().chain([&units]).flat_map(|mine| three.iter().chain([&units]).map(move |asked| (mine, asked))) {
        let question: Arc<Mutex<Vec<u8>>> = Arc::default();
        let away: Units<Rows> = Units::elsewhere(Elsewhere::new(1, Hash::default(), key(1), Box::new(Asks(Arc::clone(&question)))));
        assert!(asked.release_sum(&away, &Argument::nothing(), entries, permit(asked), &Seeded(3)).is_err());
        let question = Question::open(&question.lock().unwrap(), &key(1)).unwrap();
        let part = Part::new(&SumMechanism::Local(mine.clone()), &question);
        assert_eq!(part.err(), (mine != asked).then_some(NotAsked::OtherSum));
    }
}

#[test]
fn every_unit_counts_once_or_nothing_is_released() {
    let mechanism = sum(3, 1.0, 2.0, None);
    let spoiled = |spoil: fn(&mut Vec<Vec<u8>>)| {
        let refused = elsewhere(&mechanism, 100, Executors { spoil, ..executors(&mechanism, 100, 4) }).unwrap_err();
        let ReleaseError::NoSum(why) = refused else { panic!("{refused}") };
        why
    };
    let twice = |answers: &mut Vec<Vec<u8>>| answers.push(answers[2].clone());
    assert_eq!(spoiled(twice), NoSum::Incomplete, "a part that came twice");
    assert_eq!(spoiled(|answers| answers.truncate(3)), NoSum::Incomplete, "a part that is missing");
    assert_eq!(spoiled(Vec::clear), NoSum::Incomplete);
    assert_eq!(spoiled(|answers| answers[1][40] ^= 1), NoSum::Foreign, "a bit on the way");
    assert_eq!(spoiled(|answers| answers[1].truncate(20)), NoSum::Foreign);
    let more = elsewhere(&mechanism, 101, executors(&mechanism, 100, 4)).unwrap_err();
    assert!(matches!(more, ReleaseError::NoSum(NoSum::Incomplete)), "{more}");
    let fewer = elsewhere(&mechanism, 99, executors(&mechanism, 100, 4)).unwrap_err();
    assert!(matches!(fewer, ReleaseError::NoSum(NoSum::Incomplete)), "{fewer}");
}

#[test]
fn only_the_head_that_asked_opens_an_answer_and_only_it_can_ask() {
    let mechanism = sum(3, 1.0, 2.0, None);
    let carried = Arc::default();
    let keeping = |executors: Executors| Executors { carried: Arc::clone(&carried), ..executors };
    elsewhere(&mechanism, 10, keeping(executors(&mechanism, 10, 1))).unwrap();
    elsewhere(&mechanism, 10, keeping(executors(&mechanism, 10, 1))).unwrap();
    let carried: Vec<Vec<u8>> = carried.lock().unwrap().clone();
    let [first, old, second, new] = &*carried else { panic!("two questions and two answers") };
    assert_ne!(first, second);
    assert_ne!(old, new);
    // One range, three integers; an encapsulated key and a tag. The length tells no value.
    assert!(old.len() == 32 + 8 + 16 + 3 * 8 + 16 && old.len() == new.len());
    let refused = |key: &SiteKey, question: &[u8]| Question::open(question, key).err();
    assert_eq!(refused(&key(1), first), None);
    assert_eq!(refused(&key(2), first), Some(NotAsked::Foreign), "another site's key");
    let mut changed = first.clone();
    changed[30] ^= 1;
    assert_eq!(refused(&key(1), &changed), Some(NotAsked::Foreign));
    assert_eq!(refused(&key(1), &first[..5]), Some(NotAsked::Foreign));
    // The answer to an earlier question is none to this one: its key is gone.
    struct Replay(Vec<u8>);
    impl ExecutorChannel for Replay {
        fn ask(&self, _: &[u8]) -> Result<Vec<Vec<u8>>, NoSum> {
            Ok(vec![self.0.clone()])
        }
    }
    let units: Units<Rows> = Units::elsewhere(Elsewhere::new(10, Hash::default(), key(1), Box::new(Replay(old.clone()))));
    let replayed = mechanism.release_sum(&units, &Argument::nothing(), entries, permit(&mechanism), &Seeded(3));
    assert!(matches!(replayed, Err(ReleaseError::NoSum(NoSum::Foreign))));
    // Executors with another key do not answer; and what a foreign process seals is not taken.
    let foreign = elsewhere(&mechanism, 10, Executors { key: 2, ..executors(&mechanism, 10, 1) });
    assert!(matches!(foreign, Err(ReleaseError::NoSum(NoSum::Unanswered))));
}

#[test]
fn questions_about_a_snapshot_are_numbered() {
    let mechanism = sum(3, 1.0, 2.0, None);
    let carried: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
    let executors = Executors { carried: Arc::clone(&carried), ..executors(&mechanism, 10, 1) };
    let units: Units<Rows> = Units::elsewhere(Elsewhere::new(10, Hash::default(), key(1), Box::new(executors)));
    for _ in 0..3 {
        mechanism.release_sum(&units, &Argument::nothing(), entries, permit(&mechanism), &Seeded(3)).unwrap();
    }
    // Each is followed by its one answer.
    let numbers: Vec<u64> =
        carried.lock().unwrap().iter().step_by(2).map(|asked| Question::open(asked, &key(1)).unwrap().number()).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

#[test]
fn an_executor_clips_as_the_question_says_or_answers_nothing() {
    let mechanism = sum(3, 1.0, 2.0, None);
    let carried = Arc::default();
    elsewhere(&mechanism, 10, Executors { carried: Arc::clone(&carried), ..executors(&mechanism, 10, 1) }).unwrap();
    let question = Question::open(&carried.lock().unwrap()[0], &key(1)).unwrap();
    for other in [sum(3, 2.0, 2.0, None), sum(3, 2.0, 1.0, None), sum(4, 1.0, 2.0, None), sum(3, 1.0, 5.0, None)] {
        assert_eq!(Part::new(&SumMechanism::Local(other), &question).err(), Some(NotAsked::OtherSum));
    }
    assert!(Part::new(&SumMechanism::Local(mechanism), &question).is_ok());
}

#[test]
fn what_is_no_plain_sum_over_all_units_is_refused() {
    let sampled = sum(3, 1.0, 2.0, Some(0.5));
    let refused = elsewhere(&sampled, 10, executors(&sampled, 10, 1));
    assert!(matches!(refused, Err(ReleaseError::NoSum(NoSum::Unfit))));
    let mechanism = sum(3, 1.0, 2.0, None);
    let units: Units<Rows> = Units::elsewhere(Elsewhere::new(10, Hash::default(), key(1), Box::new(executors(&mechanism, 10, 1))));
    let kept = mechanism.release_sum_keeping(&units, &Sensitive::NOTHING, &Argument::nothing(), entries, permit(&mechanism), &Seeded(3));
    assert!(matches!(kept, Err(ReleaseError::NoSum(NoSum::Unfit))));
    let state = Sensitive::of(3.0);
    let entries_of = |(): &(), sum: Summation<'_, Rows, f64>| Ok(sum.each(|row, _, _, term| fill(row, term)));
    let with = mechanism.release_sum_with(&units, &state, &Argument::nothing(), entries_of, permit(&mechanism), &Seeded(3));
    assert!(matches!(with, Err(ReleaseError::NoSum(NoSum::Unfit))), "a private state");
    assert!(units.bring_into_memory().is_err(), "the records are not here");
}
