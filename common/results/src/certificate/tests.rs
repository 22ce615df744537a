#![allow(clippy::unwrap_used)]

use dp_pvi_accounting::{Method, PrivacyUnit, Relation};
use dp_pvi_names::ReleaseId;
use dp_pvi_posterior::task::{RawTask, ResolveContext, Trust};
use sha2::{Digest, Sha256};

use super::*;

const SCHEMA: &str = "[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n\
                      [[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 110\ncentre = 50\nscale = 20\n";
/// Visits of every task here.
const VISITS: u32 = 5;

fn task(privacy: &str) -> ResolvedTask {
    let text = format!(
        "model.family = \"logistic-regression\"\nmodel.outcome = \"died\"\nschema.file = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = {VISITS}\n\
         update = \"natural-gradient\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\n{privacy}\n"
    );
    let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 3, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

fn local() -> ResolvedTask {
    task("epsilon = 1.0\ntrust = \"local\"\nmax_units = 1000000")
}

/// With as many honest shares as sites, less one.
fn aggregated(epsilon: f64, sites: u32) -> ResolvedTask {
    task(&format!("epsilon = {epsilon:?}\ntrust = \"aggregated\"\n[aggregation]\nsites = {sites}\ncolluders = 1\nmax_units = 100"))
}

fn site() -> ClientId {
    ClientId::new("hospital-1").unwrap()
}

fn run(task: &ResolvedTask) -> RunId {
    RunId { task: task.hash(), number: 0 }
}

/// What a posterior says of the site.
#[derive(Clone)]
struct File {
    statement: PrivacyStatement,
    joint: Option<Certified>,
    fallback: Option<Certified>,
}

impl File {
    fn of(task: &ResolvedTask, releases: u32) -> Self {
        let mut statement = statement::statement(task, &site(), releases).unwrap();
        let made = of_run(task, 0, Some(&statement)).unwrap();
        statement.raise_to(made.proved.0, made.proved.1);
        Self { statement, joint: Some(made.joint), fallback: made.fallback }
    }

    fn check(&self, task: &ResolvedTask, rows: &[(Row, Hash)]) -> Result<Checked, MismatchError> {
        check((task, 0), &self.statement, (&self.joint, &self.fallback), rows)
    }

    /// The same with one thing changed.
    fn but(&self, change: impl Fn(&mut Self)) -> Self {
        let mut other = self.clone();
        change(&mut other);
        other
    }
}

/// The text of a certificate with another passage, under a seal that fits.
fn resealed(file: &Option<Certified>, from: &str, to: &str) -> Option<Certified> {
    let Some(Certified::Text(text)) = file else { panic!("{file:?}") };
    assert!(text.contains(from), "{text}");
    let text = text.replacen(from, to, 1);
    let body = text.rsplit_once(",\"seal\":").unwrap().0;
    let seal: String = Sha256::digest(body.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    Some(Certified::Text(format!("{body},\"seal\":\"{seal}\"}}")))
}

/// What a ledger has of the run: its charge as a whole, and so many visits.
fn rows(task: &ResolvedTask, visits: u32) -> Vec<(Row, Hash)> {
    let written = |events: &Events| PlannedEvents { events: bytes(events), envelope: None };
    let (joint, fallback) = planned(task).unwrap();
    let plan =
        RowBody::Planned { run: run(task), delta: task.privacy.delta, joint: written(&joint), fallback: fallback.as_ref().map(written) };
    let reserved = (0..visits).map(|visit| RowBody::Reserved {
        release: ReleaseId { run: run(task), client: site(), round: visit },
        event: task.visit_event(visit).unwrap().to_bytes(),
        header: Hash::default(),
        fallback: task.visit_fallback(visit).unwrap().map(|event| event.to_bytes()),
    });
    let bodies = std::iter::once(plan).chain(reserved);
    bodies.zip(0..).map(|(body, seq)| (Row { seq, previous: Hash::default(), body }, Hash::default())).collect()
}

fn refused(file: &File, task: &ResolvedTask, rows: &[(Row, Hash)], words: &str) {
    match file.check(task, rows) {
        Ok(checked) => panic!("{words}: {checked:?}"),
        Err(error) => assert!(error.to_string().contains(words), "{words}: {error}"),
    }
}

#[test]
fn what_is_changed_in_one_field_is_refused() {
    let task = local();
    let (file, rows) = (File::of(&task, VISITS), rows(&task, VISITS));
    let checked = file.check(&task, &rows).unwrap();
    assert_eq!((Some(checked.epsilon), checked.delta, checked.charges), (file.statement.epsilon, 1e-5, VISITS as usize));
    assert_eq!(checked.fallback, None);

    let edit = |change: &dyn Fn(&mut PrivacyStatement), words: &str| {
        refused(&file.but(|file| change(&mut file.statement)), &task, &rows, words);
    };
    edit(&|statement| statement.unit = PrivacyUnit::Person, "another unit");
    edit(&|statement| statement.unit = PrivacyUnit::Site, "another unit");
    edit(&|statement| statement.relation = Relation::AddRemove, "another relation");
    edit(&|statement| statement.trust = Trust::Aggregated, "another trust");
    edit(&|statement| statement.delta = 1e-6, "another delta");
    edit(&|statement| statement.delta = 2e-5, "another delta");
    edit(&|statement| statement.method = Method::Rdp, "another method");
    edit(&|statement| statement.numerical_margin ^= true, "another method");
    edit(&|statement| statement.released = "nothing".into(), "another release");
    edit(&|statement| statement.fallback_epsilon = Some(1.0), "another fallback epsilon");
    edit(&|statement| statement.releases = VISITS + 1, "6 visits, and this ledger has 5 charges");
    edit(&|statement| statement.epsilon = Some(0.5), "states epsilon 0.5");
    edit(&|statement| statement.epsilon = None, "states epsilon 0");

    // A true claim, of another delta, alone and together with the statement's; and under another relation.
    let other = resealed(&file.joint, "\"delta\":0.00001,", "\"delta\":0.00002,");
    refused(&file.but(|file| file.joint = other.clone()), &task, &rows, "about delta 2e-5, and the task's is 1e-5");
    let both = file.but(|file| (file.joint, file.statement.delta) = (other.clone(), 2e-5));
    refused(&both, &task, &rows, "another delta");
    let weaker = resealed(&file.joint, "replace_one", "add_remove");
    refused(&file.but(|file| file.joint = weaker.clone()), &task, &rows, "another relation between data sets");
    // A fallback where there is none; no certificate.
    refused(&file.but(|file| file.fallback = file.joint.clone()), &task, &rows, "other events");
    refused(&file.but(|file| file.joint = None), &task, &rows, "no certificate");
    let absent = file.but(|file| file.joint = Some(Certified::Absent("lost".into())));
    refused(&absent, &task, &rows, "(lost)");
    // Without a certificate the number is still compared with what the charges cost.
    refused(&absent.but(|file| file.statement.epsilon = Some(0.01)), &task, &rows, "the plan of its task costs");
}

/// The accountant's bound has room above the truth: a certificate of a little less than the task's ε can hold, and is not what the task says.
#[test]
fn less_than_the_task_costs_is_refused_though_it_is_true() {
    let task = local();
    let (file, rows) = (File::of(&task, VISITS), rows(&task, VISITS));
    let stated = file.statement.epsilon.unwrap();
    let lower = stated * (1.0 - 1e-8);
    let joint = resealed(&file.joint, &format!("\"epsilon\":{stated:?},"), &format!("\"epsilon\":{lower:?},"));
    let Some(Certified::Text(text)) = &joint else { panic!() };
    verify(text.as_bytes()).unwrap();
    let file = file.but(|file| (file.joint, file.statement.epsilon) = (joint.clone(), Some(lower)));
    refused(&file, &task, &rows, "the plan of its task costs");
}

#[test]
fn what_the_ledger_has_is_compared() {
    let task = local();
    let file = File::of(&task, 2);
    // Ended early, or a visit without an answer: the plan is charged all the same.
    for visits in [2, 3] {
        let checked = file.check(&task, &rows(&task, visits)).unwrap();
        assert_eq!((Some(checked.epsilon), checked.charges), (file.statement.epsilon, visits as usize));
    }
    refused(&file, &task, &rows(&task, 1), "2 visits, and this ledger has 1 charges");
    refused(&file, &task, &[], "charged nothing for run 0");
    refused(&file, &task, &rows(&task, 2)[1..], "charged nothing for run 0");
    let twice = [rows(&task, VISITS), rows(&task, 1)[1..].to_vec()].concat();
    refused(&file, &task, &twice, "charge 5 matches no remaining visit");
    // Another plan than the task's.
    let mut more = rows(&task, 2);
    let RowBody::Planned { joint, .. } = &mut more[0].0.body else { panic!() };
    joint.events[0].1 += 1;
    refused(&file, &task, &more, "other events than its task has");
    // A site that is left out although its ledger was charged, and one that took no part.
    let left_out = |rows: &[(Row, Hash)]| unstated((&task, 0), &site(), rows).to_string();
    assert!(left_out(&rows(&task, 0)).contains("this ledger charged the run"));
    assert!(left_out(&[]).contains("took no part"));
}

#[test]
fn the_fallback_has_a_certificate_of_its_own() {
    let task = aggregated(2.0, 5);
    let (file, rows) = (File::of(&task, VISITS), rows(&task, VISITS));
    let checked = file.check(&task, &rows).unwrap();
    let worst = file.statement.fallback_epsilon.unwrap();
    assert_eq!(checked.fallback, Some(Fallback::Proved(worst)));
    assert!(worst > 2.0 * checked.epsilon, "{checked:?}");

    refused(&file.but(|file| file.fallback = None), &task, &rows, "no certificate");
    refused(&file.but(|file| file.fallback = file.joint.clone()), &task, &rows, "other events");
    refused(&file.but(|file| file.joint = file.fallback.clone()), &task, &rows, "other events");
    refused(&file.but(|file| file.statement.trust = Trust::Local), &task, &rows, "another trust");
    refused(&file.but(|file| file.statement.fallback_epsilon = None), &task, &rows, "another fallback epsilon");
    refused(&file.but(|file| file.statement.fallback_epsilon = Some(2.0)), &task, &rows, "states epsilon 2 at delta 1e-5");
    let other = resealed(&file.fallback, "\"delta\":0.00001,", "\"delta\":0.00002,");
    refused(&file.but(|file| file.fallback = other.clone()), &task, &rows, "about delta 2e-5");

    // Without one the joint claim is checked, and what is stated is still no less than the task's.
    let absent = file.but(|file| file.fallback = Some(Certified::Absent("lost".into())));
    let checked = absent.check(&task, &rows).unwrap();
    assert_eq!(checked.fallback, Some(Fallback::Unproved { epsilon: Some(worst), why: "lost".into() }));
    refused(&absent.but(|file| file.statement.fallback_epsilon = Some(2.0)), &task, &rows, "the plan of its task costs");
}

/// Discrete noise is proved up to 100: above that the joint claim stands, and the file says why there is no other.
#[test]
fn a_fallback_above_100_is_not_proved_and_says_so() {
    let task = aggregated(30.0, 22);
    let (file, rows) = (File::of(&task, VISITS), rows(&task, VISITS));
    let worst = file.statement.fallback_epsilon.unwrap();
    assert!(worst > 100.0, "{worst}");
    let checked = file.check(&task, &rows).unwrap();
    assert_eq!(Some(checked.epsilon), file.statement.epsilon);
    let Some(Fallback::Unproved { epsilon, why }) = checked.fallback else { panic!("{checked:?}") };
    assert!(epsilon == Some(worst) && why.contains("epsilon above 100"), "{epsilon:?} {why}");
}
