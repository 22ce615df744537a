#![no_main]
use dp_pvi_tests::fuzz;
libfuzzer_sys::fuzz_target!(init: fuzz::write_seeds("ids"), |input: &[u8]| fuzz::run_named("ids", input));
