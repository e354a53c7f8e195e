//! Results: a row for each run, medians, and the table.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::protocol::{Form, Measured, Window};

/// One run of one form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) sites: usize,
    pub(crate) skew: f64,
    pub(crate) form: Form,
    /// Part of the load in the tables.
    pub(crate) load: f64,
    /// Payload that came at each receiver, of all sources: the mean over the receivers, with what a
    /// site broadcasts counted once.
    pub(crate) throughput_mbit: f64,
    /// Throughput that the model promises: the plan's rates, or for direct each site's part of its
    /// uplink.
    pub(crate) planned_mbit: f64,
    /// Mean one-way delivery latency, from the moment at which an operation was offered. One that
    /// has not come when the window ends counts with its age.
    pub(crate) mean_ms: f64,
    /// 99th percentile of it.
    pub(crate) p99_ms: f64,
}

/// Measurements of all sites together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sum {
    pub(crate) throughput_mbit: f64,
    pub(crate) mean_ms: f64,
    pub(crate) p99_ms: f64,
    /// Operations that there was no room for until the end.
    pub(crate) held_back: u64,
}

impl Sum {
    /// Of one window, by site.
    pub(crate) fn of(measured: &[Measured], windows: &[Window], seconds: f64) -> Self {
        let bytes: u64 = measured.iter().map(|site| site.received_bytes).sum();
        let receivers = measured.len().max(2) as f64 - 1.0;
        let latencies = measured.iter().flat_map(|site| &site.latencies_us);
        let mut latencies: Vec<(u64, u64)> = latencies.copied().collect();
        let mut sum: u64 = measured.iter().map(|site| site.latency_sum_us).sum();
        for age_us in ages_us(measured, windows) {
            latencies.push((age_us, 1));
            sum += age_us;
        }
        latencies.sort_unstable();
        let count: u64 = latencies.iter().map(|(_, count)| count).sum();
        Self {
            held_back: measured.iter().map(|site| site.held_back).sum(),
            throughput_mbit: bytes as f64 * 8.0 / seconds / receivers / 1e6,
            mean_ms: sum as f64 / count.max(1) as f64 / 1e3,
            p99_ms: at_rank(&latencies, (count * 99).div_ceil(100)) as f64 / 1e3,
        }
    }
}

/// Ages of what has not come at a site and was offered at another.
fn ages_us(measured: &[Measured], windows: &[Window]) -> impl Iterator<Item = u64> {
    measured.iter().enumerate().flat_map(move |(to, measured)| {
        let sources = (0_u16..).zip(windows).filter(move |(from, _)| usize::from(*from) != to);
        sources.flat_map(|(from, window)| {
            window.ages_us(measured.came.get(&from).copied().unwrap_or(0))
        })
    })
}

/// The latency that as many operations as `rank` did not exceed.
fn at_rank(latencies: &[(u64, u64)], rank: u64) -> u64 {
    let mut seen = 0;
    let found = latencies.iter().find(|(_, count)| {
        seen += count;
        seen >= rank
    });
    found.or(latencies.last()).map_or(0, |(us, _)| *us)
}

/// The medians of the runs of one load and form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Median {
    pub(crate) form: Form,
    pub(crate) load: f64,
    pub(crate) sum: Sum,
    pub(crate) planned_mbit: f64,
}

/// The medians by load, and by form within it.
pub(crate) fn medians(rows: &[Row]) -> Vec<Median> {
    let mut groups: Vec<(f64, Form)> = rows.iter().map(|row| (row.load, row.form)).collect();
    groups.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    groups.dedup();
    let of_group = |(load, form): (f64, Form)| {
        let rows = || rows.iter().filter(move |row| row.load == load && row.form == form);
        let median = |of: fn(&Row) -> f64| median(rows().map(of).collect());
        let sum = Sum {
            throughput_mbit: median(|row| row.throughput_mbit),
            mean_ms: median(|row| row.mean_ms),
            p99_ms: median(|row| row.p99_ms),
            held_back: 0,
        };
        Median { form, load, sum, planned_mbit: median(|row| row.planned_mbit) }
    };
    groups.into_iter().map(of_group).collect()
}

/// The middle one; of two, the mean. 0 of none.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        len if len % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// The table for people: medians, the part of the plan that was reached, and overlay over direct.
pub(crate) fn table(rows: &[Row]) -> String {
    let medians = medians(rows);
    let mut out = format!(
        "{:>5}  {:8} {:>10} {:>10} {:>8} {:>10} {:>10}  {}\n",
        "load", "form", "Mbit/s", "planned", "of plan", "mean ms", "p99 ms", "against direct"
    );
    for median in &medians {
        let direct = |of: &&Median| of.load == median.load && of.form == Form::Direct;
        let ratio = match medians.iter().find(direct).filter(|_| median.form == Form::Overlay) {
            Some(direct) => format!(
                "{:.2}x throughput, {:.2}x mean",
                median.sum.throughput_mbit / direct.sum.throughput_mbit.max(1e-9),
                median.sum.mean_ms / direct.sum.mean_ms.max(1e-9),
            ),
            None => String::new(),
        };
        let line = format!(
            "{:>5}  {:8} {:>10.1} {:>10.1} {:>8.2} {:>10.1} {:>10.1}  {ratio}",
            median.load,
            median.form.name(),
            median.sum.throughput_mbit,
            median.planned_mbit,
            median.sum.throughput_mbit / median.planned_mbit.max(1e-9),
            median.sum.mean_ms,
            median.sum.p99_ms,
        );
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn row(form: Form, throughput_mbit: f64) -> Row {
        Row {
            sites: 5,
            skew: 1.0,
            form,
            load: 1.0,
            throughput_mbit,
            planned_mbit: 97.0,
            mean_ms: throughput_mbit * 2.0,
            p99_ms: 9.0,
        }
    }

    #[test]
    fn sites_are_added_up() {
        let site = |bytes, latencies: &[(u64, u64)]| Measured {
            received_bytes: bytes,
            latency_sum_us: latencies.iter().map(|(us, count)| us * count).sum(),
            latencies_us: latencies.to_vec(),
            came: BTreeMap::new(),
            held_back: 0,
        };
        let sites = [site(1_000_000, &[(1_000, 97)]), site(0, &[(9_000, 2), (500_000, 1)])];
        let sum = Sum::of(&sites, &[], 2.0);
        assert_eq!((sum.throughput_mbit, sum.p99_ms), (4.0, 9.0));
        assert!((sum.mean_ms - 6.15).abs() < 1e-9);
        assert_eq!(
            Sum::of(&[], &[], 1.0),
            Sum { throughput_mbit: 0.0, mean_ms: 0.0, p99_ms: 0.0, held_back: 0 }
        );
    }

    #[test]
    fn what_has_not_come_counts_with_its_age() {
        let window = |demand| Window {
            run: 1,
            form: Form::Direct,
            demand,
            op_bytes: 1_000,
            start_ns: 0,
            from_ns: 0,
            until_ns: 1_000_000_000,
        };
        // Two operations of the first site, half a second apart; the second has not come.
        let came = Measured {
            latency_sum_us: 100_000,
            latencies_us: vec![(100_000, 1)],
            came: BTreeMap::from([(0, 1)]),
            ..Measured::default()
        };
        let sum = Sum::of(&[Measured::default(), came], &[window(16), window(0)], 1.0);
        assert_eq!((sum.mean_ms, sum.p99_ms), (300.0, 500.0));
    }

    #[test]
    fn the_table_has_medians_and_the_ratio_of_them() {
        let throughputs = [(Form::Direct, [50.0, 10.0, 40.0]), (Form::Overlay, [70.0, 90.0, 80.0])];
        let rows = throughputs.into_iter().flat_map(|(form, of)| of.map(|mbit| row(form, mbit)));
        let rows: Vec<_> = rows.collect();
        let medians = medians(&rows);
        assert_eq!(medians.iter().map(|m| m.sum.throughput_mbit).collect::<Vec<_>>(), [40.0, 80.0]);
        assert!(table(&rows).contains("2.00x throughput, 2.00x mean"), "{}", table(&rows));
        assert_eq!(median(vec![1.0, 4.0]), 2.5);
    }

    #[test]
    fn a_row_has_the_documented_fields() {
        let json = serde_json::to_value(row(Form::Overlay, 1.0)).expect("it is JSON");
        let keys: Vec<_> = json.as_object().expect("it is an object").keys().cloned().collect();
        let mut expected = [
            "sites",
            "skew",
            "form",
            "load",
            "throughput_mbit",
            "planned_mbit",
            "mean_ms",
            "p99_ms",
        ];
        expected.sort_unstable();
        let mut keys: Vec<_> = keys.iter().map(String::as_str).collect();
        keys.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!(json["form"], "overlay");
    }
}
