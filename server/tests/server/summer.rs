//! The summer's disk: whatever fails, and whatever is restored from a copy, a round is summed over one set of sites at most.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use dp_pvi_accounting::{ClipNorm, NoiseMultiplier, Terms};
use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_privacy::SecureNoise;
use dp_pvi_protocol::aggregation::summer::SummerStores;
use dp_pvi_secagg::charter::{Charter, CharterBody, Member, Parties, SignedCharter};
use dp_pvi_secagg::closing::CloseRequest;
use dp_pvi_secagg::commitment::Commitment;
use dp_pvi_secagg::error::SecAggError;
use dp_pvi_secagg::header::{ProposedHeader, RoundHeader, SignedHeader};
use dp_pvi_secagg::mask::MaskSeed;
use dp_pvi_secagg::plan::PlanRequest;
use dp_pvi_secagg::seal::SealedSeed;
use dp_pvi_secagg::server::skip;
use dp_pvi_secagg::signed::{PublicKey, Signed};
use dp_pvi_secagg::summer::{KeyVault, RoundRecord, Slot, StoreError, Summer, SummerStore};
use dp_pvi_secagg::transcript::Head;
use dp_pvi_secagg::upload::Upload;
use dp_pvi_server::summer::store::{CharterStore, FileStores};
use dp_pvi_server::summer::vault::FileVault;
use ed25519_dalek::SigningKey;
use tempfile::TempDir;
use zeroize::Zeroizing;

const SITES: u32 = 5;

/// An aggregated task needs a second party, by its enrolled name; every mistake is told before a port opens or a run starts.
#[tokio::test]
async fn an_aggregated_task_without_a_summer_is_refused_by_name() {
    use crate::support::{Events, Fed, Plan};

    let fed = Fed::new(3, &Plan::default());
    let task = "even_if_worthless = true\n[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\n[schema]\nfile = \"schema.toml\"\n\
                [pvi]\nschedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\"\n\
                [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"aggregated\"\n\
                [aggregation]\nsites = 3\nmax_units = 100\n";
    fs::write(fed.path("task.toml"), task).unwrap();
    let refused = async |words: &str| {
        let started = dp_pvi_server::start(fed.config(), dp_pvi_server::Start::Continue, Events::default().sink()).await;
        let error = started.err().unwrap_or_else(|| panic!("expected: {words}"));
        assert_eq!(error.code(), 2);
        assert!(error.to_string().contains("[summer]") && error.to_string().contains(words), "{error}");
        // `check` says the same.
        let check = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
            .args(["check", "--config"])
            .arg(fed.config_path())
            .output()
            .unwrap();
        assert_eq!(check.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&check.stderr).contains(words));
    };
    refused("second party").await;
    let config = fs::read_to_string(fed.config_path()).unwrap();
    let named = |name: &str| fs::write(fed.config_path(), format!("{config}[summer]\nname = \"{name}\"\n")).unwrap();
    named("summer");
    refused("not enrolled").await;
    named("a");
    refused("not as a summer").await;
    // Enrolled as one, it is found.
    let files =
        dp_pvi_server::summer::make_request(crate::support::FEDERATION, ClientId::new("summer").unwrap(), &fed.path("summer")).unwrap();
    let mut authority = dp_pvi_server::ca::Authority::open(&fed.path("tls")).unwrap();
    let (_, certificate) = authority.sign(&files.request, crate::support::now(), 30).unwrap();
    drop(authority);
    named("summer");
    two_summers_are_told_of(&fed, &certificate, &fs::read_to_string(&files.tls_key).unwrap()).await;
    let server = fed.start().await;
    server.terminate().await;
}

/// Two connections under the summer's name: the second one takes over, the operator reads from where both call, and the first one is told.
async fn two_summers_are_told_of(fed: &crate::support::Fed, certificate: &str, key: &str) {
    use crate::support::{Process, connect};
    use dp_pvi_proto::v1::aggregation_client::AggregationClient;

    let log = fed.path("log");
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server"))
        .args(["run", "--format", "json", "--config"])
        .arg(fed.config_path())
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(fs::File::create(&log).unwrap())
        .spawn();
    let server = Process::from_child(child.unwrap());
    // No one is waited for in silence.
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    assert_eq!(state["summer"], serde_json::json!({"state": "gone", "last_round": null, "asked": false}), "{state}");
    let status =
        std::process::Command::new(env!("CARGO_BIN_EXE_dp-pvi-server")).args(["status", "--config"]).arg(fed.config_path()).output();
    let status = String::from_utf8(status.unwrap().stdout).unwrap();
    assert!(status.contains("waiting    for a, b, c, the summer") && status.contains("summer     not connected"), "{status}");
    let summer = async || {
        let channel = connect(server.address, fed.member("a").with(certificate, key).tls_config()).await.unwrap();
        let (answers, queue) = tokio::sync::mpsc::channel(1);
        let questions = AggregationClient::new(channel).serve(tokio_stream::wrappers::ReceiverStream::new(queue)).await.unwrap();
        (answers, questions.into_inner())
    };
    let warnings = || fs::read_to_string(&log).unwrap().lines().filter(|line| line.contains("connected twice")).count();
    let (_first, mut questions) = summer().await;
    assert_eq!(warnings(), 0);
    let _second = summer().await;
    let refused = questions.message().await.unwrap_err();
    assert!(refused.message().contains("took over, from 127.0.0.1:"), "{refused}");
    assert_eq!(refused.code(), tonic::Code::AlreadyExists);
    assert_eq!(warnings(), 1);
    let state: serde_json::Value = serde_json::from_str(&fed.status()).unwrap();
    assert_eq!(state["summer"]["state"], "connected", "{state}");
    server.kill();
}

fn key(number: u32) -> SigningKey {
    SigningKey::from_bytes(&Hash::of("test key", &[&number.to_le_bytes()]).0)
}

fn name(site: u32) -> ClientId {
    ClientId::new(format!("site-{site}")).unwrap()
}

/// A charter of five sites with three rounds; one may drop out.
fn charter() -> Arc<Charter> {
    let members = (0..SITES).map(|site| Member { id: name(site), key: PublicKey::of(&key(10 + site)) }).collect();
    let run = RunId { task: Hash::default(), number: 1 };
    let parties = Parties { run, authority: Hash::default(), server: PublicKey::of(&key(1)), summer: PublicKey::of(&key(2)), members };
    let plan = PlanRequest {
        members: SITES,
        dropouts: 1,
        colluders: 1,
        honest_cap: SITES,
        dimension: 3,
        clip: ClipNorm::new(1.0).unwrap(),
        noise: NoiseMultiplier::new(23.4).unwrap(),
        max_units: 2,
        sampling: None,
        terms: Terms::ShardResults,
        max_rounding_loss: 0.01,
    };
    let mut signed = SignedCharter::draft(&CharterBody::from_plans(parties, &[(plan, 3)]).unwrap());
    [key(1), key(2)].iter().chain(&(0..SITES).map(|site| key(10 + site)).collect::<Vec<_>>()).for_each(|key| signed.sign(key).unwrap());
    Arc::new(signed.verify().unwrap())
}

struct Folders {
    root: TempDir,
    charter: Arc<Charter>,
}

impl Folders {
    fn new() -> Self {
        Self { root: TempDir::new().unwrap(), charter: charter() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn parts(&self) -> (CharterStore, FileVault) {
        let mut stores = FileStores::open(&self.path("state"), &self.path("vault")).unwrap();
        stores.open(self.charter.hash()).unwrap()
    }

    fn summer(&self) -> Summer<CharterStore, FileVault> {
        let (store, vault) = self.parts();
        Summer::open(Arc::clone(&self.charter), key(2), store, vault).unwrap()
    }

    /// Copies a folder, as a backup does. The database is closed, so its write-ahead log is in it.
    fn back_up(&self, folder: &str) {
        copy(&self.path(folder), &self.path(&format!("{folder}.copy")));
    }

    /// Puts the copy in the place of what is there.
    fn restore(&self, folder: &str) {
        fs::remove_dir_all(self.path(folder)).unwrap();
        copy(&self.path(&format!("{folder}.copy")), &self.path(folder));
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

/// The server's header for what the summer offers.
fn propose<S: SummerStore, V: KeyVault>(summer: &mut Summer<S, V>, charter: &Charter) -> Result<ProposedHeader, SecAggError> {
    let offer = summer.offer(&mut SecureNoise::fresh().unwrap())?;
    let public = offer.open(&charter.body().summer).unwrap().key;
    let head = summer.head();
    let header = RoundHeader::new(charter, head.round, head.previous, Hash::default(), public, 0).unwrap();
    Ok(ProposedHeader::new(&header, &offer, charter, &key(1)).unwrap())
}

/// What the server asks at the closing of these sites; the same bytes whenever it is cut from the same uploads.
fn uploads(charter: &Charter, header: &SignedHeader) -> CloseRequest {
    let mut rng = SecureNoise::fresh().unwrap();
    let verified = header.open(charter).unwrap();
    let hash = verified.hash();
    let one = |site: u32| {
        let commitment = Commitment(Hash::of("test vector", &[&site.to_le_bytes()]));
        let seed = MaskSeed::fresh(&mut SecureNoise::fresh().unwrap());
        let seed = SealedSeed::new(&seed, &verified.header().round_key, &hash, &name(site), &commitment, &mut rng).unwrap();
        let upload = Upload { header: hash, client: name(site), commitment, seed, echo: verified.header().previous };
        Signed::seal(&upload, &key(10 + site))
    };
    CloseRequest { header: hash, round: verified.header().round, uploads: (0..SITES).map(one).collect() }
}

fn without(request: &CloseRequest, site: usize) -> CloseRequest {
    let mut request = request.clone();
    request.uploads.remove(site);
    request
}

/// What goes wrong at a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// Nothing is written.
    Before,
    /// It is written, and no one hears of it.
    After,
}

/// Counts writes down to the one that fails.
#[derive(Clone)]
struct Fuse {
    left: Rc<Cell<u32>>,
    failure: Failure,
}

impl Fuse {
    fn write(&self, write: impl FnOnce() -> Result<(), StoreError>) -> Result<(), StoreError> {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        match (left, self.failure) {
            (1, Failure::Before) => Err(StoreError("cut off".into())),
            (1, Failure::After) => write().and_then(|()| Err(StoreError("cut off".into()))),
            _ => write(),
        }
    }
}

struct FusedStore(CharterStore, Fuse);
struct FusedVault(FileVault, Fuse);

impl SummerStore for FusedStore {
    fn head(&self) -> Result<Option<Head>, StoreError> {
        self.0.head()
    }
    fn save_head(&mut self, head: Head) -> Result<(), StoreError> {
        let Self(store, fuse) = self;
        fuse.write(|| store.save_head(head))
    }
    fn round(&self, round: u32) -> Result<Option<RoundRecord>, StoreError> {
        self.0.round(round)
    }
    fn save_round(&mut self, round: u32, record: &RoundRecord) -> Result<(), StoreError> {
        let Self(store, fuse) = self;
        fuse.write(|| store.save_round(round, record))
    }
}

impl KeyVault for FusedVault {
    fn slot(&self, round: u32) -> Result<Slot, StoreError> {
        self.0.slot(round)
    }
    fn keep(&mut self, round: u32, key: Zeroizing<[u8; 32]>) -> Result<(), StoreError> {
        let Self(vault, fuse) = self;
        fuse.write(|| vault.keep(round, key))
    }
    fn destroy_through(&mut self, round: u32) -> Result<(), StoreError> {
        let Self(vault, fuse) = self;
        fuse.write(|| vault.destroy_through(round))
    }
}

/// A server that asks until it gets an answer, and a summer that is started again whenever its disk fails.
struct Script {
    folders: Folders,
    fuse: Fuse,
    crashes: u32,
    /// Closings whose answers left: the round, and which site was left out.
    answered: BTreeSet<(u32, u32)>,
}

impl Script {
    fn open(&self) -> Result<Summer<FusedStore, FusedVault>, SecAggError> {
        let (store, vault) = self.folders.parts();
        let (store, vault) = (FusedStore(store, self.fuse.clone()), FusedVault(vault, self.fuse.clone()));
        Summer::open(Arc::clone(&self.folders.charter), key(2), store, vault)
    }

    /// Asks once; `None` where the summer's disk failed over it, or while it was started: it is down then.
    fn once<T>(
        &mut self,
        summer: &mut Option<Summer<FusedStore, FusedVault>>,
        question: impl FnOnce(&mut Summer<FusedStore, FusedVault>) -> Result<T, SecAggError>,
    ) -> Option<Result<T, SecAggError>> {
        let mut here = match summer.take().map_or_else(|| self.open(), Ok) {
            Ok(here) => here,
            Err(SecAggError::Store(_)) => {
                self.crashes += 1;
                return None;
            }
            Err(error) => return Some(Err(error)),
        };
        match question(&mut here) {
            Err(SecAggError::Store(_)) => {
                self.crashes += 1;
                None
            }
            answer => {
                *summer = Some(here);
                Some(answer)
            }
        }
    }

    /// Asks until there is an answer.
    fn ask<T>(
        &mut self,
        summer: &mut Option<Summer<FusedStore, FusedVault>>,
        mut question: impl FnMut(&mut Summer<FusedStore, FusedVault>) -> Result<T, SecAggError>,
    ) -> Result<T, SecAggError> {
        loop {
            if let Some(answer) = self.once(summer, &mut question) {
                return answer;
            }
        }
    }

    fn rounds(&mut self) -> Result<(), SecAggError> {
        let charter = Arc::clone(&self.folders.charter);
        let mut summer = None;
        for round in 0..3 {
            let proposal = self.ask(&mut summer, |summer| propose(summer, &charter))?;
            let header = self.ask(&mut summer, |summer| summer.countersign(&proposal))?;
            let whole = uploads(&charter, &header);
            // Whichever set the summer fixes first: the others are refused from then on. After a crash another set is asked for.
            let sets = [without(&whole, 1), whole.clone(), without(&whole, 3)];
            let mut turn = 0;
            let mut calm = 0;
            while calm < 2 * sets.len() {
                let request = &sets[turn % sets.len()];
                turn += 1;
                match self.once(&mut summer, |summer| summer.close(request)) {
                    None => continue,
                    Some(Ok(_)) => drop(self.answered.insert((round, position(request)))),
                    Some(Err(SecAggError::SecondClosing { .. })) => {}
                    Some(Err(error)) => return Err(error),
                }
                calm += 1;
            }
            let head = summer.as_ref().unwrap().head();
            let (entry, _) = skip(&charter, head, &key(1));
            self.ask(&mut summer, |summer| if summer.head() == head { summer.follow(&entry) } else { Ok(summer.head()) })?;
        }
        Ok(())
    }
}

/// Which site is left out; as many as there are where none is.
fn position(request: &CloseRequest) -> u32 {
    let missing = |site: &u32| !request.uploads.iter().any(|upload| upload.open(&PublicKey::of(&key(10 + site))).is_ok());
    (0..SITES).find(missing).unwrap_or(SITES)
}

#[test]
fn a_crash_at_every_write_leaves_one_closing_of_every_round() {
    for failure in [Failure::Before, Failure::After] {
        let mut write = 1;
        loop {
            let fuse = Fuse { left: Rc::new(Cell::new(write)), failure };
            let mut script = Script { folders: Folders::new(), fuse, crashes: 0, answered: BTreeSet::new() };
            script.rounds().unwrap_or_else(|error| panic!("{failure:?} at write {write}: {error}"));
            let rounds: Vec<u32> = script.answered.iter().map(|(round, _)| *round).collect();
            assert_eq!(rounds, [0, 1, 2], "{failure:?} at write {write}: one set a round, {:?}", script.answered);
            // No key is left behind.
            let vault = script.folders.path("vault").join(script.folders.charter.hash().to_string());
            let left: Vec<_> = fs::read_dir(vault).unwrap().flatten().map(|entry| entry.file_name()).collect();
            assert_eq!(left, ["destroyed"]);
            if script.crashes == 0 {
                break;
            }
            assert_eq!(script.crashes, 1);
            write += 1;
        }
        assert!(write > 3 * 7, "{write} writes: the script has them all");
    }
}

/// On a real disk. Copies of the database alone and of database and vault together, taken at every state of a round, come back
/// after the round was closed.
#[test]
fn a_restored_copy_closes_no_round_again() {
    for copied in [&["state"][..], &["state", "vault"]] {
        for state in 0..4 {
            let folders = Folders::new();
            let charter = Arc::clone(&folders.charter);
            let back_up = |now: u32| {
                if now == state {
                    copied.iter().for_each(|folder| folders.back_up(folder));
                }
            };
            drop(folders.summer());
            back_up(0);
            let proposal = propose(&mut folders.summer(), &charter).unwrap();
            back_up(1);
            let header = folders.summer().countersign(&proposal).unwrap();
            back_up(2);
            let whole = uploads(&charter, &header);
            folders.summer().close(&whole).unwrap();
            back_up(3);
            copied.iter().for_each(|folder| folders.restore(folder));

            let case = format!("{copied:?} of state {state}");
            let mut restored = folders.summer();
            for request in [without(&whole, 1), whole.clone()] {
                let answer = restored.close(&request);
                match (state, request == whole) {
                    // The copy knows the answer: the same bytes may leave again.
                    (3, true) => drop(answer.unwrap()),
                    (3, false) => assert_eq!(answer, Err(SecAggError::SecondClosing { round: 0 }), "{case}"),
                    (2, _) => assert_eq!(answer, Err(SecAggError::KeyDestroyed { round: 0 }), "{case}"),
                    _ => assert!(matches!(answer, Err(SecAggError::Header { .. })), "{case}: {answer:?}"),
                }
            }
            // Nor by signing the old header once more: without the key there is nothing to add up.
            match restored.countersign(&proposal) {
                Ok(signed) => {
                    assert_eq!(signed, header);
                    let answer = restored.close(&without(&whole, 1));
                    let refused = matches!(answer, Err(SecAggError::KeyDestroyed { .. } | SecAggError::SecondClosing { .. }));
                    assert!(refused, "{case}: {answer:?}");
                }
                Err(error) => assert!(matches!(error, SecAggError::Header { .. }), "{case}: {error}"),
            }
            // A fresh key for that round, where the copy knows of none, opens none of the old seeds.
            if let Ok(proposal) = propose(&mut restored, &charter) {
                assert_eq!((state, copied.len()), (0, 2), "{case}: only a vault that was restored to before the round knows nothing of it");
                let second = restored.countersign(&proposal).unwrap();
                assert_ne!(second, header);
                assert!(matches!(restored.close(&without(&whole, 1)), Err(SecAggError::SecondHeader { .. })), "{case}");
            }
        }
    }
}

#[test]
fn two_summers_do_not_share_a_vault() {
    let folders = Folders::new();
    let one = FileStores::open(&folders.path("state"), &folders.path("vault")).unwrap();
    let error = FileStores::open(&folders.path("other"), &folders.path("vault")).unwrap_err();
    assert_eq!(error.code(), 12);
    assert!(error.to_string().contains("another summer"), "{error}");
    drop(one);
    FileStores::open(&folders.path("other"), &folders.path("vault")).unwrap();
}

#[test]
fn another_program_s_database_is_refused_and_a_changed_record_is_found() {
    let folders = Folders::new();
    fs::create_dir(folders.path("state")).unwrap();
    let database = folders.path("state").join("summer.db");
    rusqlite::Connection::open(&database).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert_eq!(FileStores::open(&folders.path("state"), &folders.path("vault")).unwrap_err().code(), 12);

    let folders = Folders::new();
    propose(&mut folders.summer(), &folders.charter).unwrap();
    let connection = rusqlite::Connection::open(folders.path("state").join("summer.db")).unwrap();
    connection.execute("UPDATE rounds SET body = zeroblob(length(body))", []).unwrap();
    drop(connection);
    let (store, vault) = folders.parts();
    let error = Summer::open(Arc::clone(&folders.charter), key(2), store, vault).err().unwrap();
    assert!(error.to_string().contains("other bytes"), "{error}");
}

/// No one but the summer's user may change its folders, its database, or the folder of a charter's keys; a foreign owner is refused, too.
#[test]
fn the_summer_s_folders_are_its_own() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let folders = Folders::new();
    drop(folders.parts());
    let keys = folders.path("vault").join(folders.charter.hash().to_string());
    let open = || {
        let mut stores = FileStores::open(&folders.path("state"), &folders.path("vault")).map_err(|e| e.to_string())?;
        stores.open(folders.charter.hash()).map(drop).map_err(|e| e.to_string())
    };
    let (state, vault, database) = (folders.path("state"), folders.path("vault"), folders.path("state/summer.db"));
    for path in [&state, &vault, &database, &keys] {
        let before = fs::metadata(path).unwrap().permissions();
        assert_eq!(before.mode() & 0o077, 0, "{} is made for its owner alone", path.display());
        for more in [0o020, 0o002] {
            fs::set_permissions(path, fs::Permissions::from_mode(before.mode() | more)).unwrap();
            let refused = open().unwrap_err();
            assert!(refused.contains(&path.display().to_string()) && refused.contains("chmod"), "{refused}");
        }
        fs::set_permissions(path, before).unwrap();
        open().unwrap();
        // Only root can give a file away, and take it back.
        let us = fs::metadata(path).unwrap();
        if chown(path, Some(4711), None).is_ok() {
            let refused = open().unwrap_err();
            assert!(refused.contains("belongs to user 4711") && refused.contains("chown"), "{refused}");
            chown(path, Some(std::os::unix::fs::MetadataExt::uid(&us)), None).unwrap();
            open().unwrap();
        }
    }
    assert_eq!(FileStores::open(&state, &vault).map(drop).map_err(|e| e.code()), Ok(()));
    fs::set_permissions(&vault, fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(FileStores::open(&state, &vault).map(drop).map_err(|e| e.code()), Err(12));
}
