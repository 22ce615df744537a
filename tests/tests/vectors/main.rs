//! Golden vectors: numbers that independent programs computed, against the engine.
//!
//! `cargo test -p dp-pvi-tests --test vectors` reads the file that `DP_PVI_VECTORS` names, by default `inference.json` of
//! `tests/vectors` and then `regression.json` and `defaults.json`, and tells them apart by their keys. Of `inference.json` it prints one line for every
//! second-level key (for every first-level key that holds one result only):
//! `logreg.mean_field_optimum ok`, `… skipped` where the engine has no such room yet, `FAIL …` otherwise, with a failing exit.
//! Of `regression.json`: see `regression/mod.rs`; of `defaults.json`: see `defaults/mod.rs`. All sizes are read from the file. Inputs (data, priors, constants) have no line of their own; the checks that use them do.
#![allow(clippy::print_stdout, reason = "a test program that reports lines")]

mod arithmetic;
mod bcm;
mod client_level;
mod defaults;
mod ep;
mod expfam;
mod federation;
mod lda;
mod linreg;
mod logreg;
mod mog;
mod pbp;
mod pg_vb;
mod read;
mod regression;
mod sbn;
mod task;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use dp_pvi_tests::place::vectors;
use read::{Node, Outcome};

/// A check of one second-level key: the first-level object, and the key's own value.
type Check = fn(&Node<'_>, &Node<'_>) -> Outcome;

/// What the engine has. Everything else in the file is skipped.
const CHECKS: &[(&str, Check)] = &[
    ("expfam.mean_field_gaussian", expfam::diagonal),
    ("expfam.full_gaussian", expfam::full),
    ("expfam.gamma", expfam::gamma),
    ("expfam.dirichlet", expfam::dirichlet),
    ("quadrature_table", arithmetic::quadrature_table),
    ("dp_arith.gdp", arithmetic::gdp),
    ("dp_arith.clip", arithmetic::clipped),
    ("dp_arith.block_clip", arithmetic::block_clipped),
    ("dp_arith.quantile_update", arithmetic::quantile_update),
    ("dp_arith.quantile_noise_split", arithmetic::quantile_noise_split),
    ("dp_arith.simplex_projection", arithmetic::simplex_projection),
    ("dp_arith.noise_aware", arithmetic::noise_aware_combination),
    ("linreg.full", linreg::full),
    ("linreg.mean_field", linreg::mean_field),
    ("linreg.wrong_diag_update", linreg::wrong_diag_update),
    ("logreg.mean_field_optimum", logreg::mean_field_optimum),
    ("logreg.full_cov_optimum", logreg::full_cov_optimum),
    ("logreg.at_point", logreg::at_point),
    ("logreg.natural_gradient_rho1_from_prior", logreg::natural_gradient),
    ("logreg.pgvi_rho1p8_from_prior", logreg::bounded_natural_gradient),
    ("logreg.one_round_from_prior_4_shards", logreg::one_round_of_shards),
    ("bcm.linreg_full", bcm::linreg_full),
    ("bcm.logreg_mean_field", bcm::logreg_mean_field),
    ("client_level_tied.noclip", client_level::tied_without_clipping),
    ("client_level_tied.clipped", client_level::tied),
    ("client_level_private_clean.clipped", client_level::private_clean),
    ("pg_vb", pg_vb::whole),
    ("lda.docs", lda::documents),
    ("lda.sufficient_stats", lda::statistics),
    ("lda.total_bound", lda::total_bound),
    ("lda.perplexity_bound", lda::perplexity_bound),
    ("sbn.trace", sbn::trace),
    ("sbn.Ehh", sbn::pairs),
    ("ep.probit_full", ep::probit_full),
    ("ep.probit_mean_field", ep::probit_mean_field),
    ("ep.probit_mean_field_SEP_batch_fixed_point", ep::probit_sep),
    ("ep.logit_full", ep::logit_full),
    ("ep.tilted_examples", ep::tilted_examples),
    ("mog.one_step_from_prior_x0", mog::one_step),
    ("mog.ep_fixed_point", mog::ep_fixed_point),
    ("mog.sep_fixed_point", mog::sep_fixed_point),
    ("pbp.forward", pbp::forward),
    ("pbp.logZ", pbp::log_z),
    ("pbp.dlogZ_dmean", pbp::by_mean),
    ("pbp.dlogZ_dvar", pbp::by_variance),
    ("pbp.new", pbp::new),
    ("pbp.prior_refinement_one_weight", pbp::prior_refinement),
];

/// Second-level keys that are inputs of other keys.
const INPUTS: &[(&str, &[&str])] = &[
    ("linreg", &["X", "y", "noise_var", "prior_mean", "prior_prec", "client_sizes"]),
    ("client_level_tied", &["rho", "clip_C"]),
    ("client_level_private_clean", &["rho", "clip_C"]),
    ("logreg", &["X", "y", "client_sizes"]),
    ("pbp", &["x", "y", "W1_mean", "W1_var", "W2_mean", "W2_var", "noise_shape", "noise_rate"]),
    ("lda", &["lambda", "alpha", "eta", "counts"]),
    ("mog", &["x", "s2", "prior_mean"]),
    ("sbn", &["W_mean", "W_var", "c", "b", "v"]),
];

/// First-level keys that hold one result in several columns.
const WHOLE: &[&str] = &["quadrature_table", "pg_vb"];

/// About the file itself.
const HEADER: &[&str] = &["version", "tolerance"];

fn main() -> ExitCode {
    let failures = match std::env::var_os("DP_PVI_VECTORS") {
        Some(path) => file(&PathBuf::from(path)),
        None => file(&vectors("inference.json")).and_then(|failures| Ok(failures + beside("regression.json")? + beside("defaults.json")?)),
    };
    match failures {
        Ok(0) => ExitCode::SUCCESS,
        Ok(failures) => {
            println!("vectors: {failures} failed");
            ExitCode::FAILURE
        }
        Err(message) => {
            println!("FAIL vectors: {message}");
            ExitCode::FAILURE
        }
    }
}

/// A file that a machine need not have.
fn beside(name: &str) -> Result<usize, String> {
    let path = vectors(name);
    if path.exists() {
        return file(&path);
    }
    println!("{name} skipped: {} is missing", path.display());
    Ok(0)
}

/// Checks the keys of a file and returns the number of failures.
fn file(path: &Path) -> Result<usize, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let file: serde_json::Value = serde_json::from_str(&text).map_err(|e| format!("{}: not JSON: {e}", path.display()))?;
    let root = Node::root(&file);
    match (regression::is_this(&root)?, defaults::is_this(&root)?) {
        (true, _) => regression::run(&root),
        (_, true) => defaults::run(&root),
        _ => run(&root),
    }
}

/// Prints a line for every key and returns the number of failures.
fn run(root: &Node<'_>) -> Result<usize, String> {
    if root.get("version")?.number()? > 1.5 {
        return Err("the file's version is above 1: take a newer checker".into());
    }
    let mut failures = 0;
    for first in root.fields()? {
        let key = first.name();
        if HEADER.contains(&key) {
            continue;
        }
        let seconds = if WHOLE.contains(&key) { Vec::new() } else { first.fields().unwrap_or_default() };
        if seconds.is_empty() {
            failures += report(key, &first, &first);
        }
        let inputs = INPUTS.iter().find(|(name, _)| *name == key).map_or(&[][..], |(_, inputs)| *inputs);
        for second in seconds {
            if !inputs.contains(&second.name()) && !second.name().ends_with("doc") {
                failures += report(&format!("{key}.{}", second.name()), &first, &second);
            }
        }
    }
    Ok(failures)
}

fn report(name: &str, parent: &Node<'_>, node: &Node<'_>) -> usize {
    let Some((_, check)) = CHECKS.iter().find(|(key, _)| *key == name) else {
        println!("{name} skipped");
        return 0;
    };
    match check(parent, node) {
        Ok(()) => {
            println!("{name} ok");
            0
        }
        Err(message) => {
            println!("FAIL {name}: {message}");
            1
        }
    }
}
