//! A replica: one door for what it hears, the time, and what it wants done.

mod changing;
mod checkpointing;
mod executing;
mod fetching;
mod forgotten;
mod handing;
mod ordering;
mod outlining;
mod repeating;
mod restarting;
mod vouching;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::Held;

use self::changing::Clock;
use self::fetching::{Asked, Transfer};
pub use self::forgotten::Forgotten;
use super::group::{ClientId, Digest, Group, Sequence, View};
use super::handover::Handover;
use super::keys::{Signed, Verified};
use super::members::{FIRST_EPOCH, Member, Members};
use super::message::{
    Batch, Checkpoint, Message, NewView, Outcome, Outline, Phase, Record, Reply, Signatures,
    SignedRequest, Stable, ViewChange, Vote, Vouch,
};
use super::plan::Plan;
use super::requests::Requests;
use super::signature::{Checker, Signature};
use super::slot::Slot;
use super::state::{Changing, Executed, Machine, Snapshot, State};
use super::trust::Trust;
use super::vouches::Vouches;
use crate::mutant::{self, Mutant};

/// Settings of a [`Replica`]. All replicas have the same, but for the node.
#[derive(Clone, Debug, Hash)]
pub struct Settings {
    /// This node.
    pub node: NodeId,
    /// The members with which it begins, and their keys. Those of the first epoch have formed the
    /// cluster; into a later one a node is taken by a change.
    pub members: Members,
    /// All clients.
    pub clients: BTreeSet<ClientId>,
    /// The client whose requests change the members, and nothing else. Default: nobody may.
    pub administrator: Option<ClientId>,
    /// The proof by which requests are believed. Default: signatures.
    pub trust: Trust,
    /// Proposals have digests of their requests: for clients that ask all replicas, so that each
    /// has heard the requests already. Default false.
    pub is_outlined: bool,
    /// Places between two checkpoints. Default 128.
    pub checkpoint_every: u64,
    /// Places above the stable checkpoint that are open: at least two checkpoints, the default.
    pub window: u64,
    /// Batches that are proposed and not executed yet, at most. Default 32.
    pub in_flight: u64,
    /// Requests of one batch that it proposes, at most. Default [`Batch::REQUESTS_MAX`], and never
    /// more.
    pub batch_max: usize,
    /// Bytes of the operations of one batch that it proposes, if it has more than one request.
    /// Default [`Batch::BYTES_MAX`], and never more.
    pub batch_bytes_max: usize,
    /// Requests of one client in flight, at most; its session remembers so many. Default 16.
    pub each_client_max: usize,
    /// A request that has waited for so long has a bad primary. It doubles with each view that
    /// fails. Default 1 s.
    pub timeout: Duration,
    /// Pause between two reports of what a replica lacks, by which lost votes are repeated. Default
    /// 100 ms.
    pub repeat: Duration,
    /// Bytes of a part of a state. Default 256 KiB.
    pub part_bytes: usize,
}

impl Settings {
    /// Defaults for one of these members, of the first epoch, who sign nothing: where members are
    /// to change, the state has to have their keys.
    pub fn new(node: NodeId, group: Group, clients: impl IntoIterator<Item = ClientId>) -> Self {
        let member =
            |node: &NodeId| (*node, Member { key: Checker::Unsigned, addresses: Vec::new() });
        let nodes = group.members().iter().map(member).collect();
        Self {
            node,
            members: Members { epoch: FIRST_EPOCH, nodes },
            clients: clients.into_iter().collect(),
            administrator: None,
            trust: Trust::Signatures,
            is_outlined: false,
            checkpoint_every: 128,
            window: 256,
            in_flight: 32,
            batch_max: Batch::REQUESTS_MAX,
            batch_bytes_max: Batch::BYTES_MAX,
            each_client_max: 16,
            timeout: Duration::from_secs(1),
            repeat: Duration::from_millis(100),
            part_bytes: 256 << 10,
        }
    }
}

/// Something to be done. Effects are done in the order in which they come.
#[derive(Clone, Debug, Hash)]
pub enum Effect {
    /// Append to the ledger.
    Append(Record),
    /// Sign this and send it to these, this node perhaps among them, once all that was appended is
    /// durable.
    Say {
        /// The members.
        to: Vec<NodeId>,
        /// The words.
        message: Held<Message>,
        /// The epoch in which they were said. Once another one has begun nobody wants them.
        epoch: u64,
    },
    /// Send words that were signed and said before.
    Relay {
        /// The member.
        to: NodeId,
        /// The words.
        message: Signed<Message>,
    },
    /// Tell a node how an epoch has ended. The proof is all that it needs.
    HandOver {
        /// The node.
        to: NodeId,
        /// The proof.
        handover: Handover,
    },
    /// Another epoch has begun: sign and check with its [keys](super::Keys::after).
    Epoch(Handover),
    /// Pass a request on.
    Forward {
        /// The primary.
        to: NodeId,
        /// The request.
        request: SignedRequest,
    },
    /// Sign this and send it to its client.
    Reply(Reply),
    /// A batch was executed: for logs and checks, nothing is to be done.
    Executed {
        /// Its place.
        sequence: Sequence,
        /// The batch's.
        digest: Digest,
        /// Outcomes of its requests.
        outcomes: Vec<Executed>,
    },
    /// A member has signed two words that contradict each other: evidence that others can check.
    Lied {
        /// The one that counts.
        first: Signed<Message>,
        /// The other one.
        second: Signed<Message>,
    },
}

/// One member of a cluster.
#[derive(Clone, Debug, Hash)]
pub struct Replica<M> {
    settings: Settings,
    state: State<M>,
    /// The clients that the state has begun with, once they are in the ledger.
    first_clients: Option<Vec<ClientId>>,
    /// The members of the epoch, which [`handing`] alone changes.
    group: Group,
    epoch: u64,
    handovers: Vec<Handover>,
    view: View,
    /// It has left the views before, and this one has not begun.
    is_changing: bool,
    /// The beginning of the view, but for the first one.
    entered: Option<Signed<Arc<NewView>>>,
    plan: Plan,
    stable: Stable,
    executed: Sequence,
    /// When it has executed a place the last time.
    moved: Duration,
    slots: BTreeMap<Sequence, Slot>,
    batches: BTreeMap<Digest, Batch>,
    /// Outlines of proposals of this view whose requests are not all here.
    outlines: BTreeMap<Sequence, Outline>,
    /// Requests that they name, and others have sent.
    pulled: BTreeMap<Digest, SignedRequest>,
    /// States at the stable checkpoint and at later ones.
    snapshots: BTreeMap<Sequence, Snapshot>,
    /// The latest of them that is in the ledger.
    written: Sequence,
    /// Claims about checkpoints above the stable one: of each member the first.
    claims: BTreeMap<Sequence, BTreeMap<NodeId, (Digest, Signature)>>,
    /// The last place that this node has proposed something for.
    proposed: Sequence,
    requests: Requests,
    /// Word of others about requests, and requests that this node has vouched for in this turn.
    vouches: Vouches,
    vouched: Vec<Vouch>,
    /// Requests for which proposals wait until somebody vouches for them.
    doubted: BTreeSet<(ClientId, u64)>,
    /// The latest view that each member wants.
    changes: BTreeMap<NodeId, Signed<Arc<ViewChange>>>,
    clock: Clock,
    transfer: Option<Transfer>,
    /// When each member's status was answered.
    answered: BTreeMap<NodeId, Duration>,
    /// Questions of each member.
    asked: BTreeMap<NodeId, Asked>,
    /// Turns of asking: whom to ask next.
    turn: u64,
    /// Number of times that batches were asked for to begin a view.
    turn_to_begin: usize,
    effects: VecDeque<Effect>,
}

impl<M: Machine> Replica<M> {
    /// A replica with an empty ledger, or one whose records are [replayed](Replica::replay) now.
    ///
    /// # Panics
    /// Without members.
    pub fn new(settings: Settings, machine: M) -> Self {
        let (clients, members) = (settings.clients.iter().copied(), settings.members.clone());
        let group = members.group().expect("there are members");
        let epoch = members.epoch;
        let state = State::new(machine, clients, settings.each_client_max, members);
        let nothing = Checkpoint { sequence: Sequence(0), digest: Digest([0; 32]) };
        Self {
            state,
            first_clients: None,
            group,
            epoch,
            handovers: Vec::new(),
            view: View(0),
            is_changing: false,
            entered: None,
            plan: Plan::default(),
            stable: Stable { checkpoint: nothing, signatures: Signatures::new() },
            executed: Sequence(0),
            moved: Duration::ZERO,
            slots: BTreeMap::new(),
            batches: BTreeMap::new(),
            outlines: BTreeMap::new(),
            pulled: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            written: Sequence(0),
            claims: BTreeMap::new(),
            proposed: Sequence(0),
            requests: Requests::new(settings.each_client_max),
            vouches: Vouches::new(settings.each_client_max * (settings.members.nodes.len() + 1)),
            vouched: Vec::new(),
            doubted: BTreeSet::new(),
            changes: BTreeMap::new(),
            clock: Clock::new(settings.timeout),
            transfer: None,
            answered: BTreeMap::new(),
            asked: BTreeMap::new(),
            turn: settings.node.get(),
            turn_to_begin: 0,
            effects: VecDeque::new(),
            settings,
        }
    }

    /// Takes words of a member, its own included: its own vote counts once it comes back signed.
    pub fn handle_message(&mut self, now: Duration, message: Verified<Signed<Message>>) {
        let Signed { epoch, by, body, signature } = message.into_inner();
        let is_over = epoch != self.epoch && !mutant::is(Mutant::EpochNotChecked);
        if is_over || !self.takes_part() {
            return;
        }
        match body {
            Message::Propose(vote, batch) => self.on_propose(now, by, vote, signature, batch),
            Message::Vote(vote) => self.on_vote(now, by, vote, signature),
            Message::Checkpoint(checkpoint) => {
                self.on_checkpoint(now, by, checkpoint, signature);
            }
            Message::ViewChange(body) => {
                self.on_view_change(now, Signed { epoch, by, body, signature })
            }
            Message::NewView(body) => self.on_new_view(now, Signed { epoch, by, body, signature }),
            Message::Stable(stable) => self.on_stable(now, stable),
            Message::Status(status) => self.on_status(now, by, status),
            Message::Fetch(fetch) => self.on_fetch(now, by, fetch),
            Message::Fetched(fetched) => self.on_fetched(now, by, fetched),
            Message::Vouch(vouches) => self.on_vouch(now, by, &vouches),
            Message::Pass(requests) => self.on_pass(now, by, &requests),
            Message::Outline(vote, outline) => self.on_outline(now, by, vote, signature, outline),
            Message::Pull(digests) => self.on_pull(now, by, &digests),
        }
        self.hand_over(now);
        self.propose_more();
    }

    /// Takes a request: of its client, or passed on by a member where it is signed.
    pub fn handle_request(&mut self, now: Duration, request: Verified<SignedRequest>) {
        if !self.takes_part() {
            return;
        }
        let signed = request.into_inner();
        let (client, number) = (signed.request.client, signed.request.number);
        if let Some(outcome) = self.state.outcome(client, number) {
            self.reply(client, number, outcome);
            return;
        }
        let digest = (!self.outlines.is_empty()).then(|| signed.digest());
        if self.is_by_channels() {
            self.believe(now, &signed);
        } else {
            self.take_signed(now, signed);
        }
        digest.into_iter().for_each(|digest| self.fill_all(now, &digest));
        self.propose_more();
    }

    fn take_signed(&mut self, now: Duration, signed: SignedRequest) {
        let primary = self.primary();
        let is_new = self.requests.insert(now, signed.clone());
        // A client that asks all has asked the primary, too. What waits is passed on later.
        if is_new && primary != self.settings.node && !self.settings.is_outlined {
            self.effects.push_back(Effect::Forward { to: primary, request: signed });
        }
    }

    /// The next thing to be done.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front().or_else(|| self.vouch())
    }

    /// Its view; false beside it while the view has not begun.
    pub fn view(&self) -> (View, bool) {
        (self.view, !self.is_changing)
    }

    /// All up to here is executed.
    pub fn executed(&self) -> Sequence {
        self.executed
    }

    /// The latest checkpoint that is stable.
    pub fn stable(&self) -> &Stable {
        &self.stable
    }

    /// The outcome of a request, if it is decided and remembered.
    pub fn outcome(&self, client: ClientId, number: u64) -> Option<Outcome> {
        self.state.outcome(client, number)
    }

    /// Count of requests that are known and not executed.
    pub fn waiting(&self) -> usize {
        self.requests.len()
    }

    /// The machine, as it is after all that was executed.
    pub fn machine(&self) -> &M {
        self.state.machine()
    }

    /// The digest of its state, as a checkpoint would claim it.
    pub fn state_digest(&self) -> Digest {
        self.state.snapshot(self.settings.part_bytes).digest()
    }

    /// Proposals that its view had to begin with.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The time that a request may take in its view.
    pub fn timeout(&self) -> Duration {
        self.clock.timeout()
    }

    fn changing(&self) -> Changing {
        let Settings { administrator, checkpoint_every: every, window, .. } = self.settings;
        Changing { administrator, every, window }
    }

    fn primary(&self) -> NodeId {
        self.group.primary(self.view)
    }

    fn is_primary(&self) -> bool {
        self.primary() == self.settings.node
    }

    fn quorum(&self) -> usize {
        self.group.quorum()
    }

    fn low(&self) -> Sequence {
        self.stable.checkpoint.sequence
    }

    /// True for a place between the watermarks.
    fn is_open(&self, sequence: Sequence) -> bool {
        let over = u64::from(mutant::is(Mutant::WatermarkOffByOne));
        let last = self.low().plus(self.settings.window + over);
        let last = self.end().map_or(last, |end| last.min(end));
        sequence > self.low() && sequence <= last
    }

    fn append(&mut self, record: Record) {
        self.effects.push_back(Effect::Append(record));
    }

    /// Says something to all, itself included.
    fn say(&mut self, message: Message) {
        let to = self.group.members().to_vec();
        self.effects.push_back(Effect::Say { to, message: Held::new(message), epoch: self.epoch });
    }

    /// Says something to one.
    fn tell(&mut self, to: NodeId, message: Message) {
        let (to, message, epoch) = (vec![to], Held::new(message), self.epoch);
        self.effects.push_back(Effect::Say { to, message, epoch });
    }

    /// Says something that rests on a record.
    fn say_after(&mut self, record: Record, message: Message) {
        if mutant::is(Mutant::VoteNotDurable) {
            self.say(message);
            return self.append(record);
        }
        self.append(record);
        self.say(message);
    }

    fn relay(&mut self, to: NodeId, body: Message, by: NodeId, signature: Signature) {
        let message = Signed { epoch: self.epoch, by, body, signature };
        self.effects.push_back(Effect::Relay { to, message });
    }

    fn reply(&mut self, client: ClientId, number: u64, outcome: Outcome) {
        let view = self.view;
        self.effects.push_back(Effect::Reply(Reply { client, number, view, outcome }));
    }

    /// The members, but this one.
    fn others(&self) -> Vec<NodeId> {
        let members = self.group.members().iter().copied();
        members.filter(|member| *member != self.settings.node).collect()
    }
}

/// The message of a vote. A proposal goes without its batch.
fn message(vote: Vote) -> Message {
    match vote.phase {
        Phase::Propose => Message::Propose(vote, None),
        Phase::Prepare | Phase::Commit => Message::Vote(vote),
    }
}
