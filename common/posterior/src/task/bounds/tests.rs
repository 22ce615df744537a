#![allow(clippy::unwrap_used)]
#![allow(clippy::disallowed_methods, reason = "a test of how long something takes")]

use std::time::Duration;

use super::super::tests::{CONTEXT, NUMERIC_LABEL, SCHEMA};
use dp_pvi_models::gaussian_mixture::GaussianMixture;
use dp_pvi_models::neural_network::NeuralNetworkSpec;

use super::super::{DpEmSpec, ModelSpec, RawTask, ResolvedTask, ScheduleSpec, StatisticsSpec, UpdateSpec};

/// Far longer than reading a task takes, and far shorter than filling a vector of 2^26 numbers for every case.
const AT_ONCE: Duration = Duration::from_millis(250);

const WORDS: &str = "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 5\ndocument_length = 20\n";
const IMAGES: &str = "kind = \"binary-image\"\n[binary_image]\nwidth = 300\nheight = 300\nthreshold = 127\n";

fn text(model: &str, pvi: &str, privacy: &str) -> String {
    format!(
        "[model]\n{model}\n[schema]\nfile = \"s\"\n[pvi]\n{pvi}\n[privacy]\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n{privacy}\n"
    )
}

const RECORDS: &str = "unit = \"record\"\nepsilon = 1.0";
const SITES: &str = "unit = \"site\"\nepsilon = 1.0";
const LOGISTIC: &str = "family = \"logistic-regression\"\noutcome = \"died\"";
const STEPS: &str = "schedule = \"sequential\"\nsweeps = 5\nupdate = \"dp-optimisation\"\nclip_norm = 1.0";

fn resolved(model: &str, pvi: &str, privacy: &str, schema: &str) -> Result<ResolvedTask, String> {
    RawTask::parse(&text(model, pvi, privacy)).unwrap().resolve(schema, CONTEXT).map_err(|error| error.to_string())
}

/// Time that this thread has had a processor: what else the machine does is not in it.
fn busy() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// Runs a reading and wants these words, and them at once.
#[track_caller]
fn refused(read: impl FnOnce() -> Result<ResolvedTask, String>, part: &str) {
    let started = busy();
    let words = read().unwrap_err();
    let took = busy() - started;
    assert!(words.contains(part), "{part}: {words}");
    assert!(took < AT_ONCE, "{part}: {took:?}");
}

/// What a client does with the task of a server.
fn decoded(task: &ResolvedTask, change: impl FnOnce(&mut ResolvedTask)) -> Result<ResolvedTask, String> {
    let mut task = task.clone();
    change(&mut task);
    ResolvedTask::from_bytes(&task.to_bytes()).map_err(|error| error.to_string())
}

/// Another number of visits, undamped as before.
fn visit(task: &mut ResolvedTask, visits: u32) {
    task.damping = vec![task.damping[0]; visits as usize];
    task.schedule = match task.schedule {
        ScheduleSpec::Sequential { .. } => ScheduleSpec::Sequential { sweeps: visits },
        _ => ScheduleSpec::Synchronous { rounds: visits },
    };
}

#[test]
fn steps_and_numbers_of_a_task_are_bounded_before_anything_is_built() {
    // As a server resolves it (`check`).
    let pvi = |more: &str| format!("{STEPS}\n{more}");
    refused(|| resolved(LOGISTIC, &pvi("steps = 4294967295"), RECORDS, SCHEMA), "4294967295 passes");
    refused(|| resolved(LOGISTIC, &STEPS.replace("= 5", "= 4294967295"), RECORDS, SCHEMA), "at most 100000 rounds");
    refused(
        || resolved("family = \"neural-network\"\noutcome = \"died\"\nhidden = [1048576, 1048576]", STEPS, RECORDS, SCHEMA),
        "at most 2^26 weights",
    );
    refused(
        || resolved("family = \"neural-network\"\noutcome = \"died\"\nhidden = [4294967295]", STEPS, RECORDS, SCHEMA),
        "at most 2^26 weights",
    );
    let sep = "schedule = \"synchronous\"\nrounds = 5\nupdate = \"sep\"\nrecords = 100";
    refused(
        || resolved("family = \"pbp-network\"\noutcome = \"days\"\nhidden = [1048576, 1048576]", sep, RECORDS, NUMERIC_LABEL),
        "2^26 weights",
    );
    let vips = "schedule = \"synchronous\"\nrounds = 5\nupdate = \"vips\"";
    let many = WORDS.replace("= 5", "= 4294967295");
    refused(|| resolved("family = \"latent-dirichlet\"\ntopics = 1024", vips, RECORDS, &many), "features are too many");
    let some = WORDS.replace("= 5", "= 65537");
    refused(|| resolved("family = \"latent-dirichlet\"\ntopics = 1024", vips, RECORDS, &some), "67109888 parameters are too many");
    let images = "family = \"sigmoid-belief\"\nhidden = 100";
    refused(|| resolved(images, &format!("{vips}\nimages = 100"), RECORDS, IMAGES), "numbers of");
    let mixture = "family = \"gaussian-mixture\"\ncomponents = 2\nnoise_sd = 1.0";
    let em = "schedule = \"synchronous\"\nrounds = 5\nupdate = \"dp-em\"";
    refused(|| resolved(mixture, em, RECORDS, IMAGES), "numbers of the state are too many");
    let full = format!("{mixture}\napproximation = \"full-covariance\"");
    refused(|| resolved(&full, sep, RECORDS, IMAGES), "natural parameters are too many");
    let shards = "schedule = \"synchronous\"\nrounds = 5\nupdate = \"virtual-clients\"\nclip_norm = 1.0\nshards = ";
    refused(|| resolved(LOGISTIC, &format!("{shards}4294967295"), RECORDS, SCHEMA), "4294967295 passes");
    let column = |n: u32| format!("[[columns]]\nname = \"c{n}\"\nkind = \"number\"\nlower = 0\nupper = 1\ncentre = 0\nscale = 1\n");
    let wide = format!("{SCHEMA}\n{}", (0..70).map(column).collect::<String>());
    refused(|| resolved(LOGISTIC, &format!("{shards}1000000"), RECORDS, &wide), "numbers that a site keeps are too many");
    let passes = "schedule = \"synchronous\"\nrounds = 5\nupdate = \"sep\"\nclip_norms = [1.0, 1.0]\nsite_passes = 4294967295";
    refused(|| resolved(LOGISTIC, passes, SITES, SCHEMA), "4294967295 passes");

    // As a client reads it from a server.
    let task = resolved(LOGISTIC, STEPS, RECORDS, SCHEMA).unwrap();
    let steps = |steps: u32, visits: u32| {
        move |task: &mut ResolvedTask| {
            visit(task, visits);
            let UpdateSpec::DpOptimisation(spec) = &mut task.update else { panic!("steps") };
            spec.steps = steps;
        }
    };
    decoded(&task, steps(1_000_000, 100)).unwrap();
    for (of_a_visit, visits) in [(1_000_001, 1), (1_000_000, 101), (1001, 100_000), (u32::MAX, 5)] {
        refused(|| decoded(&task, steps(of_a_visit, visits)), "passes over a site's records");
    }
    refused(|| decoded(&task, |task| task.features = u32::MAX), "features are too many");
    refused(|| decoded(&task, |task| task.dimension = u32::MAX), "parameters are too many");
    refused(|| decoded(&task, |task| task.dimension = 60_000), "features, dimension");
    let network = |hidden: Vec<u32>| {
        move |task: &mut ResolvedTask| {
            let spec: &NeuralNetworkSpec = task.model.options().expect("a network");
            task.model = ModelSpec::from(NeuralNetworkSpec { hidden, ..spec.clone() });
            task.dimension = 0;
        }
    };
    let task = resolved("family = \"neural-network\"\noutcome = \"died\"\nhidden = [3]", STEPS, RECORDS, SCHEMA).unwrap();
    for hidden in [vec![1 << 20, 1 << 20], vec![u32::MAX], vec![1 << 13, 1 << 13]] {
        refused(|| decoded(&task, network(hidden)), "at most 2^26 weights");
    }
    let bcm = "schedule = \"synchronous\"\nrounds = 1\nupdate = \"bcm\"\ncommittee_prior = \"same\"\nclip_norm = 1.0";
    let task = resolved(LOGISTIC, bcm, RECORDS, SCHEMA).unwrap();
    let fit = |task: &mut ResolvedTask| {
        let UpdateSpec::Bcm(spec) = &mut task.update else { panic!("a committee") };
        spec.fit.steps = u32::MAX;
    };
    refused(|| decoded(&task, fit), "4294967295 passes");
    let task = resolved("family = \"latent-dirichlet\"\ntopics = 2", vips, RECORDS, WORDS).unwrap();
    let sweeps = |task: &mut ResolvedTask| {
        visit(task, 10_001);
        let UpdateSpec::Vips(spec) = &mut task.update else { panic!("topics") };
        let StatisticsSpec::Documents(documents) = &mut spec.statistics else { panic!("topics") };
        documents.sweeps = 10_000;
    };
    refused(|| decoded(&task, sweeps), "10000 passes");
    // A mixture that says that it has more components than any has: nothing overflows on the way to the refusal.
    let small = IMAGES.replace("300", "2");
    let task = resolved(mixture, em, RECORDS, &small).unwrap();
    assert!(matches!(task.update, UpdateSpec::DpEm(DpEmSpec { .. })));
    let components = |task: &mut ResolvedTask| {
        let spec: &GaussianMixture = task.model.options().expect("a mixture");
        task.model = ModelSpec::from(GaussianMixture { components: u32::MAX, ..*spec });
        task.dimension = u32::MAX;
    };
    refused(|| decoded(&task, components), "parameters are too many");
}
