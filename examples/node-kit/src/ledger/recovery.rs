//! Recovery: what the files of a ledger come to when it is opened.
//!
//! ```text
//!  snapshot-..40        records 0..40
//!  segment-..3     36 ──────── 52                 all of it was durable when 4 began
//!  segment-..4                 52 ─────── 61 ┄┄┄  the last batch, 58..61: nobody knows; then torn
//!  segment-..5                         58 ─ 61    begun now, with a copy of that batch
//! ```
//!
//! No file is changed once another has begun. What cannot be relied on, the last batch, is written
//! once more to a new segment, which ends the one before: where two have a record, the later
//! counts. So what is read is durable, even if it was in the memory of the system alone before.
//!
//! So are names. A name whose sync failed is seen, and no later sync makes it durable, since the
//! system has forgotten that there is something to be written. Only the last segment and the latest
//! snapshot can have such names: before another is begun, theirs are durable. They are given theirs
//! anew, by way of another, before anything relies on them.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::BytesMut;

use super::commit::next_number;
use super::error::LedgerError;
use super::files::{Lock, Volume};
use super::format::{self, Header, Sort};
use super::frames::{Found, Frames};
use super::records::Records;
use super::segment::{Active, End, MOVED, NEW, Segment};
use super::snapshot::{self, Snapshot};
use super::{Cut, Identity, Recovered, Settings};
use crate::durable::Position;

/// The file that is locked while a ledger is open.
const LOCK: &str = "lock";

/// A ledger that was read and can be written to.
pub(super) struct Ready {
    pub(super) recovered: Recovered,
    pub(super) active: Active,
    pub(super) segments: Vec<Segment>,
    pub(super) end: u64,
    pub(super) salt: u64,
    pub(super) lock: Lock,
}

/// Files of a ledger, by their names.
#[derive(Debug, Default)]
struct Files {
    segments: Vec<Segment>,
    /// Positions of the snapshots.
    snapshots: Vec<u64>,
    unfinished: Vec<String>,
}

/// Reads the files of a ledger, and begins a segment.
pub(super) async fn recover(
    volume: &Arc<dyn Volume>,
    identity: Identity,
    settings: &Settings,
) -> Result<Ready, LedgerError> {
    let lock = lock(&**volume).await?;
    finish_moves(&**volume).await?;
    let files = Files::list(&**volume, identity).await?;
    let snapshot = files.latest_snapshot(&**volume, identity).await?;
    let from = snapshot.as_ref().map_or(0, |snapshot| snapshot.position().records());
    let is_new = files.segments.is_empty() && snapshot.is_none();
    if is_new && settings.must_exist {
        return Err(LedgerError::Absent(identity));
    }
    files.name_anew(&**volume).await?;
    let salt = settings.draw_salt();
    // Before a segment begins: its name may be that of one that was not finished.
    remove(&**volume, &files.unfinished).await?;
    let last = Last::of(&**volume, identity, &files, from).await?;
    let position = last.doubtful;
    let header = Header { sort: Sort::Segment, identity, number: last.number, position, salt };
    let active = Active::begin(&**volume, header, &last.encode(salt)).await?;
    let mut segments = files.segments;
    segments.push(Segment { number: last.number, first: position });
    let (needed, others) = split(segments, from);
    remove(&**volume, &outdated(&others, &files.snapshots, from)).await?;
    let records = Records::new(Arc::clone(volume), identity, ends(&needed, last.end), from);
    let recovered =
        Recovered { snapshot, records, end: Position::new(last.end), cut: last.cut, is_new };
    Ok(Ready { recovered, active, segments: needed, end: last.end, salt, lock })
}

async fn lock(volume: &dyn Volume) -> Result<Lock, LedgerError> {
    use convoke::disk::DiskFailure;
    volume.lock(LOCK).await.map_err(|error| match error.failure {
        DiskFailure::Locked => LedgerError::Locked(error),
        _ => LedgerError::Disk(error),
    })
}

/// Gives those their names that a start before this one has taken them from.
async fn finish_moves(volume: &dyn Volume) -> Result<(), LedgerError> {
    for entry in volume.list().await?.into_iter().filter(|entry| !entry.is_dir) {
        if let Some(name) = entry.name.strip_suffix(MOVED) {
            volume.rename(&entry.name, name).await?;
        }
    }
    Ok(())
}

impl Files {
    async fn list(volume: &dyn Volume, identity: Identity) -> Result<Self, LedgerError> {
        let mut files = Self::default();
        for entry in volume.list().await?.into_iter().filter(|entry| !entry.is_dir) {
            let name = entry.name;
            if let Some(number) = Segment::number_of(&name) {
                let segment = files.segment(volume, identity, number, &name).await?;
                files.segments.push(segment);
            } else if let Some(position) = snapshot::position_of(&name) {
                files.snapshots.push(position);
            } else if name.ends_with(NEW) {
                files.unfinished.push(name);
            }
        }
        Ok(files)
    }

    async fn segment(
        &self,
        volume: &dyn Volume,
        identity: Identity,
        number: u64,
        name: &str,
    ) -> Result<Segment, LedgerError> {
        let frames = Frames::open_own(volume, name, Sort::Segment, identity).await?;
        let first = frames.header.position;
        let is_behind = self.segments.last().is_none_or(|before| before.first <= first);
        let wrong = |reason| LedgerError::Header { file: name.to_owned(), reason };
        match frames.header.number == number {
            true if is_behind => Ok(Segment { number, first }),
            true => Err(wrong("it begins before the segment before it")),
            false => Err(wrong("it was another file's")),
        }
    }

    /// Makes the names durable on which all rests.
    async fn name_anew(&self, volume: &dyn Volume) -> Result<(), LedgerError> {
        let segment = self.segments.last().map(Segment::name);
        let snapshot = self.snapshots.last().map(|position| snapshot::name(*position));
        for name in segment.into_iter().chain(snapshot) {
            let moved = format!("{name}{MOVED}");
            volume.rename(&name, &moved).await?;
            volume.rename(&moved, &name).await?;
        }
        Ok(volume.sync_names().await?)
    }

    async fn latest_snapshot(
        &self,
        volume: &dyn Volume,
        identity: Identity,
    ) -> Result<Option<Snapshot>, LedgerError> {
        let Some(position) = self.snapshots.last() else { return Ok(None) };
        let file = snapshot::name(*position);
        let frames = Frames::open_own(volume, &file, Sort::Snapshot, identity).await?;
        if frames.header.position != *position {
            return Err(LedgerError::Header { file, reason: "it was another file's" });
        }
        Snapshot::of_file(frames).await.map(Some)
    }
}

/// End of what is there, and what of it is written once more.
struct Last {
    /// Number of the segment that begins now.
    number: u64,
    end: u64,
    /// Count of records before those that are written once more.
    doubtful: u64,
    again: Vec<bytes::Bytes>,
    cut: Option<Cut>,
}

impl Last {
    async fn of(
        volume: &dyn Volume,
        identity: Identity,
        files: &Files,
        from: u64,
    ) -> Result<Self, LedgerError> {
        let missing =
            |from, to| LedgerError::Missing { from: Position::new(from), to: Position::new(to) };
        let Some(last) = files.segments.last() else {
            let nothing = Self { number: 1, end: 0, doubtful: 0, again: Vec::new(), cut: None };
            return if from == 0 { Ok(nothing) } else { Err(missing(0, from)) };
        };
        // The first of those that are needed holds what follows the snapshot.
        let needed = files.segments.iter().rev().find(|segment| segment.first <= from);
        if needed.is_none() {
            return Err(missing(from, files.segments[0].first));
        }
        let mut frames = Frames::open_own(volume, &last.name(), Sort::Segment, identity).await?;
        let end = End::of(&mut frames).await?;
        if end.position < from {
            return Err(missing(end.position, from));
        }
        let again = records_of(&mut frames, end).await?;
        let cut = Cut::of(&frames, end);
        let (number, doubtful) = (next_number(last.number)?, end.doubtful);
        Ok(Self { number, end: end.position, doubtful, again, cut })
    }

    fn encode(&self, salt: u64) -> BytesMut {
        let mut bytes = BytesMut::new();
        for (position, record) in (self.doubtful..).zip(&self.again) {
            format::encode(salt, position, self.doubtful, record, &mut bytes);
        }
        bytes
    }
}

/// The records of the last batch.
async fn records_of(frames: &mut Frames, end: End) -> Result<Vec<bytes::Bytes>, LedgerError> {
    let (mut at, mut records) = (end.doubtful_at, Vec::new());
    while records.len() as u64 != end.position - end.doubtful {
        let Found::Record { body, next, .. } = frames.at(at).await? else {
            return Err(LedgerError::Corrupt {
                file: frames.name.clone(),
                offset: at,
                position: Position::new(end.doubtful + records.len() as u64),
            });
        };
        records.push(body);
        at = next;
    }
    Ok(records)
}

impl Cut {
    fn of(frames: &Frames, end: End) -> Option<Self> {
        let bytes = frames.len.saturating_sub(end.at);
        let position = Position::new(end.position);
        (bytes > 0).then(|| Self { file: frames.name.clone(), offset: end.at, bytes, position })
    }
}

/// The segments with records from a position on, and the last one; and the others.
fn split(segments: Vec<Segment>, from: u64) -> (Vec<Segment>, Vec<Segment>) {
    let firsts: Vec<_> = segments.iter().map(|segment| segment.first).collect();
    let (mut needed, mut others) = (Vec::new(), Vec::new());
    for (at, segment) in segments.into_iter().enumerate() {
        let is_needed = match firsts.get(at + 1) {
            Some(end) => *end > from && *end > segment.first,
            None => true,
        };
        if is_needed { &mut needed } else { &mut others }.push(segment);
    }
    (needed, others)
}

/// Each segment with the place where it ends.
fn ends(segments: &[Segment], end: u64) -> VecDeque<(Segment, u64)> {
    let ends = segments.iter().skip(1).map(|next| next.first).chain([end]);
    segments.iter().cloned().zip(ends).collect()
}

/// Names of segments that nobody needs, and of snapshots before the latest.
fn outdated(segments: &[Segment], snapshots: &[u64], latest: u64) -> Vec<String> {
    let old = snapshots.iter().filter(|position| **position < latest);
    segments.iter().map(Segment::name).chain(old.map(|at| snapshot::name(*at))).collect()
}

/// Removes what nobody reads any more. It may come back in a crash, and then goes again.
async fn remove(volume: &dyn Volume, names: &[String]) -> Result<(), LedgerError> {
    for name in names {
        volume.remove(name).await?;
    }
    Ok(())
}
