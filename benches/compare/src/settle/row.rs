//! Result of a phase, and how it compares.

use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::phase::Phase;
pub use super::watch::Look;

/// One phase of one system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SettleRow {
    /// The system.
    pub system: String,
    /// The phase.
    pub phase: Phase,
    /// Calls that ended as they should, and in their phases the rests and the calls that were
    /// cancelled, without the time that the server was away.
    pub per_second: f64,
    /// Against the mean of the calm phases before and after; null for those.
    pub ratio: Option<f64>,
    /// Calls that failed though they should not.
    pub failed: u64,
    /// From when the server was killed until another had answered.
    pub away_s: Option<f64>,
    /// Resident memory of the server at the first look and at the last, and the most of it.
    pub resident_bytes: Option<[u64; 3]>,
    /// The most calls that the server remembered.
    pub remembered_max: Option<usize>,
    /// Looks at which it remembered more than it may.
    pub above_allowed: Option<usize>,
    /// All looks at the server.
    pub looks: Vec<Look>,
}

impl SettleRow {
    pub(super) fn new(
        system: &str,
        phase: Phase,
        (per_second, failed): (f64, u64),
        away: Option<Duration>,
        looks: Vec<Look>,
    ) -> Self {
        let resident: Vec<u64> = looks.iter().filter_map(|look| look.resident_bytes).collect();
        let resident_bytes = match (&resident[..], resident.iter().max()) {
            ([first, .., last], Some(most)) => Some([*first, *last, *most]),
            _ => None,
        };
        let known = looks.iter().filter_map(|look| Some((look.remembered?, look.allowed?)));
        let known: Vec<(usize, usize)> = known.collect();
        let above = known.iter().filter(|(remembered, allowed)| remembered > allowed).count();
        Self {
            system: system.to_owned(),
            phase,
            per_second,
            ratio: None,
            failed,
            away_s: away.map(|away| away.as_secs_f64()),
            resident_bytes,
            remembered_max: known.iter().map(|(remembered, _)| *remembered).max(),
            above_allowed: (!known.is_empty()).then_some(above),
            looks,
        }
    }
}

/// Compares each phase with the calm ones beside it.
pub(super) fn compare(rows: &mut [SettleRow]) {
    let rates: Vec<f64> = rows.iter().map(|row| row.per_second).collect();
    for (index, row) in rows.iter_mut().enumerate() {
        if row.phase != Phase::Calm && index > 0 && index + 1 < rates.len() {
            row.ratio = Some(2.0 * row.per_second / (rates[index - 1] + rates[index + 1]));
        }
    }
}

/// The rows for people.
pub fn table(rows: &[SettleRow]) -> String {
    let mut text = String::from(
        "system       phase        per s   ratio   failed   away s   server MiB: first, last, most   remembered   looks above\n",
    );
    for row in rows {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let ratio = or_dash(row.ratio.map(|ratio| format!("{ratio:.3}")));
        let away = or_dash(row.away_s.map(|away| format!("{away:.2}")));
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52")]
        let mib = |bytes: u64| format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        let resident = or_dash(row.resident_bytes.map(|all| all.map(mib).join(" ")));
        let remembered = or_dash(row.remembered_max.map(|count| count.to_string()));
        let above = row.above_allowed.map(|above| format!("{above} of {}", row.looks.len()));
        let above = or_dash(above);
        let _ = writeln!(
            text,
            "{:12} {:10} {:7.0} {ratio:>7} {:8} {away:>8} {resident:>31} {remembered:>12} {above:>13}",
            row.system,
            row.phase.name(),
            row.per_second,
            row.failed,
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(phase: Phase, per_second: f64) -> SettleRow {
        SettleRow::new("x", phase, (per_second, 0), None, Vec::new())
    }

    #[test]
    fn a_phase_is_compared_with_the_mean_of_the_calm_ones_beside_it() {
        let mut rows = [row(Phase::Calm, 90.0), row(Phase::OneOpen, 99.0), row(Phase::Calm, 110.0)];
        compare(&mut rows);
        assert_eq!(rows.map(|row| row.ratio), [None, Some(0.99), None]);
    }

    #[test]
    fn looks_above_what_is_allowed_are_counted() {
        let look = |remembered, allowed| Look {
            at_s: 0.0,
            per_second: 0.0,
            resident_bytes: Some(1 << 20),
            remembered: Some(remembered),
            allowed: Some(allowed),
        };
        let looks = vec![look(64, 64), look(65, 64), look(3, 64)];
        let row = SettleRow::new("x", Phase::Calm, (1.0, 0), None, looks);
        assert_eq!((row.remembered_max, row.above_allowed), (Some(65), Some(1)));
        assert!(table(&[row]).contains("1 of 3"));
    }
}
