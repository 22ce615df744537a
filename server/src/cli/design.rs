//! What a task's formula makes of a record: for `check`.

use std::fmt::Write as _;

use dp_pvi_posterior::schema::formula::{Design, Term};
use dp_pvi_posterior::spec::Prior;
use dp_pvi_posterior::spec::words::Short;
use dp_pvi_posterior::task::ResolvedTask;
use serde_json::{Value, json};

/// The coefficients of a task with a formula, with their bounds and priors.
pub(super) struct Coefficients<'t> {
    task: &'t ResolvedTask,
    design: Design,
    prior: Prior,
    bound: f64,
}

impl<'t> Coefficients<'t> {
    /// `None` for a task without a formula.
    pub(super) fn of(task: &'t ResolvedTask) -> Option<Self> {
        let schema = task.parsed_schema().ok()?;
        let design = schema.design()?.clone();
        Some(Self { task, design, prior: task.setting().priors(), bound: schema.row_norm_bound() })
    }

    fn names(&self, term: &Term) -> &[String] {
        &self.design.names()[term.first as usize..][..term.count as usize]
    }

    /// Mean and standard deviation of a term's coefficients, or how their scale comes about. Classes of a model have the same.
    fn prior_of(&self, term: &Term) -> String {
        let first = (self.task.model.rules().own_before_rows() + term.first) as usize;
        let own = first..first + term.count as usize;
        let group = self.prior.groups.iter().find(|group| own.contains(&group.first));
        let scale = group.map(|group| match group.fixed {
            Some(square) => format!("scale {}", Short(square.sqrt())),
            None => format!("scale learned, {} at first", Short(group.start().sqrt())),
        });
        // The line of a curve has a prior of its own before its bends.
        let free = group.is_none_or(|group| group.first > own.start);
        let free =
            free.then(|| format!("N({}, {}²)", Short(self.prior.mean[own.start]), Short(self.prior.precision[own.start].powf(-0.5))));
        free.into_iter().chain(scale).collect::<Vec<_>>().join("; ")
    }

    /// One term a line, then its coefficients.
    pub(super) fn text(&self) -> String {
        let width = self.design.terms().iter().map(|term| term.name.chars().count()).max().unwrap_or(0).max(4);
        let mut text =
            format!("formula                   {}\n{:width$}  bound  coefficients, their prior and names\n", self.design.formula(), "term");
        for term in self.design.terms() {
            let names = self.names(term);
            let names = if names == [term.name.as_str()] { String::new() } else { names.join(", ") };
            // Writing to a string cannot fail.
            let line = format!("{:width$}  {:5.3}  {:>3}  {:26}  {names}", term.name, term.bound, term.count, self.prior_of(term));
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let _ = writeln!(text, "rows                      {} coefficients, at most {:.4} long", self.design.dimension(), self.bound);
        text
    }

    pub(super) fn json(&self) -> Value {
        let term =
            |term: &Term| json!({ "term": term.name, "bound": term.bound, "coefficients": self.names(term), "prior": self.prior_of(term) });
        json!({
            "formula": self.design.formula(),
            "norm_bound": self.bound,
            "prior": self.task.prior,
            "terms": self.design.terms().iter().map(term).collect::<Vec<_>>(),
        })
    }
}
