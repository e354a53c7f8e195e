//! `brb demo`: four members in one process, one of which lies.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Bracha's reliable broadcast.
#[derive(Debug, Parser)]
#[command(name = "brb", version)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Four members in one process over loopback, one of which lies (the default).
    Demo,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let result = match Cli::parse().command.unwrap_or(Command::Demo) {
        Command::Demo => brb::demo::run().await,
    };
    console::end("brb", result.map(|()| true))
}
