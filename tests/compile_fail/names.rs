//! What cannot even be named: the inside of the gate.

use dp_pvi_privacy::ledger::totals::Totals;
use dp_pvi_privacy::{LocalAccess, LocalOnly, Released, Sensitive, WholeSite};

fn build_a_release() -> Released<Vec<f64>> {
    Released(vec![1.0])
}

fn build_a_sensitive() -> Sensitive<f64> {
    Sensitive(1.0)
}

fn open_a_sensitive(value: Sensitive<f64>) -> f64 {
    let Sensitive(inside) = value;
    inside
}

fn call_a_table_one_unit(rows: &Vec<f64>) -> WholeSite<'_, Vec<f64>> {
    WholeSite(rows)
}

fn make_the_right_to_look() -> LocalAccess {
    LocalAccess(())
}

fn call_a_value_seen(value: f64) -> LocalOnly<f64> {
    LocalOnly(value)
}

fn see_a_panic(run: impl FnOnce()) -> bool {
    dp_pvi_privacy::panic_redaction::redact_panics(run).is_err()
}

fn name_the_seal(_: dp_pvi_privacy::Unsealed) {}

struct Forgets;

impl dp_pvi_privacy::Sealed for Forgets {}

fn main() {}
