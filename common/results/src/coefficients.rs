//! What a task's formula makes of a record: its coefficients with their bounds and priors, for `check`.

use std::fmt::Write as _;

use dp_pvi_models::spec::Prior;
use dp_pvi_models::spec::words::Short;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_schema::formula::{Design, Term};
use serde_json::{Value, json};

/// The coefficients of a task with a formula, with their bounds and priors.
#[derive(Debug)]
pub struct Coefficients<'t> {
    task: &'t ResolvedTask,
    design: Design,
    prior: Prior,
    bound: f64,
}

impl<'t> Coefficients<'t> {
    /// `None` where rows are the columns as the schema codes them.
    #[must_use]
    pub fn of(task: &'t ResolvedTask) -> Option<Self> {
        let schema = task.parsed_schema().ok()?;
        let design = schema.design().filter(|design| !design.is_coded())?.clone();
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

    /// Parameters of the model's own, before those of a row: hazards, thresholds. Names and priors.
    fn own(&self) -> Vec<(String, String)> {
        let before = self.task.model.rules().own_before_rows() as usize;
        let names = self.task.parameter_names().unwrap_or_default();
        let prior = |j: usize| format!("N({}, {}²)", Short(self.prior.mean[j]), Short(self.prior.precision[j].powf(-0.5)));
        names.into_iter().take(before).enumerate().map(|(j, name)| (name, prior(j))).collect()
    }

    /// One term a line, then its coefficients.
    #[must_use]
    pub fn text(&self) -> String {
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
        for (name, prior) in self.own() {
            let _ = writeln!(text, "{name:width$}  {:>5}  {:>3}  {prior}", "", 1);
        }
        if let Some(weights) = self.task.design.as_ref().and_then(|design| design.weights.as_ref()) {
            let _ = writeln!(
                text,
                "weights                   column `{}`, at most {}: the noise is that much larger",
                weights.column, weights.largest
            );
        }
        let _ = writeln!(text, "rows                      {} coefficients, at most {:.4} long", self.design.dimension(), self.bound);
        text
    }

    /// The same as a JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        let term =
            |term: &Term| json!({ "term": term.name, "bound": term.bound, "coefficients": self.names(term), "prior": self.prior_of(term) });
        json!({
            "formula": self.design.formula(),
            "norm_bound": self.bound,
            "prior": self.task.prior,
            "terms": self.design.terms().iter().map(term).collect::<Vec<_>>(),
            "own": self.own().iter().map(|(name, prior)| json!({ "name": name, "prior": prior })).collect::<Vec<_>>(),
        })
    }
}
