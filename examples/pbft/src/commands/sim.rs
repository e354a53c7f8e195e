//! `pbft sim`: seeds of the simulations.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use pbft::world::{Menu, Report, run_menu};

use crate::args::{Part, SimArgs};

pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    #[cfg(feature = "mutants")]
    pbft::mutant::set(args.mutant);
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

fn menu(part: Part, seed: u64) -> Menu {
    match part {
        Part::World => Menu::draw(seed),
        Part::Channels => Menu::draw_channels(seed),
    }
}

fn replay(part: Part, seed: u64) -> Result<()> {
    let menu = menu(part, seed);
    println!("{menu:?}");
    println!("{:?}", run_menu(seed, menu, true)?);
    Ok(())
}

fn many(part: Part, start: u64, count: u64) -> Result<()> {
    let mut sum = Report::default();
    for seed in start..start.saturating_add(count) {
        let again = || format!("seed {seed}; replay: sim --part {part} --seed {seed}");
        let report = run_menu(seed, menu(part, seed), false).with_context(again)?;
        sum.accepted += report.accepted;
        sum.view += report.view;
        sum.crashes += report.crashes;
        sum.lies += report.lies;
        sum.messages += report.messages;
    }
    let Report { accepted, view, crashes, lies, messages, .. } = sum;
    println!(
        "{part}: {count} seeds without a violation: {accepted} requests accepted, {view} views, \
         {crashes} crashes, {lies} contradictions seen, {messages} messages"
    );
    Ok(())
}
