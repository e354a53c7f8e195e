//! One request to all members, and the stream of what they answer.

mod builder;
mod deciding;
mod ext;
mod leaves;

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use convoke_core::proto::call::End;
use convoke_core::{Cause, NodeId, Path, Payload, Way};
use futures_core::Stream;
use tokio::time::Instant;

use crate::error::{MemberError, PartialReplies};
use crate::latency::Latencies;
use crate::replies::{Heard, Replies};
use crate::roster::Worth;
use crate::source::{Event, Source};
use crate::{AckedBy, Closure, Configuration, QuorumError, QuorumFunction, QuorumSystem, Verdict};

pub use builder::QuorumBuilder;
pub use deciding::{Decided, Deciding};
pub use ext::QuorumExt;
pub(crate) use leaves::Leaves;

/// A quorum call under way: a stream of members and their answers, as they come.
///
/// Each member that is asked answers once, with a reply or the reason why there is none; one that
/// streams answers with each item. What does not prove to come from a member is no answer. The
/// combinators of `futures::StreamExt` and the like filter and map it; [`QuorumCall::quorum`]
/// decides on it.
///
/// Dropping it cancels what still runs. [`QuorumCall::let_run`] does not, and neither does a
/// decision.
pub struct QuorumCall<Resp> {
    source: Source<Resp>,
    replies: Replies<Resp>,
    /// Members are the leaves of a tree, not the branches of the root.
    leaves: Option<Leaves>,
    /// The member that each branch asks, where some are not asked.
    asked: Option<Vec<usize>>,
    members: Members,
    latencies: Option<Latencies>,
    late: Option<Follow<Resp>>,
    /// Somebody ran into the deadline of the call.
    is_late: bool,
    /// Members that had failed when it was last polled.
    failed_count: usize,
}

/// The members as they were given, for the configuration of those who answered.
#[derive(Clone, Debug)]
pub(crate) enum Members {
    Of(Configuration),
    /// Peers of this epoch.
    Peers(u64),
}

/// Follows a call after its decision, which may be that it has failed.
pub(crate) type Follow<Resp> = Box<dyn FnOnce(QuorumCall<Resp>, bool) + Send>;

/// News of one member.
pub(crate) enum News<Resp> {
    Reply(Heard, Resp),
    Lost(usize, MemberError),
    /// One that has replied says nothing else.
    Settled,
}

impl<Resp: Payload + 'static> QuorumCall<Resp> {
    /// Decides on the replies that were not read yet: a member whose reply was, counts no more, and
    /// shrinks what is possible.
    pub fn quorum<F: QuorumFunction<Resp>>(self, rule: F) -> Deciding<Resp, F> {
        Deciding::of(self, rule)
    }

    /// As [`Self::quorum`], by a closure.
    pub fn quorum_by<T, C>(self, decide: C) -> Deciding<Resp, Closure<C>>
    where
        C: FnMut(&Replies<Resp>) -> Verdict<T>,
    {
        Deciding::of(self, Closure(decide))
    }

    /// As [`Self::quorum`], and gives the first reply alone.
    pub fn acked_by<S: QuorumSystem>(self, system: S) -> Deciding<Resp, AckedBy<S>> {
        Deciding::of(self, AckedBy(system))
    }

    /// Reads to the end: the replies in order of arrival, and who gave none. The last one of each
    /// member counts.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, what still runs is cancelled, and replies that were read are
    /// lost.
    pub async fn collect(mut self) -> (Vec<(NodeId, Resp)>, Vec<(NodeId, MemberError)>) {
        while let Some(news) = poll_fn(|cx| self.poll_news(cx)).await {
            if let News::Reply(heard, message) = news {
                self.replies.store(heard, message);
            }
        }
        let failed = self.replies.failed().map(|(node, error)| (node, error.clone())).collect();
        (self.replies.take_all(), failed)
    }

    /// The next answer; `None` when none can come any more.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn next(&mut self) -> Option<(NodeId, Result<Resp, MemberError>)> {
        poll_fn(|cx| self.poll_answer(cx)).await
    }

    /// Number of members that have replied so far.
    pub fn replied_count(&self) -> usize {
        self.replies.replied().len()
    }

    /// Lets go of it. What was asked runs on to its end or deadline: a write still reaches the slow
    /// members. The answers go to the callback for late replies, if there is one.
    pub fn let_run(self) {
        self.let_go(false);
    }

    /// The same of one that has failed, which its spans and the metrics say.
    pub(crate) fn give_up(self) {
        self.let_go(true);
    }

    fn let_go(mut self, has_failed: bool) {
        match self.late.take() {
            Some(follow) => {
                self.source.drop_hedges();
                follow(self, has_failed);
            }
            None => self.source.let_go(has_failed),
        }
    }

    /// The members that have replied so far: to ask exactly these again.
    pub fn answered(&self) -> Configuration {
        let replied = self.replies.replied();
        let nodes = replied.iter().filter_map(|index| self.replies.member(index));
        match &self.members {
            Members::Of(all) => all.subset(|member| {
                self.replies.index_of(member.node()).is_some_and(|index| replied.contains(index))
            }),
            Members::Peers(epoch) => Configuration::of_nodes(nodes, *epoch),
        }
    }

    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<(NodeId, Result<Resp, MemberError>)>> {
        let (index, answer) = loop {
            match ready!(self.poll_news(cx)) {
                Some(News::Reply(heard, message)) => break (heard.index, Ok(message)),
                Some(News::Lost(index, error)) => break (index, Err(error)),
                Some(News::Settled) => {}
                None => return Poll::Ready(None),
            }
        };
        Poll::Ready(self.replies.member(index).map(|member| (member, answer)))
    }

    /// The next news of a member; `None` when nothing can come any more.
    pub(crate) fn poll_news(&mut self, cx: &mut Context<'_>) -> Poll<Option<News<Resp>>> {
        self.note_failed();
        loop {
            if let Some(news) = self.take_lost() {
                return Poll::Ready(Some(news));
            }
            match ready!(self.source.poll_event(cx)) {
                Some(event) => {
                    if let Some(news) = self.take(event) {
                        return Poll::Ready(Some(news));
                    }
                }
                None => {
                    self.leaves.iter_mut().for_each(Leaves::close_all);
                    return Poll::Ready(self.take_lost());
                }
            }
        }
    }

    /// A leaf that is lost because a root branch is over, if it is not known to be.
    fn take_lost(&mut self) -> Option<News<Resp>> {
        while let Some(index) = self.leaves.as_mut()?.lost.pop_front() {
            let error = self.replies.error_of(index).cloned();
            let news = error.and_then(|error| self.lose_member(index, error));
            if news.is_some() {
                return news;
            }
        }
        None
    }

    /// Has the next member asked at once when another has failed, for whatever reason: the rule may
    /// have rejected its reply.
    fn note_failed(&mut self) {
        let failed_count = self.replies.failed_count();
        if failed_count > self.failed_count && self.leaves.is_none() {
            self.source.hasten();
        }
        self.failed_count = failed_count;
    }

    fn take(&mut self, event: Event<Resp>) -> Option<News<Resp>> {
        match event {
            Event::Reply { branch, asked_at, reply } => {
                let (from, way, item) = (reply.from(), reply.way(), reply.item());
                let is_item = item.is_some();
                let heard = |index, is_first| Heard { index, is_first, is_item };
                let member = self.member_that_answers(branch, reply.path(), (from, way));
                match self.replies.hear(member, is_item) {
                    Worth::New(index) => {
                        // An item is the first that counts, where those before were filtered out.
                        if let Some(latencies) = &self.latencies
                            && item.is_none_or(|item| item == 0)
                        {
                            latencies.observe(from, Instant::now() - asked_at);
                        }
                        Some(News::Reply(heard(index, true), reply.into_inner()))
                    }
                    Worth::Again(index) if is_item => {
                        Some(News::Reply(heard(index, false), reply.into_inner()))
                    }
                    Worth::Again(_) => None,
                    Worth::Nothing if self.leaves.is_some() || is_item => None,
                    Worth::Nothing => self.lose(branch, MemberError::NotItself { from, way }),
                }
            }
            Event::Undecodable { branch, path, from, way, message } => {
                let error = MemberError::Undecodable { message };
                match self.leaves.is_some() {
                    true => {
                        let member = self.member_that_answers(branch, &path, (from, way))?;
                        self.fail(member, branch, error)
                    }
                    false => self.lose(branch, error),
                }
            }
            Event::Failed { branch, is_root, failure } => {
                self.is_late |= failure.cause == Cause::Deadline && self.source.is_late();
                if is_root && let Some(leaves) = &mut self.leaves {
                    leaves.close(branch);
                    self.source.hasten();
                }
                let index = match (&self.leaves, failure.node) {
                    (Some(leaves), Some(node)) if leaves.is_of(node, &failure.task.path) => {
                        self.replies.index_of(node)
                    }
                    (Some(_), _) => None,
                    (None, _) => is_root.then(|| self.member_of(branch)).flatten(),
                };
                match index {
                    Some(index) => self.fail(index, branch, MemberError::Failed(failure)),
                    None => {
                        self.replies.note(failure);
                        None
                    }
                }
            }
            Event::Silent { branch, path, node } => {
                let is_root = path.level_count() == 1;
                let Some(leaves) = &mut self.leaves else {
                    return is_root.then(|| self.lose(branch, MemberError::Silent)).flatten();
                };
                if is_root {
                    leaves.close(branch);
                }
                let node = node.filter(|node| leaves.is_of(*node, &path))?;
                self.fail(self.replies.index_of(node)?, branch, MemberError::Silent)
            }
            Event::NotSent { branch, reason } => {
                self.lose_root(branch, MemberError::NotSent { reason })
            }
        }
    }

    /// A root branch ends with nothing: its member is lost, or nothing comes of the tree below it.
    fn lose_root(&mut self, branch: usize, error: MemberError) -> Option<News<Resp>> {
        match &mut self.leaves {
            Some(leaves) => {
                leaves.close(branch);
                None
            }
            None => self.lose(branch, error),
        }
    }

    /// Notes that a member gives no reply below a root branch. It is lost where no other is open: a
    /// leaf may be reached below another one.
    fn fail(&mut self, index: usize, root: usize, error: MemberError) -> Option<News<Resp>> {
        if self.leaves.as_mut().is_none_or(|leaves| leaves.fail(index, root)) {
            return self.lose_member(index, error);
        }
        self.replies.note_failed(index, error);
        None
    }

    fn lose(&mut self, branch: usize, error: MemberError) -> Option<News<Resp>> {
        self.lose_member(self.member_of(branch)?, error)
    }

    fn lose_member(&mut self, index: usize, error: MemberError) -> Option<News<Resp>> {
        let was_streaming = self.replies.streaming().contains(index);
        match self.replies.lose(index, error.clone()) {
            true => Some(News::Lost(index, error)),
            false => was_streaming.then_some(News::Settled),
        }
    }

    /// The member whose reply answers the branch on which it was asked. A member may be led to
    /// answer others of the same call: who was given a branch can ask anybody on its own below it.
    /// Who passes a reply on may claim any sender.
    fn member_that_answers(
        &self,
        branch: usize,
        path: &Path,
        (from, way): (NodeId, Way),
    ) -> Option<usize> {
        if way == Way::Relayed {
            return None;
        }
        match &self.leaves {
            Some(leaves) => self.replies.index_of(from).filter(|_| leaves.is_of(from, path)),
            None => {
                let asked = self.member_of(branch).filter(|_| path.root_index().is_some());
                asked.filter(|index| self.replies.member(*index) == Some(from))
            }
        }
    }

    /// The member that a branch asks.
    fn member_of(&self, branch: usize) -> Option<usize> {
        match &self.asked {
            Some(asked) => asked.get(branch).copied(),
            None => Some(branch),
        }
    }

    /// Says why there is no quorum.
    pub(crate) fn error(&mut self, cx: &mut Context<'_>) -> QuorumError {
        // Those that were to be asked again have failed now. Their rule is not asked any more.
        for event in self.source.note_failed() {
            self.take(event);
        }
        // What came or failed at the same moment belongs to it, too.
        while let Poll::Ready(Some(news)) = self.poll_news(cx) {
            if let News::Reply(heard, message) = news {
                self.replies.store(heard, message);
            }
        }
        let mut shortfall = Box::new(self.replies.shortfall());
        shortfall.replies = Some(PartialReplies::new(self.replies.take_all()));
        match self.source.end() {
            end @ End::Exhausted => QuorumError::Ended { end, shortfall },
            _ if self.is_late || self.source.has_run_out() => QuorumError::Deadline(shortfall),
            _ => QuorumError::Impossible(shortfall),
        }
    }

    /// True when more members may be asked later.
    pub(crate) fn has_plan(&self) -> bool {
        self.source.has_plan()
    }

    pub(crate) fn replies_mut(&mut self) -> &mut Replies<Resp> {
        &mut self.replies
    }
}

impl<Resp: Payload + 'static> Stream for QuorumCall<Resp> {
    type Item = (NodeId, Result<Resp, MemberError>);

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_answer(cx)
    }
}

// Nothing of it is pinned.
impl<Resp> Unpin for QuorumCall<Resp> {}

impl<Resp> fmt::Debug for QuorumCall<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumCall")
            .field("members", &self.replies.members())
            .field("replied", &self.replies.replied())
            .finish_non_exhaustive()
    }
}
