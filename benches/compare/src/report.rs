//! Results: a row for each case, and how cases compare within each round.

mod ratio;
mod table;

use serde::{Deserialize, Serialize};

use crate::bench::Form;
use crate::bencher::Sample;
use crate::flavour::Flavour;
use crate::pin::Pin;
use crate::plan::Case;
use crate::system::System;

pub use ratio::Ratio;
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
    /// Median latency, in microseconds; median over the rounds.
    pub median_us: f64,
    /// 99th percentile of the latency, in microseconds; median over the rounds.
    pub p99_us: f64,
    /// Successful operations a second; median over the rounds.
    pub per_second: f64,
    /// Processor time of client and servers for one operation, in microseconds; median over the
    /// rounds.
    pub cpu_us_per_op: f64,
    /// Allocations of client and servers for one operation; median over the rounds. Absent when the
    /// program does not count them.
    pub allocs_per_op: Option<f64>,
    /// Operations that failed, in all rounds.
    pub failed: u64,
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
    /// Successful operations a second.
    pub per_second: (f64, f64),
    /// Processor time for one operation, in microseconds.
    pub cpu_us_per_op: (f64, f64),
}

impl Spread {
    fn of(rounds: &[Figures]) -> Self {
        let range = |figure: fn(&Figures) -> f64| {
            let ends = (f64::INFINITY, f64::NEG_INFINITY);
            rounds.iter().map(figure).fold(ends, |(low, high), one| (low.min(one), high.max(one)))
        };
        Self {
            median_us: range(|figures| figures.median_us),
            per_second: range(|figures| figures.per_second),
            cpu_us_per_op: range(|figures| figures.cpu_us),
        }
    }
}

/// The rows of all cases, in their order.
pub fn rows(cases: &[Case], samples: &[Vec<Sample>], pin: Pin) -> Vec<Row> {
    let figures: Vec<Vec<Figures>> =
        samples.iter().map(|rounds| rounds.iter().map(Figures::of).collect()).collect();
    let row = |(index, case): (usize, &Case)| {
        let median_of = |figure: fn(&Figures) -> f64| median(figures[index].iter().map(figure));
        let counts = |figures: &Figures| figures.allocations > 0.0;
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
            allocs_per_op: figures[index]
                .iter()
                .any(counts)
                .then(|| median_of(|figures| figures.allocations)),
            failed: tallies().map(|tally| tally.failed).sum(),
            operations: tallies().map(|tally| tally.succeeded_count()).sum(),
            rounds: samples[index].len(),
            spread: (!figures[index].is_empty()).then(|| Spread::of(&figures[index])),
            ratios: ratio::ratios(cases, &figures, index),
        }
    };
    cases.iter().enumerate().map(row).collect()
}

/// The first failure of each case that had any.
pub fn complaints(cases: &[Case], samples: &[Vec<Sample>]) -> Vec<String> {
    let complaint = |(case, samples): (&Case, &Vec<Sample>)| {
        let complaint = samples.iter().find_map(|sample| sample.tally.complaint.as_ref())?;
        Some(format!("{} {} {}: {complaint}", case.bench, case.system, case.flavour))
    };
    cases.iter().zip(samples).filter_map(complaint).collect()
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
    fn of(sample: &Sample) -> Self {
        let us = |quantile| sample.tally.latency(quantile).as_secs_f64() * 1e6;
        let ended = sample.tally.ended_count().max(1) as f64;
        Self {
            median_us: us(0.5),
            p99_us: us(0.99),
            per_second: sample.tally.succeeded_count() as f64 / sample.elapsed.as_secs_f64(),
            cpu_us: sample.usage.cpu.as_secs_f64() * 1e6 / ended,
            allocations: sample.usage.allocations as f64 / ended,
        }
    }
}

/// The middle one, or the mean of the two in the middle; NaN of none.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::meter::Usage;
    use crate::tally::Tally;

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
        assert!((row.median_us / 20.0 - 1.0).abs() < 2e-3, "{}", row.median_us);
        assert!((row.per_second - 10_000.0).abs() < 1e-6);
        assert!((row.cpu_us_per_op - 20.0).abs() < 1e-6);
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
    }

    #[test]
    fn an_even_number_has_its_median_between_two() {
        assert!((median([1.0, 8.0, 2.0, 4.0].into_iter()) - 3.0).abs() < 1e-12);
        assert!(median(std::iter::empty()).is_nan());
    }
}
