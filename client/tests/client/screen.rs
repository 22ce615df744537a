//! The site's own screen: what it tells its people of records that contribute nothing, and when it waits for them.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::common::{Site, private_task, write};

/// So many good records, and then these.
fn records(good: usize, others: &[&str]) -> String {
    format!("age,died\n{}{}", "40,no\n".repeat(good), others.iter().map(|row| format!("{row}\n")).collect::<String>())
}

/// A site that goes on would call the server, which is not there: code 5.
#[test]
fn a_hospital_of_which_nothing_can_be_read_waits_for_its_operator() {
    let site = Site::new();
    // As `Mann` and `Frau` where the schema lists m and f.
    write(&site.path("cohort.csv"), records(1, &["50,nein", "60,ja", "70,ja"]));
    let halted = site.run(&["run"]).expect(10, "this data set is halted: 3 of 4 records contribute nothing");
    assert!(halted.stderr.contains("PRIVATE: 3 of 4 records contribute nothing (75.0 %)"), "{}", halted.stderr);
    assert!(halted.stderr.contains("3: column `died`: this is neither true nor false"), "{}", halted.stderr);
    assert!(!halted.stderr.contains("nein"), "{}", halted.stderr);
    let checked = site.run(&["check", "--offline"]).expect(10, "").stdout;
    assert!(
        checked.contains("warning data: 3: column `died`") && checked.contains("FAILED  records: data: this data set is halted"),
        "{checked}"
    );
    // It stays so whatever the records become, until someone has said so.
    write(&site.path("cohort.csv"), records(4, &[]));
    site.run(&["run"]).expect(10, "an earlier start found");
    let file = site.path("task.json");
    write(&file, private_task(0.5).to_bytes());
    let planned = site.run(&["plan", "--task", file.to_str().unwrap()]).expect(10, "an earlier start found").stdout;
    assert!(planned.contains("refused data: this data set is halted: an earlier start found"), "{planned}");
    let confirmed = site.run(&["data", "confirm"]).expect(0, "").stdout;
    assert!(confirmed.contains("0 of 4 records contribute nothing"), "{confirmed}");
    site.run(&["run"]).expect(5, "localhost:1");
    site.run(&["check", "--offline"]).expect(0, "");
}

/// `plan` looks before a start does, with the code of `check`, and halts nothing.
#[test]
fn a_plan_says_before_a_start_that_the_data_set_would_be_halted() {
    let site = Site::new();
    let file = site.path("task.json");
    write(&file, private_task(0.5).to_bytes());
    let plan = ["plan", "--task", file.to_str().unwrap(), "--format", "json"];
    write(&site.path("cohort.csv"), records(1, &["50,nein", "60,ja", "70,ja"]));
    site.run(&["check", "--offline"]).expect(10, "");
    let planned = site.run(&plan).expect(10, "3 of 4 records contribute nothing").stdout;
    // The plan, then the error.
    let planned: serde_json::Value = serde_json::from_str(planned.lines().next().unwrap()).unwrap();
    assert!(planned["objections"].to_string().contains("this data set is halted") && planned["would_run"] == false, "{planned}");
    write(&site.path("cohort.csv"), records(5, &[]));
    site.run(&plan).expect(0, "");
    // Where the records are not, whoever may look gets the plan.
    fs::remove_file(site.path("cohort.csv")).unwrap();
    site.run(&plan).expect(0, "the records cannot be read");
}

#[test]
fn a_confirmation_holds_for_its_share_and_its_schema() {
    let site = Site::new();
    write(&site.path("cohort.csv"), records(2, &["x,no"]));
    site.run(&["run"]).expect(10, "is halted");
    let confirmed = site.run(&["data", "confirm", "--format", "json"]).expect(0, "").json();
    assert_eq!((confirmed["percent"].as_u64(), confirmed["contribute_nothing"].as_u64()), (Some(34), Some(1)));
    assert_eq!(fs::metadata(site.path("state/screen-lung-2024.json")).unwrap().permissions().mode() & 0o777, 0o600);
    site.run(&["run"]).expect(5, "localhost:1");
    // Fewer are covered, more are not.
    write(&site.path("cohort.csv"), records(5, &["x,no", "y,no"]));
    site.run(&["run"]).expect(5, "localhost:1");
    write(&site.path("cohort.csv"), records(2, &["x,no", "y,no"]));
    site.run(&["run"]).expect(10, "2 of 4 records");
    site.run(&["data", "confirm"]).expect(0, "");
    site.run(&["run"]).expect(5, "localhost:1");
    // Another schema is another question.
    let schema = fs::read_to_string(site.path("schema.toml")).unwrap();
    write(&site.path("schema.toml"), format!("{schema}\n"));
    site.run(&["run"]).expect(10, "2 of 4 records");
}

/// A file that was cut off: all that is left contributes, and is next to nothing of what was declared.
#[test]
fn far_fewer_records_than_were_declared_halt_the_data_set_until_they_are_confirmed() {
    let site = Site::new();
    write(&site.path("cohort.csv"), records(2, &[]));
    let told = site.run(&["run"]).expect(10, "2 records contribute, and [data] nominal_units declares 5 privacy units").stderr;
    assert!(told.contains("PRIVATE") && told.contains("cut off"), "{told}");
    site.run(&["check", "--offline"]).expect(10, "nominal_units declares 5");
    site.run(&["data", "confirm"]).expect(0, "");
    site.run(&["run"]).expect(5, "localhost:1");
    write(&site.path("cohort.csv"), records(1, &[]));
    site.run(&["run"]).expect(10, "1 records contribute");
    // Three of five are told and stop nothing.
    write(&site.path("cohort.csv"), records(3, &[]));
    let told = site.run(&["run"]).expect(10, "an earlier start");
    assert!(told.stderr.contains("3 records contribute"), "{}", told.stderr);
    site.run(&["data", "confirm"]).expect(0, "");
    site.run(&["run"]).expect(5, "localhost:1");
}

#[test]
fn the_share_is_the_sites_own_key() {
    let site = Site::new();
    write(&site.path("cohort.csv"), records(8, &["x,no"]));
    let told = site.run(&["run"]).expect(5, "localhost:1").stderr;
    assert!(told.contains("PRIVATE: 1 of 9 records contribute nothing (11.1 %)"), "{told}");
    site.configure("nominal_units = 5", "nominal_units = 5\nhalt_above = 0.1");
    site.run(&["run"]).expect(10, "more than [data] halt_above = 0.1");
    site.configure("halt_above = 0.1", "halt_above = 1.5");
    site.run(&["data", "confirm"]).expect(2, "data.halt_above");
}

/// A patient number 99 where 99 says that there is no value, and ids that may be one person's: reported before a ledger is made of them, and by every check.
#[test]
fn ids_are_looked_at_before_a_ledger_is_made() {
    let site = Site::new();
    let schema = fs::read_to_string(site.path("schema.toml")).unwrap();
    write(&site.path("schema.toml"), format!("unit_column = \"patient\"\n[missing]\ntokens = [\"\", \"99\"]\n{schema}"));
    write(&site.path("cohort.csv"), "patient,age,died\n012,40,no\n12,50,no\nA7,60,no\na7,60,yes\n99,60,yes\n8,60,no\n");
    site.configure("[budget]", "[budget]\nunit = \"person\"");
    for file in ["data/ledger.db", "state/lung-2024.head"] {
        fs::remove_file(site.path(file)).unwrap();
    }
    let made = site.run(&["ledger", "create"]).expect(0, "4 units have an id that differs from another's").stderr;
    assert!(made.contains("1: column `patient`: the record has no unit id") && !made.contains("A7"), "{made}");
    for arguments in [&["check", "--offline"][..], &["data", "inspect"]] {
        let shown = site.run(arguments).expect(10, "").stdout;
        assert!(shown.contains("4 units have an id") && shown.contains("file 1, row 1 and file 1, row 2"), "{shown}");
        assert!(shown.contains("1: column `patient`: the record has no unit id"), "{shown}");
    }
}
