//! What `check` says of a visit's time and memory: by invented records, with updates and labels of all kinds.

use std::fs;
use std::num::NonZeroUsize;

use dp_pvi_client::dry_run::{Expected, Where, dry_run};
use dp_pvi_names::ClientId;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};

const BINARY: &str = "name = \"y\"\nkind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]";

fn task(model: &str, label: &str, pvi: &str, trust: &str) -> ResolvedTask {
    let schema = format!(
        "version = 2\nnorm_bound = 2.0\n[[columns]]\n{label}\n[[columns]]\nname = \"a\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n\
         [[columns]]\nname = \"b\"\nkind = \"category\"\nvalues = [\"x\", \"y\", \"z\"]\n"
    );
    let aggregation = if trust == "aggregated" { "[aggregation]\nsites = 3\nmax_units = 1000000\n" } else { "max_units = 1000000\n" };
    let text = format!(
        "[model]\n{model}\nprior_units = \"encoded\"\nprior_scale = 1.0\n[schema]\nfile = \"s\"\n[pvi]\nschedule = \"synchronous\"\nrounds = 3\n{pvi}\n\
         [privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\nepsilon = 1.0\ndelta = 1e-6\ntrust = \"{trust}\"\n{aggregation}"
    );
    let context = ResolveContext { name: "dry-run", update_deadline_seconds: 60, min_sites: 3, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(&schema, context).unwrap()
}

fn expected(task: &ResolvedTask, units: u64, on_disk: bool) -> Expected {
    let folder = tempfile::tempdir().unwrap();
    let site = ClientId::new("ward").unwrap();
    let place = Where { site: &site, state: folder.path(), threads: NonZeroUsize::new(2).unwrap(), on_disk };
    let expected = dry_run(task, units, place).unwrap().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left in the state folder");
    expected
}

#[test]
fn updates_and_labels_of_all_kinds_can_be_dry_run() {
    let logistic = "family = \"logistic-regression\"\noutcome = \"y\"";
    let number = "name = \"y\"\nkind = \"number\"\nlower = 0\nupper = 9\ncentre = 0\nscale = 1";
    let times =
        "name = \"t\"\nkind = \"number\"\nlower = 0.1\nupper = 4\ncentre = 0\nscale = 1\n[[columns]]\nname = \"y\"\nkind = \"boolean\"";
    let classes = "name = \"y\"\nkind = \"category\"\nvalues = [\"p\", \"q\", \"r\"]";
    for (model, label, pvi) in [
        (logistic, BINARY, "update = \"natural-gradient\""),
        (logistic, BINARY, "update = \"dp-optimisation\"\nsampling_rate = 0.1\nsteps = 5"),
        (logistic, BINARY, "update = \"global-vi\""),
        (logistic, BINARY, "update = \"local-averaging\"\nshards = 4"),
        ("family = \"probit-regression\"\noutcome = \"y\"", BINARY, "update = \"natural-gradient\""),
        (
            "family = \"poisson-regression\"\noutcome = \"y\"",
            number,
            "update = \"natural-gradient\"\nresidual_bound = 10.0\ncurvature_bound = 12.0",
        ),
        ("family = \"multinomial-regression\"\noutcome = \"y\"\nclasses = 3", classes, "update = \"natural-gradient\""),
        (
            "family = \"weibull-regression\"\ntime_unit = 1.0\noutcome = \"Surv(t, y)\"",
            times,
            "update = \"natural-gradient\"\nresidual_bound = 1.0",
        ),
    ] {
        let trusts: &[&str] = if pvi.contains("natural-gradient") { &["local", "aggregated"] } else { &["local"] };
        for trust in trusts {
            for on_disk in [false, true] {
                let task = task(model, label, pvi, trust);
                let expected = expected(&task, 700, on_disk);
                assert!(expected.seconds > 0.0 && expected.invented == 700, "{model} {pvi} {trust}: {expected:?}");
            }
        }
    }
}

/// A visit of a million steps is not computed to tell how long it takes: a few of them are.
#[test]
fn of_many_steps_a_part_is_dry_run_and_scaled_up() {
    let logistic = "family = \"logistic-regression\"\noutcome = \"y\"";
    let of = |steps: u32| task(logistic, BINARY, &format!("update = \"dp-optimisation\"\nsampling_rate = 0.1\nsteps = {steps}"), "local");
    let (few, many) = (expected(&of(20), 700, false), expected(&of(1_000_000), 700, false));
    assert_eq!((few.passes, many.passes), (None, Some(200)));
    assert!(many.seconds.is_finite() && many.seconds > 0.0, "{many:?}");
    // A part of the steps need not be whole epochs.
    for (batches, steps, passes) in [(100, 100, None), (400, 400, Some(200)), (150, 600, Some(200))] {
        let epochs = task(logistic, BINARY, &format!("update = \"dp-optimisation\"\nbatches = {batches}\nsteps = {steps}"), "local");
        assert_eq!(expected(&epochs, 700, false).passes, passes, "{batches} batches");
    }
    let shards = task(logistic, BINARY, "update = \"local-averaging\"\nshards = 500", "local");
    assert_eq!(expected(&shards, 700, false).passes, Some(200));
}

#[test]
fn memory_grows_with_units_only_where_they_are_in_memory() {
    let task = task("family = \"logistic-regression\"\noutcome = \"y\"", BINARY, "update = \"natural-gradient\"", "local");
    let few = expected(&task, 1_000_000, false);
    let many = expected(&task, 100_000_000, false);
    assert!(many.bytes.unwrap() > 50 * (few.bytes.unwrap() / 3), "{few:?} {many:?}");
    assert!(expected(&task, 100_000_000, true).bytes.unwrap() < 100 << 20);
}

#[test]
fn what_a_broken_off_dry_run_left_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    for name in [".dry-run-left", ".dry-run-at-work"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    let yesterday = fs::FileTimes::new().set_modified(std::time::SystemTime::UNIX_EPOCH);
    fs::File::open(folder.path().join(".dry-run-left")).unwrap().set_times(yesterday).unwrap();
    fs::create_dir(folder.path().join("kept")).unwrap();
    let site = ClientId::new("ward").unwrap();
    let place = Where { site: &site, state: folder.path(), threads: NonZeroUsize::MIN, on_disk: false };
    dry_run(&task("family = \"logistic-regression\"\noutcome = \"y\"", BINARY, "update = \"natural-gradient\"", "local"), 10, place)
        .unwrap()
        .unwrap();
    assert!(!folder.path().join(".dry-run-left").exists());
    assert!(folder.path().join(".dry-run-at-work").exists() && folder.path().join("kept").exists());
}
