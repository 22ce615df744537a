//! `dp-pvi-papers reproduce dp-pvi-figureN`: logistic regression and networks by all methods, on three splits, against communications.
//!
//! One cell is a split, a method and a seed; it runs over the production protocol (exact lattice noise from a seeded stream) and is kept in
//! the output directory, so that an interrupted reproduction goes on where it stopped. What a cell gives depends on its seed and on the text of its
//! experiment only, not on the number of threads.
//!
//! What came out: `deploy/guide/src/results/dp-pvi-figures.md`.

use super::dp_pvi_cells::{Cell, Plan, run_cells};
use super::dp_pvi_figure::{Figure, QUICK, Split};
use super::dp_pvi_methods::{self as methods, Method};
use super::dp_pvi_report as report;
use super::vips::write;
use super::{Options, ReproduceError};

const ADULT: &str = include_str!("../../../../deploy/experiments/adult.schema.toml");
const DIABETES: &str = include_str!("../../../../deploy/experiments/diabetes-mortality.schema.toml");

impl Figure {
    fn data(self) -> (&'static str, &'static str, &'static str) {
        let adult = "files = [\"adult/adult.data.gz\", \"adult/adult.test.gz\"]\ntest_fraction = 0.2\n";
        match self {
            Self::Two => (
                "diabetes-mortality.schema.toml",
                DIABETES,
                "files = [\"health/diabetes-130/diabetic_data.csv.gz\"]\ntest_fraction = 0.2\nbalance = true\n",
            ),
            _ => ("adult.schema.toml", ADULT, adult),
        }
    }

    /// The experiment of a method on a split, as a file that runs alone, too.
    fn experiment(self, split: &Split, method: &Method, seeds: &[u64], quick: bool) -> String {
        let (schema, _, data) = self.data();
        let limit = if quick { format!("limit = {QUICK}\n") } else { String::new() };
        let sites = if method.pooled { 1 } else { self.sites(quick) };
        let outcome = if schema == "adult.schema.toml" { "income" } else { "discharge_disposition_id" };
        let model = if self.is_network() {
            format!(
                "family = \"neural-network\"\noutcome = \"{outcome}\"\nhidden = [50]\nsamples = 4\nprior_units = \"encoded\"\nprior_scale = 1.0\n"
            )
        } else {
            format!(
                "family = \"logistic-regression\"\noutcome = \"{outcome}\"\napproximation = \"{}\"\nprior_units = \"encoded\"\nprior_scale = 1.0\n",
                method.approximation
            )
        };
        let epsilon = if method.is_private() { format!("epsilon = {:?}\n", self.epsilon()) } else { String::new() };
        let (trust, aggregation) = if method.aggregated {
            ("aggregated", format!("[task.aggregation]\nmax_units = {}\nhonest_cap = {sites}\n\n", method.max_units(self.units(quick))))
        } else {
            ("local", String::new())
        };
        // As many as all sites have together: no site of a figure lies.
        let most = if method.aggregated { "" } else { "max_units = 50000\n" };
        let split = if method.pooled || !method.depends_on_split { "rho = 0.0\nkappa = 0.0\n".to_owned() } else { shares(split) };
        format!(
            "name = \"{}, {}\"\nseeds = {seeds:?}\nevaluate_every = {}\n\n[task.model]\n{model}\n[task.schema]\nfile = \"{schema}\"\n\n\
             [task.pvi]\n{}\n[task.privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\n{epsilon}delta = 1e-5\ntrust = \"{trust}\"\n{most}\n\
             {aggregation}[data]\n{data}{limit}\n[clients]\nnumber = {sites}\n{split}\n[phases]\nmin_sites = {sites}\n",
            self.name(),
            method.title,
            if method.sequential && !method.pooled { sites } else { method.evaluate_every },
            method.pvi,
        )
    }
}

fn shares(split: &Split) -> String {
    format!("rho = {:?}\nkappa = {:?}\n", split.rho, split.kappa)
}

/// Runs a figure and writes `dp-pvi-figureN.{csv,svg,md}`.
pub(super) fn run(options: &Options<'_>, figure: Figure) -> Result<(), ReproduceError> {
    let (schema_name, schema, _) = figure.data();
    write(&options.output.join(schema_name), schema)?;
    let seeds: Vec<u64> = (options.seed..options.seed + if options.quick { 1 } else { 5 }).collect();
    let splits = figure.splits();
    let splits = if options.quick { &splits[..2] } else { &splits[..] };
    let methods = methods::of(figure, options.quick);
    let mut plans = Vec::new();
    for split in splits {
        for method in &methods {
            if !method.depends_on_split && split.name != "balanced" {
                continue;
            }
            let name = format!("{}-{}-{}", figure.name(), split.name, method.name);
            let text = figure.experiment(split, method, &seeds, options.quick);
            let sites = if method.pooled { 1 } else { figure.sites(options.quick) };
            plans.push(Plan { name, text, split: split.name, method: method.name, sites });
        }
    }
    let cells: Vec<Cell> = run_cells(options, &plans, &seeds)?;
    report::write_figure(options, figure, splits, &methods, &cells)
}
