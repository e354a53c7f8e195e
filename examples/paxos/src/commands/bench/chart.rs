//! Charts of several runs.

use charts::{Axis, Point, by_name, lines};
use paxos::client::Shape;

use super::Row;

/// Requests a second over the count of clients, a line for each transport and shape.
pub(super) fn throughput(rows: &[Row]) -> String {
    let thousands = |row: &Row| point(row, row.load.per_second / 1e3);
    let axes = [Axis::logarithmic("clients"), Axis::linear("thousand requests a second")];
    lines(&title("Throughput", rows), axes, &by_name(rows, name, &[("", &thousands)]))
}

/// Median and 99th percentile over the count of clients, two lines for each transport and
/// shape.
pub(super) fn latency(rows: &[Row]) -> String {
    let median = |row: &Row| point(row, row.load.latency_us.p50 as f64 / 1e3);
    let late = |row: &Row| point(row, row.load.latency_us.p99 as f64 / 1e3);
    let axes = [Axis::logarithmic("clients"), Axis::logarithmic("milliseconds")];
    let series = by_name(rows, name, &[(", median", &median), (", 99 of 100", &late)]);
    lines(&title("Latency", rows), axes, &series)
}

fn title(what: &str, rows: &[Row]) -> String {
    let Some(row) = rows.first() else { return what.to_owned() };
    let ledger = format!("{:?}", row.ledger).to_lowercase();
    let Row { nodes, payload_bytes, reads_percent, delay_ms, .. } = row;
    let delay = if *delay_ms > 0 { format!(", {delay_ms} ms apart") } else { String::new() };
    format!(
        "{what}: {nodes} nodes{delay}, ledger {ledger}, {payload_bytes} B, {reads_percent} % reads"
    )
}

fn name(row: &Row) -> String {
    match row.shape {
        Shape::Gather => row.transport.clone(),
        Shape::Direct => format!("{}, direct", row.transport),
    }
}

fn point(row: &Row, value: f64) -> Point {
    Point::new(row.load.clients as f64, value)
}
