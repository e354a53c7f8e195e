//! The calls of one core of a node, as their initiator: hands frames to the right call, keeps
//! their timers, and says which of them are settled. Most calls begin flat, in a ring.
//!
//! ```text
//!   open ──▶ flat ──anything else, age──▶ full ──ended──▶ winding ──all words in, time──▶ settled
//!              └───────complete──────────────┴──────────────────────────────────────────────▲
//! ```

mod hear;
mod inspect;
mod items;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::id::{CallId, Incarnation, LinkId, NodeId};
use crate::key::Secret;
use crate::time::{Timestamp, earliest};
use crate::wire::Statement;

use super::Outbound;
use super::call::{Call, CallEvent, CallOptions, Delivered, End, LinkView, Roots};
use super::flat::{FLAT_BRANCHES_MAX, Flat, Leg};
use super::limits::Limits;
use super::ring::Ring;
use super::task::SendError;
use super::timers::Timers;

/// The calls of one call stream: of one origin, with numbers, floor and timers of its own.
#[derive(Debug)]
pub struct Initiator {
    origin: Incarnation,
    secret: Secret,
    limits: Limits,
    next_seq: u64,
    /// Young calls whose branches reply once each.
    flat: Ring<Flat>,
    /// Number of branches of these that left by each connection, by its index.
    flat_at: Vec<usize>,
    /// All others.
    calls: BTreeMap<u64, Armed>,
    /// Those of them that are not settled.
    unsettled: BTreeSet<u64>,
    /// Those that nobody reads any more, decided ones last, by deadline, and how many branches each
    /// has.
    winding: BTreeMap<(bool, Timestamp, u64), u64>,
    winding_branches: u64,
    /// Ended calls that were settled before each of their tasks had said its word.
    settled_early: usize,
    /// The full calls that a node holds or passes on anything of.
    at_node: BTreeSet<(NodeId, u64)>,
    timers: Timers<u64>,
    /// Calls with news, in order of these.
    ready: VecDeque<u64>,
    /// Those of which the writer of items waited, and waits no longer.
    writable: VecDeque<u64>,
    /// Those whose items have credit, by the connection that these take.
    granted: BTreeMap<LinkId, BTreeSet<u64>>,
    out: VecDeque<Outbound>,
}

#[derive(Debug)]
struct Armed {
    call: Box<Call>,
    /// The earliest timer that is set for it.
    at: Option<Timestamp>,
    /// The nodes it is entered with.
    nodes: BTreeSet<NodeId>,
}

impl Armed {
    /// Hands over what the call wants to send. True when there is more to be looked at: it has
    /// ended, or something of it is at another node than before.
    fn hand_over(&mut self, out: &mut VecDeque<Outbound>) -> bool {
        while let Some(outbound) = self.call.poll_outbound() {
            out.push_back(outbound);
        }
        self.call.end().is_some() || self.call.has_new_nodes()
    }

    /// Has the reader of the call told, if there is enough for that, and its writer of items.
    fn announce(&mut self, seq: u64, ready: &mut VecDeque<u64>, writable: &mut VecDeque<u64>) {
        if self.call.is_worth_waking() {
            ready.push_back(seq);
        }
        if self.call.take_items_news() {
            writable.push_back(seq);
        }
    }

    /// When a timer is to be set for the call, earlier than the one that is.
    fn rearm(&mut self) -> Option<Timestamp> {
        let at = self.call.poll_timeout()?;
        if self.at.is_some_and(|armed_at| armed_at <= at) {
            return None;
        }
        self.at = Some(at);
        Some(at)
    }
}

/// A call is not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It would be one too many.
    #[error(
        "{limit} calls are open, as many as calls_max allows: wait until one has ended and is \
         dropped, or raise Limits::calls_max"
    )]
    TooManyCalls {
        /// The bound.
        limit: usize,
    },
    /// It has too many root branches.
    #[error(
        "the call has more branches than branches_max allows, {limit}: ask fewer nodes in one \
         call, or raise Limits::branches_max"
    )]
    TooManyBranches {
        /// The bound.
        limit: u32,
    },
    /// Items follow its request, and it has not exactly one root branch.
    #[error("a call whose request is streamed has one branch, and this one has {count}")]
    ItemsToMany {
        /// Its branches.
        count: usize,
    },
}

impl Initiator {
    pub(crate) fn new(origin: Incarnation, secret: Secret, limits: &Limits) -> Self {
        Self {
            origin,
            secret,
            limits: limits.clone(),
            next_seq: 1,
            flat: Ring::default(),
            flat_at: Vec::new(),
            calls: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            winding: BTreeMap::new(),
            winding_branches: 0,
            settled_early: 0,
            at_node: BTreeSet::new(),
            timers: Timers::new(),
            ready: VecDeque::new(),
            writable: VecDeque::new(),
            granted: BTreeMap::new(),
            out: VecDeque::new(),
        }
    }

    /// Origin of its calls.
    pub fn origin(&self) -> Incarnation {
        self.origin
    }

    /// This, if a call is one of its stream.
    #[inline]
    pub(crate) fn of(&self, call: CallId) -> Option<&Self> {
        (call.origin == self.origin).then_some(self)
    }

    /// The same, to be changed.
    #[inline]
    pub(crate) fn of_mut(&mut self, call: CallId) -> Option<&mut Self> {
        (call.origin == self.origin).then_some(self)
    }

    /// A name for a new call of so many root branches.
    ///
    /// # Errors
    /// [`OpenError`] at a bound.
    pub(crate) fn begin(&mut self, branch_count: usize) -> Result<CallId, OpenError> {
        let Limits { calls_max, branches_max, .. } = self.limits;
        if !self.has_room() {
            return Err(OpenError::TooManyCalls { limit: calls_max });
        }
        if branch_count > branches_max as usize {
            return Err(OpenError::TooManyBranches { limit: branches_max });
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        Ok(CallId { origin: self.origin, seq })
    }

    /// Opens a flat call of so many branches. `way` says of each, by its index, where its request
    /// leaves to and when it ends. False, and there is no such call, when they are too many, or
    /// none, or one has no way now or ends before the call would grow: then it needs a timer of its
    /// own.
    #[inline]
    pub(crate) fn open_flat(
        &mut self,
        call: CallId,
        (now, deadline): (Timestamp, Timestamp),
        options: CallOptions,
        branch_count: usize,
        way: impl Fn(u32) -> Option<(NodeId, LinkId, Option<Incarnation>, Timestamp)>,
    ) -> bool {
        if !options.suits_flat() || !(1..=FLAT_BRANCHES_MAX).contains(&branch_count) {
            return false;
        }
        let grows_at = now + self.flat_age();
        let make = || Flat::new(now, deadline, options, branch_count);
        let flat = self.flat.push_with(call.seq, make);
        for index in (0..).take(branch_count) {
            let way = way(index).filter(|(.., deadline)| *deadline > grows_at);
            let Some((to, link, life, deadline)) = way else {
                self.discard_flat(call.seq);
                return false;
            };
            flat.legs.push(Leg { to, link, life, deadline, answer: None });
            let at = link.index();
            if at >= self.flat_at.len() {
                self.flat_at.resize(at + 1, 0);
            }
            self.flat_at[at] += 1;
        }
        true
    }

    /// True for a flat call behind an older one, which is due before it.
    #[inline]
    pub fn is_behind(&self, call: CallId) -> bool {
        let is_oldest = self.flat.front().is_none_or(|(seq, _)| seq == call.seq);
        !is_oldest && self.flat.get(call.seq).is_some()
    }

    /// Destination of the request of a branch of a flat call.
    #[inline]
    pub(crate) fn leg(&self, call: CallId, index: u32) -> Option<(NodeId, LinkId)> {
        let leg = self.flat.get(call.seq)?.legs.get(index as usize)?;
        Some((leg.to, leg.link))
    }

    fn remove_flat(&mut self, seq: u64) -> Option<Flat> {
        let flat = self.flat.remove(seq)?;
        flat.legs.iter().for_each(|leg| self.flat_at[leg.link.index()] -= 1);
        Some(flat)
    }

    /// Lets a flat call go where it lies.
    #[inline]
    pub(crate) fn discard_flat(&mut self, seq: u64) {
        let Self { flat, flat_at, .. } = self;
        flat.discard(seq, |flat| {
            flat.legs.iter().for_each(|leg| flat_at[leg.link.index()] -= 1);
        });
    }

    /// Keeps a full call, whose requests are to be sent.
    pub(crate) fn open_full(
        &mut self,
        id: CallId,
        now: Timestamp,
        deadline: Timestamp,
        options: CallOptions,
        branches: &dyn Roots,
    ) {
        let call = Call::open((id, self.secret), now, deadline, options, branches, &self.limits);
        self.keep(id.seq, call);
        // One without branches has ended already.
        if let Some(armed) = self.calls.get_mut(&id.seq) {
            armed.announce(id.seq, &mut self.ready, &mut self.writable);
        }
    }

    /// Makes a full call of a flat one, which then hears what the flat one could not take.
    fn grow(&mut self, seq: u64) {
        if let Some(flat) = self.remove_flat(seq) {
            let id = CallId { origin: self.origin, seq };
            self.keep(seq, Call::from_flat((id, self.secret), flat, &self.limits));
        }
    }

    fn keep(&mut self, seq: u64, call: Call) {
        let (call, nodes) = (Box::new(call), BTreeSet::new());
        self.calls.insert(seq, Armed { call, at: None, nodes });
        self.unsettled.insert(seq);
        self.arm(seq);
        self.drain(seq);
    }

    /// Age that a flat call reaches.
    fn flat_age(&self) -> Duration {
        self.limits.worry_min
    }

    /// The oldest call that is not settled; every older one is.
    #[inline]
    pub fn floor(&self) -> u64 {
        let flat = self.flat.front().map(|(seq, _)| seq);
        let full = self.unsettled.first().copied();
        flat.into_iter().chain(full).min().unwrap_or(self.next_seq)
    }

    /// Says which calls from `from` on are settled (`settlement.md` S6).
    pub(crate) fn statement(&self, from: u64) -> Statement {
        let flat = self.flat.iter().filter(|(_, flat)| !flat.is_complete()).map(|(seq, _)| seq);
        let full = self.unsettled.range(from..).copied();
        let most = self.limits.exceptions_max;
        Statement::of(self.origin, (from, self.next_seq.max(from)), flat.chain(full), most)
    }

    pub(crate) fn cancel(&mut self, now: Timestamp, call: CallId) {
        self.with(call.seq, |call| call.cancel(now));
    }

    pub(crate) fn detach(&mut self, now: Timestamp, call: CallId) {
        match self.flat.get_mut(call.seq) {
            Some(flat) if flat.is_complete() => {
                flat.let_go(&mut self.out);
                self.discard_flat(call.seq);
            }
            Some(flat) if flat.is_decided => {}
            _ => self.with(call.seq, |call| call.detach(now)),
        }
    }

    /// The caller has enough: what is still to come only settles the call.
    pub(crate) fn decide(&mut self, now: Timestamp, call: CallId, cancels_late: bool) {
        match self.flat.get_mut(call.seq) {
            Some(flat) if flat.is_complete() => {
                flat.let_go(&mut self.out);
                self.discard_flat(call.seq);
            }
            Some(flat) if !cancels_late => {
                flat.let_go(&mut self.out);
                flat.decide();
            }
            _ => self.with(call.seq, |call| call.decide(now, cancels_late)),
        }
    }

    /// Ends all undecided calls, as this node leaves.
    pub(crate) fn end_all(&mut self, now: Timestamp) {
        let is_undecided = |flat: &Flat| !flat.is_complete() && !flat.is_decided;
        let flat = self.flat.iter().filter(|(_, flat)| is_undecided(flat)).map(|(seq, _)| seq);
        let full = self.calls.iter().filter(|(_, armed)| armed.call.end().is_none());
        let undecided: Vec<u64> = flat.chain(full.map(|(seq, _)| *seq)).collect();
        undecided.into_iter().for_each(|seq| self.with(seq, |call| call.leave(now)));
    }

    /// A call is ready when this many replies wait.
    pub(crate) fn wake_after(&mut self, call: CallId, count: usize) {
        if let Some(flat) = self.flat.get_mut(call.seq) {
            flat.wake_after = count.max(1);
        } else if let Some(armed) = self.calls.get_mut(&call.seq) {
            armed.call.wake_after(count);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, links: &dyn LinkView) {
        let age = self.flat_age();
        while let Some((seq, _)) = self.flat.front().filter(|(_, flat)| flat.opened_at + age <= now)
        {
            self.grow(seq);
        }
        while let Some((at, seq)) = self.timers.pop_due(now) {
            let Some(armed) = self.calls.get_mut(&seq).filter(|armed| armed.at == Some(at)) else {
                continue;
            };
            armed.at = None;
            // The timer may be older than the call's present timeout.
            if armed.call.poll_timeout().is_some_and(|at| at <= now) {
                self.with(seq, |call| call.handle_timeout(now, links));
            }
            self.arm(seq);
        }
    }

    #[inline]
    pub(crate) fn poll_timeout(&self) -> Option<Timestamp> {
        let timer = self.timers.next();
        let flat = self.flat.front().map(|(_, flat)| flat.opened_at + self.flat_age());
        earliest([timer, flat])
    }

    /// True when a call may have something for its reader or its writer of items.
    pub(crate) fn has_news(&self) -> bool {
        !self.ready.is_empty() || !self.writable.is_empty()
    }

    /// Next event of one call for the application, and replies behind it in `ahead`: small ones of
    /// a full call, all of a flat one. Gives the end of a flat one, too, once nothing else is left
    /// to be told, and lets it go.
    pub(crate) fn poll_last(
        &mut self,
        call: CallId,
        ahead: &mut VecDeque<Delivered>,
    ) -> Option<(CallEvent, Option<End>)> {
        let Some(flat) = self.flat.get_mut(call.seq) else {
            let armed = self.calls.get_mut(&call.seq)?;
            let event = armed.call.poll_event()?;
            armed.call.poll_ahead(ahead);
            armed.hand_over(&mut self.out);
            return Some((event, None));
        };
        let event = CallEvent::Reply(flat.poll_reply()?);
        if !flat.is_told() {
            flat.poll_ahead(ahead);
        }
        if !flat.is_told() {
            return Some((event, None));
        }
        self.discard_flat(call.seq);
        Some((event, Some(End::Complete)))
    }

    /// A call that may have something for the application since it was last asked.
    #[inline]
    pub(crate) fn poll_ready(&mut self) -> Option<CallId> {
        let seq = self.ready.pop_front()?;
        Some(CallId { origin: self.origin, seq })
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    pub(crate) fn poll_outbound(&mut self) -> Option<Outbound> {
        self.out.pop_front()
    }

    fn with(&mut self, seq: u64, act: impl FnOnce(&mut Call)) {
        self.grow(seq);
        let Some(armed) = self.calls.get_mut(&seq) else { return };
        act(&mut armed.call);
        armed.announce(seq, &mut self.ready, &mut self.writable);
        let timer = armed.rearm();
        let has_changed = armed.hand_over(&mut self.out);
        if let Some(at) = timer {
            self.set_timer(at, seq);
        }
        if has_changed {
            self.drain(seq);
        }
    }

    /// Collects what a call wants after any input, and drops it when it is done.
    fn drain(&mut self, seq: u64) {
        let Some(armed) = self.calls.get_mut(&seq) else { return };
        if !armed.hand_over(&mut self.out) {
            return;
        }
        for node in armed.call.take_new_nodes() {
            if armed.nodes.insert(node) {
                self.at_node.insert((node, seq));
            }
        }
        let call = &armed.call;
        let (is_settled, is_let_go) = (call.is_settled(), call.is_let_go());
        let name = (call.end() == Some(End::Decided), call.deadline(), seq);
        let branches = call.tree().branch_count();
        if is_settled {
            self.unsettled.remove(&seq);
        }
        if is_settled && is_let_go {
            self.forget(seq);
        } else if is_let_go {
            // It may hear of more of them as it winds.
            let counted = self.winding.entry(name).or_insert(0);
            self.winding_branches += branches - std::mem::replace(counted, branches);
            self.settle_early();
        }
    }

    /// Forgets ended calls when there are too many, the earliest deadlines first. It costs what
    /// `settlement.md` section 2 says: work that runs on may be refused further down.
    fn settle_early(&mut self) {
        let most = self.limits.winding_max;
        while self.winding.len() > most
            || self.winding_branches > BRANCHES_EACH.saturating_mul(most as u64)
        {
            let Some(((_, _, seq), _)) = self.winding.first_key_value() else { return };
            let seq = *seq;
            self.settled_early += 1;
            self.unsettled.remove(&seq);
            self.forget(seq);
        }
    }

    fn forget(&mut self, seq: u64) {
        let Some(Armed { mut call, nodes, .. }) = self.calls.remove(&seq) else { return };
        call.stop_items(SendError::Ended);
        if call.take_items_news() {
            self.writable.push_back(seq);
        }
        self.out.extend(std::iter::from_fn(|| call.poll_outbound()));
        if let Some(link) = call.items_link() {
            self.drop_granted(link, seq);
        }
        for node in nodes {
            self.at_node.remove(&(node, seq));
        }
        let name = (call.end() == Some(End::Decided), call.deadline(), seq);
        self.winding_branches -= self.winding.remove(&name).unwrap_or(0);
    }

    fn arm(&mut self, seq: u64) {
        if let Some(at) = self.calls.get_mut(&seq).and_then(Armed::rearm) {
            self.set_timer(at, seq);
        }
    }

    fn set_timer(&mut self, at: Timestamp, seq: u64) {
        self.timers.push(at, seq);
        if self.timers.is_crowded(self.calls.len()) {
            let armed = self.calls.iter().filter_map(|(seq, armed)| Some((armed.at?, *seq)));
            self.timers.sweep(armed);
        }
    }
}

/// Branches that are kept for each of the ended calls which may wait for the word of their tasks.
const BRANCHES_EACH: u64 = 4;
