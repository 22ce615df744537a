#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| dp_pvi_tests::fuzz::run_named("events", input));
