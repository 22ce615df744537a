//! What a model predicts.

use crate::survival::SurvivalModel;

/// What is predicted, and what the linear predictor is measured in.
#[derive(Clone, Copy)]
pub struct Response<'a> {
    /// What the label is.
    pub kind: ResponseKind<'a>,
    /// What the linear predictor is measured in, where a coefficient is an effect that people can read.
    pub scale: Option<PredictorScale>,
    /// Standard deviation of a label on the scale of the linear predictor: what a difference between sites is compared with.
    pub sd: f64,
}

/// What a label is.
#[derive(Clone, Copy)]
pub enum ResponseKind<'a> {
    /// A number.
    Number,
    /// A whole number.
    Count,
    /// One of so many classes.
    Classes(u32),
    /// A time until an event.
    Survival(&'a dyn SurvivalModel),
    /// There is none: the row itself has a density.
    Row,
}

/// What a linear predictor xᵀθ is measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PredictorScale {
    /// ln P(y = 1)/P(y = 0).
    LogOdds,
    /// ln E y of a count.
    LogRate,
    /// ln of a hazard.
    LogHazard,
    /// Φ⁻¹ P(y = 1).
    Probit,
    /// The encoded label.
    Label,
}

impl<'a> Response<'a> {
    /// That of a logit or a logarithm.
    const SD: f64 = 2.0;

    /// A label of which no coefficient is an effect that people can read.
    #[must_use]
    pub fn of(kind: ResponseKind<'a>) -> Self {
        Self { kind, scale: None, sd: Self::SD }
    }

    /// A number, which is the linear predictor and noise of standard deviation `sd`.
    #[must_use]
    pub fn number(sd: f64) -> Self {
        Self { kind: ResponseKind::Number, scale: Some(PredictorScale::Label), sd }
    }

    /// A count, the logarithm of whose mean is the linear predictor.
    #[must_use]
    pub fn count() -> Self {
        Self { kind: ResponseKind::Count, scale: Some(PredictorScale::LogRate), sd: Self::SD }
    }

    /// One of so many classes, by logits.
    #[must_use]
    pub fn classes(count: u32) -> Self {
        Self { kind: ResponseKind::Classes(count), scale: Some(PredictorScale::LogOdds), sd: Self::SD }
    }

    /// A time until an event, the logarithm of whose hazard is the linear predictor.
    #[must_use]
    pub fn survival(model: &'a dyn SurvivalModel) -> Self {
        Self { kind: ResponseKind::Survival(model), scale: Some(PredictorScale::LogHazard), sd: Self::SD }
    }

    /// What it says of survival times, where it is about such.
    #[must_use]
    pub fn as_survival(&self) -> Option<&'a dyn SurvivalModel> {
        if let ResponseKind::Survival(model) = self.kind { Some(model) } else { None }
    }

    /// Number of classes, where a class is predicted.
    #[must_use]
    pub fn class_count(&self) -> Option<u32> {
        if let ResponseKind::Classes(count) = self.kind { Some(count) } else { None }
    }
}
