//! The shipped client with noise that two runs share: its seed is in `DP_PVI_TEST_SEED`.

use std::process::ExitCode;

use dp_pvi_simulation::noise::SeededNoise;

fn main() -> ExitCode {
    let seed = std::env::var("DP_PVI_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    match seed {
        Some(seed) => dp_pvi_client::cli::main_with(|store| store, SeededNoise::new(seed)),
        None => ExitCode::from(2),
    }
}
