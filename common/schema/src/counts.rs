//! Outcomes of models of counts.

use crate::{LabelKind, NumberRule, Schema, Transform};

impl Schema {
    /// The same schema for a model of counts: the outcome is the number itself, without transform, centre and scale, and one that is not whole is none.
    #[must_use]
    pub fn with_counts(mut self) -> Self {
        if let LabelKind::Number { rule, whole } = &mut self.label.kind {
            *rule = NumberRule { transform: Transform::Identity, centre: 0.0, scale: 1.0, ..*rule };
            *whole = true;
        }
        self
    }
}
