//! Records of a ledger in order, over all its segments.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use super::Identity;
use super::error::LedgerError;
use super::files::Volume;
use super::format::Sort;
use super::frames::{FIRST_AT, Found, Frames};
use super::segment::Segment;
use crate::durable::Position;

/// Records that a ledger had when it was opened, behind its snapshot. Read them all before the
/// ledger is trimmed.
#[derive(Debug)]
pub struct Records {
    volume: Arc<dyn Volume>,
    identity: Identity,
    /// Segments still to be read, each up to some position.
    segments: VecDeque<(Segment, u64)>,
    current: Option<Current>,
    /// Count of records before the next.
    position: u64,
    /// The first that is asked for.
    from: u64,
}

#[derive(Debug)]
struct Current {
    frames: Frames,
    at: u64,
    end: u64,
}

impl Records {
    /// The records between two positions, of segments of which the first begins before them.
    pub(super) fn new(
        volume: Arc<dyn Volume>,
        identity: Identity,
        segments: VecDeque<(Segment, u64)>,
        from: u64,
    ) -> Self {
        Self { volume, identity, segments, current: None, position: 0, from }
    }

    /// The next record, with the position behind it: what [`Ledger::append`](super::Ledger::append)
    /// answered.
    ///
    /// # Errors
    /// [`LedgerError::Corrupt`] and [`LedgerError::Missing`] for a record that was durable and is
    /// not what was written, or nowhere; what the disk says. Asked again, it tries the same record.
    ///
    /// # Cancel safety
    /// Cancel safe: dropped, it has not moved on.
    pub async fn next(&mut self) -> Result<Option<(Position, Bytes)>, LedgerError> {
        loop {
            let Some(current) = &mut self.current else {
                let Some((segment, end)) = self.segments.front().cloned() else {
                    return Ok(None);
                };
                self.begin(&segment, end).await?;
                self.segments.pop_front();
                continue;
            };
            if self.position >= current.end {
                self.current = None;
                continue;
            }
            let record = current.next(self.position).await?;
            self.position += 1;
            if self.position > self.from {
                return Ok(Some((Position::new(self.position), record)));
            }
        }
    }

    async fn begin(&mut self, segment: &Segment, end: u64) -> Result<(), LedgerError> {
        let name = segment.name();
        let frames = Frames::open_own(&*self.volume, &name, Sort::Segment, self.identity).await?;
        self.position = frames.header.position;
        self.current = Some(Current { frames, at: FIRST_AT, end });
        Ok(())
    }
}

impl Current {
    async fn next(&mut self, position: u64) -> Result<Bytes, LedgerError> {
        match self.frames.at(self.at).await? {
            Found::Record { head, body, next } if head.position == position => {
                self.at = next;
                Ok(body)
            }
            Found::Seal(_) => Err(self.missing(position)),
            Found::Nothing if self.at == self.frames.len => Err(self.missing(position)),
            _ => Err(LedgerError::Corrupt {
                file: self.frames.name.clone(),
                offset: self.at,
                position: Position::new(position),
            }),
        }
    }

    /// The segment ends before the next one begins.
    fn missing(&self, position: u64) -> LedgerError {
        LedgerError::Missing { from: Position::new(position), to: Position::new(self.end) }
    }
}
