//! The program: runs seeds of the simulations.

use anyhow::{Context as _, Result};
use clap::{Args as ClapArgs, Parser, Subcommand};
use paxos::{simulation, world};

#[derive(Debug, Parser)]
#[command(about = "Multi-Paxos under seeded faults", arg_required_else_help = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs clusters under faults that seeds draw, and checks what clients were told.
    Sim(SimArgs),
}

#[derive(Debug, ClapArgs)]
struct SimArgs {
    /// Runs replicas alone, without clients, endpoints and disks: many more seeds in a second.
    #[arg(long)]
    core: bool,
    /// Replays this one, and prints every event.
    #[arg(long, conflicts_with_all = ["seeds", "start_seed"])]
    seed: Option<u64>,
    /// Count of seeds.
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    start_seed: u64,
}

fn main() -> Result<()> {
    let Command::Sim(args) = Args::parse().command;
    match (args.core, args.seed) {
        (true, Some(seed)) => {
            let menu = world::Menu::draw(seed);
            println!("{menu:?}");
            println!("{:?}", world::run_menu(seed, menu, true)?);
        }
        (false, Some(seed)) => {
            let plan = simulation::Plan::draw(seed);
            println!("{plan:?}");
            println!("{:?}", simulation::run_plan(seed, &plan, true)?);
        }
        (true, None) => many(&args, |seed| Ok(world::run(seed)?.acknowledged))?,
        (false, None) => many(&args, |seed| Ok(simulation::run(seed)?.answered as u64))?,
    }
    Ok(())
}

fn many(args: &SimArgs, run: impl Fn(u64) -> Result<u64>) -> Result<()> {
    let SimArgs { seeds, start_seed, core, .. } = *args;
    let flag = if core { " --core" } else { "" };
    let mut answered = 0;
    for seed in start_seed..start_seed.saturating_add(seeds) {
        let replay = || format!("seed {seed}; replay: paxos sim{flag} --seed {seed}");
        answered += run(seed).with_context(replay)?;
    }
    println!("{seeds} seeds without a violation, {answered} calls answered");
    Ok(())
}
