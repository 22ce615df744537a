//! What the system has run out of: room on a disk, or speed of one. A run is delayed, or a program ends with a clear error; nothing is lost, and
//! nothing is spent twice.
//!
//! Besides stores that say so, a disk that is really full: a file system in memory of a few hundred kilobytes, mounted for one process alone where the
//! system lets this user do that.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use dp_pvi_tests::crash::{CrashPoint, EFFECT, Effect, OCCURRENCE, POINT};
use dp_pvi_tests::federation::{Federation, run};
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use dp_pvi_tests::statements::statements_cover_ledgers;
use serde_json::Value;

/// Two sites.
fn federation(rounds: u32) -> Federation {
    let task = Task { schedule: Schedule::Synchronous(rounds), ..Task::default() };
    let sites = Records::generated(40, 3, 5).sites(&[20, 20], Likelihood::Logistic);
    Federation::new(&task.toml(), &task.schema(3), &sites)
}

/// The run is over: every round has both sites in it, and both ledgers the same charges.
fn nothing_was_lost(federation: &Federation, events: &[Value], rounds: u32) {
    let closed: Vec<_> = events.iter().filter(|event| event["event"] == "round-closed").collect();
    assert_eq!(closed.len(), rounds as usize);
    assert!(closed.iter().all(|round| round["outcome"] == "complete" && round["included"].as_array().unwrap().len() == 2), "{closed:?}");
    statements_cover_ledgers(federation);
    let budget = |site: &str| -> Value {
        serde_json::from_str(&run(&mut federation.client_command(site, &["budget", "show", "--format", "json"]))).unwrap()
    };
    let (disturbed, undisturbed) = (budget("site-1"), budget("site-2"));
    for key in ["releases", "epsilon_spent"] {
        assert_eq!(disturbed[key], undisturbed[key], "{key}");
    }
    assert_eq!(disturbed["releases"], rounds);
    for site in ["site-1", "site-2"] {
        run(&mut federation.client_command(site, &["ledger", "verify"]));
    }
}

/// A ledger whose disk is full, whichever row it is that does not fit: the site's client says so and ends with code 12. Started again on a disk with room,
/// it goes on where it was.
#[test]
fn a_full_disk_of_a_site_ends_its_client_clearly_and_loses_nothing() {
    const ROUNDS: u32 = 3;
    let crashing = Path::new(env!("CARGO_BIN_EXE_crashing-client"));
    for point in [CrashPoint::Reserved, CrashPoint::Committed, CrashPoint::Sent, CrashPoint::Receipted] {
        let federation = federation(ROUNDS);
        let mut server = federation.start_server();
        let mut other = federation.start_client("site-2", &server.address);
        let mut command = federation.client_command_of(crashing, "site-1", &["run", "--format", "json"]);
        command.env(EFFECT, Effect::Full.name()).env(POINT, point.name()).env(OCCURRENCE, "2");
        let mut site = federation.start("site-1", &server.address, command);
        site.expect(12);
        assert!(site.log().contains("resource unavailable") && site.log().contains("the disk is full"), "{}", site.log());
        assert!(other.alive() && server.process.alive(), "the others wait");
        federation.start_client("site-1", &server.address).expect(0);
        other.expect(0);
        server.process.expect(0);
        nothing_was_lost(&federation, &server.process.events(), ROUNDS);
    }
}

/// A ledger on a slow disk delays the rounds and does nothing else.
#[test]
fn a_slow_disk_of_a_site_delays_its_rounds_only() {
    const ROUNDS: u32 = 3;
    let federation = federation(ROUNDS);
    let mut server = federation.start_server();
    let mut other = federation.start_client("site-2", &server.address);
    let mut command =
        federation.client_command_of(Path::new(env!("CARGO_BIN_EXE_crashing-client")), "site-1", &["run", "--format", "json"]);
    command.env(EFFECT, Effect::SLOW.name()).env(POINT, CrashPoint::Reserved.name());
    let mut site = federation.start("site-1", &server.address, command);
    site.expect(0);
    other.expect(0);
    server.process.expect(0);
    nothing_was_lost(&federation, &server.process.events(), ROUNDS);
}

/// How this user mounts a file system for one process alone, if it may: options of `unshare`, and of `nsenter`.
fn mounts() -> Option<(&'static [&'static str], &'static [&'static str])> {
    let place = tempfile::tempdir().unwrap();
    let ways: [(&[&str], &[&str]); 2] = [(&["-m"], &["-m"]), (&["-U", "-r", "-m"], &["-U", "-m", "--preserve-credentials"])];
    let works = |options: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(options).args(["sh", "-c", "mount -t tmpfs -o size=64k tmpfs \"$0\""]).arg(place.path());
        command.output().is_ok_and(|output| output.status.success())
    };
    let found = ways.into_iter().find(|(options, _)| works(options));
    if found.is_none() {
        println!("skipped: this user may not mount a small disk");
    }
    found
}

/// The same command on a small disk: `script` gets the folder as `$0` and the command as its arguments.
fn on_small_disk(options: &[&str], script: &str, folder: &Path, command: &Command) -> Command {
    let mut small = Command::new("unshare");
    small.args(options).args(["sh", "-c", script]).arg(folder).arg(command.get_program()).args(command.get_args());
    small.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    small
}

/// The folder of a site's ledger on a disk that fills up in the middle of the run.
#[test]
fn a_site_s_disk_that_is_really_full_loses_nothing() {
    const ROUNDS: u32 = 30;
    let Some((options, _)) = mounts() else { return };
    let federation = federation(ROUNDS);
    let mut server = federation.start_server();
    let mut other = federation.start_client("site-2", &server.address);
    let data = federation.home("site-1").join("data");
    let used: u64 = fs::read_dir(&data).unwrap().map(|file| file.unwrap().metadata().unwrap().len().div_ceil(4096) * 4).sum();
    // What is there, the journal of a transaction, and a few rounds.
    let script = format!(
        "cp -a \"$0\" \"$0.kept\" && mount -t tmpfs -o size={}k,mode=700 tmpfs \"$0\" && cp -a \"$0.kept/.\" \"$0\" || exit 99\n\
         \"$@\"\ncode=$?\ncp -a \"$0/.\" \"$0.kept\" && umount \"$0\" && cp -a \"$0.kept/.\" \"$0\" || exit 98\nexit $code",
        used + 48
    );
    let command = on_small_disk(options, &script, &data, &federation.client_command("site-1", &["run", "--format", "json"]));
    let mut site = federation.start("site-1", &server.address, command);
    site.expect(12);
    assert!(site.log().contains("resource unavailable") && site.log().contains("full"), "{}", site.log());
    let closed = server.process.events().iter().filter(|event| event["event"] == "round-closed").count();
    assert!(closed < ROUNDS as usize, "the disk was too large for this test");
    federation.start_client("site-1", &server.address).expect(0);
    other.expect(0);
    server.process.expect(0);
    nothing_was_lost(&federation, &server.process.events(), ROUNDS);
}

/// The state of a server on a disk that fills up in the middle of the run: the server waits and says so, and goes on when someone has made room.
#[test]
fn a_server_s_disk_that_is_really_full_delays_the_run() {
    const ROUNDS: u32 = 150;
    let Some((options, enter)) = mounts() else { return };
    let federation = federation(ROUNDS);
    let state = federation.home("server").join("state");
    fs::create_dir(&state).unwrap();
    let script = "mount -t tmpfs -o size=600k,mode=700 tmpfs \"$0\" || exit 99\nexec \"$@\"";
    let mut command = on_small_disk(options, script, &state, &federation.server_command(&["run", "--format", "json"]));
    let mut server = federation.start_server_by(&mut command);
    let mut sites = ["site-1", "site-2"].map(|site| federation.start_client(site, &server.address));
    server.process.wait_until("its disk is full", |process| process.log().contains("could not be stored").then_some(()));
    let closed = |events: &[Value]| events.iter().filter(|event| event["event"] == "round-closed").count();
    let before = closed(&server.process.events());
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(closed(&server.process.events()), before, "nothing is told that is not on the disk");
    assert!(server.process.alive() && sites.iter().all(dp_pvi_tests::federation::Process::alive));
    let mut room = Command::new("nsenter");
    room.args(enter).args(["-t", &server.process.id().to_string(), "mount", "-o", "remount,size=64m", "tmpfs"]).arg(&state);
    run(&mut room);
    for site in &mut sites {
        site.expect(0);
    }
    server.process.expect(0);
    assert!(before < ROUNDS as usize);
    nothing_was_lost(&federation, &server.process.events(), ROUNDS);
}
