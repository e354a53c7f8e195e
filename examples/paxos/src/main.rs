//! The program: runs seeds of the simulated world.

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use paxos::world::{Menu, run, run_menu};

#[derive(Debug, Parser)]
#[command(about = "Multi-Paxos under seeded faults", arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs clusters under faults that seeds draw, and checks them after every event.
    Sim {
        /// Replays this one, and prints every event.
        #[arg(long, conflicts_with_all = ["seeds", "start_seed"])]
        seed: Option<u64>,
        /// Count of seeds.
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// The first of them.
        #[arg(long, default_value_t = 0)]
        start_seed: u64,
    },
}

fn main() -> Result<()> {
    let Command::Sim { seed, seeds, start_seed } = Args::parse().command;
    if let Some(seed) = seed {
        let menu = Menu::draw(seed);
        println!("{menu:?}");
        println!("{:?}", run_menu(seed, menu, true)?);
        return Ok(());
    }
    let mut acknowledged = 0;
    for seed in start_seed..start_seed.saturating_add(seeds) {
        let report =
            run(seed).with_context(|| format!("seed {seed}; replay: sim --seed {seed}"))?;
        acknowledged += report.acknowledged;
    }
    println!("{seeds} seeds without a violation, {acknowledged} values acknowledged");
    Ok(())
}
