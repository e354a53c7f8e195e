//! Charts of several runs.

use charts::{Axis, Look, Point, Series, lines};

use super::Row;

/// Requests a second over the count of clients, a line for each transport.
pub(super) fn throughput(rows: &[Row]) -> String {
    let curve = |(colour, transport): (usize, &str)| {
        let point = |row: &Row| point(row, row.load.per_second / 1e3);
        curve(rows, transport, transport, Look { colour, dashes: 0 }, point)
    };
    let series: Vec<Series> = transports(rows).into_iter().enumerate().map(curve).collect();
    let axes = [Axis::logarithmic("clients"), Axis::linear("thousand requests a second")];
    lines(&title("Throughput", rows), axes, &series)
}

/// Median and 99th percentile over the count of clients, two lines for each transport.
pub(super) fn latency(rows: &[Row]) -> String {
    let mut series = Vec::new();
    for (colour, transport) in transports(rows).into_iter().enumerate() {
        let median = |row: &Row| point(row, row.load.latency_us.p50 as f64 / 1e3);
        let late = |row: &Row| point(row, row.load.latency_us.p99 as f64 / 1e3);
        let name = format!("{transport}, median");
        series.push(curve(rows, transport, &name, Look { colour, dashes: 0 }, median));
        let name = format!("{transport}, 99 of 100");
        series.push(curve(rows, transport, &name, Look { colour, dashes: 1 }, late));
    }
    let axes = [Axis::logarithmic("clients"), Axis::logarithmic("milliseconds")];
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

/// Transports in the order in which they were measured.
fn transports(rows: &[Row]) -> Vec<&str> {
    let mut transports: Vec<&str> = rows.iter().map(|row| row.transport.as_str()).collect();
    transports.dedup();
    transports
}

fn point(row: &Row, value: f64) -> Point {
    Point::new(row.load.clients as f64, value)
}

fn curve(
    rows: &[Row],
    transport: &str,
    name: &str,
    look: Look,
    point: impl Fn(&Row) -> Point,
) -> Series {
    let of = rows.iter().filter(|row| row.transport == transport);
    Series::new(name, of.map(point).collect()).look(look)
}
