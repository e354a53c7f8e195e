//! Outcome of an attack.

use std::fmt::Write as _;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::lab::Held;
use crate::report::figure;

use super::class::Class;

/// One attack beside an honest client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AttackRow {
    /// The class of the attack.
    pub class: Class,
    /// Frames that the hostile process has sent, or connections that it has opened.
    pub sent: u64,
    /// Calls of the honest client meanwhile, and those of them that failed.
    pub calls: u64,
    /// See `calls`.
    pub failed: u64,
    /// The first failure, in words.
    pub complaint: Option<String>,
    /// Latency of the honest client before, in microseconds; null when no call succeeded.
    pub p99_quiet_us: Option<f64>,
    /// And meanwhile.
    pub p99_us: Option<f64>,
    /// The longest meanwhile. A caller that waits makes no other call, so that one stall of all is
    /// eight latencies among many: it is here that it shows.
    pub max_us: Option<f64>,
    /// The 99th percentile against that beside an honest peer that sends the same load; null where
    /// one of them has none.
    pub ratio: Option<f64>,
    /// Resident memory of the victim before.
    pub resident_bytes_before: Option<u64>,
    /// The most of it.
    pub resident_bytes_max: Option<u64>,
    /// Growth of the honest client's own.
    pub client_bytes_grown: Option<u64>,
    /// The most that the victim held of each thing.
    pub held_max: Held,
    /// Until it held nothing of it any more; null when that is not before half a minute after all
    /// must have been forgotten.
    pub back_s: Option<f64>,
}

impl AttackRow {
    pub(super) fn compare(&mut self, honest: Option<&Self>) {
        self.ratio = honest.and_then(|honest| Some(self.p99_us? / honest.p99_us?));
    }
}

/// Looks for attacks beside which no call of the client succeeded.
///
/// # Errors
/// When there is one.
pub(super) fn ensure_answered(rows: &[AttackRow]) -> Result<()> {
    let starved = rows.iter().find(|row| row.p99_us.is_none());
    let class = starved.map(|row| row.class.name()).unwrap_or_default();
    ensure!(starved.is_none(), "no call of the honest client succeeded beside {class}");
    Ok(())
}

/// The rows for people.
pub fn table(rows: &[AttackRow]) -> String {
    let mut text = String::from(
        "class             sent    calls  failed   p99 µs: quiet   beside   ratio   max µs   MiB: before   most   back s   most held\n",
    );
    for row in rows {
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52")]
        let mib = |bytes: Option<u64>| {
            bytes.map_or("-".into(), |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)))
        };
        let ratio = figure(row.ratio, 2);
        let back = row.back_s.map_or("never".into(), |back| format!("{back:.1}"));
        let Held { tasks, remembered, stubs, mailboxes, connections, .. } = row.held_max;
        let _ = writeln!(
            text,
            "{:13} {:8} {:8} {:7} {:>15} {:>8} {ratio:>7} {:>8} {:>13} {:>6} {back:>8}   {tasks} running, {remembered} \
             remembered, {stubs} stubs, {mailboxes} mailboxes, {connections} connections",
            row.class.name(),
            row.sent,
            row.calls,
            row.failed,
            figure(row.p99_quiet_us, 0),
            figure(row.p99_us, 0),
            figure(row.max_us, 0),
            mib(row.resident_bytes_before),
            mib(row.resident_bytes_max),
        );
    }
    for row in rows {
        if let Some(complaint) = &row.complaint {
            let _ = writeln!(text, "failed beside {}: {complaint}", row.class.name());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(p99_us: Option<f64>) -> AttackRow {
        AttackRow {
            class: Class::Records,
            sent: 1,
            calls: 8,
            failed: if p99_us.is_some() { 0 } else { 8 },
            complaint: None,
            p99_quiet_us: Some(100.0),
            p99_us,
            max_us: p99_us,
            ratio: None,
            resident_bytes_before: None,
            resident_bytes_max: None,
            client_bytes_grown: None,
            held_max: Held::default(),
            back_s: None,
        }
    }

    #[test]
    fn a_client_that_got_nothing_has_no_latency_and_no_ratio() {
        let (honest, mut starved) = (row(Some(100.0)), row(None));
        starved.compare(Some(&honest));
        assert_eq!(starved.ratio, None);
        assert!(ensure_answered(&[honest, starved.clone()]).is_err());
        let text = table(&[starved]);
        assert!(text.contains("        -       -        - "), "{text}");
        let mut slow = row(Some(250.0));
        slow.compare(Some(&row(Some(100.0))));
        assert_eq!(slow.ratio, Some(2.5));
        ensure_answered(&[slow]).unwrap();
    }
}
