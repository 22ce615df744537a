//! Ways out of the gate that safe Rust once had: a function over private values captures nothing, is told public values only as a copy, and a
//! `Released` value or a message is not made of anything else.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use dp_pvi_privacy::ledger::{Attachment, Claim};
use dp_pvi_privacy::mechanism::{LatticeSum, ReleaseError};
use dp_pvi_privacy::{Argument, Pending, Released, SecureNoise, Sensitive, StepPermit, UnitTable, Units};
use dp_pvi_names::Payload;
use ed25519_dalek::SigningKey;

struct Numbers(Vec<f64>);

impl UnitTable for Numbers {
    type Unit<'a> = f64;
    fn len(&self) -> usize {
        self.0.len()
    }
    fn unit(&self, position: usize) -> f64 {
        self.0[position]
    }
}

fn carry_records_out_in_a_cell(units: &Units<Numbers>) -> Vec<f64> {
    let outside = RefCell::new(Vec::new());
    let _ = units.map(&Argument::nothing(), |(), table| outside.borrow_mut().extend(&table.0));
    outside.into_inner()
}

fn carry_a_private_value_out(value: &Sensitive<f64>) -> f64 {
    let outside = Mutex::new(0.0);
    let _ = value.map(&Argument::nothing(), |(), inside| *outside.lock().unwrap() = *inside);
    outside.into_inner().unwrap()
}

fn carry_two_values_out(units: &Units<Numbers>, value: &Sensitive<f64>) -> f64 {
    let mut outside = 0.0;
    let _ = units.map_with(value, &Argument::nothing(), |(), _, inside| outside = *inside);
    outside
}

fn carry_a_unit_out_of_a_sum(sum: &LatticeSum, units: &Units<Numbers>, permit: StepPermit) -> Vec<f64> {
    let outside = RefCell::new(Vec::new());
    let _: Result<_, ReleaseError> = sum.release_sum(
        units,
        &Argument::nothing(),
        |(), sum| Ok(sum.each(|unit, _, (), _| outside.borrow_mut().push(unit))),
        permit,
        &SecureNoise,
    );
    outside.into_inner()
}

fn panic_only_where_a_caught_place_is_known(units: &Units<Numbers>, place: usize) {
    let _ = units.map(&Argument::nothing(), |(), table| std::panic::panic_any(table.0[place]));
}

fn tell_a_function_of_a_shared_place(units: &Units<Numbers>, outside: Arc<Mutex<Vec<f64>>>) {
    let outside = Argument::copy_of(&outside).unwrap();
    let _ = units.map(&outside, |outside, table| outside.lock().unwrap().extend(&table.0));
}

fn hide_a_shared_place_in_a_private_value(outside: &Arc<Mutex<Vec<f64>>>) -> Sensitive<Arc<Mutex<Vec<f64>>>> {
    Sensitive::constant(outside).unwrap()
}

fn look_into_an_argument(argument: &Argument<RefCell<Vec<f64>>>) -> Vec<f64> {
    argument.fresh().borrow().clone()
}

fn call_anything_released(released: Released<f64>, plain: Vec<f64>) -> Released<Vec<f64>> {
    released.map(&Argument::nothing(), |(), _| plain.clone())
}

fn send_any_bytes(bytes: Vec<u8>, payload: Released<Payload>) -> Attachment {
    Attachment::new(bytes, payload, Pending::None)
}

fn write_any_bytes(claim: Claim, bytes: Vec<u8>, payload: Released<Payload>, key: &SigningKey) -> Attachment {
    Attachment::new(claim, payload, Pending::None, key, |_, _, _| bytes.clone())
}

fn main() {}
