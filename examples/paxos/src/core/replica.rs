//! A replica: acceptor, proposer and learner behind one door.

mod changing;
mod electing;
mod leading;
mod learning;
mod voting;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::Held;

use self::learning::Behind;
use super::acceptor::Acceptor;
use super::ballot::{Ballot, Life, Slot, Value};
use super::holds::Holds;
use super::leader::Role;
use super::log::Log;
use super::membership::{Members, Membership, Part, majority};
use super::message::{Answer, Ask, Record};

/// A number by which a program knows what waits: a question to be answered, a read.
pub type Token = u64;

/// Settings of a [`Replica`].
#[derive(Clone, Debug, Hash)]
pub struct Settings {
    /// This node.
    pub node: NodeId,
    /// Those who form the cluster, all of them, and vote from then on until the log has decided
    /// otherwise.
    pub voters: BTreeSet<NodeId>,
    /// Nodes whose word is taken until this node knows who is a member, and when they say that they
    /// know later ones: the voters, if nothing else is said.
    pub peers: BTreeSet<NodeId>,
    /// Pause between rounds of an idle leader. Default 50 ms. A vote that is missing for twice as
    /// long is asked for again.
    pub heartbeat: Duration,
    /// A leader that was not heard for so long is missed; one that is not heard by a majority stops
    /// leading. Default 500 ms.
    pub election_timeout: Duration,
    /// Slots that are proposed and not chosen yet, at most, and slots between a change of members
    /// and its effect. That of the node which forms the cluster holds for all. Default 32.
    pub window: usize,
    /// Bytes of values in one message, at most, where it has more than one. Default 1 MiB.
    pub message_bytes_max: usize,
    /// Decides how long a node waits for others in an election. Default: the id of the node.
    pub seed: u64,
}

impl Settings {
    /// Defaults for a node of a cluster that these voters form.
    pub fn new(node: NodeId, voters: impl IntoIterator<Item = NodeId>) -> Self {
        let voters: BTreeSet<NodeId> = voters.into_iter().collect();
        Self {
            node,
            peers: voters.clone(),
            voters,
            heartbeat: Duration::from_millis(50),
            election_timeout: Duration::from_millis(500),
            window: 32,
            message_bytes_max: 1 << 20,
            seed: node.get(),
        }
    }
}

/// Something to be done. Effects are done in the order in which they come.
#[derive(Clone, Debug, Hash)]
pub enum Effect {
    /// Append to the ledger.
    Append(Record),
    /// Ask others. No answer at all is an answer, too.
    Ask {
        /// Those who are asked.
        to: Recipients,
        /// The configuration of this node, which the question has to name.
        epoch: u64,
        /// The question.
        ask: Ask,
    },
    /// Answer a question.
    Answer {
        /// The question's.
        token: Token,
        /// The answer.
        answer: Answer,
    },
    /// Answer a question once all that was appended is durable.
    AnswerDurable {
        /// The question's.
        token: Token,
        /// The answer.
        answer: Held<Answer>,
    },
    /// Give this node its own vote, by [`Replica::handle_answer`], once all that was appended is
    /// durable.
    Own(Held<Answer>),
    /// Apply the next value of the log.
    Apply {
        /// Its slot.
        slot: Slot,
        /// The value.
        value: Value,
    },
    /// Answer a read: all that was proposed before it is applied.
    Ready(Token),
    /// A read cannot be answered here: the node does not lead any more.
    Unready(Token),
    /// The node leads now, or does not any more, or follows somebody else. What it had proposed and
    /// was not applied may be chosen or not.
    Standing(Standing),
    /// Others are members now, or are about to be.
    Membership(Membership),
    /// Fetch the snapshot of another node, install it, and say so by
    /// [`Replica::handle_installed`], or give up by [`Replica::handle_not_installed`].
    FetchSnapshot {
        /// The node that has it.
        from: NodeId,
        /// It has all up to here.
        upto: Slot,
    },
}

/// Nodes that a question is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recipients {
    /// All members but this node, of now and of the change under way: [`Replica::others`]. There
    /// are some.
    Others,
    /// This one.
    One(NodeId),
}

/// Standing of a node in its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It knows of no leader.
    #[default]
    Leaderless,
    /// It follows this one.
    Following(NodeId),
    /// It leads this ballot.
    Leading(Ballot),
    /// Others say that it is no member: not yet, or not any more.
    Outside,
}

/// Reason why a value was not proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotProposed {
    /// Others may lead.
    #[error(transparent)]
    NotLeading(#[from] NotLeading),
    /// As many slots are open as may be, or those of earlier ballots are: [`Replica::room`] is 0.
    #[error("no slot can be proposed now")]
    NoRoom,
    /// Other members than those of now are about to be, or these do not follow them.
    #[error("another change of the members is under way")]
    Changing,
}

/// Reason why something cannot be proposed or read here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this node does not lead")]
pub struct NotLeading {
    /// The node that might.
    pub leader: Option<NodeId>,
}

/// One node of a replicated log.
#[derive(Clone, Debug, Hash)]
pub struct Replica {
    settings: Settings,
    life: Life,
    membership: Option<Membership>,
    /// Others say that the cluster was formed with another ledger of this node.
    is_stranger: bool,
    acceptor: Acceptor,
    log: Log,
    holds: Holds,
    role: Role,
    standing: Standing,
    /// The leader that it follows, or followed until it missed it: that one may lead on, though it
    /// is no member any more.
    followed: Option<NodeId>,
    /// The greatest ballot there was word of.
    seen: Ballot,
    /// When a leader was heard last.
    heard: Option<Duration>,
    /// When to do something about a leader.
    election: Duration,
    attempts: u64,
    behind: Option<Behind>,
    unsaved: Option<Unsaved>,
    effects: VecDeque<Effect>,
}

/// Values that are kept though a snapshot has them, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The count of them.
    pub slots: u64,
    /// Bytes of all values that are kept.
    pub bytes: usize,
}

impl Kept {
    /// No value.
    pub const NOTHING: Self = Self { slots: 0, bytes: 0 };
}

/// Election timeouts without a question, after which a node that has fetched a snapshot is not
/// waited for any more: 10 s with the default, and one part may take 5 s.
const HOLD_TIMEOUTS: u32 = 20;

/// A snapshot of another node that was installed, and is not durable here yet: a crash leaves what
/// was before.
#[derive(Clone, Copy, Debug, Hash)]
struct Unsaved {
    /// The ledger has it that all up to here is chosen.
    durable: Slot,
    /// The snapshot has all up to here.
    upto: Slot,
}

impl Replica {
    /// A node with a ledger of this number: an empty one, or one whose records are
    /// [replayed](Replica::replay) now.
    pub fn new(settings: Settings, life: Life) -> Self {
        Self {
            life,
            membership: None,
            is_stranger: false,
            acceptor: Acceptor::default(),
            log: Log::default(),
            holds: Holds::default(),
            role: Role::Following,
            standing: Standing::Leaderless,
            followed: None,
            seen: Ballot::NONE,
            heard: None,
            election: Duration::ZERO,
            attempts: 0,
            behind: None,
            unsaved: None,
            effects: VecDeque::new(),
            settings,
        }
    }

    /// Takes a record of its ledger, in the order in which they were appended. What is known to be
    /// chosen is applied again.
    pub fn replay(&mut self, record: Record) {
        match record {
            Record::Life(life) => self.life = life,
            Record::Promised(ballot) => {
                self.acceptor.promise(ballot);
            }
            Record::Accepted { ballot, first, values } => {
                for (slot, value) in (first.0..).map(Slot).zip(values) {
                    if slot > self.log.chosen() {
                        self.acceptor.accept(ballot, slot, value);
                    }
                }
                self.acceptor.promise(ballot);
            }
            Record::Chosen { ballot, upto } => self.learn_accepted(ballot, upto),
            Record::Learned { first, values } => self.learn_values(first, values),
            Record::Trimmed { upto, membership } => self.jump(upto, membership),
        }
        self.effects.retain(|effect| matches!(effect, Effect::Apply { .. }));
        self.seen = self.seen.max(self.acceptor.promised());
    }

    /// Begins, once all records are replayed.
    pub fn start(&mut self, now: Duration) {
        self.defer_election(now);
        if self.votes() && self.is_supported(&BTreeSet::new()) {
            self.election = now; // there is nobody else
        }
        if let Some(membership) = self.membership.clone() {
            self.effects.push_back(Effect::Membership(membership));
        }
    }

    /// The next thing to be done.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When [`Replica::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Duration {
        let own = match &self.role {
            Role::Leading(leading) => leading.next_beat,
            _ => self.election,
        };
        self.behind.as_ref().and_then(Behind::due).map_or(own, |due| own.min(due))
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        match &self.role {
            Role::Leading(leading) if leading.next_beat <= now => self.beat(now),
            Role::Leading(_) => {}
            _ if self.election <= now => self.canvass(now),
            _ => {}
        }
        self.catch_up_if_due(now);
    }

    /// Its standing.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The number of its ledger.
    pub fn life(&self) -> Life {
        self.life
    }

    /// All up to here is known to be chosen, and has been given out to be applied.
    pub fn chosen(&self) -> Slot {
        self.log.chosen()
    }

    /// All up to here is in a snapshot only.
    pub fn trimmed(&self) -> Slot {
        self.log.trimmed()
    }

    /// The greatest ballot it has promised.
    pub fn promised(&self) -> Ballot {
        self.acceptor.promised()
    }

    /// Records that bring back all that must not be forgotten, beside a snapshot of what was
    /// applied up to now.
    pub fn checkpoint(&self) -> Vec<Record> {
        let mut records = vec![Record::Life(self.life)];
        if let Some(membership) = self.membership.clone() {
            records.push(Record::Trimmed { upto: self.log.chosen(), membership });
        }
        for (slot, ballot, value) in self.acceptor.iter() {
            records.push(Record::Accepted { ballot, first: slot, values: vec![value.clone()] });
        }
        records.push(Record::Promised(self.acceptor.promised()));
        records
    }

    /// A snapshot of this node with all up to here is durable. One that was
    /// [installed](Self::handle_installed) counts for others from then on.
    pub fn handle_saved(&mut self, upto: Slot) {
        self.unsaved.take_if(|unsaved| unsaved.upto <= upto);
    }

    /// Lets go of values up to here, which a durable snapshot has: but for as many of the last as
    /// are said, while they have no more bytes, and for those that are kept for
    /// [others](Self::handle_fetching).
    pub fn trim(&mut self, now: Duration, upto: Slot, kept: Kept) {
        let patience = HOLD_TIMEOUTS * self.settings.election_timeout;
        let held = self.holds.first(now, patience, &self.log).unwrap_or(upto);
        let (upto, early) = (upto.min(self.log.chosen()), upto.0.saturating_sub(kept.slots));
        self.log.trim(held.min(upto).min(Slot(early)));
        self.log.trim_to(held.min(upto), kept.bytes);
    }

    /// Another node takes a part of a snapshot that this node has of all up to here. What is behind
    /// is kept for it, until it has that: while it goes on to ask, for a part or for values, once
    /// in 20 election timeouts at least, and while no more bytes than these are kept.
    pub fn handle_fetching(&mut self, now: Duration, from: NodeId, upto: Slot, bytes_max: usize) {
        self.holds.fetches(now, from, upto, bytes_max);
    }

    /// Members as far as this node knows the log. `None` until it knows the first value.
    pub fn membership(&self) -> Option<&Membership> {
        self.membership.as_ref()
    }

    /// The configuration of the slot behind the last that is known to be chosen; 0 for none.
    pub fn epoch(&self) -> u64 {
        self.membership.as_ref().map_or(0, |membership| membership.now.epoch)
    }

    /// True when this node may lead and its votes count, as far as it knows.
    pub fn votes(&self) -> bool {
        match &self.membership {
            Some(membership) => membership.now.counts(self.settings.node, self.life),
            None => self.settings.voters.contains(&self.settings.node) && !self.is_stranger,
        }
    }

    /// Its part in the configuration of now, as far as it knows the log. One of a voter is that of
    /// the ledger with its number.
    pub fn part(&self) -> Option<Part> {
        self.membership.as_ref()?.now.part(self.settings.node)
    }

    /// All members but this node, of now and of the change under way: those who are asked.
    pub fn others(&self) -> BTreeSet<NodeId> {
        let mut others: BTreeSet<NodeId> = match &self.membership {
            Some(membership) => membership.nodes().map(|(node, _)| node).collect(),
            None => self.settings.voters.clone(),
        };
        others.remove(&self.settings.node);
        others
    }

    /// True when there are voters but this node, of now or of the change under way: one of them can
    /// lead in its place.
    pub fn has_other_voters(&self) -> bool {
        let own = self.settings.node;
        let Some(Membership { now, next, .. }) = &self.membership else {
            return self.settings.voters.iter().any(|node| *node != own);
        };
        let next = next.iter().map(|(_, members)| members);
        next.chain([now]).flat_map(Members::voters).any(|(node, _)| node != own)
    }

    /// True when this node and these others are a majority.
    fn is_supported(&self, by: &BTreeSet<NodeId>) -> bool {
        let has = |node| node == self.settings.node || by.contains(&node);
        match &self.membership {
            Some(membership) => membership.now.is_majority(|node, _| has(node)),
            None => {
                let voters = &self.settings.voters;
                voters.iter().filter(|node| has(**node)).count() >= majority(voters.len())
            }
        }
    }

    fn leader(&self) -> Option<NodeId> {
        match self.standing {
            Standing::Following(leader) => Some(leader),
            Standing::Leading(_) => Some(self.settings.node),
            Standing::Leaderless | Standing::Outside => None,
        }
    }

    fn stand(&mut self, standing: Standing) {
        match standing {
            Standing::Following(leader) => self.followed = Some(leader),
            Standing::Leading(_) | Standing::Outside => self.followed = None,
            Standing::Leaderless => {}
        }
        if self.standing != standing {
            self.standing = standing;
            self.effects.push_back(Effect::Standing(standing));
        }
    }

    fn append(&mut self, record: Record) {
        self.effects.push_back(Effect::Append(record));
    }

    fn ask(&mut self, node: NodeId, ask: Ask) {
        let epoch = self.epoch();
        self.effects.push_back(Effect::Ask { to: Recipients::One(node), epoch, ask });
    }

    fn ask_others(&mut self, ask: Ask) {
        if !self.others().is_empty() {
            let epoch = self.epoch();
            self.effects.push_back(Effect::Ask { to: Recipients::Others, epoch, ask });
        }
    }
}
