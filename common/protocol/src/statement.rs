//! What one site's data was promised, in numbers and in words: part of every exported posterior.
//!
//! ε is that of the task's whole plan: every visit that a site may be asked for, answered or not. What a site was asked, and whether it answered,
//! is known only afterwards and may depend on earlier results; an ε of the visits that were answered would need the theorem of a privacy odometer
//! (Rogers, Roth, Ullman and Vadhan 2016), with a δ of its own. No such figure is stated.

use dp_pvi_accounting::unit::rounded_up;
use dp_pvi_accounting::{AccountantError, Composition, Method, Prices, PrivacyLoss};
use dp_pvi_accounting::{DpEvent, PrivacyUnit, Relation, UnknownEvent};
use dp_pvi_names::{ClientId, Hash, RunId};
use dp_pvi_privacy::ledger::{Row, RowBody};
use serde::{Deserialize, Serialize};

use dp_pvi_posterior::task::{ResolvedTask, TaskError, Trust};

use crate::ledger_head::Witness;
use crate::origin::Origin;

/// The guarantee that one site's releases of one run have.
///
/// # Privacy
/// (ε, δ) differential privacy of everything that the site sent in the run, for the named unit and relation. It bounds one run; the
/// site's own ledger adds up all runs over the same data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivacyStatement {
    /// The site.
    pub site: ClientId,
    /// Whose data is protected.
    pub unit: PrivacyUnit,
    /// Neighbouring data sets.
    pub relation: Relation,
    /// Upper bound on ε of all visits of the task; absent: no guarantee (ε = ∞).
    pub epsilon: Option<f64>,
    /// Under aggregated trust: the same if everyone else works together, so that only the site's own share of the noise counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_epsilon: Option<f64>,
    /// δ.
    pub delta: f64,
    /// Who adds the noise.
    pub trust: Trust,
    /// How ε was computed.
    pub method: Method,
    /// The discrete noise was accounted as continuous noise, and a part of δ pays for the difference.
    pub numerical_margin: bool,
    /// Visits that the site answered. ε does not depend on it.
    pub releases: u32,
    /// What was released.
    pub released: String,
    /// Where the site's rows come from, by its own word.
    pub rows: Origin,
    /// Where its ledger ended when its last update was committed; absent where it answered no visit, and in files of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub witness: Option<Witness>,
    /// What a reader should know beside the numbers.
    pub remarks: Vec<String>,
}

/// The statement for a site that answered `releases` visits of a run of `task`, of rows of files.
///
/// # Errors
/// Numbers that do not fit the lattice, or an event that no engine bounds.
pub fn statement(task: &ResolvedTask, site: &ClientId, releases: u32) -> Result<PrivacyStatement, TaskError> {
    let loss = task.loss(task.visits())?;
    let fallback = task.fallback_loss(task.visits())?.map(|loss| loss.epsilon.get()).filter(|epsilon| epsilon.is_finite());
    let epsilon = Some(loss.epsilon.get()).filter(|epsilon| epsilon.is_finite());
    Ok(PrivacyStatement {
        site: site.clone(),
        unit: task.privacy.unit,
        relation: task.privacy.relation,
        epsilon,
        fallback_epsilon: fallback,
        delta: task.privacy.delta.get(),
        trust: task.privacy.trust,
        method: loss.method,
        numerical_margin: loss.numerical_margin,
        releases,
        released: task.update.released(),
        rows: Origin::default(),
        witness: None,
        remarks: remarks(task, loss.numerical_margin).into_iter().chain(conditions(task)?).collect(),
    })
}

/// What aggregated trust asks of the other parties, and what is left where they do not keep to it.
fn conditions(task: &ResolvedTask) -> Result<Option<String>, TaskError> {
    let (Some(spec), Some(fallback)) = (&task.aggregation, task.fallback_loss(task.visits())?) else { return Ok(None) };
    Ok(Some(format!(
        "Epsilon counts on {} honest sites in every sum, at most {} sites that work with the server or with the summer, and on server and summer not working together. Whatever all others do, epsilon is at most {} (fallback: this site's own share of the noise alone).",
        spec.honest,
        spec.colluders,
        rounded_up(fallback.epsilon.get(), 4)
    )))
}

/// A charge of a ledger: the event, and under aggregated trust what the site's own part is if everything else is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Booked {
    /// The event.
    pub event: DpEvent,
    /// The site's own part.
    pub fallback: Option<DpEvent>,
}

impl Booked {
    /// What a ledger booked for a run, in order.
    ///
    /// # Errors
    /// An event that this version cannot read.
    pub fn of_run(rows: &[(Row, Hash)], run: &RunId) -> Result<Vec<Self>, UnknownEvent> {
        let charges = rows.iter().filter_map(|(row, _)| match &row.body {
            RowBody::Reserved { release, event, fallback, .. } if release.run == *run => Some((event, fallback)),
            _ => None,
        });
        charges
            .map(|(event, fallback)| {
                Ok(Self { event: DpEvent::from_bytes(event)?, fallback: fallback.as_deref().map(DpEvent::from_bytes).transpose()? })
            })
            .collect()
    }
}

/// A ledger and a statement of the same run that do not say the same.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    /// A charge that the plan does not have, or not so often.
    #[error("the ledger's charge {0} matches no remaining visit of the task: ledger and task belong to different runs")]
    NotPlanned(usize),
    /// The ledger's ε is above the stated one.
    #[error("the statement says epsilon {stated} and the ledger booked {booked}: report this as a bug")]
    TooLow {
        /// Stated.
        stated: f64,
        /// Of the charges.
        booked: f64,
    },
    /// The run was charged again after the ledger had been put back from a copy.
    #[error(
        "the ledger was restored in the middle of the run and charged what came after it anew: for this site the run's epsilon is what its ledger \
         says (`dp-pvi-client budget show`), and not the statement's"
    )]
    Restored,
    /// A charge of another version.
    #[error(transparent)]
    Unreadable(#[from] UnknownEvent),
    /// No plan.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// No price.
    #[error(transparent)]
    Accountant(#[from] AccountantError),
}

impl PrivacyStatement {
    /// The same with where the site's rows come from.
    #[must_use]
    pub fn of_rows(self, rows: Origin) -> Self {
        Self { rows, ..self }
    }

    /// Statements of a run with what their sites signed of their ledgers: of every site that answered a visit, or, where one of these is not known, of none.
    #[must_use]
    pub fn witnessed(statements: Vec<Self>, of: impl Fn(&ClientId) -> Option<Witness>) -> Vec<Self> {
        let witness = |statement: &Self| (statement.releases > 0).then(|| of(&statement.site));
        if statements.iter().any(|statement| witness(statement) == Some(None)) {
            return statements;
        }
        statements.into_iter().map(|statement| Self { witness: witness(&statement).flatten(), ..statement }).collect()
    }

    /// Compares this statement with what the site's ledger booked for the run, event by event: every charge is that of another visit of
    /// the task, and the charges together, composed by the rule by which the plan is, cost no more than is stated. Returns what they cost.
    ///
    /// # Errors
    /// A charge that is none of the plan's, an ε above the stated one, or an event that no engine bounds.
    pub fn compare(&self, task: &ResolvedTask, booked: &[Booked]) -> Result<PrivacyLoss, StatementError> {
        self.compare_at(&mut Prices::new(task.privacy.relation), task, booked)
    }

    /// The same at prices of which some are known, under the task's relation.
    ///
    /// # Errors
    /// As [`compare`](Self::compare).
    pub(crate) fn compare_at(&self, prices: &mut Prices, task: &ResolvedTask, booked: &[Booked]) -> Result<PrivacyLoss, StatementError> {
        let charges = task.visit_charges(0..task.visits())?;
        let mut plan: Vec<_> = charges.into_iter().map(|((event, fallback), count)| (Booked { event, fallback }, count)).collect();
        // Charges mostly come in the order of the plan: the search goes on where the last one was found.
        let mut last = 0;
        for (number, charge) in booked.iter().enumerate() {
            let places = (last..plan.len()).chain(0..last);
            let found = places.into_iter().find(|&place| plan[place].1 > 0 && plan[place].0 == *charge);
            last = found.ok_or(StatementError::NotPlanned(number))?;
            plan[last].1 -= 1;
        }
        let mut cost = |event: &dyn Fn(&Booked) -> DpEvent| {
            let mut total = Composition::default();
            for charge in booked {
                total.add(&prices.learn(&event(charge))?, 1);
            }
            Ok::<_, AccountantError>(total.loss(task.privacy.delta))
        };
        let loss = cost(&|charge| charge.event.clone())?;
        let worst = cost(&|charge| charge.fallback.as_ref().unwrap_or(&charge.event).clone())?;
        // Where nothing is stated (infinity) nothing is promised. Without aggregation both are the same.
        let stated = self.epsilon.unwrap_or(f64::INFINITY);
        let stated_worst = match self.trust {
            Trust::Local => stated,
            Trust::Aggregated => self.fallback_epsilon.unwrap_or(f64::INFINITY),
        };
        let pairs = [(stated, loss.epsilon.get()), (stated_worst, worst.epsilon.get())];
        match pairs.into_iter().find(|(stated, booked)| booked > stated) {
            Some((stated, booked)) => Err(StatementError::TooLow { stated, booked }),
            None => Ok(loss),
        }
    }

    /// States what the certificates prove, where that is more than was stated.
    pub fn raise_to(&mut self, epsilon: Option<f64>, fallback: Option<f64>) {
        for (stated, proved) in [(&mut self.epsilon, epsilon), (&mut self.fallback_epsilon, fallback)] {
            if let (Some(stated), Some(proved)) = (stated, proved)
                && proved > *stated
            {
                self.remarks.push(format!(
                    "Epsilon was raised from {} to {}, which a second program can check: it computes on a coarser grid.",
                    rounded_up(*stated, 6),
                    rounded_up(proved, 6)
                ));
                *stated = proved;
            }
        }
    }

    /// Says what the document's intervals contain.
    pub fn intervals_are(&mut self, why: &str) {
        for remark in self.remarks.iter_mut().filter(|remark| *remark == PLAIN_INTERVALS) {
            *remark = format!(
                "{why} They contain neither the bias of clipping, where records were clipped, nor the approximation by the variational family."
            );
        }
    }
}

const PLAIN_INTERVALS: &str = "Intervals are those of the variational posterior: they do not include the noise that protects the records, and are too narrow for coefficients on which that noise weighs.";

fn remarks(task: &ResolvedTask, margin: bool) -> Vec<String> {
    let mut remarks = vec![match task.release_tick_seconds {
        0 => "An update is sent as soon as its training ends: the time of sending is not covered by epsilon.".to_owned(),
        tick => format!(
            "An update is sent at the next multiple of {tick} s after its training began: only a missed multiple shows in the time of sending, which is not covered by epsilon."
        ),
    }];
    if !task.update.is_private() {
        remarks.push("No privacy protection: whoever sees the updates can learn about single records.".to_owned());
        return remarks;
    }
    if margin {
        remarks.push(
            "Numerical margin: the discrete Gaussian noise was accounted as continuous noise, and a small part of delta pays for the difference.".to_owned(),
        );
    }
    remarks.push(format!("Epsilon is that of the whole plan: all {} visits that the task has for a site, answered or not.", task.visits()));
    remarks.push(PLAIN_INTERVALS.to_owned());
    remarks.push("Epsilon and delta say: if one unit's data were another's (or absent, under add-remove), then for every set A of outcomes of the whole run P(A) <= exp(epsilon) P'(A) + delta. This is computational: noise and coins are the stream of ChaCha20 under keys of the operating system, and under aggregated trust the masks' stream and the sealed seeds count, too.".to_owned());
    remarks.push(
        "Public, and not covered by epsilon: that the site takes part and when, its declared number of units, the schema, the task."
            .to_owned(),
    );
    remarks.push("Epsilon bounds this run at this site. Sites hold different people: the federation's epsilon is the largest of its sites'. A person whose records are at several sites, or who is in several runs, adds them up.".to_owned());
    remarks
}
