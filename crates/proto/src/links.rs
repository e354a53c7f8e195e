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

mod addresses;
mod dials;
mod open;
mod view;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::address::Address;
use crate::id::{Incarnation, LinkId, LinkNonce, NodeId, NodeLife};
use crate::limits::Limits;
use crate::link::{Link, PeerName};
use crate::mutant::{self, Mutant};
use crate::outbox::Room;
use crate::share::{PeerIndex, Shares};
use crate::time::Timestamp;
use crate::{Arrival, Outbound};

use addresses::told;
pub(crate) use dials::is_own_doing;
pub(crate) use open::Noise;
use open::{Open, OpenLinks};

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
    /// Frames sent to it before this turn may be lost.
    lost_before: u64,
    /// Given by the endpoint's owner.
    configured: Vec<Address>,
    /// Those of them that were given without the node's name, and which life answered there last.
    met: Vec<(Address, Option<Incarnation>)>,
    /// Advertised by the node itself, or by another until it is.
    advertised: Vec<Address>,
    /// Another has advertised them.
    is_hearsay: bool,
    is_dialling: bool,
    failures: u32,
    /// Reason why the last dial failed.
    last_error: String,
    backoff_until: Timestamp,
    /// The dial is this node's own doing, whatever waits for it.
    is_own_doing: bool,
    /// The resolver was asked in the dial, and until when it is not after one that failed.
    is_resolved: bool,
    resolved_until: Timestamp,
    waiting: VecDeque<(Timestamp, Outbound)>,
    waiting_bytes: usize,
    /// It is in the queue of nodes that may be forgotten.
    is_queued: bool,
}

impl Neighbour {
    /// One of which nothing is known of what was before this turn.
    fn since(turn: u64) -> Self {
        Self { lost_before: turn, ..Self::default() }
    }

    /// That it could not be dialled counts no more.
    fn end_pause(&mut self) {
        (self.failures, self.is_resolved) = (0, false);
        (self.backoff_until, self.resolved_until) = (Timestamp::ZERO, Timestamp::ZERO);
    }

    /// True when all it is good for is to remember the past.
    fn is_idle(&self) -> bool {
        self.up.is_empty()
            && self.configured.is_empty()
            && self.waiting.is_empty()
            && !self.is_dialling
    }
}

/// The connections of one node.
#[derive(Debug)]
pub struct Links {
    me: NodeLife,
    open: OpenLinks,
    shares: Shares,
    answer_every: Duration,
    waiting_bytes: usize,
    waiting_bytes_max: usize,
    neighbours: BTreeMap<NodeId, Neighbour>,
    /// Number of times that new frames to a node took no more the connection that they had taken.
    turns: u64,
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
    /// Nobody is dialled any more.
    is_over: bool,
}

/// Ended connections remembered per node.
const DEAD_MAX: usize = 16;

/// Nodes remembered to which there is no connection and which nobody configured: long enough for
/// the calls of a lost connection to ask whether it is dead, in all but a flood.
const IDLE_MAX: usize = 1_024;

impl Links {
    pub(crate) fn new(me: NodeLife, limits: &Limits, cores: usize, seed: u64) -> Self {
        let mut shares = Shares::new(limits, cores);
        let share = shares.connect(PeerName::Node(me.node));
        let to_itself = Open::new(me, LinkNonce(0), share, Timestamp::ZERO);
        Self {
            me,
            open: OpenLinks::new(to_itself),
            shares,
            answer_every: limits.ask_every,
            waiting_bytes: 0,
            waiting_bytes_max: limits.dial_bytes_total_max,
            neighbours: BTreeMap::new(),
            turns: 0,
            idle: VecDeque::new(),
            clock: Timestamp::ZERO,
            dials: VecDeque::new(),
            random: seed | 1,
            queue_bytes_max: limits.dial_queue_bytes_max,
            backoff_min: limits.backoff_min,
            backoff_max: limits.backoff_max,
            has_resolver: false,
            is_over: false,
        }
    }

    /// The connections to a node.
    pub(crate) fn to_node(&self, node: NodeId) -> Vec<LinkId> {
        let up = self.neighbours.get(&node).map_or(&[][..], |neighbour| &neighbour.up);
        up.iter().map(|(id, _)| *id).collect()
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
        let id = self.open.insert(Open::new(peer, link.nonce, share, now));
        let before = self.current(peer.node);
        let neighbour = self.neighbour(peer.node);
        if neighbour.incarnation != Some(peer.life) {
            neighbour.incarnation = Some(peer.life);
            neighbour.incarnation_since = now;
            neighbour.advertised.clear();
        }
        if told(&link.peer.advertised).next().is_some() {
            neighbour.advertised = told(&link.peer.advertised).collect();
            neighbour.is_hearsay = false;
        }
        neighbour.up.push((id, link.is_dialler));
        (neighbour.is_dialling, neighbour.is_own_doing) = (false, false);
        neighbour.end_pause();
        if let Some(before) = before {
            let is_next = self.current(peer.node) == Some(id);
            self.turns += u64::from(is_next);
            let (left, turn) = if is_next { (before, self.turns) } else { (id, 0) };
            self.open.get_mut(left).into_iter().for_each(|open| open.left_at = Some(turn));
        }
        (id, self.take_waiting(peer.node))
    }

    /// Record of a node, from now on.
    fn neighbour(&mut self, node: NodeId) -> &mut Neighbour {
        let turn = self.turns;
        self.neighbours.entry(node).or_insert_with(|| Neighbour::since(turn))
    }

    /// Number of times so far that new frames to any node took no more the connection that they had
    /// taken. What is sent now is sent in this turn.
    pub(crate) fn turn(&self) -> u64 {
        self.turns
    }

    /// The turn before which all that was sent to a node may be lost: it went by a connection that
    /// has ended, or before one that has.
    pub(crate) fn lost_before(&self, node: NodeId) -> u64 {
        match self.neighbours.get(&node) {
            _ if node == self.me.node => 0,
            Some(neighbour) => neighbour.lost_before,
            None => self.turns,
        }
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
        let Open { peer, nonce, share, left_at, .. } = self.open.remove(link)?;
        self.shares.disconnect(share);
        let lost_before = left_at.unwrap_or_else(|| {
            self.turns += 1;
            self.turns
        });
        let neighbour = self.neighbours.get_mut(&peer.node)?;
        neighbour.up.retain(|(id, _)| *id != link);
        if neighbour.dead.len() == DEAD_MAX {
            neighbour.dead.pop_front();
        }
        neighbour.dead.push_back(nonce);
        neighbour.lost_at = now;
        neighbour.lost_before = neighbour.lost_before.max(lost_before);
        if let Some(next) = self.current(peer.node) {
            self.open.get_mut(next).into_iter().for_each(|open| open.left_at = None);
        }
        self.forget_idle(peer.node);
        Some(peer.node)
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
        let may_dial = has_address && now >= neighbour.backoff_until && !self.is_over;
        if neighbour.is_dialling || may_dial { Way::Dialable } else { Way::Dead }
    }

    /// Nodes of which anything is known.
    pub fn known_count(&self) -> usize {
        self.neighbours.len()
    }

    /// The incarnation a node had when last connected.
    pub fn incarnation(&self, node: NodeId) -> Option<Incarnation> {
        self.neighbours.get(&node)?.incarnation
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
    #[inline]
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
        self.open.get(link).filter(|open| open.peer.is_of(of)).map(|_| link)
    }

    /// Shares of each peer: what it may take of what they share, and has.
    pub(crate) fn shares(&self) -> &Shares {
        &self.shares
    }

    pub(crate) fn shares_mut(&mut self) -> &mut Shares {
        &mut self.shares
    }

    /// The present life of `node`, and since when it is known.
    pub(crate) fn life(&self, node: NodeId) -> Option<(Incarnation, Timestamp)> {
        if node == self.me.node {
            return Some((self.me.life, Timestamp::ZERO));
        }
        let neighbour = self.neighbours.get(&node)?;
        neighbour.incarnation.map(|incarnation| (incarnation, neighbour.incarnation_since))
    }

    /// Every connection that is up, but for this node's own to itself.
    pub fn up(&self) -> impl Iterator<Item = (NodeId, LinkId)> + '_ {
        self.open.iter()
    }

    /// True when this connection is up.
    pub fn is_up(&self, link: LinkId) -> bool {
        self.open.get(link).is_some()
    }

    /// Arrival of a frame by this connection, if that is up.
    #[inline]
    pub(crate) fn arrival(&self, link: LinkId) -> Option<Arrival> {
        self.open.get(link).map(|open| open.arrival(link))
    }

    /// The same of what the peer has sent, where requests are counted.
    #[inline]
    pub(crate) fn arrive(&mut self, link: LinkId, is_request: bool) -> Option<Arrival> {
        let open = self.open.get_mut(link)?;
        open.come += u64::from(is_request);
        Some(open.arrival(link))
    }

    /// The name that both ends have for a connection that is up.
    pub fn nonce(&self, link: LinkId) -> Option<LinkNonce> {
        self.open.get(link).map(|open| open.nonce)
    }

    /// The peer at the other end of a connection that is up: who pays for what came over it.
    pub(crate) fn payer(&self, link: LinkId) -> Option<PeerIndex> {
        self.open.get(link).map(|open| open.share)
    }

    /// The version of the ledger that was last heard for a connection that is up.
    #[inline]
    pub(crate) fn heard_at(&self, link: LinkId) -> Option<u64> {
        self.open.get(link).map(|open| open.heard_at)
    }

    /// This version of the ledger is heard for a connection: for who pays for it, and its peer.
    pub(crate) fn note_heard(&mut self, link: LinkId, version: u64) -> Option<(PeerIndex, NodeId)> {
        let open = self.open.get_mut(link)?;
        open.heard_at = version;
        Some((open.share, open.peer.node))
    }

    /// True when what can wait for room in a connection need not. One that is down has room: what
    /// waits for it takes another way.
    #[inline]
    pub(crate) fn has_room(&self, link: LinkId) -> bool {
        self.full_count() == 0 || self.open.get(link).is_none_or(|open| !open.is_full)
    }

    /// Connections that take only what cannot wait: most often none does.
    #[inline]
    pub(crate) fn full_count(&self) -> usize {
        self.open.full_count()
    }

    /// A connection has room, or has none.
    pub(crate) fn note_room(&mut self, link: LinkId, room: Room) {
        self.open.note_full(link, room == Room::None);
    }

    /// The peer of a connection has said that it takes no requests any more. The number of those
    /// that have left by it, unless it has said so before, or has ended.
    pub(crate) fn note_leaving(&mut self, link: LinkId) -> Option<u64> {
        if link == LinkId::LOCAL { None } else { self.open.note_leaving(link) }
    }

    /// True when the peer of a connection takes no requests by it until that ends.
    #[inline]
    pub fn is_leaving(&self, link: LinkId) -> bool {
        self.open.is_leaving(link) && !mutant::is(Mutant::LeavingUnheard)
    }

    /// A request has left by a connection.
    #[inline]
    pub(crate) fn count_sent(&mut self, link: LinkId) {
        if let Some(open) = self.open.get_mut(link)
            && !mutant::is(Mutant::SentNotCounted)
        {
            open.sent += 1;
        }
    }

    /// Number of requests that have come by a connection that is up.
    pub(crate) fn requests_by(&self, link: LinkId) -> u64 {
        self.open.get(link).map_or(0, |open| open.come)
    }

    /// True when a peer may be told again which calls are settled.
    pub(crate) fn may_answer(&mut self, now: Timestamp, link: LinkId) -> bool {
        let every = self.answer_every;
        self.open.get_mut(link).is_some_and(|open| open.may_answer(now, every))
    }

    /// A frame of this connection counted for nothing.
    pub(crate) fn note_ignored(&mut self, now: Timestamp, link: LinkId) -> Noise {
        self.open.get_mut(link).map_or(Noise::More, |open| open.note_ignored(now))
    }
}

#[cfg(test)]
mod tests;
