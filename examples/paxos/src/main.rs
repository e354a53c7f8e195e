//! The program: nodes, clients, a demonstration, a load, and seeds of the simulations.

mod args;
mod commands;

use std::process::ExitCode;

use clap::Parser as _;
use console::Closed;

use self::args::{Args, Command, DemoArgs};

fn main() -> ExitCode {
    let command = Args::parse().command.unwrap_or_else(|| Command::Demo(DemoArgs::default()));
    match commands::run(command) {
        Ok(code) => code,
        Err(error) if error.is::<Closed>() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("paxos: {error:#}");
            ExitCode::FAILURE
        }
    }
}
