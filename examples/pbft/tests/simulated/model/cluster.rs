//! Four members, one of them two replicas with one name, and what is on its way between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke::NodeId;
use node_kit::durable::{Durable, Position};
use pbft::core::{
    ClientId, Digest, Effect, Group, Keys, Machine, Message, Phase, Record, Replica, Request,
    Scope, Sequence, Settings, Signed, SignedRequest, Signer, View,
};

/// Replicas: the twins of member 1, then members 2, 3 and 4.
const HOSTS: usize = 5;
const TWINS: usize = 2;

/// The time at which requests come, and that of everything else: who is asked then if a request has
/// waited too long for the first view says yes.
const BEGUN: Duration = Duration::from_secs(1);
const NOW: Duration = Duration::from_secs(60);

/// Bounds of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The twin that each of members 2, 3 and 4 hears.
    pub(super) hears: [usize; HOSTS - TWINS],
    /// Replicas that may find that a request waits too long, the twins among them. The others join
    /// f + 1 that do.
    pub(super) impatient: [bool; HOSTS],
}

/// Next event of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// A replica leaves the first view.
    Leave(usize),
    /// A packet arrives. Those that never do are lost.
    Deliver(Arc<Packet>),
}

/// Words on their way to a replica that does not lie.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Packet {
    to: usize,
    words: Signed<Message>,
    digest: u64,
}

/// A machine that knows what it has executed.
#[derive(Clone, Debug, Hash)]
struct Tape(Vec<u8>);

impl Machine for Tape {
    fn apply(&mut self, operation: &[u8]) -> Bytes {
        self.0.extend_from_slice(operation);
        Bytes::copy_from_slice(&self.0)
    }

    fn encode(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(bytes.to_vec()))
    }
}

/// A replica, and the places of which its votes have decided something.
#[derive(Clone, Debug)]
struct Host {
    replica: Replica<Tape>,
    prepared: BTreeSet<(View, Sequence)>,
    committed: BTreeSet<(View, Sequence)>,
    digest: u64,
}

/// Everything that replicas that do not lie have ever done.
#[derive(Clone, Debug, Hash)]
pub(super) struct Truth {
    prepared: BTreeMap<(View, Sequence), Digest>,
    /// Batches for which somebody has voted to prepare.
    accepted: BTreeSet<(View, Sequence, Digest)>,
    /// The view in which each has executed the first place, and its batch.
    executed: BTreeMap<usize, (View, Digest)>,
    pub(super) is_prepared_once: bool,
    pub(super) agrees: bool,
}

/// A state of the model.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    hosts: [Arc<Host>; HOSTS],
    network: Vec<Arc<Packet>>,
    bounds: Bounds,
    pub(super) truth: Truth,
}

impl PartialEq for Cluster {
    fn eq(&self, other: &Self) -> bool {
        digest(self) == digest(other)
    }
}

impl Hash for Cluster {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bounds.hears.hash(state);
        self.hosts.each_ref().map(|host| host.digest).hash(state);
        self.network.iter().for_each(|packet| packet.digest.hash(state));
        self.truth.hash(state);
    }
}

impl Cluster {
    /// Everybody knows two requests. The first twin proposes one of them, the second the other.
    pub(super) fn new(bounds: Bounds) -> Self {
        let truth = Truth {
            prepared: BTreeMap::new(),
            accepted: BTreeSet::new(),
            executed: BTreeMap::new(),
            is_prepared_once: true,
            agrees: true,
        };
        let host = |host| Arc::new(Host::new(host));
        let hosts = [host(0), host(1), host(2), host(3), host(4)];
        let mut cluster = Self { hosts, network: Vec::new(), bounds, truth };
        for host in 0..HOSTS {
            let first = u64::from(host == 1);
            cluster.with(host, |replica| {
                replica.start(BEGUN);
                replica.handle_timeout(BEGUN); // the first report: none is due again
                for number in [first, 1 - first] {
                    let request = keys().examine_request(id(host), request(number));
                    let request = request.and_then(pbft::core::Unproven::open);
                    replica.handle_request(BEGUN, request.expect("nobody has to sign"));
                }
            });
        }
        cluster
    }

    pub(super) fn actions(&self) -> Vec<Action> {
        let leaves = |host: &usize| {
            self.bounds.impatient[*host] && self.hosts[*host].replica.poll_timeout() <= NOW
        };
        let mut actions: Vec<Action> = (0..HOSTS).filter(leaves).map(Action::Leave).collect();
        let due = self.network.iter().filter(|packet| self.is_due(packet));
        let (second, first): (Vec<_>, Vec<_>) = due.partition(|packet| {
            vote_of(&packet.words.body).is_some_and(|(_, view, _)| view > View(0))
        });
        // The votes of the second view arrive in one order, those of the first in any between.
        let due = first.into_iter().chain(second.into_iter().take(1));
        actions.extend(due.cloned().map(Action::Deliver));
        actions
    }

    pub(super) fn after(&self, action: Action) -> Self {
        let mut cluster = self.clone();
        match action {
            Action::Leave(host) => cluster.with(host, |replica| replica.handle_timeout(NOW)),
            Action::Deliver(packet) => {
                cluster.network.retain(|on_way| !Arc::ptr_eq(on_way, &packet));
                cluster.hear(packet.to, &packet.words);
            }
        }
        let mut network = std::mem::take(&mut cluster.network);
        network.retain(|packet| !cluster.is_over(packet));
        network.sort_by_key(|packet| packet.digest);
        cluster.network = network;
        cluster
    }

    /// Votes count in their view alone. Those of a view that has not begun there are lost.
    fn is_due(&self, packet: &Packet) -> bool {
        let view = self.hosts[packet.to].replica.view();
        vote_of(&packet.words.body).is_none_or(|(_, of, _)| view == (of, true))
    }

    /// True for words that change nothing, whenever they come: of a view that was left, or about
    /// what is decided.
    fn is_over(&self, packet: &Packet) -> bool {
        let Host { replica, prepared, committed, .. } = &*self.hosts[packet.to];
        let (view, has_begun) = replica.view();
        match &packet.words.body {
            Message::ViewChange(change) => {
                let begins_it = !has_begun && group().primary(view) == id(packet.to);
                change.view < view || (change.view == view && !begins_it)
            }
            Message::NewView(new_view) => {
                new_view.view < view || (new_view.view == view && has_begun)
            }
            body => vote_of(body).is_none_or(|(phase, of, sequence)| {
                let is_decided = match phase {
                    Phase::Propose => false,
                    Phase::Prepare => prepared.contains(&(of, sequence)),
                    Phase::Commit => committed.contains(&(of, sequence)),
                };
                of < view || is_decided
            }),
        }
    }

    fn hear(&mut self, host: usize, words: &Signed<Message>) {
        let words = keys().open(words.by, words.clone()).expect("proofs are proofs");
        self.with(host, |replica| replica.handle_message(NOW, words));
    }

    /// An event of a replica, and all that it wants done. Liars hear of it at once.
    fn with(&mut self, host: usize, event: impl FnOnce(&mut Replica<Tape>)) {
        let mut shared = Arc::clone(&self.hosts[host]);
        let changed = Arc::make_mut(&mut shared);
        event(&mut changed.replica);
        let mut overheard = VecDeque::new();
        while let Some(effect) = changed.replica.poll_effect() {
            if host >= TWINS {
                self.truth.take(host, &effect, changed.replica.view().0);
            }
            match effect {
                Effect::Append(record) => changed.take(&record),
                Effect::Say { to, message, .. } => {
                    let message = message.after(Position::new(0));
                    let message = message.release(&Durable::in_memory(Position::new(0)));
                    let message = message.expect("it waits for nothing");
                    let words = keys().sign(&Signer::Unsigned, id(host), message);
                    if to.contains(&id(host)) {
                        changed.replica.handle_message(NOW, words.clone());
                    }
                    self.send(host, &to, &words.into_inner(), &mut overheard);
                }
                Effect::Relay { .. } | Effect::Forward { .. } => {} // lost
                Effect::HandOver { .. } | Effect::Epoch(_) => {}    // members do not change
                Effect::Reply(_) | Effect::Executed { .. } | Effect::Lied { .. } => {}
            }
        }
        changed.digest = changed.digest();
        self.hosts[host] = shared;
        for (twin, words) in overheard {
            self.hear(twin, &words);
        }
    }

    fn send(
        &mut self,
        from: usize,
        to: &[NodeId],
        words: &Signed<Message>,
        overheard: &mut VecDeque<(usize, Signed<Message>)>,
    ) {
        let is_liar = from < TWINS;
        let is_said = match &words.body {
            Message::ViewChange(_) => true,
            Message::NewView(_) => true,
            body => vote_of(body).is_some(),
        };
        for host in (0..HOSTS).filter(|host| is_said && id(*host) != id(from)) {
            let is_heard = !is_liar || self.bounds.hears[host - TWINS] == from;
            if !to.contains(&id(host)) || !is_heard {
                continue;
            }
            // A liar leaves a view when it likes, whatever others want.
            if host >= TWINS {
                let digest = digest(&(host, words));
                let packet = Packet { to: host, words: words.clone(), digest };
                self.network.push(Arc::new(packet));
            } else if !matches!(words.body, Message::ViewChange(_)) {
                overheard.push_back((host, words.clone()));
            }
        }
    }
}

impl Host {
    fn new(host: usize) -> Self {
        let settings = Settings {
            // One place is open, and no checkpoint comes to open another.
            checkpoint_every: 2,
            window: 1,
            batch_max: 1,
            repeat: Duration::from_secs(1 << 30),
            ..Settings::new(id(host), group(), [ClientId(0), ClientId(1)])
        };
        let replica = Replica::new(settings, Tape(Vec::new()));
        Self { replica, prepared: BTreeSet::new(), committed: BTreeSet::new(), digest: 0 }
    }

    /// The digest of all that it may still do something about. Of a view that was left there are
    /// votes, which nobody counts any more. Who else has left it only the next primary counts, and
    /// what that has not heard is still on its way.
    fn digest(&self) -> u64 {
        match self.replica.view() {
            (_, true) => digest(&self.replica),
            (view, false) => digest(&(view, self.replica.records())),
        }
    }

    fn take(&mut self, record: &Record) {
        match record {
            Record::Prepared(proof) => {
                self.prepared.insert((proof.view, proof.sequence));
            }
            Record::Committed(vote) => {
                self.committed.insert((vote.view, vote.sequence));
            }
            _ => {}
        }
    }
}

impl Truth {
    fn take(&mut self, host: usize, effect: &Effect, view: View) {
        match effect {
            Effect::Append(Record::Accepted(vote, _)) => {
                self.accepted.insert((vote.view, vote.sequence, vote.digest));
            }
            Effect::Append(Record::Prepared(proof)) => {
                let place = (proof.view, proof.sequence);
                let first = *self.prepared.entry(place).or_insert(proof.digest);
                self.is_prepared_once &= first == proof.digest;
            }
            Effect::Executed { digest, .. } => {
                self.agrees &= self.executed.values().all(|(_, other)| other == digest);
                self.executed.insert(host, (view, *digest));
            }
            _ => {}
        }
    }

    /// All have executed the place, in these views.
    pub(super) fn executed_in(&self, views: &[u64]) -> bool {
        let executed: BTreeSet<View> = self.executed.values().map(|(view, _)| *view).collect();
        let is_all = self.executed.len() == HOSTS - TWINS;
        is_all && executed == views.iter().map(|view| View(*view)).collect()
    }

    /// Two batches are voted for, for one place of one view.
    pub(super) fn has_rivals(&self) -> bool {
        let places = self.accepted.iter().map(|(view, sequence, _)| (*view, *sequence));
        let places: Vec<_> = places.collect();
        places.windows(2).any(|two| two[0] == two[1])
    }
}

/// Phase, view and place of a vote.
fn vote_of(body: &Message) -> Option<(Phase, View, Sequence)> {
    match body {
        Message::Propose(vote, _) | Message::Vote(vote) => {
            Some((vote.phase, vote.view, vote.sequence))
        }
        _ => None,
    }
}

fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// The member that a replica is, or is one of the twins of.
fn id(host: usize) -> NodeId {
    NodeId::new(host.max(1) as u64)
}

fn group() -> Group {
    Group::new((1..=4).map(NodeId::new)).expect("there are members")
}

fn request(number: u64) -> SignedRequest {
    let operation = Bytes::copy_from_slice(&number.to_le_bytes());
    let request = Request { client: ClientId(number), number: 0, operation };
    Signer::Unsigned.sign_request(SCOPE, request)
}

const SCOPE: Scope = Scope { cluster: 7, epoch: 1 };

thread_local! {
    static KEYS: &'static Keys = Box::leak(Box::new(unsigned_keys()));
}

/// Nobody forges here: what does is the simulation's.
fn keys() -> &'static Keys {
    KEYS.with(|keys| *keys)
}

fn unsigned_keys() -> Keys {
    let checker = || Signer::Unsigned.checker();
    let members = group().members().iter().map(|node| (*node, checker())).collect();
    let clients = [ClientId(0), ClientId(1)].map(|client| (client, checker()));
    Keys::new(SCOPE, group(), members, clients.into())
}
