//! `paxos sim`: seeds of the simulations.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use console::say;
use paxos::{simulation, world};

use crate::args::SimArgs;

pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    #[cfg(feature = "mutants")]
    paxos::mutant::set(args.mutant);
    if args.failover {
        failovers(args)?;
        return Ok(ExitCode::SUCCESS);
    }
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

/// Measures the time without a leader, and says which seeds have the times of the distribution.
fn failovers(args: &SimArgs) -> Result<()> {
    let (first, count) = args.seed.map_or((args.start_seed, args.seeds), |seed| (seed, 1));
    let mut measured = Vec::new();
    for seed in first..first.saturating_add(count) {
        let replay = || format!("seed {seed}; replay: paxos sim --failover --seed {seed}");
        measured.push((simulation::failover(seed).with_context(replay)?.timeouts(), seed));
    }
    measured.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    for percent in [0, 50, 90, 99, 100] {
        let Some(last) = measured.len().checked_sub(1) else { break };
        let (timeouts, seed) = measured[last * percent / 100];
        say(format_args!(
            "{percent:>3} in 100 within {timeouts:.2} election timeouts, seed {seed}"
        ))?;
    }
    let beyond = |bound| measured.iter().filter(|(timeouts, _)| *timeouts > bound).count();
    say(format_args!("{count} seeds: {} beyond three, {} beyond six", beyond(3.0), beyond(6.0)))?;
    Ok(())
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
