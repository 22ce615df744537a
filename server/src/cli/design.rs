//! What a task's formula makes of a record: for `check`.

use std::fmt::Write as _;

use dp_pvi_posterior::schema::formula::{Design, Term};
use dp_pvi_posterior::task::ResolvedTask;
use serde_json::{Value, json};

/// The coefficients of a task with a formula, with their bounds and priors.
pub(super) struct Coefficients<'t> {
    task: &'t ResolvedTask,
    design: Design,
    bound: f64,
}

impl<'t> Coefficients<'t> {
    /// `None` for a task without a formula.
    pub(super) fn of(task: &'t ResolvedTask) -> Option<Self> {
        let schema = task.parsed_schema().ok()?;
        let design = schema.design()?.clone();
        Some(Self { task, design, bound: schema.row_norm_bound() })
    }

    fn names(&self, term: &Term) -> &[String] {
        &self.design.names()[term.first as usize..][..term.count as usize]
    }

    /// One term a line, then its coefficients.
    pub(super) fn text(&self) -> String {
        let width = self.design.terms().iter().map(|term| term.name.chars().count()).max().unwrap_or(0).max(4);
        let mut text = format!("formula                   {}\n{:width$}  bound  coefficients\n", self.design.formula(), "term");
        for term in self.design.terms() {
            let names = self.names(term);
            let names = if names == [term.name.as_str()] { String::new() } else { names.join(", ") };
            // Writing to a string cannot fail.
            let line = format!("{:width$}  {:5.3}  {:>3}  {names}", term.name, term.bound, term.count);
            let _ = writeln!(text, "{}", line.trim_end());
        }
        let prior = self.task.prior;
        let _ = writeln!(
            text,
            "rows                      {} coefficients, at most {:.4} long; prior of each: mean {}, standard deviation {}",
            self.design.dimension(),
            self.bound,
            prior.mean,
            prior.scale
        );
        text
    }

    pub(super) fn json(&self) -> Value {
        let term = |term: &Term| json!({ "term": term.name, "bound": term.bound, "coefficients": self.names(term) });
        json!({
            "formula": self.design.formula(),
            "norm_bound": self.bound,
            "prior": self.task.prior,
            "terms": self.design.terms().iter().map(term).collect::<Vec<_>>(),
        })
    }
}
