//! Plans two-level broadcast overlays for a network described in a file; draws and explains the
//! plan. Measures the network that it is to be.
//!
//! ```text
//! overlay plan --input network.toml --svg plan.svg --explain
//! ```
//!
//! The file is described in `docs/overlay-planning.md` of the repository.

#![forbid(unsafe_code)]

mod explain;
mod input;
mod json;
mod measure;
mod report;
mod svg;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use console::{Closed, say};

use self::input::Network;
use self::report::Report;

/// Two-level broadcast overlays.
#[derive(Debug, Parser)]
#[command(name = "overlay")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Plans a network: which site relays how much for whom. Explains the plan unless told what
    /// else to do.
    Plan {
        /// Sites, capacities, latencies and demands, as TOML or, with the ending .json, as JSON.
        #[arg(long, value_name = "FILE")]
        input: PathBuf,
        /// Draws sites, trees and loads.
        #[arg(long, value_name = "OUT")]
        svg: Option<PathBuf>,
        /// Says who relays how much for whom, and which uplinks are full.
        #[arg(long)]
        explain: bool,
        /// Prints the plan as JSON.
        #[arg(long, conflicts_with = "explain")]
        json: bool,
    },
    /// Measures uplinks, downlinks and latencies between hosts, and writes them as the file that
    /// `plan` reads. To be started on every host, with the same sites.
    Measure(measure::Measure),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Plan { input, svg, explain, json } => {
            let explain = explain || (svg.is_none() && !json);
            run(&input, svg.as_deref(), explain, json)
        }
        Command::Measure(measure) => measure.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(input: &Path, svg: Option<&Path>, explain: bool, json: bool) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(input)
        .with_context(|| format!("cannot read {}", input.display()))?;
    let is_json = input.extension().is_some_and(|extension| extension == "json");
    let network = Network::parse(&text, is_json).with_context(|| input.display().to_string())?;
    let report = Report::new(&network).with_context(|| input.display().to_string())?;
    if let Some(path) = svg {
        std::fs::write(path, svg::draw(&report))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    let mut text = String::new();
    if explain {
        text += &explain::text(&report);
    }
    if json {
        text += &format!("{:#}\n", json::value(&report));
    }
    if text.is_empty() { Ok(()) } else { say(text.trim_end()) }
}
