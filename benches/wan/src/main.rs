//! A WAN on one machine, to measure broadcasts over real TCP: `cargo xtask wan` builds and starts
//! it.
//!
//! ```text
//!   lab ──▶ router      one process: for each pair of sites a delay, for each site a downlink (convoke-sim's Hose)
//!    │       │ tun devices, one in the namespace of each site, with the uplink's capacity by tbf
//!    └────▶ site 0 .. n-1   one process in each namespace: sends at its rate, and times what it receives
//! ```
//! All processes have one clock, so one-way latencies are true. The lab tells the sites over their
//! standard input what to do and reads what they have measured; whatever it has made it removes.
//!
//! `cargo xtask wan loss` has two sites, the ends of a path that loses packets, and measures calls
//! from one to the other over each transport. `cargo xtask wan figures` measures all of the tables'
//! rows and draws them.
//!
//! It works on Linux as root, with `ip` and `tc` of iproute2. On other systems it says so and exits
//! with 77.

#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod end;
mod lab;
mod protocol;
#[cfg(target_os = "linux")]
mod router;
mod rows;
#[cfg(target_os = "linux")]
mod site;
mod table;
mod wire;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A WAN on one machine.
#[derive(Debug, Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Builds the network, measures, prints the results, and removes the network.
    Lab(lab::Options),
    /// Builds a path that loses packets, measures calls over it, and removes it.
    Loss(lab::loss::Options),
    /// Measures the figures of ShallowForest's evaluation and draws them.
    Figures(lab::figures::Options),
    /// Answers calls in one namespace, or makes them. Started by the lab.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    End,
    /// Delays packets between tun devices. Started by the lab.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Router(router::Options),
    /// Sends and receives in one namespace. Started by the lab.
    #[cfg(target_os = "linux")]
    #[command(hide = true)]
    Site(site::Options),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Lab(options) => lab::run(&options),
        Command::Loss(options) => lab::loss::run(&options),
        Command::Figures(options) => lab::figures::run(&options),
        #[cfg(target_os = "linux")]
        Command::End => end::run().map(|()| ExitCode::SUCCESS),
        #[cfg(target_os = "linux")]
        Command::Router(options) => router::run(&options).map(|()| ExitCode::SUCCESS),
        #[cfg(target_os = "linux")]
        Command::Site(options) => site::run(&options).map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_built_for_no_run() {
        let parse = |line: &str| Cli::try_parse_from(line.split(' '));
        for line in ["wan-lab lab --runs", "wan-lab figures --svg charts --runs"] {
            assert!(parse(&format!("{line} 0")).is_err(), "{line}");
            assert!(parse(&format!("{line} 1")).is_ok(), "{line}");
        }
    }
}
