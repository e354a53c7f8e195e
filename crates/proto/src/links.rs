//! The connections of a node: which are up, which node is being dialled, which is known dead, and
//! what waits.
//!
//! ```text
//!   Idle ──send──▶ Dialling ──up──▶ Up ──last one down──▶ Idle
//!                     └──failed──▶ Backoff ──time──▶ Idle      (a send in Backoff fails at once)
//! ```
//! A connection is known by its [`LinkId`], an index that is never used twice. With two connections
//! between the same nodes, both dialled at once, new frames take the one dialled by the node with
//! the lower id, on both sides; the other carries on for what began on it.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::address::Address;
use crate::call::LinkView;
use crate::id::{Incarnation, LinkId, LinkNonce, NodeId, NodeLife};
use crate::limits::Limits;
use crate::link::{Link, PeerName};
use crate::share::{PeerIndex, Shares};
use crate::time::Timestamp;
use crate::{Arrival, Outbound};

/// Way to get a frame to a node now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over this connection, which may be this node's own to itself.
    Up(LinkId),
    /// It is being dialled, or can be.
    Dialable,
    /// It cannot be reached: it was not a moment ago, or nobody knows its address.
    Dead,
}

#[derive(Debug, Default)]
struct Neighbour {
    incarnation: Option<Incarnation>,
    /// When that was first heard of.
    incarnation_since: Timestamp,
    /// Connections that are up, oldest first, and whether this node dialled.
    up: Vec<(LinkId, bool)>,
    dead: VecDeque<LinkNonce>,
    /// When the last of these ended.
    lost_at: Timestamp,
    /// Given by the endpoint's owner.
    configured: Vec<Address>,
    /// Advertised by the node itself, or by another until it is.
    advertised: Vec<Address>,
    is_dialling: bool,
    failures: u32,
    /// Reason why the last dial failed.
    last_error: String,
    backoff_until: Timestamp,
    waiting: VecDeque<(Timestamp, Outbound)>,
    waiting_bytes: usize,
    /// It is in the queue of nodes that may be forgotten.
    is_queued: bool,
}

impl Neighbour {
    /// True when all it is good for is to remember the past.
    fn is_idle(&self) -> bool {
        self.up.is_empty()
            && self.configured.is_empty()
            && self.waiting.is_empty()
            && !self.is_dialling
    }
}

/// A connection that is up.
#[derive(Clone, Copy, Debug)]
struct Open {
    peer: NodeLife,
    nonce: LinkNonce,
    share: PeerIndex,
    /// Version of the ledger by which this core knows what the peer has in others.
    heard_at: u64,
    up_since: Timestamp,
    /// When its questions which calls are settled have used up what they may have of answers.
    answered_until: Timestamp,
    ignored: Ignored,
}

/// Frames of a connection that counted for nothing, within a second.
#[derive(Clone, Copy, Debug, Default)]
struct Ignored {
    second: u64,
    count: u32,
}

/// Amount of what a connection brings that counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Noise {
    /// This is the first such frame within a second.
    First,
    /// There were others.
    More,
    /// More than it may have.
    TooMuch,
}

/// The connections of one node.
#[derive(Debug)]
pub struct Links {
    me: NodeLife,
    /// By index of their id; the first is this node's own to itself.
    open: Vec<(u32, Option<Open>)>,
    free: VecDeque<u32>,
    shares: Shares,
    answer_every: Duration,
    waiting_bytes: usize,
    waiting_bytes_max: usize,
    neighbours: BTreeMap<NodeId, Neighbour>,
    /// Nodes that may be forgotten when there are too many such, in the order in which they became
    /// so.
    idle: VecDeque<NodeId>,
    /// The latest time that was said.
    clock: Timestamp,
    dials: VecDeque<NodeId>,
    random: u64,
    queue_bytes_max: usize,
    backoff_min: Duration,
    backoff_max: Duration,
    /// The dialler asks for the addresses of nodes that have none here.
    has_resolver: bool,
}

/// Answers that a peer may have at once to its questions which calls are settled: it asks for each
/// origin and each sender by itself, at times that may coincide for ever.
const ANSWERS_AT_ONCE: u32 = 16;

/// Ended connections remembered per node.
const DEAD_MAX: usize = 16;

/// Nodes remembered to which there is no connection and which nobody configured: long enough for
/// the calls of a lost connection to ask whether it is dead, in all but a flood.
const IDLE_MAX: usize = 1_024;

impl Links {
    pub(crate) fn new(me: NodeLife, limits: &Limits, cores: usize, seed: u64) -> Self {
        let mut shares = Shares::new(limits, cores);
        let share = shares.connect(PeerName::Node(me.node));
        let ignored = Ignored::default();
        let to_itself = Open {
            peer: me,
            nonce: LinkNonce(0),
            share,
            heard_at: 0,
            up_since: Timestamp::ZERO,
            answered_until: Timestamp::ZERO,
            ignored,
        };
        Self {
            me,
            open: vec![(0, Some(to_itself))],
            free: VecDeque::new(),
            shares,
            answer_every: limits.ask_every,
            waiting_bytes: 0,
            waiting_bytes_max: limits.dial_bytes_total_max,
            neighbours: BTreeMap::new(),
            idle: VecDeque::new(),
            clock: Timestamp::ZERO,
            dials: VecDeque::new(),
            random: seed | 1,
            queue_bytes_max: limits.dial_queue_bytes_max,
            backoff_min: limits.backoff_min,
            backoff_max: limits.backoff_max,
            has_resolver: false,
        }
    }

    /// Nodes without an address can be dialled from now on.
    pub(crate) fn resolve_by_name(&mut self) {
        self.has_resolver = true;
    }

    /// Sets the addresses at which a node can be dialled, from the endpoint's owner. That it could
    /// not be elsewhere says nothing of another place.
    pub(crate) fn configure(&mut self, node: NodeId, addresses: Vec<Address>) {
        let neighbour = self.neighbours.entry(node).or_default();
        if neighbour.configured != addresses {
            (neighbour.failures, neighbour.backoff_until) = (0, Timestamp::ZERO);
            neighbour.configured = addresses;
        }
    }

    /// Takes the addresses at which another node says that this one can be dialled: worth a try
    /// when nobody said better.
    pub(crate) fn hear_of(&mut self, node: NodeId, addresses: &[Address]) {
        let neighbour = self.neighbours.entry(node).or_default();
        if neighbour.configured.is_empty() && neighbour.advertised.is_empty() {
            neighbour.advertised = told(addresses).collect();
        }
        self.forget_idle(node);
    }

    /// Another place where a node can be dialled, from the endpoint's owner.
    pub(crate) fn configure_also(&mut self, node: NodeId, address: Address) {
        let configured = &mut self.neighbours.entry(node).or_default().configured;
        if !configured.contains(&address) {
            configured.push(address);
        }
    }

    /// Forgets where a node can be dialled, and that it could not be.
    pub(crate) fn forget(&mut self, node: NodeId) {
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return };
        neighbour.configured.clear();
        neighbour.advertised.clear();
        neighbour.last_error.clear();
        (neighbour.failures, neighbour.backoff_until) = (0, Timestamp::ZERO);
        self.forget_idle(node);
    }

    /// The connections to a node.
    pub(crate) fn to_node(&self, node: NodeId) -> Vec<LinkId> {
        let up = self.neighbours.get(&node).map_or(&[][..], |neighbour| &neighbour.up);
        up.iter().map(|(id, _)| *id).collect()
    }

    /// Addresses to try, configured ones first.
    pub fn addresses(&self, node: NodeId) -> Vec<Address> {
        let Some(neighbour) = self.neighbours.get(&node) else { return Vec::new() };
        let mut all = neighbour.configured.clone();
        all.extend(
            neighbour.advertised.iter().filter(|a| !neighbour.configured.contains(a)).cloned(),
        );
        all
    }

    /// Those of them that other nodes are told.
    pub(crate) fn addresses_for_others(&self, node: NodeId) -> Vec<Address> {
        told(&self.addresses(node)).collect()
    }

    /// Addresses at which this node can be dialled, as the owner of this endpoint said.
    pub fn configured(&self, node: NodeId) -> &[Address] {
        self.neighbours.get(&node).map_or(&[], |neighbour| &neighbour.configured)
    }

    /// True when the owner of this endpoint named this node.
    pub fn is_configured(&self, node: NodeId) -> bool {
        self.neighbours.get(&node).is_some_and(|neighbour| !neighbour.configured.is_empty())
    }

    /// A connection is up. Returns its id, and what has waited for it with the time it began to
    /// wait.
    pub(crate) fn handle_up(
        &mut self,
        now: Timestamp,
        link: &Link,
    ) -> (LinkId, Vec<(Timestamp, Outbound)>) {
        self.clock = self.clock.max(now);
        let peer = NodeLife { node: link.peer.node, life: link.peer.incarnation };
        let share = self.shares.connect(link.peer_name());
        let id = self.insert(Open {
            peer,
            nonce: link.nonce,
            share,
            heard_at: 0,
            up_since: now,
            answered_until: now,
            ignored: Ignored::default(),
        });
        let neighbour = self.neighbours.entry(peer.node).or_default();
        if neighbour.incarnation != Some(peer.life) {
            neighbour.incarnation = Some(peer.life);
            neighbour.incarnation_since = now;
            neighbour.advertised.clear();
        }
        if told(&link.peer.advertised).next().is_some() {
            neighbour.advertised = told(&link.peer.advertised).collect();
        }
        neighbour.up.push((id, link.is_dialler));
        (neighbour.is_dialling, neighbour.failures) = (false, 0);
        neighbour.backoff_until = Timestamp::ZERO;
        (id, self.take_waiting(peer.node))
    }

    fn insert(&mut self, open: Open) -> LinkId {
        // The one that has been free for longest, so that an id comes again late.
        let Some(index) = self.free.pop_front() else {
            self.open.push((0, Some(open)));
            let index = self.open.len() - 1;
            let index = u32::try_from(index).expect("fewer connections than addresses");
            return LinkId { index, generation: 0 };
        };
        let place = &mut self.open[index as usize];
        place.0 += 1;
        place.1 = Some(open);
        LinkId { index, generation: place.0 }
    }

    fn take_waiting(&mut self, node: NodeId) -> Vec<(Timestamp, Outbound)> {
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return Vec::new() };
        self.waiting_bytes -= std::mem::take(&mut neighbour.waiting_bytes);
        std::mem::take(&mut neighbour.waiting).into()
    }

    /// The connections to an earlier life of the peer of this new one.
    pub(crate) fn of_earlier_life(&self, link: &Link) -> Vec<LinkId> {
        match self.neighbours.get(&link.peer.node) {
            Some(neighbour) if neighbour.incarnation != Some(link.peer.incarnation) => {
                neighbour.up.iter().map(|(id, _)| *id).collect()
            }
            _ => Vec::new(),
        }
    }

    /// A connection ended. To whom it was, if it was known.
    pub(crate) fn handle_down(&mut self, now: Timestamp, link: LinkId) -> Option<NodeId> {
        let (generation, open) = self.open.get_mut(link.index as usize)?;
        if *generation != link.generation || link == LinkId::LOCAL {
            return None;
        }
        let Open { peer, nonce, share, .. } = open.take()?;
        self.free.push_back(link.index);
        self.shares.disconnect(share);
        let neighbour = self.neighbours.get_mut(&peer.node)?;
        neighbour.up.retain(|(id, _)| *id != link);
        if neighbour.dead.len() == DEAD_MAX {
            neighbour.dead.pop_front();
        }
        neighbour.dead.push_back(nonce);
        neighbour.lost_at = now;
        self.forget_idle(peer.node);
        Some(peer.node)
    }

    /// A dial that was asked for failed. Returns what has waited for it.
    pub(crate) fn handle_dial_failed(
        &mut self,
        now: Timestamp,
        node: NodeId,
    ) -> Vec<(Timestamp, Outbound)> {
        self.clock = self.clock.max(now);
        let jitter = self.next_random();
        let neighbour = self.neighbours.entry(node).or_default();
        neighbour.is_dialling = false;
        let ceiling = self.backoff_min * 2_u32.saturating_pow(neighbour.failures.min(16));
        let ceiling = ceiling.min(self.backoff_max);
        neighbour.failures = neighbour.failures.saturating_add(1);
        neighbour.backoff_until = now + full_jitter(ceiling, jitter);
        let waited = self.take_waiting(node);
        self.forget_idle(node);
        waited
    }

    /// This node may have become idle: others that have been so for longer make room for it.
    fn forget_idle(&mut self, node: NodeId) {
        let Some(neighbour) = self.neighbours.get_mut(&node) else { return };
        if !neighbour.is_queued && neighbour.is_idle() {
            neighbour.is_queued = true;
            self.idle.push_back(node);
        }
        // Those that are in use again leave the queue; one whose backoff is not over goes round
        // once.
        for _ in 0..2 {
            if self.idle.len() <= IDLE_MAX {
                return;
            }
            let Some(oldest) = self.idle.pop_front() else { return };
            let Some(neighbour) = self.neighbours.get_mut(&oldest) else { continue };
            if neighbour.is_idle() && self.clock < neighbour.backoff_until {
                self.idle.push_back(oldest);
                continue;
            }
            neighbour.is_queued = false;
            if neighbour.is_idle() {
                self.neighbours.remove(&oldest);
            }
        }
    }

    /// Keeps why a dial failed, for whoever asks why a node cannot be reached.
    pub(crate) fn note_dial_error(&mut self, node: NodeId, text: &str) {
        text.clone_into(&mut self.neighbours.entry(node).or_default().last_error);
    }

    /// Reason why a node cannot be reached, for people.
    pub fn why_unreachable(&self, node: NodeId) -> &str {
        match self.neighbours.get(&node) {
            Some(neighbour) if neighbour.is_dialling => {
                "it is being dialled, and as much waits for that as dial_queue_bytes_max and \
                 dial_bytes_total_max allow"
            }
            Some(neighbour) if !neighbour.last_error.is_empty() => &neighbour.last_error,
            _ => "none of its addresses is known here",
        }
    }

    /// The node that the endpoint's owner gave this address, if a connection to it is up. What
    /// nodes advertise does not count: any could name the address of another.
    pub fn connected_at(&self, address: &Address) -> Option<NodeId> {
        let is_there = |neighbour: &Neighbour| {
            !neighbour.up.is_empty() && neighbour.configured.contains(address)
        };
        self.neighbours.iter().find(|(_, neighbour)| is_there(neighbour)).map(|(node, _)| *node)
    }

    /// Way to get a frame to `node` now.
    pub fn way(&self, now: Timestamp, node: NodeId) -> Way {
        if node == self.me.node {
            return Way::Up(LinkId::LOCAL);
        }
        let Some(neighbour) = self.neighbours.get(&node) else { return Way::Dead };
        if let Some(link) = self.current(node) {
            return Way::Up(link);
        }
        let has_address = !neighbour.configured.is_empty() || !neighbour.advertised.is_empty();
        let may_dial = has_address && now >= neighbour.backoff_until;
        if neighbour.is_dialling || may_dial { Way::Dialable } else { Way::Dead }
    }

    /// True when a node that is [`Way::Dead`] can be dialled by its name alone.
    pub(crate) fn is_resolvable(&self, now: Timestamp, node: NodeId) -> bool {
        let neighbour = self.neighbours.get(&node);
        self.has_resolver && neighbour.is_none_or(|neighbour| now >= neighbour.backoff_until)
    }

    /// Asks for a dial unless one is under way.
    pub(crate) fn dial(&mut self, node: NodeId) {
        let neighbour = self.neighbours.entry(node).or_default();
        if !neighbour.is_dialling {
            neighbour.is_dialling = true;
            self.dials.push_back(node);
        }
    }

    /// Keeps a frame until the dial ends, and asks for it. Gives it back when too much waits
    /// already.
    pub(crate) fn wait(&mut self, now: Timestamp, outbound: Outbound) -> Option<Outbound> {
        let to = outbound.to;
        let size = outbound.frame.waiting_len();
        self.dial(to);
        let neighbour = self.neighbours.entry(to).or_default();
        let fits = neighbour.waiting_bytes + size <= self.queue_bytes_max
            && self.waiting_bytes + size <= self.waiting_bytes_max;
        if !fits {
            return Some(outbound);
        }
        neighbour.waiting_bytes += size;
        self.waiting_bytes += size;
        neighbour.waiting.push_back((now, outbound));
        None
    }

    pub(crate) fn has_dials(&self) -> bool {
        !self.dials.is_empty()
    }

    /// A node to dial.
    pub(crate) fn poll_dial(&mut self) -> Option<NodeId> {
        self.dials.pop_front()
    }

    /// Nodes of which anything is known.
    pub fn known_count(&self) -> usize {
        self.neighbours.len()
    }

    /// The incarnation a node had when last connected.
    pub fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.neighbours.get(&node)?.incarnation
    }

    /// Every connection that is up, but for this node's own to itself.
    pub fn up(&self) -> impl Iterator<Item = (NodeId, LinkId)> + '_ {
        (0..).zip(&self.open).skip(1).filter_map(|(index, (generation, open))| {
            let id = LinkId { index, generation: *generation };
            open.as_ref().map(|open| (open.peer.node, id))
        })
    }

    /// True when this connection is up.
    pub fn is_up(&self, link: LinkId) -> bool {
        self.get(link).is_some()
    }

    fn get(&self, link: LinkId) -> Option<&Open> {
        let (generation, open) = self.open.get(link.index as usize)?;
        open.as_ref().filter(|_| *generation == link.generation)
    }

    fn get_mut(&mut self, link: LinkId) -> Option<&mut Open> {
        let (generation, open) = self.open.get_mut(link.index as usize)?;
        open.as_mut().filter(|_| *generation == link.generation)
    }

    /// Arrival of a frame by this connection, if that is up.
    pub(crate) fn arrival(&self, link: LinkId) -> Option<Arrival> {
        let open = self.get(link)?;
        let NodeLife { node, life } = open.peer;
        Some(Arrival { via: node, life, from: node, link, peer: open.share, key: None })
    }

    /// The name that both ends have for a connection that is up.
    pub fn nonce(&self, link: LinkId) -> Option<LinkNonce> {
        self.get(link).map(|open| open.nonce)
    }

    /// The connection to a node that both ends know by this name, if it is up.
    pub(crate) fn find(&self, node: NodeId, nonce: LinkNonce) -> Option<LinkId> {
        let up = &self.neighbours.get(&node)?.up;
        up.iter().map(|(id, _)| *id).find(|id| self.nonce(*id) == Some(nonce))
    }

    /// The connection that new frames to a node take, if one is up.
    pub fn current(&self, node: NodeId) -> Option<LinkId> {
        self.current_to(node).map(|(link, _)| link)
    }

    /// The same, and the life of the node that is known.
    pub(crate) fn current_to(&self, node: NodeId) -> Option<(LinkId, Option<Incarnation>)> {
        if node == self.me.node {
            return Some((LinkId::LOCAL, Some(self.me.life)));
        }
        let neighbour = self.neighbours.get(&node)?;
        let i_am_lower = self.me.node < node;
        let preferred = neighbour.up.iter().find(|(_, is_dialler)| *is_dialler == i_am_lower);
        let (link, _) = preferred.or(neighbour.up.first())?;
        Some((*link, neighbour.incarnation))
    }

    /// The connection that new frames to this life of a node take.
    pub fn to_life(&self, of: NodeLife) -> Option<LinkId> {
        let link = self.current(of.node)?;
        self.get(link).filter(|open| open.peer.is_of(of)).map(|_| link)
    }

    /// Shares of each peer: what it may take of what they share, and has.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(crate) fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    /// The peer at the other end of a connection that is up: who pays for what came over it.
    pub(crate) fn payer(&self, link: LinkId) -> Option<PeerIndex> {
        self.get(link).map(|open| open.share)
    }

    /// The version of the ledger that was last heard for a connection that is up.
    #[inline]
    pub(crate) fn heard_at(&self, link: LinkId) -> Option<u64> {
        self.get(link).map(|open| open.heard_at)
    }

    /// This version of the ledger is heard for a connection: for who pays for it, and its peer.
    pub(crate) fn note_heard(&mut self, link: LinkId, version: u64) -> Option<(PeerIndex, NodeId)> {
        let open = self.get_mut(link)?;
        open.heard_at = version;
        Some((open.share, open.peer.node))
    }

    /// True when a peer may be told again which calls are settled.
    pub(crate) fn may_answer(&mut self, now: Timestamp, link: LinkId) -> bool {
        let every = self.answer_every;
        let Some(open) = self.get_mut(link) else { return false };
        let until = open.answered_until.max(now) + every;
        let may = until.since(now) <= every * ANSWERS_AT_ONCE;
        if may {
            open.answered_until = until;
        }
        may
    }

    /// A frame of this connection counted for nothing.
    pub(crate) fn note_ignored(&mut self, now: Timestamp, link: LinkId) -> Noise {
        let second = now.as_nanos() / 1_000_000_000;
        let Some(open) = self.get_mut(link) else { return Noise::More };
        if open.ignored.second != second {
            open.ignored = Ignored { second, count: 0 };
        }
        open.ignored.count += 1;
        match open.ignored.count {
            1 => Noise::First,
            2..=IGNORED_MAX => Noise::More,
            _ => Noise::TooMuch,
        }
    }

    /// True when `node` is being dialled, and so nothing has left for it yet.
    pub fn is_dialling(&self, node: NodeId) -> bool {
        self.neighbours.get(&node).is_some_and(|n| n.up.is_empty() && n.is_dialling)
    }

    /// The present life of `node`, and since when it is known.
    pub(crate) fn life(&self, node: NodeId) -> Option<(Incarnation, Timestamp)> {
        if node == self.me.node {
            return Some((self.me.life, Timestamp::ZERO));
        }
        let neighbour = self.neighbours.get(&node)?;
        neighbour.incarnation.map(|incarnation| (incarnation, neighbour.incarnation_since))
    }

    /// xorshift64*: jitter needs no better, and the seed is the driver's.
    fn next_random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Frames of one connection that count for nothing, in a second: more of them close it.
const IGNORED_MAX: u32 = 10_000;

impl LinkView for Links {
    fn current(&self, node: NodeId) -> Option<LinkId> {
        self.current(node)
    }

    fn is_up(&self, link: LinkId) -> bool {
        self.is_up(link)
    }

    fn nonce(&self, link: LinkId) -> Option<LinkNonce> {
        self.nonce(link)
    }

    fn sole_since(&self, link: LinkId) -> Option<Timestamp> {
        let open = self.get(link)?;
        let neighbour = self.neighbours.get(&open.peer.node)?;
        let lost_at = if neighbour.dead.is_empty() { open.up_since } else { neighbour.lost_at };
        (neighbour.up.len() == 1).then_some(open.up_since.max(lost_at))
    }

    fn is_dead(&self, node: NodeId, link: LinkNonce) -> bool {
        self.neighbours.get(&node).is_some_and(|neighbour| neighbour.dead.contains(&link))
    }

    fn is_dialling(&self, node: NodeId) -> bool {
        self.is_dialling(node)
    }

    fn lost_at(&self, node: NodeId) -> Option<Timestamp> {
        let neighbour = self.neighbours.get(&node)?;
        let is_lost = neighbour.up.is_empty() && !neighbour.dead.is_empty();
        is_lost.then_some(neighbour.lost_at)
    }

    fn has_lost(&self, node: NodeId, since: Timestamp) -> bool {
        let neighbour = self.neighbours.get(&node);
        neighbour.is_some_and(|of| !of.dead.is_empty() && of.lost_at >= since)
    }

    fn is_reachable(&self, node: NodeId) -> bool {
        node == self.me.node
            || self.neighbours.get(&node).is_some_and(|neighbour| {
                !neighbour.up.is_empty()
                    || !neighbour.configured.is_empty()
                    || !neighbour.advertised.is_empty()
            })
    }

    fn life(&self, node: NodeId) -> Option<(Incarnation, Timestamp)> {
        self.life(node)
    }
}

/// Those that a node may tell another one.
fn told(addresses: &[Address]) -> impl Iterator<Item = Address> {
    addresses.iter().filter(|address| !address.is_private()).cloned()
}

/// A time between a tenth of `ceiling` and `ceiling`.
fn full_jitter(ceiling: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(ceiling.as_nanos()).unwrap_or(u64::MAX);
    let least = nanos / 10;
    Duration::from_nanos(least + random % (nanos - least).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Hello;

    fn node(id: u64) -> NodeId {
        NodeId::new(id)
    }

    fn links(me: u64) -> Links {
        let me = NodeLife { node: node(me), life: Incarnation::of_random(me << 8) };
        Links::new(me, &Limits::default(), 1, 7)
    }

    fn link(peer: u64, nonce: u64, is_dialler: bool) -> Link {
        let peer = Hello {
            node: node(peer),
            incarnation: Incarnation::of_random(peer << 8),
            advertised: vec!["tcp://127.0.0.1:1".parse().unwrap()],
            frame_bytes_max: 1 << 20,
        };
        let (nonce, scheme) = (LinkNonce(nonce), "tcp");
        Link { peer, nonce, is_dialler, scheme, principal: None, remote: None }
    }

    #[test]
    fn both_ends_prefer_the_connection_dialled_by_the_lower_node() {
        let (mut low, mut high) = (links(1), links(2));
        low.handle_up(Timestamp::ZERO, &link(2, 10, false));
        low.handle_up(Timestamp::ZERO, &link(2, 11, true));
        high.handle_up(Timestamp::ZERO, &link(1, 11, false));
        high.handle_up(Timestamp::ZERO, &link(1, 10, true));
        let preferred = |links: &Links, peer| links.nonce(links.current(node(peer)).unwrap());
        assert_eq!(preferred(&low, 2), Some(LinkNonce(11)));
        assert_eq!(preferred(&high, 1), Some(LinkNonce(11)));
    }

    #[test]
    fn a_failed_dial_is_followed_by_a_pause_that_grows_and_ends() {
        let mut links = links(1);
        links.configure(node(2), vec!["tcp://127.0.0.1:1".parse().unwrap()]);
        let mut now = Timestamp::ZERO;
        for failures in 0..12_u32 {
            assert_eq!(links.way(now, node(2)), Way::Dialable);
            links.dial(node(2));
            assert_eq!(links.poll_dial(), Some(node(2)));
            links.handle_dial_failed(now, node(2));
            assert_eq!(links.way(now, node(2)), Way::Dead);
            let ceiling = Duration::from_millis(50) * 2_u32.pow(failures);
            now = now + ceiling.min(Duration::from_secs(5));
        }
        let (id, _) = links.handle_up(Timestamp::ZERO, &link(2, 5, true));
        assert_eq!(links.way(now, node(2)), Way::Up(id));
        links.handle_down(Timestamp::ZERO, id);
        assert_eq!(links.way(now, node(2)), Way::Dialable);
        assert!(links.is_dead(node(2), LinkNonce(5)));
    }

    /// Frames that came by another connection, or left by it before it ended, may be on their way.
    #[test]
    fn a_connection_is_the_only_one_since_the_last_other_one_ended() {
        let mut links = links(1);
        let at = |seconds| Timestamp::ZERO + Duration::from_secs(seconds);
        let (first, _) = links.handle_up(at(1), &link(2, 10, true));
        assert_eq!(links.sole_since(first), Some(at(1)));
        let (second, _) = links.handle_up(at(2), &link(2, 11, true));
        assert_eq!([first, second].map(|link| links.sole_since(link)), [None; 2]);
        links.handle_down(at(3), second);
        assert_eq!([first, second].map(|link| links.sole_since(link)), [Some(at(3)), None]);
        links.handle_down(at(4), first);
        let (third, _) = links.handle_up(at(5), &link(2, 12, true));
        assert_eq!(links.sole_since(third), Some(at(5)), "it came after all others had ended");
    }

    #[test]
    fn a_stranger_without_an_address_is_dead() {
        let links = links(1);
        assert_eq!(links.way(Timestamp::ZERO, node(9)), Way::Dead);
        assert_eq!(links.way(Timestamp::ZERO, node(1)), Way::Up(LinkId::LOCAL));
    }

    #[test]
    fn a_node_is_dialled_by_its_name_where_that_is_enough_and_not_within_a_pause() {
        let mut links = links(1);
        assert!(!links.is_resolvable(Timestamp::ZERO, node(9)));
        links.resolve_by_name();
        assert!(links.is_resolvable(Timestamp::ZERO, node(9)));
        links.handle_dial_failed(Timestamp::ZERO, node(9));
        assert!(!links.is_resolvable(Timestamp::ZERO, node(9)));
        assert!(links.is_resolvable(Timestamp::ZERO + Duration::from_millis(50), node(9)));
    }

    #[test]
    fn another_address_ends_a_pause_and_the_same_one_does_not() {
        let mut links = links(1);
        let at = |port: u16| vec![format!("tcp://127.0.0.1:{port}").parse().unwrap()];
        links.configure(node(2), at(1));
        links.handle_dial_failed(Timestamp::ZERO, node(2));
        links.configure(node(2), at(1));
        assert_eq!(links.way(Timestamp::ZERO, node(2)), Way::Dead);
        links.configure(node(2), at(2));
        assert_eq!(links.way(Timestamp::ZERO, node(2)), Way::Dialable);
    }

    #[test]
    fn a_forgotten_node_is_a_stranger_and_has_no_pause_once_it_is_known_again() {
        let mut links = links(1);
        let address: Address = "tcp://127.0.0.1:1".parse().unwrap();
        links.configure(node(2), vec![address.clone()]);
        links.handle_dial_failed(Timestamp::ZERO, node(2));
        links.forget(node(2));
        assert!(links.addresses(node(2)).is_empty() && !links.is_configured(node(2)));
        assert_eq!(links.way(Timestamp::ZERO, node(2)), Way::Dead);
        links.configure(node(2), vec![address]);
        assert_eq!(links.way(Timestamp::ZERO, node(2)), Way::Dialable);
        links.forget(node(7)); // of whom nothing is known
        assert_eq!(links.known_count(), 1);
    }

    /// Whatever a peer says: what is dialled at a private address was named here.
    #[test]
    fn a_private_address_is_neither_taken_from_another_node_nor_told_to_one() {
        let mut links = links(1);
        let texts = ["unix:///run/a.sock", "unix://@a", "tcp://10.0.0.1:1"];
        let told: [Address; 3] = texts.map(|text| text.parse().unwrap());
        let mut up = link(2, 10, true);
        up.peer.advertised = told[..2].to_vec();
        links.handle_up(Timestamp::ZERO, &up);
        assert_eq!(links.addresses(node(2)), []);
        up.peer.advertised = told.to_vec();
        links.handle_up(Timestamp::ZERO, &Link { nonce: LinkNonce(11), ..up });
        links.hear_of(node(3), &told);
        for node in [node(2), node(3)] {
            assert_eq!(links.addresses(node), told[2..]);
        }
        links.configure(node(4), told.to_vec());
        assert_eq!(links.addresses(node(4)), told);
        assert_eq!(links.addresses_for_others(node(4)), told[2..]);
    }

    #[test]
    fn an_id_is_never_given_twice() {
        let mut links = links(1);
        let mut seen = std::collections::BTreeSet::new();
        for nonce in 0..100 {
            let (id, _) = links.handle_up(Timestamp::ZERO, &link(2, nonce, true));
            assert!(seen.insert(id), "{id:?}");
            assert!(links.is_up(id) && links.find(node(2), LinkNonce(nonce)) == Some(id));
            assert_eq!(links.handle_down(Timestamp::ZERO, id), Some(node(2)));
            assert!(!links.is_up(id) && links.arrival(id).is_none());
            assert_eq!(links.handle_down(Timestamp::ZERO, id), None, "it has ended already");
        }
        assert_eq!(links.handle_down(Timestamp::ZERO, LinkId::LOCAL), None, "this one never ends");
        assert!(links.is_up(LinkId::LOCAL));
    }
}
