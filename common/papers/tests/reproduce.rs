//! Reproductions in their quick form: every name runs, leaves its three files, goes on where it stopped, and gives the same bytes again.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The data sets of the figures, where they are on this machine.
fn data() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    folder.join("adult/adult.data.gz").is_file().then_some(folder)
}

fn reproduce(name: &str, output: &Path, data: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dp-pvi-papers"));
    let done = command.args(["reproduce", name, "--quick", "--quiet", "--output"]).arg(output).arg("--data").arg(data).output().unwrap();
    assert!(done.status.success(), "{name}: {}", String::from_utf8_lossy(&done.stderr));
    let read = |ending: &str| (ending.to_owned(), std::fs::read(output.join(format!("{name}.{ending}"))).unwrap());
    let files: BTreeMap<_, _> = ["csv", "svg", "md"].map(read).into();
    assert!(files.values().all(|bytes| !bytes.is_empty()), "{name}");
    files
}

#[test]
fn reproductions_without_data_run_and_repeat() {
    for name in ["dp-pvi-table1", "thesis-figure-3.3", "thesis-figure-4.1", "thesis-figure-4.4"] {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        assert_eq!(reproduce(name, one.path(), one.path()), reproduce(name, two.path(), two.path()), "{name}");
    }
}

/// A run that was cut off goes on: cells that are there are not run again, and the result is the same to the last byte.
#[test]
fn a_figure_resumes_and_repeats() {
    let Some(data) = data() else { return };
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let name = "dp-pvi-figure2";
    let first = reproduce(name, one.path(), &data);
    let cells =
        |folder: &Path| -> Vec<PathBuf> { std::fs::read_dir(folder.join("cells")).unwrap().map(|entry| entry.unwrap().path()).collect() };
    let kept = cells(one.path());
    assert!(kept.len() >= 10, "{kept:?}");
    // Half of the cells in another directory, one of them of other settings, one of them cut off.
    std::fs::create_dir(two.path().join("cells")).unwrap();
    for (number, cell) in kept.iter().enumerate().filter(|(number, _)| number % 2 == 0) {
        let mut bytes = std::fs::read(cell).unwrap();
        match number {
            0 => bytes.truncate(bytes.len() / 2),
            2 => bytes = String::from_utf8(bytes).unwrap().replace("\"key\":\"", "\"key\":\"0").into_bytes(),
            _ => {}
        }
        std::fs::write(two.path().join("cells").join(cell.file_name().unwrap()), bytes).unwrap();
    }
    assert_eq!(reproduce(name, two.path(), &data), first);
    for cell in &kept {
        let again = two.path().join("cells").join(cell.file_name().unwrap());
        assert_eq!(std::fs::read(cell).unwrap(), std::fs::read(again).unwrap(), "{}", cell.display());
    }
}

#[test]
fn figures_of_adult_run() {
    let Some(data) = data() else { return };
    for name in ["dp-pvi-figure1", "dp-pvi-figure3", "dp-pvi-figure4"] {
        let folder = tempfile::tempdir().unwrap();
        let files = reproduce(name, folder.path(), &data);
        let report = String::from_utf8(files["md"].clone()).unwrap();
        assert!(report.contains("A quick run") && report.contains("| DP optimisation |"), "{report}");
    }
}
