//! Every fuzz target on its valid inputs, on the kept corpus, and on a bounded number of mutations of both. The mutations are the same in
//! every run; `DP_PVI_FUZZ_FACTOR=100` makes a hundred times as many, and `tests/fuzz` looks for inputs by coverage.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use dp_pvi_simulation::noise::stream;
use dp_pvi_tests::fuzz::{TARGETS, Target};
use dp_pvi_tests::place;
use rand_core::Rng;

fn corpus(target: &Target) -> Vec<Vec<u8>> {
    let folder = place::root().join("tests/fuzz/corpus").join(target.name);
    let Ok(files) = std::fs::read_dir(&folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = files.map(|file| file.expect("the corpus can be read").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))).collect()
}

/// A few small changes: bytes flipped, replaced by edges, removed, repeated, or taken from another input.
fn mutate(input: &[u8], other: &[u8], dice: &mut impl Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=dice.next_u32() % 4 {
        let any = |length: usize, dice: &mut dyn FnMut() -> u32| if length == 0 { 0 } else { dice() as usize % length };
        let mut draw = || dice.next_u32();
        let at = any(bytes.len() + 1, &mut draw);
        match draw() % 7 {
            0 if at < bytes.len() => bytes[at] ^= 1 << (draw() % 8),
            1 if at < bytes.len() => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF, b'"', b'\n', b'0'][draw() as usize % 8],
            2 => bytes.truncate(at),
            3 => drop(bytes.drain(at..(at + 1 + any(8, &mut draw)).min(bytes.len()).max(at))),
            4 => bytes.splice(at..at, (0..=draw() % 9).map(|_| 0xFF)).for_each(drop),
            5 if !other.is_empty() => {
                let from = any(other.len(), &mut draw);
                let to = (from + 1 + any(32, &mut draw)).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied()).for_each(drop);
            }
            _ => bytes.push(draw().to_le_bytes()[0]),
        }
    }
    bytes
}

fn hunt(target: &Target) {
    let factor: u32 = std::env::var("DP_PVI_FUZZ_FACTOR").map_or(1, |factor| factor.parse().expect("DP_PVI_FUZZ_FACTOR is a number"));
    let mut inputs = (target.seeds)();
    inputs.extend(corpus(target));
    let run = |input: &[u8]| {
        let result = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
        if result.is_err() {
            let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
            panic!("{}: this input broke it: {hex}", target.name);
        }
    };
    inputs.iter().for_each(|input| run(input));
    let mut dice = stream(1, &format!("fuzz/{}", target.name), 0);
    for _ in 0..target.mutations.saturating_mul(factor) {
        let pick = |dice: &mut dyn FnMut() -> u32| dice() as usize % inputs.len();
        let (base, other) = (pick(&mut || dice.next_u32()), pick(&mut || dice.next_u32()));
        run(&mutate(&inputs[base], &inputs[other], &mut dice));
    }
}

macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            hunt(TARGETS.iter().find(|target| target.name == stringify!($name)).expect("a target of this name"));
        })*

        #[test]
        fn every_decoder_has_a_target_and_a_program() {
            let tested = [$(stringify!($name)),*];
            for target in TARGETS {
                assert!(tested.contains(&target.name), "{} is not tested here", target.name);
                let program = place::root().join(format!("tests/fuzz/fuzz_targets/{}.rs", target.name));
                assert!(program.exists(), "{} is missing", program.display());
            }
        }
    };
}

targets!(
    wire,
    bodies,
    aggregation,
    events,
    tasks,
    schemas,
    formulas,
    settings,
    identities,
    documents,
    statements,
    descriptions,
    ids,
    records,
    load,
    ledger,
    stored,
    run
);
