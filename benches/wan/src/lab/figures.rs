//! The figures of ShallowForest's evaluation: throughput against latency for each skew, and
//! throughput for each number of sites.

mod draw;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;

use crate::rows::Row;

/// Measurements for the figures, and where to draw them.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Parts of the load in the tables, for the curves (comma-separated). The bars are for the
    /// largest.
    #[arg(long, value_delimiter = ',', default_value = "0.2,0.4,0.6,0.8,0.9,1", value_parser = super::load)]
    pub(crate) load: Vec<f64>,
    /// Runs of each; figures have medians, and intervals over all.
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
    /// Draw these rows, written by --json before, and measure nothing.
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) from: Option<PathBuf>,
    /// Write a row of results for each run to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The folder to draw in: 7.1.svg and 7.2.svg.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) svg: PathBuf,
}

/// Measures and draws, or draws what was measured.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match &options.from {
        Some(file) => {
            let text = std::fs::read_to_string(file);
            let text = text.with_context(|| format!("reading {}", file.display()))?;
            let rows: Vec<Row> = serde_json::from_str(&text)
                .with_context(|| format!("{} has no rows of figures", file.display()))?;
            draw::all(&options.svg, &rows)?;
            Ok(ExitCode::SUCCESS)
        }
        #[cfg(target_os = "linux")]
        None => super::interrupt::until_interrupted(measured::run(options)),
        #[cfg(not(target_os = "linux"))]
        None => Ok(super::impossible(5)),
    }
}

#[cfg(target_os = "linux")]
mod measured {
    use super::{Options, draw};
    use crate::lab;
    use crate::lab::runs::{Lab, check, write};
    use crate::rows::table;

    /// Rows of the tables, as numbers of sites and skews: the first four make the curves, and those
    /// with skew 1 the bars.
    const CASES: [(usize, f64); 6] = [(5, 0.0), (5, 0.5), (5, 1.0), (5, 1.5), (7, 1.0), (9, 1.0)];

    pub(super) async fn run(options: &Options) -> anyhow::Result<()> {
        check(options.json.as_deref())?;
        let mut rows = Vec::new();
        for (sites, skew) in CASES {
            let lab = options.lab(sites, skew);
            let measured = Lab::measure(&lab, &lab.scenario()?).await?;
            rows.extend(measured.iter().cloned());
            // What is measured is kept, however the next ones end.
            if let Some(file) = &options.json {
                write(file, &rows)?;
            }
            println!("{}", table(&measured));
        }
        draw::all(&options.svg, &rows)
    }

    impl Options {
        fn lab(&self, sites: usize, skew: f64) -> lab::Options {
            let full = self.load.iter().copied().fold(0.0, f64::max);
            lab::Options {
                sites,
                skew,
                load: if sites == 5 { self.load.clone() } else { vec![full] },
                runs: self.runs,
                seconds: self.seconds,
                warm_up: self.warm_up,
                mbit: self.mbit,
                op_bytes: self.op_bytes,
                headroom: lab::HEADROOM,
                flows: lab::FLOWS,
                window_kib: lab::WINDOW_KIB,
                congestion: lab::CONGESTION.to_owned(),
                kill_relay: false,
                json: None,
            }
        }
    }
}
