//! Results: a row for each case, and how cases compare within each round.

mod ratio;
mod run;
mod table;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::bench::Form;
use crate::bencher::Sample;
use crate::flavour::Flavour;
use crate::pin::Pin;
use crate::plan::Case;
use crate::system::System;

pub use ratio::Ratio;
pub use run::{Report, Run};
pub(crate) use table::figure;
pub use table::table;

/// One case, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The bench.
    pub bench: String,
    /// The system that did it.
    pub system: System,
    /// The form, by who led from server to server; absent where one server answered.
    pub form: Option<Form>,
    /// Runtimes of client and servers.
    pub runtime: Flavour,
    /// Processors that client and servers ran on.
    pub pin: Pin,
    /// Operations at a time.
    pub in_flight: usize,
    /// Median latency, in microseconds; median over the rounds. This and the other figures are of
    /// rounds in which an operation succeeded, and absent when none did in any.
    pub median_us: Option<f64>,
    /// 99th percentile of the latency, in microseconds; median over the rounds.
    pub p99_us: Option<f64>,
    /// Successful operations a second; median over the rounds.
    pub per_second: Option<f64>,
    /// Processor time of client and servers for one operation, in microseconds; median over the
    /// rounds.
    pub cpu_us_per_op: Option<f64>,
    /// Allocations of client and servers for one operation; median over the rounds. Absent when the
    /// program does not count them.
    pub allocs_per_op: Option<f64>,
    /// Operations that failed, in all rounds.
    pub failed: u64,
    /// The first failure, or why it could not be measured, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub complaint: Option<String>,
    /// Operations that succeeded, in all rounds.
    pub operations: u64,
    /// How often it was measured.
    pub rounds: usize,
    /// Distance between the rounds; absent in rows that are older than this figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Spread>,
    /// Against others of the same bench.
    pub ratios: Vec<Ratio>,
}

/// The lowest and the highest figure of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Median latency, in microseconds.
    pub median_us: (f64, f64),
    /// 99th percentile of the latency, in microseconds; absent in rows that are older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99_us: Option<(f64, f64)>,
    /// Successful operations a second.
    pub per_second: (f64, f64),
    /// Processor time for one operation, in microseconds.
    pub cpu_us_per_op: (f64, f64),
}

impl Spread {
    /// `None` of no round that has figures.
    fn of(rounds: &[Option<Figures>]) -> Option<Self> {
        let range = |figure: fn(&Figures) -> f64| {
            let figures = || rounds.iter().flatten().map(figure);
            Some((figures().min_by(f64::total_cmp)?, figures().max_by(f64::total_cmp)?))
        };
        Some(Self {
            median_us: range(|figures| figures.median_us)?,
            p99_us: range(|figures| figures.p99_us),
            per_second: range(|figures| figures.per_second)?,
            cpu_us_per_op: range(|figures| figures.cpu_us)?,
        })
    }
}

/// The rows of all cases, in their order.
pub fn rows(cases: &[Case], samples: &[Vec<Sample>], pin: Pin) -> Vec<Row> {
    let figures: Vec<Vec<Option<Figures>>> =
        samples.iter().map(|rounds| rounds.iter().map(Figures::of).collect()).collect();
    let row = |(index, case): (usize, &Case)| {
        let own = || figures[index].iter().flatten();
        let median_of = |figure: fn(&Figures) -> f64| median(own().map(figure));
        let tallies = || samples[index].iter().map(|sample| &sample.tally);
        Row {
            bench: case.bench.to_string(),
            system: case.system,
            form: case.bench.has_forms().then_some(case.form),
            runtime: case.flavour,
            pin: pin.of(case.flavour),
            in_flight: case.bench.in_flight(),
            median_us: median_of(|figures| figures.median_us),
            p99_us: median_of(|figures| figures.p99_us),
            per_second: median_of(|figures| figures.per_second),
            cpu_us_per_op: median_of(|figures| figures.cpu_us),
            allocs_per_op: own()
                .any(|figures| figures.allocations > 0.0)
                .then(|| median_of(|figures| figures.allocations))
                .flatten(),
            failed: tallies().map(|tally| tally.failed).sum(),
            complaint: tallies().find_map(|tally| tally.complaint.clone()),
            operations: tallies().map(|tally| tally.succeeded_count()).sum(),
            rounds: samples[index].len(),
            spread: Spread::of(&figures[index]),
            ratios: ratio::ratios(cases, &figures, index),
        }
    };
    cases.iter().enumerate().map(row).collect()
}

/// Looks for rows without a success.
///
/// # Errors
/// When there are some: a run of which nothing can be said about a case has failed.
pub fn ensure_measured<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Result<()> {
    let failed = rows.into_iter().filter(|row| row.operations == 0);
    let failed: Vec<String> = failed.map(Row::name).collect();
    ensure!(failed.is_empty(), "nothing succeeded of {}", failed.join(", "));
    Ok(())
}

impl Row {
    /// Its case, in words.
    fn name(&self) -> String {
        let form = self.form.map_or(String::new(), |form| format!("{form} "));
        format!("{} {} {form}{}", self.bench, self.system, self.runtime)
    }
}

/// One round of one case.
#[derive(Clone, Copy, Debug)]
struct Figures {
    median_us: f64,
    p99_us: f64,
    per_second: f64,
    cpu_us: f64,
    allocations: f64,
}

impl Figures {
    /// `None` when nothing succeeded: that has no latency, and what it cost bought nothing.
    fn of(sample: &Sample) -> Option<Self> {
        let ended = sample.tally.ended_count() as f64;
        Some(Self {
            median_us: sample.tally.latency_us(0.5)?,
            p99_us: sample.tally.latency_us(0.99)?,
            per_second: sample.tally.succeeded_count() as f64 / sample.elapsed.as_secs_f64(),
            cpu_us: sample.usage.cpu.as_secs_f64() * 1e6 / ended,
            allocations: sample.usage.allocations as f64 / ended,
        })
    }
}

/// The middle one, or the mean of the two in the middle.
fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::meter::Usage;
    use crate::tally::Tally;

    /// A round in which nothing succeeded.
    pub(super) fn failed_sample() -> Sample {
        let mut sample = sample(10, 0);
        sample.tally = Tally::default();
        (0..7).for_each(|_| sample.tally.failed(&anyhow::anyhow!("reset")));
        sample
    }

    /// A round in which each of 100 operations took this long.
    pub(super) fn sample(latency_us: u64, failed: u64) -> Sample {
        let mut tally = Tally::default();
        for _ in 0..100 {
            tally.succeeded(Duration::from_micros(latency_us));
        }
        for _ in 0..failed {
            tally.failed(&anyhow::anyhow!("reset"));
        }
        let usage = Usage { cpu: Duration::from_millis(2), allocations: 400 };
        Sample { tally, elapsed: Duration::from_millis(10), usage }
    }

    #[test]
    fn a_row_has_medians_over_the_rounds_and_sums_of_counts() {
        let case = Case::all()[0];
        let rounds = vec![sample(10, 0), sample(1_000, 100), sample(20, 0)];
        let rows = rows(&[case], &[rounds], Pin::One);
        let row = &rows[0];
        assert!((row.median_us.unwrap() / 20.0 - 1.0).abs() < 2e-3, "{row:?}");
        assert!((row.per_second.unwrap() - 10_000.0).abs() < 1e-6);
        assert!((row.cpu_us_per_op.unwrap() - 20.0).abs() < 1e-6);
        assert_eq!(row.allocs_per_op, Some(4.0));
        let spread = row.spread.expect("it was measured");
        let (low, high) = spread.median_us;
        assert!(
            (low / 10.0 - 1.0).abs() < 2e-3 && (high / 1_000.0 - 1.0).abs() < 2e-3,
            "{spread:?}"
        );
        assert!((spread.cpu_us_per_op.0 - 10.0).abs() < 1e-6, "{spread:?}");
        assert_eq!((row.failed, row.operations, row.rounds), (100, 300, 3));
        let text = serde_json::to_string(&rows).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Row>>(&text).unwrap(), rows);
        ensure_measured(&rows).unwrap();
    }

    #[test]
    fn a_case_of_which_nothing_succeeded_has_no_figures_and_is_an_error() {
        let unmeasured = Sample::none(&anyhow::anyhow!("connection refused"));
        for (sample, failed, complaint) in
            [(failed_sample(), 7, "reset"), (unmeasured, 0, "connection refused")]
        {
            let rows = rows(&Case::all()[..1], &[vec![sample]], Pin::One);
            let row = &rows[0];
            let latencies = (row.median_us, row.p99_us);
            assert_eq!((latencies, row.per_second, row.spread), ((None, None), None, None));
            assert_eq!((row.failed, row.operations, row.rounds), (failed, 0, 1));
            assert_eq!(row.complaint.as_deref(), Some(complaint));
            let text = serde_json::to_string(&rows).unwrap();
            assert!(text.contains(r#""median_us":null"#), "{text}");
            let error = ensure_measured(&rows).unwrap_err().to_string();
            assert!(error.contains("unary_latency_100b tcp-blocking ct"), "{error}");
        }
    }

    #[test]
    fn a_round_in_which_nothing_succeeded_is_left_out_of_the_medians() {
        let rounds = vec![sample(10, 0), failed_sample(), sample(10, 0)];
        let rows = rows(&Case::all()[..1], &[rounds], Pin::One);
        let row = &rows[0];
        assert!((row.median_us.unwrap() / 10.0 - 1.0).abs() < 2e-3, "{row:?}");
        assert_eq!((row.failed, row.rounds), (7, 3));
    }

    #[test]
    fn an_even_number_has_its_median_between_two() {
        assert!((median([1.0, 8.0, 2.0, 4.0].into_iter()).unwrap() - 3.0).abs() < 1e-12);
        assert_eq!(median(std::iter::empty()), None);
    }
}
