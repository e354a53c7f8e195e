//! Requests that a node refuses before they run, and how it says so.

use bytes::Bytes;

use crate::Arrival;
use crate::flow::cost_of;
use crate::link::PeerName;
use crate::links::Links;
use crate::share::{PeerIndex, Pool};
use crate::task::TaskFailure;
use crate::wire::{Cause, Executed, Extension, ReplyRoute, Request, extension};

use super::{TaskKey, Visits};

pub(super) struct Refusal {
    pub(super) failure: TaskFailure,
    /// It is not remembered. A connection delivers a request once, so no copy of it can run after
    /// this; a table of what was refused would be full whenever this is.
    pub(super) unrecorded: bool,
}

/// Tail transfers within one branch before it is refused: a loop of tails ends here or at the
/// deadline.
const HOPS_MAX: u32 = 1 << 20;

/// Most memory that the extensions of a request may take, of which each branch of its task has a
/// copy.
const EXTENSIONS_MAX: usize = 4 << 20;

impl Visits {
    pub(super) fn refusal(
        &self,
        by: &Arrival,
        task: &TaskKey,
        request: &Request,
        links: &Links,
    ) -> Option<Refusal> {
        let refuse = |cause, text: &str| {
            let failure = TaskFailure::new(cause, Executed::No, text);
            Some(Refusal { failure, unrecorded: false })
        };
        // A running task will be remembered when it has ended.
        if let Some(text) =
            overload(by.peer, Pool::Records, links, "tasks are remembered", "remembered_max")
        {
            let failure = TaskFailure::new(Cause::Overloaded, Executed::No, text);
            return Some(Refusal { failure, unrecorded: true });
        }
        if let Some(text) = self.too_large(request) {
            return refuse(Cause::BadRequest, &text);
        }
        if self.is_shutting_down {
            return refuse(Cause::ShuttingDown, "the node takes no new tasks");
        }
        if let Some(text) =
            overload(by.peer, Pool::Running, links, "tasks are running", "tasks_max")
        {
            return refuse(Cause::Overloaded, &text);
        }
        if self.large_bytes(request) > 0
            && let Some(text) = requests_overload(by.peer, links)
        {
            return refuse(Cause::Overloaded, &text);
        }
        if request.budget_us == 0 {
            return refuse(Cause::Deadline, "the budget was used up on the way");
        }
        if task.hop > HOPS_MAX {
            return refuse(Cause::PathTooDeep, "too many tail transfers on one branch");
        }
        if request.extensions.is_empty() {
            return None; // As most have it, and what follows is about them.
        }
        if cost_beside(&request.extensions) > EXTENSIONS_MAX {
            return refuse(Cause::BadRequest, "its metadata takes more than 4 MiB here");
        }
        if request.extensions.iter().any(is_unknown_and_critical) {
            return refuse(Cause::BadRequest, "a critical extension is unknown here");
        }
        let has_items = request.extensions.iter().any(|one| one.tag == extension::ITEMS);
        let is_from_initiator = request.reply_route == ReplyRoute::Sender;
        if has_items && !(task.opens_root() && is_from_initiator) {
            return refuse(
                Cause::BadRequest,
                "items follow the request of a branch that is no root",
            );
        }
        self.stale(&request.extensions).map(|failure| Refusal { failure, unrecorded: false })
    }

    /// Bytes that a request counts for while its task runs, with those of its extensions.
    #[inline]
    pub(super) fn large_bytes(&self, request: &Request) -> u32 {
        let beside = cost_beside(&request.extensions);
        self.limits.large_bytes(request.payload.len().saturating_add(beside))
    }

    /// Refusal of a message above the limit. A frame may be larger by what goes with a message.
    fn too_large(&self, request: &Request) -> Option<String> {
        let (size, limit) = (request.payload.len(), self.limits.message_bytes_max);
        (size > limit).then(|| {
            format!("it has {size} bytes, and Limits::message_bytes_max of the node is {limit}")
        })
    }

    /// Reason why a request with these extensions is not of the present configuration, or of a
    /// later one.
    fn stale(&self, extensions: &[Extension]) -> Option<TaskFailure> {
        let Ok(epoch) = Extension::epoch_among(extensions) else {
            let text = "its epoch is not of eight bytes";
            return Some(TaskFailure::new(Cause::BadRequest, Executed::No, text));
        };
        let is_stale = epoch != 0 && epoch < self.epoch;
        is_stale.then(|| {
            let text = format!("it is of epoch {epoch}, the present one is {}", self.epoch);
            let details = Bytes::copy_from_slice(&self.epoch.to_le_bytes());
            TaskFailure { details, ..TaskFailure::new(Cause::StaleEpoch, Executed::No, text) }
        })
    }
}

/// Bytes that extensions count for beside their request. Most have none.
#[inline]
pub(super) fn cost_beside(extensions: &[Extension]) -> usize {
    if extensions.is_empty() {
        0
    } else {
        usize::try_from(cost_of(extensions)).unwrap_or(usize::MAX)
    }
}

/// The text of [`overload`] when a peer may have no other large request run.
pub(super) fn requests_overload(peer: PeerIndex, links: &Links) -> Option<String> {
    let (what, limit) = ("bytes of requests run", "running_request_bytes_max");
    overload(peer, Pool::Requests, links, what, limit)
}

/// Text of a refusal that names whose share is used up, when a peer may take no more of a pool.
#[inline]
fn overload(peer: PeerIndex, pool: Pool, links: &Links, what: &str, limit: &str) -> Option<String> {
    let may_take = links.shares().may_take(peer, pool);
    (!may_take).then(|| overload_text(peer, pool, links, what, limit))
}

#[cold]
fn overload_text(peer: PeerIndex, pool: Pool, links: &Links, what: &str, limit: &str) -> String {
    let shares = links.shares();
    let (used, name, max) = (shares.used(pool), shares.name(peer), shares.max(pool));
    let text = format!("{used} {what}, and {name} has its share of {limit}, {max}");
    // What is used may be others' than the node's that is refused.
    match name {
        PeerName::Place(_) | PeerName::User(_) => {
            text + ": nodes that do not prove who they are have one share with all others there"
        }
        PeerName::Node(_) | PeerName::Certified(_) => text,
    }
}

fn is_unknown_and_critical(extension: &Extension) -> bool {
    let is_known = matches!(extension.tag, extension::EPOCH | extension::ITEMS | extension::CLIENT);
    extension.tag & extension::CRITICAL != 0 && !is_known
}
