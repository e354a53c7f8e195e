//! Builds the network, runs the forms in turn, and removes the network whatever happens.

pub(crate) mod figures;
#[cfg(target_os = "linux")]
mod interrupt;
#[cfg(target_os = "linux")]
mod kill;
pub(crate) mod loss;
#[cfg(target_os = "linux")]
mod network;
#[cfg(target_os = "linux")]
mod processes;
#[cfg(target_os = "linux")]
mod runs;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::table::Scenario;

/// The first three bytes of the addresses in the lab; the last one is the site's index plus one.
pub(crate) const ADDRESS_NET: [u8; 3] = [10, 213, 77];

/// The exit code for what cannot be done here, as test programs say that they were skipped.
#[cfg(not(target_os = "linux"))]
const EXIT_IMPOSSIBLE: u8 = 77;

/// Use that plans make of each uplink unless told otherwise, connections of an overlay to each other
/// site, their windows, and the congestion control of all. A window is enough for the longest way of
/// the lab at its highest rate: 100 Mbit/s over a round trip of 300 ms.
const HEADROOM: u32 = 920;
const FLOWS: usize = 4;
const WINDOW_KIB: u32 = 8 << 10;
const CONGESTION: &str = "cubic";

/// Measurements to make, and the network to make them in.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// How many sites: 5, 7 or 9.
    #[arg(long, default_value_t = 5)]
    pub(crate) sites: usize,
    /// How unevenly the load is spread: 0, 0.5, 1 or 1.5 for five sites, 1 for more.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) skew: f64,
    /// Parts of the load in the tables (comma-separated).
    #[arg(long, value_delimiter = ',', default_values_t = [0.85, 1.0], value_parser = load)]
    pub(crate) load: Vec<f64>,
    /// How often to measure each form; the table has medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Time that is counted in each run.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Time of sending before that.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub(crate) warm_up: u64,
    /// Uplink and downlink of each site, Mbit/s.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) mbit: u64,
    /// Size of an operation, bytes.
    #[arg(long, default_value_t = 16 << 10, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    pub(crate) op_bytes: u32,
    /// Use that plans make of each uplink, in thousandths.
    #[arg(long, default_value_t = HEADROOM, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    pub(crate) headroom: u32,
    /// Connections of an overlay to each other site. Direct broadcasts have one, which is enough
    /// for their rates.
    #[arg(long, default_value_t = FLOWS, value_parser = flows)]
    pub(crate) flows: usize,
    /// Unread bytes that each connection may have on its way, in KiB: a bound on what it carries
    /// over a distance.
    #[arg(long, default_value_t = WINDOW_KIB, value_parser = clap::value_parser!(u32).range(64..=65_536))]
    pub(crate) window_kib: u32,
    /// Congestion control of all connections.
    #[arg(long, default_value = CONGESTION)]
    pub(crate) congestion: String,
    /// At the end, kill the site that relays most in the middle of a run, and see that the others
    /// have everything.
    #[arg(long)]
    pub(crate) kill_relay: bool,
    /// Write a row of results for each run to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl Options {
    fn scenario(&self) -> anyhow::Result<Scenario> {
        Scenario::new(self.sites, self.skew, self.mbit * 1_000, self.headroom)
    }
}

fn load(text: &str) -> Result<f64, String> {
    let load: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if load > 0.0 && load <= 4.0 { Ok(load) } else { Err("give a number up to 4".to_owned()) }
}

fn flows(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|flows| (1..=64).contains(flows)).ok_or("give 1 to 64".to_owned())
}

/// Measures, or says why it cannot be done here.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let scenario = options.scenario()?;
    #[cfg(target_os = "linux")]
    return runs::run(options, &scenario);
    #[cfg(not(target_os = "linux"))]
    {
        Ok(impossible(scenario.sites()))
    }
}

#[cfg(not(target_os = "linux"))]
fn impossible(sites: usize) -> ExitCode {
    eprintln!("a WAN of {sites} sites needs Linux: its network namespaces and tun devices");
    ExitCode::from(EXIT_IMPOSSIBLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_parts_and_not_nonsense() {
        assert_eq!(load("0.85"), Ok(0.85));
        assert_eq!((flows("4"), flows("65").is_err(), flows("0").is_err()), (Ok(4), true, true));
        assert!(["0", "-1", "NaN", "inf", "5", "x"].iter().all(|text| load(text).is_err()));
    }
}
