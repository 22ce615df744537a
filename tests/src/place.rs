//! Where the workspace, the reference data and the binaries under test are.

use std::env;
use std::path::{Path, PathBuf};

/// Root of the workspace: the parent of this crate, where cargo says that it is now, so that a moved folder is checked where it is.
///
/// # Panics
/// Never: this crate is a direct child of the root.
#[must_use]
pub fn root() -> PathBuf {
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).parent().expect("the tests crate lies below the workspace root").to_path_buf()
}

/// A file of the reference data, or `None` with a printed message where the data is not beside the workspace.
/// `DP_PVI_SHARED` names another place than `../shared`.
#[must_use]
pub fn shared(relative: &str) -> Option<PathBuf> {
    let base = env::var_os("DP_PVI_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from);
    let file = base.join(relative);
    if file.exists() {
        Some(file)
    } else {
        eprintln!("SKIPPED: {} is missing (DP_PVI_SHARED names the folder that has it)", file.display());
        None
    }
}

/// A file of golden vectors: `reference/NAME` of the reference data where that is there, else the tree's own `tests/vectors/NAME`.
#[must_use]
pub fn vectors(name: &str) -> PathBuf {
    let shared = env::var_os("DP_PVI_SHARED").map_or_else(|| root().join("../shared"), PathBuf::from).join("reference").join(name);
    if shared.exists() { shared } else { root().join("tests/vectors").join(name) }
}

/// A binary of this workspace in the profile under test: beside the running test executable, one folder up.
///
/// # Panics
/// When it was not built; `cargo test --workspace` builds it.
#[must_use]
pub fn binary(name: &str) -> PathBuf {
    // A running test knows its own path: <target>/<profile>/deps/<test>.
    let this = env::current_exe().expect("a running test has a path");
    let profile = this.parent().and_then(Path::parent).expect("tests run from <target>/<profile>/deps");
    let path = profile.join(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo test --workspace --locked`, which builds every binary before it tests",
        path.display()
    );
    path
}
