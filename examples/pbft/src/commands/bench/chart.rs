//! Charts of several runs.

use charts::{Axis, Look, Point, Series, lines};
use pbft::settings::Auth;

use super::Row;

/// Requests a second over the count of clients, a line for each transport and protection.
pub(super) fn throughput(rows: &[Row]) -> String {
    let curve = |(colour, name): (usize, String)| {
        let point = |row: &Row| point(row, row.load.per_second / 1e3);
        curve(rows, &name, &name, Look { colour, dashes: 0 }, point)
    };
    let series: Vec<Series> = names(rows).into_iter().enumerate().map(curve).collect();
    let axes = [Axis::logarithmic("clients"), Axis::linear("thousand requests a second")];
    lines(&title("Throughput", rows), axes, &series)
}

/// Median and 99th percentile over the count of clients, two lines for each transport and
/// protection.
pub(super) fn latency(rows: &[Row]) -> String {
    let mut series = Vec::new();
    for (colour, of) in names(rows).into_iter().enumerate() {
        let median = |row: &Row| point(row, row.load.latency_us.p50 as f64 / 1e3);
        let late = |row: &Row| point(row, row.load.latency_us.p99 as f64 / 1e3);
        let name = format!("{of}, median");
        series.push(curve(rows, &of, &name, Look { colour, dashes: 0 }, median));
        let name = format!("{of}, 99 of 100");
        series.push(curve(rows, &of, &name, Look { colour, dashes: 1 }, late));
    }
    let axes = [Axis::logarithmic("clients"), Axis::logarithmic("milliseconds")];
    lines(&title("Latency", rows), axes, &series)
}

/// Processor time of all replicas for an operation, over the count of clients.
pub(super) fn processor(rows: &[Row]) -> String {
    let curve = |(colour, name): (usize, String)| {
        let point = |row: &Row| point(row, row.server_cpu_us_per_operation);
        curve(rows, &name, &name, Look { colour, dashes: 0 }, point)
    };
    let series: Vec<Series> = names(rows).into_iter().enumerate().map(curve).collect();
    let axes = [Axis::logarithmic("clients"), Axis::logarithmic("microseconds of all replicas")];
    lines(&title("Processor time of a request", rows), axes, &series)
}

fn title(what: &str, rows: &[Row]) -> String {
    let Some(row) = rows.first() else { return what.to_owned() };
    let ledger = format!("{:?}", row.ledger).to_lowercase();
    let Row { replicas, payload_bytes, .. } = row;
    format!("{what}: {replicas} replicas, ledger {ledger}, {payload_bytes} B")
}

/// Transports and protections in the order in which they were measured.
fn names(rows: &[Row]) -> Vec<String> {
    let mut names: Vec<String> = rows.iter().map(name).collect();
    names.dedup();
    names
}

fn name(row: &Row) -> String {
    let auth = match row.auth {
        Auth::Signed => "signed",
        Auth::Channel => "channel",
        Auth::None => "nothing protected",
    };
    format!("{}, {auth}", row.transport)
}

fn point(row: &Row, value: f64) -> Point {
    Point::new(row.load.clients as f64, value)
}

fn curve(rows: &[Row], of: &str, name: &str, look: Look, point: impl Fn(&Row) -> Point) -> Series {
    let rows = rows.iter().filter(|row| self::name(row) == of);
    Series::new(name, rows.map(point).collect()).look(look)
}
