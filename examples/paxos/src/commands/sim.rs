//! `paxos sim`: seeds of the simulations.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use console::say;
use paxos::{simulation, world};

use crate::args::SimArgs;

pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    #[cfg(feature = "mutants")]
    paxos::mutant::set(args.mutant);
    match (args.core, args.seed) {
        (true, Some(seed)) => {
            let menu = world::Menu::draw(seed);
            say(format_args!("{menu:?}"))?;
            say(format_args!("{:?}", world::run_menu(seed, menu, true)?))?;
        }
        (false, Some(seed)) => {
            let plan = plan(args, seed);
            say(format_args!("{plan:?}"))?;
            say(format_args!("{:?}", simulation::run_plan(seed, &plan, true)?))?;
        }
        (true, None) => many(args, |seed| Ok(world::run(seed)?.acknowledged))?,
        (false, None) => many(args, |seed| {
            Ok(simulation::run_plan(seed, &plan(args, seed), false)?.run.answered as u64)
        })?,
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &SimArgs, seed: u64) -> simulation::Plan {
    let drawn = simulation::Plan::draw(seed);
    simulation::Plan { shape: args.shape.unwrap_or(drawn.shape), ..drawn }
}

fn many(args: &SimArgs, run: impl Fn(u64) -> Result<u64>) -> Result<()> {
    let SimArgs { seeds, start_seed, core, shape, .. } = *args;
    let flag = match shape {
        _ if core => " --core".to_owned(),
        Some(shape) => format!(" --shape {shape}"),
        None => String::new(),
    };
    let mut answered = 0;
    for seed in start_seed..start_seed.saturating_add(seeds) {
        let replay = || format!("seed {seed}; replay: paxos sim{flag} --seed {seed}");
        answered += run(seed).with_context(replay)?;
    }
    say(format_args!("{seeds} seeds without a violation, {answered} calls answered"))?;
    Ok(())
}
