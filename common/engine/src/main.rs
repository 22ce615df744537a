//! `dp-pvi-site-engine`: scheduler, executors, and what a site's client starts for a sum.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use dp_pvi_site_engine::config::Config;
use dp_pvi_site_engine::{cluster, keys, visit};

/// Sums the terms of a site's records on a cluster of the site.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Draws the site's key, and makes certificates for scheduler, executors and head.
    Keys {
        /// Folder that is made for them; it must not exist.
        #[arg(long)]
        out: PathBuf,
    },
    /// Shares out the work. One process a site.
    Scheduler {
        /// Its file.
        #[arg(long)]
        config: PathBuf,
    },
    /// Sums blocks of the snapshot. Any number of processes a site.
    Executor {
        /// Its file.
        #[arg(long)]
        config: PathBuf,
    },
    /// Says whether a sum could be made now: ends with 0 where the scheduler is there and has an executor. The site's client starts it.
    Ready {
        /// The file of `sum`.
        #[arg(long)]
        config: PathBuf,
    },
    /// Asks for one sum: the question comes on standard input, the answers go to standard output. The site's client starts it.
    Sum {
        /// Its file.
        #[arg(long)]
        config: PathBuf,
        /// Folder of the snapshot.
        #[arg(long)]
        snapshot: PathBuf,
    },
}

fn main() -> ExitCode {
    // Warnings and errors only: what is said below them are plans and tasks.
    env_logger::Builder::new().filter_level(log::LevelFilter::Error).format_timestamp_secs().init();
    match run(Arguments::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            let _ = writeln!(std::io::stderr(), "dp-pvi-site-engine: {problem}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Keys { out } => keys::write(&out),
        Command::Scheduler { config } => within(cluster::scheduler(Config::read(&config)?)),
        Command::Executor { config } => within(cluster::executor(Config::read(&config)?)),
        Command::Ready { config } => within(visit::ready(Config::read(&config)?)),
        Command::Sum { config, snapshot } => within(visit::sum(Config::read(&config)?, snapshot)),
    }
}

fn within(work: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|e| format!("no thread can be started ({e})"))?;
    runtime.block_on(work)
}
