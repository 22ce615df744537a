//! What has no method, no trait and no visible field.

use dp_pvi_privacy::ledger::{Attachment, Claim};
use dp_pvi_privacy::mechanism::{CleanTerms, Message, NoiseShare};
use dp_pvi_accounting::DpEvent;
use dp_pvi_privacy::{Argument, Pending, Permit, PermitScope, Released, SecureNoise, Sensitive, Shards, SiteState, StepPermit, UnitTable, Units};
use dp_pvi_names::{LatticeVector, Payload, ReleaseId};
use ed25519_dalek::SigningKey;

fn debug<T: std::fmt::Debug>(_: T) {}
fn display<T: std::fmt::Display>(_: T) {}
fn serialise<T: serde::Serialize>(_: T) {}
fn deserialise<T: serde::de::DeserializeOwned>() {}
fn duplicate<T: Clone>(_: T) {}

fn print_a_sensitive(value: Sensitive<f64>) {
    debug(&value);
    display(&value);
}

fn copy_a_sensitive(value: Sensitive<f64>) {
    duplicate(value);
}

fn serialise_a_sensitive(value: Sensitive<f64>) {
    serialise(value);
}

fn dereference_a_sensitive(value: Sensitive<f64>) -> f64 {
    *value
}

fn reach_into_a_sensitive(value: Sensitive<f64>) -> f64 {
    value.0
}

fn read_units<T: UnitTable>(units: &Units<T>) -> usize {
    units.table.len()
}

fn count_units<T: UnitTable>(units: &Units<T>) -> usize {
    units.len()
}

fn print_units<T: UnitTable>(units: &Units<T>) {
    debug(units);
}

fn release_by_conversion(value: f64) -> Released<f64> {
    value.into()
}

fn mint_a_permit(event: DpEvent, release: ReleaseId, scope: PermitScope) -> Permit {
    Permit::mint(event, release, scope)
}

fn clone_a_permit(permit: &Permit) -> Permit {
    permit.clone()
}

fn clone_a_step(permit: &StepPermit) -> StepPermit {
    permit.clone()
}

fn send_a_plain_factor(claim: Claim, key: &SigningKey, factor: Vec<f64>) -> Attachment {
    Attachment::new(claim, Payload::Values(factor), Pending::None, key, |_, _, _| Vec::new())
}

fn read_an_attachment_from_bytes() {
    deserialise::<Attachment>();
}

fn read_a_release_from_bytes() {
    deserialise::<Released<f64>>();
}

fn print_a_pending_factor(attachment: &Attachment) {
    debug(attachment);
}

fn reach_a_pending_factor(attachment: &Attachment) -> Option<Vec<f64>> {
    attachment.pending.clone()
}

fn call_a_plain_change_public(change: Vec<f64>) -> Pending {
    Pending::Public(change)
}

fn call_a_private_change_public(change: Sensitive<Vec<f64>>) -> Pending {
    Pending::Public(change)
}

fn carry_a_noise_share(share: NoiseShare<LatticeVector>) -> Pending {
    Pending::Private(share)
}

fn send_a_private_state(claim: Claim, key: &SigningKey, state: &Sensitive<Vec<f64>>) -> Attachment {
    let payload = state.map(&Argument::nothing(), |(), values| Payload::Values(values.clone()));
    Attachment::new(claim, payload, Pending::None, key, |_, _, _| Vec::new())
}

fn read_a_private_state(state: SiteState) -> Option<Vec<f64>> {
    match state {
        SiteState::Private(values) => Some(values.0),
        _ => None,
    }
}

fn copy_a_private_state(state: &SiteState) -> SiteState {
    state.clone()
}

fn serialise_a_pending_change(change: Pending) {
    serialise(change);
}

fn store_a_noise_share(claim: Claim, key: &SigningKey, share: NoiseShare<LatticeVector>) -> Attachment {
    Attachment::masked(claim, share, &Argument::nothing(), Pending::None, key, |_, _, (), _| Vec::new())
}

fn call_a_vector_masked(claim: Claim, key: &SigningKey, vector: LatticeVector) -> Attachment {
    Attachment::masked(claim, vector, &Argument::nothing(), Pending::None, key, |_, _, (), _| Vec::new())
}

fn count_shards<T: UnitTable>(shards: &Units<Shards<'_, T>>) -> usize {
    shards.len()
}

fn look_at_the_clean_terms(terms: Sensitive<CleanTerms>) -> Vec<f64> {
    terms.to_dense()
}

fn send_the_clean_terms(terms: &Sensitive<CleanTerms>) -> Message {
    Message::Released(terms.map(&Argument::nothing(), |(), terms| Payload::Values(terms.sum())))
}

fn seed_the_production_noise() {
    let _ = SecureNoise::from_seed([0; 32]);
    let _ = SecureNoise { seed: 7 };
}

fn main() {}
