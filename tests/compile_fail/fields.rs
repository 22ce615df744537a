//! Structures of the gate written field by field.

use dp_pvi_privacy::ledger::Attachment;
use dp_pvi_privacy::shards::Grouping;
use dp_pvi_accounting::{DpEvent, PrivacyUnit, Relation};
use dp_pvi_privacy::{Pending, Permit, PermitScope, StepPermit, Units};
use dp_pvi_names::{Payload, ReleaseId};

fn build_a_permit(event: DpEvent, release: ReleaseId, scope: PermitScope) -> Permit {
    Permit { event, release, scope, fallback: None }
}

fn build_a_step(event: DpEvent, release: ReleaseId, scope: PermitScope) -> StepPermit {
    StepPermit { event, release, scope, fallback: None, step: 0, batch: None }
}

fn write_an_attachment(factor: Vec<f64>) -> Attachment {
    Attachment { message: Vec::new(), payload: Payload::Values(factor), pending: Pending::None, claim: None }
}

fn protect_something_else(scope: PermitScope) -> PermitScope {
    PermitScope { unit: PrivacyUnit::Record, relation: Relation::AddRemove, ..scope }
}

fn anything<T>() -> T {
    loop {}
}

fn build_units() -> Units<Vec<f64>> {
    Units { table: anything(), slots: None, grouping: Grouping::Units, threads: anything() }
}

fn main() {}
