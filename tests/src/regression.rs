//! Small regression problems as federations run them: schema, task and files for a given design matrix.

use std::fmt::Write;

use crate::federation::Party;

/// Rows of features with their targets.
#[derive(Debug, Clone, Default)]
pub struct Records {
    /// Feature rows, all of one length.
    pub x: Vec<Vec<f64>>,
    /// Targets: numbers, or 0 and 1.
    pub y: Vec<f64>,
}

/// What the targets are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Likelihood {
    /// y = 0 or 1.
    Logistic,
    /// Known standard deviation of y.
    Linear {
        /// It.
        noise_sd: f64,
    },
}

/// Order of work, with the number of sweeps or rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schedule {
    /// One site after the other.
    Sequential(u32),
    /// All at once.
    Synchronous(u32),
}

/// A task, before it is text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Task {
    /// Of the targets.
    pub likelihood: Likelihood,
    /// Mean field or full covariance.
    pub full_covariance: bool,
    /// Standard deviation of the prior.
    pub prior_scale: f64,
    /// Order of work.
    pub schedule: Schedule,
    /// ρ; the default where absent.
    pub damping: Option<f64>,
    /// ε of DP optimisation; exact PVI without protection where absent.
    pub epsilon: Option<f64>,
    /// Release tick in seconds.
    pub tick: u32,
}

impl Default for Task {
    fn default() -> Self {
        Self {
            likelihood: Likelihood::Logistic,
            full_covariance: false,
            prior_scale: 1.0,
            schedule: Schedule::Sequential(2),
            damping: None,
            epsilon: Some(1.0),
            tick: 0,
        }
    }
}

impl Task {
    /// `task.toml`.
    #[must_use]
    pub fn toml(&self) -> String {
        let mut text = String::from("name = \"test\"\neven_if_worthless = true\n[schema]\nfile = \"schema.toml\"\n[model]\n");
        let mut line = |l: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{l}");
        };
        match self.likelihood {
            Likelihood::Logistic => line("family = \"logistic-regression\"\nformula = \"y ~ 0 + .\"".into()),
            Likelihood::Linear { noise_sd } => {
                line(format!("family = \"linear-regression\"\nformula = \"y ~ 0 + .\"\nnoise_sd = {noise_sd:?}"))
            }
        }
        line(format!("approximation = \"{}\"", if self.full_covariance { "full-covariance" } else { "mean-field" }));
        line(format!("prior_units = \"encoded\"\nprior_scale = {:?}\n[pvi]", self.prior_scale));
        match self.schedule {
            Schedule::Sequential(sweeps) => line(format!("schedule = \"sequential\"\nsweeps = {sweeps}")),
            Schedule::Synchronous(rounds) => line(format!("schedule = \"synchronous\"\nrounds = {rounds}")),
        }
        if let Some(damping) = self.damping {
            line(format!("damping = {damping:?}"));
        }
        line(format!("release_tick_seconds = {}", self.tick));
        match self.epsilon {
            None => line("update = \"pvi\"".into()),
            Some(_) => line("update = \"dp-optimisation\"\nexpected_sites = 3".into()),
        }
        line("[privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000".into());
        if let Some(epsilon) = self.epsilon {
            line(format!("epsilon = {epsilon:?}"));
        }
        text
    }

    /// `schema.toml` for `dimension` plain numbers without an intercept, and a label.
    #[must_use]
    pub fn schema(&self, dimension: usize) -> String {
        let mut text = String::from("[[columns]]\nname = \"y\"\n");
        text.push_str(match self.likelihood {
            Likelihood::Logistic => "kind = \"boolean\"\ntrue_values = [\"1\"]\nfalse_values = [\"0\"]\n",
            Likelihood::Linear { .. } => "kind = \"number\"\nlower = -1000\nupper = 1000\ncentre = 0\nscale = 1\n",
        });
        // Generated features lie within 1; the range decides the norm bound, and with it the noise of a private task.
        let range = if self.epsilon.is_some() { 1 } else { 10 };
        for j in 0..dimension {
            // Writing to a string cannot fail.
            let _ =
                write!(text, "[[columns]]\nname = \"x{j}\"\nkind = \"number\"\nlower = -{range}\nupper = {range}\ncentre = 0\nscale = 1\n");
        }
        text
    }
}

impl Records {
    /// Records with a known rule, without a random generator: features from a low-discrepancy sequence, labels by the sign of a
    /// linear function with every seventh one turned round.
    #[must_use]
    pub fn generated(rows: usize, dimension: usize, offset: usize) -> Self {
        let mut records = Self::default();
        for i in 0..rows {
            #[allow(clippy::cast_precision_loss, reason = "small counts")]
            let row: Vec<f64> = (0..dimension)
                .map(|j| {
                    // Multiples of the square roots of small integers are equidistributed.
                    let step = ((j * j + 2) as f64).sqrt();
                    (((offset + i + 1) as f64 * step).fract() - 0.5) * 2.0
                })
                .collect();
            #[allow(clippy::cast_precision_loss, reason = "small counts")]
            let score: f64 = row.iter().enumerate().map(|(j, x)| x * if j % 2 == 0 { 1.5 } else { -1.0 }).sum();
            let positive = (score > 0.0) != ((offset + i) % 7 == 3);
            records.x.push(row);
            records.y.push(f64::from(u8::from(positive)));
        }
        records
    }

    /// CSV with columns x0 …, y; every number in full precision.
    #[must_use]
    pub fn csv(&self, likelihood: Likelihood) -> String {
        let mut text: String = (0..self.x.first().map_or(0, Vec::len)).map(|j| format!("x{j},")).collect();
        text.push_str("y\n");
        for (x, y) in self.x.iter().zip(&self.y) {
            x.iter().for_each(|x| {
                // Writing to a string cannot fail.
                let _ = write!(text, "{x:?},");
            });
            text.push_str(&match likelihood {
                Likelihood::Logistic => format!("{}\n", u8::from(*y > 0.5)),
                Likelihood::Linear { .. } => format!("{y:?}\n"),
            });
        }
        text
    }

    /// Consecutive slices of the given sizes as sites `site-1` …
    #[must_use]
    pub fn sites(&self, sizes: &[usize], likelihood: Likelihood) -> Vec<Party> {
        let mut start = 0;
        let slice = |size: &usize| {
            let range = start..start + size;
            start += size;
            Self { x: self.x[range.clone()].to_vec(), y: self.y[range].to_vec() }
        };
        let slices: Vec<_> = sizes.iter().map(slice).collect();
        slices.iter().enumerate().map(|(m, records)| Party::site(&format!("site-{}", m + 1), records.csv(likelihood))).collect()
    }
}
