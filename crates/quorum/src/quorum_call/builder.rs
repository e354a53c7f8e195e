//! A quorum call being put together.

use std::fmt;
use std::time::Duration;

use convoke_core::{CallBuilder, Endpoint, NodeId, Peer, Request};

use crate::correctable::{Correctable, Correction};
use crate::error::MemberError;
use crate::latency::Latencies;
use crate::multicast::{self, Sending};
use crate::plan::{Hedge, Plan, Retry};
use crate::replies::Replies;
use crate::roster::Roster;
use crate::source::Source;
use crate::system::{All, First, Majority, Threshold};
use crate::{Configuration, QuorumError, QuorumFunction, Verdict};

use super::{Deciding, Follow, Members, QuorumCall};

/// Makes quorum calls of calls: `client.method(request).to_all(&configuration).quorum(Majority)`.
pub trait QuorumExt<Resp>: Sized {
    /// The same as a quorum call among the peers it is addressed to, to be put together further.
    fn members(self) -> QuorumBuilder<Resp>;

    /// A quorum call among these members, who need not be those it is addressed to: they may be the leaves of
    /// the tree that the call opens, each of which replies straight to this node. The initiator then counts
    /// the members' own replies, one way sooner than if they went through a leader.
    fn among(self, members: &Configuration) -> QuorumBuilder<Resp>;

    /// Decides on the replies of the peers it is addressed to. Nothing is sent until it is awaited.
    fn quorum<F: QuorumFunction<Resp>>(self, function: F) -> Deciding<Resp, F>
    where
        Resp: prost::Message + Default,
    {
        self.members().quorum(function)
    }

    /// Decides by a function, whose types are inferred.
    fn quorum_by<T, F>(self, function: F) -> Deciding<Resp, F>
    where
        Resp: prost::Message + Default,
        F: FnMut(&Replies<Resp>) -> Verdict<T>,
    {
        self.members().quorum_by(function)
    }

    /// Sends it one-way; see [`QuorumBuilder::send`].
    fn send(self) -> Sending<Resp>
    where
        Resp: prost::Message + Default,
    {
        self.members().send()
    }

    /// Sends it one-way and forgets it; see [`QuorumBuilder::send_and_forget`].
    ///
    /// # Errors
    /// As [`QuorumBuilder::send_and_forget`].
    fn send_and_forget(self) -> Result<(), QuorumError>
    where
        Resp: prost::Message + Default,
    {
        self.members().send_and_forget()
    }
}

impl<Resp: prost::Message + Default> QuorumExt<Resp> for CallBuilder<Resp> {
    fn members(self) -> QuorumBuilder<Resp> {
        QuorumBuilder::new(self, None, false)
    }

    fn among(self, members: &Configuration) -> QuorumBuilder<Resp> {
        QuorumBuilder::new(self, Some(members.clone()), true)
    }
}

impl Configuration {
    /// The same request to every member. Where the endpoint has an overlay, or another
    /// [carrier](convoke_core::carrier), a large message travels by it, and otherwise, as a small one always,
    /// once to each.
    pub fn broadcast<Resp: prost::Message + Default>(
        &self,
        endpoint: &Endpoint,
        request: Request<Resp>,
    ) -> QuorumBuilder<Resp> {
        let call = endpoint.invoke(request).to_all(self.members());
        QuorumBuilder::new(call, Some(self.clone()), false)
    }
}

/// A quorum call with a request of its own for each member. A member for which `request` gives none is not
/// asked: it counts for nothing, and what is possible shrinks.
pub fn each<Resp: prost::Message + Default>(
    endpoint: &Endpoint,
    members: &Configuration,
    mut request: impl FnMut(Peer) -> Option<Request<Resp>>,
) -> QuorumBuilder<Resp> {
    let asked = members.members().iter().filter_map(|member| Some((member, request(*member)?)));
    QuorumBuilder::new(endpoint.fan_out(asked), Some(members.clone()), false)
}

/// A quorum call being put together. Nothing is sent until it is opened or awaited; then all requests are sent
/// at once, in order.
#[must_use = "nothing is sent until it is opened or awaited"]
pub struct QuorumBuilder<Resp> {
    call: CallBuilder<Resp>,
    configuration: Option<Configuration>,
    is_tree: bool,
    cancels_late: bool,
    retry: Option<Retry>,
    hedge: Option<Hedge>,
    latencies: Option<Latencies>,
    late: Option<Follow<Resp>>,
}

impl<Resp: prost::Message + Default> QuorumBuilder<Resp> {
    fn new(call: CallBuilder<Resp>, configuration: Option<Configuration>, is_tree: bool) -> Self {
        let (retry, hedge, latencies, late) = (None, None, None, None);
        let cancels_late = false;
        Self { call, configuration, is_tree, cancels_late, retry, hedge, latencies, late }
    }

    /// Ends within `deadline`. Default: the endpoint's `deadline_default`, 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.call = self.call.deadline(deadline);
        self
    }

    /// Cancels what still runs once it is decided. Ignored unless every method of the call is read-only: a
    /// write must still reach the slow members.
    pub fn cancel_late(mut self) -> Self {
        self.cancels_late = true;
        self
    }

    /// Is told, on a task of its own, what members answer after the decision, until all have or the deadline
    /// has passed. Also, then, where [`Self::cancel_late`] was asked for. It must be decided within a tokio
    /// runtime.
    pub fn late<F>(mut self, mut late: F) -> Self
    where
        Resp: 'static,
        F: FnMut(NodeId, Result<Resp, MemberError>) + Send + 'static,
    {
        self.late = Some(Box::new(move |mut call: QuorumCall<Resp>| {
            tokio::spawn(async move {
                while let Some((member, answer)) = call.next().await {
                    late(member, answer);
                }
            });
        }));
        self
    }

    /// Learns how long members take to reply.
    pub fn latencies(mut self, latencies: &Latencies) -> Self {
        self.latencies = Some(latencies.clone());
        self
    }

    /// Asks a member again whose branch failed in a way that may pass. Only where all methods of the call are
    /// [idempotent](convoke_core::Method::idempotent). Default: nobody is asked twice.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Asks the first `first` members it is addressed to at once, and a further one whenever `every` has passed
    /// without a decision, or at once when one failed. Who it is addressed to in order of
    /// [latency](Latencies::order) is asked nearest first. Default: all at once.
    pub fn hedge(mut self, first: usize, every: Duration) -> Self {
        self.hedge = Some(Hedge { first, every });
        self
    }

    /// Sends the requests now, in order, and gives the answers as a stream.
    ///
    /// # Errors
    /// [`QuorumError::Unsuitable`] when nobody is asked or somebody twice, [`QuorumError::NotIdempotent`] when
    /// retries were asked for, [`QuorumError::NotOpened`] when there are too many calls or a request is too
    /// large. Nothing was sent then.
    pub fn open(self) -> Result<QuorumCall<Resp>, QuorumError> {
        let roster = self.roster()?;
        self.open_with(roster)
    }

    /// Decides on the replies. Nothing is sent until it is awaited.
    pub fn quorum<F: QuorumFunction<Resp>>(self, function: F) -> Deciding<Resp, F> {
        Deciding::new(self, function)
    }

    /// Decides by a function, whose types are inferred.
    pub fn quorum_by<T, F>(self, function: F) -> Deciding<Resp, F>
    where
        F: FnMut(&Replies<Resp>) -> Verdict<T>,
    {
        Deciding::new(self, function)
    }

    /// The reply of whoever is first.
    pub fn first(self) -> Deciding<Resp, First> {
        self.quorum(First)
    }

    /// The first reply, once a majority has replied.
    pub fn majority(self) -> Deciding<Resp, Majority> {
        self.quorum(Majority)
    }

    /// The first reply, once `count` members have replied.
    pub fn threshold(self, count: usize) -> Deciding<Resp, Threshold> {
        self.quorum(Threshold(count))
    }

    /// The first reply, once all have replied.
    pub fn all(self) -> Deciding<Resp, All> {
        self.quorum(All)
    }

    /// Sends the requests now, and gives an answer that gets better with every reply; see [`Correctable`].
    ///
    /// # Errors
    /// As [`Self::open`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn correctable<T, F>(self, function: F) -> Result<Correctable<T>, QuorumError>
    where
        T: Clone + Send + Sync + 'static,
        F: FnMut(&Replies<Resp>) -> Correction<T> + Send + 'static,
        Resp: 'static,
    {
        Ok(Correctable::start(self.open()?, function))
    }

    /// Sends the requests one-way, in order: what is replied is dropped. Resolves when each has been handed to
    /// a connection, which is not to say that it arrived. Nothing is sent until it is awaited.
    pub fn send(self) -> Sending<Resp> {
        Sending::new(self.call)
    }

    /// Sends the requests one-way, in order and now, and forgets them. A member that cannot be reached does not
    /// get its request. A small frame comes back from each that does, by which both sides forget the rest.
    ///
    /// # Errors
    /// [`QuorumError::NotOpened`] when there are too many calls or a request is too large; nothing was sent
    /// then.
    pub fn send_and_forget(self) -> Result<(), QuorumError> {
        multicast::send_and_forget(self.call)
    }

    /// The members.
    pub(super) fn roster(&self) -> Result<Roster, QuorumError> {
        let asked = self.call.branches().map(|(peer, _)| peer.node());
        let Some(configuration) = &self.configuration else { return Ok(Roster::new(asked)?) };
        let mut roster = Roster::new(configuration.nodes())?;
        if !self.is_tree {
            let asked: Vec<Option<usize>> = asked.map(|node| roster.index_of(node)).collect();
            let skipped = (0..configuration.len()).filter(|index| !asked.contains(&Some(*index)));
            skipped.for_each(|index| roster.skip(index));
        }
        Ok(roster)
    }

    pub(super) fn open_with(self, roster: Roster) -> Result<QuorumCall<Resp>, QuorumError> {
        let Self { call, configuration, is_tree, cancels_late, retry, hedge, latencies, late } =
            self;
        if retry.is_some()
            && let Some((_, request)) = call.branches().find(|(_, r)| !r.is_idempotent())
        {
            return Err(QuorumError::NotIdempotent { method: request.method_name() });
        }
        let is_listed = configuration.is_some() && !is_tree;
        let asked = is_listed.then(|| {
            let nodes = call.branches().map(|(peer, _)| peer.node());
            nodes.filter_map(|node| roster.index_of(node)).collect()
        });
        let epoch = call.branches().next().map_or(0, |(peer, _)| peer.epoch());
        let members = configuration.map_or(Members::Peers(epoch), Members::Of);
        let (call, plan) = match (retry, hedge) {
            (None, None) => (call, None),
            (retry, hedge) => {
                let (now, plan) = Plan::new(call, retry, hedge);
                (now, Some(plan))
            }
        };
        let source = Source::open(call, plan, cancels_late)?;
        let (replies, is_late) = (Replies::new(roster), false);
        Ok(QuorumCall { source, replies, is_tree, asked, members, latencies, late, is_late })
    }
}

impl<Resp> fmt::Debug for QuorumBuilder<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumBuilder")
            .field("call", &self.call)
            .field("configuration", &self.configuration)
            .finish_non_exhaustive()
    }
}
