//! The program: keys, nodes, clients, a demonstration, a load, and seeds of the simulated world.

mod args;
mod commands;

use std::process::ExitCode;

use clap::Parser as _;

use self::args::Args;

fn main() -> ExitCode {
    match commands::run(Args::parse()) {
        Ok(code) => code,
        // Who reads has had enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pbft: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let error = error.downcast_ref::<std::io::Error>();
    error.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
