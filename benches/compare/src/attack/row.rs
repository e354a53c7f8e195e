//! Outcome of an attack.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::lab::Held;

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
    /// Latency of the honest client before, in microseconds.
    pub p99_quiet_us: f64,
    /// And meanwhile.
    pub p99_us: f64,
    /// Against the same beside an honest peer that sends the same load.
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
        self.ratio = honest.map(|honest| self.p99_us / honest.p99_us);
    }
}

/// The rows for people.
pub fn table(rows: &[AttackRow]) -> String {
    let mut text = String::from(
        "class             sent    calls  failed   p99 µs: quiet   beside   ratio   MiB: before   most   back s   most held\n",
    );
    for row in rows {
        #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52")]
        let mib = |bytes: Option<u64>| {
            bytes.map_or("-".into(), |bytes| format!("{:.1}", bytes as f64 / f64::from(1 << 20)))
        };
        let ratio = row.ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let back = row.back_s.map_or("never".into(), |back| format!("{back:.1}"));
        let Held { tasks, remembered, stubs, mailboxes, connections, .. } = row.held_max;
        let _ = writeln!(
            text,
            "{:13} {:8} {:8} {:7} {:15.0} {:8.0} {ratio:>7} {:>13} {:>6} {back:>8}   {tasks} running, {remembered} \
             remembered, {stubs} stubs, {mailboxes} mailboxes, {connections} connections",
            row.class.name(),
            row.sent,
            row.calls,
            row.failed,
            row.p99_quiet_us,
            row.p99_us,
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
