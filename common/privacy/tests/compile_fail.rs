//! Every move that the release gate forbids, as programs (in `tests/compile_fail` of the workspace) that must not compile. Few
//! files, because each costs a run of the compiler: one per phase in which the compiler stops (names, types, private fields,
//! moves), since an earlier phase hides the later ones. It lives in this crate so that only this crate's few dependencies are
//! built again for it.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

#[test]
fn forbidden_moves_do_not_compile() {
    trybuild::TestCases::new().compile_fail("../../tests/compile_fail/*.rs");
}

/// A program in a package of its own, which takes this crate as the shipped programs do: without the feature `unsealed`. (Builds of the
/// whole workspace enable it for everybody, so the compiler of this very test cannot be asked.)
struct Shipped {
    folder: PathBuf,
    /// One at a time: they share the folder, so that dependencies are built once.
    _alone: MutexGuard<'static, ()>,
}

static ALONE: Mutex<()> = Mutex::new(());

impl Shipped {
    fn new() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("shipped");
        fs::create_dir_all(folder.join("src/bin")).unwrap();
        let accounting = here.join("../accounting");
        let manifest = format!(
            "[package]\nname = \"shipped\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n[dependencies]\ndp-pvi-privacy = {{ path = {here:?} }}\n\
             dp-pvi-accounting = {{ path = {accounting:?} }}\n"
        );
        fs::write(folder.join("Cargo.toml"), manifest).unwrap();
        // The versions of the workspace, and nothing from a network.
        fs::copy(here.join("../../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
        Self { folder, _alone: alone }
    }

    /// What the compiler says about a program, if it refuses it.
    fn refused(&self, name: &str, program: &str) -> Option<String> {
        fs::write(self.folder.join(format!("src/bin/{name}.rs")), format!("{program}\nfn main() {{}}\n")).unwrap();
        let output = Command::new(env!("CARGO"))
            .args(["check", "--offline", "--quiet", "--bin", name, "--target-dir"])
            .arg(self.folder.join("target"))
            .current_dir(&self.folder)
            .env_remove("RUSTFLAGS")
            .output()
            .unwrap();
        (!output.status.success()).then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

#[test]
fn finding_gate_4_shipped_programs_can_make_no_store_no_noise_and_no_door() {
    let shipped = Shipped::new();
    let uses = "pub use dp_pvi_privacy::ledger::{LedgerStore, RowSigner, file::SqliteLedger};
        pub use dp_pvi_privacy::{NoiseSource, SecureNoise};
        pub fn noise(_: &impl NoiseSource) {}
        pub fn secure() { noise(&SecureNoise) }";
    assert_eq!(shipped.refused("uses", uses), None, "what is shipped compiles");
    let store = "struct Forgets;
        impl dp_pvi_privacy::ledger::LedgerStore for Forgets {
            fn rows(&mut self) -> Result<Vec<dp_pvi_privacy::ledger::StoredRow>, dp_pvi_privacy::ledger::StoreError> { Ok(Vec::new()) }
            fn append(&mut self, _: &dp_pvi_privacy::ledger::StoredRow, _: Option<&dp_pvi_privacy::ledger::Extra>)
                -> Result<(), dp_pvi_privacy::ledger::StoreError> { Ok(()) }
            fn attachment(&mut self, _: &dp_pvi_privacy::ReleaseId) -> Result<Option<Vec<u8>>, dp_pvi_privacy::ledger::StoreError> { Ok(None) }
            fn factor(&mut self, _: &dp_pvi_privacy::RunId) -> Result<Option<Vec<u8>>, dp_pvi_privacy::ledger::StoreError> { Ok(None) }
        }";
    let noise = "struct Replays;
        impl dp_pvi_privacy::NoiseSource for Replays {
            type Stream = <dp_pvi_privacy::SecureNoise as dp_pvi_privacy::NoiseSource>::Stream;
            fn stream(&self, _: &dp_pvi_privacy::ReleaseId, _: u64, _: dp_pvi_privacy::Purpose)
                -> Result<Self::Stream, dp_pvi_privacy::noise::NoRandomness> { dp_pvi_privacy::SecureNoise::fresh() }
        }";
    let signer = "struct Knows;
        impl dp_pvi_privacy::ledger::RowSigner for Knows {
            fn sign(&self, _: &dp_pvi_privacy::Hash) -> Vec<u8> { Vec::new() }
            fn verify(&self, _: &dp_pvi_privacy::Hash, _: &[u8]) -> bool { true }
        }";
    for (name, program) in [("store", store), ("noise", noise), ("signer", signer)] {
        let said = shipped.refused(name, program).unwrap_or_else(|| panic!("{name} compiles"));
        let seals = said.matches("sealed::Sealed` is not satisfied").count();
        assert!(seals > 0 && said.matches("error[").count() == seals, "nothing but the seal refuses {name}: {said}");
    }
    let seal = "struct Forgets; impl dp_pvi_privacy::sealed::Sealed for Forgets {}";
    let said = shipped.refused("seal", seal).expect("the seal cannot be named");
    assert!(said.contains("module `sealed` is private"), "{said}");
    for (name, program) in [("danger", "pub use dp_pvi_privacy::danger;"), ("memory", "pub use dp_pvi_privacy::ledger::memory;")] {
        let said = shipped.refused(name, program).unwrap_or_else(|| panic!("{name} compiles"));
        assert!(said.contains("unresolved import"), "{name}: {said}");
    }
}

#[test]
fn finding_gate_shipped_programs_see_no_panic_and_get_no_permit_from_a_view() {
    let shipped = Shipped::new();
    let panic = "pub fn bit(f: impl FnOnce()) -> bool { dp_pvi_privacy::inside::withheld(f).is_err() }";
    let said = shipped.refused("panic", panic).expect("a panic is one bit");
    assert!(said.contains("function `withheld` is private"), "{said}");
    let mint = |store: &str| {
        format!(
            "use dp_pvi_privacy::ledger::{{file::{store}, LedgerError, RowSigner}};
            use dp_pvi_accounting::DpEvent;
            use dp_pvi_privacy::{{Hash, Ledger, Permit, ReleaseId}};
            pub fn mint<K: RowSigner>(ledger: &mut Ledger<{store}, K>, id: &ReleaseId, event: &DpEvent) -> Result<Permit, LedgerError> {{
                ledger.reserve(id, event, Hash::default())
            }}"
        )
    };
    assert_eq!(shipped.refused("mint", &mint("SqliteLedger")), None);
    let said = shipped.refused("view", &mint("ViewStore")).expect("a view mints");
    assert!(said.contains("reserve") && said.matches("error[").count() == 1, "{said}");
}
