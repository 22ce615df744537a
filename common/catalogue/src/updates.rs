//! Every update.

use dp_pvi_accounting::PrivacyUnit;

use crate::{Model, Named};

/// An update with its options.
#[derive(Debug, Clone, Copy)]
pub struct Update {
    /// Its name in a task, and what is special after a comma.
    pub name: &'static str,
    /// Its options; `N` in them is a number of units that are expected.
    text: &'static str,
    /// What is protected.
    pub unit: PrivacyUnit,
    /// Whether the task has no ε: nothing is protected.
    pub open: bool,
    /// Which models the audit plays with it.
    pub audit: Audit,
    /// Which models run with it end to end.
    pub run: Run,
}

/// Which models the audit plays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Audit {
    /// All that it serves.
    Every,
    /// These.
    With(&'static [&'static str]),
    /// None: another entry is of its kind.
    No,
}

/// Which models run end to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Models that it serves.
    pub every: Every,
    /// These, too.
    pub with: &'static [&'static str],
    /// These under aggregated trust.
    pub aggregated: &'static [&'static str],
}

/// Which of the models that an update serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Every {
    /// All.
    Model,
    /// The first of each family.
    Family,
    /// None.
    Named,
}

impl Run {
    /// Whether a model runs with an update under local trust.
    #[must_use]
    pub fn has(&self, model: &Model, update: &Update) -> bool {
        let first = || crate::MODELS.iter().find(|other| other.kind() == model.kind() && other.is_served_by(update.name));
        self.with.contains(&model.name)
            || match self.every {
                Every::Model => model.is_served_by(update.name),
                Every::Family => first().is_some_and(|first| first.name == model.name),
                Every::Named => false,
            }
    }
}

const fn update(name: &'static str, text: &'static str, run: Run) -> Update {
    Update { name, text, unit: PrivacyUnit::Record, open: false, audit: Audit::Every, run }
}

/// An option that the audit need not play.
const fn option(name: &'static str, text: &'static str, run: Run) -> Update {
    Update { audit: Audit::No, ..update(name, text, run) }
}

/// Nothing is protected.
const fn open(name: &'static str, text: &'static str, run: Run) -> Update {
    Update { open: true, ..option(name, text, run) }
}

/// Whole sites are protected.
const fn of_sites(name: &'static str, text: &'static str, run: Run) -> Update {
    Update { unit: PrivacyUnit::Site, ..update(name, text, run) }
}

/// Persons are protected, of several records each.
const fn of_persons(name: &'static str, text: &'static str, audited: &'static [&'static str]) -> Update {
    Update { unit: PrivacyUnit::Person, audit: Audit::With(audited), ..update(name, text, NONE) }
}

const NONE: Run = with(&[]);

/// With these models, under local trust.
const fn with(with: &'static [&'static str]) -> Run {
    Run { every: Every::Named, with, aggregated: &[] }
}

/// With every family, and with these under aggregated trust.
const fn families(with: &'static [&'static str], aggregated: &'static [&'static str]) -> Run {
    Run { every: Every::Family, with, aggregated }
}

/// With every model, and with these under aggregated trust.
const fn models(aggregated: &'static [&'static str]) -> Run {
    Run { every: Every::Model, with: &[], aggregated }
}

const LOGISTIC: &[&str] = &["logistic-regression"];

/// Every update, with the options that make a difference.
pub const UPDATES: &[Update] = &[
    Update { open: true, ..update("pvi", "schedule = \"sequential\"\nsweeps = 2", models(&[])) },
    open(
        "pvi, synchronous",
        "schedule = \"synchronous\"\nrounds = 2",
        with(&["robust-regression, learned", "robust-regression, learned, full", "logistic-regression"]),
    ),
    open("pvi, asynchronous", "schedule = \"asynchronous\"\nsweeps = 3\nmax_staleness = 1", NONE),
    update("dp-optimisation", "schedule = \"sequential\"\nsweeps = 2\nsteps = 3\nclip_norm = 1.0", families(&[], &[])),
    update(
        "dp-optimisation, Adam, sampled",
        "schedule = \"synchronous\"\nrounds = 2\nsteps = 3\nclip_norm = 1.0\nsampling_rate = 0.5\noptimizer = \"adam\"",
        with(&["logistic-regression", "neural-network, classes", "neural-network, numbers"]),
    ),
    update("dp-optimisation, batches", "schedule = \"sequential\"\nsweeps = 2\nsteps = 4\nclip_norm = 1.0\nbatches = 2", NONE),
    update(
        "dp-optimisation, positive",
        "schedule = \"asynchronous\"\nsweeps = 2\nmax_staleness = 1\nsteps = 3\nclip_norm = 1.0\noptimizer = \"positivity-preserving\"",
        with(&["logistic-regression", "neural-network"]),
    ),
    update(
        "dp-optimisation, adaptive clip",
        "schedule = \"sequential\"\nsweeps = 2\nsteps = 3\nclip_norm = 1.0\nsampling_rate = 0.5\nadaptive_clip = { units = N }",
        with(&["neural-network"]),
    ),
    update(
        "dp-optimisation, weighted",
        "schedule = \"sequential\"\nsweeps = 2\nsteps = 3\nclip_norm = 1.0\nlevel_exponent = 0.5\nweighted = true",
        NONE,
    ),
    update(
        "natural-gradient",
        "schedule = \"synchronous\"\nrounds = 3\nresidual_bound = 2.0\ncurvature_bound = 1.0",
        models(&[
            "linear-regression",
            "logistic-regression",
            "robust-regression, learned",
            "robust-regression, learned, full",
            "multinomial-regression, full",
            "ordinal-regression",
            "survival-regression, full",
            "weibull-regression",
        ]),
    ),
    option(
        "natural-gradient, diagonal",
        "schedule = \"synchronous\"\nrounds = 2\nresidual_bound = 2.0\ncurvature_bound = 1.0\npreconditioner = \"diagonal\"",
        with(&["logistic-regression", "robust-regression, learned"]),
    ),
    update("bcm", "schedule = \"synchronous\"\nrounds = 1\ncommittee_prior = \"split\"\nsteps = 3\nclip_norm = 1.0", families(&[], &[])),
    option("bcm, same", "schedule = \"synchronous\"\nrounds = 1\ncommittee_prior = \"same\"\nsteps = 3\nclip_norm = 1.0", with(LOGISTIC)),
    update("global-vi", "schedule = \"synchronous\"\nrounds = 3\nclip_norm = 1.0", families(&[], &[])),
    update(
        "global-vi, sampled",
        "schedule = \"synchronous\"\nrounds = 2\nclip_norm = 1.0\nsampling_rate = 0.5",
        Run { aggregated: LOGISTIC, ..with(LOGISTIC) },
    ),
    update("parameter-perturbation", "schedule = \"synchronous\"\nrounds = 3\nclip_norm = 1.0", families(&[], LOGISTIC)),
    option(
        "parameter-perturbation, clean",
        "schedule = \"sequential\"\nsweeps = 2\nclip_metric = \"flat\"\nclip_norm = 1.0\nstate = \"private-clean\"",
        with(LOGISTIC),
    ),
    update(
        "local-averaging",
        "schedule = \"synchronous\"\nrounds = 6\nshards = 8\nclip_norm = 1.0\ndamping = 1.0",
        families(&[], &["linear-regression"]),
    ),
    update("local-averaging, tied", "schedule = \"synchronous\"\nrounds = 3\nshards = 3\nclip_norm = 1.0\nstate = \"tied\"", NONE),
    option(
        "local-averaging, tied, whitened",
        "schedule = \"synchronous\"\nrounds = 2\nshards = 3\nclip_metric = \"whitened\"\nclip_norm = 1.0\nstate = \"tied\"",
        Run { aggregated: LOGISTIC, ..with(LOGISTIC) },
    ),
    update(
        "virtual-clients",
        "schedule = \"synchronous\"\nrounds = 4\nshards = 8\nclip_norm = 1.0\ndamping = 1.0",
        families(&["linear-regression, full"], &["logistic-regression", "ordinal-regression", "weibull-regression"]),
    ),
    update("virtual-clients, tied", "schedule = \"synchronous\"\nrounds = 3\nshards = 3\nclip_norm = 1.0\nstate = \"tied\"", NONE),
    option(
        "virtual-clients, tied, blocks",
        "schedule = \"synchronous\"\nrounds = 2\nshards = 60\nclip_metric = \"block\"\nclip_norm = 1.0\nstate = \"tied\"",
        Run { aggregated: LOGISTIC, ..with(LOGISTIC) },
    ),
    update("virtual-clients, released", "schedule = \"synchronous\"\nrounds = 3\nshards = 3\nclip_norm = 1.0\nstate = \"released\"", NONE),
    of_sites("client-level", "schedule = \"synchronous\"\nrounds = 3\nclip_norm = 1.0", families(&[], LOGISTIC)),
    Update {
        unit: PrivacyUnit::Site,
        ..option("client-level, tied", "schedule = \"synchronous\"\nrounds = 2\nclip_norm = 1.0\nstate = \"tied\"", with(LOGISTIC))
    },
    update("vips", "schedule = \"synchronous\"\nrounds = 3", families(&[], &["logistic-regression, full"])),
    option(
        "vips, relevance",
        "schedule = \"synchronous\"\nrounds = 2\nrelevance_shape = 1.0\nrelevance_rate = 1.0\nintervals = \"naive\"",
        families(&[], &[]),
    ),
    update("vips, unknown noise", "schedule = \"synchronous\"\nrounds = 1\nrecords = N", families(&[], &["linear-regression, full"])),
    update("vips, learned clip", "schedule = \"synchronous\"\nrounds = 3\ndocuments = N", NONE),
    option(
        "vips, learned clip, sampled",
        "schedule = \"synchronous\"\nrounds = 2\ndocuments = N\nsampling_rate = 0.5",
        families(&[], &["latent-dirichlet"]),
    ),
    update("vips, images", "schedule = \"synchronous\"\nrounds = 2\nimages = N\nclip_norm = 0.1", NONE),
    update(
        "vips, images, sampled",
        "schedule = \"synchronous\"\nrounds = 2\ndamping = { start = 1.0, end = 0.5 }\nimages = N\nsampling_rate = 0.5",
        families(&[], &["sigmoid-belief"]),
    ),
    option("vips, images, learned clip", "schedule = \"synchronous\"\nrounds = 2\nimages = N", families(&[], &[])),
    update(
        "sep",
        "schedule = \"synchronous\"\nrounds = 3\nrecords = N",
        families(&["logistic-regression, full", "gaussian-mixture, full"], &["logistic-regression", "pbp-network"]),
    ),
    option(
        "sep, sampled",
        "schedule = \"synchronous\"\nrounds = 2\nrecords = N\nsampling_rate = 0.5\nclip_target = \"factor\"",
        Run { aggregated: &["gaussian-mixture"], ..with(LOGISTIC) },
    ),
    open("sep, open", "schedule = \"synchronous\"\nrounds = 2\nrecords = N", families(&[], &[])),
    open("sep, pass", "schedule = \"sequential\"\nsweeps = 2\nrecords = N\norder = \"pass\"", with(LOGISTIC)),
    open(
        "sep, filter",
        "schedule = \"sequential\"\nsweeps = 1\nrecords = N\norder = \"filter\"",
        with(&["logistic-regression", "probit-regression", "pbp-network"]),
    ),
    of_sites(
        "sep, sites",
        "schedule = \"synchronous\"\nrounds = 3\nsite_passes = 4",
        Run { aggregated: &["probit-regression"], ..with(&["probit-regression", "gaussian-mixture, full"]) },
    ),
    update("ep", "schedule = \"synchronous\"\nrounds = 3\nrecords = N\ndamping = 1.0", families(&["gaussian-mixture, full"], LOGISTIC)),
    open("ep, open", "schedule = \"synchronous\"\nrounds = 2\nrecords = N", with(&["logistic-regression", "logistic-regression, full"])),
    of_sites(
        "ep, sites",
        "schedule = \"synchronous\"\nrounds = 3\nsite_passes = 4\ndamping = 1.0",
        Run { aggregated: &["probit-regression"], ..with(&["probit-regression", "pbp-network"]) },
    ),
    update("dp-em", "schedule = \"synchronous\"\nrounds = 3", families(&[], &["gaussian-mixture"])),
    open("dp-em, open", "schedule = \"synchronous\"\nrounds = 2", families(&[], &[])),
    of_persons(
        "natural-gradient, persons",
        "schedule = \"synchronous\"\nrounds = 3\nresidual_bound = 2.0\ncurvature_bound = 1.0",
        &["linear-regression", "logistic-regression, full", "multinomial-regression, full", "survival-regression, full"],
    ),
    of_persons(
        "dp-optimisation, persons",
        "schedule = \"synchronous\"\nrounds = 2\nsteps = 3\nclip_norm = 1.0\nsampling_rate = 0.5",
        &["logistic-regression", "neural-network"],
    ),
    of_persons(
        "virtual-clients, persons",
        "schedule = \"synchronous\"\nrounds = 4\nshards = 8\nclip_norm = 1.0\ndamping = 1.0",
        &["linear-regression", "logistic-regression"],
    ),
    of_persons(
        "ep, persons",
        "schedule = \"synchronous\"\nrounds = 3\nrecords = N\ndamping = 1.0",
        &["probit-regression", "gaussian-mixture"],
    ),
];

impl Named for Update {
    fn name(&self) -> &'static str {
        self.name
    }
}

impl Update {
    /// `[pvi]`, where so many units are expected.
    #[must_use]
    pub fn options(&self, units: u32) -> String {
        format!("update = \"{}\"\n{}", self.kind(), self.text.replace('N', &units.to_string()))
    }
}
