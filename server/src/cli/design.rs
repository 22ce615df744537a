//! What a task's formula makes of a record: for `check`.

use std::fmt::Write as _;

use dp_pvi_models::spec::Prior;
use dp_pvi_models::spec::words::Short;
use dp_pvi_posterior::task::ResolvedTask;
use dp_pvi_schema::formula::{Design, Term};
use serde_json::{Value, json};

use crate::ca::Enrolled;

/// Where the list of sites that have effects is not that of the enrolled sites.
pub(super) fn unlisted(task: &ResolvedTask, enrolled: &Enrolled) -> Vec<String> {
    let listed: Vec<String> =
        task.parsed_schema().ok().and_then(|schema| schema.design().map(|design| design.sites().to_vec())).unwrap_or_default();
    if listed.is_empty() {
        return Vec::new();
    }
    let enrolled: Vec<&str> = enrolled.names_of_sites().collect();
    let outside = enrolled.iter().filter(|site| !listed.iter().any(|name| name == *site));
    let mut warnings: Vec<String> = outside
        .map(|site| {
            format!(
                "site {site} is enrolled, but not in `sites` of [model]: it will be refused; add it to the list, whose sites have effects"
            )
        })
        .collect();
    let absent: Vec<&str> = listed.iter().map(String::as_str).filter(|name| !enrolled.contains(name)).collect();
    if !absent.is_empty() && !enrolled.is_empty() {
        let names = absent.join(", ");
        warnings.push(format!("not enrolled, but in `sites` of [model]: {names}; their effects stay what the prior says unless they join"));
    }
    warnings
}

/// The coefficients of a task with a formula, with their bounds and priors.
pub(super) struct Coefficients<'t> {
    task: &'t ResolvedTask,
    design: Design,
    prior: Prior,
    bound: f64,
}

impl<'t> Coefficients<'t> {
    /// `None` where rows are the columns as the schema codes them.
    pub(super) fn of(task: &'t ResolvedTask) -> Option<Self> {
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

    pub(super) fn json(&self) -> Value {
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
