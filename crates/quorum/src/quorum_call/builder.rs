//! A quorum call being put together.

use std::fmt;
use std::task::Waker;
use std::time::Duration;

use convoke_core::seam::{CallBuilderSeam as _, EndpointSeam as _};
use convoke_core::{CallBuilder, NodeId, Path, Payload};

use crate::correctable::Correctable;
use crate::error::MemberError;
use crate::latency::Latencies;
use crate::multicast::{self, MulticastError, Sending};
use crate::plan::{Hedge, Plan, Retry};
use crate::replies::Replies;
use crate::roster::Roster;
use crate::source::{Manner, Source};
use crate::{AckedBy, Closure, Configuration, QuorumError, QuorumFunction, QuorumSystem, Verdict};

use super::{Deciding, Follow, Leaves, Members, QuorumCall};

/// A quorum call being put together. Nothing is sent until it is opened or awaited; then all
/// requests are sent at once, in order.
#[must_use = "nothing is sent until it is opened or awaited"]
pub struct QuorumBuilder<Resp> {
    call: CallBuilder<Resp>,
    configuration: Option<Configuration>,
    place: Place,
    cancels_late: bool,
    retry: Option<Retry>,
    hedge: Option<Hedge>,
    latencies: Option<Latencies>,
    late: Option<Follow<Resp>>,
}

/// Place of the members in the tree of a call.
enum Place {
    /// They are the branches of its root.
    Branches,
    /// So they are, and branches of leaves were named.
    NoLeaves,
    Leaves(Leaves),
}

/// A decided call that is read on. However the reading ends, what was asked runs on.
struct Following<Resp: Payload + 'static> {
    /// Taken as it goes.
    call: Option<QuorumCall<Resp>>,
    has_failed: bool,
}

/// Needs of whoever decides on a call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    /// Nodes of a tree are believed what they say of those below them.
    pub(super) believes_relays: bool,
    /// Fewest replies that are worth waking anybody for.
    pub(super) fewest: usize,
}

impl<Resp: Payload + 'static> QuorumBuilder<Resp> {
    pub(super) fn new(
        call: CallBuilder<Resp>,
        configuration: Option<Configuration>,
        leaves: Option<Leaves>,
    ) -> Self {
        Self {
            call,
            configuration,
            place: leaves.map_or(Place::Branches, Place::Leaves),
            cancels_late: false,
            retry: None,
            hedge: None,
            latencies: None,
            late: None,
        }
    }

    /// Ends the call within `deadline`, the endpoint's `deadline_max` at most. Default: that of the
    /// call it was made of, else that of its client, else the endpoint's `deadline_default`, 10 s.
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.call = self.call.deadline(deadline);
        self
    }

    /// Adds metadata to the requests of all members, as [`CallBuilder::metadata`].
    pub fn metadata(mut self, key: &str, value: impl AsRef<[u8]>) -> Self {
        self.call = self.call.metadata(key, value);
        self
    }

    /// Cancels what still runs once it is decided. Only where all methods of the call are
    /// [read-only](convoke_core::Method::read_only): a write must still reach the slow members.
    /// With [`Self::late`] all members are waited for first. Default: it runs on.
    pub fn cancel_late(mut self) -> Self {
        self.cancels_late = true;
        self
    }

    /// Calls `late` with every answer that arrives after the decision, on a task of the endpoint's
    /// runtime, until all members have answered or the deadline passes, also where
    /// [`Self::cancel_late`] was asked for. One that panics is called no more: what was asked runs
    /// on all the same, or is cancelled then where that was asked for.
    pub fn late<F>(mut self, mut late: F) -> Self
    where
        F: FnMut(NodeId, Result<Resp, MemberError>) + Send + 'static,
    {
        let runtime = self.call.client().endpoint().runtime().clone();
        self.late = Some(Box::new(move |call, has_failed| {
            let mut following = Following { call: Some(call), has_failed };
            runtime.spawn(async move {
                while let Some((member, answer)) = following.next().await {
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

    /// Asks a member again whose branch failed in a way that may pass. One whose answer outgrows a
    /// bound of the call does so again, and is not asked. Only where all methods of the call are
    /// [idempotent](convoke_core::Method::idempotent). Default: nobody is asked twice.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Asks the first `first` members it is addressed to at once, and a further one whenever
    /// `every` has passed without a decision, or at once when one failed or all have answered. With
    /// [`Duration::MAX`] nobody is asked for time alone. A call that is addressed to members in
    /// order of [latency](Latencies::order) asks the nearest first. Default: all at once.
    pub fn hedge(mut self, first: usize, every: Duration) -> Self {
        self.hedge = Some(Hedge { first, every });
        self
    }

    /// Lets a member among the leaves of a tree count only on the branches that `is_at` names, as
    /// in `|member, path| path.level_count() == 2`. Default: on any. Who was given a branch can ask
    /// others on its own below it, so where leaves may lie, the branch that the tree gives to each
    /// member is to be named, by all its indices. A call that is not
    /// [`among`](crate::QuorumExt::among) members fails with [`QuorumError::NoLeaves`].
    pub fn leaves_at<F>(mut self, is_at: F) -> Self
    where
        F: Fn(NodeId, &Path) -> bool + Send + Sync + 'static,
    {
        self.place = match self.place {
            Place::Leaves(leaves) => Place::Leaves(leaves.at(is_at)),
            Place::Branches | Place::NoLeaves => Place::NoLeaves,
        };
        self
    }

    /// Sends the requests now, in order, and gives the answers as a stream.
    ///
    /// # Errors
    /// [`QuorumError::Unsuitable`] when nobody is asked or somebody twice;
    /// [`QuorumError::NotIdempotent`] and [`QuorumError::NotReadOnly`] when retries or cancelling
    /// were asked for that a method does not allow; [`QuorumError::NotOpened`] when there are too
    /// many calls or a request is too large. Nothing was sent then.
    pub fn open(self) -> Result<QuorumCall<Resp>, QuorumError> {
        let roster = self.roster()?;
        // The rule that is to decide on it, if any, may bear liars.
        self.open_with(roster, Needs { believes_relays: false, fewest: 1 }, None)
    }

    /// Decides on the replies by a rule; see [`QuorumExt::quorum`](crate::QuorumExt::quorum).
    /// Nothing is sent until it is awaited.
    pub fn quorum<F: QuorumFunction<Resp>>(self, rule: F) -> Deciding<Resp, F> {
        Deciding::new(self, rule)
    }

    /// Decides by a closure, asked after every reply and every failure. Nothing is sent until it is
    /// awaited.
    pub fn quorum_by<T, C>(self, decide: C) -> Deciding<Resp, Closure<C>>
    where
        C: FnMut(&Replies<Resp>) -> Verdict<T>,
    {
        Deciding::new(self, Closure(decide))
    }

    /// Gives the first reply, once those who replied are a quorum: for writes. Nothing is sent
    /// until it is awaited.
    pub fn acked_by<S: QuorumSystem>(self, system: S) -> Deciding<Resp, AckedBy<S>> {
        Deciding::new(self, AckedBy(system))
    }

    /// Sends the requests now, and gives an answer that gets better with every reply: `decide` is
    /// asked after each, and [`Verdict::Preliminary`] is an answer to go on with. A call that
    /// cannot be opened has ended with the error that [`Self::open`] gives.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn correctable<T, C>(self, decide: C) -> Correctable<T>
    where
        T: Clone + Send + Sync + 'static,
        C: FnMut(&Replies<Resp>) -> Verdict<T> + Send + 'static,
    {
        Correctable::start(self.open(), decide)
    }

    /// Sends the requests one-way, in order: what is replied is dropped. Resolves when each has
    /// been handed to a connection, which is not to say that it arrived. Nothing is sent until it
    /// is awaited.
    pub fn send(self) -> Sending<Resp> {
        Sending::new(self.one_way())
    }

    /// Sends the requests one-way, in order and now, and forgets them. A member that cannot be
    /// reached does not get its request. A small frame comes back from each that does, by which
    /// both sides forget the rest.
    ///
    /// # Errors
    /// [`MulticastError::NotOneWay`] when a setting asks for replies, [`MulticastError::NotOpened`]
    /// when there are too many calls or a request is too large; nothing was sent then.
    pub fn send_and_forget(self) -> Result<(), MulticastError> {
        multicast::send_and_forget(self.one_way()?)
    }

    /// The call, unless what it was told has to do with replies.
    fn one_way(self) -> Result<CallBuilder<Resp>, MulticastError> {
        let Self { call, place, cancels_late, retry, hedge, latencies, late, .. } = self;
        let settings = [
            (matches!(place, Place::Leaves(_)), "among"),
            (matches!(place, Place::NoLeaves), "leaves_at"),
            (cancels_late, "cancel_late"),
            (retry.is_some(), "retry"),
            (hedge.is_some(), "hedge"),
            (latencies.is_some(), "latencies"),
            (late.is_some(), "late"),
        ];
        match settings.into_iter().find(|(is_set, _)| *is_set) {
            Some((_, setting)) => Err(MulticastError::NotOneWay { setting }),
            None => Ok(call),
        }
    }

    /// The members.
    pub(super) fn roster(&self) -> Result<Roster, QuorumError> {
        let asked = self.call.branches().map(|(peer, _)| peer.node());
        let Some(configuration) = &self.configuration else { return Ok(Roster::new(asked)?) };
        let mut roster = Roster::new(configuration.nodes())?;
        if !matches!(self.place, Place::Leaves(_)) {
            let asked: Vec<Option<usize>> = asked.map(|node| roster.index_of(node)).collect();
            let skipped = (0..configuration.len()).filter(|index| !asked.contains(&Some(*index)));
            skipped.for_each(|index| roster.skip(index));
        }
        Ok(roster)
    }

    /// Opens it; with a waker as [`CallBuilderSeam::open_apart`] has it.
    pub(super) fn open_with(
        self,
        roster: Roster,
        needs: Needs,
        waker: Option<&Waker>,
    ) -> Result<QuorumCall<Resp>, QuorumError> {
        let Self { mut call, configuration, place, cancels_late, retry, hedge, latencies, late } =
            self;
        let leaves = match place {
            Place::Branches => None,
            Place::NoLeaves => return Err(QuorumError::NoLeaves),
            Place::Leaves(leaves) => Some(leaves),
        };
        if retry.is_some()
            && let Some((_, request)) = call.branches().find(|(_, r)| !r.is_idempotent())
        {
            return Err(QuorumError::NotIdempotent { method: request.method_name() });
        }
        if cancels_late && let Some((_, request)) = call.branches().find(|(_, r)| !r.is_read_only())
        {
            return Err(QuorumError::NotReadOnly { method: request.method_name() });
        }
        let is_listed = configuration.is_some() && leaves.is_none();
        let asked = is_listed.then(|| {
            let nodes = call.branches().map(|(peer, _)| peer.node());
            nodes.filter_map(|node| roster.index_of(node)).collect()
        });
        let epoch = call.branches().next().map_or(0, |(peer, _)| peer.epoch());
        let members = configuration.map_or(Members::Peers(epoch), Members::Of);
        let mut plan = None;
        if retry.is_some() || hedge.is_some() {
            // Replies may come to several rounds.
            let (now, later) = Plan::new(call, retry, hedge);
            (call, plan) = (now, Some(later));
        } else if latencies.is_none() {
            // Who measures how long members take looks at each.
            call.options_mut().wake_after = needs.fewest.try_into().unwrap_or(u32::MAX);
        }
        let ignores_hearsay = leaves.is_some() && !needs.believes_relays;
        let manner = Manner { cancels_late, ignores_hearsay };
        let source = Source::open(call, plan, manner, waker)?;
        let (replies, is_late, failed_count) = (Replies::new(roster), false, 0);
        Ok(QuorumCall {
            source,
            replies,
            leaves,
            asked,
            members,
            latencies,
            late,
            is_late,
            failed_count,
        })
    }
}

impl<Resp: Payload + 'static> Following<Resp> {
    async fn next(&mut self) -> Option<(NodeId, Result<Resp, MemberError>)> {
        self.call.as_mut()?.next().await
    }
}

impl<Resp: Payload + 'static> Drop for Following<Resp> {
    fn drop(&mut self) {
        if let Some(mut call) = self.call.take() {
            call.source.let_go(self.has_failed);
        }
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
