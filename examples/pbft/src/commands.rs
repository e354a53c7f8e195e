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
        command => node_kit::program::run(within(command))?,
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
        Command::Bench(args) => bench::run(&args).await,
        // Done above.
        Command::CheckConfig { .. } | Command::Keygen { .. } | Command::Sim(_) => {
            Ok(ExitCode::SUCCESS)
        }
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
