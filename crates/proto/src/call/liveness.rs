//! Worry, probe, fence, grace: how the initiator finds that a branch is lost.
//!
//! A wrong suspicion may cost a false failure, never a false completion. A branch is declared
//! - **Lost** (never ran, never will) only when its node answered *fenced* where the request cannot
//!   be on its way any more: a root branch, when the probe follows its request on the same
//!   connection and lane; or after the parent, or its node, lost the connection;
//! - **`NodeDown`** (may have run) when its node answered *fenced* where nobody is left who would
//!   say that the request was lost: the node does not know of it, and the sender's node does not
//!   know of the task that sent the request, or cannot be reached, or nobody has named the sender.
//!   The sender, or who it handed its branch to, may hold the request still, and a later life of
//!   the node take it;
//! - **`ReplyLost`** (ran) when its node says how the reply left, and that way is dead or has
//!   delivered the later STATUS; or when a piece of a reply has not come that left before what has,
//!   and a grace has passed since the connection ended that it may have taken, or the time that
//!   nothing is delayed for without its connection being lost;
//! - **`NodeDown`** (may have run) when the connection to its node ended, or it cannot be dialled,
//!   and nobody is left who passes a question on to it; or it says through others, which fence
//!   nothing, that it does not know of it where a fence would be asked for; and a grace has passed;
//! - **Orphaned** when its parent failed before anybody said where it was sent.
//!
//! | file | |
//! |---|---|
//! | this one | what a call keeps for it |
//! | `suspicion` | branches that fail unless they are heard of within a grace |
//! | `probes` | when holders are asked, and by which ways |
//! | `answers` | what their words prove |

mod answers;
mod dues;
mod probes;
mod suspicion;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::failure::Failure;
use crate::id::{Incarnation, LinkId, LinkNonce, NodeId, Path, TaskKey};
use crate::limits::Limits;
use crate::mutant::{self, Mutant};
use crate::time::{Timestamp, earliest};
use crate::tree::Tree;
use crate::wire::Cause;

use dues::Dues;

/// Questions about connections that a call may ask.
pub(crate) trait LinkView {
    /// The connection to `node` that new frames take, if one is up.
    fn current(&self, node: NodeId) -> Option<LinkId>;
    /// True when this connection is up.
    fn is_up(&self, link: LinkId) -> bool;
    /// The name that both ends have for a connection that is up.
    fn nonce(&self, link: LinkId) -> Option<LinkNonce>;
    /// Since when this has been the only connection to its node.
    fn sole_since(&self, link: LinkId) -> Option<Timestamp>;
    /// True when this connection to `node` was open and has ended.
    fn is_dead(&self, node: NodeId, link: LinkNonce) -> bool;
    /// True when `node` is being dialled, and so nothing has left for it yet.
    fn is_dialling(&self, node: NodeId) -> bool;
    /// When the last connection to `node` ended, unless one is up now.
    fn lost_at(&self, node: NodeId) -> Option<Timestamp>;
    /// True when there is a connection to `node`, or one may be dialled now: not in the pause after
    /// a dial that has failed.
    fn is_reachable(&self, now: Timestamp, node: NodeId) -> bool;
    /// The present life of `node`, and since when it is known.
    fn life(&self, node: NodeId) -> Option<(Incarnation, Timestamp)>;
}

#[derive(Debug)]
pub(super) struct Liveness {
    grace: Duration,
    worry_min: Duration,
    worry_max: Duration,
    worry_interval: Duration,
    worry_at: Timestamp,
    opened_at: Timestamp,
    /// A connection over which nothing comes for longer is lost.
    delay_max: Duration,
    last_seen: Timestamp,
    /// Connection by which the request of a root branch left, and the life of the node it went to.
    root_links: BTreeMap<Path, (LinkId, Option<Incarnation>)>,
    fence_allowed: BTreeMap<Path, Fence>,
    suspects: Dues<Suspicion>,
    /// Branches that their holders do not know of: the request is slow, or it was lost and its
    /// sender had no way to say so.
    unknown: BTreeSet<Path>,
    /// Tasks that sent such branches, once they were asked for.
    senders: BTreeMap<TaskKey, Sender>,
    /// Probes by the task they ask for: the node that they went to last, which holds it or passes
    /// on to who does, and how many are without an answer.
    probes: BTreeMap<TaskKey, (NodeId, u32)>,
    /// Branches of a reply of which something has not come that left before what has. One gap of
    /// each is enough, the one that is due first: it fails as a whole.
    gaps: Dues<Gap>,
    /// Branches that a connection has ended of, to their node or to who passes on from there, and
    /// when.
    cut: BTreeMap<Path, Timestamp>,
}

/// Reason why a branch fails when a grace is over, unless its node is heard of before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suspicion {
    /// The connection to its node has ended, or its node cannot be dialled. Others may reach it, or
    /// hold its request still: they are asked before it fails.
    Cut,
    NodeDown,
    Orphaned,
}

/// Reply of a branch that has a gap, and since when.
#[derive(Clone, Copy, Debug)]
struct Gap {
    index: u32,
    since: Timestamp,
}

/// A task that was asked for on account of a branch that it sent.
#[derive(Debug)]
struct Sender {
    node: NodeId,
    /// Answers under way to what was asked before, maybe before it began.
    stale: u32,
    /// Its node does not know of it any more, or cannot be reached.
    is_gone: bool,
}

/// Reason why a branch may be fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fence {
    /// Its request was lost with a connection.
    RequestLost,
    /// Nobody is left who would say so, and somebody may hold the request still.
    SenderGone,
}

impl Liveness {
    pub(super) fn new(now: Timestamp, limits: &Limits) -> Self {
        Self {
            grace: limits.grace,
            worry_min: limits.worry_min,
            worry_max: limits.worry_max,
            worry_interval: limits.worry_min,
            worry_at: now + limits.worry_min,
            opened_at: now,
            delay_max: limits.keep_alive_timeout,
            last_seen: now,
            root_links: BTreeMap::new(),
            fence_allowed: BTreeMap::new(),
            suspects: Dues::default(),
            unknown: BTreeSet::new(),
            senders: BTreeMap::new(),
            probes: BTreeMap::new(),
            gaps: Dues::default(),
            cut: BTreeMap::new(),
        }
    }

    pub(super) fn note_root_link(&mut self, path: &Path, link: LinkId, life: Option<Incarnation>) {
        self.root_links.insert(path.clone(), (link, life));
    }

    /// The branch has moved on from the node its root request went to.
    pub(super) fn forget_root_link(&mut self, task: &TaskKey) {
        if task.hop > 0 && !mutant::is(Mutant::TailKeepsRootLink) {
            self.root_links.remove(&task.path);
            self.fence_allowed.remove(&task.path);
        }
    }

    /// The request of a branch was lost with a connection.
    pub(super) fn note_request_lost(&mut self, path: &Path) {
        self.fence_allowed.insert(path.clone(), Fence::RequestLost);
    }

    /// A branch runs that others have sent: its request was not lost with a connection, and they
    /// may be asked for it.
    fn forget_loss(&mut self, path: &Path) {
        if !self.root_links.contains_key(path)
            && self.fence_allowed.get(path) == Some(&Fence::RequestLost)
        {
            self.fence_allowed.remove(path);
        }
    }

    /// The sender of some branches answers after all: it would say that their requests were lost.
    fn regain_sender(&mut self, task: &TaskKey) {
        self.fence_allowed.retain(|path, fence| {
            let is_sent =
                *path == task.path || path.parent().is_some_and(|(parent, _)| parent == task.path);
            *fence != Fence::SenderGone || !is_sent
        });
    }

    /// Nobody is left who would say that the request of a branch was lost.
    fn note_sender_gone(&mut self, path: &Path) {
        self.fence_allowed.entry(path.clone()).or_insert(Fence::SenderGone);
    }

    /// True when what its node has fenced can be taken by no later life of the node either.
    fn is_request_gone(&self, path: &Path) -> bool {
        self.root_links.contains_key(path)
            || self.fence_allowed.get(path) == Some(&Fence::RequestLost)
    }

    pub(super) fn note_progress(&mut self, now: Timestamp) {
        self.last_seen = now;
        self.worry_interval = self.worry_min;
        self.worry_at = now + self.worry_min;
    }

    /// The node of a task has been heard of about it. Once the branch has gone on from there, that
    /// says nothing of where it is now.
    pub(super) fn note_news(&mut self, tree: &Tree, task: &TaskKey) {
        if self.suspects.is_empty() && self.unknown.is_empty() {
            return;
        }
        if tree.get(&task.path).is_none_or(|branch| branch.hop <= task.hop) {
            self.suspects.remove(&task.path);
            self.unknown.remove(&task.path);
        }
    }

    /// Looks after the grace at what hangs below a failed branch, which may have lost its way.
    pub(super) fn note_failed(&mut self, tree: &Tree, failure: &Failure) {
        self.suspects.remove(&failure.task.path);
        self.gaps.remove(&failure.task.path);
        let is_node_down = failure.cause == Cause::NodeDown;
        let below = tree.below(&failure.task.path).skip(1);
        let mut has_children = false;
        for (path, _) in below {
            has_children = true;
            if is_node_down && path.parent().is_some_and(|(parent, _)| parent == failure.task.path)
            {
                self.note_sender_gone(path);
            }
        }
        if has_children {
            self.worry_at = self.worry_at.min(self.last_seen + self.grace);
        }
    }

    pub(super) fn last_seen(&self) -> Timestamp {
        self.last_seen
    }

    pub(super) fn next_timeout(&self) -> Option<Timestamp> {
        earliest([self.suspects.next_due(), self.gaps.next_due(), Some(self.worry_at)])
    }
}
