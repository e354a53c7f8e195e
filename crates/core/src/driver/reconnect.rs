//! Connections that are kept up: dialled before they are needed, and again when they are lost.
//!
//! A node has one keeper, a task that lives as long as anybody wants its connection. The pace of
//! its dials outlives it for a while, so that who comes and goes does not quicken them.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use convoke_proto::id::NodeId;
use convoke_transport::parts::Mutex;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::transport::Address;

use super::Driver;
use super::ending::SUBSCRIBER;
use super::pace::Pace;
use super::peers::PeerState;

/// Keeps a connection up until it is dropped; see
/// [`Endpoint::keep_connected`](crate::Endpoint::keep_connected).
#[derive(Debug)]
#[must_use = "the connection is kept up as long as this lives"]
pub struct KeepConnected {
    _keeper: Arc<Keeper>,
}

/// The task that dials a node for all who want its connection up. It ends with the last of them.
#[derive(Debug)]
struct Keeper(AbortHandle);

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Nodes that are kept connected, or were until a moment ago.
pub(super) type Keepers = Mutex<BTreeMap<NodeId, Kept>>;

/// A node that is, or was.
#[derive(Debug, Default)]
pub(super) struct Kept {
    keeper: Weak<Keeper>,
    /// Shared with the keeper, and with a dial under way.
    pace: Arc<watch::Sender<Pace>>,
}

impl Driver {
    /// Dials a node as soon as its pace allows, and again whenever its connection is lost, once for
    /// all who want that.
    pub(crate) fn keep_connected(&self, node: NodeId) -> KeepConnected {
        let mut keepers = self.keepers.lock();
        if let Some(kept) = keepers.get(&node) {
            kept.pace.send_if_modified(Pace::ask);
            if let Some(keeper) = kept.keeper.upgrade() {
                return KeepConnected { _keeper: keeper };
            }
        }
        let now = self.now();
        keepers.retain(|_, kept| {
            Arc::strong_count(&kept.pace) > 1 || !kept.pace.borrow().is_past(now, &self.limits)
        });
        let kept = keepers.entry(node).or_default();
        let keeping = keep(self.me.clone(), node, self.watch_peer(node), kept.pace.clone());
        let keeper = Arc::new(Keeper(self.runtime.spawn(keeping).abort_handle()));
        kept.keeper = Arc::downgrade(&keeper);
        KeepConnected { _keeper: keeper }
    }

    /// Sets where a node can be dialled. Who waits to dial it again does so at once, if that is
    /// new.
    pub(crate) fn configure(self: &Arc<Self>, node: NodeId, addresses: &[Address]) {
        let before = self.configured_addresses(node);
        self.with_each_node(|core, _| core.configure(node, addresses.to_vec()));
        if self.configured_addresses(node) == before {
            return;
        }
        if let Some(kept) = self.keepers.lock().get(&node) {
            kept.pace.send_modify(Pace::renew);
        }
    }

    /// Keeps connections to these nodes up as long as the endpoint lives, and waits until each was
    /// dialled once.
    pub(crate) async fn keep_all_connected(&self, nodes: impl Iterator<Item = NodeId>) {
        let mut states: Vec<_> = nodes
            .map(|node| {
                let state = self.watch_peer(node);
                self.keep_connection(node, self.keep_connected(node));
                state
            })
            .collect();
        let dialled = async {
            for state in &mut states {
                // From down, or connected by the other, to what its first dial came to.
                let is_over = |state: &PeerState| *state != PeerState::Connecting;
                let begun = *state.borrow_and_update() == PeerState::Connected
                    || state.changed().await.is_ok();
                let _ = begun && state.wait_for(is_over).await.is_ok();
            }
        };
        // Who is not there yet is dialled again, whoever waits for it.
        let _ = timeout(Duration::from_secs(1), dialled).await;
    }
}

/// Keeps a node connected until its endpoint closes.
async fn keep(
    weak: Weak<Driver>,
    node: NodeId,
    mut state: watch::Receiver<PeerState>,
    pace: Arc<watch::Sender<Pace>>,
) {
    let mut changes = pace.subscribe();
    while let Some(lasted) = until_lost(&weak, &mut state).await {
        let Some(driver) = weak.upgrade().filter(|driver| !driver.is_closing()) else { return };
        if lasted >= driver.limits.backoff_max {
            pace.send_modify(Pace::renew);
        }
        let now = driver.now();
        let pause = changes.borrow_and_update().due().since(now);
        if !pause.is_zero() {
            drop(driver);
            tokio::select! {
                biased;
                // By the peer.
                _ = state.wait_for(|state| *state == PeerState::Connected) => {
                    pace.send_modify(Pace::end_pause);
                }
                _ = timeout(pause, changes.changed()) => {}
            }
            continue;
        }
        let seed = driver.identity.incarnation.0 ^ node.get();
        pace.send_modify(|pace| pace.begin(now, &driver.limits, seed));
        // In a task of its own, so that a dial under way goes on when nobody wants to keep up what
        // it makes: the peer may have taken it already, and ended its own for it.
        let (runtime, pace) = (driver.runtime.clone(), pace.clone());
        let dial = runtime.spawn(async move {
            if let Err(error) = driver.keep_warm(node).await {
                SUBSCRIBER.call(|| {
                    tracing::debug!(%node, %error, "dial failed, to be repeated");
                });
            }
            pace.send_modify(|pace| pace.end(driver.now()));
        });
        let _ = dial.await;
    }
}

/// Resolves once there is no connection to a peer, with the time for which there was one before;
/// `None` when the endpoint is gone.
async fn until_lost(
    weak: &Weak<Driver>,
    state: &mut watch::Receiver<PeerState>,
) -> Option<Duration> {
    // The sender goes with the endpoint.
    state.wait_for(|state| *state != PeerState::Connecting).await.ok()?;
    let begun = weak.upgrade()?.now();
    state.wait_for(|state| *state == PeerState::Down).await.ok()?;
    Some(weak.upgrade()?.now().since(begun))
}

#[cfg(test)]
mod tests {
    use convoke_proto::address::Address;
    use tokio::time::Instant;

    use super::*;
    use crate::driver::dial::tests::Dialling;
    use crate::transport::mem::MemTransport;
    use crate::transport::{DialFuture, ListenFuture, Sink, Transport};
    use crate::{Endpoint, EndpointBuilder, NodeId};

    fn builder(node: u64) -> EndpointBuilder {
        Endpoint::builder().transport(MemTransport::new()).node(NodeId::new(node))
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "of tokio's paused clock")]
    async fn who_ends_every_connection_is_dialled_ever_more_rarely() {
        let server = builder(1).listen("mem://closes:0").start().await.expect("it is free");
        let addresses: Vec<Address> = server.addresses().to_vec();
        let client = builder(2).start().await.expect("nothing to bind");
        let peer = client.peer(server.node(), &addresses).expect("they are addresses");
        let (begun, mut state) = (Instant::now(), server.watch_peer(client.node()));
        let _kept = client.keep_connected(peer);
        for _ in 0..20 {
            state.wait_for(|state| *state == PeerState::Connected).await.expect("it runs");
            server.forget(client.node());
            state.wait_for(|state| *state != PeerState::Connected).await.expect("it runs");
        }
        // Pauses of 50 ms, doubling to 5 s, of which at least a half is kept.
        assert!(begun.elapsed() >= Duration::from_secs(30), "20 dials in {:?}", begun.elapsed());
        // One that lasts is made again at once.
        state.wait_for(|state| *state == PeerState::Connected).await.expect("it runs");
        tokio::time::sleep(Duration::from_secs(5)).await;
        let lost = Instant::now();
        server.forget(client.node());
        state.changed().await.expect("it runs");
        state.wait_for(|state| *state == PeerState::Connected).await.expect("it runs");
        assert!(lost.elapsed() < Duration::from_millis(25), "after {:?}", lost.elapsed());
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "of tokio's paused clock")]
    async fn who_is_given_another_address_is_dialled_there_at_once() {
        let server = builder(1).listen("mem://elsewhere:0").start().await.expect("it is free");
        let client = builder(2).start().await.expect("nothing to bind");
        let peer = client.peer(server.node(), "mem://nobody:1").expect("it is an address");
        let _kept = client.keep_connected(peer);
        tokio::time::sleep(Duration::from_secs(60)).await; // pauses are seconds by now
        let mut state = client.watch_peer(peer);
        let given = Instant::now();
        client.peer(server.node(), server.addresses()).expect("they are addresses");
        state.wait_for(|state| *state == PeerState::Connected).await.expect("it runs");
        assert!(given.elapsed() < Duration::from_millis(25), "after {:?}", given.elapsed());
    }

    /// Takes a second for each dial, and counts those that have come to their end.
    #[derive(Debug, Default)]
    struct Slow(MemTransport, watch::Sender<usize>);

    impl Transport for Slow {
        fn schemes(&self) -> &'static [&'static str] {
            self.0.schemes()
        }

        fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
            self.0.listen(address, sink)
        }

        fn dial(
            &self,
            address: &Address,
            expected: Option<NodeId>,
            sink: Arc<dyn Sink>,
        ) -> DialFuture {
            let (dial, ended) = (self.0.dial(address, expected, sink), self.1.clone());
            Box::pin(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let dialled = dial.await;
                ended.send_modify(|count| *count += 1);
                dialled
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_a_connection_up_again_has_it_dialled_where_its_node_is_by_now() {
        let server = builder(1).listen("mem://moved:0").start().await.expect("it is free");
        let (client, mut dials) = counting("mem://counts:0").await;
        let peer = client.peer(server.node(), "mem://nobody:1").expect("it is an address");
        let kept = client.keep_connected(peer);
        dials.changed().await.expect("it runs");
        drop(kept);
        client.peer(server.node(), server.addresses()).expect("they are addresses");
        let mut state = client.watch_peer(peer);
        let _kept = client.keep_connected(peer);
        let connected = state.wait_for(|state| *state == PeerState::Connected);
        timeout(Duration::from_millis(25), connected).await.expect("at once").expect("it runs");
    }

    /// An endpoint at this address whose dials are counted as they begin.
    async fn counting(address: &str) -> (Endpoint, watch::Receiver<usize>) {
        let (begun, dials) = watch::channel(0);
        let counting = Dialling(MemTransport::new(), move || {
            begun.send_modify(|count| *count += 1);
            None
        });
        let builder = Endpoint::builder().transport(counting).node(NodeId::new(2)).seed(1);
        (builder.listen(address).start().await.expect("it is free"), dials)
    }

    /// Each of two who dial each other could otherwise end what the other has kept.
    #[tokio::test(start_paused = true)]
    async fn a_dial_under_way_goes_on_when_nobody_wants_the_connection_any_more() {
        let server = builder(1).listen("mem://slowly:0").start().await.expect("it is free");
        let slow = Slow::default();
        let ended = slow.1.subscribe();
        let client = Endpoint::builder().transport(slow).node(NodeId::new(2));
        let client = client.start().await.expect("nothing to bind");
        let peer = client.peer(server.node(), server.addresses()).expect("they are addresses");
        let mut state = client.watch_peer(peer);
        for comes_back in [false, true] {
            let before = *ended.borrow();
            let kept = client.keep_connected(peer);
            tokio::time::sleep(Duration::from_millis(500)).await;
            drop(kept);
            // Who wants it again meanwhile has the same dial.
            let _kept = comes_back.then(|| client.keep_connected(peer));
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert_eq!((*ended.borrow() - before, *state.borrow()), (1, PeerState::Connected));
            server.forget(client.node());
            state.wait_for(|state| *state != PeerState::Connected).await.expect("it runs");
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert_eq!(*state.borrow() == PeerState::Connected, comes_back);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_keeper_ends_with_the_last_who_wants_it_or_with_its_endpoint() {
        let slow = Slow::default();
        let client = Endpoint::builder().transport(slow).node(NodeId::new(2));
        let client = client.start().await.expect("nothing to bind");
        let peer = client.peer(NodeId::new(1), "mem://nobody:2").expect("it is an address");
        let is_over = async |kept: &AbortHandle| {
            tokio::time::sleep(Duration::from_millis(1)).await;
            kept.is_finished()
        };
        // While it dials, and in a pause.
        for after_ms in [500, 1_001] {
            let (one, other) = (client.keep_connected(peer), client.keep_connected(peer));
            tokio::time::sleep(Duration::from_millis(after_ms)).await;
            let keeper = one._keeper.0.clone();
            drop(one);
            assert!(!is_over(&keeper).await);
            drop(other);
            assert!(is_over(&keeper).await);
            tokio::time::sleep(Duration::from_secs(60)).await;
        }
        let kept = client.keep_connected(peer);
        tokio::time::sleep(Duration::from_millis(1_001)).await;
        let driver = client.driver().clone();
        client.shutdown(Duration::ZERO).await;
        for late in [kept, driver.keep_connected(peer.node())] {
            assert!(is_over(&late._keeper.0).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_nobody_wants_connected_any_more_are_forgotten() {
        let (client, _dials) = counting("mem://forgets:0").await;
        for node in 3..5_000 {
            let _kept = client.keep_connected(NodeId::new(node));
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        // Those of the last five seconds.
        let known = client.driver().keepers.lock().len();
        assert!((400..=501).contains(&known), "{known} are known");
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_who_want_a_connection_up_have_its_node_dialled_as_often_as_one() {
        let mut counts = Vec::new();
        for count in [1, 100] {
            let (client, mut dials) = counting("mem://counts:0").await;
            let peer = client.peer(NodeId::new(1), "mem://nobody:2").expect("it is an address");
            let kept: Vec<_> = (0..count).map(|_| client.keep_connected(peer)).collect();
            tokio::time::sleep(Duration::from_secs(60)).await;
            counts.push(*dials.borrow_and_update());
            drop(kept);
            tokio::time::sleep(Duration::from_secs(60)).await;
            assert!(!dials.has_changed().expect("it runs"), "nobody wants it");
        }
        // Of pauses that double from 50 ms to 5 s, of which at least a half is kept.
        assert!(counts[0] == counts[1] && (12..40).contains(&counts[0]), "{counts:?} dials");
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_anew_has_a_node_dialled_once_a_second_at_most() {
        for keeps in [false, true] {
            let (client, mut dials) = counting("mem://counts:0").await;
            let peer = client.peer(NodeId::new(1), "mem://nobody:2").expect("it is an address");
            let mut kept = vec![client.keep_connected(peer)];
            tokio::time::sleep(Duration::from_secs(60)).await; // pauses are seconds by now
            let before = *dials.borrow_and_update();
            for _ in 0..1_000 {
                kept.truncate(if keeps { 1_000 } else { 0 });
                kept.push(client.keep_connected(peer));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let more = *dials.borrow_and_update() - before;
            assert!((9..=11).contains(&more), "{more} dials in ten seconds");
        }
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "of tokio's paused clock")]
    async fn who_comes_anew_ends_the_pause_a_second_after_the_last_dial() {
        let (client, mut dials) = counting("mem://counts:0").await;
        let peer = client.peer(NodeId::new(1), "mem://nobody:2").expect("it is an address");
        let _first = client.keep_connected(peer);
        tokio::time::sleep(Duration::from_secs(60)).await; // pauses are seconds by now
        for waited_ms in [0, 400, 1_100] {
            dials.mark_unchanged();
            dials.changed().await.expect("it runs");
            let dialled = Instant::now();
            tokio::time::sleep(Duration::from_millis(waited_ms)).await;
            let _another = client.keep_connected(peer);
            dials.changed().await.expect("it runs");
            let due = Duration::from_millis(waited_ms.max(1_000));
            let after = dialled.elapsed();
            assert!(due <= after && after < due + Duration::from_millis(25), "after {after:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "of tokio's paused clock")]
    async fn a_connection_that_the_peer_makes_ends_the_pause_and_one_that_lasts_what_led_to_it() {
        let (client, mut dials) = counting("mem://is dialled:0").await;
        let server = builder(1).start().await.expect("nothing to bind");
        let peer = client.peer(server.node(), "mem://nobody:1").expect("it is an address");
        let _kept = client.keep_connected(peer);
        tokio::time::sleep(Duration::from_secs(60)).await; // pauses are seconds by now
        let mut state = client.watch_peer(server.node());
        for lasts_secs in [0, 5] {
            // The pause after a dial has all of its time before it.
            dials.mark_unchanged();
            dials.changed().await.expect("it runs");
            let dialled = server.peer(client.node(), client.addresses());
            let kept = server.keep_connected(dialled.expect("they are addresses"));
            state.wait_for(|state| *state == PeerState::Connected).await.expect("it runs");
            drop(kept);
            tokio::time::sleep(Duration::from_secs(lasts_secs)).await;
            dials.mark_unchanged();
            let lost = Instant::now();
            server.forget(client.node());
            dials.changed().await.expect("it runs");
            assert!(lost.elapsed() < Duration::from_millis(25), "after {:?}", lost.elapsed());
        }
        // Pauses are short again.
        let failed = Instant::now();
        dials.changed().await.expect("it runs");
        assert!(failed.elapsed() <= Duration::from_millis(50), "after {:?}", failed.elapsed());
    }
}
