//! Several rounds of the same cases: the middle one of each, ratios within a round, and what must
//! not have been.

use pbft::settings::Auth;

use super::Row;

/// Of each case the round with the middle throughput, in the order of the cases.
pub(super) fn middle(rows: &[Row]) -> Vec<Row> {
    let mut of_cases: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match of_cases.iter_mut().find(|of| of[0].is_of_case(row)) {
            Some(of) => of.push(row),
            None => of_cases.push(vec![row]),
        }
    }
    let middle = |mut of: Vec<&Row>| {
        of.sort_by(|one, other| one.load.per_second.total_cmp(&other.load.per_second));
        of[of.len() / 2].clone()
    };
    of_cases.into_iter().map(middle).collect()
}

/// Throughput with counted credits as a part of that of the same case without, for each case that
/// was measured both ways: the median of the ratios of the rounds, and all of them.
pub(super) fn of_credits(rows: &[Row]) -> Vec<(Row, Vec<f64>)> {
    let mut found: Vec<(Row, Vec<f64>)> = Vec::new();
    for row in rows.iter().filter(|row| row.credits == Some("counted")) {
        let without = rows.iter().find(|other| {
            other.round == row.round
                && other.credits == Some("unlimited")
                && row.is_of_case(&Row { credits: row.credits, ..(*other).clone() })
        });
        let Some(without) = without else { continue };
        let ratio = row.load.per_second / without.load.per_second.max(f64::MIN_POSITIVE);
        match found.iter_mut().find(|(of, _)| of.is_of_case(row)) {
            Some((_, ratios)) => ratios.push(ratio),
            None => found.push((row.clone(), vec![ratio])),
        }
    }
    for (_, ratios) in &mut found {
        ratios.sort_by(f64::total_cmp);
    }
    found
}

/// Failures, a sentence each: requests without a result anywhere, and, where messages wait for
/// credit, frames that were lost and receivers that were not ready.
pub(super) fn failures(rows: &[Row]) -> Vec<String> {
    let mut found = Vec::new();
    for row in rows.iter().filter(|row| row.credits != Some("unlimited")) {
        let mut say =
            |what: String| found.push(format!("round {}, {}: {what}", row.round, name(row)));
        let open = row.load.failed + row.load.unknown;
        if open > 0 {
            say(format!("{open} requests have no result"));
        }
        if row.frames_lost > 0 {
            say(format!("{} frames were lost of {}", row.frames_lost, row.frames_sent));
        }
        if let Some(count) = row.receivers_not_ready.filter(|count| *count > 0) {
            say(format!("the device counted {count} times that a receiver was not ready"));
        }
    }
    found
}

/// Name of the case of a row, but for the count of clients and the window.
pub(super) fn name(row: &Row) -> String {
    let auth = match row.auth {
        Auth::Signed => "signed",
        Auth::Channel => "channel",
        Auth::None => "nothing protected",
    };
    let credits = match row.credits {
        Some("unlimited") => ", credits unlimited",
        _ => "",
    };
    format!("{}, {auth}{credits}", row.transport)
}
