//! Structures of the gate written field by field.

use dp_pvi_privacy::ledger::Attachment;
use dp_pvi_privacy::{DpEvent, Payload, Pending, Permit, ReleaseId, StepPermit};

fn build_a_permit(event: DpEvent, release: ReleaseId) -> Permit {
    Permit { event, release }
}

fn build_a_step(event: DpEvent, release: ReleaseId) -> StepPermit {
    StepPermit { event, release, step: 0 }
}

fn write_an_attachment(factor: Vec<f64>) -> Attachment {
    Attachment { message: Vec::new(), payload: Payload::Values(factor), pending: Pending::None }
}

fn main() {}
