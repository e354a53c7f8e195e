//! Group commit: who appends fills a buffer, and one task writes and syncs all that is in it.
//!
//! ```text
//!  append ──▶ buffer ──┐ durable: "I wait for this"
//!  append ──▶ buffer ──┤
//!                      ▼
//!                   writer: take the buffer ──▶ one write ──▶ one sync ──▶ all who wait
//!                      ▲                                                     │
//!                      └──── what was appended meanwhile is the next batch ◀─┘
//! ```

use std::sync::Arc;

use bytes::BytesMut;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use super::error::LedgerError;
use super::files::{Lock, Volume};
use super::format::{self, Header, Sort};
use super::segment::{Active, Segment};
use super::{Identity, LedgerStats, RECORD_BYTES_MAX, Settings};
use crate::durable::Position;
use crate::mutant::{self, Mutant};

/// Bytes at which a batch is written though nobody waits for it.
const UNASKED_BYTES: usize = 1 << 20;

/// Between those who append, and the writer.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    work: Notify,
    progress: watch::Sender<Progress>,
    /// The right of others than the writer to change names. It ends before the lock is free.
    names: Arc<Semaphore>,
    salt: u64,
    buffered_bytes_max: usize,
}

#[derive(Debug)]
struct State {
    buffer: BytesMut,
    /// Count of records before the buffer.
    start: u64,
    /// Count of all records.
    end: u64,
    /// Somebody waits for the records before this one.
    wanted: u64,
    duty: Duty,
    segments: Vec<Segment>,
    stats: LedgerStats,
}

/// A duty of the writer beside writing.
#[derive(Clone, Debug)]
enum Duty {
    Write,
    /// Seal the ledger, and end.
    Close,
    /// End at once.
    Abandon,
    /// End with a failure.
    Fail(LedgerError),
}

#[derive(Debug, Default)]
struct Progress {
    durable: u64,
    /// The reason why nothing more will be.
    end: Option<LedgerError>,
}

/// Taken from the buffer.
struct Batch {
    bytes: BytesMut,
    /// Count of records before its end.
    end: u64,
}

enum Order {
    Write(Batch),
    Close(Batch),
    Abandon,
}

impl Shared {
    /// For a ledger of which so many records are durable.
    pub(super) fn new(end: u64, salt: u64, segments: Vec<Segment>, settings: &Settings) -> Self {
        let state = State {
            buffer: BytesMut::new(),
            start: end,
            end,
            wanted: end,
            duty: Duty::Write,
            segments,
            stats: LedgerStats::default(),
        };
        Self {
            state: Mutex::new(state),
            work: Notify::new(),
            progress: watch::Sender::new(Progress { durable: end, end: None }),
            names: Arc::new(Semaphore::new(1)),
            salt,
            buffered_bytes_max: settings.buffered_bytes_max,
        }
    }

    pub(super) fn append(&self, record: &[u8]) -> Position {
        let mut state = self.state.lock();
        let before = state.end;
        state.end += 1;
        if !matches!(state.duty, Duty::Write) {
            // It will never be durable, so it is not kept.
        } else if record.len() > RECORD_BYTES_MAX {
            state.duty = Duty::Fail(LedgerError::TooLarge { bytes: record.len() });
            self.work.notify_one();
        } else {
            let start = state.start;
            format::encode(self.salt, before, start, record, &mut state.buffer);
            if state.buffer.len() >= UNASKED_BYTES {
                self.work.notify_one();
            }
        }
        Position::new(before + 1)
    }

    pub(super) fn end(&self) -> Position {
        Position::new(self.state.lock().end)
    }

    pub(super) fn durable_now(&self) -> Position {
        Position::new(self.progress.borrow().durable)
    }

    pub(super) async fn durable(&self, position: Position) -> Result<Position, LedgerError> {
        let mut progress = self.progress.subscribe();
        self.want(position)?;
        let is_there =
            |progress: &Progress| progress.end.is_some() || progress.durable >= position.records();
        match progress.wait_for(is_there).await {
            Ok(reached) => match &reached.end {
                Some(end) => Err(end.clone()),
                None => Ok(Position::new(reached.durable)),
            },
            Err(_) => Err(LedgerError::Closed),
        }
    }

    /// Has the records before a position written soon.
    fn want(&self, position: Position) -> Result<(), LedgerError> {
        let mut state = self.state.lock();
        if position.records() > state.end {
            return Err(LedgerError::NotAppended { position, end: Position::new(state.end) });
        }
        if position.records() > state.wanted {
            state.wanted = position.records();
            self.work.notify_one();
        }
        Ok(())
    }

    pub(super) async fn room(&self) -> Result<(), LedgerError> {
        let mut progress = self.progress.subscribe();
        loop {
            if let Some(end) = &progress.borrow_and_update().end {
                return Err(end.clone());
            }
            if self.has_room() {
                return Ok(());
            }
            progress.changed().await.map_err(|_| LedgerError::Closed)?;
        }
    }

    pub(super) fn has_room(&self) -> bool {
        let mut state = self.state.lock();
        let has_room = state.buffer.len() < self.buffered_bytes_max.max(1);
        if !has_room {
            state.wanted = state.end;
            self.work.notify_one();
        }
        has_room
    }

    /// The right to change names of files, for one at a time: the ledger keeps its lock meanwhile.
    ///
    /// # Errors
    /// The reason why the ledger has ended.
    pub(super) async fn names(&self) -> Result<OwnedSemaphorePermit, LedgerError> {
        match self.names.clone().acquire_owned().await {
            Ok(names) => Ok(names),
            Err(_) => Err(self.end_reason().await),
        }
    }

    /// Has the writer write what is left, seal the ledger and end.
    pub(super) async fn close(&self) -> Result<Position, LedgerError> {
        let end = self.end();
        self.assign(Duty::Close);
        match self.end_reason().await {
            LedgerError::Closed if self.durable_now() >= end => Ok(self.durable_now()),
            error => Err(error),
        }
    }

    /// Waits until the writer has ended.
    async fn end_reason(&self) -> LedgerError {
        let mut progress = self.progress.subscribe();
        let ended = progress.wait_for(|progress| progress.end.is_some()).await;
        ended.ok().and_then(|ended| ended.end.clone()).unwrap_or(LedgerError::Closed)
    }

    /// Has the writer end.
    pub(super) fn abandon(&self) {
        self.assign(Duty::Abandon);
    }

    /// Has the writer end with a failure of another part of the ledger.
    pub(super) fn fail(&self, error: LedgerError) {
        self.assign(Duty::Fail(error));
    }

    fn assign(&self, duty: Duty) {
        let mut state = self.state.lock();
        if matches!(state.duty, Duty::Write) {
            state.duty = duty;
        }
        self.work.notify_one();
    }

    pub(super) fn stats(&self) -> LedgerStats {
        self.state.lock().stats
    }

    /// The first segment, where all its records are before a position.
    pub(super) fn segment_before(&self, position: u64) -> Option<Segment> {
        // It ends where the next one begins, and the last one not at all.
        match &self.state.lock().segments[..] {
            [first, next, ..] if next.first <= position => Some(first.clone()),
            _ => None,
        }
    }

    /// The first segment is removed.
    pub(super) fn forget_segment(&self) {
        self.state.lock().segments.remove(0);
    }

    async fn order(&self) -> Result<Order, LedgerError> {
        loop {
            if let Some(order) = self.order_now()? {
                return Ok(order);
            }
            self.work.notified().await;
        }
    }

    fn order_now(&self) -> Result<Option<Order>, LedgerError> {
        let mut state = self.state.lock();
        Ok(match &state.duty {
            Duty::Fail(error) => return Err(error.clone()),
            Duty::Abandon => Some(Order::Abandon),
            Duty::Close => Some(Order::Close(state.take())),
            Duty::Write if state.wanted > state.start || state.buffer.len() >= UNASKED_BYTES => {
                Some(Order::Write(state.take()))
            }
            Duty::Write => None,
        })
    }

    fn is_durable(&self, end: u64) {
        self.progress.send_modify(|progress| progress.durable = progress.durable.max(end));
    }

    fn ended(&self, why: LedgerError) {
        self.assign(Duty::Abandon);
        self.state.lock().buffer = BytesMut::new();
        self.progress.send_modify(|progress| {
            progress.end.get_or_insert(why);
        });
    }
}

impl State {
    fn take(&mut self) -> Batch {
        self.start = self.end;
        Batch { bytes: self.buffer.split(), end: self.end }
    }
}

/// The only one who writes.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) volume: Arc<dyn Volume>,
    pub(super) active: Active,
    pub(super) identity: Identity,
    /// Count of records that are written.
    pub(super) end: u64,
    pub(super) segment_bytes: u64,
    pub(super) _lock: Lock,
}

/// Tells who waits that the writer is gone, even when its runtime is.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.ended(LedgerError::Closed);
    }
}

impl Writer {
    /// Writes until the ledger is closed, dropped, or fails.
    pub(super) async fn run(mut self) {
        let ending = Ending(Arc::clone(&self.shared));
        let worked = self.work().await;
        // Who has the right to change names is waited for, and nobody gets it any more.
        let _last = ending.0.names.acquire().await;
        ending.0.names.close();
        // The lock is free before anybody can hear of the end.
        drop(self);
        if let Err(error) = worked {
            ending.0.ended(error.for_later());
        }
    }

    async fn work(&mut self) -> Result<(), LedgerError> {
        loop {
            match self.shared.order().await? {
                Order::Write(batch) => self.commit(batch).await?,
                Order::Close(batch) => {
                    self.commit(batch).await?;
                    return self.seal().await;
                }
                Order::Abandon => return Ok(()),
            }
        }
    }

    async fn commit(&mut self, batch: Batch) -> Result<(), LedgerError> {
        if batch.bytes.is_empty() {
            return Ok(());
        }
        if self.active.end_at >= self.segment_bytes {
            self.roll().await?;
        }
        let bytes = batch.bytes.len() as u64;
        if mutant::is(Mutant::ReplyBeforeFsync) {
            self.shared.is_durable(batch.end);
        }
        let began = Instant::now();
        self.active.write(batch.bytes.freeze()).await?;
        let took = began.elapsed();
        let records = batch.end - self.end;
        self.end = batch.end;
        self.shared.state.lock().stats.add_batch(records, bytes, took);
        self.shared.is_durable(batch.end);
        Ok(())
    }

    /// Goes on in a new segment. All in the one before is durable.
    async fn roll(&mut self) -> Result<(), LedgerError> {
        let number = next_number(self.active.number)?;
        let header = Header {
            sort: Sort::Segment,
            identity: self.identity,
            number,
            position: self.end,
            salt: self.shared.salt,
        };
        self.active = Active::begin(&*self.volume, header, &[]).await?;
        let mut state = self.shared.state.lock();
        state.segments.push(Segment { number, first: self.end });
        state.stats.segments += 1;
        Ok(())
    }

    async fn seal(&mut self) -> Result<(), LedgerError> {
        let mut seal = BytesMut::new();
        format::encode_seal(self.shared.salt, self.end, &mut seal);
        Ok(self.active.write(seal.freeze()).await?)
    }
}

/// The number of the segment behind one.
pub(super) fn next_number(number: u64) -> Result<u64, LedgerError> {
    let next = number.checked_add(1);
    next.ok_or_else(|| LedgerError::Header {
        file: Segment { number, first: 0 }.name(),
        reason: "there is no higher number",
    })
}
