//! What θ is made of.

use dp_pvi_schema::{LabelKind, Schema};

use crate::spec::{Prior, PriorSpec};

/// The parameters of a model, in order: its own ones before the coefficients of a row, these, and its own ones behind them; or numbers of which
/// only all together mean something.
#[derive(Debug, Clone, PartialEq)]
pub struct Parameters(Form);

#[derive(Debug, Clone, PartialEq)]
enum Form {
    Rows {
        features: u32,
        before: Vec<OwnParameter>,
        after: Vec<OwnParameter>,
        intercept: bool,
    },
    /// Class by class, the reference without.
    Classes {
        features: u32,
        copies: u32,
    },
    Whole {
        count: u32,
        columns: bool,
    },
}

/// A parameter of a model's own.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnParameter {
    /// What it is called in results.
    pub name: String,
    /// Mean of its prior.
    pub mean: f64,
    /// Standard deviation of its prior.
    pub scale: f64,
}

impl Parameters {
    /// One coefficient for every entry of a row.
    #[must_use]
    pub fn of_row(features: u32) -> Self {
        Self(Form::Rows { features, before: Vec::new(), after: Vec::new(), intercept: true })
    }

    /// The coefficients of a row between parameters of the model's own. Where `intercept` is false, the intercept of a formula counts for the coding of
    /// factors and is then left out of the rows: something of the model's own is in its place.
    #[must_use]
    pub fn between(before: Vec<OwnParameter>, features: u32, after: Vec<OwnParameter>, intercept: bool) -> Self {
        Self(Form::Rows { features, before, after, intercept })
    }

    /// The coefficients of a row once for every class that the outcome's column lists but the first, class by class.
    #[must_use]
    pub fn of_classes(features: u32, classes: u32) -> Self {
        Self(Form::Classes { features, copies: classes.saturating_sub(1).max(1) })
    }

    /// So many numbers without names, under the prior of every parameter.
    #[must_use]
    pub fn unnamed(count: u32) -> Self {
        Self(Form::Whole { count, columns: false })
    }

    /// So many numbers, the first of which results list under the names of the columns. The intercept of a formula is none of the columns.
    #[must_use]
    pub fn from_columns(count: u32) -> Self {
        Self(Form::Whole { count, columns: true })
    }

    /// d. Beyond what is possible it is the largest number, which a task refuses.
    #[must_use]
    pub fn count(&self) -> u32 {
        #[allow(clippy::cast_possible_truncation, reason = "models refuse so many parameters of their own")]
        let own = |own: &[OwnParameter]| own.len() as u32;
        match &self.0 {
            Form::Rows { features, before, after, .. } => features.saturating_add(own(before)).saturating_add(own(after)),
            Form::Classes { features, copies } => copies.saturating_mul(*features),
            Form::Whole { count, .. } => *count,
        }
    }

    /// Parameters of the model's own before the coefficients of a row.
    #[must_use]
    #[allow(clippy::cast_possible_truncation, reason = "models refuse so many parameters of their own")]
    pub fn before_rows(&self) -> u32 {
        if let Form::Rows { before, .. } = &self.0 { before.len() as u32 } else { 0 }
    }

    /// Whether the intercept of a formula is a coefficient.
    #[must_use]
    pub fn has_intercept(&self) -> bool {
        match &self.0 {
            Form::Rows { intercept, .. } => *intercept,
            Form::Classes { .. } => true,
            Form::Whole { columns, .. } => !columns,
        }
    }

    /// The prior of all parameters, from that of the entries of a row; `spec` for every parameter where they are not those of rows.
    #[must_use]
    pub fn prior(&self, rows: Prior, spec: PriorSpec) -> Prior {
        match &self.0 {
            Form::Rows { before, after, .. } => {
                let rows = before.iter().rev().fold(rows, |prior, own| prior.after(own.mean, own.scale));
                after.iter().fold(rows, |prior, own| prior.and(own.mean, own.scale))
            }
            Form::Classes { copies, .. } => rows.repeated(*copies as usize),
            Form::Whole { count, .. } if *count as usize != rows.len() => Prior::isotropic(spec, *count as usize),
            Form::Whole { .. } => rows,
        }
    }

    /// Names of the parameters that mean something by themselves, in order: `class: name` where every class has its own; none where single
    /// parameters mean nothing.
    #[must_use]
    pub fn names(&self, schema: &Schema) -> Vec<String> {
        let columns = schema.coefficient_names();
        match &self.0 {
            Form::Rows { before, after, .. } => {
                let names = |own: &[OwnParameter]| own.iter().map(|own| own.name.clone()).collect::<Vec<_>>();
                [names(before), columns, names(after)].concat()
            }
            Form::Classes { .. } => {
                let of_class = |class: &String| columns.iter().map(|name| format!("{class}: {name}")).collect::<Vec<_>>();
                self.classes(schema).iter().flat_map(of_class).collect()
            }
            Form::Whole { columns: true, .. } => columns,
            Form::Whole { columns: false, .. } => Vec::new(),
        }
    }

    /// Classes of which each has a copy of all coefficients of a row, one after the other; none where there is one linear predictor.
    #[must_use]
    pub fn classes(&self, schema: &Schema) -> Vec<String> {
        match (&self.0, &schema.label().kind) {
            (Form::Classes { .. }, LabelKind::Classes { values }) => values.iter().skip(1).cloned().collect(),
            _ => Vec::new(),
        }
    }
}
