//! The program: nodes, clients, a demonstration, a load, and seeds of the simulations.

mod args;
mod commands;

use std::process::ExitCode;

use clap::Parser as _;

use self::args::{Args, Command, DemoArgs};

fn main() -> ExitCode {
    let command = Args::parse().command.unwrap_or_else(|| Command::Demo(DemoArgs::default()));
    match commands::run(command) {
        Ok(code) => code,
        // Who reads has had enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("paxos: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
