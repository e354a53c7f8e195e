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
        Command::Demo(args) => program::run(demo::run(&args))?,
        Command::Node(args) => program::run(node::run(&args))?,
        Command::Client(args) => program::run(client::run(args))?,
        Command::Member(args) => program::run(member::run(&args))?,
        Command::Status(args) => program::run(inspect::run(&args))?,
        Command::DumpLedger { folder } => program::run(dump::run(&folder))?,
        Command::Torture(args) => program::run(torture::run(&args))?,
    }
}

fn read(config: &Path) -> Result<Cluster> {
    Ok(Cluster::read(config)?)
}
