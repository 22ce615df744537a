//! The data set's ledger as an operator handles it: copies, backups, what is kept in a second file, the rollback guard, whose files they are.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::{Outcome, Site};
use dp_pvi_accounting::DpEvent;
use dp_pvi_client::ledger;
use dp_pvi_names::{Hash, ReleaseId};
use dp_pvi_privacy::Ledger;
use dp_pvi_privacy::ledger::{FreezeState, LedgerError, LedgerIdentity, ReleaseState};
use dp_pvi_programs::ledger::{RollbackGuard, SqliteLedger};

/// One row more: a data set is frozen, or opened again.
fn row(site: &Site) {
    let frozen = site.run(&["budget", "show", "--format", "json"]).expect(0, "").json()["frozen"].as_bool().unwrap();
    site.run(if frozen { &["budget", "freeze", "--off"] } else { &["budget", "freeze"] }).expect(0, "");
}

/// Results and log.
fn words(outcome: &Outcome) -> String {
    format!("{}{}", outcome.stdout, outcome.stderr)
}

fn rows(site: &Site) -> u64 {
    site.run(&["ledger", "verify", "--format", "json"]).expect(0, "").json()["rows"].as_u64().unwrap()
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(bits)).unwrap();
}

/// A ledger that can be read and not written is told before a run, and nothing is changed by the look.
#[test]
fn check_says_of_a_ledger_that_cannot_be_written() {
    let site = Site::new();
    let before = std::fs::read(site.path("data/ledger.db")).unwrap();
    let ledger_of = |outcome: &str| outcome.lines().find(|line| line.contains(" ledger: ")).unwrap_or_default().to_owned();
    let said = || ledger_of(&site.run(&["check", "--offline"]).stdout);
    assert!(said().starts_with("ok "), "{}", said());
    // A lock file that is none; as a user who may do everything sees it, too.
    let lock = site.path("data/ledger.db.lock");
    let _ = std::fs::remove_file(&lock);
    std::fs::create_dir(&lock).unwrap();
    assert!(said().starts_with("FAILED") && said().contains("cannot be written"), "{}", said());
    std::fs::remove_dir(&lock).unwrap();
    let mode = |mode| std::fs::set_permissions(site.path("data/ledger.db"), std::fs::Permissions::from_mode(mode)).unwrap();
    mode(0o400);
    if std::fs::File::options().write(true).open(site.path("data/ledger.db")).is_err() {
        assert!(said().starts_with("FAILED"), "{}", said());
    }
    mode(0o600);
    assert!(said().starts_with("ok "), "{}", said());
    assert!(std::fs::read(site.path("data/ledger.db")).unwrap() == before && !lock.exists());
}

#[test]
fn an_old_copy_is_refused_without_any_server() {
    let site = Site::new();
    let ledger = site.path("data/ledger.db");
    row(&site);
    let old = fs::read(&ledger).unwrap();
    row(&site);
    row(&site);
    fs::write(&ledger, &old).unwrap();
    for arguments in [&["run"][..], &["check", "--offline"], &["budget", "show"], &["budget", "freeze", "--off"], &["ledger", "verify"]] {
        let refused = site.run(arguments).expect(11, "old copy");
        assert!(
            words(&refused).contains("ledger restore") && words(&refused).contains("--lose-rows 2"),
            "{arguments:?}: {}",
            words(&refused)
        );
    }
    // Nor is a new one made in its place, and no one reads an unspent one.
    fs::remove_file(&ledger).unwrap();
    for arguments in [
        &["check", "--offline"][..],
        &["budget", "show"],
        &["budget", "history"],
        &["ledger", "verify"],
        &["ledger", "show"],
        &["ledger", "export"],
    ] {
        let refused = site.run(arguments).expect(11, "no ledger");
        assert!(words(&refused).contains("knows its row 3"), "{arguments:?}: {}", words(&refused));
    }
    site.run(&["ledger", "create"]).expect(11, "came to row 3");
    assert!(!ledger.exists());
}

/// `ledger create` may be cut off anywhere: the next one finishes it, and a third one is refused.
#[test]
fn a_creation_that_was_cut_off_is_finished() {
    let site = Site::new();
    let (path, place) = (site.path("data/ledger.db"), site.path("state/lung-2024.head"));
    let config = site.config();
    let private = config.private().unwrap();
    let key = || dp_pvi_client::keys::identity(&config.tls.identity).unwrap();
    let remove = |path: &Path| drop(fs::remove_file(path));
    let first_row = || {
        let store = SqliteLedger::create(&path).unwrap().unwrap();
        drop(Ledger::open(store, key(), private.identity.clone(), private.budget).unwrap());
    };
    // The rollback guard of a ledger of other data, which was never used.
    let other = site.path("other");
    let store = SqliteLedger::create(&other.join("ledger.db")).unwrap().unwrap();
    let identity = LedgerIdentity { data: "other".into(), ..private.identity.clone() };
    drop(Ledger::open(store, key(), identity, private.budget).unwrap().begun_in(RollbackGuard::at(other.join("head"))).unwrap());
    let of_another = fs::read(other.join("head")).unwrap();
    type Point<'a> = (&'a str, &'a dyn Fn());
    let points: [Point<'_>; 6] = [
        ("nothing yet", &|| {}),
        ("half a file under its first name", &|| fs::write(site.path("data/ledger.db.new"), b"half a file").unwrap()),
        ("a file without rows", &|| drop(SqliteLedger::create(&path).unwrap().unwrap())),
        ("the first row", &first_row),
        ("the first row, and a rollback guard of a ledger that was never used", &|| {
            first_row();
            fs::write(&place, &of_another).unwrap();
        }),
        ("the first row, and half a rollback guard under its first name", &|| {
            first_row();
            fs::write(site.path("state/lung-2024.head.new"), b"half").unwrap();
        }),
    ];
    for (point, cut_off) in points {
        remove(&path);
        remove(&place);
        cut_off();
        let made = site.run(&["ledger", "create"]);
        assert_eq!(made.code, Some(0), "{point}: {}", made.stderr);
        site.run(&["ledger", "verify"]).expect(0, "");
        site.run(&["ledger", "create"]).expect(2, "exists already");
        row(&site);
        site.run(&["ledger", "create"]).expect(2, "exists already");
        assert_eq!(rows(&site), 2, "{point}");
    }
    // A data set that had a ledger gets no new one, whatever is in its place: not even a first row is written.
    let without_rows = || drop(SqliteLedger::create(&path).unwrap().unwrap());
    let cases: [&dyn Fn(); 2] = [&without_rows, &first_row];
    for stands in cases {
        remove(&path);
        stands();
        let before = fs::read(&path).unwrap();
        site.run(&["ledger", "create"]).expect(11, "came to row 1");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn a_backup_is_made_beside_a_writer_and_comes_back() {
    let site = Site::new();
    let (ledger, file) = (site.path("data/ledger.db"), site.path("backup.db"));
    let name = file.to_str().unwrap();
    site.run(&["ledger", "restore", name]).expect(4, "holds no ledger");
    row(&site);
    let held = SqliteLedger::open(&ledger).unwrap();
    let written = site.run(&["ledger", "backup", "-o", name, "--format", "json"]).expect(0, "").json();
    assert_eq!((written["rows"].as_u64(), written["head"]["seq"].as_u64()), (Some(2), Some(1)));
    drop(held);
    let bytes = fs::read(&file).unwrap();
    site.run(&["ledger", "backup", "-o", name]).expect(12, "never overwrites");
    // SQLite would take the first three for its own and remove them.
    for taken in ["data/ledger.db-wal", "data/ledger.db-journal", "data/ledger.db-shm", "data/ledger.db.head", "state/backup.db"] {
        let taken = site.path(taken);
        let before = fs::read(&taken).ok();
        let refused = site.run(&["ledger", "backup", "-o", taken.to_str().unwrap()]);
        assert!(!refused.stdout.contains("verified") && fs::read(&taken).ok() == before, "{}", taken.display());
        assert!([Some(2), Some(12)].contains(&refused.code), "{}: {}", taken.display(), refused.stderr);
    }
    assert_eq!(fs::read(&file).unwrap(), bytes);

    site.run(&["ledger", "restore", name]).expect(12, "move it away");
    fs::remove_file(&ledger).unwrap();
    site.run(&["ledger", "restore", name, "--lose-rows", "3"]).expect(2, "nothing is missing");
    let back = site.run(&["ledger", "restore", name, "--format", "json"]).expect(0, "").json();
    // With the row that says so.
    assert_eq!((back["rows"].as_u64(), back["lost"].as_u64()), (Some(3), Some(0)));
    assert_eq!(fs::metadata(&ledger).unwrap().permissions().mode() & 0o777, 0o600);
    row(&site);
    assert_eq!(rows(&site), 4);

    // Now the backup is an old copy.
    fs::remove_file(&ledger).unwrap();
    site.run(&["ledger", "restore", name]).expect(11, "--lose-rows 2");
    assert!(!ledger.exists());
    site.run(&["ledger", "restore", name, "--lose-rows", "3"]).expect(2, "say 2");
    assert!(!ledger.exists());
    let text = words(&site.run(&["ledger", "restore", name, "--lose-rows", "2"]).expect(0, ""));
    assert!(text.contains("2 rows are lost") && text.contains("frozen"), "{text}");
    let shown = site.run(&["budget", "show", "--format", "json"]).expect(0, "").json();
    assert_eq!(shown["frozen"].as_bool(), Some(true));
    site.run(&["budget", "freeze", "--off"]).expect(0, "");
    site.run(&["run"]).expect(5, "localhost:1");

    // A damaged backup is none.
    let mut damaged = bytes;
    let at = damaged.windows(9).position(|w| w == b"lung-2024").unwrap();
    damaged[at] ^= 1;
    fs::write(&file, damaged).unwrap();
    fs::remove_file(&ledger).unwrap();
    site.run(&["ledger", "restore", name]).expect(11, "damaged");
    assert!(!ledger.exists());
}

/// A backup that was made while a visit was computed: the lost ledger may have sent that visit, and the rollback guard knows nothing of it when
/// it is put back as well. No server is asked.
#[test]
fn restore_closes_what_the_backup_had_reserved() {
    let site = Site::new();
    site.configure("[budget]", "[policy]\nallow_non_private = true\n[budget]");
    let (file, ledger_file, head) = (site.path("backup.db"), site.path("data/ledger.db"), site.path("state/lung-2024.head"));
    let config = site.config();
    let private = config.private().unwrap();
    let key = || dp_pvi_client::keys::identity(&config.tls.identity).unwrap();
    let release = ReleaseId { run: crate::common::run(), client: config.site.name.clone(), round: 0 };
    let mut writer = ledger::open(private, key(), |store| store).unwrap();
    writer.reserve(&release, &DpEvent::NonPrivate, Hash::default()).unwrap();
    site.run(&["ledger", "backup", "-o", file.to_str().unwrap()]).expect(0, "");
    let place = fs::read(&head).unwrap();
    // One row more, so that the rollback guard has to be put back, too, or the loss be told.
    writer.set_frozen(FreezeState::Frozen).unwrap();
    drop(writer);
    let later = fs::read(&head).unwrap();
    for (place, arguments) in [(&place, &[][..]), (&later, &["--lose-rows", "1"])] {
        fs::remove_file(&ledger_file).unwrap();
        fs::write(&head, place).unwrap();
        let arguments = [&["ledger", "restore", file.to_str().unwrap(), "--format", "json"], arguments].concat();
        assert_eq!(site.run(&arguments).expect(0, "").json()["closed"].as_u64(), Some(1));
        let mut back = ledger::open(private, key(), |store| store).unwrap();
        back.set_frozen(FreezeState::Open).unwrap();
        assert_eq!(back.state(&release), Some(ReleaseState::Settled { included: false }));
        // This process also remembers that it gave the permit out.
        let again = back.reserve(&release, &DpEvent::NonPrivate, Hash::default());
        assert!(matches!(again, Err(LedgerError::Conflict(_) | LedgerError::PermitOutstanding(_))));
    }
}

/// Under another schema the same files hold other units, which were never charged.
#[test]
fn a_schema_with_other_units_is_refused() {
    let site = Site::new();
    let schema = site.path("schema.toml");
    let rows_are_units = fs::read_to_string(&schema).unwrap();
    site.run(&["run"]).expect(5, "localhost:1");
    assert!(words(&site.run(&["ledger", "units"]).expect(0, "")).contains("the first charge writes it down"));
    assert_eq!(rows(&site), 1);
    // As the first charge does.
    for _ in 0..2 {
        site.run(&["ledger", "units", "--accept"]).expect(0, "");
        assert_eq!(rows(&site), 2);
    }
    fs::write(&schema, format!("unit_column = \"patient\"\n{rows_are_units}")).unwrap();
    fs::write(site.path("cohort.csv"), "patient,age,died\nx,40,no\nx,50,no\ny,60,yes\n").unwrap();
    for arguments in [&["run"][..], &["check", "--offline"], &["ledger", "units"]] {
        let refused = words(&site.run(arguments).expect(2, ""));
        assert!(refused.contains("one row of a table") && refused.contains("`patient`") && refused.contains("--accept"), "{refused}");
    }
    assert_eq!(rows(&site), 2);
    site.run(&["ledger", "units", "--accept"]).expect(0, "");
    site.run(&["run"]).expect(5, "localhost:1");
    assert_eq!(rows(&site), 3);
    assert!(words(&site.run(&["ledger", "export"]).expect(0, "")).contains("`patient`"));
}

/// A reader beside a client that runs: whatever is appended while it reads, it never takes the ledger for an old copy.
#[test]
fn a_reader_beside_the_writer_is_never_refused() {
    let site = Site::new();
    let config = site.config();
    let private = config.private().unwrap();
    let key = || dp_pvi_client::keys::identity(&config.tls.identity).unwrap();
    let mut writer = ledger::open(private, key(), |store| store).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..60 {
                writer.set_frozen(if number % 2 == 0 { FreezeState::Frozen } else { FreezeState::Open }).unwrap();
            }
            over.store(true, Ordering::SeqCst);
        });
        let mut seen = 0;
        while !over.load(Ordering::SeqCst) {
            let rows = ledger::read_only(private, key()).unwrap().rows().len();
            assert!(rows >= seen);
            seen = rows;
        }
    });
    assert_eq!(ledger::read_only(private, key()).unwrap().rows().len(), 61);
}

/// The copy that was made when the ledger was begun knows nothing of what was spent since.
#[test]
fn a_copy_of_a_ledger_s_first_row_is_refused_without_its_rollback_guard() {
    let site = Site::new();
    let file = site.path("first.db");
    site.run(&["ledger", "backup", "-o", file.to_str().unwrap()]).expect(0, "");
    row(&site);
    fs::copy(&file, site.path("data/ledger.db")).unwrap();
    fs::remove_file(site.path("state/lung-2024.head")).unwrap();
    for arguments in [&["run"][..], &["ledger", "verify"], &["budget", "show"], &["ledger", "show"]] {
        let refused = site.run(arguments).expect(11, "rollback guard");
        assert!(words(&refused).contains("has 1 rows") && words(&refused).contains("ledger create"), "{arguments:?}");
    }
    assert!(!site.path("state/lung-2024.head").exists());
}

/// What remains when the rollback guard is lost: the operator's word, and the server's witness.
#[test]
fn a_ledger_without_its_second_place_is_refused_until_it_is_restored() {
    let site = Site::new();
    row(&site);
    let file = site.path("backup.db");
    site.run(&["ledger", "backup", "-o", file.to_str().unwrap()]).expect(0, "");
    fs::remove_file(site.path("state/lung-2024.head")).unwrap();
    // Anyone who looks and anyone who charges is told, until someone says that this ledger is the latest.
    for arguments in [&["run"][..], &["ledger", "verify"], &["budget", "show"], &["budget", "history"], &["ledger", "show"]] {
        let refused = site.run(arguments).expect(11, "rollback guard");
        assert!(words(&refused).contains("state/lung-2024.head") && words(&refused).contains("ledger restore"), "{arguments:?}");
    }
    assert!(!site.path("state/lung-2024.head").exists());
    fs::remove_file(site.path("data/ledger.db")).unwrap();
    let restored = site.run(&["ledger", "restore", file.to_str().unwrap()]).expect(0, "");
    assert!(words(&restored).contains("its latest backup"));
    site.run(&["run"]).expect(5, "localhost:1");
    site.configure("ledger = \"data/ledger.db\"", "ledger = \"data/ledger.db\"\nledger_head = \"data/lung.head\"");
    fs::copy(site.path("state/lung-2024.head"), site.path("data/lung.head")).unwrap();
    let checked = words(&site.run(&["check", "--offline"]).expect(0, ""));
    assert!(checked.contains("in the ledger's folder"), "{checked}");
}

#[test]
fn files_that_others_can_use_are_refused() {
    let site = Site::new();
    // Records are the site's own matter: a warning.
    mode(&site.path("cohort.csv"), 0o644);
    assert!(words(&site.run(&["check", "--offline"]).expect(0, "")).contains("chmod o-r"));
    mode(&site.path("cohort.csv"), 0o640);
    assert!(!words(&site.run(&["check", "--offline"]).expect(0, "")).contains("chmod o-r"));
    let open = [
        ("data/ledger.db", 0o666, "data.ledger", "chmod 600"),
        ("data/ledger.db", 0o640, "data.ledger", "chmod 600"),
        ("state/lung-2024.head", 0o602, "data.ledger_head", "chmod 600"),
        ("tls/hospital-1.identity", 0o644, "tls.identity", "chmod 600"),
        ("tls/hospital-1.key", 0o620, "tls.key", "chmod 600"),
        ("state", 0o777, "site.state", "chmod 700"),
        ("data", 0o777, "data.ledger", "chmod o-w"),
    ];
    for (name, bits, field, mend) in open {
        let path = site.path(name);
        let before = fs::metadata(&path).unwrap().permissions();
        mode(&path, bits);
        for arguments in [&["run"][..], &["check", "--offline"]] {
            let refused = site.run(arguments).expect(2, field);
            assert!(words(&refused).contains(mend), "{name}: {}", words(&refused));
        }
        fs::set_permissions(&path, before).unwrap();
    }
    for name in ["tls/hospital-1.identity", "tls/hospital-1.key"] {
        let (path, real) = (site.path(name), site.path("real"));
        fs::rename(&path, &real).unwrap();
        std::os::unix::fs::symlink(&real, &path).unwrap();
        site.run(&["run"]).expect(2, "symbolic link");
        fs::remove_file(&path).unwrap();
        fs::rename(&real, &path).unwrap();
    }
    // Only root can give a file away.
    let ledger = site.path("data/ledger.db");
    if std::os::unix::fs::chown(&ledger, Some(4711), None).is_ok() {
        site.run(&["run"]).expect(2, "belongs to user 4711");
        std::os::unix::fs::chown(&ledger, Some(0), None).unwrap();
    }
    site.run(&["run"]).expect(5, "localhost:1");
}

/// Anyone who can change a link, or the folder that holds it, chooses the ledger.
#[test]
fn a_ledger_behind_a_link_is_refused() {
    for (file, field) in [("data/ledger.db", "data.ledger"), ("state/lung-2024.head", "data.ledger_head")] {
        let site = Site::new();
        row(&site);
        let (there, elsewhere) = (site.path(file), site.path("elsewhere"));
        fs::rename(&there, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &there).unwrap();
        let before = fs::read(&elsewhere).unwrap();
        for arguments in [&["run"][..], &["check", "--offline"], &["budget", "show"], &["ledger", "verify"]] {
            let refused = site.run(arguments).expect(2, field);
            assert!(words(&refused).contains("is a link"), "{arguments:?}: {}", words(&refused));
        }
        assert_eq!(fs::read(&elsewhere).unwrap(), before);
    }
}
