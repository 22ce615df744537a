//! What is used up by using it, and what a closure over private values cannot do.

use dp_pvi_privacy::mechanism::release_non_private;
use dp_pvi_privacy::{Permit, Sensitive, StepPermit};

fn use_a_permit_twice(first: Sensitive<f64>, second: Sensitive<f64>, permit: Permit) {
    let _ = release_non_private(first, permit);
    let _ = release_non_private(second, permit);
}

fn split_a_permit_and_use_it(value: Sensitive<f64>, permit: Permit) -> Vec<StepPermit> {
    let steps = permit.into_steps().collect();
    let _ = release_non_private(value, permit);
    steps
}

fn release_a_sensitive_and_keep_it(value: Sensitive<f64>, permit: Permit) -> Sensitive<f64> {
    let _ = release_non_private(value, permit);
    value
}

fn carry_a_private_value_out(value: Sensitive<f64>) -> f64 {
    let mut outside = 0.0;
    let _ = value.map(|inside| outside = *inside);
    outside
}

fn hand_out_a_reference(value: &Sensitive<f64>) -> &f64 {
    let mut outside: &f64 = &0.0;
    let _ = value.map(|inside| {
        outside = inside;
    });
    outside
}

fn main() {}
