//! Expectation propagation and its relatives over a table of records, without protection: the loops.
//!
//! * [`Factors`] (EP) keeps one factor per record; [`Shared`] (SEP) one factor that stands for every record; [`Adf`] none.
//! * A visit moves λ by f_n − f, f the factor that was in the cavity: EP replaces f_n, SEP moves the shared factor by a share 1/N of it, and
//!   ADF adds f_n each time it meets a record, so that passes count the data again.
//! * Batch SEP is λ ← λ + (β/q) Σ_{n∈B} (f_n − f): see [`Shared::batch`], and [`Shared::pass`] for visits one after the other.
//!
//! Records that have no site at their cavity are skipped. No visit allocates.
//!
//! # Privacy
//! A record's term is a function of the record and of the public state, and for `ep` of its own factor, which holds no noise and stays behind the gate. For
//! `sep` a site keeps nothing.

pub(super) mod visit;

use crate::capabilities::tilted::{MomentMatching, Scratch, Sites};
use dp_pvi_records::RecordView;

/// Assumed density filtering: no factor is kept.
pub struct Adf {
    /// Natural parameters of the approximation.
    pub lambda: Vec<f64>,
    visit: Visit,
}

impl Adf {
    /// From an approximation.
    #[must_use]
    pub fn new(model: &dyn MomentMatching, lambda: Vec<f64>) -> Self {
        Self { visit: Visit::new(model), lambda }
    }

    /// Multiplies every record in once.
    pub fn pass<'a>(&mut self, records: impl Iterator<Item = RecordView<'a>>) {
        let Visit { sites, scratch, site, .. } = &mut self.visit;
        for record in records {
            site.fill(0.0);
            if sites.move_to(&self.lambda) && sites.site(record, scratch, site) {
                add(&mut self.lambda, site, 1.0);
            }
        }
    }
}

/// Expectation propagation: λ = λ0 + Σ f_n.
pub struct Factors {
    /// Natural parameters of the approximation.
    pub lambda: Vec<f64>,
    /// One factor per record, one after the other.
    factors: Vec<f64>,
    visit: Visit,
}

impl Factors {
    /// From a prior and `count` factors that are all `factor`.
    #[must_use]
    pub fn new(model: &dyn MomentMatching, prior: &[f64], factor: &[f64], count: usize) -> Self {
        let factors = factor.repeat(count);
        let mut lambda = prior.to_vec();
        factors.chunks_exact(factor.len()).for_each(|f| add(&mut lambda, f, 1.0));
        Self { lambda, factors, visit: Visit::new(model) }
    }

    /// Factor of the record at a position.
    #[must_use]
    pub fn factor(&self, position: usize) -> &[f64] {
        let len = self.visit.site.len();
        &self.factors[position * len..(position + 1) * len]
    }

    /// Visits all records in order: f_n ← f_n + ρ(f_n^new − f_n). Gives the largest change of a parameter of λ in one visit, relative to
    /// 1 + |parameter|, and the number of records skipped.
    pub fn pass<'a>(&mut self, records: impl Iterator<Item = RecordView<'a>>, damping: f64) -> Progress {
        let Visit { sites, scratch, site, cavity } = &mut self.visit;
        let mut progress = Progress::default();
        for (record, factor) in records.zip(self.factors.chunks_exact_mut(site.len())) {
            cavity.copy_from_slice(&self.lambda);
            add(cavity, factor, -1.0);
            site.copy_from_slice(factor);
            if !(sites.move_to(cavity) && sites.site(record, scratch, site)) {
                progress.skipped += 1;
                continue;
            }
            for ((l, f), new) in self.lambda.iter_mut().zip(factor).zip(site.iter()) {
                let change = damping * (new - *f);
                *f += change;
                *l += change;
                progress.change = progress.change.max(change.abs() / (1.0 + l.abs()));
            }
        }
        progress
    }
}

/// Stochastic expectation propagation: λ = λ0 + N f.
pub struct Shared {
    /// Natural parameters of the approximation.
    pub lambda: Vec<f64>,
    prior: Vec<f64>,
    /// N.
    count: f64,
    visit: Visit,
    /// f.
    shared: Vec<f64>,
    /// Σ (f_n − f).
    sum: Vec<f64>,
}

impl Shared {
    /// From a prior and an approximation: f = (λ − λ0)/N.
    #[must_use]
    pub fn new(model: &dyn MomentMatching, prior: Vec<f64>, lambda: Vec<f64>, count: f64) -> Self {
        let zeros = vec![0.0; lambda.len()];
        Self { visit: Visit::new(model), lambda, prior, count, shared: zeros.clone(), sum: zeros }
    }

    /// f, as of now.
    #[must_use]
    pub fn factor(&self) -> Vec<f64> {
        self.lambda.iter().zip(&self.prior).map(|(l, p)| (l - p) / self.count).collect()
    }

    /// Another prior and the approximation that it gives.
    pub fn set_prior(&mut self, prior: Vec<f64>, lambda: Vec<f64>) {
        (self.prior, self.lambda) = (prior, lambda);
    }

    /// Visits all records in order, each at the cavity of the moment: λ ← λ + step·(f_n − f). `step` = 1 is SEP.
    pub fn pass<'a>(&mut self, records: impl Iterator<Item = RecordView<'a>>, step: f64) -> Progress {
        self.pass_with(records, step, |_, _| {})
    }

    /// [`Self::pass`] with sites that `limit(site, shared factor)` may change before they count: clipped SEP.
    pub fn pass_with<'a>(
        &mut self,
        records: impl Iterator<Item = RecordView<'a>>,
        step: f64,
        limit: impl Fn(&mut [f64], &[f64]),
    ) -> Progress {
        let mut progress = Progress::default();
        for record in records {
            if !self.move_to_cavity() {
                progress.skipped += 1;
                continue;
            }
            let Visit { sites, scratch, site, .. } = &mut self.visit;
            site.copy_from_slice(&self.shared);
            if !sites.site(record, scratch, site) {
                progress.skipped += 1;
                continue;
            }
            limit(site, &self.shared);
            for ((l, f), new) in self.lambda.iter_mut().zip(&self.shared).zip(site.iter()) {
                let change = step * (new - f);
                *l += change;
                progress.change = progress.change.max(change.abs() / (1.0 + l.abs()));
            }
        }
        progress
    }

    /// All records at one cavity: λ ← λ + β Σ (f_n − f); for a Poisson sample of rate q give `step` = β/q.
    pub fn batch<'a>(&mut self, records: impl Iterator<Item = RecordView<'a>>, step: f64) -> Progress {
        let mut progress = Progress::default();
        if !self.move_to_cavity() {
            progress.skipped = usize::MAX;
            return progress;
        }
        self.sum.fill(0.0);
        let Visit { sites, scratch, site, .. } = &mut self.visit;
        for record in records {
            site.copy_from_slice(&self.shared);
            if sites.site(record, scratch, site) {
                self.sum.iter_mut().zip(site.iter()).zip(&self.shared).for_each(|((s, new), f)| *s += new - f);
            } else {
                progress.skipped += 1;
            }
        }
        for (l, s) in self.lambda.iter_mut().zip(&self.sum) {
            *l += step * s;
            progress.change = progress.change.max((step * s).abs() / (1.0 + l.abs()));
        }
        progress
    }

    /// f and the cavity λ − f.
    fn move_to_cavity(&mut self) -> bool {
        let share = 1.0 / self.count;
        let parts = self.lambda.iter().zip(&self.prior).zip(&mut self.shared).zip(&mut self.visit.cavity);
        for (((l, p), f), c) in parts {
            *f = (l - p) * share;
            *c = l - *f;
        }
        self.visit.sites.move_to(&self.visit.cavity)
    }
}

/// What a pass did.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Progress {
    /// Largest change of a parameter of λ, relative to 1 + |parameter|.
    pub change: f64,
    /// Records without a site.
    pub skipped: usize,
}

/// Memory of visits.
struct Visit {
    sites: Box<dyn Sites>,
    scratch: Scratch,
    site: Vec<f64>,
    cavity: Vec<f64>,
}

impl Visit {
    fn new(model: &dyn MomentMatching) -> Self {
        let zeros = vec![0.0; model.len()];
        Self { sites: model.sites(), scratch: Scratch::default(), site: zeros.clone(), cavity: zeros }
    }
}

fn add(to: &mut [f64], what: &[f64], weight: f64) {
    to.iter_mut().zip(what).for_each(|(t, w)| *t += weight * w);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::cast_possible_truncation, clippy::cast_precision_loss)]
mod tests;
