//! Labels of models of counts.

use crate::Schema;

impl Schema {
    /// The same schema for a model of counts: a label that is not a whole number is none, and what the label says of invalid cells holds for it.
    #[must_use]
    pub fn with_whole_label(self) -> Self {
        Self { whole_label: true, ..self }
    }

    /// Whether a number of the label that is not whole is no label.
    #[must_use]
    pub fn has_whole_label(&self) -> bool {
        self.whole_label
    }
}
