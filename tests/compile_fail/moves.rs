//! What is used up by using it.

use dp_pvi_privacy::mechanism::{Summation, Summed, release_non_private};
use dp_pvi_privacy::{LocalAccess, Permit, Sensitive, StepPermit, UnitTable};

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

fn use_a_permit_twice(first: Sensitive<f64>, second: Sensitive<f64>, permit: Permit) {
    let _ = release_non_private(first, permit);
    let _ = release_non_private(second, permit);
}

fn split_a_permit_and_use_it(value: Sensitive<f64>, permit: Permit) -> Vec<StepPermit> {
    let steps = permit.into_steps().collect();
    let _ = release_non_private(value, permit);
    steps
}

fn look_twice_with_one_right(first: Sensitive<f64>, second: Sensitive<f64>, access: LocalAccess) {
    let _ = first.into_local_only(access);
    let _ = second.into_local_only(access);
}

fn release_a_sensitive_and_keep_it(value: Sensitive<f64>, permit: Permit) -> Sensitive<f64> {
    let _ = release_non_private(value, permit);
    value
}

fn sum_twice(sum: Summation<'_, Numbers>) -> Summed {
    let _ = sum.each(|_, _, (), _| ());
    sum.each(|_, _, (), _| ())
}

fn main() {}
