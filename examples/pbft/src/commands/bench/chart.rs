//! Charts of several runs.

use charts::{Axis, Point, by_name, lines};

use super::Row;
use super::rounds::{middle, name};

/// The quantity that is on the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Clients,
    Windows,
}

/// The charts of these rows, each with the name of its file.
pub(super) fn charts(rows: &[Row]) -> Vec<(&'static str, String)> {
    let rows = in_groups(middle(rows));
    let windows = rows.iter().filter_map(|row| row.window);
    let has_several = windows.clone().any(|window| Some(window) != windows.clone().next());
    let over = if has_several { Over::Windows } else { Over::Clients };
    let rows = over.whole(rows);
    vec![
        ("throughput.svg", over.throughput(&rows)),
        ("latency.svg", over.latency(&rows)),
        ("processor.svg", over.processor(&rows)),
    ]
}

/// Rows of one name after each other, in the order in which the names first come.
fn in_groups(rows: Vec<Row>) -> Vec<Row> {
    let mut names: Vec<String> = Vec::new();
    for row in &rows {
        if !names.contains(&name(row)) {
            names.push(name(row));
        }
    }
    let mut rows = rows;
    rows.sort_by_key(|row| names.iter().position(|one| *one == name(row)));
    rows
}

impl Over {
    /// With a row of a transport without windows at each of them: a level line to compare with.
    fn whole(self, rows: Vec<Row>) -> Vec<Row> {
        let mut windows: Vec<u16> = rows.iter().filter_map(|row| row.window).collect();
        windows.sort_unstable();
        windows.dedup();
        let at_all = |row: Row| match (self, row.window) {
            (Self::Windows, None) => {
                let at = |window: &u16| Row { window: Some(*window), ..row.clone() };
                windows.iter().map(at).collect()
            }
            _ => vec![row],
        };
        rows.into_iter().flat_map(at_all).collect()
    }

    fn axis(self) -> Axis<'static> {
        match self {
            Self::Clients => Axis::logarithmic("clients"),
            Self::Windows => Axis::logarithmic("window: messages of a peer that may be under way"),
        }
    }

    fn point(self, row: &Row, value: f64) -> Point {
        let at = match self {
            Self::Clients => row.load.clients as f64,
            Self::Windows => f64::from(row.window.unwrap_or_default()),
        };
        Point::new(at, value)
    }

    /// Requests a second, a line for each transport and protection.
    fn throughput(self, rows: &[Row]) -> String {
        let thousands = |row: &Row| self.point(row, row.load.per_second / 1e3);
        let axes = [self.axis(), Axis::linear("thousand requests a second")];
        lines(&title("Throughput", rows), axes, &by_name(rows, name, &[("", &thousands)]))
    }

    /// Median and 99th percentile, two lines for each transport and protection.
    fn latency(self, rows: &[Row]) -> String {
        let median = |row: &Row| self.point(row, row.load.latency_us.p50 as f64 / 1e3);
        let late = |row: &Row| self.point(row, row.load.latency_us.p99 as f64 / 1e3);
        let axes = [self.axis(), Axis::logarithmic("milliseconds")];
        let series = by_name(rows, name, &[(", median", &median), (", 99 of 100", &late)]);
        lines(&title("Latency", rows), axes, &series)
    }

    /// Processor time of all replicas for an operation.
    fn processor(self, rows: &[Row]) -> String {
        let microseconds = |row: &Row| self.point(row, row.server_cpu_us_per_operation);
        let axes = [self.axis(), Axis::logarithmic("microseconds of all replicas")];
        let series = by_name(rows, name, &[("", &microseconds)]);
        lines(&title("Processor time of a request", rows), axes, &series)
    }
}

fn title(what: &str, rows: &[Row]) -> String {
    let Some(row) = rows.first() else { return what.to_owned() };
    let ledger = format!("{:?}", row.ledger).to_lowercase();
    let Row { replicas, payload_bytes, .. } = row;
    format!("{what}: {replicas} replicas, ledger {ledger}, {payload_bytes} B")
}
