//! The ways to a quorum call.

use std::time::Duration;

use convoke_core::{CallBuilder, Client, NodeId, Payload, Peer, Request};

use crate::correctable::Correctable;
use crate::error::MemberError;
use crate::latency::Latencies;
use crate::multicast::{MulticastError, Sending};
use crate::plan::Retry;
use crate::replies::Replies;
use crate::{AckedBy, Closure, Configuration, QuorumFunction, QuorumSystem, Verdict};

use super::{Deciding, Leaves, QuorumBuilder};

/// Makes quorum calls of calls: `client.method(request).to_all(&configuration).quorum(Majority)`.
///
/// Each setting gives a [`QuorumBuilder`], which has the same ones and the same ends.
pub trait QuorumExt<Resp: Payload + 'static>: Sized {
    /// A quorum call among the peers it is addressed to: to [`open`](QuorumBuilder::open) it. All
    /// else needs no such step.
    fn quorum_call(self) -> QuorumBuilder<Resp>;

    /// A quorum call among these members, who need not be those it is addressed to: they may be the
    /// leaves of the tree that the call opens, each of which replies straight to this node. The
    /// initiator then counts the members' own replies, one way sooner than if they went through a
    /// leader.
    ///
    /// Which leaves lie below which leader is not known here: one that has failed below one leader
    /// counts as lost once it has below all others, but for those that have failed or have asked
    /// nobody. A leaf that ends without a reply has failed. Where one is asked on several
    /// branches below one leader, and answers on one of them alone, name the branch:
    /// [`QuorumBuilder::leaves_at`]. Leaders that each ask some of the members are told of sooner
    /// by a call each.
    fn among(self, members: &Configuration) -> QuorumBuilder<Resp>;

    /// Decides on the replies by a rule: a [`QuorumSystem`], of this crate or of one's own, gives
    /// all replies of the quorum, `newest_of` and the like what they say. Nothing is sent until it
    /// is awaited.
    fn quorum<F: QuorumFunction<Resp>>(self, rule: F) -> Deciding<Resp, F> {
        self.quorum_call().quorum(rule)
    }

    /// Decides by a closure, asked after every reply and every failure. Nothing is sent until it is
    /// awaited.
    fn quorum_by<T, C>(self, decide: C) -> Deciding<Resp, Closure<C>>
    where
        C: FnMut(&Replies<Resp>) -> Verdict<T>,
    {
        self.quorum_call().quorum_by(decide)
    }

    /// Gives the first reply, once those who replied are a quorum: for writes. Nothing is sent
    /// until it is awaited.
    fn acked_by<S: QuorumSystem>(self, system: S) -> Deciding<Resp, AckedBy<S>> {
        self.quorum_call().acked_by(system)
    }

    /// Sends the requests now, and gives an answer that gets better with every reply; see
    /// [`QuorumBuilder::correctable`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    fn correctable<T, C>(self, decide: C) -> Correctable<T>
    where
        T: Clone + Send + Sync + 'static,
        C: FnMut(&Replies<Resp>) -> Verdict<T> + Send + 'static,
    {
        self.quorum_call().correctable(decide)
    }

    /// Sends it one-way; see [`QuorumBuilder::send`].
    fn send(self) -> Sending<Resp> {
        self.quorum_call().send()
    }

    /// Sends it one-way and forgets it; see [`QuorumBuilder::send_and_forget`].
    ///
    /// # Errors
    /// As [`QuorumBuilder::send_and_forget`].
    fn send_and_forget(self) -> Result<(), MulticastError> {
        self.quorum_call().send_and_forget()
    }

    /// Cancels what still runs once it is decided; see [`QuorumBuilder::cancel_late`].
    fn cancel_late(self) -> QuorumBuilder<Resp> {
        self.quorum_call().cancel_late()
    }

    /// Calls `late` with every answer that arrives after the decision; see [`QuorumBuilder::late`].
    fn late<F>(self, late: F) -> QuorumBuilder<Resp>
    where
        F: FnMut(NodeId, Result<Resp, MemberError>) + Send + 'static,
    {
        self.quorum_call().late(late)
    }

    /// Learns how long members take to reply; see [`QuorumBuilder::latencies`].
    fn latencies(self, latencies: &Latencies) -> QuorumBuilder<Resp> {
        self.quorum_call().latencies(latencies)
    }

    /// Asks members again whose branch failed; see [`QuorumBuilder::retry`].
    fn retry(self, retry: Retry) -> QuorumBuilder<Resp> {
        self.quorum_call().retry(retry)
    }

    /// Asks some members first and others only when needed; see [`QuorumBuilder::hedge`].
    fn hedge(self, first: usize, every: Duration) -> QuorumBuilder<Resp> {
        self.quorum_call().hedge(first, every)
    }
}

impl<Resp: Payload + 'static> QuorumExt<Resp> for CallBuilder<Resp> {
    fn quorum_call(self) -> QuorumBuilder<Resp> {
        QuorumBuilder::new(self, None, None)
    }

    fn among(self, members: &Configuration) -> QuorumBuilder<Resp> {
        let leaves = Leaves::below(self.branches().len());
        QuorumBuilder::new(self, Some(members.clone()), Some(leaves))
    }
}

impl Configuration {
    /// A quorum call with a request of its own for each member. A member for which `request` gives
    /// none is not asked, and is a member all the same: it counts for nothing, and what is possible
    /// shrinks.
    ///
    /// ```
    /// # use convoke_core::{Endpoint, Method};
    /// # use convoke_quorum::{Configuration, Majority, QuorumError};
    /// # const TAKE: Method<u64, u64> = Method::new("shards.Shards/Take");
    /// # async fn take(client: &Endpoint, members: &Configuration) -> Result<(), QuorumError> {
    /// let call = members.each(client, |member| Some(TAKE.request(member.node().get())));
    /// let acks = call.quorum(Majority).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn each<Resp: Payload + 'static>(
        &self,
        client: impl Into<Client>,
        mut request: impl FnMut(Peer) -> Option<Request<Resp>>,
    ) -> QuorumBuilder<Resp> {
        let asked = self.members().iter().filter_map(|member| Some((member, request(*member)?)));
        let call = client.into().fan_out(asked);
        QuorumBuilder::new(call, Some(self.clone()), None)
    }
}
