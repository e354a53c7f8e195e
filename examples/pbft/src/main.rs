//! The program: runs seeds of the simulated world.

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use pbft::world::{Menu, run, run_menu};

#[derive(Debug, Parser)]
#[command(about = "PBFT under seeded faults and lies", arg_required_else_help = true)]
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
        /// Breaks a rule; the first seed that notices is printed.
        #[cfg(feature = "mutants")]
        #[arg(long)]
        mutant: Option<pbft::mutant::Mutant>,
    },
}

fn main() -> Result<()> {
    #[cfg(not(feature = "mutants"))]
    let Command::Sim { seed, seeds, start_seed } = Args::parse().command;
    #[cfg(feature = "mutants")]
    let Command::Sim { seed, seeds, start_seed, mutant } = Args::parse().command;
    #[cfg(feature = "mutants")]
    pbft::mutant::set(mutant);
    if let Some(seed) = seed {
        let menu = Menu::draw(seed);
        println!("{menu:?}");
        println!("{:?}", run_menu(seed, menu, true)?);
        return Ok(());
    }
    let (mut accepted, mut views, mut crashes, mut lies, mut messages) = (0, 0, 0, 0, 0);
    for seed in start_seed..start_seed.saturating_add(seeds) {
        let report =
            run(seed).with_context(|| format!("seed {seed}; replay: sim --seed {seed}"))?;
        accepted += report.accepted;
        views += report.view;
        crashes += report.crashes;
        lies += report.lies;
        messages += report.messages;
    }
    println!(
        "{seeds} seeds without a violation: {accepted} requests accepted, {views} views, {crashes} \
         crashes, {lies} contradictions seen, {messages} messages"
    );
    Ok(())
}
