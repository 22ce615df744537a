//! Fits of several classes over real gRPC, beside those of R: without protection and with a wide prior a federation ends where `nnet::multinom` and `MASS::polr` do.
//! Where R or a package is missing, the test says so and is skipped.

use std::fmt::Write;
use std::process::Command;

use dp_pvi_tests::federation::{Federation, Party, complete};
use dp_pvi_tests::regression::Records;

/// Records of a site.
const SIZES: [usize; 3] = [300, 200, 100];

/// Largest differences from R's estimates, in posterior standard deviations: a mean differs from a maximum. As in the golden vectors.
const MULTINOMIAL: f64 = 0.3;
const ORDINAL: f64 = 0.5;

/// Numbers and a class, in a text for R and in files of sites.
struct Data {
    all: String,
    sites: Vec<Party>,
}

/// Classes by where a score with a disturbance falls; the disturbance is one of a low-discrepancy sequence, so that nothing is drawn.
fn data() -> Data {
    let total: usize = SIZES.iter().sum();
    let records = Records::generated(total, 4, 0);
    let mut lines = records.x.iter().map(|x| {
        let uniform = 0.5 * (x[3] + 1.0);
        let score = 1.2 * x[0] - 0.8 * x[1] + (uniform.clamp(1e-3, 0.999) / (1.0 - uniform.clamp(1e-3, 0.999))).ln();
        let class = if score < -0.9 {
            "mild"
        } else if score < 0.6 {
            "moderate"
        } else {
            "severe"
        };
        format!("{:?},{:?},{:?},{class}\n", x[0], x[1], x[2])
    });
    let (mut all, mut sites) = ("x0,x1,x2,y\n".to_owned(), Vec::new());
    for (m, size) in SIZES.iter().enumerate() {
        let own: String = lines.by_ref().take(*size).collect();
        all.push_str(&own);
        sites.push(Party::site_of(&format!("site-{}", m + 1), format!("x0,x1,x2,y\n{own}"), *size as u64));
    }
    Data { all, sites }
}

fn schema() -> String {
    let mut text = String::from("[[columns]]\nname = \"y\"\nkind = \"category\"\nvalues = [\"mild\", \"moderate\", \"severe\"]\n");
    for j in 0..3 {
        // Writing to a string cannot fail.
        let _ = write!(text, "[[columns]]\nname = \"x{j}\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n");
    }
    text
}

fn task(model: &str) -> String {
    format!(
        "name = \"classes\"\n[model]\n{model}\nclasses = 3\napproximation = \"full-covariance\"\nprior_units = \"encoded\"\nprior_scale = 10.0\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"sequential\"\nsweeps = 25\nupdate = \"pvi\"\n[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\n\
         trust = \"local\"\nmax_units = 1000000\n"
    )
}

/// Name, mean and standard deviation of every coefficient.
fn fitted(model: &str, sites: &[Party]) -> Vec<(String, f64, f64)> {
    let federation = Federation::new(&task(model), &schema(), sites);
    complete(&federation, sites);
    let document = federation.posterior();
    let of = |c: &serde_json::Value| (c["name"].as_str().unwrap().to_owned(), c["mean"].as_f64().unwrap(), c["sd"].as_f64().unwrap());
    document["coefficients"].as_array().unwrap().iter().map(of).collect()
}

/// The numbers that a script prints, one a line; `None`, with a word why, where R or a package is not there.
pub(crate) fn asked(script: &str, package: &str, data: &str) -> Option<Vec<f64>> {
    let has = Command::new("Rscript").args(["-e", &format!("quit(status = !requireNamespace('{package}', quietly = TRUE))")]).output();
    if !has.is_ok_and(|output| output.status.success()) {
        println!("skipped: this needs R with the package {package}");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("data.csv"), data).unwrap();
    let output = Command::new("Rscript").args(["-e", script]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8(output.stdout).unwrap().lines().map(|line| line.trim().parse().unwrap()).collect())
}

fn check(found: &[(String, f64, f64)], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for ((name, mean, sd), expected) in found.iter().zip(expected) {
        assert!((mean - expected).abs() <= tolerance * sd, "{name}: {mean} with sd {sd}, R has {expected}");
    }
}

#[test]
fn multinomial_regression_ends_where_nnet_does() {
    let Data { all, sites } = data();
    let script = "d <- read.csv('data.csv'); d$y <- factor(d$y, levels = c('mild', 'moderate', 'severe'))
                  fit <- nnet::multinom(y ~ x0 + x1 + x2, d, trace = FALSE, maxit = 1000, reltol = 1e-14)
                  cat(sprintf('%.12g\\n', t(coef(fit)[, c(2, 3, 4, 1)])), sep = '')";
    let Some(expected) = asked(script, "nnet", &all) else { return };
    check(&fitted("family = \"multinomial-regression\"\noutcome = \"y\"", &sites), &expected, MULTINOMIAL);
}

/// Thresholds are compared themselves: they are no linear function of what the task names, but that of its mean is near.
#[test]
fn ordinal_regression_ends_where_polr_does() {
    let Data { all, sites } = data();
    let script = "d <- read.csv('data.csv'); d$y <- factor(d$y, levels = c('mild', 'moderate', 'severe'), ordered = TRUE)
                  fit <- MASS::polr(y ~ x0 + x1 + x2, d, control = list(reltol = 1e-14))
                  cat(sprintf('%.12g\\n', c(coef(fit), fit$zeta)), sep = '')";
    let Some(expected) = asked(script, "MASS", &all) else { return };
    let mut found =
        fitted("family = \"ordinal-regression\"\noutcome = \"y\"\nthreshold_mean = [0.0, 0.0]\nthreshold_scale = [10.0, 10.0]", &sites);
    let (first, step) = (found[3].1, found[4].1);
    // Var of α_2 is that of its linearisation, of which that of κ_2 is a part: the smaller standard deviation is the stricter test.
    found[4].1 = first + step.exp().ln_1p();
    found[4].2 = found[4].2.min(found[3].2);
    check(&found, &expected, ORDINAL);
}
