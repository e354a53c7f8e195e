//! Sites that start late, end early or do not fit together, on a simulated network in virtual time.

#![expect(clippy::disallowed_methods, reason = "the clock of these tests is virtual")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use convoke_core::id::Incarnation;
use convoke_core::transport::{CloseReason, Connection, Hello, Link, Received, Sink};
use convoke_core::{Context, Endpoint, Method, NodeId, Service, Status};
use convoke_overlay::{
    BroadcastError, Life, Limits, OpId, Overlay, OverlayBuilder, Plan, PullError, Site, Tree,
};
use convoke_quorum::{All, Configuration, QuorumExt};
use convoke_sim::transport::SimNetwork;
use tokio::runtime::Builder;
use tokio::time::Instant;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const LEN: Method<Vec<u8>, u64> = Method::new("test.Test/Len");

async fn len(bytes: Vec<u8>, _: Context) -> std::result::Result<u64, Status> {
    Ok(bytes.len() as u64)
}

fn node(site: u64) -> NodeId {
    NodeId::new(site + 1)
}

async fn endpoint(network: &SimNetwork, site: u64) -> Result<Endpoint> {
    let endpoint = Endpoint::builder()
        .node(node(site))
        .transport(network.transport())
        .seed(site)
        .listen(format!("sim://node-{site}"))
        .serve(Service::new().unary(LEN, len));
    Ok(endpoint.start().await?)
}

/// An overlay of these sites.
fn overlay_of(endpoint: &Endpoint, site: u64, sites: &[u64]) -> OverlayBuilder {
    let overlay = Overlay::builder(endpoint)
        .listen(format!("sim://site-{site}"))
        .incarnation(site + 100)
        .plan(Plan::direct(sites.len(), 1));
    sites.iter().fold(overlay, |it, other| it.site(node(*other), format!("sim://site-{other}")))
}

/// Endpoints that know each other.
async fn endpoints(network: &SimNetwork, count: u64) -> Result<Vec<Endpoint>> {
    let mut endpoints = Vec::new();
    for site in 0..count {
        endpoints.push(endpoint(network, site).await?);
    }
    for (from, endpoint) in endpoints.iter().enumerate() {
        for to in from + 1..endpoints.len() {
            endpoint.connect(&format!("sim://node-{to}")).await?;
        }
    }
    Ok(endpoints)
}

async fn within<T>(time: Duration, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(time, what).await.expect("it was to end in time")
}

const SOON: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_closed_overlay_says_so_to_whoever_waits_and_whoever_comes() -> Result {
    let network = SimNetwork::new(1);
    let endpoint = endpoint(&network, 0).await?;
    let mut limits = Limits::default();
    (limits.payload_bytes_max, limits.unacked_bytes_max) = (1 << 20, 1 << 20);
    let overlay = overlay_of(&endpoint, 0, &[0, 1, 2]).limits(limits).start().await?;
    let op = OpId { source: Site(1), life: Life(1), seq: 5 };

    overlay.shutdown(Duration::ZERO).await;
    let refused = within(SOON, overlay.broadcast(vec![7; 1 << 19])).await;
    assert_eq!(refused.map(|it| it.op()), Err(BroadcastError::Closed));
    assert_eq!(within(SOON, overlay.fetch(op)).await, Err(PullError::Closed));
    assert_eq!(within(SOON, overlay.next()).await, None);
    within(SOON, overlay.connected()).await;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_fetch_that_waits_learns_that_the_overlay_was_closed() -> Result {
    let network = SimNetwork::new(1);
    let endpoints = endpoints(&network, 2).await?;
    let silent = endpoints[1].clone();
    let first = overlay_of(&endpoints[0], 0, &[0, 1]).start().await?;
    let second = overlay_of(&silent, 1, &[0, 1]).start().await?;
    within(SOON, first.connected()).await;
    network.partition(node(0), node(1));
    let op = OpId { source: Site(1), life: Life(101), seq: 5 };
    let fetching = tokio::spawn({
        let first = first.clone();
        async move { first.fetch(op).await }
    });
    tokio::task::yield_now().await;
    first.shutdown(Duration::ZERO).await;
    assert_eq!(within(SOON, fetching).await?, Err(PullError::Closed));
    drop(second);
    Ok(())
}

/// Which ends before any of its tasks has been polled.
#[test]
fn an_overlay_closes_with_its_runtime_and_its_endpoint_may_have_another() -> Result {
    let its = Builder::new_current_thread().enable_all().build()?;
    let ours = Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let network = SimNetwork::new(1);
    let endpoint = ours.block_on(endpoint(&network, 0))?;
    let builder = || Overlay::builder(&endpoint).site(node(0), "sim://0").site(node(1), "sim://1");
    let overlay = its.block_on(builder().start())?;
    let broadcast = its.block_on(overlay.broadcast(vec![7; 100]))?;
    drop(its);
    ours.block_on(async {
        assert_eq!(within(SOON, overlay.next()).await, None);
        assert!(within(SOON, broadcast.settled()).await.is_over);
        within(SOON, overlay.connected()).await;
        let refused = within(SOON, overlay.broadcast(vec![7; 100])).await;
        assert_eq!(refused.map(|it| it.op()), Err(BroadcastError::Closed));
        drop(overlay);
        builder().start().await?;
        Ok(())
    })
}

/// As in a program of several runtimes.
#[test]
fn a_shutdown_can_be_awaited_in_a_runtime_without_timers() -> Result {
    let its = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let network = SimNetwork::new(1);
    let overlay = its.block_on(async {
        let endpoint = endpoint(&network, 0).await?;
        let overlay = Overlay::builder(&endpoint).site(node(0), "sim://0").site(node(1), "sim://1");
        Result::Ok(overlay.start().await?)
    })?;
    let other = Builder::new_current_thread().build()?;
    other.block_on(overlay.shutdown(SOON));
    assert_eq!(other.block_on(overlay.next()), None, "it is closed");
    drop(its);
    other.block_on(overlay.shutdown(SOON));
    Ok(())
}

/// Overlays start one after the other, and not everywhere.
#[tokio::test(start_paused = true)]
async fn a_site_whose_overlay_is_not_there_gets_its_requests_whole() -> Result {
    let network = SimNetwork::new(1);
    let endpoints = endpoints(&network, 4).await?;
    let all = Configuration::new(endpoints.iter().map(Endpoint::node))?;
    let large = || endpoints[0].call(LEN, vec![7; 100_000]).to_all(&all).acked_by(All);
    let mut overlays = Vec::new();
    for site in 0..4 {
        assert_eq!(within(SOON, large()).await?, 100_000, "with {site} overlays");
        let overlay =
            overlay_of(&endpoints[usize::try_from(site)?], site, &[0, 1, 2, 3]).start().await?;
        overlays.push(overlay);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    let before = overlays[0].counters().own_bytes;
    assert_eq!(within(SOON, large()).await?, 100_000);
    assert!(overlays[0].counters().own_bytes > before + 300_000);
    Ok(())
}

/// One site shuts its overlay down with time for what it has sent; the others call it all the
/// while.
#[tokio::test(start_paused = true)]
async fn a_site_that_shuts_down_still_takes_the_messages_of_others() -> Result {
    let network = SimNetwork::new(1);
    let endpoints = endpoints(&network, 3).await?;
    let mut overlays = Vec::new();
    for site in 0..3 {
        overlays
            .push(overlay_of(&endpoints[usize::try_from(site)?], site, &[0, 1, 2]).start().await?);
    }
    for overlay in &overlays {
        within(SOON, overlay.connected()).await;
    }
    let all = Configuration::new(endpoints.iter().map(Endpoint::node))?;
    // What it owes to the last site keeps it from closing at once.
    network.partition(node(1), node(2));
    overlays[1].broadcast(vec![1; 50_000]).await?;
    let leaving = tokio::spawn({
        let overlay = overlays[1].clone();
        async move { overlay.shutdown(Duration::from_secs(3)).await }
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!leaving.is_finished());
    let call = endpoints[0].call(LEN, vec![7; 100_000]).to_all(&all);
    assert_eq!(within(SOON, call.acked_by(All)).await?, 100_000);
    leaving.await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let call = endpoints[0].call(LEN, vec![7; 100_000]).to_all(&all);
    assert_eq!(within(SOON, call.acked_by(All)).await?, 100_000);
    Ok(())
}

/// Every site but the last sends everything by the last.
fn by_the_last(sites: usize) -> Plan {
    let last = Site(u16::try_from(sites - 1).expect("sites are few"));
    let trees = |root: usize| match Site(u16::try_from(root).expect("sites are few")) {
        root if root == last => vec![Tree::direct(50_000)],
        root => vec![Tree::relayed(sites, root, last, 50_000)],
    };
    Plan::fixed(1, (0..sites).map(trees).collect()).expect("it is one")
}

/// Calls all of `members` without a pause until told to stop; how long the slowest call took.
fn keep_calling(
    endpoint: &Endpoint,
    members: &[u64],
    stop: &Arc<AtomicBool>,
) -> tokio::task::JoinHandle<(usize, Duration)> {
    let (endpoint, stop) = (endpoint.clone(), stop.clone());
    let all = Configuration::new(members.iter().copied().map(node)).expect("they differ");
    tokio::spawn(async move {
        let (mut count, mut slowest) = (0, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            let call = endpoint.call(LEN, vec![7; 100_000]).to_all(&all).acked_by(All);
            let answer = call.await;
            assert_eq!(answer.expect("no call is lost"), 100_000, "after {count} calls");
            (count, slowest) = (count + 1, slowest.max(began.elapsed()));
            tokio::time::sleep(Duration::from_millis(7)).await;
        }
        (count, slowest)
    })
}

/// Overlays of these sites, connected, of which the last relays for all others.
async fn relayed_by_the_last(endpoints: &[Endpoint], sites: &[u64]) -> Result<Vec<Overlay>> {
    let mut overlays = Vec::new();
    for site in sites {
        let overlay = overlay_of(&endpoints[usize::try_from(*site)?], *site, sites);
        overlays.push(overlay.plan(by_the_last(sites.len())).start().await?);
    }
    for overlay in &overlays {
        within(SOON, overlay.connected()).await;
    }
    Ok(overlays)
}

/// Sites take another list one after the other, each with an orderly end of the overlay that it
/// had, while all call all with messages that travel beside their requests.
#[tokio::test(start_paused = true)]
async fn a_rolling_change_of_the_list_loses_no_call() -> Result {
    let network = SimNetwork::new(1);
    network.default_latency(Duration::from_millis(20));
    let endpoints = endpoints(&network, 4).await?;
    let (old, new) = ([0, 1, 2], [0, 1, 2, 3]);
    let mut overlays = relayed_by_the_last(&endpoints, &old).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let callers = endpoints[..3].iter().map(|endpoint| keep_calling(endpoint, &old, &stop));
    let callers: Vec<_> = callers.collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    let joining = overlay_of(&endpoints[3], 3, &new).plan(by_the_last(4)).start().await?;
    let mut renewed = Vec::new();
    for (index, overlay) in overlays.drain(..).enumerate() {
        overlay.shutdown(Duration::from_secs(5)).await;
        drop(overlay);
        let overlay =
            overlay_of(&endpoints[index], index as u64, &new).incarnation(index as u64 + 200);
        let overlay = overlay.plan(by_the_last(4)).start().await?;
        tokio::time::sleep(Duration::from_secs(10)).await;
        renewed.push(overlay);
    }
    within(SOON, joining.connected()).await;
    let before = renewed[0].counters().own_bytes;
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(renewed[0].counters().own_bytes > before, "messages travel by the new overlays");
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        let (count, slowest) = caller.await?;
        println!("{count} calls, the slowest {slowest:?}");
        assert!(slowest <= Duration::from_millis(250), "{slowest:?}");
    }
    Ok(())
}

/// The relay of all others leaves in order under load.
#[tokio::test(start_paused = true)]
async fn a_relay_that_leaves_in_order_hands_over_and_nothing_is_sent_again() -> Result {
    let network = SimNetwork::new(1);
    network.default_latency(Duration::from_millis(20));
    let endpoints = endpoints(&network, 4).await?;
    let sites = [0, 1, 2, 3];
    let overlays = relayed_by_the_last(&endpoints, &sites).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let callers = endpoints.iter().map(|endpoint| keep_calling(endpoint, &sites, &stop));
    let callers: Vec<_> = callers.collect();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(overlays[3].counters().forwarded_frames > 0);
    let began = Instant::now();
    overlays[3].shutdown(Duration::from_secs(10)).await;
    let took = began.elapsed();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let resent: u64 = overlays[..3].iter().map(|it| it.counters().resent_frames).sum();
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        let (count, slowest) = caller.await?;
        println!("{count} calls, the slowest {slowest:?}; left in {took:?}, {resent} sent again");
        assert!(slowest <= Duration::from_millis(500), "{slowest:?}");
    }
    assert!(took <= Duration::from_secs(1), "{took:?}");
    assert_eq!(resent, 0);
    Ok(())
}

/// A site of another version: it takes connections, and refuses what comes by them.
#[derive(Debug, Default)]
struct Refuses {
    opened: AtomicUsize,
}

impl Sink for Refuses {
    fn hello(&self) -> Hello {
        let (node, incarnation) = (node(1), Incarnation(7));
        Hello { node, incarnation, advertised: Vec::new(), frame_bytes_max: 1 << 20 }
    }

    fn on_open(&self, _: Arc<dyn Connection>) -> std::result::Result<(), String> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn on_batch(
        &self,
        _: &Arc<dyn Connection>,
        _: &mut dyn Iterator<Item = Received>,
    ) -> std::result::Result<(), String> {
        Err("nobody knows frames like that".into())
    }

    fn on_closed(&self, _: &Link, _: CloseReason) {}
}

#[tokio::test(start_paused = true)]
async fn a_site_that_refuses_what_comes_is_not_dialled_without_a_pause() -> Result {
    let network = SimNetwork::new(1);
    network.default_latency(Duration::from_millis(1));
    let refuses = Arc::new(Refuses::default());
    let _listener = network
        .transport()
        .listen(&"sim://site-1".parse()?, refuses.clone() as Arc<dyn Sink>)
        .await?;
    let endpoint = endpoint(&network, 0).await?;
    let overlay = overlay_of(&endpoint, 0, &[0, 1]).start().await?;
    overlay.broadcast(vec![7; 5_000]).await?;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let opened = refuses.opened.load(Ordering::Relaxed);
    assert!((5..60).contains(&opened), "{opened} connections in a minute");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sites_with_other_lists_of_sites_do_not_take_each_others_operations() -> Result {
    let network = SimNetwork::new(1);
    let endpoints = endpoints(&network, 4).await?;
    // The second has one more in the middle, so that it counts the third as another.
    let first = overlay_of(&endpoints[0], 0, &[0, 1, 3]).start().await?;
    let second = overlay_of(&endpoints[1], 1, &[0, 1, 2, 3]).start().await?;
    let third = overlay_of(&endpoints[3], 3, &[0, 1, 3]).start().await?;
    let broadcast = first.broadcast(vec![7; 10_000]).await?;
    let held = within(SOON, broadcast.settled()).await;
    assert_eq!((held.by.len(), held.missed.len()), (1, 1), "{held:?}");
    assert!(within(SOON, third.next()).await.is_some());
    let nothing = tokio::time::timeout(Duration::from_secs(30), second.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
    Ok(())
}
