//! Rounds about names of the application's own, for phases that outlive a call.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::seam::EndpointSeam as _;
use convoke_core::{Announce, CastPort, CastSpace, Endpoint, NodeId};
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::Configuration;

use super::digest::digest_of;
use super::error::{CastRefused, EchoError};
use super::gate::{Gate, Verifier};
use super::machine::{EchoCore, EchoVote};
use super::plan::EchoPlan;
use super::round::{About, EchoRound};
use super::stream::EchoStream;

/// The tags of one service or group at this node: pairs of numbers, such as view and sequence, each
/// of which members vote on in a round of its own.
///
/// A tag that this node has voted on has one round here, ever: joined again it is refused, unless
/// it is [restored](Self::restore) with what was cast. [`Self::close_below`] closes tags for good,
/// after which nothing of them is remembered one by one. The space is closed when it is dropped;
/// opened again, it remembers the same.
///
/// ```
/// # use convoke_core::Endpoint;
/// # use convoke_quorum::{Configuration, echo::{EchoError, EchoPlan, EchoSpace, digest_of}};
/// # async fn log(endpoint: &Endpoint, members: &Configuration) -> Result<(), EchoError> {
/// let space = EchoSpace::builder("log", members).open(endpoint)?;
/// let plan = EchoPlan::majority(members.len(), 2)?;
/// let mut slot = space.join(0, 7, plan)?;
/// slot.cast(0, digest_of(b"heron"), "")?;
/// slot.quorum(1).await?;
/// space.close_below(0, 8);
/// # Ok(())
/// # }
/// ```
pub struct EchoSpace {
    space: CastSpace,
    members: Configuration,
    keep: Duration,
    verifier: Option<Arc<dyn Verifier>>,
    bell: Arc<Bell>,
    runtime: Handle,
}

/// Wakes all who wait for tags: the space keeps one waker.
#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_waiters();
    }
}

/// Sets up an [`EchoSpace`].
#[derive(Clone)]
pub struct EchoSpaceBuilder {
    name: u64,
    members: Configuration,
    window: usize,
    keep: Duration,
    announce: Announce,
    floor: (u64, u64),
    verifier: Option<Arc<dyn Verifier>>,
}

impl EchoSpaceBuilder {
    /// Most tags, not joined here, that one member may begin once the space is open here. What it
    /// says of more is dropped. Default 256.
    #[must_use]
    pub fn window(mut self, tags: usize) -> Self {
        self.window = tags;
        self
    }

    /// Time for which the other members keep what this one casts about a tag that they have not
    /// joined. Default 10 s.
    #[must_use]
    pub fn keep(mut self, time: Duration) -> Self {
        self.keep = time;
        self
    }

    /// Number of members that must have cast about a tag that is not joined for [`EchoSpace::next`]
    /// to tell of it. With one more than may be faulty, one that tells the truth is among them.
    /// Default 1.
    #[must_use]
    pub fn announce_at(mut self, members: usize) -> Self {
        self.announce.senders_min = members;
        self
    }

    /// Tells of a tag at the first cast of this member, too. Default: none is special.
    #[must_use]
    pub fn source(mut self, member: NodeId) -> Self {
        self.announce.source = Some(member);
        self
    }

    /// Begins with all tags below this one closed: after a restart, those on which an earlier life
    /// of this node may have voted and which it does not [restore](EchoSpace::restore).
    #[must_use]
    pub fn floor(mut self, view: u64, sequence: u64) -> Self {
        self.floor = (view, sequence);
        self
    }

    /// Has votes looked at before they count, in rounds, or before a [stream](Self::stream) gives
    /// them. Default: what a member says on its connection counts.
    #[must_use]
    pub fn verify(mut self, verifier: impl Verifier) -> Self {
        self.verifier = Some(Arc::new(verifier));
        self
    }

    /// The number that stands for the name in casts.
    pub fn id(&self) -> u64 {
        self.name
    }

    /// Opens it. What members have cast before is in it.
    ///
    /// # Errors
    /// [`EchoError::NotMember`], or [`EchoError::Space`] when the endpoint has it open.
    pub fn open(self, endpoint: &Endpoint) -> Result<EchoSpace, EchoError> {
        let space = self.cast_space(endpoint)?;
        let Self { members, keep, verifier, .. } = self;
        let (bell, runtime) = (Arc::default(), endpoint.runtime().clone());
        Ok(EchoSpace { space, members, keep, verifier, bell, runtime })
    }

    /// Opens it as one stream of all votes. What members have cast before is in it.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn stream(self, endpoint: &Endpoint) -> Result<EchoStream, EchoError> {
        let space = self.cast_space(endpoint)?;
        let Self { members, keep, verifier, .. } = self;
        let gate = verifier.map(|verifier| Gate::new(verifier, endpoint.runtime()));
        Ok(EchoStream::new(space, members, keep, gate))
    }

    fn cast_space(&self, endpoint: &Endpoint) -> Result<CastSpace, EchoError> {
        let node = endpoint.node();
        if !self.members.contains(node) {
            return Err(EchoError::NotMember { node });
        }
        let nodes: Vec<_> = self.members.nodes().collect();
        let space = endpoint.cast_space(self.name, self.window, self.announce, Some(&nodes))?;
        space.raise_floor(self.floor.0, self.floor.1);
        Ok(space)
    }
}

impl fmt::Debug for EchoSpaceBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EchoSpaceBuilder")
            .field("name", &self.name)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}

impl EchoSpace {
    /// A space of this name, in which these members vote. The name must be the same at all of them,
    /// and no other group's that shares an endpoint.
    pub fn builder(name: &str, members: &Configuration) -> EchoSpaceBuilder {
        let mut first = [0; 8];
        first.copy_from_slice(&digest_of(name.as_bytes()).0[..8]);
        EchoSpaceBuilder {
            name: u64::from_le_bytes(first),
            members: members.clone(),
            window: 256,
            keep: Duration::from_secs(10),
            announce: Announce { senders_min: 1, source: None },
            floor: (0, 0),
            verifier: None,
        }
    }

    /// Begins the round about a tag. What members have cast about it before is counted.
    ///
    /// Dropped before this node has voted, the round leaves the tag to be joined again, but the
    /// votes that had come by then are gone: nobody says them again, and the tag is announced anew
    /// only by others. Keep the round until it is over.
    ///
    /// # Errors
    /// [`EchoError::Join`] when the tag has a round here, had one that has voted, or is closed; or
    /// when that could not be remembered of it. An error uses nothing up.
    pub fn join(&self, view: u64, sequence: u64, plan: EchoPlan) -> Result<EchoRound, EchoError> {
        let core = EchoCore::new(self.space.node(), &self.members, plan)?;
        let port = self.space.open(view, sequence, self.keep)?;
        Ok(self.round((view, sequence), core, port))
    }

    fn round(&self, tag: (u64, u64), core: EchoCore, port: CastPort) -> EchoRound {
        EchoRound::of(core, port, About::Tag(tag), &self.runtime).gated(self.verifier.clone())
    }

    /// Begins the round about a tag that may have had one, with what this node has cast by it and
    /// sent along, as [`EchoRound::restore`] does.
    ///
    /// # Errors
    /// As [`Self::join`], but for a tag that had a round; [`EchoError::Cast`] when the votes
    /// contradict each other, or a payload is larger than others keep.
    pub fn restore(
        &self,
        view: u64,
        sequence: u64,
        plan: EchoPlan,
        votes: impl IntoIterator<Item = (EchoVote, Bytes)>,
    ) -> Result<EchoRound, EchoError> {
        let votes: Vec<(EchoVote, Bytes)> = votes.into_iter().collect();
        let mut core = EchoCore::new(self.space.node(), &self.members, plan)?;
        for (vote, payload) in &votes {
            CastRefused::check_size(payload, self.space.payload_bytes_max())?;
            core.restore(*vote)?;
        }
        let port = self.space.open_again(view, sequence, self.keep)?;
        Ok(self.round((view, sequence), core, port).with_payloads(votes))
    }

    /// Members to which votes could not be sent since this was last asked, for want of a connection
    /// or of room on it: whom to [repeat](EchoRound::repeat_to) them to once they are back. A round
    /// does so itself while it is awaited.
    pub fn take_missed(&self) -> Vec<NodeId> {
        self.space.take_missed().into_iter().collect()
    }

    /// The next tag, view and sequence, that enough members have cast about and that is not joined.
    /// Each is told of once, the lowest first, to one of those who wait. `None` once the endpoint
    /// was shut down.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, no tag is lost.
    pub async fn next(&self) -> Option<(u64, u64)> {
        let waker = Waker::from(self.bell.clone());
        loop {
            let rung = self.bell.0.notified();
            if let Poll::Ready(tag) = self.space.poll_announced(&mut Context::from_waker(&waker)) {
                // For the others the space has to keep the waker again.
                self.bell.0.notify_waiters();
                return tag;
            }
            rung.await;
        }
    }

    /// Closes all tags below this one, by view first: what waits for them is dropped, what comes is
    /// late, and none can be joined. Rounds that run go on.
    pub fn close_below(&self, view: u64, sequence: u64) {
        self.space.raise_floor(view, sequence);
    }

    /// The lowest tag that is not closed.
    pub fn floor(&self) -> (u64, u64) {
        self.space.floor()
    }

    /// The members that vote.
    pub fn members(&self) -> &Configuration {
        &self.members
    }
}

impl fmt::Debug for EchoSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EchoSpace")
            .field("space", &self.space)
            .field("members", &self.members)
            .finish_non_exhaustive()
    }
}
