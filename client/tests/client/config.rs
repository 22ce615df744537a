//! The configuration: every key, every refusal names its field.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use dp_pvi_accounting::{PrivacyUnit, Relation};
use dp_pvi_client::config::{Approve, Cache, Config, DatabaseTls, KeepRows, RowsBy, SAMPLE, overrides};
use dp_pvi_posterior::task::Trust;
use dp_pvi_protocol::message::Role;
use dp_pvi_secagg::charter::Floors;

use super::common::{Site, write};

const SITE: &str = r#"
[site]
name = "hospital-1"
server = "fed.example.org:9092"
federation = "lung-fed"
[tls]
ca = "tls/ca.pem"
cert = "tls/hospital-1.pem"
key = "tls/hospital-1.key"
identity = "tls/hospital-1.identity"
[data]
name = "lung-2024"
uri = ["a.csv", "file:///b.parquet"]
schema = "schema.toml"
ledger = "/var/lib/ledger.db"
nominal_units = 400
[policy]
allow_trust = ["local", "aggregated"]
min_records = 200
[budget]
epsilon = 2.0
delta = 1e-5
per_run_epsilon = 1.0
max_fallback_epsilon = 5.5
[aggregation]
summer = "tls/summer.pub.pem"
colluders = 2
"#;

fn parse(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    Config::parse(text, Path::new("/etc/dp-pvi"), environment).map_err(|e| {
        assert_eq!(e.exit_code(), 2);
        e.to_string()
    })
}

#[test]
fn a_full_file_becomes_checked_types() {
    let config = parse(SITE, &[]).unwrap();
    assert_eq!(config.site.server(), "fed.example.org:9092");
    assert_eq!(config.site.server_name, "fed.example.org");
    assert_eq!(config.site.state, Path::new("/etc/dp-pvi/state"));
    assert_eq!(config.site.reconnect, Duration::from_secs(600));
    assert_eq!(config.site.threads, std::thread::available_parallelism().unwrap());
    assert_eq!(parse(SITE, &[("DP_PVI__SITE__THREADS", "3")]).unwrap().site.threads.get(), 3);
    assert!(parse(SITE, &[("DP_PVI__SITE__THREADS", "0")]).is_err());
    assert_eq!(config.data.cache, Cache::Memory);
    assert_eq!(parse(SITE, &[("DP_PVI__DATA__CACHE", "disk")]).unwrap().data.cache, Cache::Disk);
    assert!(parse(SITE, &[("DP_PVI__DATA__CACHE", "tape")]).unwrap_err().contains("cache"));
    assert_eq!(config.tls.server_identity, Path::new("/etc/dp-pvi/tls/ca.pem"));
    assert_eq!(config.data.files, [Path::new("/etc/dp-pvi/a.csv"), Path::new("/b.parquet")]);
    assert_eq!(config.policy.allow_trust, [Trust::Local, Trust::Aggregated]);
    assert_eq!(config.policy.min_release_tick_seconds, 0);
    let floor = parse(SITE, &[("DP_PVI__POLICY__MIN_RELEASE_TICK_SECONDS", "30")]).unwrap();
    assert_eq!(floor.policy.min_release_tick_seconds, 30);
    assert_eq!((config.policy.min_records, config.policy.approve, config.policy.allow_non_private), (200, Approve::Policy, false));
    let private = config.private().unwrap();
    assert_eq!(private.ledger, Path::new("/var/lib/ledger.db"));
    assert_eq!((private.identity.unit, private.identity.relation, private.nominal_units), (PrivacyUnit::Record, Relation::ReplaceOne, 400));
    assert!((private.budget.epsilon.get() - 2.0).abs() < f64::EPSILON && !private.budget.allow_non_private);
    assert!((private.budget.max_fallback.unwrap().get() - 5.5).abs() < f64::EPSILON);
    let aggregation = config.aggregation.unwrap();
    assert_eq!(aggregation.summer, Path::new("/etc/dp-pvi/tls/summer.pub.pem"));
    assert_eq!(aggregation.floors, Floors { colluders: 2, ..Floors::default() });
    let own = [("MIN_CONTRIBUTORS", "5"), ("COLLUDERS", "0"), ("MAX_HONEST", "7"), ("MAX_ROUNDS", "30")];
    let own = own.map(|(key, value)| (format!("DP_PVI__AGGREGATION__{key}"), value));
    let own: Vec<_> = own.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let floors = parse(SITE, &own).unwrap().aggregation.unwrap().floors;
    assert_eq!(floors, Floors { min_contributors: 5, colluders: 0, max_honest: 7, max_rounds: 30 });
}

/// The files of today, in the order of their names, and an error where there are none.
#[test]
fn a_name_with_a_star_is_all_files_that_it_fits() {
    let folder = tempfile::tempdir().unwrap();
    ["part-2.parquet", "part-10.parquet", "part-1.parquet", "other.csv", ".part-3.parquet", ".other.csv"]
        .iter()
        .for_each(|name| std::fs::write(folder.path().join(name), "").unwrap());
    let of = |uri: &str| Config::parse(&SITE.replacen("[\"a.csv\", \"file:///b.parquet\"]", uri, 1), folder.path(), []);
    let names = |uri: &str| -> Vec<_> {
        of(uri).unwrap().data.files.iter().map(|file| file.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names("\"part-*.parquet\""), ["part-1.parquet", "part-10.parquet", "part-2.parquet"]);
    assert_eq!(names("[\"other.csv\", \"part-1*\"]"), ["other.csv", "part-1.parquet", "part-10.parquet"]);
    assert_eq!(names("\"*.csv\""), ["other.csv"], "a hidden file is not data");
    let error = of("\"no-*.csv\"").unwrap_err().to_string();
    assert!(error.contains("data.uri: no-*.csv fits no file"), "{error}");
}

/// What a value of a record may be is decided at the site, whoever approves a task. An evaluator has its own copy, too.
#[test]
fn every_client_has_its_own_schema() {
    assert_eq!(parse(SITE, &[]).unwrap().data.schema, Path::new("/etc/dp-pvi/schema.toml"));
    let without = SITE.replacen("schema = \"schema.toml\"\n", "", 1);
    let hash = format!("sha256:{}", "ab".repeat(32));
    for approve in ["policy", "manual", &hash] {
        let error = parse(&without, &[("DP_PVI__POLICY__APPROVE", approve)]).unwrap_err();
        assert!(error.contains("data.schema") && error.contains("approve = \"policy\""), "{error}");
    }
    let (evaluator, _) = without.split_once("ledger = ").unwrap();
    assert!(parse(evaluator, &[("DP_PVI__SITE__ROLE", "evaluator")]).unwrap_err().contains("data.schema"));
}

/// The declared number of units is public: no one is asked for the exact one.
#[test]
fn the_declared_number_is_a_round_one() {
    let error = parse(&SITE.replacen("nominal_units = 400\n", "", 1), &[]).unwrap_err();
    assert!(error.contains("data.nominal_units") && error.contains("round number") && !error.contains("inspect"), "{error}");
}

/// Who allows aggregated trust says whom he takes for the second party; who does not need not.
#[test]
fn aggregated_trust_needs_a_summer() {
    let (without, _) = SITE.split_once("[aggregation]").unwrap();
    let error = parse(without, &[]).unwrap_err();
    assert!(error.contains("aggregation.summer") && error.contains("fingerprint"), "{error}");
    let local = without.replacen("[\"local\", \"aggregated\"]", "[\"local\"]", 1);
    assert!(parse(&local, &[]).unwrap().aggregation.is_none());
}

/// What `config schema` prints, and `deploy/` ships, has every key that is read.
#[test]
fn the_sample_names_every_key() {
    for section in ["site", "tls", "data", "policy", "budget", "aggregation"] {
        let error = parse(&SITE.replacen(&format!("[{section}]\n"), &format!("[{section}]\nno_such_key = 1\n"), 1), &[]).unwrap_err();
        // The parser names the keys that it knows when it meets another.
        let (_, expected) = error.split_once("expected").unwrap();
        let keys: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
        let (_, text) = SAMPLE.split_once(&format!("\n[{section}]\n")).unwrap();
        let text = text.split("\n[").next().unwrap();
        assert!(!keys.is_empty());
        for key in keys {
            assert!(text.lines().any(|line| line.starts_with(&format!("{key} = "))), "[{section}] {key}");
        }
    }
}

/// The commented section of the sample has every key, and works when the signs before its lines are taken away.
#[test]
fn the_sample_of_an_engine_names_every_key_and_works() {
    let (_, sample) = SAMPLE.split_once("# [engine]\n").unwrap();
    let lines =
        sample.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.strip_prefix("# ")).filter(|line| line.contains(" = "));
    let text = format!("{SITE}\n[engine]\n{}\n", lines.collect::<Vec<_>>().join("\n"));
    let engine = parse(&text, &[]).unwrap().data.engine.unwrap();
    assert_eq!((&*engine.program, &*engine.folder), (Path::new("dp-pvi-site-engine"), Path::new("/mnt/dp-pvi-snapshot")));
    assert_eq!((&*engine.config, &*engine.key), (Path::new("/etc/dp-pvi/engine/head.toml"), Path::new("/etc/dp-pvi/engine/site.key")));
    let error = parse(&format!("{text}no_such_key = 1\n"), &[]).unwrap_err();
    let (_, expected) = error.split_once("expected").unwrap();
    let keys: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
    assert!(keys.len() == 5 && keys.iter().all(|key| text.contains(&format!("\n{key} = "))), "{keys:?}");
}

/// The section of the sample that is in place of `uri`, in a configuration without one.
fn with_database(line: impl Fn(&str) -> Option<String>) -> String {
    let (_, sample) = SAMPLE.split_once("# [database]\n").unwrap();
    let lines = sample.lines().filter_map(|line| line.strip_prefix("# ")).filter(|line| line.contains(" = "));
    let lines: Vec<String> = lines.filter_map(line).collect();
    let site = SITE.replacen("uri = [\"a.csv\", \"file:///b.parquet\"]\n", "", 1);
    format!("{site}[database]\n{}\n", lines.join("\n"))
}

/// Lines that say that the rows are those of a query: in place of `records`.
fn of_query(line: &str) -> bool {
    line.starts_with("query = ") || line.starts_with("vouched = ")
}

/// The commented section of the sample has every key, and works when the signs before its lines are taken away.
#[test]
fn the_sample_of_a_database_names_every_key_and_works() {
    let text = with_database(|line| (!line.starts_with("records = ")).then(|| line.to_owned()));
    let database = parse(&text, &[]).unwrap().data.database.unwrap();
    let RowsBy::Query { file, vouched } = database.rows else { panic!("{:?}", database.rows) };
    assert!(file == Path::new("/etc/dp-pvi/cohort.sql") && vouched.is_some());
    let text = with_database(|line| (!of_query(line)).then(|| line.to_owned()));
    let database = parse(&text, &[]).unwrap().data.database.unwrap();
    assert_eq!(database.place().to_string(), "db.hospital.example/registry");
    assert_eq!(database.rows, RowsBy::Description("/etc/dp-pvi/cohort.toml".into()));
    assert_eq!(database.tls, DatabaseTls::Required { ca: "/etc/dp-pvi/tls/database-ca.pem".into() });
    assert_eq!((database.answer.as_secs(), database.keep), (600, KeepRows::Run));
    let error = parse(&format!("{text}no_such_key = 1\n"), &[]).unwrap_err();
    let (_, expected) = error.split_once("expected").unwrap();
    let keys: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
    assert!(keys.len() > 6 && keys.iter().all(|key| text.contains(&format!("\n{key} = ")) || of_query(&format!("{key} = "))), "{keys:?}");
}

#[test]
fn a_database_that_cannot_be_used_safely_is_refused_with_its_key() {
    let with = |key: &str, value: Option<&str>| {
        with_database(|line| match (line.split_once(" = "), value) {
            (Some((own, _)), _) if of_query(line) && own != key => None,
            (Some((own, _)), Some(value)) if own == key => Some(format!("{key} = {value}")),
            (Some((own, _)), None) if own == key => None,
            _ => Some(line.to_owned()),
        })
    };
    let refused = |text: &str, key: &str, words: &str| {
        let error = parse(text, &[]).unwrap_err();
        assert!(error.contains(key) && error.contains(words), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    };
    refused(&with("url", Some("\"postgresql://a:hunter2@db/registry\"")), "database.url", "password_file");
    refused(&with("url", Some("\"mysql://a:hunter2@db/registry\"")), "database.url", "postgresql://");
    refused(&with("url", Some("\"postgresql://db/registry\"")), "database.url", "USER@HOST");
    refused(&with("url", Some("\"postgresql://a@db,other/registry\"")), "database.url", "USER@HOST");
    refused(&with("ca", None), "database.ca", "authority");
    refused(&with("tls", Some("\"off\"")), "database.ca", "TLS");
    refused(&with("tls", Some("\"off\"")).replace("ca = \"tls/database-ca.pem\"\n", ""), "database.tls", "in the clear");
    refused(&with("vouched", Some("\"sha256:12\"")), "database.vouched", "sha256:");
    refused(&with("vouched", Some(&format!("\"sha256:{}\"", "ab".repeat(32)))), "database.vouched", "goes with `query`");
    refused(&with("query", Some("\"cohort.sql\"")), "database.records", "in its place");
    refused(&with("records", None), "database.records", "is missing");
    refused(&with("answer_seconds", Some("0")), "database.answer_seconds", "1 to 86400");
    let files = with("vouched", None).replacen("schema =", "uri = \"a.csv\"\nschema =", 1);
    refused(&files, "data.uri", "[database]");
    refused(&SITE.replacen("uri = [\"a.csv\", \"file:///b.parquet\"]\n", "", 1), "data.uri", "[database]");
    let local = with("url", Some("\"postgresql:///registry?host=/run/postgresql&user=a\"")).replace("ca = \"tls/database-ca.pem\"\n", "");
    assert_eq!(parse(&local.replace("tls = \"required\"\n", ""), &[]).unwrap().data.database.unwrap().tls, DatabaseTls::Off);
    let (evaluator, database) = (SITE.split_once("ledger = ").unwrap().0, with("vouched", None));
    let (_, database) = database.split_once("[database]").unwrap();
    let text = format!("{}[database]{database}", evaluator.replacen("uri = [\"a.csv\", \"file:///b.parquet\"]\n", "", 1));
    let error = parse(&text, &[("DP_PVI__SITE__ROLE", "evaluator")]).unwrap_err();
    assert!(error.contains("database: an evaluator"), "{error}");
}

#[test]
fn the_environment_overrides_the_file() {
    let hash = "ab".repeat(32);
    let approve = format!("sha256:{hash}");
    let config = parse(
        SITE,
        &[
            ("DP_PVI__SITE__SERVER", "[::1]:43211"),
            ("DP_PVI__SITE__SERVER_NAME", "localhost"),
            ("DP_PVI__BUDGET__EPSILON", "3"),
            ("DP_PVI__BUDGET__UNIT", "person"),
            ("DP_PVI__DATA__SCHEMA", "schema.toml"),
            ("DP_PVI__POLICY__ALLOW_TRUST", "[\"local\"]"),
            ("DP_PVI__POLICY__ALLOW_NON_PRIVATE", "true"),
            ("DP_PVI__POLICY__APPROVE", &approve),
            ("DP_PVI__TLS__SERVER_IDENTITY", "/s.pem"),
            ("DP_PVI_SHARED", "ignored"),
            ("HOME", "/root"),
        ],
    )
    .unwrap();
    assert_eq!((config.site.server().as_str(), config.site.server_name.as_str()), ("[::1]:43211", "localhost"));
    assert_eq!(config.policy.approve, Approve::Task(hash.parse().unwrap()));
    assert_eq!(config.policy.allow_trust, [Trust::Local]);
    assert_eq!(config.tls.server_identity, Path::new("/s.pem"));
    let private = config.private().unwrap();
    assert!((private.budget.epsilon.get() - 3.0).abs() < f64::EPSILON && private.budget.allow_non_private);
    assert_eq!(private.identity.unit, PrivacyUnit::Person);
    assert!(parse(SITE, &[("DP_PVI__NOPE", "1")]).unwrap_err().contains("DP_PVI__NOPE"));
    assert!(parse(SITE, &[("DP_PVI__SITE__NOPE", "1")]).unwrap_err().contains("nope"));
}

/// Anyone who reads the message looks into the file, where all is well: so the variable is named, whatever is wrong with its value.
#[test]
fn a_variable_that_cannot_be_read_is_named() {
    for (name, value, word) in [
        ("DP_PVI__SITE__RECONNECT_SECONDS", "ten", "reconnect_seconds"),
        ("DP_PVI__SITE__RECONNECT_SECONDS", "\"unfinished", "reconnect_seconds"),
        ("DP_PVI__SITE__SERVER", "not a host", "site.server"),
        ("DP_PVI__BUDGET__EPSILON", "-1", "epsilon"),
        ("DP_PVI__POLICY__APPROVE", "sha256:12", "approve"),
        ("DP_PVI__SITE__NOPE", "1", "nope"),
    ] {
        let message = parse(SITE, &[("DP_PVI__SITE__STATE", "other"), (name, value)]).unwrap_err();
        assert!(message.starts_with(&format!("configuration: {name}: ")) && message.contains(word), "{message}");
        assert!(!message.contains("DP_PVI__SITE__STATE"), "{message}");
    }
    let two = [("DP_PVI__BUDGET__EPSILON", "-1"), ("DP_PVI__BUDGET__DELTA", "7")];
    assert!(parse(SITE, &two).unwrap_err().starts_with("configuration: DP_PVI__BUDGET__EPSILON or DP_PVI__BUDGET__DELTA: "));
    // Where the file is wrong, the file is named.
    let wrong = SITE.replace("epsilon", "epsylon");
    assert!(parse(&wrong, &[("DP_PVI__SITE__STATE", "other")]).unwrap_err().starts_with("configuration: client.toml: "));
    // Bytes that are no text: of our variables one is an error with its name, of others none is.
    let bytes = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    let foreign = [(bytes(b"LANG"), bytes(b"\xff")), (bytes(b"DP_PVI__\xff"), bytes(b"1")), (bytes(b"DP_PVI__SITE__STATE"), bytes(b"s"))];
    assert_eq!(overrides(foreign).unwrap(), [("DP_PVI__SITE__STATE".to_owned(), "s".to_owned())]);
    let error = overrides([(bytes(b"DP_PVI__SITE__SERVER"), bytes(b"\xff\xfe"))]).unwrap_err();
    assert!(error.exit_code() == 2 && error.to_string().contains("DP_PVI__SITE__SERVER: the value is not UTF-8"), "{error}");
}

#[test]
fn wrong_values_name_their_field() {
    for (from, to, word) in [
        ("name = \"hospital-1\"", "name = \"Hospital 1\"", "name"),
        ("server = \"fed.example.org:9092\"", "server = \"https://fed.example.org\"", "site.server"),
        ("server = \"fed.example.org:9092\"", "server = \"fed:99999\"", "site.server"),
        ("federation = \"lung-fed\"", "federation = \"\"", "site.federation"),
        ("federation = \"lung-fed\"", "", "federation"),
        ("ca = \"tls/ca.pem\"", "cas = \"tls/ca.pem\"", "cas"),
        ("uri = [\"a.csv\", \"file:///b.parquet\"]", "uri = []", "data.uri"),
        ("uri = [\"a.csv\", \"file:///b.parquet\"]", "uri = \"s3://bucket/b\"", "data.uri"),
        ("ledger = \"/var/lib/ledger.db\"", "", "data.ledger"),
        ("nominal_units = 400", "nominal_units = 0", "data.nominal_units"),
        ("nominal_units = 400", "nominal_units = -1", "nominal_units"),
        ("allow_trust = [\"local\", \"aggregated\"]", "allow_trust = []", "policy.allow_trust"),
        ("allow_trust = [\"local\", \"aggregated\"]", "allow_trust = [\"none\"]", "allow_trust"),
        ("min_records = 200", "approve = \"maybe\"", "approve"),
        ("min_records = 200", "approve = \"sha256:12\"", "approve"),
        ("min_records = 200", "min_record = 200", "min_record"),
        ("epsilon = 2.0", "epsilon = -1.0", "epsilon"),
        ("epsilon = 2.0", "epsilon = nan", "epsilon"),
        ("delta = 1e-5", "delta = 0.0", "delta"),
        ("delta = 1e-5", "delta = 1.0", "delta"),
        ("max_fallback_epsilon = 5.5", "max_fallback_epsilon = 1.9", "budget.max_fallback_epsilon"),
        ("max_fallback_epsilon = 5.5", "max_fallback_epsilon = -1.0", "max_fallback_epsilon"),
        ("summer = \"tls/summer.pub.pem\"", "", "summer"),
        ("colluders = 2", "min_contributors = 2", "aggregation.min_contributors"),
        ("colluders = 2", "max_honest = 1", "aggregation.max_honest"),
        ("colluders = 2", "max_rounds = 0", "aggregation.max_rounds"),
        ("colluders = 2", "colluders = -1", "colluders"),
        ("colluders = 2", "collaborators = 2", "collaborators"),
        ("[budget]", "[budgets]", "budgets"),
        ("[site]", "[site", "client.toml"),
    ] {
        assert!(SITE.contains(from), "{from}");
        let error = parse(&SITE.replacen(from, to, 1), &[]).unwrap_err();
        assert!(error.contains(word), "{from} -> {to}: {error}");
    }
    let without_budget = format!("{}{}", &SITE[..SITE.find("[budget]").unwrap()], &SITE[SITE.find("[aggregation]").unwrap()..]);
    assert!(parse(&without_budget, &[]).unwrap_err().contains("budget"));
}

#[test]
fn an_evaluator_has_nothing_private() {
    let text = SITE.replacen("name = \"hospital-1\"", "name = \"judge\"\nrole = \"evaluator\"", 1);
    let mut rest = text.clone();
    for (field, remove) in [("data.ledger", "ledger = \"/var/lib/ledger.db\"\n"), ("data.nominal_units", "nominal_units = 400\n")] {
        assert!(parse(&rest, &[]).unwrap_err().contains(field));
        rest = rest.replacen(remove, "", 1);
    }
    assert!(parse(&rest, &[]).unwrap_err().contains("budget"));
    let no_budget = format!("{}{}", &rest[..rest.find("[budget]").unwrap()], &rest[rest.find("[aggregation]").unwrap()..]);
    assert!(parse(&no_budget, &[]).unwrap_err().contains("aggregation"));
    let config = parse(&rest[..rest.find("[budget]").unwrap()], &[]).unwrap();
    assert_eq!(config.site.role, Role::Evaluator);
    assert_eq!(config.private().unwrap_err().exit_code(), 2);
}

/// Everyone sees whether a site takes part: a ledger cannot promise to hide it.
#[test]
fn the_budget_of_a_site_is_for_its_exchange() {
    let of = |keys: &str| parse(&SITE.replace("[budget]\n", &format!("[budget]\n{keys}")), &[]);
    let refused = of("unit = \"site\"\nrelation = \"add-remove\"\n").unwrap_err();
    assert!(refused.contains("budget.relation") && refused.contains("replace-one"), "{refused}");
    for fine in ["unit = \"site\"\n", "unit = \"record\"\nrelation = \"add-remove\"\n"] {
        of(fine).unwrap();
    }
}

/// On the terminal the quoted line is in lines of its own, and every message names its file.
#[test]
fn a_mistake_in_a_file_is_shown_with_its_file_and_its_line() {
    let site = Site::new();
    let quoted = |stderr: &str| {
        assert!(!stderr.contains("\\n"), "{stderr}");
        let (message, excerpt) = stderr.trim_end().split_once('\n').unwrap();
        assert!(excerpt.lines().all(|line| line.starts_with("    ")), "{stderr}");
        (message.to_owned(), excerpt.to_owned())
    };
    let schema = site.path("schema.toml");
    let good = std::fs::read_to_string(&schema).unwrap();
    write(&schema, good.replacen("kind = \"number\"", "kind = number", 1));
    let (message, excerpt) = quoted(&site.run(&["data", "inspect"]).expect(4, "").stderr);
    assert!(message.contains(schema.to_str().unwrap()) && message.contains("TOML parse error at line 4"), "{message}");
    assert!(excerpt.contains("4 | kind = number") && excerpt.contains('^'), "{excerpt}");
    write(&schema, good);

    let file = site.path("client.toml");
    site.configure("reconnect_seconds = 0", "reconect_seconds = 0");
    let (message, excerpt) = quoted(&site.run(&["budget", "show"]).expect(2, "").stderr);
    assert!(message.contains(file.to_str().unwrap()) && excerpt.contains("reconect_seconds"), "{message} {excerpt}");
    let json = site.run(&["budget", "show", "--log-format", "json"]).expect(2, "").stderr;
    let line: serde_json::Value = serde_json::from_str(json.trim()).unwrap();
    assert!(line["fields"]["message"].as_str().unwrap().contains("\n"), "{line}");

    // Mistakes that are none of the syntax.
    site.configure("reconect_seconds = 0", "reconnect_seconds = 0");
    site.configure("epsilon = 2.0", "epsilon = -2.0");
    let stderr = site.run(&["budget", "show"]).expect(2, "epsilon").stderr;
    assert!(stderr.contains(file.to_str().unwrap()), "{stderr}");
}

/// One line of a configuration is a megabyte long: the error about it is short, on the terminal and as an object.
#[test]
fn an_error_about_a_long_line_is_short() {
    let site = Site::new();
    let file = site.path("client.toml");
    let text = fs::read_to_string(&file).unwrap();
    write(&file, text + &format!("wrong = \"{}\"\n", "x".repeat(1 << 20)));
    for arguments in [&["check", "--offline"][..], &["check", "--offline", "--format", "json"]] {
        let refused = site.run(arguments).expect(2, "wrong");
        assert!(refused.stdout.len() + refused.stderr.len() < 20_000, "{} bytes", refused.stdout.len() + refused.stderr.len());
    }
}
