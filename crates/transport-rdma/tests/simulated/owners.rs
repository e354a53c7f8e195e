//! Owners of bodies that block as they are dropped: they hold up nobody else.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::Recorder;
use convoke_transport::{CloseReason, Connection, Lane};
use convoke_transport_rdma::provider::simulated::{DeviceSettings, Fabric};

use crate::stranger::{Stranger, message};
use crate::support::{Ends, Link, ends_with, is_not_disturbed, socket_of, until};

/// Says that it is dropped, and then blocks until it is released.
struct Blocker {
    dropped: mpsc::Sender<()>,
    released: mpsc::Receiver<()>,
}

impl Drop for Blocker {
    fn drop(&mut self) {
        let _ = self.dropped.send(());
        let _ = self.released.recv();
    }
}

impl AsRef<[u8]> for Blocker {
    fn as_ref(&self) -> &[u8] {
        &[7; 32 << 10]
    }
}

/// A connection that goes on, and the ends of others that are stuck with a body each.
struct Stuck {
    ends: Ends,
    b: Arc<Recorder>,
    link: Link,
    dropped: (mpsc::Sender<()>, mpsc::Receiver<()>),
}

impl Stuck {
    async fn new() -> Self {
        let ends = ends_with(Fabric::new(), DeviceSettings::default(), |builder| {
            builder.close_grace(Duration::from_millis(50))
        });
        let (a, b) = (Arc::new(Recorder::new(1)), Arc::new(Recorder::new(2)));
        let link = ends.connect(a, &b).await;
        Self { ends, b, link, dropped: mpsc::channel() }
    }

    /// A peer that has not the credit for a body, the connection to it, and what releases the
    /// body's owner as it is dropped.
    async fn peer(&self) -> (Stranger, Arc<dyn Connection>, mpsc::Sender<()>) {
        let opened = self.b.opened_count();
        let peer = Stranger::introduced(&self.ends.fabric, socket_of(&*self.link.listener)).await;
        let to_peer = self.b.opened(opened).await;
        let (release, released) = mpsc::channel();
        let owner = Blocker { dropped: self.dropped.0.clone(), released };
        let body = Bytes::from_owner(owner);
        to_peer.append_bytes(Lane::Data, &[], body).expect("there is room");
        to_peer.flush();
        let sent = || to_peer.counters().bytes_sent;
        until("a part of it is sent", || sent() > 2_000).await;
        (peer, to_peer, release)
    }

    async fn blocks(&self) {
        until("the owner is dropped", || self.dropped.1.try_recv().is_ok()).await;
    }

    async fn is_not_disturbed(&self) {
        is_not_disturbed(&self.ends, &self.link, &self.b).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn owners_that_block_once_the_grace_of_a_close_is_over_hold_up_nobody() {
    let stuck = Stuck::new().await;
    let mut held = Vec::new();
    for _ in 0..2 {
        let (peer, to_peer, release) = stuck.peer().await;
        to_peer.close(CloseReason::Local);
        // The second one shows that somebody still looks at the time.
        stuck.blocks().await;
        held.push((peer, release));
    }
    stuck.is_not_disturbed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 6)]
async fn an_owner_that_blocks_as_its_peer_breaks_the_rules_holds_up_nobody() {
    let stuck = Stuck::new().await;
    let (peer, _to_peer, _release) = stuck.peer().await;
    peer.say(&[message(0xff, b"")]);
    stuck.blocks().await;
    stuck.is_not_disturbed().await;
}
