//! Contents of one file, without I/O: what is seen, what is durable, and the changes in between.
//!
//! ```text
//!   write, set_len ──▶ seen
//!         └──▶ unsynced ──(sync)──▶ durable ──(crash)──▶ seen
//!                 └──(crash, by its fate)──▶ durable
//! ```

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::settings::Fate;
use crate::random::Random;

/// Bytes that a device writes whole.
pub(super) const SECTOR_BYTES: usize = 512;

/// Bytes that a system writes back together.
const BLOCK_BYTES: usize = 4 << 10;

/// Bytes of unsynced changes above which the oldest are written back, as every system does, so that
/// who never syncs does not fill the memory.
const UNSYNCED_BYTES_MAX: usize = 16 << 20;

/// Bytes of a write that are written back together: so of a large one, too, the end stays unsynced.
/// A multiple of what is lost together, blocks and sectors.
const PIECE_BYTES: usize = 1 << 20;

/// Cost of a change beyond its bytes.
const CHANGE_OVERHEAD_BYTES: usize = 64;

#[derive(Clone, Debug)]
enum Change {
    Write { at: usize, bytes: Bytes },
    Len(usize),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    seen: Vec<u8>,
    durable: Vec<u8>,
    unsynced: VecDeque<Change>,
    unsynced_bytes: usize,
    /// Number of the first unsynced change.
    first: u64,
}

impl Contents {
    /// A change that was seen before. Lengths are below the capacity of a disk in memory.
    pub(super) fn write(&mut self, at: usize, bytes: Bytes) {
        for (_, piece) in (Change::Write { at, bytes }).pieces(PIECE_BYTES) {
            if let Change::Write { at, bytes } = piece {
                // A copy, since a slice would keep all that it is a part of.
                self.change(Change::Write { at, bytes: Bytes::copy_from_slice(&bytes) });
            }
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.change(Change::Len(len));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.seen);
        self.unsynced_bytes += change.cost();
        self.unsynced.push_back(change);
        while self.unsynced_bytes > UNSYNCED_BYTES_MAX {
            self.sync(self.first + 1);
        }
    }

    /// Number of the next change: a sync that begins now covers all before it.
    pub(super) fn next_change(&self) -> u64 {
        self.first + self.unsynced.len() as u64
    }

    /// Memory beyond what a file takes that is synced: its changes, and bytes that are only
    /// durable, or all if the file was removed.
    pub(super) fn excess_bytes(&self, is_removed: bool) -> u64 {
        let kept = match is_removed {
            true => self.seen.len() + self.durable.len(),
            false => self.durable.len().saturating_sub(self.seen.len()),
        };
        (self.unsynced_bytes + kept) as u64
    }

    /// True when there is nothing to sync.
    pub(super) fn is_synced(&self) -> bool {
        self.unsynced.is_empty()
    }

    /// Makes the changes before `next` durable.
    pub(super) fn sync(&mut self, next: u64) {
        while let Some(change) = self.pop_before(next) {
            change.apply(&mut self.durable);
        }
    }

    /// A sync of the changes before `next` fails: see [`DiskSettings::sync_fails`].
    ///
    /// [`DiskSettings::sync_fails`]: super::DiskSettings::sync_fails
    pub(super) fn fail_sync(&mut self, next: u64, random: &mut Random) {
        if random.chance(33) {
            return;
        }
        let is_evicted = random.chance(50);
        let mut is_written = BTreeMap::new();
        while let Some(change) = self.pop_before(next) {
            for (block, piece) in change.pieces(BLOCK_BYTES) {
                if *is_written.entry(block).or_insert_with(|| random.chance(50)) {
                    piece.apply(&mut self.durable);
                }
            }
        }
        if is_evicted && self.unsynced.is_empty() {
            let forgotten = is_written.into_iter().filter(|(_, is_written)| !*is_written);
            self.evict(forgotten.filter_map(|(block, _)| block));
        }
    }

    /// Lets blocks be seen as they are on the device.
    fn evict(&mut self, blocks: impl Iterator<Item = usize>) {
        let len = self.seen.len();
        for block in blocks {
            for at in (block * BLOCK_BYTES..len).take(BLOCK_BYTES) {
                self.seen[at] = self.durable.get(at).copied().unwrap_or(0);
            }
        }
    }

    /// Leaves what a crash leaves.
    pub(super) fn crash(&mut self, fate: Fate, random: &mut Random) {
        let len = self.seen.len();
        match fate {
            Fate::Kept => self.sync(u64::MAX),
            Fate::Lost => {}
            Fate::Torn => drop(self.tear(random)),
            Fate::Reordered => self.reorder(random),
            Fate::Zeroed => {
                self.tear(random);
                let len = self.durable.len().max(len);
                self.durable.resize(len, 0);
            }
            Fate::Garbled => {
                if let Some((at, bytes)) = self.tear(random) {
                    let rest = SECTOR_BYTES - at % SECTOR_BYTES;
                    let garbled = bytes.iter().take(rest).map(|_| random.draw().to_le_bytes()[0]);
                    let bytes = garbled.collect();
                    Change::Write { at, bytes }.apply(&mut self.durable);
                }
            }
        }
        while self.pop_before(u64::MAX).is_some() {}
        self.seen = self.durable.clone();
    }

    /// Makes the changes durable up to a byte. What was being written there and was not, if a
    /// write it was.
    fn tear(&mut self, random: &mut Random) -> Option<(usize, Bytes)> {
        let sizes = self.unsynced.iter().map(|change| change.size() as u64);
        let mut left = random.within(0..sizes.sum::<u64>() + 1);
        while let Some(change) = self.pop_before(u64::MAX) {
            let size = change.size() as u64;
            if size <= left {
                left -= size;
                change.apply(&mut self.durable);
                continue;
            }
            let Change::Write { at, mut bytes } = change else { return None };
            let rest = bytes.split_off(usize::try_from(left).unwrap_or(bytes.len()));
            let behind = at + bytes.len();
            Change::Write { at, bytes }.apply(&mut self.durable);
            return Some((behind, rest));
        }
        None
    }

    /// Makes of each sector the changes up to some one durable: a device writes the sectors of a
    /// block in any order.
    fn reorder(&mut self, random: &mut Random) {
        let pieces: Vec<_> =
            self.unsynced.iter().flat_map(|change| change.pieces(SECTOR_BYTES)).collect();
        let mut left = BTreeMap::<_, usize>::new();
        pieces.iter().for_each(|(sector, _)| *left.entry(*sector).or_default() += 1);
        left.values_mut().for_each(|count| *count = random.index(*count + 1));
        for (sector, piece) in pieces {
            if let Some(count) = left.get_mut(&sector).filter(|count| **count > 0) {
                *count -= 1;
                piece.apply(&mut self.durable);
            }
        }
    }

    /// Any bytes in the sector around `at`, other ones at `at`. `None` where there is no byte.
    pub(super) fn rot(&mut self, at: usize, random: &mut Random) -> Option<(usize, usize)> {
        let old = *self.seen.get(at)?;
        let start = at - at % SECTOR_BYTES;
        let end = (start + SECTOR_BYTES).min(self.seen.len());
        let mut sector: Vec<_> = (start..end).map(|_| random.draw().to_le_bytes()[0]).collect();
        if sector[at - start] == old {
            sector[at - start] = !old;
        }
        self.seen[start..end].copy_from_slice(&sector);
        let durable_end = end.min(self.durable.len());
        if let Some(durable) = self.durable.get_mut(start..durable_end) {
            durable.copy_from_slice(&sector[..durable_end - start]);
        }
        Some((start, end))
    }

    pub(super) fn seen(&self) -> &[u8] {
        &self.seen
    }

    pub(super) fn durable(&self) -> &[u8] {
        &self.durable
    }

    fn pop_before(&mut self, next: u64) -> Option<Change> {
        if self.first >= next {
            return None;
        }
        let change = self.unsynced.pop_front()?;
        self.first += 1;
        self.unsynced_bytes -= change.cost();
        Some(change)
    }
}

impl Change {
    fn apply(&self, to: &mut Vec<u8>) {
        match self {
            Self::Write { bytes, .. } if bytes.is_empty() => {}
            Self::Write { at, bytes } => {
                let end = at + bytes.len();
                if to.len() < end {
                    to.resize(end, 0);
                }
                to[*at..end].copy_from_slice(bytes);
            }
            Self::Len(len) => {
                to.resize(*len, 0);
                if *len < to.capacity() / 2 {
                    to.shrink_to_fit();
                }
            }
        }
    }

    fn cost(&self) -> usize {
        self.size() + CHANGE_OVERHEAD_BYTES
    }

    /// Steps in which it can be torn.
    fn size(&self) -> usize {
        match self {
            Self::Write { bytes, .. } => bytes.len(),
            Self::Len(_) => 1,
        }
    }

    /// Its parts, each within one unit of so many bytes, or `None` for the length.
    fn pieces(&self, unit: usize) -> Vec<(Option<usize>, Self)> {
        let Self::Write { at, bytes } = self else { return vec![(None, self.clone())] };
        let (mut at, mut rest, mut pieces) = (*at, bytes.clone(), Vec::new());
        while !rest.is_empty() {
            let place = at / unit;
            let room = unit - at % unit;
            let behind = rest.split_off(rest.len().min(room));
            let len = rest.len();
            pieces.push((Some(place), Self::Write { at, bytes: rest }));
            (at, rest) = (at + len, behind);
        }
        pieces
    }
}
