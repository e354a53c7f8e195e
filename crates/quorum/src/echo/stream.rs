//! All votes of a space in one stream, for a protocol that keeps its own books.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{CastBody, CastSpace, NodeId};
use convoke_proto::mutant::{self, Mutant};

use crate::Configuration;

use super::error::{CastRefused, EchoError};
use super::gate::{Gate, TaggedCast};
use super::machine::EchoVote;

/// The votes about all tags of a space at this node, one of each member in turn, and the means to
/// send one's own. No tag is joined: what to make of the votes is up to the reader, such as a core
/// of its own with an [`EchoCore`](super::EchoCore) for each tag, or something that a plan cannot
/// express. What leaves here was decided there, so it can be held, stored and signed before.
///
/// Nothing waits for a reader that is slow beyond the bounds of a mailbox: of one member at most
/// [`casts_max`](convoke_core::Limits::casts_max) votes, and its share of all bytes. One that
/// floods loses votes of its own.
///
/// ```
/// # use convoke_core::Endpoint;
/// # use convoke_quorum::Configuration;
/// # use convoke_quorum::echo::{EchoCore, EchoError, EchoPlan, EchoSpace, digest_of};
/// # async fn log(endpoint: &Endpoint, members: &Configuration) -> Result<(), EchoError> {
/// let mut votes = EchoSpace::builder("log", members).stream(endpoint)?;
/// let mut slot = EchoCore::new(endpoint.node(), members, EchoPlan::majority(members.len(), 2)?)?;
/// slot.cast(0, digest_of(b"heron"))?;
/// while slot.reached(1).is_none() {
///     while let Some(vote) = slot.poll_transmit() {
///         votes.cast((0, 7), vote, "")?;
///     }
///     let Some(heard) = votes.next().await else { return Err(EchoError::Stopped) };
///     if heard.tag == (0, 7) {
///         let _ = slot.handle_cast(heard.from, heard.body);
///     }
/// }
/// # Ok(())
/// # }
/// ```
pub struct EchoStream {
    space: CastSpace,
    members: Configuration,
    keep: Duration,
    gate: Option<Gate>,
    later: Later,
    refused: StreamRefused,
}

/// Votes of a later epoch than the members', until they change.
#[derive(Default)]
struct Later {
    votes: VecDeque<TaggedCast>,
    /// Numbers of votes, and bytes of their payloads, by member.
    of: BTreeMap<NodeId, (usize, usize)>,
}

/// Numbers of votes that a stream did not give.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamRefused {
    /// They claimed the place of another member.
    pub wrong_index: u64,
    /// They were of an earlier epoch, or there were too many of a later one.
    pub wrong_epoch: u64,
}

/// Votes of a later epoch that are kept of each member.
const LATER_MAX: usize = 256;

/// Bytes of their payloads: as of the votes that wait about one tag, by default.
const LATER_BYTES_MAX: usize = 1 << 20;

impl EchoStream {
    pub(super) fn new(
        space: CastSpace,
        members: Configuration,
        keep: Duration,
        gate: Option<Gate>,
    ) -> Self {
        space.stream();
        let (later, refused) = (Later::default(), StreamRefused::default());
        Self { space, members, keep, gate, later, refused }
    }

    /// The next vote, of each member in turn; `None` once the endpoint was shut down.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, no vote is lost.
    pub async fn next(&mut self) -> Option<TaggedCast> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// As [`Self::next`], for a future of one's own. Keeps the waker of the last poll.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<TaggedCast>> {
        let Some(mut gate) = self.gate.take() else { return self.poll_heard(cx) };
        let mut is_over = false;
        let polled = loop {
            let polled = gate.poll_good(cx, |cx| match self.poll_heard(cx) {
                Poll::Ready(cast) => {
                    is_over = cast.is_none();
                    cast
                }
                Poll::Pending => None,
            });
            // Since the gate was given it, the tag may be closed, and the members be others.
            match &polled {
                Poll::Ready(cast) if cast.tag < self.space.floor() => {}
                Poll::Ready(cast) if !self.is_of_member(cast) => {}
                _ => break polled,
            }
        };
        is_over &= !gate.is_busy();
        self.gate = Some(gate);
        match polled {
            Poll::Pending if is_over => Poll::Ready(None),
            polled => polled.map(Some),
        }
    }

    /// The next vote of a member of this epoch.
    fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<Option<TaggedCast>> {
        loop {
            let cast = match self.take_later() {
                Some(cast) => cast,
                None => {
                    let Some((tag, received)) = ready!(self.space.poll_cast(cx)) else {
                        return Poll::Ready(None);
                    };
                    TaggedCast { tag, initiator: None, from: received.from, body: received.body }
                }
            };
            if cast.body.epoch > self.members.epoch() {
                if !self.later.push(cast) {
                    self.refused.wrong_epoch += 1;
                }
            } else if self.is_of_member(&cast) {
                return Poll::Ready(Some(cast));
            }
        }
    }

    /// True for a vote of this epoch by the member in whose place it is; any other is counted.
    fn is_of_member(&mut self, cast: &TaggedCast) -> bool {
        let is_of_epoch = cast.body.epoch == self.members.epoch();
        let is_in_place = self.members.index_of(cast.from) == Some(cast.body.sender);
        match (is_of_epoch, is_in_place) {
            (true, true) => return true,
            (true, false) => self.refused.wrong_index += 1,
            (false, _) => self.refused.wrong_epoch += 1,
        }
        false
    }

    /// A vote that came before its epoch, about what is not closed by now.
    fn take_later(&mut self) -> Option<TaggedCast> {
        loop {
            let next = self.later.pop_until(self.members.epoch())?;
            if next.tag >= self.space.floor() {
                return Some(next);
            }
        }
    }

    /// Sends a vote about a tag to all other members.
    ///
    /// # Errors
    /// [`CastRefused::TooLarge`] when the payload is larger than others keep: nothing is sent.
    pub fn cast(
        &self,
        tag: (u64, u64),
        vote: EchoVote,
        payload: impl Into<Bytes>,
    ) -> Result<(), CastRefused> {
        let me = self.space.node();
        self.send(tag, self.members.nodes().filter(|node| *node != me), vote, payload)
    }

    /// Sends a vote about a tag to some members: again, to one that was away, for example.
    ///
    /// # Errors
    /// As [`Self::cast`].
    pub fn send(
        &self,
        tag: (u64, u64),
        to: impl IntoIterator<Item = NodeId>,
        EchoVote { phase, digest }: EchoVote,
        payload: impl Into<Bytes>,
    ) -> Result<(), CastRefused> {
        let sender = self.members.index_of(self.space.node()).unwrap_or(u16::MAX);
        let (epoch, payload) = (self.members.epoch(), payload.into());
        CastRefused::check_size(&payload, self.space.payload_bytes_max())?;
        let body = CastBody { phase, sender, epoch, digest, payload };
        self.space.send(tag, self.keep, to, body);
        Ok(())
    }

    /// Keeps the votes of those who are to be members next, of a later epoch, until
    /// [`Self::change_members`]. Said before any of them goes on, it loses none of their votes:
    /// those of a node that is no member are dropped.
    pub fn hear_next(&self, members: &Configuration) {
        self.space.hear_next(members.nodes());
    }

    /// Other members from now on, most likely of a later epoch: nobody else is heard. Votes of that
    /// epoch which came before, of members or of those whom [`Self::hear_next`] has named, are
    /// given next, 256 of each member at most, with 1 MiB of payloads; those of the epoch before are
    /// refused from now on, and counted. Members that are still in it learn of the later one by
    /// [`Self::later`].
    ///
    /// # Errors
    /// [`EchoError::NotMember`] when this node is none of them; then nothing is changed.
    pub fn change_members(&mut self, members: &Configuration) -> Result<(), EchoError> {
        let node = self.space.node();
        if !members.contains(node) {
            return Err(EchoError::NotMember { node });
        }
        self.members = members.clone();
        self.later.change_members(members);
        self.space.change_members(members.nodes());
        Ok(())
    }

    /// Members that vote in a later epoch than this stream's, as they say.
    pub fn later(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.members.nodes().filter(|node| self.later.of.contains_key(node))
    }

    /// Members to which votes could not be sent since this was last asked: whom to send them to
    /// again once they are back.
    pub fn take_missed(&self) -> Vec<NodeId> {
        self.space.take_missed().into_iter().collect()
    }

    /// Closes all tags below this one: what waits about them is dropped, and what comes.
    pub fn close_below(&self, view: u64, sequence: u64) {
        self.space.raise_floor(view, sequence);
    }

    /// Numbers of votes that were not given so far, but for those that the verifier refused.
    pub fn refused(&self) -> StreamRefused {
        self.refused
    }

    /// Numbers of votes that the verifier refused so far, by its causes.
    pub fn refused_by_cause(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.gate.iter().flat_map(Gate::refused)
    }

    /// The members that vote.
    pub fn members(&self) -> &Configuration {
        &self.members
    }
}

impl Later {
    /// Keeps a vote. False when too much of its member is kept.
    fn push(&mut self, cast: TaggedCast) -> bool {
        let (count, bytes) = self.of.get(&cast.from).copied().unwrap_or_default();
        let bytes = bytes + cast.body.payload.len();
        let has_room = count < LATER_MAX && bytes <= LATER_BYTES_MAX;
        if !has_room || mutant::is(Mutant::LaterDropped) {
            return false;
        }
        self.of.insert(cast.from, (count + 1, bytes));
        self.votes.push_back(cast);
        true
    }

    /// The next vote of an epoch up to this one.
    fn pop_until(&mut self, epoch: u64) -> Option<TaggedCast> {
        let is_of_it = self.votes.front()?.body.epoch <= epoch;
        let next = if is_of_it { self.votes.pop_front() } else { None }?;
        if let Some((count, bytes)) = self.of.get_mut(&next.from) {
            *count -= 1;
            *bytes -= next.body.payload.len();
            if *count == 0 {
                self.of.remove(&next.from);
            }
        }
        Some(next)
    }

    /// Drops what is not of these members, and gives what is of an earlier epoch first, so that
    /// none waits behind one of a later.
    fn change_members(&mut self, members: &Configuration) {
        self.votes.retain(|cast| members.contains(cast.from));
        self.of.retain(|node, _| members.contains(*node));
        self.votes.make_contiguous().sort_by_key(|cast| cast.body.epoch);
    }
}

impl fmt::Debug for EchoStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EchoStream")
            .field("space", &self.space)
            .field("members", &self.members)
            .field("refused", &self.refused)
            .finish_non_exhaustive()
    }
}
