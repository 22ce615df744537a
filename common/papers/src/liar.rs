//! One enrolled liar among ten honest sites, UCI Adult, ε = 1: by how much the longest vectors that a server accepts move the posterior.
//!
//! `cargo run --release -p dp-pvi-papers -- run liar deploy/experiments/adult-natural-gradient.toml DATA_DIR`
#![allow(clippy::print_stdout, reason = "an example")]

use std::path::Path;

use dp_pvi_math::expfam::any::Gaussian;
use dp_pvi_simulation::experiment::liar::Lie;
use dp_pvi_simulation::experiment::{Experiment, Session, processors};

/// Runs it with the arguments that follow its name.
///
/// # Errors
/// What it reads or writes.
pub fn main(arguments: Vec<String>) -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = arguments.into_iter();
    let file = arguments.next().ok_or("name an experiment of natural gradients")?;
    let data = arguments.next().ok_or("name the directory of the data")?;
    let experiment = Experiment::read_with(Path::new(&file), &["clients.number=10".parse()?, "phases.min_sites=10".parse()?])?;
    let session = Session::open(experiment, Path::new(&file), Path::new(&data))?;
    let means = |state: &[f64]| -> Result<(Vec<f64>, Vec<f64>), dp_pvi_math::expfam::InvalidParameters> {
        let posterior = Gaussian::from_natural(session.task().family(), session.task().posterior(state).to_vec())?;
        let sds = posterior.standard().variances().iter().map(|v| v.sqrt()).collect();
        Ok((posterior.standard().mean().to_vec(), sds))
    };
    println!(
        "units  lie  longest/C first..last  log-likelihood honest -> spoiled  largest |move| of a coefficient (in its sd)  root mean square"
    );
    for units in [391, 3907, 39_073] {
        for lie in [Lie::All, Lie::Gradient, Lie::One(0), Lie::Curvature, Lie::Swinging, Lie::Mirror] {
            let damage = session.run_with_liar(1, processors(), units, lie)?;
            let ((honest, sd), (spoiled, _)) = (means(&damage.honest.lambda)?, means(&damage.spoiled.lambda)?);
            let moves: Vec<f64> = honest.iter().zip(&spoiled).map(|(a, b)| (a - b).abs()).collect();
            let (at, most) = moves.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or((0, 0.0));
            #[allow(clippy::cast_precision_loss)]
            let square = (moves.iter().map(|m| m * m).sum::<f64>() / moves.len() as f64).sqrt();
            println!(
                "{units:>6} {lie:?}  {:.0}..{:.0}  {:.4} -> {:.4}  {most:.3} ({:.1})  {square:.3}",
                damage.records.first().copied().unwrap_or_default(),
                damage.records.last().copied().unwrap_or_default(),
                damage.honest.end.log_likelihood,
                damage.spoiled.end.log_likelihood,
                most / sd[at],
            );
        }
    }
    Ok(())
}
