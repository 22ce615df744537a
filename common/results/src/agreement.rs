//! Do the sites agree: the test of every site against the others ([`dp_pvi_math::agreement`]), as it is in the file and in the report.

use dp_pvi_names::ClientId;
use serde::{Deserialize, Serialize};

use dp_pvi_math::agreement::Allowance;
use dp_pvi_math::agreement::Compared;
use dp_pvi_math::chi_square::upper_tail;
use dp_pvi_models::spec::Trust;
use dp_pvi_posterior::methods::agreement::{NotTested, SiteReleases, allowance};
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_protocol::shape;

/// Family-wise level: with sites that differ by no more than the allowance, the probability that any of them is said to differ.
const LEVEL: f64 = 0.05;

/// What is said where no site was found to differ.
const NONE_STANDS_OUT: &str = "No site stands out: none differs from the others by more than noise, chance and ordinary differences between sites explain. That does not show that \
                               sites are alike: put `(1 | site)` into the formula where outcomes can differ between them.";

/// What is said of the sites of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Agreement {
    /// Why nothing was tested.
    NotTested(String),
    /// Every site against all others.
    Tested(Tested),
}

/// A test of every site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tested {
    /// Family-wise level.
    pub level: f64,
    /// Differences that are no alarm.
    pub allowance: Allowance,
    /// One entry a site.
    pub sites: Vec<SiteAgreement>,
}

/// One site against all others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteAgreement {
    /// Which.
    pub site: ClientId,
    /// What it means.
    pub verdict: Verdict,
    /// The test; absent where none was possible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comparison: Option<Comparison>,
}

/// What is said of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing that noise, chance and the allowance do not explain.
    Ordinary,
    /// More than they explain.
    Differs,
    /// What it released at different visits is none of one site, whatever its records and the noise are.
    Impossible,
    /// The site released no gradient, or noise hides every difference.
    NotTested,
}

/// The numbers of a test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// Chi-square statistic.
    pub statistic: f64,
    /// Its degrees of freedom: directions in which the site has a signal.
    pub degrees: u32,
    /// Probability of a statistic at least as large.
    pub p: f64,
    /// The same after Holm's correction for the number of sites; the verdict compares it with the level.
    pub p_adjusted: f64,
    /// The coefficient whose difference alone explains most.
    pub farthest: Farthest,
    /// By how much the others differ among themselves, as a factor on the allowance; 1 where they do not exceed it.
    pub heterogeneity: Allowance,
}

/// A coefficient and by how many standard deviations it differs from the others'.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Farthest {
    /// Its name.
    pub coefficient: String,
    /// Above 0 where the site's is larger.
    pub z: f64,
}

impl SiteAgreement {
    /// Whether its test has a direction in which the site has a signal, and the site can be one at all.
    fn is_compared(&self) -> bool {
        self.verdict != Verdict::Impossible && self.comparison.as_ref().is_some_and(|comparison| comparison.degrees > 0)
    }
}

impl Agreement {
    /// Why nothing was tested.
    #[must_use]
    pub fn not_tested(reason: NotTested) -> Self {
        Self::NotTested(format!("Whether the sites agree was not tested: {reason}."))
    }

    /// One or two sentences for the reader.
    #[must_use]
    pub fn sentence(&self) -> String {
        let tested = match self {
            Self::NotTested(reason) => return reason.clone(),
            Self::Tested(tested) => tested,
        };
        let named = |verdict| tested.sites.iter().filter(move |site| site.verdict == verdict);
        let names = |verdict| named(verdict).map(|site| site.site.as_str()).collect::<Vec<_>>().join(", ");
        let silent = match named(Verdict::NotTested).count() {
            0 => String::new(),
            _ => format!(" Not tested, since noise hides every difference or no gradient was released: {}.", names(Verdict::NotTested)),
        };
        let impossible = match named(Verdict::Impossible).count() {
            0 => String::new(),
            _ => format!(
                "Cannot be a site of such records: {}. What it released at different visits does not go together; ask there which program runs, and export the \
                 posterior without it. ",
                names(Verdict::Impossible)
            ),
        };
        let compared = tested.sites.len() - named(Verdict::NotTested).count() - named(Verdict::Impossible).count();
        let found = match named(Verdict::Differs).count() {
            0 if compared == 0 => "No site could be compared with the others.".to_owned(),
            0 => NONE_STANDS_OUT.to_owned(),
            _ if compared == 2 => {
                "The two sites differ by more than noise, chance and ordinary differences explain. With two nobody can say which one is unusual.".to_owned()
            }
            _ => format!(
                "More than noise, chance and ordinary differences between sites explain: {} (largest in {}). Ask there for coding of the label, units of \
                 columns, and who was included.",
                names(Verdict::Differs),
                named(Verdict::Differs)
                    .filter_map(|site| site.comparison.as_ref())
                    .map(|comparison| comparison.farthest.coefficient.as_str())
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        };
        impossible + &found + &silent
    }

    /// Whether adjusted values and verdicts follow from the statistics. The statistics themselves need the sites' vectors.
    #[must_use]
    pub(crate) fn is_consistent(&self) -> bool {
        let Self::Tested(tested) = self else { return true };
        let finite = |c: &Comparison| c.statistic.is_finite() && (c.p - tail(c.statistic, c.degrees)).abs() <= 1e-6;
        let mut again = tested.clone();
        again.judge();
        let same = |(a, b): (&SiteAgreement, &SiteAgreement)| match (&a.comparison, &b.comparison) {
            (Some(x), Some(y)) => finite(x) && (x.p_adjusted - y.p_adjusted).abs() <= 1e-9,
            (None, None) => matches!(a.verdict, Verdict::NotTested),
            _ => false,
        };
        let verdicts = tested.sites.iter().zip(&again.sites).all(|(a, b)| a.verdict == b.verdict);
        tested.level > 0.0 && tested.level < 1.0 && verdicts && tested.sites.iter().zip(&again.sites).all(same)
    }
}

impl Tested {
    /// Holm's step-down over the sites that could be tested, and the verdicts.
    fn judge(&mut self) {
        let mut order: Vec<usize> = (0..self.sites.len()).filter(|&i| self.sites[i].is_compared()).collect();
        let p = |sites: &[SiteAgreement], i: usize| sites[i].comparison.as_ref().map_or(1.0, |c| c.p);
        order.sort_by(|&a, &b| p(&self.sites, a).total_cmp(&p(&self.sites, b)));
        let judged = self.sites.iter_mut().filter(|site| site.verdict != Verdict::Impossible);
        judged.for_each(|site| site.verdict = Verdict::NotTested);
        let mut largest: f64 = 0.0;
        for (rank, &i) in order.iter().enumerate() {
            #[allow(clippy::cast_precision_loss, reason = "a number of sites")]
            let factor = (order.len() - rank) as f64;
            largest = largest.max((factor * p(&self.sites, i)).min(1.0));
            let site = &mut self.sites[i];
            site.verdict = if largest <= self.level { Verdict::Differs } else { Verdict::Ordinary };
            if let Some(comparison) = &mut site.comparison {
                comparison.p_adjusted = largest;
            }
        }
    }
}

fn tail(statistic: f64, degrees: u32) -> f64 {
    if degrees == 0 { 1.0 } else { upper_tail(statistic, f64::from(degrees)) }
}

/// Whether [`of_run`] may test anything: only then need the sites' vectors be read.
///
/// # Errors
/// Why nothing is tested whatever was released.
pub fn is_known(task: &ResolvedTask) -> Result<(), NotTested> {
    if task.privacy.trust == Trust::Aggregated {
        return Err(NotTested::Aggregated);
    }
    task.sites_are_comparable()?;
    if task.schedule.staleness().is_some() { Err(NotTested::Late) } else { Ok(()) }
}

/// Tests every site of a run against all others. `sites` names the positions of `releases`. Post-processing of released values.
#[must_use]
pub fn of_run(task: &ResolvedTask, sites: &[ClientId], releases: &SiteReleases<'_>) -> Agreement {
    let compared = is_known(task).and_then(|()| task.agreement(releases));
    let names = task.parameter_names().map_err(|_| NotTested::Diverged);
    match compared.and_then(|compared| Ok((compared, names?))) {
        Ok((compared, names)) => {
            let site = |((number, site), compared): ((usize, &ClientId), Option<Compared>)| SiteAgreement {
                site: site.clone(),
                verdict: if is_possible(task, releases, number) { Verdict::NotTested } else { Verdict::Impossible },
                comparison: compared.map(|Compared { statistic, degrees, p, farthest: (j, z), heterogeneity }| Comparison {
                    statistic,
                    degrees,
                    p,
                    p_adjusted: 1.0,
                    farthest: Farthest { coefficient: names.get(j).cloned().unwrap_or_default(), z },
                    heterogeneity,
                }),
            };
            let sites = sites.iter().enumerate().zip(compared).map(site).collect();
            let mut tested = Tested { level: LEVEL, allowance: allowance(&task.model), sites };
            tested.judge();
            Agreement::Tested(tested)
        }
        Err(reason) => Agreement::not_tested(reason),
    }
}

/// Whether what a site sent at its visits can be one site's, whatever its records are.
fn is_possible(task: &ResolvedTask, releases: &SiteReleases<'_>, site: usize) -> bool {
    let mut first: Option<&[f64]> = None;
    releases.history.rounds.iter().zip(releases.vectors).all(|(round, vectors)| {
        let Some(sent) = round.included.iter().position(|included| *included == site).and_then(|place| vectors.get(place)) else {
            return true;
        };
        if round.visit == 0 && shape::first_visit_informs(task) {
            first = Some(sent);
            return true;
        }
        first.is_none_or(|first| shape::go_together(task, first, sent, round.visit))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::{Agreement, Allowance, ClientId, Comparison, Farthest, LEVEL, NotTested, SiteAgreement, Tested, Verdict, tail};

    const ONE: Allowance = Allowance { intercept: 1.0, others: 1.0 };

    fn tested(statistics: &[Option<(f64, u32)>]) -> Tested {
        let site = |(i, test): (usize, &Option<(f64, u32)>)| SiteAgreement {
            site: ClientId::new(format!("hospital-{i}")).unwrap(),
            verdict: Verdict::NotTested,
            comparison: test.map(|(statistic, degrees)| Comparison {
                statistic,
                degrees,
                p: tail(statistic, degrees),
                p_adjusted: 1.0,
                farthest: Farthest { coefficient: "age".into(), z: 1.0 },
                heterogeneity: ONE,
            }),
        };
        let mut tested = Tested { level: LEVEL, allowance: ONE, sites: statistics.iter().enumerate().map(site).collect() };
        tested.judge();
        tested
    }

    fn verdicts(tested: &Tested) -> Vec<Verdict> {
        tested.sites.iter().map(|site| site.verdict).collect()
    }

    /// p of 0.02 alone would be too much for three sites, after one that was found it is not.
    #[test]
    fn holm_steps_down_over_the_sites_that_could_be_tested() {
        // χ² of one degree: 5.412 has p = 0.02, 0.455 has p = 0.5.
        let two = tested(&[Some((5.412, 1)), Some((0.455, 1)), Some((0.455, 1)), None, Some((0.0, 0))]);
        assert_eq!(verdicts(&two)[..3], [Verdict::Ordinary; 3]);
        assert_eq!(verdicts(&two)[3..], [Verdict::NotTested; 2]);
        let found = tested(&[Some((5.412, 1)), Some((40.0, 1)), Some((0.455, 1))]);
        assert_eq!(verdicts(&found), [Verdict::Differs, Verdict::Differs, Verdict::Ordinary]);
        let adjusted = found.sites[0].comparison.as_ref().unwrap().p_adjusted;
        assert!((adjusted - 0.04).abs() < 1e-4, "{adjusted}");
    }

    #[test]
    fn what_was_found_is_said_in_sentences() {
        let say = |statistics: &[Option<(f64, u32)>]| Agreement::Tested(tested(statistics)).sentence();
        assert!(say(&[Some((0.4, 1)), Some((0.4, 1))]).starts_with("No site stands out"));
        assert!(say(&[Some((90.0, 1)), Some((90.0, 1))]).contains("With two nobody can say"));
        let one = say(&[Some((90.0, 3)), Some((0.4, 3)), Some((0.4, 3)), None]);
        assert!(one.contains("hospital-0 (largest in age)") && one.ends_with("released: hospital-3."), "{one}");
        assert!(say(&[None, None]).starts_with("No site could be compared"));
        assert!(Agreement::not_tested(NotTested::Aggregated).sentence().contains("was not tested: under aggregated trust"));
    }

    #[test]
    fn a_site_that_cannot_be_one_is_named_and_blames_nobody_else() {
        let mut tested = tested(&[Some((0.4, 1)), Some((0.0, 0)), Some((0.4, 1))]);
        tested.sites[1].verdict = Verdict::Impossible;
        tested.judge();
        assert_eq!(verdicts(&tested), [Verdict::Ordinary, Verdict::Impossible, Verdict::Ordinary]);
        let agreement = Agreement::Tested(tested);
        let sentence = agreement.sentence();
        assert!(
            sentence.starts_with("Cannot be a site of such records: hospital-1.") && sentence.contains("No site stands out"),
            "{sentence}"
        );
        assert!(agreement.is_consistent() && serde_json::to_string(&agreement).unwrap().contains("\"impossible\""));
    }

    #[test]
    fn a_verdict_that_does_not_follow_is_noticed() {
        let right = tested(&[Some((90.0, 3)), Some((0.4, 3)), None]);
        assert!(Agreement::Tested(right.clone()).is_consistent());
        let text = serde_json::to_string(&Agreement::Tested(right.clone())).unwrap();
        assert_eq!(serde_json::from_str::<Agreement>(&text).unwrap(), Agreement::Tested(right.clone()));
        for change in [
            |t: &mut Tested| t.sites[0].verdict = Verdict::Ordinary,
            |t: &mut Tested| t.sites[2].verdict = Verdict::Ordinary,
            |t: &mut Tested| t.sites[1].comparison.as_mut().unwrap().p = 0.5,
            |t: &mut Tested| t.sites[1].comparison.as_mut().unwrap().p_adjusted = 0.1,
            |t: &mut Tested| t.sites[1].comparison.as_mut().unwrap().statistic = f64::NAN,
            |t: &mut Tested| t.level = 1.0,
        ] {
            let mut wrong = right.clone();
            change(&mut wrong);
            assert!(!Agreement::Tested(wrong).is_consistent());
        }
    }
}
