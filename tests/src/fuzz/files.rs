//! What is read from disk: tasks, schemas, settings, keys, posteriors and records.

use std::path::{Path, PathBuf};

use dp_pvi_client::config::Config as ClientConfig;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
use dp_pvi_programs::identity;
use dp_pvi_protocol::statement::statement;
use dp_pvi_results::document::PosteriorDocument;
use dp_pvi_schema::Schema;
use dp_pvi_server::config::Config as ServerConfig;
use dp_pvi_server::summer::config::SummerConfig;
use dp_pvi_verifier::posterior::Posterior;

use super::Input;
use crate::place;

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(place::root().join("deploy").join(name)).unwrap_or_else(|error| panic!("deploy/{name}: {error}"))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn context() -> ResolveContext<'static> {
    ResolveContext { name: "fuzz", update_deadline_seconds: 60, min_sites: 2, expected_sites: 3 }
}

/// The sample schema, small: the samples themselves would be long inputs.
pub(super) const SCHEMA: &str = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n\
    [[columns]]\nname = \"a\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";
const TASK: &str = "[model]\nfamily = \"logistic-regression\"\noutcome = \"y\"\n[schema]\nfile = \"schema.toml\"\n\
    [pvi]\nschedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\"\n\
    [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n";

fn task() -> ResolvedTask {
    RawTask::parse(TASK).and_then(|task| task.resolve(SCHEMA, context())).expect("the task is valid")
}

/// A task file, and a resolved task's canonical bytes.
pub(super) fn tasks() -> Vec<Vec<u8>> {
    vec![[&[0], TASK.as_bytes()].concat(), [&[1], &task().to_bytes()[..]].concat()]
}

/// A coordinator's file, and what a server sends.
pub(super) fn read_tasks(bytes: &[u8]) {
    let mut input = Input(bytes);
    match input.byte() % 2 {
        0 => {
            if let Some(Ok(task)) = text(input.0).map(RawTask::parse) {
                drop(task.resolve(SCHEMA, context()));
            }
        }
        _ => {
            if let Ok(task) = ResolvedTask::from_bytes(input.0) {
                assert_eq!(task.to_bytes(), input.0, "a task has one form");
            }
        }
    }
}

/// Schemas of the samples.
pub(super) fn schemas() -> Vec<Vec<u8>> {
    vec![SCHEMA.into(), sample("schema.toml")]
}

/// A schema file. Rows have a bound: those of documents and images, and those of a table by any formula.
pub(super) fn read_schemas(bytes: &[u8]) {
    let Some(Ok(schema)) = text(bytes).map(Schema::parse) else { return };
    let is_table = *schema.content() == dp_pvi_schema::content::Content::Table;
    let asked = if is_table { schema.with_formula("~ .", &[]) } else { Ok(schema) };
    if let Ok(asked) = asked {
        assert!(asked.row_norm_bound().is_finite(), "rows have a bound");
    }
}

/// Formulas over the columns of [`FORMULA_SCHEMA`].
pub(super) fn formulas() -> Vec<Vec<u8>> {
    let all = [
        "y ~ (x + ward)^2 - x:ward + bin(x, [-0.5, 0.5]) + offset(log1p(x)) + (1 + x | site)",
        "y ~ 0 + C(ward, treatment('b'))*poly(x, 3, raw = TRUE) + (1 || ward)",
        "y ~ s(x, k = 6, sd = 0.5) + bs(x, df = 5) + ns(`x`, knots = [0, 0.2]) + scale(sqrt(center(x, -1)), 0, 2)",
        "Surv(x, y) ~ 1",
    ];
    all.map(|text| text.as_bytes().to_vec()).into()
}

const FORMULA_SCHEMA: &str = "[[columns]]\nname = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n[[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -0.9\nupper = 1\n\
                              centre = 0\nscale = 1\nmissing = \"indicator\"\n[[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = [\"a\", \"b\", \"c\"]\n";

/// A formula of a task. One that is accepted has a canonical text that means the same.
pub(super) fn read_formulas(bytes: &[u8]) {
    let Some(text) = text(bytes) else { return };
    let schema = Schema::asking("y ~ .", FORMULA_SCHEMA).expect("it is a schema");
    let sites = ["north".to_owned(), "south".to_owned()];
    match schema.clone().with_formula(text, &sites) {
        Ok(found) => {
            let design = found.design().expect("it has a formula");
            assert!(found.row_norm_bound().is_finite() && found.coefficient_names().len() == found.entries().len());
            let again = schema.with_formula(design.formula(), &sites).expect("a canonical text is a formula");
            assert_eq!(Some(design), again.design(), "a formula has one canonical text");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// The programs' sample settings, each after its number.
pub(super) fn settings() -> Vec<Vec<u8>> {
    let marked = |(mark, name): (u8, &str)| [&[mark], &sample(name)[..]].concat();
    (0..).zip(["client.toml", "server.toml", "summer.toml"]).map(marked).collect()
}

/// Settings of the programs.
pub(super) fn read_settings(bytes: &[u8]) {
    let mut input = Input(bytes);
    let mark = input.byte() % 3;
    let Some(text) = text(input.0) else { return };
    let path = Path::new("/nowhere/settings.toml");
    match mark {
        0 => drop(ClientConfig::parse(text, Path::new("/nowhere"), [])),
        1 => drop(ServerConfig::parse(text, path, [])),
        _ => drop(SummerConfig::parse(text, path, [])),
    }
}

/// A key, and a request for a certificate.
pub(super) fn identities() -> Vec<Vec<u8>> {
    let key = ed25519_dalek::SigningKey::from_bytes(&[3; 32]);
    let pem = identity::identity_to_pem(&key).expect("a key has a form");
    vec![pem.as_bytes().to_vec(), identity::public_identity_to_pem(&key.verifying_key()).expect("a key has a form").into()]
}

/// Files with keys, requests and certificates.
pub(super) fn read_identities(bytes: &[u8]) {
    drop(identity::PeerName::from_certificate(bytes));
    drop(identity::spki_hash(bytes));
    if let Some(text) = text(bytes) {
        drop(identity::identity_from_pem(text));
        drop(identity::public_identity_from_pem(text));
        drop(identity::Enrolment::read(text));
        drop(identity::check_federation(text));
    }
}

/// A posterior of the prior, without a site and with one.
pub(super) fn documents() -> Vec<Vec<u8>> {
    let task = task();
    let site = ClientId::new("a").expect("a name");
    let document = |statements| {
        let document =
            PosteriorDocument::new(&task, 1, 0, &task.prior_natural(), statements, Vec::new()).expect("the prior is a posterior");
        document.with_certificates().expect("it has a task").to_json().into_bytes()
    };
    vec![document(Vec::new()), document(vec![statement(&task, &site, 1).expect("the task has a price")])]
}

/// A `posterior.json` from someone else, and a transcript.
pub(super) fn read_documents(bytes: &[u8]) {
    drop(Posterior::read(bytes, Some(bytes)));
    if let Some(Ok(document)) = text(bytes).map(PosteriorDocument::from_json) {
        drop(document.predictor());
    }
}

/// Tables, each after the number of its form.
pub(super) fn records() -> Vec<Vec<u8>> {
    let gz = {
        use std::io::Write;
        let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gz.write_all(b"a,y\n0.5,1\n").and_then(|()| gz.finish()).expect("memory takes it")
    };
    vec![b"\0a,y\n0.5,1\n-1,0\n\"x\",1\n,\n".to_vec(), [&[1], &gz[..]].concat(), b"\x02PAR1PAR1".to_vec()]
}

/// Files of records.
pub(super) fn read_records(bytes: &[u8]) {
    let mut input = Input(bytes);
    let name = ["a.csv", "a.csv.gz", "a.parquet"][usize::from(input.byte()) % 3];
    let file = written(name, input.0);
    let schema = Schema::asking("y ~ .", SCHEMA).expect("the schema is valid");
    drop(dp_pvi_data::load(&schema, &[&file]));
    drop(dp_pvi_data::inspect(&schema, &[&file]));
    drop(dp_pvi_data::load_for_prediction(&schema, &[&file]));
    std::fs::remove_file(&file).expect("it was written above");
}

/// A file of this thread with these bytes.
pub(super) fn written(name: &str, bytes: &[u8]) -> PathBuf {
    let file = folder().join(name);
    std::fs::write(&file, bytes).expect("the temporary folder takes it");
    file
}

/// Removes whatever has this name in the thread's folder.
pub(super) fn forget(name: &str) {
    let file = folder().join(name);
    let _ = std::fs::remove_file(file);
}

/// A folder of this thread.
fn folder() -> PathBuf {
    thread_local! {
        static FOLDER: tempfile::TempDir = tempfile::tempdir().expect("a temporary folder");
    }
    FOLDER.with(|folder| folder.path().to_owned())
}
