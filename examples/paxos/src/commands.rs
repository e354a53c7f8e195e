//! The commands.

mod bench;
mod client;
mod demo;
mod dump;
mod figures;
mod inspect;
mod member;
mod node;
mod proposing;
mod sim;
mod torture;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use console::say;
use node_kit::program;
use paxos::settings::Settings;

use crate::args::Command;

/// Cluster files of this program.
pub(crate) type Cluster = node_kit::cluster::Cluster<Settings>;

/// Nodes as processes of this machine.
type Local = node_kit::program::local::Local<Settings>;

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Sim(args) => sim::run(&args),
        Command::CheckConfig { config, id } => {
            say(node_kit::cluster::check::<Settings>(&config.config, id)?.trim_end())?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Bench(args) => program::run_on_this_thread(bench::run(&args))?,
        Command::Figures(args) => program::run_on_this_thread(figures::run(&args))?,
        command => program::run(within(command))?,
    }
}

async fn within(command: Command) -> Result<ExitCode> {
    match command {
        Command::Demo(args) => demo::run(&args).await,
        Command::Node(args) => node::run(&args).await,
        Command::Client(args) => client::run(args).await,
        Command::Member(args) => member::run(&args).await,
        Command::Status(args) => inspect::run(&args).await,
        Command::DumpLedger { folder } => dump::run(&folder).await,
        Command::Torture(args) => torture::run(&args).await,
        // Done above.
        Command::Bench(_) | Command::CheckConfig { .. } | Command::Figures(_) | Command::Sim(_) => {
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn read(config: &Path) -> Result<Cluster> {
    Ok(Cluster::read(config)?)
}
