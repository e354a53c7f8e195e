//! `pbft sim`: seeds of the simulated world.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use pbft::world::{Menu, run as run_seed, run_menu};

use crate::args::SimArgs;

pub(crate) fn run(args: &SimArgs) -> Result<ExitCode> {
    #[cfg(feature = "mutants")]
    pbft::mutant::set(args.mutant);
    if let Some(seed) = args.seed {
        let menu = Menu::draw(seed);
        println!("{menu:?}");
        println!("{:?}", run_menu(seed, menu, true)?);
        return Ok(ExitCode::SUCCESS);
    }
    let (mut accepted, mut views, mut crashes, mut lies, mut messages) = (0, 0, 0, 0, 0);
    for seed in args.start_seed..args.start_seed.saturating_add(args.seeds) {
        let report =
            run_seed(seed).with_context(|| format!("seed {seed}; replay: sim --seed {seed}"))?;
        accepted += report.accepted;
        views += report.view;
        crashes += report.crashes;
        lies += report.lies;
        messages += report.messages;
    }
    println!(
        "{} seeds without a violation: {accepted} requests accepted, {views} views, {crashes} \
         crashes, {lies} contradictions seen, {messages} messages",
        args.seeds
    );
    Ok(ExitCode::SUCCESS)
}
