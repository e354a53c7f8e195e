//! The commands.

mod bench;
mod client;
mod demo;
mod dump;
mod floor;
mod inspect;
mod local;
mod member;
mod node;
mod sim;
mod torture;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Result;
use console::say;
use node_kit::program;
use pbft::key_file::SecretKey;
use pbft::settings::Settings;

use crate::args::Command;

/// Cluster files of this program.
pub(crate) type Cluster = node_kit::cluster::Cluster<Settings>;

pub(crate) fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Sim(args) => sim::run(&args),
        Command::Keygen { file } => keygen(&file),
        Command::CheckConfig { config, id } => {
            say(node_kit::cluster::check::<Settings>(&config.config, id)?.trim_end())?;
            if let Some(id) = id {
                node::signer(&read(&config.config)?, id)?;
                say(format_args!("the secret key of node {id} is that of the file"))?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Demo(args) => program::run(demo::run(&args))?,
        Command::Node(args) => program::run(node::run(&args))?,
        Command::Client(args) => program::run(client::run(args))?,
        Command::Member(args) => program::run(member::run(&args))?,
        Command::Status(args) => program::run(inspect::run(&args))?,
        Command::DumpLedger { folder } => program::run(dump::run(&folder))?,
        Command::Torture(args) => program::run(torture::run(&args))?,
        Command::Bench(args) => program::run(bench::run(&args))?,
    }
}

fn keygen(file: &Path) -> Result<ExitCode> {
    let key = SecretKey::generate()?;
    key.write(file)?;
    say(key.public())?;
    Ok(ExitCode::SUCCESS)
}

fn read(config: &Path) -> Result<Cluster> {
    Ok(Cluster::read(config)?)
}
