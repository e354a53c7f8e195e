//! Every bound of the protocol, with its default.

use std::time::Duration;

use crate::cores::Place;
use crate::inbox::MESSAGE_BYTES;
use crate::mailbox;
use crate::wire::EXCEPTIONS_MAX;

/// Bounds and times of one node. All finite: of bytes of messages, more than 256 TiB counts as
/// 256 TiB. [`Limits::check`] says which relation is broken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Deadline of a call that sets none. Default 10 s.
    pub deadline_default: Duration,
    /// Longest deadline of a call, and of a request taken from a peer; a longer one is cut. Default
    /// 10 min.
    pub deadline_max: Duration,
    /// Largest payload of a message, in bytes. Default 4 MiB. Transports follow it, unless their
    /// largest frame was set.
    pub message_bytes_max: usize,
    /// Calls of this node that are open at once. Default 131,072.
    pub calls_max: usize,
    /// Branches of one call, in all, its root branches included. Each later hop of one that the
    /// call hears of counts as another. Of several root branches each may have as much as is free.
    /// Default 65,536.
    pub branches_max: u32,
    /// Bytes of replies that a call may hold or have granted at once, until nobody reads it: then
    /// it holds none, and grants late tasks what they ask for. Bounds also, at 128 bytes
    /// each, the messages that are not read or not whole and the gaps in the numbers of a task's
    /// replies, and the text, details and metadata of failures, which are told without these beyond
    /// it. Default 64 MiB.
    pub reply_bytes_max: u64,
    /// Bytes of one reply that may be sent before the initiator grants any. Default 16 KiB. Must be
    /// the same on all nodes that talk to each other.
    pub unscheduled_bytes: u64,
    /// Bytes of whole replies of tasks here that wait until their initiators grant them, for all
    /// peers. Default 512 MiB.
    pub waiting_reply_bytes_max: usize,
    /// Bytes of requests above `unscheduled_bytes` each whose tasks run here, for all peers, with
    /// their metadata, 64 bytes more a pair. One that came packed counts as what it unpacks to, and
    /// one whose message travels beside it with that: from when its sender is asked for it, as the
    /// largest. Default 1 GiB.
    pub running_request_bytes_max: usize,
    /// Bytes of items of requests that wait for handlers here to read them, or were granted, for
    /// all peers; beyond `unscheduled_bytes` and 256 items, which each task may have. Default
    /// 512 MiB.
    pub waiting_item_bytes_max: usize,
    /// Bytes of a stream that may be on their way or unread. Default 256 KiB.
    pub stream_window_bytes: u64,
    /// Tasks of others that run here at once. One peer may have two thirds. Default 65,536.
    pub tasks_max: usize,
    /// Finished tasks, fences and cancel marks remembered at once. One peer may have half. Default
    /// 1,048,576.
    pub remembered_max: usize,
    /// Finished tasks of one initiator that are remembered without asking whether their calls are
    /// settled. Default 64.
    pub ask_min: usize,
    /// The least time between two questions to one node what is settled, and between two answers to
    /// one connection. Default 5 ms.
    pub ask_every: Duration,
    /// Exceptions of one statement about which calls are settled; what finds no room is asked for
    /// next. Default 1,024, which is also the most. Must be the same on all nodes that talk to each
    /// other.
    pub exceptions_max: usize,
    /// Ended calls that nobody reads and whose tasks have not all said that they are over. More are
    /// settled early, and so are calls with more than four times as many branches in all. Each core
    /// of an endpoint has its part of it. Default 65,536.
    pub winding_max: usize,
    /// Branches of one task. Default 65,536.
    pub children_max: u32,
    /// Requests of a fan-out that carry the entry of a task which ends with it. Default 2.
    pub carry_copies: usize,
    /// Casts of one sender that are taken for one call or tag, read or not: count. Beyond it the
    /// first in each of 64 phases still is. Default 1,024.
    pub casts_max: usize,
    /// Casts of one sender that wait for one call to be counted: bytes, with all that keeps them.
    /// Default 1 MiB.
    pub cast_bytes_max: usize,
    /// Casts of all senders that wait: bytes, with all that keeps them. One sender may take as much
    /// as is free, which is half of it for one that is greedy. Default 64 MiB.
    pub cast_bytes_total_max: usize,
    /// Frames held for one node while it is being dialled: bytes. Default 4 MiB.
    pub dial_queue_bytes_max: usize,
    /// Frames held for all nodes that are being dialled: bytes. Default 64 MiB.
    pub dial_bytes_total_max: usize,
    /// After a connection is lost, how long its branches may still be heard of otherwise. Default
    /// 20 ms.
    pub grace: Duration,
    /// Without news of an open branch, when its node is asked first. Default 50 ms; doubles.
    pub worry_min: Duration,
    /// And at most this long between questions. Default 1 s.
    pub worry_max: Duration,
    /// A connection without a sign of life for this long is dead. Default 10 s, at least 100 ms.
    /// A finished task is remembered for its budget and this time. At least the
    /// keep-alive timeout of every transport, which is not checked.
    pub keep_alive_timeout: Duration,
    /// Time that dialling an initiator may take before its replies go through the parent. Default
    /// 1 s.
    pub reply_dial_timeout: Duration,
    /// Initiators that are dialled at the address they advertise. Default: only known nodes.
    pub reply_dial: ReplyDial,
    /// After a failed dial, the least and the most time until the next. Default 50 ms and 5 s.
    pub backoff_min: Duration,
    /// See `backoff_min`.
    pub backoff_max: Duration,
}

/// Initiators that a server dials to reply to directly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyDial {
    /// Nobody: without a connection, replies go through the parent.
    Never,
    /// Nodes whose address the endpoint was given. Keeps a stranger from making this node dial.
    KnownNodes,
    /// All who advertise an address.
    Anybody,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline_default: Duration::from_secs(10),
            deadline_max: Duration::from_secs(600),
            message_bytes_max: 4 << 20,
            calls_max: 1 << 17,
            branches_max: 1 << 16,
            reply_bytes_max: 64 << 20,
            unscheduled_bytes: 16 << 10,
            waiting_reply_bytes_max: 512 << 20,
            running_request_bytes_max: 1 << 30,
            waiting_item_bytes_max: 512 << 20,
            stream_window_bytes: 256 << 10,
            tasks_max: 1 << 16,
            remembered_max: 1 << 20,
            ask_min: 64,
            ask_every: Duration::from_millis(5),
            exceptions_max: EXCEPTIONS_MAX,
            winding_max: 1 << 16,
            children_max: 1 << 16,
            carry_copies: 2,
            casts_max: 1024,
            cast_bytes_max: 1 << 20,
            cast_bytes_total_max: 64 << 20,
            dial_queue_bytes_max: 4 << 20,
            dial_bytes_total_max: 64 << 20,
            grace: Duration::from_millis(20),
            worry_min: Duration::from_millis(50),
            worry_max: Duration::from_secs(1),
            keep_alive_timeout: Duration::from_secs(10),
            reply_dial_timeout: Duration::from_secs(1),
            reply_dial: ReplyDial::KnownNodes,
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
        }
    }
}

/// Longest of the times of a node, and of transports: sums and multiples of them have an end.
pub const TIME_MAX: Duration = Duration::from_secs(365 * 24 * 3_600);

/// Most bytes that a message or a call counts: sums of many such have an end.
const BYTES_MAX: u64 = 1 << 48;

/// Least keep-alive timeout of a node, and of transports: below it the pauses of any process count
/// as its end.
pub const KEEP_ALIVE_TIMEOUT_MIN: Duration = Duration::from_millis(100);

/// Two limits that contradict each other, or one with which nothing works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LimitsError(&'static str);

impl Limits {
    /// Those that a core of the node has for itself: its part of the calls, and of what waits for
    /// dials, of which it may have what is for one node at least. The others are those of the node,
    /// by a [`Ledger`](crate::ledger::Ledger). What bounds messages is finite.
    pub(crate) fn of_core(mut self, place: Place) -> Self {
        let bytes_max = usize::try_from(BYTES_MAX).unwrap_or(usize::MAX);
        self.message_bytes_max = self.message_bytes_max.min(bytes_max);
        self.reply_bytes_max = self.reply_bytes_max.min(BYTES_MAX);
        self.unscheduled_bytes = self.unscheduled_bytes.min(BYTES_MAX);
        self.stream_window_bytes = self.stream_window_bytes.min(BYTES_MAX);
        let of_one_dial = self.dial_queue_bytes_max.min(self.dial_bytes_total_max);
        self.dial_bytes_total_max = place.part(self.dial_bytes_total_max).max(of_one_dial);
        self.calls_max = place.part(self.calls_max);
        self.winding_max = place.part(self.winding_max).max(1);
        self
    }

    /// The largest payload of a cast that a node with these limits keeps, where nothing else of its
    /// sender waits about the same.
    pub fn cast_payload_bytes_max(&self) -> usize {
        self.cast_bytes_max.saturating_sub(mailbox::OVERHEAD_BYTES_MAX)
    }

    /// Bytes that a request of this length counts for while its task runs: none where it is small.
    #[inline]
    pub(crate) fn large_bytes(&self, len: usize) -> u32 {
        match len {
            len if len as u64 <= self.unscheduled_bytes => 0,
            len => u32::try_from(len).unwrap_or(u32::MAX),
        }
    }

    /// Most bytes of a reply that may come whole, without having been asked for.
    #[inline]
    pub(crate) fn whole_bytes_max(&self) -> u64 {
        self.unscheduled_bytes.min(self.message_bytes_max as u64)
    }

    /// Most bytes of details that a failed task may have: a quarter of `message_bytes_max`, from 64
    /// bytes to 64 KiB. A failure needs no credit of its initiator, so it must not be large.
    pub fn details_bytes_max(&self) -> usize {
        (self.message_bytes_max / 4).clamp(64, 64 << 10)
    }

    /// Checks the relations between the limits.
    ///
    /// # Errors
    /// [`LimitsError`] names the relation that does not hold.
    pub fn check(&self) -> Result<(), LimitsError> {
        let message_max = self.message_bytes_max as u64;
        let rules = [
            (message_max <= self.reply_bytes_max, "message_bytes_max is above reply_bytes_max"),
            (
                self.unscheduled_bytes <= self.stream_window_bytes,
                "unscheduled_bytes is above stream_window_bytes",
            ),
            (
                self.stream_window_bytes <= self.reply_bytes_max,
                "stream_window_bytes is above reply_bytes_max",
            ),
            (
                self.reply_bytes_max >= MESSAGE_BYTES,
                "reply_bytes_max is below 128, which each message counts",
            ),
            (self.unscheduled_bytes > 0, "unscheduled_bytes is zero"),
            (self.carry_copies > 0, "carry_copies is zero"),
            (
                (1..=EXCEPTIONS_MAX).contains(&self.exceptions_max),
                "exceptions_max is not from 1 to 1,024",
            ),
            (self.branches_max > 0, "branches_max is zero"),
            (self.children_max <= 1 << 16, "children_max is above 65,536"),
            (self.worry_min <= self.worry_max, "worry_min is above worry_max"),
            (!self.worry_min.is_zero(), "worry_min is zero"),
            (!self.ask_every.is_zero(), "ask_every is zero"),
            (self.backoff_min <= self.backoff_max, "backoff_min is above backoff_max"),
            (!self.deadline_max.is_zero(), "deadline_max is zero"),
            (!self.deadline_default.is_zero(), "deadline_default is zero"),
            (self.deadline_default <= self.deadline_max, "deadline_default is above deadline_max"),
            (
                self.keep_alive_timeout >= KEEP_ALIVE_TIMEOUT_MIN,
                "keep_alive_timeout is below 100 ms",
            ),
            (self.deadline_max <= TIME_MAX, "deadline_max is above a year"),
            (self.ask_every <= TIME_MAX, "ask_every is above a year"),
            (self.grace <= TIME_MAX, "grace is above a year"),
            (self.worry_max <= TIME_MAX, "worry_max is above a year"),
            (self.keep_alive_timeout <= TIME_MAX, "keep_alive_timeout is above a year"),
            (self.reply_dial_timeout <= TIME_MAX, "reply_dial_timeout is above a year"),
            (self.backoff_max <= TIME_MAX, "backoff_max is above a year"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, broken)) => Err(LimitsError(broken)),
            None => Ok(()),
        }
    }
}
