//! What the site's own people see becomes nothing that leaves: no message, no state, no argument, no text.

use dp_pvi_privacy::ledger::{Attachment, Claim};
use dp_pvi_privacy::{Argument, LocalAccess, LocalOnly, Pending, Released, Sensitive};
use dp_pvi_names::Payload;
use ed25519_dalek::SigningKey;

fn debug<T: std::fmt::Debug>(_: T) {}
fn serialise<T: serde::Serialize>(_: T) {}
fn duplicate<T: Clone>(_: T) {}

fn print_what_was_seen(seen: &LocalOnly<f64>) {
    debug(seen);
}

fn serialise_what_was_seen(seen: LocalOnly<f64>) {
    serialise(seen);
}

fn copy_what_was_seen(seen: LocalOnly<f64>) {
    duplicate(seen);
}

fn copy_the_right_to_look(access: LocalAccess) {
    duplicate(access);
}

fn send_what_was_seen(claim: Claim, key: &SigningKey, seen: LocalOnly<Payload>) -> Attachment {
    Attachment::new(claim, seen, Pending::None, key, |_, _, _| Vec::new())
}

fn call_what_was_seen_released(seen: LocalOnly<f64>) -> Released<f64> {
    seen.into()
}

fn keep_what_was_seen_as_a_state(seen: LocalOnly<Vec<f64>>) -> Pending {
    Pending::Public(seen)
}

fn tell_a_function_what_was_seen(seen: &LocalOnly<Vec<f64>>) {
    let _ = Argument::copy_of(seen);
}

fn hide_what_was_seen(seen: &LocalOnly<Vec<f64>>) {
    let _ = Sensitive::constant(seen);
}

fn look_without_the_right(value: Sensitive<f64>) -> Option<LocalOnly<f64>> {
    value.into_local_only()
}

fn main() {}
