//! A host of the world: a replica, its ledger, and what waits for that.

use std::collections::VecDeque;
use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::{Durable, Held, Position, Waiting};

use super::machine::Tape;
use crate::core::{Effect, Message, Record, Replica, Settings};

/// Words and those they are for.
pub(super) type Said = (Vec<NodeId>, Message);

#[derive(Debug)]
pub(super) struct Host {
    settings: Settings,
    replica: Option<Replica<Tape>>,
    /// Counts the runs of its process.
    run: u64,
    ledger: Vec<Record>,
    /// Records of the ledger that are durable.
    durable: usize,
    is_syncing: bool,
    waiting: VecDeque<Waiting<Said>>,
    /// The ledger is to be replaced by a shorter one, once nothing waits for it.
    wants_compaction: bool,
    timeout: Option<Duration>,
}

impl Host {
    pub(super) fn new(settings: Settings) -> Self {
        Self {
            settings,
            replica: None,
            run: 0,
            ledger: Vec::new(),
            durable: 0,
            is_syncing: false,
            waiting: VecDeque::new(),
            wants_compaction: false,
            timeout: None,
        }
    }

    pub(super) fn run(&self) -> u64 {
        self.run
    }

    pub(super) fn replica(&self) -> Option<&Replica<Tape>> {
        self.replica.as_ref()
    }

    pub(super) fn replica_mut(&mut self) -> Option<&mut Replica<Tape>> {
        self.replica.as_mut()
    }

    pub(super) fn poll_effect(&mut self) -> Option<Effect> {
        self.replica.as_mut()?.poll_effect()
    }

    /// When the timer of the replica is due, where that is not scheduled yet.
    pub(super) fn arm(&mut self) -> Option<Duration> {
        let due = self.replica.as_ref()?.poll_timeout();
        if self.timeout.is_some_and(|armed| armed <= due) {
            return None;
        }
        self.timeout = Some(due);
        Some(due)
    }

    /// True when a timer that was armed is due.
    pub(super) fn take_due(&mut self, now: Duration) -> bool {
        let is_due = self.timeout.is_some_and(|armed| armed <= now);
        if is_due {
            self.timeout = None;
        }
        is_due
    }

    pub(super) fn append(&mut self, record: Record) {
        self.wants_compaction |= matches!(record, Record::Snapshot(..));
        self.ledger.push(record);
    }

    pub(super) fn hold(&mut self, to: Vec<NodeId>, message: Held<Message>) {
        let position = Position::new(self.ledger.len() as u64);
        self.waiting.push_back(message.map(|message| (to, message)).after(position));
    }

    /// Begins to make durable what somebody waits for, and no record behind that.
    pub(super) fn begin_sync(&mut self) -> Option<(u64, usize)> {
        let last = self.waiting.back().filter(|_| !self.is_syncing)?.position();
        self.is_syncing = true;
        Some((self.run, usize::try_from(last.records()).unwrap_or(usize::MAX)))
    }

    /// So much is durable.
    pub(super) fn synced(&mut self, position: usize) {
        self.is_syncing = false;
        self.durable = self.durable.max(position.min(self.ledger.len()));
    }

    /// Gives out what waits for nothing any more.
    pub(super) fn release(&mut self) -> Vec<Said> {
        let durable = Durable::in_memory(Position::new(self.durable as u64));
        let mut left = Vec::new();
        while let Some(waiting) = self.waiting.pop_front() {
            match waiting.release(&durable) {
                Ok(said) => left.push(said),
                Err(waiting) => {
                    self.waiting.push_front(waiting);
                    break;
                }
            }
        }
        left
    }

    /// Replaces the ledger by what has to be remembered, if it is to.
    pub(super) fn compact(&mut self) {
        let Some(replica) = self.replica.as_ref().filter(|_| self.wants_compaction) else { return };
        if !self.waiting.is_empty() || self.is_syncing {
            return;
        }
        self.wants_compaction = false;
        self.ledger = replica.records();
        self.durable = self.ledger.len();
    }

    /// Loses its memory, and of its ledger what the seed does not leave. True if it was up.
    pub(super) fn crash(&mut self, kept: u64) -> bool {
        if self.replica.take().is_none() {
            return false;
        }
        let unsynced = (self.ledger.len() - self.durable) as u64;
        let kept = usize::try_from(kept % (unsynced + 1)).unwrap_or(0);
        self.ledger.truncate(self.durable + kept);
        self.durable = self.ledger.len();
        self.is_syncing = false;
        self.waiting.clear();
        self.timeout = None;
        self.wants_compaction = false;
        self.run += 1;
        true
    }

    /// Starts, unless it is up.
    pub(super) fn restart(&mut self, now: Duration) {
        if self.replica.is_some() {
            return;
        }
        let mut replica = Replica::new(self.settings.clone(), Tape::new());
        self.ledger.iter().for_each(|record| replica.replay(record.clone()));
        replica.start(now);
        self.replica = Some(replica);
    }
}
