//! Calls over a path that loses packets, over each transport in turn.

#[cfg(target_os = "linux")]
mod authority;
#[cfg(target_os = "linux")]
mod path;
#[cfg(target_os = "linux")]
mod rows;
#[cfg(target_os = "linux")]
mod runs;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use crate::wire::Wire;

/// Calls to make, and the path to make them over.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Transports to compare: tcp, tls or quic; tcp:4 has four flows (comma-separated).
    #[arg(long, value_delimiter = ',', default_value = "tcp,tcp:4,tls,quic")]
    pub(crate) transport: Vec<Wire>,
    /// Packets lost of a hundred, in each direction (comma-separated).
    #[arg(long, value_delimiter = ',', default_value = "0,0.1,1,3", value_parser = percent)]
    pub(crate) loss: Vec<f64>,
    /// Round trip of the path, ms.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(0..=1_000))]
    pub(crate) rtt_ms: u32,
    /// Rate of the path in each direction, Mbit/s.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=1_000))]
    pub(crate) mbit: u64,
    /// Calls a second, whoever waits.
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) rate: u32,
    /// Calls at once, at most; the next one waits, and its latency has begun.
    #[arg(long, default_value_t = 1_024, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub(crate) callers: u32,
    /// Size of each request and of each reply, bytes.
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub(crate) bytes: u32,
    /// Size of large replies that one more caller asks for over the same connection, one after the
    /// other; 0 for no such caller.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=4 << 20))]
    pub(crate) bulk_bytes: u32,
    /// Measurements of each; the table has medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Seconds that count, of each run.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Seconds of calls before that.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(0..=600))]
    pub(crate) warm_up: u64,
    /// The losses of the first round; each further round has those of the next number.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Congestion control of TCP; QUIC has its own, CUBIC.
    #[arg(long, default_value = "cubic")]
    pub(crate) congestion: String,
    /// Write a row of results for each run to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

fn percent(text: &str) -> Result<f64, String> {
    let percent: f64 = text.parse().map_err(|_| format!("{text:?} is not a number"))?;
    if (0.0..=50.0).contains(&percent) { Ok(percent) } else { Err("give 0 to 50".to_owned()) }
}

/// Measures, or says why it cannot be done here.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    #[cfg(target_os = "linux")]
    return super::interrupt::until_interrupted(runs::measure(options));
    #[cfg(not(target_os = "linux"))]
    {
        let _ = options;
        Ok(super::impossible(2))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn parsed(line: &str) -> Result<Options, String> {
        let words = std::iter::once("loss").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.options).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_line_compares_all_transports() {
        let options = parsed("").expect("everything has a default");
        let wires: Vec<_> = options.transport.iter().map(ToString::to_string).collect();
        assert_eq!(wires, ["tcp", "tcp:4", "tls", "quic"]);
        assert_eq!(options.loss, [0.0, 0.1, 1.0, 3.0]);
    }

    #[test]
    fn lists_are_understood_and_nonsense_is_refused() {
        let options = parsed("--loss 0,2.5 --transport quic,tls:8 --rtt-ms 10").expect("it is one");
        assert_eq!(
            (options.loss, options.transport.len(), options.rtt_ms),
            (vec![0.0, 2.5], 2, 10)
        );
        let lines = [
            "--loss 51",
            "--loss NaN",
            "--loss=-1",
            "--transport udp",
            "--sites 5",
            "--rate 0",
            "x",
        ];
        for line in lines {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
