//! A call under way.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use convoke_proto::call::{CallEvent, Delivered, End};
use convoke_proto::failure::Failure;
use convoke_proto::id::{CallId, NodeId, Path};
use convoke_proto::metadata::{Extensions, Metadata};
use convoke_proto::time::Timestamp;
use convoke_proto::trace::TraceEvent;
use convoke_proto::wire::{Cause, Extension};
use futures_core::Stream;
use tokio::time::Instant;

use crate::carrier;
use crate::coop::poll_in_budget;
use crate::driver::{Driver, Node, Opened};
use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::message::Payload;
use crate::method::{OTHER, Request};
use crate::packing::LastPacked;
use crate::peer::Peer;
use crate::telemetry::CallProbe;
use crate::way::Way;

use super::Branches;

/// A call: a stream of replies from whoever has them, and at its end an [`Outcome`].
///
/// Dropping an undecided call cancels it, wherever its tasks are; after the end a drop does
/// nothing.
pub struct Call<Resp> {
    endpoint: Endpoint,
    id: CallId,
    opened_at: Timestamp,
    failures: Vec<Failure>,
    end: Option<End>,
    /// Replies that were handed out with the one before.
    ahead: VecDeque<Delivered>,
    /// End that comes next, once the node has let the call go.
    last: Option<End>,
    probe: CallProbe,
    /// Name of the method that it calls, if it is one.
    method: Option<&'static str>,
    is_read_only: bool,
    /// Number of its root branches.
    branch_count: usize,
    /// It is no success even if it ends complete: a reply could not be decoded, or a rule of its
    /// caller says no.
    has_failed: bool,
    /// The node has let it go; what is left to be read lies here.
    is_let_go: bool,
    types: PhantomData<fn() -> Resp>,
}

/// End of a call, with every branch that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Kind of the end.
    pub end: End,
    /// Branches that failed, each with node and cause.
    pub failures: Vec<Failure>,
}

impl Outcome {
    /// True when every task finished and every reply arrived.
    pub fn is_complete(&self) -> bool {
        self.end == End::Complete
    }
}

/// One reply, or one item of a streamed reply.
#[derive(Clone, PartialEq, Eq)]
pub struct Reply<Resp> {
    message: Resp,
    from: NodeId,
    way: Way,
    path: Path,
    item: Option<u64>,
    extensions: Extensions,
}

impl<Resp> Reply<Resp> {
    /// Node that sent it.
    pub fn from(&self) -> NodeId {
        self.from
    }

    /// The way it came.
    pub fn way(&self) -> Way {
        self.way
    }

    /// The branch whose task sent it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its number in a streamed reply, from 0.
    pub fn item(&self) -> Option<u64> {
        self.item
    }

    /// Metadata that the handler gave to this reply; see [`Context::reply_metadata`].
    ///
    /// [`Context::reply_metadata`]: crate::Context::reply_metadata
    pub fn metadata(&self) -> Metadata<'_> {
        self.extensions.metadata()
    }

    /// The message.
    pub fn message(&self) -> &Resp {
        &self.message
    }

    /// The message, without the rest.
    #[inline]
    pub fn into_inner(self) -> Resp {
        self.message
    }
}

/// News of a call; see [`CallSeam::poll_progress`].
#[derive(Debug)]
#[non_exhaustive]
pub enum Progress<Resp> {
    /// A reply.
    Reply(Reply<Resp>),
    /// A reply that cannot be decoded.
    Undecodable {
        /// The branch.
        path: Path,
        /// Node that sent it.
        from: NodeId,
        /// The way by which it came.
        way: Way,
        /// Defect of the message.
        message: String,
    },
    /// A branch failed.
    Failed(Failure),
    /// The request of this root branch was handed to a connection; see
    /// [`tells_sent`](convoke_proto::call::CallOptions::tells_sent).
    Sent(Path),
    /// This branch ended without a reply; see
    /// [`tells_silent`](convoke_proto::call::CallOptions::tells_silent).
    Silent {
        /// The branch.
        path: Path,
        /// The node that had it, as far as is known; with
        /// [`ignores_hearsay`](convoke_proto::call::CallOptions::ignores_hearsay), only one that
        /// has said so itself.
        node: Option<NodeId>,
    },
}

impl<Resp: fmt::Debug> fmt::Debug for Reply<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reply({} from {}: {:?})", self.path, self.from, self.message)
    }
}

impl<Resp: Payload> Call<Resp> {
    /// A call that is open.
    pub(super) fn new(
        endpoint: Endpoint,
        Opened { id, at: opened_at }: Opened,
        probe: CallProbe,
        branches: &Branches<Resp>,
    ) -> Self {
        probe.opened(id);
        Self {
            endpoint,
            id,
            opened_at,
            failures: Vec::new(),
            end: None,
            ahead: VecDeque::new(),
            last: None,
            probe,
            method: method_of(&branches.0),
            is_read_only: branches.0.iter().all(|(_, request)| request.is_read_only),
            branch_count: branches.0.len(),
            has_failed: false,
            is_let_go: false,
            types: PhantomData,
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its name, for logs.
    pub fn id(&self) -> CallId {
        self.id
    }

    /// Events of the executed tree as far as learnt, if the call was opened with
    /// [`CallBuilder::trace`](crate::CallBuilder::trace).
    pub fn trace(&self) -> Vec<TraceEvent> {
        let trace = |node: &mut Node| node.call(self.id).map(|call| call.trace().to_vec());
        self.endpoint.driver().ask_node(self.id.origin, trace).unwrap_or_default()
    }

    /// The next reply, or the next failed branch; `None` at the end. Branches that fail do not end
    /// the call: the others' replies follow.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn next(&mut self) -> Option<Result<Reply<Resp>, CallError>> {
        poll_fn(|cx| self.poll_reply(cx)).await
    }

    /// Wakes the first [`Self::next`] that has to wait once `count` replies are there to be read, a
    /// branch has failed or the call has ended: who needs a majority is woken once. Default 1.
    /// Replies that are there already are given without waiting, whatever the count.
    pub fn wake_after(&self, count: usize) {
        let count = count.saturating_sub(self.ahead.len());
        self.endpoint.driver().ask_node(self.id.origin, |node| node.wake_after(self.id, count));
    }

    /// Reads to the end, dropping what replies are left.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the call is cancelled.
    pub async fn outcome(mut self) -> Outcome {
        while self.next().await.is_some() {}
        self.take_outcome()
    }

    /// Reads to the end.
    ///
    /// # Errors
    /// [`CallError::Decode`] when a reply cannot be decoded. Failed branches are in the outcome.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the call is cancelled, and replies that were read are lost.
    pub async fn collect(mut self) -> Result<(Vec<Reply<Resp>>, Outcome), CallError> {
        let mut replies = Vec::new();
        while let Some(reply) = self.next().await {
            match reply {
                Ok(reply) => replies.push(reply),
                Err(CallError::Branch(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let outcome = self.take_outcome();
        Ok((replies, outcome))
    }

    /// The first reply, from whichever branch; the rest is cancelled.
    ///
    /// # Errors
    /// Without any reply: the first failure after which the call may not be repeated. Else
    /// [`CallError::NoReply`] where a branch has ended without one, the first failure
    /// ([`CallError::Branch`]) where all branches have failed, or [`CallError::NoPeer`] where
    /// nobody was asked.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the call is cancelled.
    pub async fn first(mut self) -> Result<Reply<Resp>, CallError> {
        let mut failed = Failed::default();
        poll_fn(|cx| self.poll_first(&mut failed, cx)).await
    }

    /// As [`Self::first`]; `failed` keeps the failures. One that is awaited has given way once, as
    /// it was opened.
    pub(super) fn poll_first(
        &mut self,
        failed: &mut Failed,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Reply<Resp>, CallError>> {
        while let Some(progress) = ready!(self.poll_progress(cx)) {
            match reply_of(progress) {
                Some(Ok(reply)) => {
                    self.probe.answered();
                    return Poll::Ready(Ok(reply));
                }
                Some(Err(error)) => {
                    self.has_failed |= matches!(error, CallError::Decode { .. });
                    failed.note(error);
                }
                None => {}
            }
        }
        Poll::Ready(Err(failed.take_of(self.branch_count).unwrap_or(match self.end {
            Some(End::Complete) if self.branch_count == 0 => CallError::NoPeer,
            Some(End::Complete | End::Partial) | None => CallError::NoReply,
            Some(end) => CallError::Ended(end),
        })))
    }

    fn take_outcome(&mut self) -> Outcome {
        let failures = std::mem::take(&mut self.failures);
        Outcome { end: self.end.unwrap_or(End::Cancelled), failures }
    }

    /// Its end, once it has been read that far.
    pub fn end(&self) -> Option<End> {
        self.end
    }

    fn poll_reply(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Reply<Resp>, CallError>>> {
        while let Some(progress) = ready!(self.poll_in_turn(cx)) {
            let Some(reply) = reply_of(progress) else { continue };
            match &reply {
                Err(CallError::Branch(failure)) => self.failures.push(failure.clone()),
                Err(CallError::Decode { .. }) => self.has_failed = true,
                _ => {}
            }
            return Poll::Ready(Some(reply));
        }
        Poll::Ready(None)
    }

    /// Next news for one who reads them all: other tasks have their turn in between.
    fn poll_in_turn(&mut self, cx: &mut Context<'_>) -> Poll<Option<Progress<Resp>>> {
        // An end that was read stays, and few are handed out together.
        if self.end.is_some() || !self.ahead.is_empty() {
            return self.poll_progress(cx);
        }
        poll_in_budget(cx, |cx| self.poll_progress(cx))
    }
}

/// Failures of a call that has given no reply yet.
#[derive(Default)]
pub(super) struct Failed {
    /// The first after which the call may not be repeated, or else the first.
    told: Option<CallError>,
    /// Number of branches that are safe to repeat.
    safe_count: usize,
}

impl Failed {
    fn note(&mut self, error: CallError) {
        let is_safe = error.is_safe_to_repeat();
        self.safe_count += usize::from(is_safe);
        if self.told.as_ref().is_none_or(|told| told.is_safe_to_repeat() && !is_safe) {
            self.told = Some(error);
        }
    }

    /// The failure to tell of, when so many branches have ended. One that is safe to repeat would
    /// say too much where another branch has run, and said nothing.
    fn take_of(&mut self, branch_count: usize) -> Option<CallError> {
        let has_silent = self.safe_count < branch_count;
        self.told.take().filter(|told| !(has_silent && told.is_safe_to_repeat()))
    }
}

/// News of a [`Call`], one by one.
pub trait CallSeam<Resp> {
    /// Next news of the call; `None` at the end, which [`Call::end`] then names. For those who
    /// count members rather than replies; failures seen so are not in the outcome.
    fn poll_progress(&mut self, cx: &mut Context<'_>) -> Poll<Option<Progress<Resp>>>;

    /// When its requests were sent.
    fn opened_at(&self) -> Instant;

    /// A rule of its caller says no: spans and metrics have it as partial from now on, also where
    /// it is read on and ends complete.
    fn note_failed(&mut self);

    /// As [`Call::cancel_late`] where it `cancels_late`, else as [`Call::let_run`], of a call that
    /// stays where it lies. Spans and metrics have it as partial where it `has_failed` by a rule of
    /// its caller.
    fn let_go(&mut self, cancels_late: bool, has_failed: bool);
}

impl<Resp: Payload> CallSeam<Resp> for Call<Resp> {
    fn poll_progress(&mut self, cx: &mut Context<'_>) -> Poll<Option<Progress<Resp>>> {
        if self.end.is_some() {
            return Poll::Ready(None);
        }
        if let Some(delivered) = self.ahead.pop_front() {
            return Poll::Ready(Some(decode(self.endpoint.driver(), delivered)));
        }
        let polled = match self.last {
            Some(end) => Some((CallEvent::Ended(end), None)),
            None => self.endpoint.driver().poll_call(self.id, &mut self.ahead, cx.waker()),
        };
        let Some((event, last)) = polled else { return Poll::Pending };
        self.last = self.last.or(last);
        self.is_let_go |= last.is_some();
        match event {
            CallEvent::Reply(delivered) => {
                Poll::Ready(Some(decode(self.endpoint.driver(), delivered)))
            }
            CallEvent::Failure(mut failure) => {
                self.name_unknown(&mut failure);
                self.probe.branch_failed(&failure);
                Poll::Ready(Some(Progress::Failed(failure)))
            }
            CallEvent::Sent(path) => Poll::Ready(Some(Progress::Sent(path))),
            CallEvent::Silent { path, node } => Poll::Ready(Some(Progress::Silent { path, node })),
            CallEvent::Ended(end) => {
                self.probe.ended(match end {
                    End::Complete if self.has_failed => End::Partial,
                    end => end,
                });
                self.end = Some(end);
                Poll::Ready(None)
            }
        }
    }

    fn opened_at(&self) -> Instant {
        self.endpoint.driver().instant(self.opened_at)
    }

    fn note_failed(&mut self) {
        self.has_failed = true;
    }

    fn let_go(&mut self, cancels_late: bool, has_failed: bool) {
        let told = if has_failed { End::Partial } else { End::Decided };
        self.end_early(cancels_late && self.is_read_only, told);
    }
}

/// The method of all branches, if it is one.
fn method_of<Resp>(branches: &[(Peer, Request<Resp>)]) -> Option<&'static str> {
    let ((_, first), others) = branches.split_first()?;
    let is_same = |name| std::ptr::eq(name, first.name) || name == first.name;
    others.iter().all(|(_, request)| is_same(request.name)).then_some(first.name)
}

/// The reply or failure that a call has learnt of, if it is one.
fn reply_of<Resp>(progress: Progress<Resp>) -> Option<Result<Reply<Resp>, CallError>> {
    match progress {
        Progress::Reply(reply) => Some(Ok(reply)),
        Progress::Undecodable { path, from, message, .. } => {
            Some(Err(CallError::Decode { path, from, message }))
        }
        Progress::Failed(failure) => Some(Err(CallError::Branch(failure))),
        Progress::Sent(_) | Progress::Silent { .. } => None,
    }
}

/// Makes the requests of a call what they leave as, once, and gives what follows the call from here
/// on.
pub(super) fn begin<Resp>(
    endpoint: &Endpoint,
    branches: &mut [(Peer, Request<Resp>)],
) -> CallProbe {
    let (driver, packing) = (endpoint.driver(), &endpoint.driver().packing);
    let me = driver.identity().node;
    let probe = CallProbe::begin(&driver.telemetry, me, branches);
    if branches.len() > 1 {
        carrier::carry(me, || driver.carried_from(), |to, body| driver.offer(to, body), branches);
    }
    let mut last = LastPacked::default();
    for (peer, Request { root, .. }) in branches {
        packing.accept_replies(&mut root.extensions);
        if peer.epoch() != 0 {
            root.extensions.push(Extension::epoch(peer.epoch()));
        }
        packing.pack_request(peer.node(), &mut root.payload, &mut last);
    }
    probe
}

fn decode<Resp: Payload>(driver: &Driver, delivered: Delivered) -> Progress<Resp> {
    let way = way_of(&delivered, driver.identity().node);
    let Delivered { path, item, from, extensions, payload, .. } = delivered;
    let bytes = driver.packing.unpack(payload);
    match bytes.and_then(|bytes| Resp::decode(bytes).map_err(|error| error.to_string())) {
        Ok(message) => {
            driver.note_reply(from, way);
            Progress::Reply(Reply { message, from, way, path, item, extensions })
        }
        Err(message) => Progress::Undecodable { path, from, way, message },
    }
}

/// The way by which a reply has come. Who relays one may claim any sender, this node, too.
fn way_of(delivered: &Delivered, me: NodeId) -> Way {
    match delivered.is_authenticated {
        true if delivered.from == me => Way::Local,
        true => Way::Direct,
        false => Way::Relayed,
    }
}

impl<Resp> Call<Resp> {
    /// Names the method that a server does not have: it knows no more than the hash of the name.
    fn name_unknown(&self, failure: &mut Failure) {
        if failure.cause == Cause::UnknownMethod
            && failure.task.opens_root()
            && failure.text.is_empty()
            && let Some(method) = self.method.filter(|method| *method != OTHER)
        {
            method.clone_into(&mut failure.text);
        }
    }

    /// Ends the call with what came until now. Nothing is cancelled: late tasks run on, so that a
    /// write still reaches the slow ones.
    pub fn let_run(mut self) {
        self.end_early(false, End::Decided);
    }

    /// Ends the call with what came until now, and cancels what still runs; [`Self::let_run`],
    /// unless every branch is of a read-only method.
    pub fn cancel_late(mut self) {
        let cancels_late = self.is_read_only;
        self.end_early(cancels_late, End::Decided);
    }

    /// `told` is the end that is recorded.
    fn end_early(&mut self, cancels_late: bool, told: End) {
        if self.end.is_none() {
            let id = self.id;
            if !self.is_let_go {
                let decide = |node: &mut Node, now| node.decide_call(now, id, cancels_late);
                self.endpoint.driver().let_go(id, decide);
            }
            self.probe.ended(told);
            self.end = Some(End::Decided);
            self.is_let_go = true;
        }
    }
}

impl<Resp: Payload> Stream for Call<Resp> {
    type Item = Result<Reply<Resp>, CallError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_reply(cx)
    }
}

impl<Resp> Drop for Call<Resp> {
    fn drop(&mut self) {
        if !self.is_let_go {
            let id = self.id;
            self.endpoint.driver().let_go(id, |node, now| node.detach_call(now, id));
        }
    }
}

impl<Resp> fmt::Debug for Call<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("id", &self.id).field("end", &self.end).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use convoke_proto::call::root_path;
    use convoke_proto::id::TaskKey;
    use convoke_proto::wire::Executed;

    use super::*;

    #[test]
    fn a_relayed_reply_is_not_local_whoever_is_said_to_have_sent_it() {
        let me = NodeId::new(1);
        let way = |from, is_authenticated| {
            let (path, extensions, payload) = (root_path(0), Extensions::default(), Bytes::new());
            let (from, item, index) = (NodeId::new(from), None, 0);
            way_of(
                &Delivered { path, index, item, from, is_authenticated, extensions, payload },
                me,
            )
        };
        assert_eq!([way(1, true), way(2, true)], [Way::Local, Way::Direct]);
        assert_eq!([way(1, false), way(2, false)], [Way::Relayed; 2]);
    }

    #[test]
    fn a_call_is_safe_to_repeat_if_each_of_its_branches_is() {
        let failure = |index, executed| {
            let task = TaskKey { path: root_path(index), hop: 0 };
            CallError::Branch(Failure::found(task, None, Cause::Unreachable, executed))
        };
        let told = |executed: &[Executed]| {
            let mut failed = Failed::default();
            (0..)
                .zip(executed)
                .for_each(|(index, executed)| failed.note(failure(index, *executed)));
            failed.take_of(2).map(|error| error.failure().map(|failure| failure.executed))
        };
        use Executed::{Maybe, No, Yes};
        assert_eq!(told(&[No, No]), Some(Some(No)));
        assert_eq!(told(&[No]), None, "the other has ended without a word");
        assert_eq!(told(&[No, Maybe]), Some(Some(Maybe)));
        assert_eq!(told(&[Maybe, Yes]), Some(Some(Maybe)), "the first of them");
    }
}
