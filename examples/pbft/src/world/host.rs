//! A host of the world: a replica, its ledger, and what waits for that.

use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::Held;
use node_kit::world::{Log, Timer};

use super::machine::Tape;
use crate::core::{Effect, Handover, Keys, Message, Record, Replica, Settings};

/// Words, those they are for, and their epoch.
pub(super) type Said = ((Vec<NodeId>, u64), Message);

#[derive(Debug)]
pub(super) struct Host {
    settings: Settings,
    /// The keys of the epoch that it was set up with.
    first: Keys,
    /// The keys of its epoch.
    keys: Keys,
    replica: Option<Replica<Tape>>,
    /// Counts the runs of its process.
    run: u64,
    ledger: Log<Record, Said>,
    /// The ledger is to be replaced by a shorter one, once nothing waits for it.
    wants_compaction: bool,
    timer: Timer,
}

impl Host {
    pub(super) fn new(settings: Settings, keys: Keys) -> Self {
        Self {
            settings,
            first: keys.clone(),
            keys,
            replica: None,
            run: 0,
            ledger: Log::new(Vec::new()),
            wants_compaction: false,
            timer: Timer::default(),
        }
    }

    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    /// Another epoch has begun.
    pub(super) fn begin_epoch(&mut self, handover: &Handover) {
        self.keys = self.first.after(handover).expect("there are members");
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
        self.timer.arm(self.replica.as_ref()?.poll_timeout())
    }

    /// True when a timer that was armed is due.
    pub(super) fn take_due(&mut self, now: Duration) -> bool {
        self.timer.take_due(now)
    }

    pub(super) fn append(&mut self, record: Record) {
        self.wants_compaction |= matches!(record, Record::Snapshot(..));
        self.ledger.append(record);
    }

    pub(super) fn hold(&mut self, to: (Vec<NodeId>, u64), message: Held<Message>) {
        self.ledger.hold(message.map(|message| (to, message)));
    }

    /// Begins to make durable what somebody waits for, and no record behind that.
    pub(super) fn begin_sync(&mut self) -> Option<(u64, usize)> {
        let awaited = self.ledger.awaited()?;
        self.ledger.begin_sync().then_some((self.run, awaited))
    }

    /// So much is durable.
    pub(super) fn synced(&mut self, position: usize) {
        self.ledger.synced(position);
    }

    /// Gives out what waits for nothing any more.
    pub(super) fn release(&mut self) -> Vec<Said> {
        self.ledger.release()
    }

    /// Replaces the ledger by what has to be remembered, if it is to.
    pub(super) fn compact(&mut self) {
        let Some(replica) = self.replica.as_ref().filter(|_| self.wants_compaction) else { return };
        if !self.ledger.is_idle() {
            return;
        }
        self.wants_compaction = false;
        self.ledger = Log::new(replica.records());
    }

    /// Loses its memory, and of its ledger what the seed does not leave. True if it was up.
    pub(super) fn crash(&mut self, kept: u64) -> bool {
        if self.replica.take().is_none() {
            return false;
        }
        self.ledger.crash(kept);
        self.timer = Timer::default();
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
        for record in self.ledger.records() {
            replica.replay(record.clone()).expect("it was written by this program");
        }
        self.keys = self.first.clone();
        if let Some(handover) = replica.handovers().last().cloned() {
            self.begin_epoch(&handover);
        }
        replica.start(now);
        self.replica = Some(replica);
    }
}
