//! `pbft sim`: seeds of the simulations.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use console::say;
use pbft::simulation::{self, Plan};
use pbft::world::{self, Menu};

use crate::args::{Part, SimArgs};

pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    #[cfg(feature = "mutants")]
    pbft::mutant::set(args.mutant);
    if args.outages {
        outages(args.start_seed, args.seeds)?;
        return Ok(ExitCode::SUCCESS);
    }
    let parts = match &args.part[..] {
        [] if args.seed.is_some() => &[Part::World],
        [] => Part::ALL,
        some => some,
    };
    for part in parts {
        match args.seed {
            Some(seed) => replay(*part, seed)?,
            None => many(*part, args.start_seed, args.seeds)?,
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs a seed, and prints every event.
fn replay(part: Part, seed: u64) -> Result<()> {
    if part == Part::Nodes {
        let plan = Plan::draw(seed);
        say(format_args!("{plan:?}"))?;
        say(format_args!("{:?}", simulation::run_plan(seed, &plan, true)?))?;
        return Ok(());
    }
    let menu = match part {
        Part::Channels => Menu::draw_channels(seed),
        Part::Members => Menu::draw_members(seed),
        Part::World | Part::Nodes => Menu::draw(seed),
    };
    say(format_args!("{menu:?}"))?;
    say(format_args!("{:?}", world::run_menu(seed, menu, true)?))?;
    Ok(())
}

/// Counts of what has happened in many runs.
#[derive(Debug, Default)]
struct Sum {
    answered: u64,
    views: u64,
    crashes: u64,
    lies: u64,
}

fn many(part: Part, start: u64, count: u64) -> Result<()> {
    let mut sum = Sum::default();
    for seed in start..start.saturating_add(count) {
        let again = || format!("seed {seed}; replay: sim --part {part} --seed {seed}");
        let one = one(part, seed).with_context(again)?;
        sum.answered += one.answered;
        sum.views += one.views;
        sum.crashes += one.crashes;
        sum.lies += one.lies;
    }
    let Sum { answered, views, crashes, lies } = sum;
    say(format_args!(
        "{part}: {count} seeds without a violation: {answered} requests answered, {views} views, \
         {crashes} crashes, {lies} contradictions seen"
    ))?;
    Ok(())
}

fn one(part: Part, seed: u64) -> Result<Sum> {
    let report = match part {
        Part::World => world::run(seed)?,
        Part::Channels => world::run_channels(seed)?,
        Part::Members => world::run_members(seed)?,
        Part::Nodes => {
            let simulation::Report { run, views, lies, .. } = simulation::run(seed)?;
            let (answered, crashes) = (run.answered as u64, run.crashes);
            return Ok(Sum { answered, views, crashes, lies });
        }
    };
    let world::Report { accepted, view, crashes, lies, .. } = report;
    Ok(Sum { answered: accepted, views: view, crashes, lies })
}

/// Measures outages in virtual time.
fn outages(start: u64, count: u64) -> Result<()> {
    let (mut times, mut rates, mut executed) = (Vec::new(), Vec::new(), 0);
    for seed in start..start.saturating_add(count) {
        let again = || format!("seed {seed}; again: sim --outages --start-seed {seed} --seeds 1");
        let replaced = world::silence_primary(seed).with_context(again)?;
        times.push(replaced.after.as_secs_f64() / replaced.timeout.as_secs_f64());
        executed += replaced.executed;
        let [all, without] = world::lose_backup(seed).with_context(again)?;
        rates.push(without as f64 / all.max(1) as f64);
    }
    let within = times.iter().filter(|time| **time <= 3.0).count();
    say(format_args!(
        "outages: a silent primary is replaced within 3 timeouts in {within} of {count} seeds \
         ({}), and all of {executed} requests are executed",
        quantiles(&mut times)
    ))?;
    say(format_args!(
        "outages: the rate without a backup, as a part of that with all: {}",
        quantiles(&mut rates)
    ))?;
    Ok(())
}

fn quantiles(values: &mut [f64]) -> String {
    values.sort_by(f64::total_cmp);
    let at = |percent: usize| values.get((values.len().max(1) - 1) * percent / 100).copied();
    let [least, first, median, last, most] =
        [0, 1, 50, 99, 100].map(|percent| at(percent).unwrap_or(0.0));
    format!(
        "least {least:.2}, 1 % below {first:.2}, median {median:.2}, 1 % above {last:.2}, \
         most {most:.2}"
    )
}
