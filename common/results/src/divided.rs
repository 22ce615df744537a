//! A run's posterior without one of its sites ([`dp_pvi_posterior::methods::divided`]).

use dp_pvi_math::expfam::any::{Family, Gaussian};
use dp_pvi_math::expfam::gaussian::full::{svec, unsvec};
use dp_pvi_math::floor::PrecisionFloor;
use dp_pvi_models::spec::Trust;
use dp_pvi_names::ClientId;
use dp_pvi_posterior::methods::Setting;
pub use dp_pvi_posterior::methods::agreement::SiteReleases;
pub use dp_pvi_posterior::methods::divided::{Divided, Noise, Undividable};
use dp_pvi_posterior::task::ResolvedTask;
use nalgebra::{DMatrix, DVector, SymmetricEigen};
use serde::{Deserialize, Serialize};

/// What a file says of itself whose posterior lacks a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Without {
    /// The site whose releases were divided out.
    pub site: ClientId,
    /// What that means, in sentences.
    pub remarks: Vec<String>,
}

impl Without {
    /// `arrival` says whether the whole run converged.
    pub(crate) fn new(site: ClientId, raised: usize, arrival: String) -> Self {
        let mut remarks = vec![
            format!(
                "What {site} released was divided out of this posterior. Nothing was erased: its releases are in the run's own posterior, and with whoever received them."
            ),
            format!(
                "The other sites' later releases were made at points that {site} had moved, and still depend on it: this is not exactly the posterior of a run without it."
            ),
            format!("The charges in the ledger of {site} stay, and so does its statement of privacy."),
        ];
        if raised > 0 {
            remarks.push(format!(
                "In {raised} directions the precision that was left was below the prior's, because of noise, and was raised to it."
            ));
        }
        remarks.push(arrival);
        Self { site, remarks }
    }
}

/// Whether [`without`] may have an answer: only then need the sites' vectors be read.
///
/// # Errors
/// Why there is none whatever was released.
pub fn is_known(task: &ResolvedTask) -> Result<(), Undividable> {
    if task.privacy.trust == Trust::Aggregated {
        return Err(Undividable::Aggregated);
    }
    if task.schedule.staleness().is_some() { Err(Undividable::Late) } else { Ok(()) }
}

/// The posterior of a run without what the site at this position released. Post-processing of released values.
///
/// # Errors
/// Why there is none.
pub fn without(task: &ResolvedTask, releases: &SiteReleases<'_>, site: usize) -> Result<Divided, Undividable> {
    is_known(task)?;
    let divided = never_wider(&task.setting(), task.without(releases, site)?).ok_or(Undividable::Diverged)?;
    match Gaussian::from_natural(task.family(), divided.natural_parameters.clone()) {
        Ok(_) => Ok(divided),
        Err(_) => Err(Undividable::Diverged),
    }
}

/// The same posterior, nowhere wider than the prior: in a direction in which the remaining sites carry less information than the prior, the standard deviation is
/// the prior's, and so is the mean where it is farther from the prior's than [`FARTHEST`]. A learned scale is taken at its upper likely value. `None` for numbers
/// that cannot be computed with.
fn never_wider(task: &Setting<'_>, divided: Divided) -> Option<Divided> {
    let mut prior = task.priors();
    for (group, spread) in prior.groups.clone().iter().zip(&divided.scales) {
        let largest = spread.as_ref().map_or(0.0, |spread| spread.central_95[1]);
        prior.precision[group.first..group.first + group.count]
            .iter_mut()
            .for_each(|precision| *precision = precision.min(largest.powi(-2)));
    }
    let within = |natural: &[f64]| prior_where_less_is_known(task.family(), [&prior.mean, &prior.precision], natural);
    let (natural_parameters, directions) = within(&divided.natural_parameters)?;
    let plain = match &divided.plain {
        Some(plain) => Some(within(plain)?.0),
        None => None,
    };
    Some(Divided { natural_parameters, plain, raised: divided.raised + directions, ..divided })
}

/// Prior standard deviations beyond which a mean that is less certain than the prior is taken for noise.
const FARTHEST: f64 = 3.0;

/// Natural parameters under a prior of these means and precisions, and in how many directions they became the prior's.
fn prior_where_less_is_known(family: Family, [mean, precision]: [&[f64]; 2], natural: &[f64]) -> Option<(Vec<f64>, usize)> {
    let d = family.dimension();
    let floor = PrecisionFloor::LogConcave;
    let packed = match family {
        Family::DiagonalGaussian { .. } => precision.to_vec(),
        Family::FullGaussian { .. } => svec(&DMatrix::from_diagonal(&DVector::from_column_slice(precision))),
    };
    if floor.holds(family, &packed, natural.get(d..)?) {
        return Some((natural.to_vec(), 0));
    }
    let Family::FullGaussian { .. } = family else {
        let less = |j: &usize| natural[d + j] < precision[*j];
        let mut own = natural.to_vec();
        for j in (0..d).filter(less) {
            let moved = (natural[j] / natural[d + j] - mean[j]) * precision[j].sqrt();
            let kept = if natural[d + j] > 0.0 && moved.abs() <= FARTHEST { natural[j] / natural[d + j] } else { mean[j] };
            (own[j], own[d + j]) = (precision[j] * kept, precision[j]);
        }
        return Some((own, (0..d).filter(less).count()));
    };
    // In units in which the prior is N(0, 1).
    let root = DVector::from_iterator(d, precision.iter().map(|p| p.sqrt()));
    let matrix = unsvec(&natural[d..], d);
    let eigen =
        SymmetricEigen::try_new(DMatrix::from_fn(d, d, |i, j| matrix[(i, j)] / (root[i] * root[j])), f64::EPSILON, 1000 * d.max(10))?;
    // Where the precision is not even positive there is no mean: it is the prior's there, too.
    let slope = DVector::from_fn(d, |j, _| natural[j] / root[j])
        - &eigen.eigenvectors
            * eigen.eigenvalues.component_mul(&eigen.eigenvectors.tr_mul(&root.component_mul(&DVector::from_column_slice(mean))));
    let along = eigen.eigenvectors.tr_mul(&slope);
    let known = |i: usize| eigen.eigenvalues[i] >= 1.0;
    let values = DVector::from_fn(d, |i, _| if known(i) { eigen.eigenvalues[i] } else { 1.0 });
    let pull = DVector::from_fn(d, |i, _| {
        let moved = along[i] / eigen.eigenvalues[i];
        match known(i) {
            true => along[i],
            false if eigen.eigenvalues[i] > 0.0 && moved.abs() <= FARTHEST => moved,
            false => 0.0,
        }
    });
    let whitened = &eigen.eigenvectors * DMatrix::from_diagonal(&values) * eigen.eigenvectors.transpose();
    let new = DMatrix::from_fn(d, d, |i, j| whitened[(i, j)] * root[i] * root[j]);
    let h = &new * DVector::from_column_slice(mean) + (&eigen.eigenvectors * pull).component_mul(&root);
    let directions = (0..d).filter(|i| !known(*i)).count();
    Some((h.iter().copied().chain(svec(&new)).collect(), directions))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use dp_pvi_names::ClientId;

    use dp_pvi_math::expfam::any::Family;
    use dp_pvi_math::expfam::gaussian::full::svec;
    use nalgebra::DVector;

    use super::{Divided, Noise, SiteReleases, Undividable, is_known, never_wider, prior_where_less_is_known, without};
    use crate::document::PosteriorDocument;
    use dp_pvi_posterior::methods::VisitSum;
    use dp_pvi_posterior::methods::noise_aware::{Absent, ClosedRound, History};
    use dp_pvi_posterior::noise_aware::of_run;
    use dp_pvi_posterior::task::{RawTask, ResolveContext, ResolvedTask};
    use dp_pvi_protocol::statement::statement;

    const SCHEMA: &str = "[[columns]]\nname = \"y\"\nkind = \"number\"\nlower = -10\nupper = 10\ncentre = 0\nscale = 1\n\
        [[columns]]\nname = \"x\"\nkind = \"number\"\nlower = -1\nupper = 1\ncentre = 0\nscale = 1\n";

    fn task(pvi: &str, privacy: &str) -> ResolvedTask {
        let text = format!(
            "model.family = \"linear-regression\"\nmodel.outcome = \"y\"\nmodel.noise_sd = 1.0\nschema.file = \"s\"\n[pvi]\n{pvi}\n[privacy]\nunit = \"record\"\n\
             adjacency = \"replace-one\"\ndelta = 1e-5\n{privacy}\n"
        );
        let context = ResolveContext { name: "f", update_deadline_seconds: 60, min_sites: 1, expected_sites: 3 };
        RawTask::parse(&text).unwrap().resolve(SCHEMA, context).unwrap()
    }

    fn open() -> ResolvedTask {
        task("schedule = \"synchronous\"\nrounds = 4\ndamping = 0.5\nupdate = \"pvi\"", "trust = \"local\"\nmax_units = 1000000")
    }

    fn private() -> ResolvedTask {
        task(
            "schedule = \"synchronous\"\nrounds = 4\ndamping = 0.5\nupdate = \"dp-optimisation\"\nclip_norm = 2.0\noptimizer = \"adam\"",
            "trust = \"local\"\nmax_units = 1000000\nepsilon = 1.0",
        )
    }

    /// A run in which every site of these sends what `change` says of its factor, in a mean field of two coefficients.
    struct Run {
        history: History,
        vectors: Vec<Vec<Vec<f64>>>,
    }

    impl Run {
        fn new(task: &ResolvedTask, sites: &[usize], change: impl Fn(usize, &[f64]) -> Vec<f64>) -> Self {
            let (rule, mut factors) = (task.rule(), vec![vec![0.0; 4]; 3]);
            let mut state = rule.initial();
            let mut run = Self { history: History { shares: vec![1.0 / 3.0; 3], rounds: Vec::new() }, vectors: Vec::new() };
            for visit in 0..task.visits() {
                let sent: Vec<Vec<f64>> = sites.iter().map(|&site| change(site, &factors[site])).collect();
                let sum: Vec<f64> = (0..4).map(|j| sent.iter().map(|vector| vector[j]).sum()).collect();
                let step = rule.apply(&state, &VisitSum { visit, sites: u32::try_from(sites.len()).unwrap(), sum: &sum });
                for (&site, vector) in sites.iter().zip(&sent) {
                    let rho = task.damping[visit as usize];
                    factors[site].iter_mut().zip(vector).for_each(|(factor, change)| *factor += rho * change);
                }
                state = step.state;
                let included = sites.to_vec();
                run.history.rounds.push(ClosedRound { visit, included, state: state.clone(), correction: step.correction });
                run.vectors.push(sent);
            }
            run
        }

        /// The document of the whole run.
        fn whole(&self, task: &ResolvedTask) -> PosteriorDocument {
            let (rounds, state) = (u32::try_from(self.history.rounds.len()).unwrap(), &self.history.rounds.last().unwrap().state);
            let document = PosteriorDocument::new(task, 1, rounds, state, Vec::new(), Vec::new()).unwrap();
            document.with_noise_aware(of_run(task, &self.history)).unwrap()
        }

        fn without(&self, task: &ResolvedTask, site: usize) -> Result<Divided, Undividable> {
            without(task, &SiteReleases { history: &self.history, vectors: &self.vectors }, site)
        }
    }

    /// Sums of a site's records: of a likelihood that is conjugate, which a site fits exactly whatever the others say.
    fn likelihood(site: usize) -> Vec<f64> {
        [[3.0, -1.0, 5.0, 8.0], [2.0, 2.0, 7.0, 4.0], [-6.0, 0.5, 30.0, 1.0]][site].to_vec()
    }

    fn exact(site: usize, factor: &[f64]) -> Vec<f64> {
        likelihood(site).iter().zip(factor).map(|(l, f)| l - f).collect()
    }

    /// The linear Gaussian case: the run without a site is the run that never had it, to the last rounding, at every damping and number of rounds.
    #[test]
    fn a_conjugate_run_without_a_site_is_the_run_that_never_had_it() {
        let task = open();
        let all = Run::new(&task, &[0, 1, 2], exact);
        for site in 0..3 {
            let others: Vec<usize> = (0..3).filter(|other| *other != site).collect();
            let never = Run::new(&task, &others, exact);
            let divided = all.without(&task, site).unwrap();
            let expected = task.posterior(&never.history.rounds.last().unwrap().state).to_vec();
            divided.natural_parameters.iter().zip(&expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-12, "{a} {b}"));
            assert_eq!((divided.noise, divided.raised), (Noise::Left(Absent::NoNoise), 0));
        }
    }

    /// Noise may have left the others less precision than the prior had: it is raised, and said.
    #[test]
    fn precision_that_noise_took_is_raised_to_the_priors() {
        let task = private();
        let run = Run::new(&task, &[0, 1, 2], |site, _| if site == 0 { vec![1.0, 1.0, 9.0, 9.0] } else { vec![0.5, 0.5, -2.0, 1.0] });
        let divided = run.without(&task, 0).unwrap();
        assert_eq!((divided.raised, divided.noise), (1, Noise::Left(Absent::Divided)));
        // The prior's precision is 1; the other coordinate keeps 1 + 4·0.5·2.
        assert!((divided.natural_parameters[2] - 1.0).abs() < 1e-12 && (divided.natural_parameters[3] - 5.0).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_divided_says_so() {
        let (exactly, run) = (open(), Run::new(&open(), &[0, 1], exact));
        assert_eq!(run.without(&exactly, 2), Err(Undividable::Nothing), "it was never in a round");
        assert_eq!(Run::new(&exactly, &[0], exact).without(&exactly, 0), Err(Undividable::Nothing), "nobody else was");
        let mut short = Run::new(&exactly, &[0, 1], exact);
        short.vectors[1][0].pop();
        assert_eq!(short.without(&exactly, 0), Err(Undividable::Diverged));
        let aggregated = "trust = \"aggregated\"\nepsilon = 1.0\n[aggregation]\nmax_units = 1000";
        let sums = "schedule = \"synchronous\"\nrounds = 3\nupdate = \"natural-gradient\"\nresidual_bound = 5.0\ncurvature_bound = 1.0";
        assert_eq!(is_known(&task(sums, aggregated)), Err(Undividable::Aggregated));
        let gradients = task(
            "schedule = \"synchronous\"\nrounds = 2\nupdate = \"global-vi\"\nclip_norm = 2.0",
            "trust = \"local\"\nmax_units = 1000000\nepsilon = 1.0",
        );
        assert_eq!(run.without(&gradients, 0), Err(Undividable::Update));
    }

    #[test]
    fn the_document_says_what_it_is() {
        let task = open();
        let site = ClientId::new("south").unwrap();
        let divided = Run::new(&task, &[0, 1, 2], exact).without(&task, 1).unwrap();
        let statements = vec![statement(&task, &site, 4).unwrap()];
        let run = Run::new(&task, &[0, 1, 2], exact);
        let document = PosteriorDocument::without_site(&task, &run.whole(&task), &divided, site.clone(), statements.clone()).unwrap();
        let back = PosteriorDocument::from_json(&document.to_json()).unwrap();
        assert_eq!(back, document);
        let about = back.without.as_ref().unwrap();
        assert!(about.site == site && about.remarks.len() == 4 && about.remarks[0].contains("Nothing was erased"));
        assert!(back.evaluations.is_empty() && back.privacy.len() == 1);
        assert_eq!(back.natural_parameters, divided.natural_parameters);
        back.predictor().unwrap();
        let mut foreign = document.clone();
        foreign.privacy.clear();
        assert!(PosteriorDocument::from_json(&foreign.to_json()).unwrap_err().to_string().contains("has no statement of privacy"));
    }

    /// It has the verdict of the whole run, or says why there is none.
    #[test]
    fn the_document_says_whether_the_whole_run_arrived() {
        let site = ClientId::new("south").unwrap();
        let said = |task: &ResolvedTask, run: &Run| {
            let divided = run.without(task, 1).unwrap();
            let document =
                PosteriorDocument::without_site(task, &run.whole(task), &divided, site.clone(), vec![statement(task, &site, 4).unwrap()])
                    .unwrap();
            (document.intervals.complete, document.without.unwrap().remarks.pop().unwrap())
        };
        let run = |rounds: u32| {
            let task = task(
                &format!("schedule = \"synchronous\"\nrounds = {rounds}\ndamping = 0.5\nupdate = \"pvi\""),
                "trust = \"local\"\nmax_units = 1000000",
            );
            said(&task, &Run::new(&task, &[0, 1, 2], exact))
        };
        let (complete, words) = run(2);
        assert!(!complete && words.starts_with("Of the whole run: No noise was added, but the run had not settled"), "{words}");
        let (complete, words) = run(20);
        assert!(complete && words.starts_with("The whole run had settled"), "{words}");
        let noisy = Run::new(&private(), &[0, 1, 2], |site, _| vec![0.5, 0.5, 2.0 + likelihood(site)[3], 1.0]);
        let (complete, words) = said(&private(), &noisy);
        assert!(!complete && words.starts_with("There is no verdict on whether the whole run converged."), "{words}");
    }

    /// What noise, or a liar, leaves of a direction may be less than the prior says of it: then it is the prior's, mean and all.
    #[test]
    fn a_posterior_without_a_site_is_never_wider_than_the_prior() {
        let full = Family::FullGaussian { dimension: 2 };
        let within = |family, natural: &[f64]| prior_where_less_is_known(family, [&[0.0; 2], &[1.0; 2]], natural).unwrap();
        // Along (1, 1)/√2 a precision of 4 and the mean 3, across it next to nothing, and a mean of 1e5.
        let (along, across) = (DVector::from_vec(vec![0.5_f64.sqrt(); 2]), DVector::from_vec(vec![0.5_f64.sqrt(), -0.5_f64.sqrt()]));
        let natural = |of_across: f64, mean: f64| {
            let precision = &along * along.transpose() * 4.0 + &across * across.transpose() * of_across;
            let h = &precision * (&along * 3.0 + &across * mean);
            [h.as_slice(), &svec(&precision)].concat()
        };
        let (left, directions) = within(full, &natural(1e-6, 1e5));
        assert_eq!(directions, 1);
        left.iter().zip(&natural(1.0, 0.0)).for_each(|(a, b)| assert!((a - b).abs() < 1e-9, "{a} {b}"));
        let enough = natural(1.5, 2.0);
        assert_eq!(within(full, &enough), (enough.clone(), 0));
        let diagonal = within(Family::DiagonalGaussian { dimension: 2 }, &[1e5, 6.0, 1e-6, 2.0]);
        assert_eq!(diagonal, (vec![0.0, 6.0, 1.0, 2.0], 1));
        // What was divided is brought within the prior of its task.
        let task = open();
        let of_task = never_wider(
            &task.setting(),
            Divided {
                natural_parameters: vec![1e5, 6.0, 1e-6, 2.0],
                noise: Noise::Left(Absent::NoNoise),
                raised: 1,
                scales: Vec::new(),
                plain: None,
            },
        );
        assert_eq!(of_task.map(|left| (left.natural_parameters, left.raised)), Some((vec![0.0, 6.0, 1.0, 2.0], 2)));
    }
}
