//! Charts of several runs.

use charts::{Axis, Point, by_name, lines};
use pbft::settings::Auth;

use super::Row;

/// Requests a second over the count of clients, a line for each transport and protection.
pub(super) fn throughput(rows: &[Row]) -> String {
    let thousands = |row: &Row| point(row, row.load.per_second / 1e3);
    let axes = [Axis::logarithmic("clients"), Axis::linear("thousand requests a second")];
    lines(&title("Throughput", rows), axes, &by_name(rows, name, &[("", &thousands)]))
}

/// Median and 99th percentile over the count of clients, two lines for each transport and
/// protection.
pub(super) fn latency(rows: &[Row]) -> String {
    let median = |row: &Row| point(row, row.load.latency_us.p50 as f64 / 1e3);
    let late = |row: &Row| point(row, row.load.latency_us.p99 as f64 / 1e3);
    let axes = [Axis::logarithmic("clients"), Axis::logarithmic("milliseconds")];
    let series = by_name(rows, name, &[(", median", &median), (", 99 of 100", &late)]);
    lines(&title("Latency", rows), axes, &series)
}

/// Processor time of all replicas for an operation, over the count of clients.
pub(super) fn processor(rows: &[Row]) -> String {
    let microseconds = |row: &Row| point(row, row.server_cpu_us_per_operation);
    let axes = [Axis::logarithmic("clients"), Axis::logarithmic("microseconds of all replicas")];
    let series = by_name(rows, name, &[("", &microseconds)]);
    lines(&title("Processor time of a request", rows), axes, &series)
}

fn title(what: &str, rows: &[Row]) -> String {
    let Some(row) = rows.first() else { return what.to_owned() };
    let ledger = format!("{:?}", row.ledger).to_lowercase();
    let Row { replicas, payload_bytes, .. } = row;
    format!("{what}: {replicas} replicas, ledger {ledger}, {payload_bytes} B")
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
