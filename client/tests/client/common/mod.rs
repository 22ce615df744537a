//! A federation's files for tests: an authority, certificates, keys, data and a configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dp_pvi_accounting::{Delta, DpEvent, Epsilon};
use dp_pvi_client::config::Config;
use dp_pvi_client::keys::make_request;
use dp_pvi_names::{ClientId, Hash, Payload, PayloadKind, ReleaseId, RunId};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_privacy::ledger::{Attachment, Budget, ChargeStore, Claim};
use dp_pvi_privacy::mechanism::release_non_private;
use dp_pvi_privacy::{Argument, Ledger, Pending, UnitTable, Units};
use dp_pvi_programs::identity::{generate_identity, public_identity_to_pem};
use dp_pvi_protocol::message::{Role, Signed, Update, payload_hash};
use ed25519_dalek::SigningKey;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use time::{Duration, OffsetDateTime};

pub(crate) const SCHEMA: &str = r#"
[[columns]]
name = "age"
kind = "number"
lower = 0
upper = 110
centre = 50
scale = 20
[[columns]]
name = "died"
kind = "boolean"
true_values = ["yes"]
false_values = ["no"]
"#;

/// An authority and the server's identity.
pub(crate) struct Federation {
    pub(crate) authority: CertifiedIssuer<'static, KeyPair>,
    pub(crate) server: SigningKey,
}

impl Federation {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { authority, server: generate_identity().unwrap() }
    }

    /// What the authority hands out beside a certificate.
    pub(crate) fn ca_pem(&self) -> String {
        format!("{}{}", self.authority.pem(), public_identity_to_pem(&self.server.verifying_key()).unwrap())
    }

    /// A certificate for `key` with this URI, valid for these days from now.
    pub(crate) fn sign(&self, key: &KeyPair, uri: &str, usage: ExtendedKeyUsagePurpose, days: std::ops::Range<i64>) -> String {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        if usage == ExtendedKeyUsagePurpose::ServerAuth {
            params.subject_alt_names.push(SanType::DnsName("localhost".try_into().unwrap()));
        }
        params.extended_key_usages = vec![usage];
        let now = OffsetDateTime::from(fs::metadata("/proc/self").unwrap().modified().unwrap());
        params.not_before = now + Duration::days(days.start);
        params.not_after = now + Duration::days(days.end);
        params.signed_by(key, &self.authority).unwrap().pem()
    }
}

/// A site's folder with everything that a run needs.
pub(crate) struct Site {
    pub(crate) folder: PathBuf,
    pub(crate) federation: Federation,
    _temporary: tempfile::TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self::with_role(Role::Site)
    }

    pub(crate) fn with_role(role: Role) -> Self {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().to_owned();
        let federation = Federation::new();
        let tls = folder.join("tls");
        make_request("lung-fed", ClientId::new("hospital-1").unwrap(), role, &tls).unwrap();
        fs::write(tls.join("ca.pem"), federation.ca_pem()).unwrap();
        fs::write(folder.join("schema.toml"), SCHEMA).unwrap();
        fs::write(folder.join("cohort.csv"), "age,died\n40,no\n50,no\n60,yes\n70,yes\n35,no\n").unwrap();
        let private = if role == Role::Site {
            ("ledger = \"data/ledger.db\"\nnominal_units = 5\n", "[budget]\nepsilon = 2.0\ndelta = 1e-5\n")
        } else {
            ("", "")
        };
        let role_name = if role == Role::Site { "site" } else { "evaluator" };
        let config = format!(
            "[site]\nname = \"hospital-1\"\nrole = \"{role_name}\"\nserver = \"localhost:1\"\nfederation = \"lung-fed\"\nreconnect_seconds = 0\n\
             [tls]\nca = \"tls/ca.pem\"\ncert = \"tls/hospital-1.pem\"\nkey = \"tls/hospital-1.key\"\nidentity = \"tls/hospital-1.identity\"\n\
             [data]\nname = \"lung-2024\"\nuri = \"cohort.csv\"\nschema = \"schema.toml\"\n{}{}",
            private.0, private.1
        );
        fs::write(folder.join("client.toml"), config).unwrap();
        let site = Self { folder, federation, _temporary: temporary };
        site.certify(&format!("dp-pvi://lung-fed/{role_name}/hospital-1"), -1..30);
        if role == Role::Site {
            site.run(&["ledger", "create"]).expect(0, "");
        }
        site
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(crate) fn key(&self) -> KeyPair {
        KeyPair::from_pem(&fs::read_to_string(self.path("tls/hospital-1.key")).unwrap()).unwrap()
    }

    /// Replaces the site's certificate.
    pub(crate) fn certify(&self, uri: &str, days: std::ops::Range<i64>) {
        let pem = self.federation.sign(&self.key(), uri, ExtendedKeyUsagePurpose::ClientAuth, days);
        fs::write(self.path("tls/hospital-1.pem"), pem).unwrap();
    }

    /// Replaces a line of the configuration, or adds to it where `from` is a section.
    pub(crate) fn configure(&self, from: &str, to: &str) {
        let path = self.path("client.toml");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(from), "{from}");
        fs::write(path, text.replacen(from, to, 1)).unwrap();
    }

    pub(crate) fn config(&self) -> Config {
        Config::parse(&fs::read_to_string(self.path("client.toml")).unwrap(), &self.folder, []).unwrap()
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program();
        command.args(arguments).arg("--config").arg(self.path("client.toml"));
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Outcome {
        Outcome::of(self.command(arguments).output().unwrap())
    }
}

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dp-pvi-client"));
    command.env_remove("RUST_LOG").env_remove("DP_PVI_CONFIG");
    command
}

pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    pub(crate) fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Asserts the exit code and that stderr says these words.
    #[track_caller]
    pub(crate) fn expect(self, code: i32, words: &str) -> Self {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        assert!(self.stderr.contains(words), "{words:?} is not in: {}", self.stderr);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(self.stdout.trim()).unwrap()
    }
}

/// A resolved task for [`SCHEMA`].
pub(crate) fn task(update: &str, privacy: &str) -> ResolvedTask {
    let text = format!(
        "model.family = \"logistic-regression\"\nmodel.outcome = \"died\"\nmodel.prior_units = \"encoded\"\nmodel.approximation = \"mean-field\"\nschema.file = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 3\n{update}\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n{privacy}\n"
    );
    let context = ResolveContext { name: "lung-fed", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

pub(crate) fn private_task(epsilon: f64) -> ResolvedTask {
    task("update = \"dp-optimisation\"\nexpected_sites = 3", &format!("epsilon = {epsilon:?}"))
}

/// Four sites, three honest ones counted on, one that may collude.
pub(crate) fn aggregated_task(epsilon: f64) -> ResolvedTask {
    let text = format!(
        "model.family = \"logistic-regression\"\nmodel.outcome = \"died\"\nmodel.prior_units = \"encoded\"\nmodel.approximation = \"mean-field\"\nschema.file = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 3\nupdate = \"natural-gradient\"\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = {epsilon:?}\ndelta = 1e-5\ntrust = \"aggregated\"\n\
         [aggregation]\nsites = 4\ncolluders = 1\nmax_units = 100\n"
    );
    let context = ResolveContext { name: "lung-fed", update_deadline_seconds: 60, min_sites: 4, expected_sites: 4 };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

pub(crate) fn open_task() -> ResolvedTask {
    task("update = \"pvi\"", "")
}

pub(crate) fn write(path: &Path, bytes: impl AsRef<[u8]>) {
    fs::write(path, bytes).unwrap();
}

/// The run of [`open_task`] that the tests speak of.
pub(crate) fn run() -> RunId {
    RunId { task: open_task().hash(), number: 1 }
}

/// A budget that allows releases without protection.
pub(crate) fn open_budget() -> Budget {
    Budget {
        epsilon: Epsilon::new(1.0).unwrap(),
        delta: Delta::new(1e-5).unwrap(),
        per_run: None,
        max_fallback: None,
        allow_non_private: true,
    }
}

struct One(Vec<f64>);

impl UnitTable for One {
    type Unit<'a> = &'a [f64];
    fn len(&self) -> usize {
        1
    }
    fn unit(&self, _: usize) -> &[f64] {
        &self.0
    }
}

/// Commits an update with these values, through the gate: released without protection under a ledger that allows it.
pub(crate) fn committed<S: ChargeStore>(ledger: &mut Ledger<S, SigningKey>, round: u32, values: Vec<f64>, key: &SigningKey) -> Attachment {
    let release = ReleaseId { run: run(), client: ClientId::new("hospital-1").unwrap(), round };
    let permit = ledger.reserve(&release, &DpEvent::NonPrivate, Hash::default()).unwrap();
    let nothing = Argument::nothing();
    let released = release_non_private(Units::new(One(values)).map(&nothing, |(), t| t.0.clone()), permit).unwrap();
    let claim = Claim { release: release.clone(), header: Hash::default(), ledger_head: ledger.head() };
    let payload = released.map(&nothing, |(), values| Payload::Values(values));
    let attachment = Attachment::new(claim, payload, Pending::None, key, |claim, payload, key| {
        let update = Update {
            release: claim.release.clone(),
            header: claim.header,
            kind: PayloadKind::Values,
            coordinates: payload.len() as u64,
            payload: payload_hash(PayloadKind::Values, &payload.to_bytes()),
            ledger_head: claim.ledger_head,
            upload: None,
        };
        Signed::seal(&update, key).to_bytes()
    });
    ledger.commit(&release, &attachment).unwrap();
    attachment
}
