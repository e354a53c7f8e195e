//! Code of an application that an overlay calls, and that panics or asks the overlay: it goes on.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context as Polling, Wake, Waker};
use std::time::Duration;

use convoke_core::transport::{Address, DialFuture, ListenFuture, Sink, Transport};
use convoke_core::{Endpoint, NodeId};
use convoke_overlay::{Life, Limits, OpId, Overlay, OverlayBuilder, PullError, Site};
use convoke_sim::transport::SimNetwork;
use tokio::time::{sleep, timeout};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const HOUR: Duration = Duration::from_secs(3_600);

fn node(site: u64) -> NodeId {
    NodeId::new(site + 1)
}

/// One of two sites.
async fn site(network: &SimNetwork, site: u64) -> Result<OverlayBuilder> {
    let endpoint = Endpoint::builder().node(node(site)).transport(network.transport()).seed(site);
    let overlay = Overlay::builder(&endpoint.start().await?);
    let of_both = overlay.site(node(0), "sim://site-0").site(node(1), "sim://site-1");
    Ok(of_both.listen(format!("sim://site-{site}")).incarnation(site + 100))
}

/// Counts how often it is woken, and panics each time.
#[derive(Default)]
struct Panics(AtomicUsize);

impl Wake for Panics {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("on purpose");
    }
}

/// A broadcast that nobody takes is over when the timer says so.
#[tokio::test(start_paused = true)]
async fn the_timer_goes_on_though_whom_it_wakes_panics() -> Result {
    let network = SimNetwork::new(1);
    let overlay = site(&network, 0).await?.start().await?;
    let panics = Arc::new(Panics::default());
    let waker = Waker::from(panics.clone());
    let mut connected = pin!(overlay.connected());
    assert!(connected.as_mut().poll(&mut Polling::from_waker(&waker)).is_pending());
    let settle = async || {
        let broadcast = overlay.broadcast(vec![7; 100]).await?;
        let settled = timeout(HOUR, broadcast.settled()).await?;
        assert!(settled.is_over && settled.by.is_empty(), "{settled:?}");
        Result::Ok(())
    };
    settle().await?;
    assert_eq!(panics.0.load(Ordering::Relaxed), 1, "it is woken beside");
    let _other = site(&network, 1).await?.start().await?;
    timeout(HOUR, connected).await?;
    network.partition(node(0), node(1));
    network.partition(node(1), node(0));
    settle().await
}

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls for what does not come yet. Gives whom it would wake.
fn begin<F: Future>(wait: Pin<&mut F>) -> Arc<Count> {
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    assert!(wait.poll(&mut Polling::from_waker(&waker)).is_pending());
    count
}

fn is_kept(count: &Arc<Count>) -> bool {
    Arc::strong_count(count) > 1
}

/// Polls twice, and gives up.
fn give_up<F: Future>(wait: F) {
    let mut wait = Box::pin(wait);
    let first = begin(wait.as_mut());
    let second = begin(wait.as_mut());
    assert!(!is_kept(&first) && is_kept(&second), "one waker each");
    drop(wait);
    assert!(!is_kept(&second), "it waits no more");
}

#[tokio::test(start_paused = true)]
async fn whoever_ceases_to_wait_leaves_no_waker() -> Result {
    let mut limits = Limits::default();
    (limits.payload_bytes_max, limits.unacked_bytes_max) = (1 << 20, 1 << 20);
    let network = SimNetwork::new(1);
    let overlay = site(&network, 0).await?.limits(limits).start().await?;
    let _other = site(&network, 1).await?.start().await?;
    timeout(HOUR, overlay.connected()).await?;
    network.partition(node(0), node(1));
    let broadcast = overlay.broadcast(vec![7; 1 << 20]).await?;
    let is_sent = || {
        let broadcast = pin!(overlay.broadcast(vec![7; 1 << 20]));
        broadcast.poll(&mut Polling::from_waker(Waker::noop())).is_ready()
    };
    assert!((0..100).any(|_| !is_sent()), "it is owed to the other");
    for _ in 0..3 {
        give_up(overlay.next());
        give_up(overlay.broadcast(vec![7; 1 << 20]));
        give_up(broadcast.settled());
    }
    let waits = (overlay.next(), overlay.broadcast(vec![7; 1 << 20]), broadcast.settled());
    let (mut next, mut offer, mut settled) = (pin!(waits.0), pin!(waits.1), pin!(waits.2));
    let woken = [begin(next.as_mut()), begin(offer.as_mut()), begin(settled.as_mut())];
    overlay.shutdown(Duration::ZERO).await;
    assert_eq!(woken.map(|count| count.0.load(Ordering::Relaxed)), [1, 1, 1], "it is closed");
    Ok(())
}

/// A transport that panics in place of its first dials, so many times.
#[derive(Debug)]
struct Panicking(Arc<dyn Transport>, AtomicUsize);

impl Transport for Panicking {
    fn schemes(&self) -> &'static [&'static str] {
        self.0.schemes()
    }

    fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
        self.0.listen(address, sink)
    }

    fn dial(&self, address: &Address, expected: Option<NodeId>, sink: Arc<dyn Sink>) -> DialFuture {
        let left = &self.1;
        let left = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1));
        assert!(left.is_err(), "on purpose");
        self.0.dial(address, expected, sink)
    }
}

#[tokio::test(start_paused = true)]
async fn a_site_is_dialled_again_though_its_transport_panics() -> Result {
    let network = SimNetwork::new(1);
    let panicking = Arc::new(Panicking(network.transport(), AtomicUsize::new(3)));
    let _listens = site(&network, 1).await?.start().await?;
    let dials = site(&network, 0).await?.transports([panicking as Arc<dyn Transport>]);
    let dials = dials.start().await?;
    assert!(timeout(HOUR, dials.connected()).await.is_ok(), "nobody dials it again");
    Ok(())
}

/// Asks the overlay whenever it is woken.
struct Asks(Overlay, AtomicBool);

impl Wake for Asks {
    fn wake(self: Arc<Self>) {
        self.0.load();
        self.1.store(true, Ordering::Relaxed);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waker_of_a_fetch_is_woken_without_a_lock() -> Result {
    let network = SimNetwork::new(1);
    let (overlay, other) = (site(&network, 0).await?, site(&network, 1).await?);
    let (overlay, _other) = (overlay.start().await?, other.start().await?);
    timeout(HOUR, overlay.connected()).await?;
    let asks = Arc::new(Asks(overlay.clone(), AtomicBool::new(false)));
    let waker = Waker::from(asks.clone());
    let never_sent = OpId { source: Site(1), life: Life(101), seq: 5 };
    let fetching = || {
        let mut fetch = Box::pin(overlay.fetch(never_sent));
        assert!(fetch.as_mut().poll(&mut Polling::from_waker(&waker)).is_pending());
        fetch
    };
    let fetch = fetching();
    let woken = async {
        while !asks.1.swap(false, Ordering::Relaxed) {
            sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(HOUR, woken).await?;
    assert_eq!(fetch.await, Err(PullError::Unavailable));

    let fetch = fetching();
    overlay.shutdown(Duration::ZERO).await;
    assert!(asks.1.load(Ordering::Relaxed), "it is told that the overlay is closed");
    assert_eq!(fetch.await, Err(PullError::Closed));
    Ok(())
}

thread_local! {
    /// The overlay that is asked whenever this thread logs.
    static ASKED: RefCell<Option<Overlay>> = const { RefCell::new(None) };
    /// Plans of which it was told.
    static PLANS: Cell<usize> = const { Cell::new(0) };
}

/// Subscriber of the log that asks the overlay.
struct Callback;

impl Visit for Callback {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        PLANS.set(PLANS.get() + usize::from(format!("{value:?}") == "another plan"));
    }
}

impl Subscriber for Callback {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("convoke_overlay")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if let Some(overlay) = ASKED.with_borrow(Clone::clone) {
            overlay.load();
            event.record(&mut Self);
        }
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_of_the_log_is_called_without_a_lock() -> Result {
    tracing::subscriber::set_global_default(Callback).expect("it is the only one");
    let network = SimNetwork::new(1);
    let overlay = site(&network, 0).await?.start().await?;
    ASKED.set(Some(overlay.clone()));
    let _other = site(&network, 1).await?.start().await?;
    let planned = async {
        while PLANS.get() == 0 {
            overlay.broadcast(vec![7; 100_000]).await?;
            sleep(Duration::from_secs(1)).await;
        }
        Result::Ok(())
    };
    timeout(HOUR, planned).await.expect("no plan is made")?;
    ASKED.set(None);
    Ok(())
}
