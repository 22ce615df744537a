//! A store that gives back other bytes than it got: every change is noticed, or changes nothing.

use std::path::Path;

use crate::support::{Fed, Plan, Process};
use dp_pvi_protocol::message::Signed;
use dp_pvi_server::config::Config;
use dp_pvi_server::{ServerError, export};

/// A stopped server's folder with two closed rounds of two sites, and one update of the open round.
async fn two_rounds(fed: &Fed) {
    let server = fed.start().await;
    let (mut a, mut b) = (fed.member("a").join(server.address).await, fed.member("b").join(server.address).await);
    let mut eve = fed.member("eve").join(server.address).await;
    for round in 0..2 {
        for site in [&mut a, &mut b] {
            let start = site.round().await;
            let values: Vec<f64> = (0..site.coordinates).map(|i| f64::from(u32::try_from(i).unwrap()).sin()).collect();
            site.send(&start, &values).await.unwrap();
        }
        eve.report(round + 1).await.unwrap();
    }
    let start = a.round().await;
    a.send(&start, &vec![1.0; a.coordinates]).await.unwrap();
    server.terminate().await;
}

fn document(config: &Config) -> Result<String, ServerError> {
    export::posterior(config).map(|document| document.to_json())
}

/// Everything that is written: posterior, report (with metrics and refusals), transcript.
fn results(config: &Config, folder: &Path) -> Result<[String; 3], ServerError> {
    let (exported, transcript) = (export::export(config, folder)?, folder.join("transcript.jsonl"));
    export::export_transcript(config, &transcript)?;
    Ok([exported.posterior, exported.report, transcript].map(|file| std::fs::read_to_string(file).unwrap()))
}

/// Where bytes are in a file.
fn places(file: &[u8], bytes: &[u8]) -> Vec<usize> {
    (0..file.len() - bytes.len()).filter(|at| file[*at..].starts_with(bytes)).collect()
}

/// Bytes are changed one at a time: bit 0 or 7 or all of them, every byte of the pages with the vector. `export` fails, or tells the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_changed_byte_changes_an_exported_coefficient() {
    let fed = Fed::new(2, &Plan { columns: 40, rounds: 4, ..Plan::default() });
    two_rounds(&fed).await;
    let config = fed.config();
    let before = document(&config).unwrap();
    let (out, mut whole) = (fed.path("compared"), 0);
    let all_before = results(&config, &out).unwrap();
    let path = &config.store.database;
    assert!(!path.with_extension("db-wal").exists(), "everything is in the one file");
    let good = std::fs::read(path).unwrap();
    let lambda = export::posterior(&config).unwrap().natural_parameters;
    let vector: Vec<u8> = lambda.iter().flat_map(|x| x.to_le_bytes()).collect();
    let at = places(&good, &vector)[0];
    let (mut noticed, mut inert, mut in_vector) = (0, 0, 0);
    let mut flip = |at: usize, bits: u8| {
        let mut bad = good.clone();
        bad[at] ^= bits;
        std::fs::write(path, &bad).unwrap();
        match document(&config) {
            Ok(after) => {
                assert_eq!(after, before, "byte {at} with {bits:#x}");
                inert += 1;
                // The other files take longer to write: of the changes that are not noticed every 16th.
                if inert % 16 == 0 {
                    assert_eq!(results(&config, &out).unwrap(), all_before, "byte {at} with {bits:#x}");
                    whole += 1;
                }
            }
            Err(error) => {
                assert!([2, 4, 7, 11, 12].contains(&error.code()), "{error}");
                noticed += 1;
                if noticed % 64 == 0 {
                    assert!(results(&config, &out).is_err(), "byte {at} with {bits:#x}");
                }
            }
        }
    };
    // The pages of the vector, whole; of the other pages every 23rd byte.
    let page = 4096;
    let pages = (at / page) * page..((at + vector.len()) / page + 1) * page;
    for place in 0..good.len() {
        if pages.contains(&place) || place % 23 == 0 {
            flip(place, [0x01, 0x80, 0xff][place % 3]);
        }
    }
    for place in at..at + vector.len() {
        let mut bad = good.clone();
        bad[place] ^= 0x10;
        std::fs::write(path, &bad).unwrap();
        assert!(matches!(document(&config), Err(ServerError::Corrupt(_))), "byte {place} of the vector");
        in_vector += 1;
    }
    assert!(noticed > 1000 && in_vector == vector.len() && whole > 0, "{noticed} noticed, {inert} without effect, {whole} compared whole");
    println!("{noticed} changed bytes noticed, {inert} without effect");
    // The program says so, by its code.
    let mut bad = good.clone();
    bad[at + 3] ^= 1;
    std::fs::write(path, &bad).unwrap();
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
        .args(["export", "--config"])
        .arg(fed.config_path())
        .args(["-o".as_ref(), fed.path("out").as_os_str()])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(11));
    assert!(String::from_utf8_lossy(&output.stderr).contains("damaged") && !fed.path("out/posterior.json").exists());
    std::fs::write(path, &good).unwrap();
    assert_eq!(document(&config).unwrap(), before);
}

fn swap(file: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = std::fs::read(file).unwrap();
    let found = places(&bytes, from);
    assert!(!found.is_empty());
    for at in found {
        bytes[at..at + from.len()].copy_from_slice(to);
    }
    std::fs::write(file, bytes).unwrap();
}

/// One byte of an update that waits for its round, small (in the database) or large (a file): the sum is not made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_payload_ends_the_server_and_not_the_posterior() {
    for columns in [40, 6000] {
        let fed = Fed::new(2, &Plan { columns, rounds: 4, ..Plan::default() });
        two_rounds(&fed).await;
        let config = fed.config();
        let coordinates = fed.task().family().len();
        let (from, to) = (1.0_f64.to_le_bytes().repeat(8), [&1e9_f64.to_le_bytes()[..], &1.0_f64.to_le_bytes().repeat(7)].concat());
        if coordinates * 8 > 65_536 {
            let folder = std::fs::read_dir(config.state.join("rounds")).unwrap().next().unwrap().unwrap().path();
            let payloads: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            let open = payloads.iter().find(|file| std::fs::read(file).unwrap().starts_with(&from)).unwrap();
            swap(open, &from, &to);
        } else {
            swap(&config.store.database, &from, &to);
        }
        let before = document(&config).unwrap();
        let server = Process::spawn(&fed, &[]);
        let mut b = fed.member("b").join(server.address).await;
        let start = b.round().await;
        let (update, bytes) = b.update(&start, &vec![1.0; coordinates]);
        let _ = b.submit(&Signed::seal(&update, &b.member.identity), &bytes).await;
        assert_eq!(server.exit_code(), Some(11), "{columns} columns");
        assert_eq!(document(&config).unwrap(), before);
    }
}

/// What a server wrote may be other bytes when it reads them again, without a restart in between: they are held against the signed update at the
/// moment in which they are summed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_change_under_a_running_server_are_noticed_where_they_are_used() {
    // So many that a payload is a file of its own: small ones stay in memory until their round is closed.
    let fed = Fed::new(2, &Plan { columns: 6000, rounds: 3, ..Plan::default() });
    let server = Process::spawn(&fed, &[]);
    let (mut a, mut b) = (fed.member("a").join(server.address).await, fed.member("b").join(server.address).await);
    let values = vec![1.0; a.coordinates];
    for site in [&mut a, &mut b] {
        let start = site.round().await;
        site.send(&start, &values).await.unwrap();
    }
    let start = a.round().await;
    let result = || export::posterior(&fed.config()).map(|document| (document.rounds, document.natural_parameters)).unwrap();
    let before = result();
    a.send(&start, &values).await.unwrap();
    let folder = std::fs::read_dir(fed.config().state.join("rounds")).unwrap().next().unwrap().unwrap().path();
    let newest = |path: &std::path::PathBuf| std::fs::metadata(path).unwrap().modified().unwrap();
    let stored = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).max_by_key(newest).unwrap();
    let mut bytes = std::fs::read(&stored).unwrap();
    assert_eq!(bytes.len(), 8 * values.len());
    bytes[8003] ^= 1;
    std::fs::write(&stored, bytes).unwrap();
    let start = b.round().await;
    let _ = b.send(&start, &values).await;
    assert_eq!(server.exit_code(), Some(11));
    assert!(before.0 == 1 && result() == before, "the round was not closed");
}
