//! A node of the world: a replica, its ledger, and what waits for that.

use std::collections::BTreeSet;
use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::Held;
use node_kit::world::{Log, Timer};

use crate::core::{
    Answer, Ballot, Effect, Kept, Life, Members, Membership, Record, Replica, Settings, Slot,
    Standing, Token, Value,
};

/// Something that leaves a node.
#[derive(Debug)]
pub(super) enum Left {
    /// To who asked.
    Answer(Token, Answer),
    /// To itself.
    Own(Answer),
}

#[derive(Debug)]
pub(super) struct Node {
    settings: Settings,
    replica: Option<Replica>,
    /// Counts the runs of its process.
    run: u64,
    ledger: Log<Record, Left>,
    /// All up to here is applied; of a snapshot, the same.
    applied: Slot,
    snapshot: Option<(Slot, Membership)>,
    /// It is to write a snapshot once nothing waits for its ledger.
    wants_snapshot: bool,
    membership: Option<Membership>,
    /// Those whom its questions to all others are for.
    others: BTreeSet<NodeId>,
    /// The number of its ledger.
    life: Life,
    standing: Standing,
    /// The last slot that was chosen when it took its ballot.
    inherited: Slot,
    proposals: BTreeSet<(Slot, Ballot, Vec<u8>)>,
    timer: Timer,
}

impl Node {
    pub(super) fn new(settings: Settings, life: Life) -> Self {
        Self {
            settings,
            replica: None,
            run: 0,
            ledger: Log::new(vec![Record::Life(life)]),
            applied: Slot::default(),
            snapshot: None,
            wants_snapshot: false,
            membership: None,
            others: BTreeSet::new(),
            life,
            standing: Standing::Leaderless,
            inherited: Slot::default(),
            proposals: BTreeSet::new(),
            timer: Timer::default(),
        }
    }

    pub(super) fn run(&self) -> u64 {
        self.run
    }

    pub(super) fn is_up(&self) -> bool {
        self.replica.is_some()
    }

    pub(super) fn replica_mut(&mut self) -> Option<&mut Replica> {
        self.replica.as_mut()
    }

    pub(super) fn applied(&self) -> Slot {
        self.applied
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    /// The number of its ledger.
    pub(super) fn life(&self) -> Life {
        self.life
    }

    /// True when it knows that a majority knows these to be the members.
    pub(super) fn is_settled(&self, epoch: u64) -> bool {
        let replica = self.replica.as_ref();
        replica.is_some_and(|replica| replica.epoch() == epoch && replica.is_settled())
    }

    /// Members behind what it has applied.
    pub(super) fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    pub(super) fn others(&self) -> &BTreeSet<NodeId> {
        &self.others
    }

    /// Others are members from now on.
    pub(super) fn members_changed(&mut self) {
        self.others = self.replica.as_ref().map(Replica::others).unwrap_or_default();
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.standing, Standing::Leading(_)) && self.is_up()
    }

    pub(super) fn stand(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// Takes a ballot, at a time when all up to `chosen` is chosen.
    pub(super) fn take_ballot(&mut self, chosen: Slot) {
        self.inherited = chosen;
    }

    /// The last slot that was chosen when it took its ballot.
    pub(super) fn inherited(&self) -> Slot {
        self.inherited
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
        self.ledger.append(record);
    }

    pub(super) fn hold(&mut self, token: Token, answer: Held<Answer>) {
        self.ledger.hold(answer.map(|answer| Left::Answer(token, answer)));
    }

    pub(super) fn hold_own(&mut self, answer: Held<Answer>) {
        self.ledger.hold(answer.map(Left::Own));
    }

    /// Begins to make durable what is not, if anything waits for it.
    pub(super) fn begin_sync(&mut self) -> Option<(u64, usize)> {
        self.ledger.begin_sync().then(|| (self.run, self.ledger.records().len()))
    }

    /// So much is durable: gives out what waited for it.
    pub(super) fn synced(&mut self, position: usize) -> Vec<Left> {
        self.ledger.synced(position);
        self.ledger.release()
    }

    /// Applies a value. True when it is one that this node proposed in the ballot that it leads.
    pub(super) fn apply(&mut self, slot: Slot, value: &Value) -> bool {
        // A replay begins anew; what is applied again is what was applied before.
        self.applied = slot;
        Membership::learn(&mut self.membership, slot, value);
        let (Value::Commands(commands), Standing::Leading(ballot)) = (value, self.standing) else {
            return false;
        };
        self.proposals.remove(&(slot, ballot, commands.to_vec()))
    }

    pub(super) fn propose(&mut self, now: Duration, value: Value) -> Option<Slot> {
        let replica = self.replica.as_mut()?;
        let Value::Commands(commands) = value.clone() else { return None };
        let (ballot, slot) = replica.propose(now, value).ok()?;
        self.proposals.insert((slot, ballot, commands.to_vec()));
        Some(slot)
    }

    /// Proposes other members.
    pub(super) fn change(&mut self, now: Duration, members: Members) -> Option<()> {
        self.replica.as_mut()?.change(now, members).ok().map(|_| ())
    }

    /// Loses its memory, and of its ledger what the seed does not leave.
    pub(super) fn crash(&mut self, kept: u64) {
        self.ledger.crash(kept);
        self.replica = None;
        self.proposals.clear();
        self.standing = Standing::Leaderless;
        self.timer = Timer::default();
        self.wants_snapshot = false;
        self.run += 1;
    }

    /// Loses its ledger, too.
    pub(super) fn wipe(&mut self, life: Life) {
        self.ledger = Log::new(vec![Record::Life(life)]);
        self.snapshot = None;
        self.life = life;
    }

    /// Starts, unless it is up.
    pub(super) fn restart(&mut self, now: Duration) -> Option<()> {
        if self.is_up() {
            return None;
        }
        let snapshot = self.snapshot.clone();
        self.applied = snapshot.as_ref().map(|(slot, _)| *slot).unwrap_or_default();
        self.membership = snapshot.map(|(_, membership)| membership);
        let mut replica = Replica::new(self.settings.clone(), 0);
        for record in self.ledger.records() {
            replica.replay(record.clone());
        }
        replica.start(now);
        self.standing = replica.standing();
        self.others = replica.others();
        self.replica = Some(replica);
        Some(())
    }

    /// Will write a snapshot.
    pub(super) fn want_snapshot(&mut self) {
        self.wants_snapshot = true;
    }

    /// Writes a durable snapshot of what is applied, if it is to, which replaces the ledger so far,
    /// and lets go of values that are in it.
    pub(super) fn take_snapshot(&mut self, now: Duration) {
        let Some(replica) = self.replica.as_mut().filter(|_| self.wants_snapshot) else { return };
        if replica.chosen() < Slot::FIRST || !self.ledger.is_idle() {
            return;
        }
        self.wants_snapshot = false;
        self.ledger = Log::new(replica.checkpoint());
        self.snapshot = self.membership.clone().map(|membership| (replica.chosen(), membership));
        replica.handle_saved(replica.chosen());
        replica.trim(now, replica.chosen(), Kept::NOTHING);
    }

    pub(super) fn snapshot(&self) -> Option<(Slot, Membership)> {
        self.snapshot.clone().filter(|_| self.is_up())
    }

    pub(super) fn install(
        &mut self,
        now: Duration,
        upto: Slot,
        membership: Membership,
    ) -> Option<()> {
        if upto > self.applied {
            self.applied = upto;
            self.membership = Some(membership.clone());
            self.wants_snapshot = true;
        }
        self.replica.as_mut().map(|replica| replica.handle_installed(now, upto, membership))
    }
}
