#![allow(clippy::unwrap_used)]

use dp_pvi_math::expfam::gaussian::full::svec;
use nalgebra::{DMatrix, DVector};

use crate::methods::agreement::{NotTested, SiteReleases};
use crate::methods::divided::Undividable;
use crate::methods::noise_aware::{ClosedRound, History};
use crate::methods::{UpdateSpec, VisitSum};
use crate::task::{RawTask, ResolveContext, ResolvedTask};

const SCHEMA: &str = "[[columns]]\nname = \"y\"\nkind = \"number\"\nlower = -10\nupper = 10\ncentre = 0\nscale = 1\n\
    [[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";

fn task(approximation: &str, preconditioner: &str) -> ResolvedTask {
    let text = format!(
        "model.family = \"linear-regression\"\nmodel.outcome = \"y\"\nmodel.noise_sd = 1.0\nmodel.approximation = \"{approximation}\"\nschema.file = \"s\"\n\
         [pvi]\nschedule = \"synchronous\"\nrounds = 4\nupdate = \"natural-gradient\"\nresidual_bound = 5.0\ncurvature_bound = 1.0\n{preconditioner}\n\
         [privacy]\nunit = \"record\"\nadjacency = \"add-remove\"\ndelta = 1e-5\nepsilon = 10.0\ntrust = \"local\"\nmax_units = 1000000\n"
    );
    let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
    RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
}

/// H and its maximum of a site's quadratic likelihood: so many records that the noise, which is only accounted for, is next to nothing.
fn likelihood(site: usize) -> (DMatrix<f64>, DVector<f64>) {
    let (size, tilt) = [(4e6, 0.2), (9e6, -0.4), (2e6, 0.1)][site];
    (
        DMatrix::from_row_slice(2, 2, &[0.3, tilt * 0.3, tilt * 0.3, 1.0]) * size,
        DVector::from_vec([[1.0, -0.5], [1.2, -0.4], [-3.0, 2.0]][site].to_vec()),
    )
}

/// A run without a draw of noise; `sites` of a visit take part in it.
fn run(task: &ResolvedTask, sites: impl Fn(u32) -> Vec<usize>) -> (History, Vec<Vec<Vec<f64>>>) {
    let UpdateSpec::NaturalGradient(spec) = &task.update else { panic!("another update") };
    let (rule, mut vectors) = (task.rule(), Vec::new());
    let mut state = rule.initial();
    let mut history = History { shares: vec![1.0 / 3.0; 3], rounds: Vec::new() };
    for visit in 0..task.visits() {
        let included = sites(visit);
        let mean = DVector::from_column_slice(&state[task.family().len()..][..2]);
        let sent = included.iter().map(|&site| {
            let (curvature, best) = likelihood(site);
            let entries = if task.family().len() == 4 { curvature.diagonal().as_slice().to_vec() } else { svec(&curvature) };
            match visit {
                0 => svec(&curvature),
                _ => [(&curvature * (best - &mean)).as_slice().to_vec(), entries.iter().map(|e| e * spec.curvature_weight).collect()]
                    .concat(),
            }
        });
        let sent: Vec<Vec<f64>> = sent.collect();
        let sum: Vec<f64> = (0..sent[0].len()).map(|j| sent.iter().map(|vector| vector[j]).sum()).collect();
        let step = rule.apply(&state, &VisitSum { visit, sites: u32::try_from(included.len()).unwrap(), sum: &sum });
        state = step.state;
        history.rounds.push(ClosedRound { visit, included, state: state.clone(), correction: None });
        vectors.push(sent);
    }
    (history, vectors)
}

/// What is left of a quadratic likelihood is the posterior of the others, exactly but for the noise that is accounted for. One site is far from the others.
#[test]
fn without_a_site_a_quadratic_run_is_the_posterior_of_the_others() {
    let task = task("full-covariance", "");
    let (history, vectors) = run(&task, |_| vec![0, 1, 2]);
    let releases = SiteReleases { history: &history, vectors: &vectors };
    for site in 0..3 {
        let divided = task.update.rules().without(&task.setting(), &releases, site).unwrap();
        let (mut h, mut precision) = (DVector::zeros(2), DMatrix::identity(2, 2) * task.prior.scale.powi(-2));
        for (curvature, best) in (0..3).filter(|other| *other != site).map(likelihood) {
            h += &curvature * best;
            precision += curvature;
        }
        let expected = [h.as_slice(), &svec(&precision)].concat();
        divided.natural_parameters.iter().zip(&expected).for_each(|(a, b)| assert!((a / b - 1.0).abs() < 1e-4, "{site}: {a} {b}"));
    }
}

#[test]
fn a_site_that_is_far_away_is_found_and_the_reasons_are_named() {
    for approximation in ["full-covariance", "mean-field"] {
        let task = task(approximation, "");
        let (history, vectors) = run(&task, |_| vec![0, 1, 2]);
        let ask = |history: &History, vectors: &[Vec<Vec<f64>>]| {
            task.update.rules().comparable().unwrap().agreement(&task.setting(), &SiteReleases { history, vectors })
        };
        let compared = ask(&history, &vectors).unwrap();
        let p: Vec<f64> = compared.iter().map(|c| c.as_ref().unwrap().p).collect();
        assert!(p[2] < 1e-6 && p[0] > 0.05 && p[1] > 0.05, "{approximation}: {p:?}");
        let (short, of_it) = run(&task, |_| vec![1]);
        assert_eq!(ask(&short, &of_it), Err(NotTested::OneSite));
        let (absent, of_it) = run(&task, |_| vec![0, 1]);
        assert_eq!(ask(&absent, &of_it).unwrap()[2], None);
        assert_eq!(
            task.update.rules().without(&task.setting(), &SiteReleases { history: &absent, vectors: &of_it }, 2),
            Err(Undividable::Nothing)
        );
        let mut first = history.clone();
        first.rounds.truncate(1);
        assert_eq!(ask(&first, &vectors[..1]), Err(NotTested::NoRound));
        assert_eq!(ask(&history, &vectors[1..]), Err(NotTested::Diverged), "vectors of other rounds");
        let mut foreign = vectors.clone();
        foreign[2][1].pop();
        assert_eq!(ask(&history, &foreign), Err(NotTested::Diverged));
    }
    let diagonal = task("full-covariance", "preconditioner = \"diagonal\"");
    let nothing = History { shares: vec![1.0], rounds: Vec::new() };
    let releases = SiteReleases { history: &nothing, vectors: &[] };
    assert_eq!(diagonal.update.rules().comparable().map(|_| ()), Err(NotTested::Update));
    assert_eq!(diagonal.update.rules().without(&diagonal.setting(), &releases, 0), Err(Undividable::Correlations));
}
