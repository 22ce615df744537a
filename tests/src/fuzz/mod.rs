//! Targets for fuzzing: every decoder that faces a peer or a file, and a whole run whose peers say what the input says.
//!
//! A target is a function of bytes that must not panic, and must not take more time or memory than its input deserves. Each comes with
//! valid inputs to begin from. `tests/tests/federation/fuzz.rs` runs all of them on these, on the kept corpus and on a bounded number of mutations;
//! `tests/fuzz` runs them under coverage guidance:
//!
//! ```text
//! tests/fuzz/run.sh [SECONDS] [TARGET…]
//! ```
//!
//! An input that broke something is kept in `tests/fuzz/corpus/TARGET`, which the tests read.

mod aggregated;
mod files;
mod given;
mod load;
mod messages;
mod run;
mod stored;

/// A function of bytes that must not panic.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name: that of its corpus folder and of its program in `tests/fuzz`.
    pub name: &'static str,
    /// Valid inputs to begin from.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Takes one input.
    pub run: fn(&[u8]),
    /// Mutations in an ordinary test run: fewer where an input writes files.
    pub mutations: u32,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "wire", seeds: messages::frames, run: messages::wire, mutations: 20_000 },
    Target { name: "bodies", seeds: messages::bodies, run: messages::read_bodies, mutations: 20_000 },
    Target { name: "aggregation", seeds: messages::aggregated, run: messages::aggregation, mutations: 20_000 },
    Target { name: "events", seeds: messages::events, run: messages::read_events, mutations: 5_000 },
    Target { name: "tasks", seeds: files::tasks, run: files::read_tasks, mutations: 500 },
    Target { name: "schemas", seeds: files::schemas, run: files::read_schemas, mutations: 2_000 },
    Target { name: "formulas", seeds: files::formulas, run: files::read_formulas, mutations: 20_000 },
    Target { name: "settings", seeds: files::settings, run: files::read_settings, mutations: 2_000 },
    Target { name: "identities", seeds: files::identities, run: files::read_identities, mutations: 2_000 },
    Target { name: "documents", seeds: files::documents, run: files::read_documents, mutations: 300 },
    Target { name: "statements", seeds: given::statements, run: given::read_statements, mutations: 500 },
    Target { name: "descriptions", seeds: given::descriptions, run: given::read_descriptions, mutations: 2_000 },
    Target { name: "ids", seeds: given::ids, run: given::read_ids, mutations: 20_000 },
    Target { name: "records", seeds: files::records, run: files::read_records, mutations: 1_000 },
    Target { name: "load", seeds: load::seeds, run: load::load, mutations: 1_000 },
    Target { name: "ledger", seeds: stored::ledgers, run: stored::read_ledgers, mutations: 1_000 },
    Target { name: "stored", seeds: stored::stored, run: stored::read_stored, mutations: 1_000 },
    Target { name: "run", seeds: run::seeds, run: run::run, mutations: 300 },
];

/// Writes the valid inputs of the target of this name into the folder that `DP_PVI_FUZZ_CORPUS` names, if it names one: coverage guidance begins
/// from them.
///
/// # Panics
/// There is no target of this name, or the folder cannot be written.
pub fn write_seeds(name: &str) {
    let Some(folder) = std::env::var_os("DP_PVI_FUZZ_CORPUS").map(std::path::PathBuf::from) else { return };
    let target = TARGETS.iter().find(|target| target.name == name).unwrap_or_else(|| panic!("no fuzz target is called {name}"));
    for (number, seed) in (target.seeds)().iter().enumerate() {
        std::fs::write(folder.join(format!("valid-{number}")), seed).expect("the corpus folder takes it");
    }
}

/// Runs the target of this name, if it exists.
///
/// # Panics
/// There is none of this name; or the target found something.
pub fn run_named(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("no fuzz target is called {name}")).run)(input);
}

/// Bytes that are read from the front; after the end everything is 0.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().map_or((0, &[][..]), |(first, rest)| (*first, rest));
        self.0 = rest;
        first
    }

    fn take(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn word(&mut self) -> u64 {
        let mut word = [0; 8];
        let taken = self.take(8);
        word[..taken.len()].copy_from_slice(taken);
        u64::from_le_bytes(word)
    }

    /// A number near one of the edges of its type, or any.
    fn number(&mut self) -> u64 {
        match self.byte() % 12 {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => i64::MAX as u64,
            4 => i64::MIN as u64,
            5 => u64::from(u32::MAX),
            6 => u64::from(u32::MAX) + 1,
            7 => 100,
            8 => (-1_i64) as u64,
            9 => f64::NAN.to_bits(),
            10 => f64::MAX.to_bits(),
            _ => self.word(),
        }
    }
}
