//! Casts among members: the port by which a handler, or whoever else counts them, sends and takes
//! them. Echo phases are built on it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::{NodeId, NodeLife};
use convoke_proto::mailbox::{
    Announce, CallName, JoinRefusal, MailKey, MailReader, Mailboxes, SpaceRefusal, Tag,
};
use convoke_proto::mutant::{self, Mutant};
use convoke_proto::node::Reach;
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{About, Cast, Digest};
use convoke_transport::parts::Mutex;
use smallvec::SmallVec;

use crate::coop::poll_in_budget;
use crate::driver::{Driver, KeepConnected, Node, OwedPlace};

use super::Context;

/// Content of a cast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CastBody {
    /// Phase, from 0.
    pub phase: u16,
    /// The sender's index in the configuration, as it says.
    pub sender: u16,
    /// The epoch of the configuration; 0 where there are no epochs.
    pub epoch: u64,
    /// Digest of the value it speaks for.
    pub digest: Digest,
    /// The value, or nothing where the digest is enough.
    pub payload: Bytes,
}

/// A cast that another member sent here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedCast {
    /// Sender, authenticated by its connection.
    pub from: NodeId,
    /// Content.
    pub body: CastBody,
}

/// State of a port's casts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// True when as many wait as were asked for.
    pub is_ready: bool,
    /// Number of times that a connection which concerns the port was made or lost, or a node could
    /// not be dialled.
    pub changes: u64,
    /// True when no others come, as the endpoint was shut down.
    pub is_over: bool,
}

/// Sends casts about one call or tag, and takes those that come. While it lives, no other is about
/// the same at this node; dropped, it leaves no more than that it was there.
pub struct CastPort {
    driver: Arc<Driver>,
    key: MailKey,
    /// For a call, its deadline.
    deadline: Option<Timestamp>,
    lifetime: Duration,
    has_voted: AtomicBool,
}

impl Context {
    /// The port for casts about this call. What came before is in it.
    ///
    /// Only the initiator's own requests begin one: a node that was asked in the call could
    /// otherwise make the participants vote on something else in its name.
    ///
    /// # Errors
    /// [`JoinRefusal`] when this call has one at this node, or had one since it began here; or when
    /// the request was delegated.
    pub fn casts(&self) -> Result<CastPort, JoinRefusal> {
        if !self.is_of_initiator() && !mutant::is(Mutant::DelegatedJoins) {
            return Err(JoinRefusal::NotAsked);
        }
        self.casts_for_parent()
    }

    /// As [`Self::casts`], also of a request that this node's parent delegated: for who knows that
    /// it may. Whose call it is, it says.
    ///
    /// # Errors
    /// As [`Self::casts`].
    pub fn casts_for_parent(&self) -> Result<CastPort, JoinRefusal> {
        let (driver, start) = (self.driver(), self.handle.start());
        let call = start.task.call;
        let origin = NodeLife { node: start.origin, life: call.origin };
        let key = MailKey::Call(CallName { origin, seq: call.seq });
        let join = |node: &mut Node| node.mailboxes_mut().join(key);
        CastPort::open(driver, key, Some(start.deadline), Duration::ZERO, join)
    }

    /// The node that serves the task.
    pub fn node(&self) -> NodeId {
        self.driver().identity().node
    }

    /// True when the request was sent by the initiator of the call itself, not delegated.
    pub fn is_of_initiator(&self) -> bool {
        self.task().is_of_initiator()
    }
}

impl CastPort {
    fn open(
        driver: &Arc<Driver>,
        key: MailKey,
        deadline: Option<Timestamp>,
        lifetime: Duration,
        join: impl FnOnce(&mut Node) -> Result<(), JoinRefusal>,
    ) -> Result<Self, JoinRefusal> {
        driver.ask_node(key.origin(), join)?;
        let has_voted = AtomicBool::new(false);
        Ok(Self { driver: driver.clone(), key, deadline, lifetime, has_voted })
    }

    /// The node it is at.
    pub fn node(&self) -> NodeId {
        self.driver.identity().node
    }

    /// Initiator of the call; of a tag there is none.
    pub fn initiator(&self) -> Option<NodeId> {
        match self.key {
            MailKey::Call(name) => Some(name.origin.node),
            MailKey::Tag(_) => None,
        }
    }

    /// Time that remains until the call's deadline. For a tag: time for which a member that has not
    /// opened it keeps what is cast about it.
    pub fn remaining(&self) -> Duration {
        self.deadline.map_or(self.lifetime, |deadline| deadline.since(self.driver.now()))
    }

    /// Sends a one-way message to each of these nodes. It is no branch: nobody waits for it, and
    /// completion does not depend on it. It may arrive before the receiver's port is there, whose
    /// mailbox keeps it. To a node that cannot be reached it is lost.
    ///
    /// Returns the turn in which it is sent, a number that grows as connections come and go: once
    /// [`Reach::lost_before`] of a node is larger, what was sent to that node may be lost.
    pub fn send(&self, to: impl IntoIterator<Item = NodeId>, body: CastBody) -> u64 {
        self.has_voted.store(true, Ordering::Relaxed);
        send(&self.driver, self.key, self.remaining(), to, body)
    }

    /// The largest payload that is kept where it arrives, by the limits of this node.
    pub fn payload_bytes_max(&self) -> usize {
        self.driver.limits.cast_payload_bytes_max()
    }

    /// Members to which something about it could not be sent since it was last asked: there was no
    /// way to them, or no room on it.
    pub fn take_missed(&self) -> SmallVec<[NodeId; 4]> {
        self.driver.ask_node(self.key.origin(), |node| node.mailboxes_mut().take_missed(self.key))
    }

    /// Takes all that came, oldest first.
    pub fn take(&self, into: &mut Vec<ReceivedCast>) {
        let mut casts = Vec::new();
        self.driver
            .ask_node(self.key.origin(), |node| node.mailboxes_mut().take(self.key, &mut casts));
        into.extend(casts.into_iter().map(|(from, cast)| ReceivedCast::of(from, cast)));
    }

    /// Asks whether `count` casts wait. If not, the waker is kept until so many do, and is not
    /// woken for each; or until a connection is made or lost, or a node cannot be dialled, since
    /// then fewer may come: of any that may cast here, or of those that it [watches](Self::watch).
    ///
    /// Keeps the waker of the last poll.
    pub fn poll_waiting(&self, cx: &mut TaskContext<'_>, count: usize) -> Waiting {
        let mut changes = 0;
        let polled = self.driver.poll_mail(self.reader(), cx.waker(), |mailboxes| {
            changes = mailboxes.changes(self.key);
            if mailboxes.poll_waiting(self.key, count) { Poll::Ready(()) } else { Poll::Pending }
        });
        let (is_ready, is_over) = match polled {
            Poll::Ready(Some(())) => (true, false),
            Poll::Ready(None) => (false, true),
            Poll::Pending => (false, false),
        };
        Waiting { is_ready, changes, is_over }
    }

    /// Ways to these nodes as far as known, and the number of changes until then.
    pub fn reach(&self, nodes: impl IntoIterator<Item = NodeId>) -> (Vec<Reach>, u64) {
        let nodes: SmallVec<[NodeId; 8]> = nodes.into_iter().collect();
        self.driver.ask_node(self.key.origin(), |node| {
            let reach = nodes.into_iter().map(|of| node.reach(of)).collect();
            (reach, node.mailboxes().changes(self.key))
        })
    }

    /// As [`Self::reach`], and from now on only what changes of these nodes wakes who waits here.
    pub fn watch(&self, nodes: impl IntoIterator<Item = NodeId>) -> (Vec<Reach>, u64) {
        let nodes: SmallVec<[NodeId; 8]> = nodes.into_iter().collect();
        self.driver.ask_node(self.key.origin(), |node| {
            node.mailboxes_mut().watch(self.key, &nodes);
            let reach = nodes.into_iter().map(|of| node.reach(of)).collect();
            (reach, node.mailboxes().changes(self.key))
        })
    }

    /// Asks for connections to those of these nodes that have none and can be dialled: by
    /// [`Self::reach`] they are down only once that has failed.
    pub fn dial(&self, nodes: impl IntoIterator<Item = NodeId>) {
        let nodes: SmallVec<[NodeId; 8]> = nodes.into_iter().collect();
        self.driver.with_node(self.key.origin(), |node, now| node.dial_all(now, nodes));
    }

    /// Dials a node, and again whenever its connection is lost, as
    /// [`Endpoint::keep_connected`](crate::Endpoint::keep_connected) does.
    pub fn keep_connected(&self, node: NodeId) -> KeepConnected {
        self.driver.keep_connected(node)
    }

    /// A place for who stays only to send something again to a member that is slow. `None` when no
    /// more wait for it, or for all: an endpoint has 1,024 places, and a member takes no more of
    /// them than it leaves free.
    pub fn owe(&self, to: NodeId) -> Option<OwedPlace> {
        self.driver.owe(to)
    }

    /// The epoch of the configuration that this node was told of; 0 is none.
    pub fn epoch(&self) -> u64 {
        // Every core knows; this one's is locked for the port anyway, and by fewer others.
        self.driver.ask_node(self.key.origin(), |node| node.epoch())
    }

    fn reader(&self) -> MailReader {
        MailReader::Mailbox(self.key)
    }
}

impl ReceivedCast {
    fn of(from: NodeId, cast: Cast) -> Self {
        let Cast { phase, sender, epoch, digest, payload, .. } = cast;
        Self { from, body: CastBody { phase, sender, epoch, digest, payload } }
    }
}

fn send(
    driver: &Arc<Driver>,
    key: MailKey,
    lifetime: Duration,
    to: impl IntoIterator<Item = NodeId>,
    body: CastBody,
) -> u64 {
    let budget_us = u64::try_from(lifetime.as_micros()).unwrap_or(u64::MAX);
    let CastBody { phase, sender, epoch, digest, payload } = body;
    // The node says of which call or tag it is.
    let (about, is_carried) = (About::Tag { view: 0 }, false);
    let cast = Cast { about, phase, sender, epoch, budget_us, digest, is_carried, payload };
    // The caller's iterator may use the endpoint, so it is not run under its lock.
    let to: SmallVec<[NodeId; 8]> = to.into_iter().collect();
    driver.send_casts(key, to, cast)
}

impl Drop for CastPort {
    fn drop(&mut self) {
        let (key, has_voted) = (self.key, *self.has_voted.get_mut());
        let now = self.driver.now();
        self.driver.close_mail(self.reader(), |node| node.close_mail(now, key, has_voted));
    }
}

impl fmt::Debug for CastPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CastPort").field("about", &self.key).finish_non_exhaustive()
    }
}

/// The tags of one service or group at this node, for phases that outlive a call. Closed when
/// dropped.
pub struct CastSpace {
    driver: Arc<Driver>,
    name: u64,
    /// Held while all cores are told, so that the last to tell them tells the newest members.
    telling: Mutex<()>,
}

impl CastSpace {
    pub(crate) fn begin(
        driver: &Arc<Driver>,
        name: u64,
        window: usize,
        announce: Announce,
        members: Option<&[NodeId]>,
    ) -> Result<Self, SpaceRefusal> {
        let members: Option<BTreeSet<NodeId>> =
            members.map(|nodes| nodes.iter().copied().collect());
        driver.ask_node(MailReader::Space(name).origin(), |node| {
            node.mailboxes_mut().open_space(name, window, announce, members)
        })?;
        let space = Self { driver: driver.clone(), name, telling: Mutex::default() };
        space.tell_members();
        Ok(space)
    }

    /// Tells all cores who may cast, since members of a space may do so about calls, too.
    fn tell_members(&self) {
        let _telling = self.telling.lock();
        let members = self.ask(|mailboxes| mailboxes.members_of_space(self.name));
        self.driver.ask_each_node(|node| {
            node.mailboxes_mut().know_of_space(self.name, members.clone());
        });
    }

    /// The node it is at.
    pub fn node(&self) -> NodeId {
        self.driver.identity().node
    }

    /// The port for casts about a tag. What came before is in it. Members that have not opened the
    /// tag keep what is sent for `lifetime`.
    ///
    /// # Errors
    /// [`JoinRefusal`] when the tag has one, had one by which something was cast, or is over; or
    /// when that could not be remembered of it.
    pub fn open(
        &self,
        view: u64,
        sequence: u64,
        lifetime: Duration,
    ) -> Result<CastPort, JoinRefusal> {
        self.port((view, sequence), lifetime, Mailboxes::join)
    }

    /// As [`Self::open`], also of a tag that had one: for who says again what was said by it.
    ///
    /// # Errors
    /// As [`Self::open`], but for a tag that had one.
    pub fn open_again(
        &self,
        view: u64,
        sequence: u64,
        lifetime: Duration,
    ) -> Result<CastPort, JoinRefusal> {
        self.port((view, sequence), lifetime, Mailboxes::join_again)
    }

    fn port(
        &self,
        (view, sequence): (u64, u64),
        lifetime: Duration,
        join: impl FnOnce(&mut Mailboxes, MailKey) -> Result<(), JoinRefusal>,
    ) -> Result<CastPort, JoinRefusal> {
        let key = self.key(view, sequence);
        let join = |node: &mut Node| join(node.mailboxes_mut(), key);
        CastPort::open(&self.driver, key, None, lifetime, join)
    }

    fn key(&self, view: u64, sequence: u64) -> MailKey {
        MailKey::Tag(Tag { space: self.name, view, sequence })
    }

    fn reader(&self) -> MailReader {
        MailReader::Space(self.name)
    }

    fn ask<T>(&self, act: impl FnOnce(&mut Mailboxes) -> T) -> T {
        self.driver.ask_node(self.reader().origin(), |node| act(node.mailboxes_mut()))
    }

    /// Reads the casts of all tags as one stream from now on, as [`Self::poll_cast`] gives them: of
    /// each member in turn. No tag is opened then.
    pub fn stream(&self) {
        self.ask(|mailboxes| mailboxes.stream_space(self.name));
    }

    /// The next cast of a space that is read as a stream, with its tag, view and sequence; `None`
    /// once the endpoint was shut down.
    ///
    /// Keeps the waker of the last poll.
    pub fn poll_cast(&self, cx: &mut TaskContext<'_>) -> Poll<Option<((u64, u64), ReceivedCast)>> {
        poll_in_budget(cx, |cx| {
            self.driver.poll_mail(self.reader(), cx.waker(), |mailboxes| {
                match mailboxes.poll_cast(self.name) {
                    Some((from, tag, cast)) => {
                        Poll::Ready(((tag.view, tag.sequence), ReceivedCast::of(from, cast)))
                    }
                    None => Poll::Pending,
                }
            })
        })
    }

    /// Sends a one-way message about a tag to each of these nodes, as [`CastPort::send`]. Members
    /// that have not opened the tag keep it for `lifetime`.
    pub fn send(
        &self,
        (view, sequence): (u64, u64),
        lifetime: Duration,
        to: impl IntoIterator<Item = NodeId>,
        body: CastBody,
    ) {
        send(&self.driver, self.key(view, sequence), lifetime, to, body);
    }

    /// The largest payload that is kept where it arrives, by the limits of this node.
    pub fn payload_bytes_max(&self) -> usize {
        self.driver.limits.cast_payload_bytes_max()
    }

    /// Members to which something about a tag could not be sent since it was last asked: there was
    /// no way to them, or no room on it.
    pub fn take_missed(&self) -> BTreeSet<NodeId> {
        self.ask(|mailboxes| mailboxes.take_missed_of_space(self.name))
    }

    /// Takes the casts of these nodes, too, until the members change.
    pub fn hear_next(&self, members: impl IntoIterator<Item = NodeId>) {
        let members: BTreeSet<NodeId> = members.into_iter().collect();
        self.ask(|mailboxes| mailboxes.hear_next(self.name, members));
        self.tell_members();
    }

    /// Other members from now on: nobody else's casts are taken.
    pub fn change_members(&self, members: impl IntoIterator<Item = NodeId>) {
        let members: BTreeSet<NodeId> = members.into_iter().collect();
        // It may have something to tell who waits for tags.
        self.driver.with_node(self.reader().origin(), |node, _| {
            node.mailboxes_mut().change_members(self.name, members);
        });
        self.tell_members();
    }

    /// A tag that is worth a port and has none; `None` once the endpoint was shut down.
    ///
    /// Keeps the waker of the last poll.
    pub fn poll_announced(&self, cx: &mut TaskContext<'_>) -> Poll<Option<(u64, u64)>> {
        self.driver.poll_mail(self.reader(), cx.waker(), |mailboxes| {
            let tag = mailboxes.poll_announced(self.name);
            tag.map_or(Poll::Pending, |tag| Poll::Ready((tag.view, tag.sequence)))
        })
    }

    /// All tags below are over: what comes about them is dropped, and none can be opened.
    pub fn raise_floor(&self, view: u64, sequence: u64) {
        let floor = (view, sequence);
        self.ask(|mailboxes| mailboxes.raise_floor(self.name, floor));
    }

    /// The lowest tag that is not over.
    pub fn floor(&self) -> (u64, u64) {
        self.ask(|mailboxes| mailboxes.floor(self.name))
    }
}

impl Drop for CastSpace {
    fn drop(&mut self) {
        // While the name is taken, so that it is not said of who takes it next.
        self.driver.ask_each_node(|node| {
            node.mailboxes_mut().know_of_space(self.name, BTreeSet::new());
        });
        self.driver.close_mail(self.reader(), |node| node.mailboxes_mut().close_space(self.name));
    }
}

impl fmt::Debug for CastSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CastSpace").field("name", &self.name).finish_non_exhaustive()
    }
}
