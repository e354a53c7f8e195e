//! A ledger read from outside, whatever state it is in: for people, and for tools.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use convoke::disk::Disk;

use super::Identity;
use super::error::LedgerError;
use super::files::{Folder, Volume};
use super::format::Sort;
use super::frames::{FIRST_AT, Found, Frames};
use super::segment::{MOVED, Segment};
use super::snapshot;
use crate::durable::Position;

/// Reads all files of a ledger, of whichever node, and says what is wrong where. It takes no lock
/// and changes nothing: of a ledger in use it sees what has been written so far.
///
/// # Errors
/// The folder cannot be listed.
pub async fn read<D: Disk>(disk: D) -> Result<Reading, LedgerError> {
    let volume: Arc<dyn Volume> = Arc::new(Folder::new(disk));
    let entries = volume.list().await?.into_iter().filter(|entry| !entry.is_dir);
    let sort = |file: &str| match file.strip_suffix(MOVED).unwrap_or(file) {
        name if Segment::number_of(name).is_some() => Some(Sort::Segment),
        name if snapshot::position_of(name).is_some() => Some(Sort::Snapshot),
        _ => None,
    };
    let mut files: Vec<_> =
        entries.filter_map(|entry| Some((sort(&entry.name)?, entry.name))).collect();
    // Snapshots first, as a node reads them.
    files.sort_by_key(|(sort, _)| *sort == Sort::Segment);
    Ok(Reading { volume, files: files.into(), current: None, there: There::default() })
}

/// The entries of a ledger's files, one after another, in bounded memory.
#[derive(Debug)]
pub struct Reading {
    volume: Arc<dyn Volume>,
    files: VecDeque<(Sort, String)>,
    current: Option<Current>,
    there: There,
}

#[derive(Debug)]
struct Current {
    frames: Frames,
    at: u64,
    position: u64,
    is_closed: bool,
}

/// Records that the files have between them.
#[derive(Debug, Default)]
struct There {
    /// Count of those in the latest snapshot.
    snapshot: u64,
    /// The places before the first one and behind the last one of each segment.
    segments: Vec<(u64, u64)>,
    is_told: bool,
}

impl There {
    /// Records that a node misses which starts with these files; told once.
    fn missing(&mut self) -> Option<LedgerError> {
        if std::mem::replace(&mut self.is_told, true) {
            return None;
        }
        self.segments.sort_unstable();
        let (from, segments) = (self.snapshot, &self.segments);
        let first = segments.first().map(|(first, _)| *first);
        let end = segments.iter().map(|(_, end)| *end).max();
        let mut gaps = segments.windows(2).map(|pair| (pair[0].1, pair[1].0));
        let (from, to) = match (first, end) {
            (Some(first), _) if first > from => (from, first),
            (_, Some(end)) if end < from => (end, from),
            (None, _) if from > 0 => (0, from),
            _ => gaps.find(|(end, first)| end < first && *first > from)?,
        };
        Some(LedgerError::Missing { from: Position::new(from), to: Position::new(to) })
    }
}

/// Something in a file of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file.
    pub file: String,
    /// Byte at which it begins.
    pub offset: u64,
    /// Its kind.
    pub content: Content,
}

/// Contents of a file of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Content {
    /// A segment begins.
    Segment {
        /// Its cluster and node.
        identity: Identity,
        /// The place before its first record.
        position: Position,
    },
    /// A snapshot begins.
    Snapshot {
        /// Its cluster and node.
        identity: Identity,
        /// The place up to which records are in it.
        position: Position,
    },
    /// A record, or a part of a snapshot.
    Record {
        /// The place behind it; of a part of a snapshot, how many there are so far.
        position: Position,
        /// All before this place was durable when it was written.
        durable: Position,
        /// The record, as it was appended.
        bytes: Bytes,
    },
    /// The file was closed here, and is whole.
    Seal,
    /// Bytes up to the end of the file behind which there is no record: a tail that was torn, or
    /// that the segment behind it replaces.
    Tail {
        /// Count of them.
        bytes: u64,
    },
    /// Something is wrong here. What follows is read all the same.
    Wrong(LedgerError),
}

impl Reading {
    /// True when there is no file of a ledger.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.current.is_none()
    }

    /// The next entry, `None` behind the last.
    pub async fn next(&mut self) -> Option<Entry> {
        loop {
            let Some(current) = &mut self.current else {
                let Some((sort, name)) = self.files.pop_front() else {
                    let content = Content::Wrong(self.there.missing()?);
                    return Some(Entry { file: "ledger".to_owned(), offset: 0, content });
                };
                return Some(self.begin(sort, name).await);
            };
            let offset = current.at;
            let (file, found) = (current.frames.name.clone(), current.next().await);
            let content = match found {
                Ok(Some(content)) => content,
                Ok(None) => {
                    self.end();
                    continue;
                }
                Err(error) => {
                    self.end();
                    Content::Wrong(error)
                }
            };
            return Some(Entry { file, offset, content });
        }
    }

    /// Behind the last entry of a file.
    fn end(&mut self) {
        let Some(Current { frames, position, .. }) = self.current.take() else { return };
        let first = frames.header.position;
        match frames.header.sort {
            Sort::Segment => self.there.segments.push((first, position)),
            Sort::Snapshot => self.there.snapshot = self.there.snapshot.max(first),
        }
    }

    async fn begin(&mut self, sort: Sort, name: String) -> Entry {
        let frames = match Frames::open(&*self.volume, &name, sort).await {
            Ok(frames) => frames,
            Err(error) => return Entry { file: name, offset: 0, content: Content::Wrong(error) },
        };
        let (identity, position) = (frames.header.identity, frames.header.position);
        let first = if sort == Sort::Segment { position } else { 0 };
        self.current = Some(Current { frames, at: FIRST_AT, position: first, is_closed: false });
        let position = Position::new(position);
        let content = match sort {
            Sort::Segment => Content::Segment { identity, position },
            Sort::Snapshot => Content::Snapshot { identity, position },
        };
        Entry { file: name, offset: 0, content }
    }
}

impl Current {
    async fn next(&mut self) -> Result<Option<Content>, LedgerError> {
        if self.at >= self.frames.len {
            let (file, offset) = (self.frames.name.clone(), self.frames.len);
            // A snapshot has its name only once it is whole; a segment grows.
            let is_cut = self.frames.header.sort == Sort::Snapshot && !self.is_closed;
            self.is_closed = true;
            return Ok(
                is_cut.then_some(Content::Wrong(LedgerError::CorruptSnapshot { file, offset }))
            );
        }
        match self.frames.at(self.at).await? {
            Found::Record { head, body, next } if head.position == self.position => {
                (self.at, self.position) = (next, self.position.saturating_add(1));
                let [position, durable] = [self.position, head.durable].map(Position::new);
                Ok(Some(Content::Record { position, durable, bytes: body }))
            }
            Found::Seal(_) => {
                self.at += super::format::HEAD_BYTES as u64;
                self.is_closed = true;
                Ok(Some(Content::Seal))
            }
            _ => self.skip().await.map(Some),
        }
    }

    /// Goes on at the next head, or at the end.
    async fn skip(&mut self) -> Result<Content, LedgerError> {
        let (offset, position) = (self.at, Position::new(self.position));
        let Some((at, head)) = self.frames.head_from(offset + 1, self.position).await? else {
            self.at = self.frames.len;
            return Ok(match self.frames.header.sort {
                Sort::Segment => Content::Tail { bytes: self.frames.len - offset },
                Sort::Snapshot => {
                    self.is_closed = true;
                    let file = self.frames.name.clone();
                    Content::Wrong(LedgerError::CorruptSnapshot { file, offset })
                }
            });
        };
        (self.at, self.position) = (at, head.position);
        let file = self.frames.name.clone();
        Ok(Content::Wrong(match self.frames.header.sort {
            Sort::Segment => LedgerError::Corrupt { file, offset, position },
            Sort::Snapshot => LedgerError::CorruptSnapshot { file, offset },
        }))
    }
}
