//! Connections that are kept up: dialled before they are needed, and again when they are lost.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use convoke_proto::id::NodeId;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::transport::Address;

use super::Driver;
use super::peers::PeerState;

/// Keeps a connection up until it is dropped; see
/// [`Endpoint::keep_connected`](crate::Endpoint::keep_connected).
#[derive(Debug)]
#[must_use = "the connection is kept up as long as this lives"]
pub struct KeepConnected(AbortHandle);

impl KeepConnected {
    /// True when nobody keeps it up any more: the endpoint is gone, or a dial has panicked.
    pub(super) fn is_over(&self) -> bool {
        self.0.is_finished()
    }
}

impl Drop for KeepConnected {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Driver {
    /// Dials a node now, and again whenever its connection is lost.
    pub(crate) fn keep_connected(&self, node: NodeId) -> KeepConnected {
        self.keep_connected_after(node, Duration::ZERO, Arc::default())
    }

    /// The same, but for a pause before the first dial. Notes when that begins.
    pub(super) fn keep_connected_after(
        &self,
        node: NodeId,
        pause: Duration,
        has_begun: Arc<AtomicBool>,
    ) -> KeepConnected {
        let keeping = keep(self.me.clone(), node, self.watch_peer(node));
        let keeping = async move {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            has_begun.store(true, Ordering::Relaxed);
            keeping.await;
        };
        KeepConnected(self.runtime.spawn(keeping).abort_handle())
    }

    /// Sets where a node can be dialled. Who waits to dial it again does so at once, if that is
    /// new.
    pub(crate) fn configure(self: &Arc<Self>, node: NodeId, addresses: &[Address]) {
        self.with_each_node(|core, _| core.configure(node, addresses.to_vec()));
        self.configured.notify_waiters();
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
        let _ = tokio::time::timeout(Duration::from_secs(1), dialled).await;
    }
}

async fn keep(weak: Weak<Driver>, node: NodeId, mut state: watch::Receiver<PeerState>) {
    let mut failures = 0;
    loop {
        let Some(lasted) = until_lost(&weak, &mut state).await else { return };
        let Some(driver) = weak.upgrade() else { return };
        if driver.is_closing() {
            return;
        }
        if lasted >= driver.limits.backoff_max {
            failures = 0;
        }
        let (limits, configured) = (driver.limits.clone(), driver.configured.clone());
        let known = driver.configured_addresses(node);
        let seed = driver.identity.incarnation.0 ^ node.get();
        let dialled_at = driver.now();
        // In a task of its own, so that a dial under way goes on when nobody wants to keep up what
        // it makes: the peer may have taken it already, and ended its own for it.
        let dial = driver.clone().runtime.spawn(async move { driver.keep_warm(node).await });
        let Ok(dialled) = dial.await else { return };
        match dialled {
            Ok(()) => {
                if state.wait_for(|state| *state != PeerState::Connected).await.is_err() {
                    return;
                }
                let Some(driver) = weak.upgrade() else { return };
                // Who takes connections and ends them is not dialled as fast as that goes.
                if driver.now().since(dialled_at) >= limits.backoff_max {
                    failures = 0;
                    continue;
                }
            }
            Err(error) => tracing::debug!(%node, %error, failures, "dial failed, to be repeated"),
        }
        let ceiling = limits.backoff_min * 2_u32.saturating_pow(failures.min(16));
        let pause = jitter(ceiling.min(limits.backoff_max), seed, failures);
        let is_found = async {
            tokio::select! {
                () = is_given_others(&weak, node, &known, &configured) => true,
                // By the peer.
                _ = state.wait_for(|state| *state == PeerState::Connected) => false,
            }
        };
        let is_found = timeout(pause, is_found).await.unwrap_or(false);
        failures = if is_found { 0 } else { failures + 1 };
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

/// Resolves once a node has other addresses than it had, by the endpoint's owner.
async fn is_given_others(
    weak: &Weak<Driver>,
    node: NodeId,
    before: &[Address],
    configured: &Notify,
) {
    loop {
        let mut notified = pin!(configured.notified());
        notified.as_mut().enable();
        if weak.upgrade().is_none_or(|driver| driver.configured_addresses(node) != before) {
            return;
        }
        notified.await;
    }
}

/// Between a half of `ceiling` and all of it, so that the peers of a node that comes back do not
/// all come at once. From a seed, so that simulations replay.
fn jitter(ceiling: Duration, seed: u64, attempt: u32) -> Duration {
    let mixed = (seed ^ u64::from(attempt)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let part = u32::try_from(mixed % 1_024).expect("it is below 1,024");
    ceiling / 2 + ceiling / 2_048 * part
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

    /// Each of two who dial each other could otherwise end what the other has kept.
    #[tokio::test(start_paused = true)]
    async fn a_dial_under_way_goes_on_when_nobody_wants_the_connection_any_more() {
        let server = builder(1).listen("mem://slowly:0").start().await.expect("it is free");
        let slow = Slow::default();
        let ended = slow.1.subscribe();
        let client = Endpoint::builder().transport(slow).node(NodeId::new(2));
        let client = client.start().await.expect("nothing to bind");
        let peer = client.peer(server.node(), server.addresses()).expect("they are addresses");
        let state = client.watch_peer(peer);
        let kept = client.keep_connected(peer);
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(kept);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((*ended.borrow(), *state.borrow()), (1, PeerState::Connected));
    }

    #[tokio::test(start_paused = true)]
    async fn several_who_want_a_connection_up_share_its_dials() {
        let (dialled, mut dials) = watch::channel(0_usize);
        let counting = Dialling(MemTransport::new(), move || {
            dialled.send_modify(|count| *count += 1);
            None
        });
        let client = Endpoint::builder().transport(counting).node(NodeId::new(2));
        let client = client.start().await.expect("nothing to bind");
        let peer = client.peer(NodeId::new(1), "mem://nobody:2").expect("it is an address");
        let keep = |_| client.driver().keep_connected_for_some(peer.node());
        let kept: Vec<_> = (0..10).map(keep).collect();
        tokio::time::sleep(Duration::from_secs(60)).await;
        // Of pauses that double from 50 ms to 5 s, of which at least a half is kept.
        let one = *dials.borrow_and_update();
        assert!((12..40).contains(&one), "{one} dials");
        drop(kept);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!dials.has_changed().expect("it runs"), "nobody wants it");
        // Nor are there more for who comes after the other.
        for _ in 0..1_000 {
            let _kept = keep(0);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let more = *dials.borrow_and_update() - one;
        assert!((5..15).contains(&more), "{more} dials in ten seconds");
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "of tokio's paused clock")]
    async fn a_connection_that_the_peer_makes_ends_the_pause_and_one_that_lasts_what_led_to_it() {
        let (dialled, mut dials) = watch::channel(());
        let counting = Dialling(MemTransport::new(), move || {
            dialled.send_replace(());
            None
        });
        let client = Endpoint::builder().transport(counting).node(NodeId::new(2));
        let client = client.listen("mem://is dialled:0").start().await.expect("it is free");
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

    #[test]
    fn a_pause_is_between_a_half_and_the_whole_and_differs_by_node_and_attempt() {
        let ceiling = Duration::from_millis(100);
        let pauses: Vec<Duration> = (0..50)
            .flat_map(|seed| (0..3).map(move |attempt| jitter(ceiling, seed, attempt)))
            .collect();
        assert!(pauses.iter().all(|pause| *pause >= ceiling / 2 && *pause <= ceiling));
        let mut distinct = pauses.clone();
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 25, "{} distinct", distinct.len());
    }
}
