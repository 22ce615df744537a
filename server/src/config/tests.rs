#![allow(clippy::unwrap_used)]
use super::*;

const GOOD: &str = r#"
[server]
name = "lung-fed"
state = "state/"
[tls]
ca = "tls/ca.pem"
cert = "tls/server.pem"
key = "tls/server.key"
[task]
file = "task.toml"
[phases]
min_sites = 3
update_deadline = "30m"
"#;

fn parse_with(text: &str, environment: &[(&str, &str)]) -> Result<Config> {
    Config::parse(text, Path::new("/etc/fed/server.toml"), environment.iter().map(|(k, v)| (k.into(), v.into())))
}

fn message(text: &str, environment: &[(&str, &str)]) -> String {
    let error = parse_with(text, environment).unwrap_err();
    assert_eq!(error.code(), 2);
    error.to_string()
}

#[test]
fn defaults_are_those_of_the_manual() {
    let config = parse_with(GOOD, &[]).unwrap();
    assert_eq!(config.listen, "0.0.0.0:9092".parse().unwrap());
    assert_eq!(config.http, Some("127.0.0.1:9464".parse().unwrap()));
    assert_eq!(config.store.database, Path::new("/etc/fed/state/state.db"));
    assert_eq!(config.output, config.state);
    assert_eq!(config.tls.crl, Path::new("/etc/fed/tls/crl.pem"));
    assert_eq!(config.tls.identity, Path::new("/etc/fed/tls/server-identity.key"));
    assert_eq!(config.phases.update_deadline, Duration::from_secs(1800));
    assert_eq!(config.phases.suspend_for, Duration::from_secs(24 * 3600));
}

#[test]
fn the_environment_wins() {
    let config = parse_with(
        GOOD,
        &[
            ("DP_PVI__SERVER__LISTEN", "127.0.0.1:0"),
            ("DP_PVI__SERVER__HTTP", "off"),
            ("DP_PVI__PHASES__MIN_SITES", "2"),
            ("DP_PVI__TASK__FILE", "/other/task.toml"),
            ("DP_PVI__STORE__KEEP_UPDATES", "open-round"),
            ("DP_PVI_SHARED", "not ours"),
        ],
    )
    .unwrap();
    assert_eq!(config.listen.port(), 0);
    assert_eq!(config.http, None);
    assert_eq!(config.phases.min_sites, 2);
    assert_eq!(config.task, Path::new("/other/task.toml"));
    assert_eq!(config.store.updates, KeepUpdates::OpenRound);
}

#[test]
fn a_variable_may_name_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "sqlite:/var/lib/x.db\n").unwrap();
    let config = parse_with(GOOD, &[("DP_PVI__STORE__URL_FILE", file.path().to_str().unwrap())]).unwrap();
    assert_eq!(config.store.database, Path::new("/var/lib/x.db"));
    assert!(message(GOOD, &[("DP_PVI__STORE__URL_FILE", "/does/not/exist")]).contains("DP_PVI__STORE__URL_FILE"));
}

#[test]
fn mistakes_are_named() {
    let cases: &[(&str, &str, &str)] = &[
        ("min_sites = 3", "min_sites = 3\nmin_site = 2", "min_site"),
        ("min_sites = 3", "min_sites = 0", "min_sites"),
        ("min_sites = 3", "min_sites = 9\nmax_sites = 8", "max_sites"),
        ("\"30m\"", "\"half an hour\"", "update_deadline"),
        ("\"30m\"", "\"10ms\"", "update_deadline"),
        ("\"30m\"", "\"30m\"\nsuspend_for = \"a day\"", "suspend_for"),
        ("name = \"lung-fed\"", "name = \"Lung Fed\"", "name"),
        ("name = \"lung-fed\"", "", "name"),
        ("[task]", "[taks]", "taks"),
        ("state = \"state/\"", "state = \"state/\"\nlisten = \"nowhere\"", "listen"),
        ("[task]", "[store]\nurl = \"postgres://x\"\n[task]", "url"),
        ("[task]", "[store]\nkeep_updates = \"some\"\n[task]", "keep_updates"),
        ("[task]", "[summer]\nname = \"No Name\"\n[task]", "[summer] name"),
        ("[server]", "[server", "line 2"),
    ];
    for (from, to, expected) in cases {
        assert!(GOOD.contains(from));
        let text = message(&GOOD.replacen(from, to, 1), &[]);
        assert!(text.contains(expected), "{to}: {text}");
        assert!(text.contains("server.toml"), "{text}");
    }
    assert!(message(GOOD, &[("DP_PVI__PHASES__MIN_SITS", "2")]).contains("min_sits"));
    assert!(message(GOOD, &[("DP_PVI__PHASES", "2")]).contains("DP_PVI__PHASES"));
}

/// Anyone who reads the message looks into the file, where all is well: so the variable is named, whatever is wrong with its value.
#[test]
fn a_variable_that_cannot_be_read_is_named() {
    use std::os::unix::ffi::OsStringExt;
    for (name, value, word) in [
        ("DP_PVI__PHASES__MIN_SITES", "two", "min_sites"),
        ("DP_PVI__PHASES__UPDATE_DEADLINE", "half an hour", "update_deadline"),
        ("DP_PVI__SERVER__LISTEN", "nowhere", "listen"),
        ("DP_PVI__SERVER__NOPE", "1", "nope"),
    ] {
        let text = message(GOOD, &[("DP_PVI__SERVER__HTTP", "off"), (name, value)]);
        assert!(text.contains(&format!("{name}: ")) && text.contains(word) && !text.contains("DP_PVI__SERVER__HTTP"), "{text}");
    }
    let environment = |value: &[u8]| [("DP_PVI__SERVER__HTTP".into(), OsString::from_vec(value.to_vec()))];
    let error = Config::parse(GOOD, Path::new("/etc/fed/server.toml"), environment(b"\xff")).unwrap_err();
    assert!(error.code() == 2 && error.to_string().contains("DP_PVI__SERVER__HTTP"), "{error}");
    let foreign = [("LANG".into(), OsString::from_vec(vec![0xff]))];
    assert!(Config::parse(GOOD, Path::new("/etc/fed/server.toml"), foreign).is_ok());
    // Where the file is wrong, the file is named.
    let text = message(&GOOD.replacen("min_sites = 3", "min_sites = 0", 1), &[("DP_PVI__SERVER__HTTP", "off")]);
    assert!(text.contains("server.toml") && !text.contains("DP_PVI__"), "{text}");
}

/// What `config schema` prints has every key that is read.
#[test]
fn the_sample_names_every_key() {
    let known = |section: &str| {
        // The parser names the keys that it knows when it meets another.
        let error = toml::from_str::<Raw>(&format!("[{section}]\nno_such_key = 1\n")).err().unwrap().to_string();
        let (_, expected) = error.split_once("expected").unwrap();
        expected.split('`').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    for section in ["server", "tls", "store", "task", "phases", "summer"] {
        let (_, text) = SAMPLE.split_once(&format!("\n[{section}]\n")).unwrap();
        let text = text.split("\n[").next().unwrap();
        let keys = known(section);
        assert!(!keys.is_empty());
        for key in keys {
            assert!(text.lines().any(|line| line.starts_with(&format!("{key} = "))), "[{section}] {key}");
        }
    }
}

/// A client that lost the server tries again within [`LONGEST_PAUSE`]: a server that goes away sooner is not heard.
#[test]
fn a_server_lingers_for_longer_than_its_clients_pause() {
    let sample = Config::parse(SAMPLE, Path::new("server.toml"), []).unwrap();
    for config in [parse_with(GOOD, &[]).unwrap(), sample] {
        assert!(config.phases.linger >= 2 * LONGEST_PAUSE, "{:?}", config.phases.linger);
    }
}
