//! Members that are connected, as it changes.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use convoke_core::{Endpoint, KeepConnected, NodeId, PeerState};
use tokio::sync::watch;

use crate::{Configuration, MemberSet};

/// Watches which members of a configuration an endpoint is connected to. The endpoint itself, where
/// it is a member, always is; one that shuts down is not, for it takes no requests any more.
///
/// A connection proves the id of the node at its other end: nobody else becomes connected in a
/// member's place.
pub struct Membership {
    configuration: Configuration,
    states: Vec<watch::Receiver<PeerState>>,
    /// Members connected, as last told.
    told: MemberSet,
    _kept: Vec<KeepConnected>,
}

/// A member became connected or is not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberChange {
    /// It is connected.
    Joined(NodeId),
    /// It was.
    Left(NodeId),
}

/// The endpoint has stopped, so that nothing changes any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the endpoint has stopped")]
pub struct Stopped;

impl Membership {
    /// Watches, without dialling anybody.
    pub fn watch(endpoint: &Endpoint, configuration: &Configuration) -> Self {
        let members = configuration.members().iter();
        let states: Vec<_> = members.map(|member| endpoint.watch_peer(member)).collect();
        let configuration = configuration.clone();
        let mut membership =
            Self { configuration, states, told: MemberSet::new(), _kept: Vec::new() };
        membership.told = membership.now();
        membership
    }

    /// Watches, and keeps a connection to every member as long as this lives.
    pub fn keep_connected(endpoint: &Endpoint, configuration: &Configuration) -> Self {
        let others = configuration.members().iter().filter(|m| m.node() != endpoint.node());
        let kept = others.map(|member| endpoint.keep_connected(member)).collect();
        Self { _kept: kept, ..Self::watch(endpoint, configuration) }
    }

    /// The members that are connected now. May be empty.
    pub fn connected(&self) -> Configuration {
        let now = self.now();
        self.configuration.subset(|member| {
            let index = self.configuration.index_of(member.node());
            index.is_some_and(|index| now.contains(index.into()))
        })
    }

    /// The next change: once for each real one. Members that left and came back between two calls
    /// have not changed.
    ///
    /// # Errors
    /// [`Stopped`] when the endpoint has.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn changed(&mut self) -> Result<MemberChange, Stopped> {
        loop {
            if let Some(change) = self.next_change() {
                return Ok(change);
            }
            self.any_changed().await?;
        }
    }

    /// Waits until the connected members satisfy a condition, at once if they do already: a barrier
    /// at the start of a program. Use `tokio::time::timeout` around it to wait no longer than that.
    ///
    /// # Errors
    /// [`Stopped`] when the endpoint has.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn wait_until(
        &mut self,
        mut condition: impl FnMut(&Configuration) -> bool,
    ) -> Result<Configuration, Stopped> {
        loop {
            self.states.iter_mut().for_each(watch::Receiver::mark_unchanged);
            let connected = self.connected();
            if condition(&connected) {
                return Ok(connected);
            }
            self.any_changed().await?;
        }
    }

    fn now(&self) -> MemberSet {
        let is_connected =
            |state: &watch::Receiver<PeerState>| *state.borrow() == PeerState::Connected;
        let states = self.states.iter().enumerate();
        states.filter(|(_, state)| is_connected(state)).map(|(index, _)| index).collect()
    }

    /// One difference between what was told and what is.
    fn next_change(&mut self) -> Option<MemberChange> {
        self.states.iter_mut().for_each(watch::Receiver::mark_unchanged);
        let now = self.now();
        for (index, member) in self.configuration.members().iter().enumerate() {
            match (self.told.contains(index), now.contains(index)) {
                (false, true) => {
                    self.told.insert(index);
                    return Some(MemberChange::Joined(member.node()));
                }
                (true, false) => {
                    self.told.remove(index);
                    return Some(MemberChange::Left(member.node()));
                }
                _ => {}
            }
        }
        None
    }

    async fn any_changed(&mut self) -> Result<(), Stopped> {
        type Change<'a> =
            Pin<Box<dyn Future<Output = Result<(), watch::error::RecvError>> + Send + 'a>>;
        let mut changes: Vec<Change<'_>> =
            self.states.iter_mut().map(|state| Box::pin(state.changed()) as Change<'_>).collect();
        if changes.is_empty() {
            return std::future::pending().await;
        }
        poll_fn(|cx| {
            let mut polled = changes.iter_mut().map(|change| change.as_mut().poll(cx));
            // The first that is ready; the others are asked afresh next time.
            polled
                .find_map(|poll| match poll {
                    Poll::Ready(result) => Some(Poll::Ready(result.map_err(|_| Stopped))),
                    Poll::Pending => None,
                })
                .unwrap_or(Poll::Pending)
        })
        .await
    }
}

impl fmt::Debug for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Membership")
            .field("configuration", &self.configuration)
            .field("connected", &self.now())
            .finish_non_exhaustive()
    }
}
