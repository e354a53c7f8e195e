//! A member over an endpoint: broadcasts, takes part in the broadcasts of all, and hands out what is delivered.
//!
//! What it does about one broadcast is [`protocol`](crate::protocol)'s. It keeps nothing on disk, and does not tell
//! members again what they missed while a connection was broken; `EchoRound::restore` and `repeat_to` are for
//! that.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use convoke::quorum::Configuration;
use convoke::quorum::echo::{
    EchoPlan, EchoRound, EchoSpace, EchoSpaceBuilder, Evidence, Payloads, digest_of,
};
use convoke::{Endpoint, NodeId};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::protocol::{Broadcast, ECHO, SEND, Step, plan};

/// A value that all correct members deliver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Who broadcast it.
    pub source: NodeId,
    /// As its how-manieth.
    pub sequence: u64,
    /// The value.
    pub value: Bytes,
    /// Members that this one has caught voting twice about it.
    pub evidence: Vec<Evidence>,
}

/// A member. Dropped, it takes part no more.
#[derive(Debug)]
pub struct Member {
    shared: Arc<Shared>,
    own: Arc<Space>,
    deliveries: mpsc::Receiver<Delivery>,
    delivered: mpsc::Sender<Delivery>,
    tasks: JoinSet<()>,
}

#[derive(Debug)]
struct Shared {
    endpoint: Endpoint,
    plan: EchoPlan,
    payloads: Payloads,
    /// Broadcasts that may be under way at once.
    slots: Arc<Semaphore>,
}

/// The broadcasts of one source.
#[derive(Debug)]
struct Space {
    source: NodeId,
    space: EchoSpace,
    /// Those delivered out of order, and the lowest that is not delivered.
    order: Mutex<(BTreeSet<u64>, u64)>,
}

/// How long a member that lacks a value tries to get it.
const PULL: Duration = Duration::from_secs(60);

const UNDER_WAY_MAX: usize = 1_024;

/// The space of one source's broadcasts.
pub fn space_of(source: NodeId, members: &Configuration, faulty: usize) -> EchoSpaceBuilder {
    // So many cannot all be liars; the source is heard alone.
    EchoSpace::builder(&format!("brb/{source}"), members).announce_at(faulty + 1).source(source)
}

impl Member {
    /// Takes part from now on. The endpoint serves `payloads`.
    ///
    /// # Errors
    /// Unless there are `3f + 1` members and this endpoint is one.
    pub fn start(
        endpoint: &Endpoint,
        members: &Configuration,
        faulty: usize,
        payloads: &Payloads,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            endpoint: endpoint.clone(),
            plan: plan(members.len(), faulty)?,
            payloads: payloads.clone(),
            slots: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
        });
        let (delivered, deliveries) = mpsc::channel(UNDER_WAY_MAX);
        let (mut tasks, mut own) = (JoinSet::new(), None);
        for source in members.nodes() {
            let space = space_of(source, members, faulty).open(endpoint)?;
            let space = Arc::new(Space { source, space, order: Mutex::default() });
            if source == endpoint.node() {
                own = Some(space);
            } else {
                tasks.spawn(follow(shared.clone(), space, delivered.clone()));
            }
        }
        let own = own.context("the endpoint is no member")?;
        Ok(Self { shared, own, deliveries, delivered, tasks })
    }

    /// Broadcasts a value as the how-manieth of this member; from 0, each once.
    ///
    /// # Errors
    /// When this one was broadcast before.
    pub fn broadcast(&mut self, sequence: u64, value: Bytes) -> Result<()> {
        let mut round = self.own.space.join(0, sequence, self.shared.plan.clone())?;
        round.cast(SEND, digest_of(&value), value.clone())?;
        let mut broadcast = Broadcast::of(self.own.source);
        broadcast.handle_value(value);
        let (shared, own) = (self.shared.clone(), self.own.clone());
        let part = take_part(shared, own, sequence, round, broadcast, self.delivered.clone());
        self.tasks.spawn(part);
        Ok(())
    }

    /// The next value that is delivered here, of any source, in any order.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn next(&mut self) -> Option<Delivery> {
        self.deliveries.recv().await
    }
}

/// Takes part in every broadcast of a source.
async fn follow(shared: Arc<Shared>, space: Arc<Space>, delivered: mpsc::Sender<Delivery>) {
    let mut parts = JoinSet::new();
    loop {
        let (view, sequence) = space.space.next().await;
        if view != 0 {
            continue; // Nobody correct says that.
        }
        while parts.try_join_next().is_some() {}
        let Ok(slot) = shared.slots.clone().acquire_owned().await else { return };
        let Ok(round) = space.space.join(view, sequence, shared.plan.clone()) else { continue };
        let broadcast = Broadcast::of(space.source);
        let (shared, space, delivered) = (shared.clone(), space.clone(), delivered.clone());
        parts.spawn(async move {
            take_part(shared, space, sequence, round, broadcast, delivered).await;
            drop(slot);
        });
    }
}

/// Does one step after the other until the value is delivered.
async fn take_part(
    shared: Arc<Shared>,
    space: Arc<Space>,
    sequence: u64,
    mut round: EchoRound,
    mut broadcast: Broadcast,
    delivered: mpsc::Sender<Delivery>,
) {
    let value = loop {
        match round.until(|votes| broadcast.next(votes)).await {
            Step::Echo(digest) => {
                // Who could not give it to others must not say that it has it.
                let kept = broadcast.value().map(|value| shared.payloads.insert(value.clone()));
                if !matches!(kept, Some(Ok(_))) {
                    return;
                }
                // It has cast nothing else in this phase, or there were no such step.
                let cast = round.cast(ECHO, digest, Bytes::new());
                debug_assert!(cast.is_ok(), "{cast:?}");
            }
            Step::Pull(digest, from) => {
                let pulled = shared.payloads.pull(&shared.endpoint, digest, from, PULL).await;
                let Ok(pulled) = pulled else { return };
                broadcast.handle_value(pulled.value);
            }
            Step::Deliver(value) => break value,
        }
    };
    let (source, evidence) = (space.source, round.evidence().to_vec());
    drop(round);
    space.note_delivered(sequence);
    // Nobody listens when the member is going.
    let _ = delivered.send(Delivery { source, sequence, value, evidence }).await;
}

impl Space {
    /// Closes all below the lowest that is not delivered: replays of them are harmless from then on.
    fn note_delivered(&self, sequence: u64) {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        let (early, floor) = &mut *order;
        early.insert(sequence);
        while early.remove(floor) {
            *floor += 1;
        }
        self.space.close_below(0, *floor);
    }
}
