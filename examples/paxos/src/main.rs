//! The program: nodes, clients, a demonstration, a load, and seeds of the simulations.

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
            eprintln!("paxos: {error:#}");
            ExitCode::FAILURE
        }
    }
}
