//! Results: a row for each run, and the table of medians.

use std::fmt::Write as _;

use serde::Serialize;

use crate::protocol::Called;
use crate::rows::median;
use crate::wire::Wire;

/// One run over one transport.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    pub(super) transport: Wire,
    pub(super) loss_percent: f64,
    pub(super) seed: u64,
    pub(super) rtt_ms: u32,
    pub(super) mbit: u64,
    /// Calls a second that were offered.
    pub(super) rate: u32,
    pub(super) bytes: u32,
    pub(super) bulk_bytes: u32,
    #[serde(flatten)]
    pub(super) called: Called,
}

/// A column of the table: its head, and the figure of a run whose median it has.
type Column = (&'static str, fn(&Called) -> f64);

const COLUMNS: [Column; 6] = [
    ("calls/s", |called| called.per_second),
    ("p50 ms", |called| called.p50_ms),
    ("p99 ms", |called| called.p99_ms),
    ("p99.9 ms", |called| called.p999_ms),
    ("max ms", |called| called.max_ms),
    ("bulk Mbit/s", |called| called.bulk_mbit),
];

/// The table for people: a line for each loss and transport, in the order of the rows.
pub(super) fn table(rows: &[Row]) -> String {
    let mut out = format!("{:>6}  {:8}", "loss", "over");
    for (name, _) in COLUMNS {
        let _ = write!(out, " {name:>11}");
    }
    out.push_str("      failed   not begun\n");
    let mut groups: Vec<(f64, Wire)> = Vec::new();
    for group in rows.iter().map(|row| (row.loss_percent, row.transport)) {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for (loss, wire) in groups {
        let of_group = |row: &&Row| (row.loss_percent, row.transport) == (loss, wire);
        let called = || rows.iter().filter(of_group).map(|row| &row.called);
        let _ = write!(out, "{:>6}  {:8}", format!("{loss} %"), wire.to_string());
        for (_, of) in COLUMNS {
            let _ = write!(out, " {:>11.1}", median(called().map(of).collect()));
        }
        let sum = |of: fn(&Called) -> u64| called().map(of).sum::<u64>();
        let (failed, not_begun) = (sum(|called| called.failed), sum(|called| called.not_begun));
        let _ = writeln!(out, " {failed:>11} {not_begun:>11}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(transport: &str, p99_ms: f64) -> Row {
        Row {
            transport: transport.parse().expect("it is one"),
            loss_percent: 0.1,
            seed: 1,
            rtt_ms: 40,
            mbit: 100,
            rate: 1_000,
            bytes: 256,
            bulk_bytes: 0,
            called: Called { p99_ms, failed: 2, ..Called::default() },
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_transport_with_medians_and_all_failures() {
        let rows = [row("tcp", 90.0), row("quic", 1.0), row("tcp", 70.5), row("tcp", 60.0)];
        let table = table(&rows);
        let lines: Vec<Vec<_>> =
            table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(
            lines[1],
            ["0.1", "%", "tcp", "0.0", "0.0", "70.5", "0.0", "0.0", "0.0", "6", "0"]
        );
        assert_eq!(lines[2][2], "quic");
    }

    #[test]
    fn a_row_is_flat() {
        let json = serde_json::to_value(row("tcp:4", 70.5)).expect("it is JSON");
        assert_eq!((&json["transport"], &json["p99_ms"]), (&"tcp:4".into(), &70.5.into()));
    }
}
