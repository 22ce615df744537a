#![allow(clippy::unwrap_used)]

use super::{Candidate, choice, resolve};
use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};

const SCHEMA: &str = "version = 2\nnorm_bound = 2.5\n[[columns]]\nname = \"died\"\nkind = \"boolean\"\ntrue_values = [\"yes\"]\nfalse_values = [\"no\"]\n\
                      [[columns]]\nname = \"age\"\nkind = \"number\"\nlower = 18\nupper = 100\ncentre = 60\nscale = 20\n\
                      [[columns]]\nname = \"male\"\nkind = \"boolean\"\n\
                      [[columns]]\nname = \"ward\"\nkind = \"category\"\nvalues = [\"a\", \"b\", \"c\"]\n";

const CONTEXT: ResolveContext<'_> = ResolveContext { name: "rounds", update_deadline_seconds: 60, min_sites: 2, expected_sites: 3 };

fn raw(pvi: &str, epsilon: f64) -> RawTask {
    let text = format!(
        "[model]\nfamily = \"logistic-regression\"\noutcome = \"died\"\napproximation = \"full-covariance\"\n[schema]\nfile = \"schema.toml\"\n\
         [pvi]\nschedule = \"synchronous\"\nupdate = \"natural-gradient\"\n{pvi}\n\
         [privacy]\nunit = \"record\"\nadjacency = \"replace-one\"\nepsilon = {epsilon}\ndelta = 1e-5\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    RawTask::parse(&text).unwrap()
}

fn auto(units: u64, epsilon: f64) -> (ResolvedTask, Vec<Candidate>) {
    let resolved = resolve(&raw(&format!("rounds = \"auto\"\nexpected_units = {units}"), epsilon), SCHEMA, CONTEXT).unwrap();
    (resolved.task, resolved.tried)
}

/// The chosen number is an ordinary one: task and hash are those of a task in which a person wrote it.
#[test]
fn the_choice_is_a_number_of_the_task() {
    let (task, tried) = auto(5000, 1.0);
    let written = raw(&format!("rounds = {}", task.visits()), 1.0).resolve(SCHEMA, CONTEXT).unwrap();
    assert_eq!(task.hash(), written.hash());
    let taken = tried.iter().find(|candidate| candidate.rounds == task.visits()).unwrap();
    assert!(taken.distance <= 0.5 && tried.len() == 8, "{tried:?}");
    assert_eq!(auto(5000, 1.0), (task, tried), "the same bits every time");
}

/// Four rounds from the prior do not converge where there is much to learn.
#[test]
fn a_run_with_many_records_is_given_the_rounds_that_it_needs() {
    let (task, tried) = auto(20_000, 4.0);
    assert!(tried[0].width > 3.0 * tried[7].width && tried[0].distance > 0.5, "{tried:?}");
    assert!((10..=20).contains(&task.visits()), "{tried:?}");
}

#[test]
fn of_equally_good_numbers_the_smallest_is_taken() {
    let candidates = |list: &[(u32, f64, f64)]| -> Vec<Candidate> {
        list.iter().map(|&(rounds, width, distance)| Candidate { rounds, width, distance }).collect()
    };
    let converged = candidates(&[(4, 0.9, 2.0), (6, 1.1, 0.4), (8, 1.02, 0.4), (10, 1.0, 0.1)]);
    assert_eq!(choice(&converged, 100.0), Some(2), "four rounds are narrow and have not converged");
    assert_eq!(choice(&candidates(&[(4, 1.2, 0.9), (6, 1.0, 0.7), (8, 1.0, 0.8)]), 100.0), Some(1), "none converges");
    let noisy = candidates(&[(4, 1.02, 0.1), (6, 1.005, 0.1), (8, 1.0, 0.1)]);
    assert_eq!(choice(&noisy, 1.25), Some(1), "of ln 1.25 two hundredths are much");
    assert_eq!(choice(&candidates(&[(4, 2.0, 0.1), (6, 2.0, 0.1)]), 1.9), Some(0), "wider than the prior");
    assert_eq!(choice(&[], 1.0), None);
}

#[test]
fn what_cannot_be_chosen_says_what_to_write() {
    let error = |pvi: &str| resolve(&raw(pvi, 1.0), SCHEMA, CONTEXT).unwrap_err().to_string();
    let mut unknown = raw("rounds = \"auto\"", 1.0);
    unknown.privacy.max_units = None;
    assert!(resolve(&unknown, SCHEMA, CONTEXT).unwrap_err().to_string().contains("expected_units"));
    assert!(error("rounds = \"auto\"\nexpected_units = 100\npreconditioner = \"diagonal\"").contains("write a number"));
    assert!(error("rounds = \"auto\"\nexpected_units = 100\nstep = 7").contains("step"));
    assert!(RawTask::parse("[pvi]\nschedule = \"synchronous\"\nrounds = \"many\"").is_err());
    // Anyone who does not forecast cannot read it.
    assert!(
        raw("rounds = \"auto\"\nexpected_units = 100", 1.0).resolve(SCHEMA, CONTEXT).unwrap_err().to_string().contains("write one here")
    );
}
