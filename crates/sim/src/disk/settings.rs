//! Settings of a simulated disk: what may go wrong with it, and how often.

use std::time::Duration;

use convoke_disk::DiskFailure;

use crate::random::Random;

/// Conditions of a simulated disk. The default one is instant and without faults, but for what a
/// crash does.
///
/// Probabilities are from 0 to 1. All durations are of tokio's clock; see
/// [`dilate`](crate::transport::dilate) for shorter ones than a millisecond.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSettings {
    /// Duration of everything but writes and syncs. Default zero.
    pub read_delay: Delay,
    /// Duration of writes, and of changes of lengths and names. Default zero. They are seen at its
    /// beginning.
    pub write_delay: Delay,
    /// Duration of syncs, of files and directories. Default zero. They take effect at its end.
    pub sync_delay: Delay,
    /// The probability that a read of a file's bytes fails. Default 0. The next one may work.
    pub read_fails: f64,
    /// The probability that a write or a change of a length fails. Default 0. A first part of the
    /// bytes, as long as the seed decides, was written all the same, or the length was changed.
    pub write_fails: f64,
    /// The probability that a sync fails. Default 0. Of what a file sync was to make durable the
    /// seed decides what is: all of it is still unsynced, or each block of 4 KiB was either written
    /// or is *forgotten*, as Linux does. A later sync says `Ok` and does not make forgotten ones
    /// durable; they may still be seen, or read as what is durable. So do names: those of a
    /// directory are all still unsynced, or each was written or is forgotten, but for what went
    /// into another directory.
    pub sync_fails: f64,
    /// Reason that a failing sync gives. Default [`DiskFailure::Device`]. A file system that finds
    /// no place for what it has taken before says [`DiskFailure::Full`].
    pub sync_failure: DiskFailure,
    /// The probability that a sync answers `Ok` and makes nothing durable, as a device does that
    /// keeps it in a cache of its own. Default 0. What it has not written the next honest one
    /// writes.
    pub sync_lies: f64,
    /// The probability that a write of several bytes writes a first part alone. Default 0.
    pub short_writes: f64,
    /// Bytes that all files together may have, all of them in memory; gaps count. Default 1 GiB.
    pub capacity: u64,
    /// True for a disk that takes no changes. Default false. A sync of what it took before fails
    /// with [`DiskFailure::ReadOnly`], and all of it stays unsynced.
    pub read_only: bool,
    /// The fates that a crash draws from for the unsynced part of each file and for the unsynced
    /// names; [`Fate::Lost`] where there is none. Default [`Fate::USUAL`].
    pub fates: Vec<Fate>,
}

impl Default for DiskSettings {
    fn default() -> Self {
        Self {
            read_delay: Delay::default(),
            write_delay: Delay::default(),
            sync_delay: Delay::default(),
            read_fails: 0.0,
            write_fails: 0.0,
            sync_fails: 0.0,
            sync_failure: device_failure(),
            sync_lies: 0.0,
            short_writes: 0.0,
            capacity: 1 << 30,
            read_only: false,
            fates: Fate::USUAL.to_vec(),
        }
    }
}

/// The device does not do it, in the words of Linux.
pub(super) fn device_failure() -> DiskFailure {
    DiskFailure::Device("input/output error".to_owned())
}

/// Duration of an operation: a least one, what is drawn beyond it, and now and then much more.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Delay {
    /// The least that it takes.
    pub least: Duration,
    /// The most that is added, drawn evenly for each operation.
    pub jitter: Duration,
    /// The probability that [`slow_by`](Self::slow_by) is added, too.
    pub slow: f64,
    /// By how much a slow operation takes longer.
    pub slow_by: Duration,
}

impl Delay {
    /// An operation that always takes as long.
    pub const fn fixed(least: Duration) -> Self {
        Self { least, jitter: Duration::ZERO, slow: 0.0, slow_by: Duration::ZERO }
    }

    pub(super) fn draw(&self, random: &mut Random) -> Duration {
        let extra = if random.happens(self.slow) { self.slow_by } else { Duration::ZERO };
        self.least.saturating_add(random.up_to(self.jitter)).saturating_add(extra)
    }
}

/// Fate of what was not synced in a crash. What was synced survives every one.
///
/// It is drawn anew for each file, and once for all names. Names that depend on each other, since
/// they are about one file or one name, survive in the order in which they were made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// All of it survives, as if it had been written back in time.
    Kept,
    /// Nothing of it survives.
    Lost,
    /// It survives in the order in which it was written, up to a byte that is drawn. Of names, a
    /// first part of the changes.
    Torn,
    /// Each sector of 512 bytes survives or not, up to some write to it; gaps are zeros. Of names,
    /// each change on its own.
    Reordered,
    /// As torn, but the file has the length that it had, with zeros at its end. Of names, as kept.
    Zeroed,
    /// As torn, and the rest of the sector of 512 bytes, as far as it was being written, is any
    /// bytes. Bytes appear that nobody wrote, so it is not among the [usual](Self::USUAL) ones. Of
    /// names, as kept.
    Garbled,
}

impl Fate {
    /// Fates of an ordinary file system: all but [`Fate::Garbled`].
    pub const USUAL: [Self; 5] =
        [Self::Kept, Self::Lost, Self::Torn, Self::Reordered, Self::Zeroed];
}
