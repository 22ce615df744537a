#![no_main]
use dp_pvi_tests::fuzz;

/// libFuzzer's hook ends the process at every panic. The Parquet library panics over some damaged files, and the loader makes an error of that; what
/// no one catches ends the process all the same.
fn start() {
    drop(std::panic::take_hook());
    std::panic::set_hook(Box::new(|_| ()));
    fuzz::write_seeds("load");
}

libfuzzer_sys::fuzz_target!(init: start(), |input: &[u8]| fuzz::run_named("load", input));
