//! Fits of survival times over real gRPC, beside those of R: without protection and with a wide prior a federation ends where a Poisson regression on split records,
//! `survival::coxph` and `survival::survreg` do. Where R or a package is missing, the test says so and is skipped.

use dp_pvi_tests::federation::{Federation, Party, complete};
use dp_pvi_tests::regression::Records;

use super::programs::asked;

/// Records of a site.
const SIZES: [usize; 3] = [300, 200, 100];

/// Numbers, an entry, a time and whether it ended with the event, in a text for R and in files of sites.
struct Data {
    all: String,
    sites: Vec<Party>,
}

/// Times with a hazard that rises, some of them cut off, and with `entries` records that come late. Nothing is drawn: disturbances are of low-discrepancy sequences.
fn data(entries: bool) -> Data {
    let total: usize = SIZES.iter().sum();
    let records = Records::generated(total, 5, 0);
    let share = |x: f64| (0.5 * (x + 1.0)).clamp(1e-3, 0.999);
    let mut lines = records.x.iter().map(|x| {
        let hazard = (0.7 * x[0] - 0.5 * x[1] - 1.2).exp();
        let time = (-share(x[2]).ln() / hazard).powf(1.0 / 1.4).clamp(0.02, 8.0);
        let (end, entry) = (0.5 + 7.5 * share(x[3]), if entries { 0.8 * share(x[4]).powi(2) } else { 0.0 });
        let since = if entries { format!("{entry:?},") } else { String::new() };
        format!("{:?},{:?},{since}{:?},{}\n", x[0], x[1], time.min(end), u8::from(time <= end && time < 8.0))
    });
    let header = if entries { "x0,x1,since,t,died\n" } else { "x0,x1,t,died\n" };
    let (mut all, mut sites) = (header.to_owned(), Vec::new());
    for (m, size) in SIZES.iter().enumerate() {
        let own: String = lines.by_ref().take(*size).collect();
        all.push_str(&own);
        sites.push(Party::site_of(&format!("site-{}", m + 1), format!("{header}{own}"), *size as u64));
    }
    Data { all, sites }
}

fn schema(entries: bool) -> String {
    let entry =
        if entries { "[[columns]]\nname = \"since\"\nkind = \"number\"\nlower = 0\nupper = 8\ncentre = 0\nscale = 1\n" } else { "" };
    let column = |j| format!("[[columns]]\nname = \"x{j}\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n");
    format!(
        "[[columns]]\nname = \"t\"\nkind = \"number\"\nlower = 0.01\nupper = 8\ncentre = 0\nscale = 1\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\n{entry}{}{}",
        column(0),
        column(1)
    )
}

/// Name, mean and standard deviation of every coefficient.
fn fitted(model: &str, response: &str, entries: bool, sites: &[Party]) -> Vec<(String, f64, f64)> {
    let task = format!(
        "name = \"times\"\n[model]\n{model}\nformula = \"{response} ~ x0 + x1\"\napproximation = \"full-covariance\"\nprior_units = \"encoded\"\nprior_scale = 10.0\n\
         [schema]\nfile = \"schema.toml\"\n[pvi]\nschedule = \"sequential\"\nsweeps = 25\nupdate = \"pvi\"\n[privacy]\nunit = \"record\"\n\
         adjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let federation = Federation::new(&task, &schema(entries), sites);
    complete(&federation, sites);
    let document = federation.posterior();
    let of = |c: &serde_json::Value| (c["name"].as_str().unwrap().to_owned(), c["mean"].as_f64().unwrap(), c["sd"].as_f64().unwrap());
    document["coefficients"].as_array().unwrap().iter().map(of).collect()
}

/// `expected` within so many posterior standard deviations: a mean differs from a maximum.
#[track_caller]
fn check(found: &[(String, f64, f64)], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len(), "{found:?} {expected:?}");
    for ((name, mean, sd), expected) in found.iter().zip(expected) {
        assert!((mean - expected).abs() <= tolerance * sd, "{name}: {mean} with sd {sd}, R has {expected}");
    }
}

#[test]
fn survival_regression_ends_where_glm_and_coxph_do() {
    let Data { all, sites } = data(true);
    let script = "library(survival); d <- read.csv('data.csv')
                  s <- survSplit(Surv(since, t, died) ~ x0 + x1, d, cut = c(0.5, 1, 2, 4), episode = 'b', start = 'from', end = 't')
                  fit <- glm(died ~ 0 + factor(b) + x0 + x1 + offset(log(t - from)), poisson, s, epsilon = 1e-14)
                  cox <- coxph(Surv(since, t, died) ~ x0 + x1, d)
                  cat(sprintf('%.12g\\n', c(coef(fit), coef(cox))), sep = '')";
    let Some(expected) = asked(script, "survival", &all) else { return };
    let model = "family = \"survival-regression\"\ncuts = [0, 0.5, 1, 2, 4, 8]\nbaseline_mean = 0.0\nbaseline_scale = 10.0";
    let found = fitted(model, "Surv(since, t, died)", true, &sites);
    let names: Vec<&str> = found.iter().map(|(name, ..)| name.as_str()).collect();
    assert_eq!(names, ["baseline(0,0.5]", "baseline(0.5,1]", "baseline(1,2]", "baseline(2,4]", "baseline(4,8]", "x0", "x1"]);
    let (glm, cox) = expected.split_at(7);
    check(&found, glm, 0.25);
    check(&found[5..], cox, 0.5);
}

#[test]
fn weibull_regression_ends_where_survreg_does() {
    let Data { all, sites } = data(false);
    let script = "library(survival); d <- read.csv('data.csv')
                  fit <- survreg(Surv(t, died) ~ x0 + x1, d, control = list(rel.tolerance = 1e-14))
                  cat(sprintf('%.12g\\n', c(-coef(fit) / fit$scale, -log(fit$scale))), sep = '')";
    let Some(expected) = asked(script, "survival", &all) else { return };
    let model = "family = \"weibull-regression\"\ntime_unit = 1.0\nshape_scale = 10.0";
    check(&fitted(model, "Surv(t, died)", false, &sites), &expected, 0.4);
}
