//! Casts among members: the port by which a handler, or whoever else counts them, sends and takes
//! them. Echo phases are built on it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::NodeId;
use convoke_proto::mailbox::{Announce, JoinRefusal, MailKey, MailReader, SpaceTaken, Tag};
use convoke_proto::node::Reach;
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{Cast, Digest};
use smallvec::SmallVec;

use crate::driver::Driver;

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
    /// Number of times that a connection was made or lost, or a node could not be dialled.
    pub changes: u64,
}

/// Sends casts about one call or tag, and takes those that come. While it lives, no other is about
/// the same at this node; dropped, it leaves a mailbox that keeps nothing.
pub struct CastPort {
    driver: Arc<Driver>,
    key: MailKey,
    /// For a call, its deadline.
    deadline: Option<Timestamp>,
    lifetime: Duration,
    late_count: u32,
}

impl Context {
    /// The port for casts about this call. What came before is in it.
    ///
    /// # Errors
    /// [`JoinRefusal`] when this call has one at this node; or had one to which late casts may
    /// still come, as [`CastPort::expect_late`] says.
    pub fn casts(&self) -> Result<CastPort, JoinRefusal> {
        let (driver, deadline) = (&self.handle.driver, self.handle.start.deadline);
        CastPort::open(driver, MailKey::Call(self.task().call), Some(deadline), Duration::ZERO)
    }
}

impl CastPort {
    fn open(
        driver: &Arc<Driver>,
        key: MailKey,
        deadline: Option<Timestamp>,
        lifetime: Duration,
    ) -> Result<Self, JoinRefusal> {
        driver.with_node_quietly(|node| node.mailboxes_mut().join(key))?;
        Ok(Self { driver: driver.clone(), key, deadline, lifetime, late_count: u32::MAX })
    }

    /// The node it is at.
    pub fn node(&self) -> NodeId {
        self.driver.identity().node
    }

    /// Time that remains until the call's deadline. For a tag: time for which a member that has not
    /// opened it keeps what is cast about it.
    pub fn remaining(&self) -> Duration {
        self.deadline.map_or(self.lifetime, |deadline| deadline.since(self.driver.now()))
    }

    /// Sends a one-way message to each of these nodes. It is no branch: nobody waits for it, and
    /// completion does not depend on it. It may arrive before the receiver's port is there, whose
    /// mailbox keeps it. To a node that cannot be reached it is lost.
    pub fn send(&self, to: impl IntoIterator<Item = NodeId>, body: CastBody) {
        let budget_us = u64::try_from(self.remaining().as_micros()).unwrap_or(u64::MAX);
        let CastBody { phase, sender, epoch, digest, payload } = body;
        let is_carried = false;
        let cast =
            Cast { view: None, phase, sender, epoch, budget_us, digest, is_carried, payload };
        // The caller's iterator may use the endpoint, so it is not run under its lock.
        let to: SmallVec<[NodeId; 8]> = to.into_iter().collect();
        self.driver.send_casts(self.key, to, cast);
    }

    /// Takes all that came, oldest first.
    pub fn take(&self, into: &mut Vec<ReceivedCast>) {
        let mut casts = Vec::new();
        self.driver.with_node_quietly(|node| node.mailboxes_mut().take(self.key, &mut casts));
        into.extend(casts.into_iter().map(|(from, cast)| {
            let Cast { phase, sender, epoch, digest, payload, .. } = cast;
            ReceivedCast { from, body: CastBody { phase, sender, epoch, digest, payload } }
        }));
    }

    /// Asks whether `count` casts wait. If not, the waker is kept until so many do, and is not
    /// woken for each; or until a connection is made or lost, or a node cannot be dialled, since
    /// then fewer may come.
    ///
    /// Keeps the waker of the last poll.
    pub fn poll_waiting(&self, cx: &mut TaskContext<'_>, count: usize) -> Waiting {
        let mut changes = 0;
        let polled = self.driver.poll_mail(self.reader(), cx.waker(), |mailboxes| {
            changes = mailboxes.changes();
            if mailboxes.poll_waiting(self.key, count) { Poll::Ready(()) } else { Poll::Pending }
        });
        Waiting { is_ready: polled.is_ready(), changes }
    }

    /// Ways to these nodes as far as known, and the number of changes until then.
    pub fn reach(&self, nodes: impl IntoIterator<Item = NodeId>) -> (Vec<Reach>, u64) {
        let nodes: SmallVec<[NodeId; 8]> = nodes.into_iter().collect();
        self.driver.with_node_quietly(|node| {
            (nodes.into_iter().map(|of| node.reach(of)).collect(), node.mailboxes().changes())
        })
    }

    fn reader(&self) -> MailReader {
        MailReader::Mailbox(self.key)
    }

    /// Says how many casts may still come when it is dropped. With the last of them the call is
    /// forgotten here; otherwise at its deadline. Means nothing for a tag, which is remembered
    /// until its space is told that it is over.
    pub fn expect_late(&mut self, count: u32) {
        self.late_count = count;
    }
}

impl Drop for CastPort {
    fn drop(&mut self) {
        let (left, forget_at) = match self.key {
            MailKey::Call(_) => (self.late_count, self.deadline.unwrap_or(Timestamp::MAX)),
            MailKey::Tag(_) => (u32::MAX, Timestamp::MAX),
        };
        self.driver.close_mail(self.reader(), |mail| mail.close(self.key, left, forget_at));
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
}

impl CastSpace {
    pub(crate) fn begin(
        driver: &Arc<Driver>,
        name: u64,
        window: usize,
        announce: Announce,
        members: Option<&[NodeId]>,
    ) -> Result<Self, SpaceTaken> {
        let members = members.map(|nodes| nodes.iter().copied().collect());
        driver.with_node_quietly(|node| {
            node.mailboxes_mut().open_space(name, window, announce, members)
        })?;
        Ok(Self { driver: driver.clone(), name })
    }

    /// The port for casts about a tag. What came before is in it. Members that have not opened the
    /// tag keep what is sent for `lifetime`.
    ///
    /// # Errors
    /// [`JoinRefusal`] when the tag has or had one, or is over.
    pub fn open(
        &self,
        view: u64,
        sequence: u64,
        lifetime: Duration,
    ) -> Result<CastPort, JoinRefusal> {
        let key = MailKey::Tag(Tag { space: self.name, view, sequence });
        CastPort::open(&self.driver, key, None, lifetime)
    }

    /// A tag that is worth a port and has none.
    ///
    /// Keeps the waker of the last poll.
    pub fn poll_announced(&self, cx: &mut TaskContext<'_>) -> Poll<(u64, u64)> {
        self.driver.poll_mail(MailReader::Space(self.name), cx.waker(), |mailboxes| {
            let tag = mailboxes.poll_announced(self.name);
            tag.map_or(Poll::Pending, |tag| Poll::Ready((tag.view, tag.sequence)))
        })
    }

    /// All tags below are over: what comes about them is dropped, and none can be opened.
    pub fn raise_floor(&self, view: u64, sequence: u64) {
        let floor = (view, sequence);
        self.driver.with_node_quietly(|node| node.mailboxes_mut().raise_floor(self.name, floor));
    }

    /// The lowest tag that is not over.
    pub fn floor(&self) -> (u64, u64) {
        self.driver.with_node_quietly(|node| node.mailboxes_mut().floor(self.name))
    }
}

impl Drop for CastSpace {
    fn drop(&mut self) {
        let reader = MailReader::Space(self.name);
        self.driver.close_mail(reader, |mailboxes| mailboxes.close_space(self.name));
    }
}

impl fmt::Debug for CastSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CastSpace").field("name", &self.name).finish_non_exhaustive()
    }
}
