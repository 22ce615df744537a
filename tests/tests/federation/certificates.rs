//! The certificate of a posterior, from the server that writes it to the site that compares it with its ledger; and everything that someone
//! who writes such files could change.

use std::fs;
use std::process::Command;

use dp_pvi_tests::federation::{Federation, Party, complete, outcome, run};
use dp_pvi_tests::place::binary;
use dp_pvi_tests::regression::{Likelihood, Records, Schedule, Task};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Sampled steps, in two rounds: loss distributions, and two directions or one.
fn task(adjacency: &str) -> String {
    format!(
        "[model]\nfamily = \"logistic-regression\"\nformula = \"y ~ 0 + .\"\n[schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 2\n\
         update = \"dp-optimisation\"\nsteps = 20\noptimizer = \"adam\"\nlearning_rate = 0.02\nclip_norm = 5.0\nsampling_rate = 0.1\n\
         [privacy]\nunit = \"record\"\nadjacency = \"{adjacency}\"\nepsilon = 3.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    )
}

fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The text of a certificate under a seal that fits it.
fn sealed(text: &str) -> String {
    let body = text.rsplit_once(",\"seal\":").unwrap().0;
    format!("{body},\"seal\":\"{}\"}}", hash(body))
}

/// The certificate in a posterior.
fn certificate(posterior: &Value) -> String {
    posterior["certificate"]["text"].as_str().unwrap_or_else(|| panic!("no certificate: {}", posterior["certificate"])).to_owned()
}

/// What the verifier and a site say of a file: exit codes and words.
struct Judges<'a>(&'a Federation);

impl Judges<'_> {
    fn ask(&self, posterior: &Value) -> ((i32, String), (i32, String)) {
        let file = self.0.home("site-1").join("given.json");
        fs::write(&file, posterior.to_string()).unwrap();
        let (code, out, _) = outcome(Command::new(binary("dp-pvi-verify")).arg(&file));
        let arguments = ["ledger", "verify", "--posterior", file.to_str().unwrap()];
        let (site, said, log) = outcome(&mut self.0.client_command("site-1", &arguments));
        ((code, out), (site, said + &log))
    }

    /// Both refuse the file, the site in these words.
    fn both_refuse(&self, posterior: &Value, words: &str) {
        let ((code, out), (site, said)) = self.ask(posterior);
        assert!(code == 1 && out.starts_with("refused: "), "{words}: {code} {out}");
        assert!(site == 4 && said.contains(words), "{words}: {site} {said}");
    }

    /// Everything in the file fits, and is not of this ledger.
    fn site_refuses(&self, posterior: &Value, words: &str) {
        let ((code, out), (site, said)) = self.ask(posterior);
        assert_eq!(code, 0, "{words}: {out}");
        assert!(site == 4 && said.contains(words), "{words}: {site} {said}");
    }
}

fn changed(posterior: &Value, path: &str, value: Value) -> Value {
    let mut changed = posterior.clone();
    *changed.pointer_mut(path).unwrap_or_else(|| panic!("no {path}")) = value;
    changed
}

/// The posterior with another text for its certificate.
fn with(posterior: &Value, text: String) -> Value {
    changed(posterior, "/certificate/text", text.into())
}

fn federation(task: &str, size: usize) -> (Federation, Vec<Party>) {
    let schema = Task { schedule: Schedule::Synchronous(1), ..Task::default() }.schema(3);
    let parties = Records::generated(2 * size, 3, 0).sites(&[size; 2], Likelihood::Logistic);
    (Federation::new(task, &schema, &parties), parties)
}

/// Whole epochs of random allocation, in two rounds: certified where units come and go; where they are replaced the file says why not.
#[test]
fn a_run_of_epochs_has_a_certificate_under_add_remove() {
    let epochs = |adjacency: &str| task(adjacency).replace("sampling_rate = 0.1", "batches = 10");
    let (given, parties) = federation(&epochs("add-remove"), 600);
    complete(&given, &parties);
    let posterior = given.posterior();
    let judges = Judges(&given);
    let text = certificate(&posterior);
    assert!(text.contains("\"sampling\":{\"random_allocation\":10},\"count\":4}"), "{text}");
    let stated = posterior["privacy"][0]["epsilon"].as_f64().unwrap();
    let ((code, out), (site, said)) = judges.ask(&posterior);
    assert!(code == 0 && out.starts_with(&format!("holds: epsilon {stated} at delta 1e-5 under \"add_remove\"\n")), "{code} {out}");
    assert!(site == 0 && said.contains("2 charges of this site; the certificate proves epsilon"), "{said}");
    let more = with(&posterior, sealed(&text.replacen("\"random_allocation\":10", "\"random_allocation\":11", 1)));
    judges.both_refuse(&more, "about other events");
    let fewer = with(&posterior, sealed(&text.replacen("\"random_allocation\":10", "\"random_allocation\":9", 1)));
    judges.both_refuse(&fewer, "more than it claims");

    let (given, parties) = federation(&epochs("replace-one"), 600);
    complete(&given, &parties);
    let posterior = given.posterior();
    let why = posterior["certificate"]["absent"].as_str().unwrap_or_else(|| panic!("{}", posterior["certificate"]));
    assert!(why.contains("a random allocation in which a unit is replaced"), "{why}");
    Judges(&given).both_refuse(&posterior, "a random allocation in which a unit is replaced");
}

#[test]
fn a_posterior_carries_its_certificate_and_what_was_changed_is_refused() {
    let (federation, parties) = federation(&task("replace-one"), 3000);
    complete(&federation, &parties);
    let posterior = federation.posterior();
    let judges = Judges(&federation);
    let text = certificate(&posterior);
    let stated = posterior["privacy"][0]["epsilon"].as_f64().unwrap();
    let (this, next) = (posterior["run"].as_u64().unwrap(), posterior["run"].as_u64().unwrap() + 1);

    // As it is: the claim is that of the statements, and both sides say so.
    let ((code, out), (site, said)) = judges.ask(&posterior);
    let holds = format!(
        "holds: epsilon {stated} at delta 1e-5 under \"replace_one\"\nof task {}\n",
        federation.posterior()["task_hash"].as_str().unwrap()
    );
    assert!(code == 0 && out.starts_with(&holds), "{code} {out}");
    assert!(
        site == 0 && said.contains(&format!("posterior: run {this}, 2 charges of this site; the certificate proves epsilon")),
        "{said}"
    );
    let file = federation.home("server").join("results/posterior.json");
    let arguments = ["ledger", "verify", "--format", "json", "--posterior", file.to_str().unwrap()];
    let proved: Value = serde_json::from_str(&run(&mut federation.client_command("site-2", &arguments))).unwrap();
    assert_eq!((&proved["posterior"]["epsilon"], &proved["posterior"]["delta"]), (&json!(stated), &json!(1e-5)), "{proved}");
    // What every row of a ledger reads: nothing before the run is charged, then what the budget says was spent.
    let shown = run(&mut federation.client_command("site-1", &["ledger", "show", "--format", "json"]));
    let rows: Vec<Value> = shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let spent = run(&mut federation.client_command("site-1", &["budget", "show", "--format", "json"]));
    let spent = serde_json::from_str::<Value>(&spent).unwrap()["epsilon_spent"].clone();
    let charged = rows.iter().position(|row| row["kind"] == "planned").unwrap();
    assert!(charged > 0 && rows.len() > charged + 4, "{shown}");
    for (number, row) in rows.iter().enumerate() {
        assert_eq!(row["epsilon"], if number < charged { json!(0.0) } else { spent.clone() }, "{row}");
    }
    let history = run(&mut federation.client_command("site-1", &["budget", "history", "--format", "json"]));
    let totals = history.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["epsilon_total"].clone());
    assert_eq!(totals.collect::<Vec<_>>(), vec![spent; 2], "{history}");
    // The certificate is a file of its own, too.
    let alone = federation.home("site-1").join("claim.json");
    fs::write(&alone, &text).unwrap();
    run(Command::new(binary("dp-pvi-verify")).arg(&alone));

    let task_hash = posterior["task_hash"].as_str().unwrap();
    let run_hash = hash(&format!("{task_hash}/{this}"));
    let next_hash = hash(&format!("{task_hash}/{next}"));
    assert!(text.contains(&format!("\"binding\":[\"{run_hash}\",\"{task_hash}\",")), "{text}");
    let other = hash("another");

    // Another run's, another task's.
    judges.both_refuse(&with(&posterior, sealed(&text.replacen(&run_hash, &next_hash, 1))), "of another run");
    judges.both_refuse(&with(&posterior, sealed(&text.replacen(task_hash, &other, 1))), "of another task");
    // A witness is of its run and its site.
    let unwitnessed = |mut posterior: Value| {
        posterior["privacy"].as_array_mut().unwrap().iter_mut().for_each(|site| drop(site.as_object_mut().unwrap().remove("witness")));
        posterior
    };
    let number = unwitnessed(changed(&posterior, "/run", json!(next)));
    let nothing = format!("charged nothing for run {next}");
    judges.both_refuse(&number, &nothing);
    let unbound = text.split_once("\"binding\":").unwrap();
    let unbound = format!("{}\"binding\":null,{}", unbound.0, &unbound.1[unbound.1.find("\"events\":").unwrap()..]);
    judges.both_refuse(&with(&posterior, sealed(&unbound)), "of another run");
    judges.site_refuses(&with(&number, sealed(&text.replacen(&run_hash, &next_hash, 1))), &nothing);

    // Other events: more noise, fewer steps, and another hash of the same ones. What is claimed of them is true.
    let (before, rest) = text.split_once("\"fine_discrete_gaussian\":[").unwrap();
    let (scale, after) = rest.split_once(',').unwrap();
    let more: u64 = scale.parse::<u64>().unwrap() + 4096;
    judges.both_refuse(&with(&posterior, sealed(&format!("{before}\"fine_discrete_gaussian\":[{more},{after}"))), "about other events");
    assert!(text.contains("\"count\":40"), "{text}");
    judges.both_refuse(&with(&posterior, sealed(&text.replacen("\"count\":40", "\"count\":39", 1))), "about other events");
    let ledger = text.split_once(&format!("{task_hash}\",\"")).unwrap().1[..64].to_owned();
    judges.both_refuse(&with(&posterior, sealed(&text.replacen(&ledger, &other, 1))), "about other events");

    // More than was proved: in the statement, in the certificate, in both.
    let lower = 0.99 * stated;
    judges.both_refuse(&changed(&posterior, "/privacy/0/epsilon", json!(lower)), "states epsilon");
    judges.both_refuse(&changed(&posterior, "/privacy/0/delta", json!(1e-6)), "another delta");
    // Whose data it is about, and under which relation and trust, is the task's word.
    judges.both_refuse(&changed(&posterior, "/privacy/0/unit", json!("person")), "another unit");
    judges.both_refuse(&changed(&posterior, "/privacy/0/relation", json!("add-remove")), "another relation");
    judges.both_refuse(&changed(&posterior, "/privacy/0/trust", json!("aggregated")), "another trust");
    let claimed = |epsilon: f64| {
        let (before, rest) = text.split_once("\"epsilon\":").unwrap();
        sealed(&format!("{before}\"epsilon\":{epsilon:?}{}", &rest[rest.find(',').unwrap()..]))
    };
    judges.both_refuse(&with(&posterior, claimed(lower)), "its certificate is refused: delta is at most");
    let mut both = with(&posterior, claimed(lower));
    both["privacy"].as_array_mut().unwrap().iter_mut().for_each(|site| site["epsilon"] = json!(lower));
    judges.both_refuse(&both, "its certificate is refused: delta is at most");
    // A weaker relation, a changed byte under the old seal, none at all.
    judges.both_refuse(&with(&posterior, sealed(&text.replacen("replace_one", "add_remove", 1))), "its certificate is refused");
    judges.both_refuse(&with(&posterior, text.replacen("\"count\":40", "\"count\":41", 1)), "not sealed");
    let mut old = posterior.clone();
    old.as_object_mut().unwrap().remove("certificate");
    judges.both_refuse(&old, "it has no certificate: export the posterior again");
    judges.both_refuse(&changed(&posterior, "/certificate", json!({"absent": "lost"})), "nothing is proved (lost)");
    let somebody = changed(&posterior, "/privacy/0/site", json!("site-0"));
    judges.site_refuses(&unwitnessed(somebody), "no statement for site-1");
    // It is a posterior all the same.
    let earlier = federation.home("site-1").join("without.json");
    fs::write(&earlier, old.to_string()).unwrap();
    let data = federation.home("site-1").join("data/records.csv");
    run(Command::new(binary("dp-pvi-client")).args(["predict", "--posterior"]).arg(&earlier).arg("--data").arg(&data));
}

/// An old copy of the ledger and of its rollback guard, under a coordinator that remembers nothing. Any copy of a posterior knows better.
#[test]
fn a_posterior_shows_that_a_copy_of_a_ledger_is_old() {
    let (federation, parties) = federation(&task("replace-one"), 300);
    let [data, state, kept] = ["site-1/data", "site-1/state", "old"].map(|folder| federation.home(folder));
    let files = [(data.join("ledger.db"), kept.join("ledger.db")), (state.join("site-1.head"), kept.join("site-1.head"))];
    fs::create_dir_all(&kept).unwrap();
    for (here, copy) in &files {
        fs::copy(here, copy).unwrap();
    }
    complete(&federation, &parties);
    let posterior = federation.posterior();
    for statement in posterior["privacy"].as_array().unwrap() {
        assert!(statement["witness"]["row"].as_u64().unwrap() > 2, "{statement}");
    }
    let file = federation.home("server").join("results/posterior.json");
    let ask = |arguments: &[&str]| {
        let (code, out, log) = outcome(&mut federation.client_command("site-1", arguments));
        (code, out + &log)
    };
    let verify = ["ledger", "verify", "--posterior", file.to_str().unwrap()];
    assert_eq!(ask(&verify).0, 0);
    // Where the rows come from is compared, too.
    let described = changed(&posterior, "/privacy/0/rows/by", json!("query"));
    fs::write(federation.home("site-1").join("given.json"), described.to_string()).unwrap();
    let (code, said) = ask(&["ledger", "verify", "--posterior", federation.home("site-1").join("given.json").to_str().unwrap()]);
    assert!(code == 4 && said.contains("a query that an operator vouches for"), "{code} {said}");

    for (here, copy) in &files {
        for more in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{more}", here.display()));
        }
        fs::copy(copy, here).unwrap();
    }
    assert_eq!(ask(&["ledger", "verify"]).0, 0, "nothing else shows that it is old");
    let (code, said) = ask(&verify);
    assert!(code == 11 && said.contains("old copy") && said.contains("posterior.json"), "{code} {said}");
    // Nor is it put back as the latest one.
    fs::remove_file(&files[0].0).unwrap();
    let restore = ["ledger", "restore", files[0].1.to_str().unwrap(), "--posterior", file.to_str().unwrap()];
    let (code, said) = ask(&restore);
    assert!(code == 11 && said.contains("--lose-rows"), "{code} {said}");
    assert_eq!(ask(&restore[..3]).0, 0);
}

/// Two directions, and a task that promises nothing.
#[test]
fn add_remove_has_two_directions_and_no_protection_has_no_certificate() {
    let (federation_, parties) = federation(&task("add-remove"), 3000);
    complete(&federation_, &parties);
    let posterior = federation_.posterior();
    let ((code, out), (site, said)) = Judges(&federation_).ask(&posterior);
    assert!(code == 0 && site == 0, "{out}{said}");
    let text: Value = serde_json::from_str(&certificate(&posterior)).unwrap();
    assert_eq!((text["relation"].as_str(), text["proofs"].as_array().map(Vec::len)), (Some("add_remove"), Some(2)));

    let open = Task { schedule: Schedule::Synchronous(1), epsilon: None, ..Task::default() };
    let (federation_, parties) = federation(&open.toml(), 300);
    complete(&federation_, &parties);
    let posterior = federation_.posterior();
    assert!(posterior["certificate"]["absent"].as_str().unwrap().contains("no protection"), "{}", posterior["certificate"]);
    Judges(&federation_).both_refuse(&posterior, "no epsilon is stated");
}
