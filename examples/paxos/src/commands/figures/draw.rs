//! Figures as SVG.

use charts::{Axis, Look, Point, Series, lines};

use super::Row;
use super::plan::{Case, Figure, Over, Scale};
use crate::args::Workload;

/// Look of the time of a raw sync, which no series of a ledger has.
const RAW: Look = Look { colour: 1, dashes: 2 };

/// A line for each ledger and proposer, and one for raw syncs where there is a disk. Points are
/// medians of all rounds; intervals reach over the medians of single rounds.
pub(super) fn figure(figure: &Figure, scale: &Scale, rows: &[Row]) -> String {
    let cases = figure.cases(scale);
    let mut series = Vec::new();
    for (colour, ledger) in figure.ledgers.iter().enumerate() {
        for proposer in 0..figure.proposers() {
            let of_line = |case: &&Case| case.ledger == *ledger;
            let row =
                |case: &Case| rows.iter().find(|row| row.case == *case && row.proposer == proposer);
            let points = cases.iter().filter(of_line).filter_map(row);
            let points = points.map(|row| point(figure, row)).collect();
            let name = format!("{ledger:?}").to_lowercase();
            let name = match proposer {
                _ if figure.proposers() == 1 => name,
                0 => format!("{name}, at the leader"),
                _ => format!("{name}, at another"),
            };
            // The second colour is that of raw syncs.
            let look = Look { colour: 2 * colour, dashes: proposer };
            series.push(Series::new(name, points).look(look));
        }
    }
    if figure.ledgers.len() > 1 {
        let points = cases.iter().filter_map(|case| rows.iter().find(|row| row.case == *case));
        let place = |row: &Row| place(figure, &row.case);
        let points = points.map(|row| median(place(row), row.raw_sync_us, &row.round_raw_us));
        series.push(Series::new("a raw write and sync", points.collect()).look(RAW));
    }
    let y = "milliseconds until chosen";
    let axes = match figure.over {
        Over::Payload => [Axis::logarithmic("bytes of a proposal"), Axis::logarithmic(y)],
        Over::Nodes => [Axis::linear("machines"), Axis::linear(y)],
    };
    lines(&title(figure), axes, &series)
}

fn title(figure: &Figure) -> String {
    let Figure { name, workload, transport, over, delay_ms, .. } = figure;
    let who = if *workload == Workload::A { "one proposer" } else { "two proposers" };
    let delay = if *delay_ms > 0 { format!(", {delay_ms} ms apart") } else { String::new() };
    let fixed = match over {
        Over::Payload => "3 machines",
        Over::Nodes => "proposals of 1 KB",
    };
    format!("{name}: {who}, {}, {fixed}{delay}", transport.scheme())
}

fn point(figure: &Figure, row: &Row) -> Point {
    median(place(figure, &row.case), row.times.p50_us, &row.round_p50_us)
}

/// A median, and as an interval half of what is between the medians of the rounds.
fn median(at: f64, us: u64, rounds: &[u64]) -> Point {
    let low = rounds.iter().min().copied().unwrap_or_default();
    let high = rounds.iter().max().copied().unwrap_or_default();
    let point = Point::new(at, ms(us));
    if rounds.len() > 1 { point.within(ms(high - low) / 2.0) } else { point }
}

fn place(figure: &Figure, case: &Case) -> f64 {
    match figure.over {
        Over::Payload => case.payload_bytes as f64,
        Over::Nodes => case.nodes as f64,
    }
}

fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}
