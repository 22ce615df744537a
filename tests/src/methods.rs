//! Every method on small data: which models and updates there are, which pairs a task may name, and records that each model learns from.
//!
//! A new model needs a line in [`MODELS`], a new update one in [`UPDATES`]; [`missing`] finds pairs that a task may name and no row has.

use std::collections::BTreeSet;
use std::fmt::Write;

use dp_pvi_accounting::PrivacyUnit;
use dp_pvi_models as models;
use dp_pvi_posterior::methods;
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask, TaskError};

use crate::federation::Party;
use crate::regression::{Likelihood, Records};

/// Units of a site.
const UNITS: usize = 60;

/// What a model learns from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data {
    /// Two numbers and a class.
    Classes,
    /// Two numbers and one of three classes, which follows from them.
    Wards,
    /// Two numbers, a time and whether it ended with an event.
    Times,
    /// Two numbers and a count, which is a number too.
    Counts,
    /// Words of documents.
    Documents,
    /// Binary images.
    Images,
}

/// Who is protected by an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Records, with ε = 2.
    Records,
    /// Sites, with ε = 2.
    Sites,
    /// Nobody: ε = ∞.
    None,
}

/// A likelihood with its options and its records.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// Name in the table.
    pub name: &'static str,
    /// `[model]`.
    pub options: &'static str,
    /// What it learns from.
    pub data: Data,
}

/// A local update with its options.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Name in the table.
    pub name: &'static str,
    /// `[pvi]`.
    pub options: &'static str,
    /// Whom it protects.
    pub protection: Protection,
}

/// Who adds the noise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// Every site.
    Local,
    /// So many sites together.
    Aggregated(usize),
}

const fn model(name: &'static str, options: &'static str, data: Data) -> Model {
    Model { name, options, data }
}

const fn update(name: &'static str, options: &'static str) -> Update {
    Update { name, options, protection: Protection::Records }
}

const fn open(name: &'static str, options: &'static str) -> Update {
    Update { name, options, protection: Protection::None }
}

const fn whole(name: &'static str, options: &'static str) -> Update {
    Update { name, options, protection: Protection::Sites }
}

/// Every likelihood, with the options that make a difference.
pub const MODELS: &[Model] = &[
    model("linear", "family = \"linear-regression\"\nnoise_sd = 1.0", Data::Counts),
    model("linear, full", "family = \"linear-regression\"\nnoise_sd = 1.0\napproximation = \"full-covariance\"", Data::Counts),
    model("logistic", "family = \"logistic-regression\"", Data::Classes),
    model("logistic, full", "family = \"logistic-regression\"\napproximation = \"full-covariance\"", Data::Classes),
    model("probit", "family = \"probit-regression\"", Data::Classes),
    model("Poisson", "family = \"poisson-regression\"", Data::Counts),
    model("negative binomial", "family = \"negative-binomial-regression\"\ndispersion = 1.5", Data::Counts),
    model("robust", "family = \"robust-regression\"\nscale = 1.0", Data::Counts),
    model("robust, learned", "family = \"robust-regression\"\nscale = \"learned\"", Data::Counts),
    model(
        "robust, learned, full",
        "family = \"robust-regression\"\nscale = \"learned\"\napproximation = \"full-covariance\"",
        Data::Counts,
    ),
    model("multinomial", "family = \"multinomial-regression\"\nclasses = 3", Data::Wards),
    model("multinomial, full", "family = \"multinomial-regression\"\nclasses = 3\napproximation = \"full-covariance\"", Data::Wards),
    model("ordinal", "family = \"ordinal-regression\"\nclasses = 3", Data::Wards),
    model("ordinal, full", "family = \"ordinal-regression\"\nclasses = 3\napproximation = \"full-covariance\"", Data::Wards),
    model("survival", "family = \"survival-regression\"\ncuts = [0, 1, 3, 10]", Data::Times),
    model("survival, full", "family = \"survival-regression\"\ncuts = [0, 1, 3, 10]\napproximation = \"full-covariance\"", Data::Times),
    model("Weibull", "family = \"weibull-regression\"\ntime_unit = 2.0", Data::Times),
    model("Weibull, full", "family = \"weibull-regression\"\ntime_unit = 2.0\napproximation = \"full-covariance\"", Data::Times),
    model("network", "family = \"neural-network\"\nhidden = [3]\nsamples = 2", Data::Classes),
    model("network of classes", "family = \"neural-network\"\nhidden = [3]\nsamples = 1\nclasses = 3", Data::Wards),
    model("network of numbers", "family = \"neural-network\"\nhidden = [3, 2]\nsamples = 1\nnoise_sd = 1.0", Data::Counts),
    model("topics", "family = \"latent-dirichlet\"\ntopics = 2", Data::Documents),
    model("mixture", "family = \"gaussian-mixture\"\ncomponents = 2\nnoise_sd = 0.5", Data::Counts),
    model(
        "mixture, full",
        "family = \"gaussian-mixture\"\ncomponents = 2\nnoise_sd = 0.5\napproximation = \"full-covariance\"",
        Data::Counts,
    ),
    model("moments", "family = \"pbp-network\"\nhidden = [3]", Data::Counts),
    model("images", "family = \"sigmoid-belief\"\nhidden = 2", Data::Images),
];

/// Every update, with the options that make a difference.
pub const UPDATES: &[Update] = &[
    open("pvi", "schedule = \"sequential\"\nsweeps = 2\nupdate = \"pvi\""),
    open("pvi, at once", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"pvi\""),
    update("dp", "schedule = \"sequential\"\nsweeps = 2\nupdate = \"dp-optimisation\"\nsteps = 3\nclip_norm = 1.0"),
    update(
        "dp, Adam, sampled",
        "schedule = \"synchronous\"\nrounds = 2\nupdate = \"dp-optimisation\"\nsteps = 3\nclip_norm = 1.0\nsampling_rate = 0.5\noptimizer = \"adam\"",
    ),
    update("dp, batches", "schedule = \"sequential\"\nsweeps = 2\nupdate = \"dp-optimisation\"\nbatches = 3\nsteps = 6\nclip_norm = 1.0"),
    update(
        "dp, positivity",
        "schedule = \"synchronous\"\nrounds = 2\nupdate = \"dp-optimisation\"\nsteps = 3\nclip_norm = 1.0\noptimizer = \"positivity-preserving\"",
    ),
    update(
        "dp, adaptive",
        "schedule = \"sequential\"\nsweeps = 2\nupdate = \"dp-optimisation\"\nsteps = 3\nclip_norm = 1.0\nsampling_rate = 0.5\nadaptive_clip = { units = 60 }",
    ),
    update("natural", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"natural-gradient\"\nresidual_bound = 2.0\ncurvature_bound = 1.0"),
    update(
        "natural, diagonal",
        "schedule = \"synchronous\"\nrounds = 2\nupdate = \"natural-gradient\"\nresidual_bound = 2.0\ncurvature_bound = 1.0\npreconditioner = \"diagonal\"",
    ),
    update("bcm, same", "schedule = \"synchronous\"\nrounds = 1\nupdate = \"bcm\"\ncommittee_prior = \"same\"\nsteps = 3\nclip_norm = 1.0"),
    update(
        "bcm, split",
        "schedule = \"synchronous\"\nrounds = 1\nupdate = \"bcm\"\ncommittee_prior = \"split\"\nsteps = 3\nclip_norm = 1.0",
    ),
    update("global", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"global-vi\"\nclip_norm = 1.0"),
    update("global, sampled", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"global-vi\"\nclip_norm = 1.0\nsampling_rate = 0.5"),
    update("perturbation", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"parameter-perturbation\"\nclip_norm = 1.0"),
    update(
        "perturbation, clean",
        "schedule = \"sequential\"\nsweeps = 2\nupdate = \"parameter-perturbation\"\nclip_metric = \"flat\"\nclip_norm = 1.0\nstate = \"private-clean\"",
    ),
    update("averaging", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"local-averaging\"\nshards = 3\nclip_norm = 1.0"),
    update(
        "averaging, tied",
        "schedule = \"synchronous\"\nrounds = 2\nupdate = \"local-averaging\"\nshards = 3\nclip_metric = \"whitened\"\nclip_norm = 1.0\nstate = \"tied\"",
    ),
    update("virtual", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"virtual-clients\"\nshards = 3\nclip_norm = 1.0"),
    update(
        "virtual, tied",
        "schedule = \"synchronous\"\nrounds = 2\nupdate = \"virtual-clients\"\nshards = 60\nclip_metric = \"block\"\nclip_norm = 1.0\nstate = \"tied\"",
    ),
    whole("client-level", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"client-level\"\nclip_norm = 1.0"),
    whole("client-level, tied", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"client-level\"\nclip_norm = 1.0\nstate = \"tied\""),
    update("vips", "schedule = \"synchronous\"\nrounds = 3\nupdate = \"vips\""),
    update(
        "vips, relevance",
        "schedule = \"synchronous\"\nrounds = 2\nupdate = \"vips\"\nrelevance_shape = 1.0\nrelevance_rate = 1.0\nintervals = \"naive\"",
    ),
    update("vips, unknown noise", "schedule = \"synchronous\"\nrounds = 1\nupdate = \"vips\"\nrecords = 120"),
    update("vips, learned clip", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"vips\"\ndocuments = 120\nsampling_rate = 0.5"),
    update(
        "vips, images",
        "schedule = \"synchronous\"\nrounds = 2\ndamping = { start = 1.0, end = 0.5 }\nupdate = \"vips\"\nimages = 120\nsampling_rate = 0.5",
    ),
    update("vips, all images", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"vips\"\nimages = 120"),
    update("sep", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"sep\"\nrecords = 120"),
    update(
        "sep, sampled",
        "schedule = \"synchronous\"\nrounds = 2\nupdate = \"sep\"\nrecords = 120\nsampling_rate = 0.5\nclip_target = \"factor\"",
    ),
    open("sep, open", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"sep\"\nrecords = 120"),
    open("sep, pass", "schedule = \"sequential\"\nsweeps = 2\nupdate = \"sep\"\nrecords = 120\norder = \"pass\""),
    open("filter", "schedule = \"sequential\"\nsweeps = 1\nupdate = \"sep\"\nrecords = 120\norder = \"filter\""),
    update("ep", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"ep\"\nrecords = 120"),
    open("ep, open", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"ep\"\nrecords = 120"),
    whole("sep, sites", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"sep\"\nsite_passes = 3"),
    whole("ep, sites", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"ep\"\nsite_passes = 3"),
    update("dp-em", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"dp-em\""),
    open("dp-em, open", "schedule = \"synchronous\"\nrounds = 2\nupdate = \"dp-em\""),
];

/// Updates of every generalised linear model.
const GLM: &str = "pvi; dp; natural; bcm, split; global; perturbation; averaging; virtual; client-level";

/// The updates that each model is tried with under local trust: every pair at least once, and every option with one model.
#[must_use]
pub fn tried(model: &str) -> Vec<&'static Update> {
    let names = match model {
        "linear" | "Poisson" | "negative binomial" | "robust" | "multinomial" | "ordinal" | "survival" | "Weibull" => vec![GLM],
        "multinomial, full" | "ordinal, full" | "survival, full" | "Weibull, full" => vec!["pvi; natural"],
        "robust, learned" => vec!["pvi; pvi, at once; natural; natural, diagonal"],
        "robust, learned, full" => vec!["pvi, at once; natural"],
        "linear, full" => vec!["vips, unknown noise; virtual"],
        "logistic" => vec![
            GLM,
            "pvi, at once; dp, Adam, sampled; dp, positivity; natural, diagonal; bcm, same; global, sampled; perturbation, clean",
            "averaging, tied; virtual, tied; client-level, tied",
            "sep; sep, sampled; sep, open; sep, pass; filter; ep; ep, open",
        ],
        "logistic, full" => vec!["pvi; natural; vips; vips, relevance; sep; ep, open"],
        "probit" => vec![GLM, "sep; sep, open; ep; filter; sep, sites; ep, sites"],
        "network" => vec!["dp; dp, positivity; dp, adaptive; bcm, split"],
        "network of numbers" | "network of classes" => vec!["dp, Adam, sampled"],
        "topics" => vec!["vips; vips, learned clip"],
        "mixture" => vec!["sep; sep, open; ep; dp-em; dp-em, open"],
        "mixture, full" => vec!["sep; ep; sep, sites"],
        "moments" => vec!["sep; sep, open; filter; ep; ep, sites"],
        "images" => vec!["vips, images; vips, all images"],
        other => panic!("{other} is in no row: say which updates it is tried with"),
    };
    updates(&names.join("; "))
}

/// The same under aggregated trust.
#[must_use]
pub fn tried_aggregated(model: &str) -> Vec<&'static Update> {
    updates(match model {
        "linear" => "natural; averaging",
        "linear, full" => "vips, unknown noise",
        "logistic" => "natural; global, sampled; perturbation; averaging, tied; virtual; virtual, tied; client-level; sep; ep",
        "logistic, full" => "vips",
        "probit" => "sep, sites; ep, sites",
        "multinomial, full" | "survival, full" | "robust, learned" | "robust, learned, full" => "natural",
        "Weibull" => "natural; virtual",
        "ordinal" => "natural; virtual",
        "Poisson" | "negative binomial" | "robust" | "multinomial" | "ordinal, full" | "survival" | "Weibull, full" | "network"
        | "network of numbers" | "network of classes" => "",
        "topics" => "vips, learned clip",
        "mixture" => "sep, sampled; dp-em",
        "mixture, full" => "",
        "moments" => "sep",
        "images" => "vips, images",
        other => panic!("{other} is in no row: say which updates it is tried with"),
    })
}

fn updates(names: &str) -> Vec<&'static Update> {
    let find = |name: &str| UPDATES.iter().find(|update| update.name == name).unwrap_or_else(|| panic!("no update is called {name}"));
    names.split("; ").filter(|name| !name.is_empty()).map(find).collect()
}

/// What no row has: names that a task file takes and no entry of [`MODELS`] or [`UPDATES`] uses, and pairs of them that a task may name under
/// local trust and [`tried`] does not have.
#[must_use]
pub fn missing() -> BTreeSet<String> {
    let known: Vec<&str> = MODELS.iter().map(Model::family).chain(UPDATES.iter().map(Update::kind)).collect();
    let names = models::registered().chain(methods::registered()).map(|(name, _)| name);
    let mut missing: BTreeSet<String> = names.filter(|name| !known.contains(name)).map(str::to_owned).collect();
    let pair = |model: &Model, update: &Update| format!("{} with {}", update.kind(), model.family());
    let has: BTreeSet<String> =
        MODELS.iter().flat_map(|model| tried(model.name).into_iter().map(move |update| pair(model, update))).collect();
    for model in MODELS {
        let untried = UPDATES.iter().filter(|update| !has.contains(&pair(model, update)));
        missing.extend(untried.filter(|update| resolve(model, update, Trust::Local).is_ok()).map(|update| pair(model, update)));
    }
    missing
}

/// Updates that may be aggregated, with some model, and that [`tried_aggregated`] does not have.
#[must_use]
pub fn missing_aggregated() -> BTreeSet<String> {
    let has: BTreeSet<&str> = MODELS.iter().flat_map(|model| tried_aggregated(model.name)).map(Update::kind).collect();
    let may = |update: &&Update| MODELS.iter().any(|model| resolve(model, update, Trust::Aggregated(3)).is_ok());
    UPDATES.iter().filter(|update| !has.contains(update.kind())).filter(may).map(|update| update.kind().to_owned()).collect()
}

impl Model {
    /// Its name in a task file.
    #[must_use]
    pub fn family(&self) -> &'static str {
        value(self.options, "family")
    }
}

impl Update {
    /// Its name in a task file.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        value(self.options, "update")
    }
}

/// The text that a key has.
fn value<'a>(options: &'a str, key: &str) -> &'a str {
    let line = options.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
    line.unwrap_or_else(|| panic!("no {key} in {options}"))
}

/// `task.toml`.
#[must_use]
pub fn task(model: &Model, update: &Update, trust: Trust) -> String {
    let (unit, epsilon) = match update.protection {
        Protection::Records => ("record", "epsilon = 2.0\n"),
        Protection::Sites => ("site", "epsilon = 2.0\n"),
        Protection::None => ("record", ""),
    };
    let (trust, aggregation) = match trust {
        Trust::Local => ("local", format!("max_units = {UNITS}\n")),
        Trust::Aggregated(sites) => {
            ("aggregated", format!("[aggregation]\nsites = {sites}\ncolluders = 1\nmax_units = {UNITS}\nmax_rounding_loss = 1.0\n"))
        }
    };
    format!(
        "name = \"{} with {}\"\neven_if_worthless = true\n[model]\n{}\n[schema]\nfile = \"schema.toml\"\n[pvi]\n{}\n[privacy]\nunit = \"{unit}\"\n\
         adjacency = \"replace-one\"\n{epsilon}delta = 1e-5\ntrust = \"{trust}\"\n{aggregation}",
        update.name, model.name, model.options, update.options
    )
}

/// Whether, and as what, the pair is a task.
///
/// # Errors
/// It is none.
pub fn resolve(model: &Model, update: &Update, trust: Trust) -> Result<ResolvedTask, TaskError> {
    let context = ResolveContext { name: "methods", update_deadline_seconds: 60, min_sites: 2, expected_sites: 2 };
    RawTask::parse(&task(model, update, trust))?.resolve(&model.data.schema(), context)
}

/// Sites `site-1` … with records for the model, and ledgers for the update.
#[must_use]
pub fn sites(model: &Model, update: &Update, number: usize) -> Vec<Party> {
    let unit = if update.protection == Protection::Sites { PrivacyUnit::Site } else { PrivacyUnit::Record };
    let site = |m: usize| Party::site_of(&format!("site-{}", m + 1), model.data.file(UNITS, m * UNITS), UNITS as u64);
    (0..number).map(|m| site(m).protecting(unit)).collect()
}

impl Data {
    /// `schema.toml`.
    #[must_use]
    pub fn schema(self) -> String {
        let label = match self {
            Self::Times => "kind = \"survival\"\ntime = { column = \"t\", lower = 0.5, upper = 10 }\nevent = { column = \"y\" }\n",
            Self::Documents => {
                return "kind = \"bag-of-words\"\n[bag_of_words]\nformat = \"docword\"\nwords = 8\ndocument_length = 20\n".into();
            }
            Self::Images => return "kind = \"binary-image\"\n[binary_image]\nwidth = 3\nheight = 4\nthreshold = 63\n".into(),
            Self::Classes => "kind = \"binary\"\npositive = [\"1\"]\nnegative = [\"0\"]\n",
            Self::Wards => "kind = \"classes\"\nvalues = [\"home\", \"ward\", \"intensive, care\"]\n",
            Self::Counts => "kind = \"number\"\nlower = 0\nupper = 10\ncentre = 0\nscale = 1\n",
        };
        let column = |j| format!("[[columns]]\nname = \"x{j}\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n");
        let name = if self == Self::Times { "" } else { "column = \"y\"\n" };
        format!("intercept = false\n[label]\n{name}{label}{}{}", column(0), column(1))
    }

    /// A data file of so many units; `offset` tells files apart.
    #[must_use]
    pub fn file(self, units: usize, offset: usize) -> String {
        let mut records = Records::generated(units, 2, offset);
        match self {
            Self::Classes => records.csv(Likelihood::Logistic),
            Self::Wards => {
                let mut text = "x0,x1,y\n".to_owned();
                for x in &records.x {
                    let ward = if x[0] < -0.33 {
                        "home"
                    } else if x[0] + x[1] < 0.5 {
                        "ward"
                    } else {
                        "\"intensive, care\""
                    };
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{:?},{:?},{ward}", x[0], x[1]);
                }
                text
            }
            Self::Times => {
                let mut text = "x0,x1,t,y\n".to_owned();
                for (x, y) in records.x.iter().zip(&records.y) {
                    // Writing to a string cannot fail.
                    let _ = writeln!(text, "{:?},{:?},{:?},{}", x[0], x[1], 2.5 * (x[0] + 1.3), u8::from(*y > 0.5));
                }
                text
            }
            Self::Counts => {
                for (x, y) in records.x.iter().zip(&mut records.y) {
                    *y += (2.0 * (x[0] + 1.0)).floor();
                }
                records.csv(Likelihood::Linear { noise_sd: 1.0 })
            }
            Self::Documents => documents(&records),
            Self::Images => images(&records),
        }
    }
}

/// UCI's docword format: a class is a topic of four words of the eight.
fn documents(records: &Records) -> String {
    let mut lines = String::new();
    let mut entries = 0;
    for (document, (x, y)) in records.x.iter().zip(&records.y).enumerate() {
        let topic = if *y > 0.5 { 5 } else { 1 };
        for (word, x) in x.iter().enumerate() {
            let count = 1 + u8::from(*x > 0.0);
            // Writing to a string cannot fail.
            let _ = writeln!(lines, "{} {} {count}\n{} {} 2", document + 1, topic + 2 * word, document + 1, topic + 2 * word + 1);
            entries += 2;
        }
    }
    format!("{}\n8\n{entries}\n{lines}", records.x.len())
}

/// IDX: every byte is below 128, so that the file is text as well; a class is the half of the twelve pixels that is on.
fn images(records: &Records) -> String {
    let count = u8::try_from(records.x.len()).ok().filter(|count| *count < 128).expect("few images");
    let mut bytes = vec![0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, 4, 0, 0, 0, 3];
    for (x, y) in records.x.iter().zip(&records.y) {
        bytes.extend((0..12_u8).map(|pixel| {
            let class = (pixel < 6) == (*y > 0.5);
            let flipped = (x[0] > 0.0 && pixel % 6 == 0) || (x[1] > 0.0 && pixel % 6 == 1);
            if class == flipped { 0 } else { 127 }
        }));
    }
    String::from_utf8(bytes).expect("all bytes are below 128")
}
