#![allow(clippy::unwrap_used)]

use dp_pvi_accounting::PrivacyUnit;
use dp_pvi_math::expfam::any::Gaussian;

use super::Coding;
use crate::methods::VisitSum;
use crate::task::{FactorState, RawTask, ResolveContext, ResolvedTask, ShardSpec, SiteStateForm, TaskError, UpdateSpec};

const SCHEMA: &str = "norm_bound = 2.0\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n\
    [[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 0\nupper = 110\ncentre = 50\nscale = 20\n";

fn task(update: &str, options: &str, unit: &str) -> Result<ResolvedTask, TaskError> {
    let adjacency = if unit == "site" { "replace-one" } else { "add-remove" };
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"died\"\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = 5\nupdate = \"{update}\"\n{options}\n\
         [privacy]\nunit = \"{unit}\"\nadjacency = \"{adjacency}\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "test", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text)?.resolve(SCHEMA, context)
}

fn spec(task: &ResolvedTask) -> ShardSpec {
    let UpdateSpec::Shards(spec) = &task.update else { panic!("{}", task.update) };
    spec.clone()
}

/// μ = Δ√T/z: 2√5/z for shards under either relation, and for whole sites, which are exchanged.
#[test]
fn shards_and_sites_are_charged_twice() {
    for (update, options, unit) in [
        ("parameter-perturbation", "", "record"),
        ("local-averaging", "shards = 8", "record"),
        ("virtual-clients", "shards = 8", "record"),
        ("client-level", "", "site"),
    ] {
        let task = task(update, options, unit).unwrap();
        let mu = 2.0 * 5f64.sqrt() / spec(&task).noise_multiplier.get();
        assert!((0.2679..0.2682).contains(&mu), "{update}: {mu}");
        assert!(task.loss(6).unwrap().epsilon.get() > 1.0);
        assert_eq!(task.privacy.unit == PrivacyUnit::Site, update == "client-level");
    }
}

#[test]
fn states_are_the_ones_that_the_rule_allows() {
    for (update, options, state, form) in [
        ("local-averaging", "shards = 8", FactorState::Released, SiteStateForm::Public(4)),
        ("local-averaging", "shards = 8\nstate = \"tied\"", FactorState::Tied, SiteStateForm::None),
        ("parameter-perturbation", "state = \"private-clean\"", FactorState::PrivateClean, SiteStateForm::Private(4)),
        ("virtual-clients", "shards = 8", FactorState::PrivateClean, SiteStateForm::Private(32)),
        ("virtual-clients", "shards = 8\nstate = \"tied\"", FactorState::Tied, SiteStateForm::None),
    ] {
        let task = task(update, options, "record").unwrap();
        assert_eq!((spec(&task).state, task.site_state()), (state, form), "{update} {options}");
    }
    assert!(task("virtual-clients", "shards = 8\nstate = \"noised\"", "record").is_err());
}

/// The shards of local averaging share one factor: where it held what the site's records say, one record would move every shard's term.
/// Neither way to a task lets it in.
#[test]
fn local_averaging_keeps_no_private_factor() {
    let refused = |error: TaskError| {
        let text = error.to_string();
        assert!(text.contains("local-averaging") && text.contains("terms of all shards") && text.contains("tied"), "{text}");
    };
    refused(task("local-averaging", "shards = 8\nstate = \"private-clean\"", "record").unwrap_err());
    let tied = task("local-averaging", "shards = 8\nstate = \"tied\"", "record").unwrap();
    let text = String::from_utf8(tied.to_bytes()).unwrap();
    assert!(text.contains("\"tied\""));
    refused(ResolvedTask::from_bytes(text.replace("\"tied\"", "\"private-clean\"").as_bytes()).unwrap_err());
}

/// Everyone sees which sites take part, so a site that is absent is not hidden: both ways to a task refuse it.
#[test]
fn a_site_is_exchanged_and_never_absent() {
    let site = task("client-level", "", "site").unwrap();
    let text = String::from_utf8(site.to_bytes()).unwrap();
    assert!(text.contains("\"replace-one\""));
    let absent = ResolvedTask::from_bytes(text.replace("\"replace-one\"", "\"add-remove\"").as_bytes()).unwrap_err().to_string();
    assert!(absent.contains("unit = \"site\" needs adjacency = \"replace-one\""), "{absent}");
    for update in ["client-level", "sep", "ep"] {
        let text = format!(
            "[model]\nfamily = \"probit-regression\"\noutcome = \"died\"\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 5\n\
             update = \"{update}\"\n[privacy]\nunit = \"site\"\nadjacency = \"add-remove\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
        );
        let context = ResolveContext { name: "test", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
        let refused = RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap_err().to_string();
        assert!(refused.contains("whether a site is there is seen by everybody"), "{update}: {refused}");
    }
}

/// One comma in a record of one person moves the persons after them, and with contiguous shards several terms: 2CK where 2C is charged. Neither
/// way to a task lets that in. Persons whose shard follows from their own records, single shards and sums over persons stay.
#[test]
fn shards_of_persons_by_position_are_refused() {
    let with = |update: &str, adjacency: &str, unit: &str| {
        let text = format!(
            "[model]\nfamily = \"logistic-regression\"\noutcome = \"died\"\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 5\nupdate = {update}\n\
             [privacy]\nunit = \"{unit}\"\nadjacency = \"{adjacency}\"\nepsilon = 1.0\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
        );
        let schema = if unit == "person" { format!("unit_column = \"who\"\n{SCHEMA}") } else { SCHEMA.to_owned() };
        let context = ResolveContext { name: "test", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
        RawTask::parse(&text).unwrap().resolve(&schema, context)
    };
    let refused = |error: TaskError| {
        let text = error.to_string();
        assert!(text.contains("cannot protect persons") && text.contains("adjacency = \"add-remove\""), "{text}");
    };
    for update in ["\"virtual-clients\"\nshards = 2", "\"local-averaging\"\nshards = 8"] {
        refused(with(update, "replace-one", "person").unwrap_err());
        let hashed = String::from_utf8(with(update, "add-remove", "person").unwrap().to_bytes()).unwrap();
        assert!(hashed.contains("\"add-remove\""));
        refused(ResolvedTask::from_bytes(hashed.replace("\"add-remove\"", "\"replace-one\"").as_bytes()).unwrap_err());
        with(update, "replace-one", "record").unwrap();
    }
    for update in [
        "\"virtual-clients\"\nshards = 1",
        "\"parameter-perturbation\"",
        "\"natural-gradient\"",
        "\"dp-optimisation\"\nsampling_rate = 0.1\nsteps = 5",
    ] {
        with(update, "replace-one", "person").unwrap_or_else(|error| panic!("{update}: {error}"));
    }
}

/// λ = λ0 + ρ Σ decoded + r, and the mean moves by at most what Λ_step allows.
#[test]
fn a_lagging_precision_does_not_lengthen_the_step_and_the_books_balance() {
    let task = task("local-averaging", "shards = 8\nstep_precision = 50.0\ndamping = 0.5", "record").unwrap();
    let (rule, coding) = (task.rule(), Coding::new(&task.setting(), spec(&task)));
    let state = vec![3.0, 1.0, 6.0, 2.0];
    let old = Gaussian::from_natural(task.family(), state.clone()).unwrap();
    for sum in [[4.0, 0.1, 0.2, 0.3], [-9.0, 2.0, 3.0, 1.0], [0.3, 0.2, -0.4, 0.1]] {
        let change = coding.decode(&sum, &old);
        let step = rule.apply(&state, &VisitSum { visit: 0, sites: 1, sum: &sum });
        let correction = step.correction.unwrap();
        for j in 0..4 {
            assert!((state[j] + 0.5 * change[j] + correction[j] - step.state[j]).abs() < 1e-12);
        }
        // G = Δh − μΔΛ at μ = ½.
        let precision = 6.0 + 0.5 * change[2];
        let expected = 0.5 + 0.5 * (change[0] - 0.5 * change[2]) / precision.max(50.0);
        if step.floored == 0 {
            assert!((step.state[0] / step.state[2] - expected).abs() < 1e-12, "{sum:?}");
        }
    }
}

/// Tied factors: the precision is a running mean of what the rounds say while 1/(t+1) > ρ, the mean moves by ρ, and the books balance.
#[test]
fn tied_precisions_do_not_creep() {
    let task = task("virtual-clients", "shards = 8\nstate = \"tied\"\nstep_precision = 0.0\ndamping = 0.2", "record").unwrap();
    let (rule, coding) = (task.rule(), Coding::new(&task.setting(), spec(&task)));
    let state = vec![3.0, 1.0, 6.0, 2.0];
    let old = Gaussian::from_natural(task.family(), state.clone()).unwrap();
    let sum = [0.4, 0.1, 0.2, 0.3];
    let change = coding.decode(&sum, &old);
    for (visit, weight) in [(0, 1.0), (1, 0.5), (3, 0.25), (4, 0.2), (9, 0.2)] {
        let step = rule.apply(&state, &VisitSum { visit, sites: 1, sum: &sum });
        let precision = 6.0 + weight * change[2];
        assert!((step.state[2] - precision).abs() < 1e-12);
        assert!((step.state[0] / step.state[2] - (0.5 + 0.2 * (change[0] - 0.5 * change[2]) / precision)).abs() < 1e-12);
        let correction = step.correction.unwrap_or_else(|| vec![0.0; 4]);
        for j in 0..4 {
            assert!((state[j] + 0.2 * change[j] + correction[j] - step.state[j]).abs() < 1e-12);
        }
    }
}

#[test]
fn too_few_sites_are_said() {
    let task = task("client-level", "", "site").unwrap();
    assert_eq!(task.warnings().len(), 1);
    assert!(task.warnings()[0].contains("3 sites are too few"), "{:?}", task.warnings());
}

#[test]
fn combinations_that_do_not_exist_are_named() {
    for (update, options, unit, word) in [
        ("local-averaging", "", "record", "shards"),
        ("parameter-perturbation", "shards = 3", "record", "shards"),
        ("client-level", "", "record", "unit"),
        ("virtual-clients", "shards = 3", "site", "site"),
        ("virtual-clients", "shards = 3\nclip_norms = [1.0]", "record", "clip_norms"),
        ("virtual-clients", "shards = 3\nclip_norm = 1.0\nclip_norms = [1.0, 1.0]", "record", "clip_norm"),
        ("virtual-clients", "shards = 0", "record", "shards"),
    ] {
        let message = task(update, options, unit).unwrap_err().to_string();
        assert!(message.contains(word), "{update} {options}: {message}");
    }
}
