//! The program: keys, nodes, clients, a demonstration, a load, and seeds of the simulated world.

mod args;
mod commands;

use std::process::ExitCode;

use clap::Parser as _;
use console::Closed;

use self::args::Args;

fn main() -> ExitCode {
    match commands::run(Args::parse().command()) {
        Ok(code) => code,
        Err(error) if error.is::<Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pbft: {error:#}");
            ExitCode::FAILURE
        }
    }
}
