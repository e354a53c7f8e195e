//! Overlays over real sockets: operations, requests whose messages travel by them, and relays that
//! die.

use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Context, Endpoint, Method, NodeId, Service, Status};
use convoke_overlay::{
    Delivery, IntroduceError, Overlay, OverlayBuilder, Plan, Site, StartError, Tree,
};
use convoke_quorum::{All, Configuration, QuorumExt};
use convoke_transport_tcp::TcpTransport;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const LEN: Method<Vec<u8>, u64> = Method::new("test.Test/Len");

async fn len(bytes: Vec<u8>, _: Context) -> std::result::Result<u64, Status> {
    Ok(bytes.len() as u64)
}

fn node(site: u64) -> NodeId {
    NodeId::new(site + 1)
}

/// An endpoint and an overlay for each site.
struct Cluster {
    endpoints: Vec<Endpoint>,
    overlays: Vec<Overlay>,
}

impl Cluster {
    /// All connected.
    async fn start(sites: u64, set: impl Fn(OverlayBuilder) -> OverlayBuilder) -> Result<Self> {
        let (mut endpoints, mut overlays) = (Vec::new(), Vec::new());
        for site in 0..sites {
            let endpoint = Endpoint::builder()
                .node(node(site))
                .transport(TcpTransport::new())
                .listen("tcp://127.0.0.1:0")
                .serve(Service::new().unary(LEN, len))
                .start()
                .await?;
            let builder = Overlay::builder(&endpoint).listen("tcp://127.0.0.1:0");
            let builder = (0..sites).fold(builder, |it, site| it.site_without_address(node(site)));
            overlays.push(set(builder).start().await?);
            endpoints.push(endpoint);
        }
        for overlay in &overlays {
            for (site, other) in overlays.iter().enumerate() {
                overlay.introduce(node(site as u64), other.addresses()[0].as_str())?;
            }
        }
        for overlay in &overlays {
            overlay.connected().await;
        }
        for (from, endpoint) in endpoints.iter().enumerate() {
            for to in &endpoints[from + 1..] {
                endpoint.connect(to.addresses()).await?;
            }
        }
        Ok(Self { endpoints, overlays })
    }

    fn configuration(&self) -> Result<Configuration> {
        Ok(Configuration::new(self.endpoints.iter().map(Endpoint::node))?)
    }

    fn bytes_sent(&self, site: usize) -> u64 {
        self.endpoints[site].counters().bytes_sent
    }
}

/// Everything of site 0 goes by way of the last site.
fn by_the_last(sites: usize) -> Plan {
    let last = Site(u16::try_from(sites - 1).unwrap());
    let trees = |root: usize| match root {
        0 => vec![Tree::relayed(sites, Site(0), last, 1_000_000)],
        _ => vec![Tree::direct(1_000_000)],
    };
    Plan::fixed(1, (0..sites).map(trees).collect()).unwrap()
}

async fn next(overlay: &Overlay) -> (Site, Bytes) {
    match overlay.next().await {
        Some(Delivery::Operation { op, payload }) => (op.source, payload),
        other => panic!("an operation was to come, not {other:?}"),
    }
}

#[tokio::test]
async fn operations_reach_all_others_once_directly_and_by_a_relay() -> Result {
    for plan in [Plan::direct(4, 0), by_the_last(4)] {
        let cluster = Cluster::start(4, |builder| builder.plan(plan.clone())).await?;
        for size in [0, 1, 1_000, 65_535, 65_536, 300_000] {
            let payload = Bytes::from(vec![u8::try_from(size % 251)?; size]);
            let broadcast = cluster.overlays[0].broadcast(payload.clone()).await?;
            for overlay in &cluster.overlays[1..] {
                assert_eq!(next(overlay).await, (Site(0), payload.clone()));
            }
            let held = broadcast.settled().await;
            assert_eq!((held.by.len(), held.missed.len(), held.is_over), (3, 0, true));
        }
        let forwarded = cluster.overlays[3].counters().forwarded_frames;
        // What has up to 1 KiB goes direct; 300,000 bytes are ten chunks.
        assert_eq!(forwarded, if plan.relays().is_empty() { 0 } else { 2 * (1 + 1 + 10) });
    }
    Ok(())
}

#[tokio::test]
async fn large_requests_travel_by_the_overlay_and_nothing_else_changes() -> Result {
    let cluster = Cluster::start(4, |builder| builder.plan(by_the_last(4))).await?;
    let all = cluster.configuration()?;
    for (size, is_carried) in [(1_000, false), (1_000_000, true)] {
        let (before, own) = (cluster.bytes_sent(0), cluster.overlays[0].counters().own_bytes);
        let call = cluster.endpoints[0].call(LEN, vec![7; size]).to_all(&all);
        assert_eq!(call.acked_by(All).await?, size as u64);
        let by_calls = cluster.bytes_sent(0) - before;
        let by_overlay = cluster.overlays[0].counters().own_bytes - own;
        if is_carried {
            assert!(by_calls < 2_000, "{by_calls} bytes went with the requests");
            assert!((1_000_000..1_010_000).contains(&by_overlay), "one copy, not {by_overlay}");
        } else {
            assert_eq!(by_overlay, 0);
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_fan_out_to_some_of_the_sites_travels_by_those() -> Result {
    let cluster = Cluster::start(4, |builder| builder.plan(by_the_last(4))).await?;
    let some = Configuration::new([node(1), node(2)])?;
    let call = cluster.endpoints[0].call(LEN, vec![7; 100_000]).to_all(&some);
    assert_eq!(call.acked_by(All).await?, 100_000);
    let own = cluster.overlays[0].counters().own_bytes;
    assert!((200_000..201_000).contains(&own), "two copies, for the relay is none of them: {own}");
    let call = cluster.endpoints[0].call(LEN, vec![7; 100_000]);
    let more = Configuration::new([node(1), node(3)])?;
    assert_eq!(call.to_all(&more).acked_by(All).await?, 100_000);
    let own = cluster.overlays[0].counters().own_bytes - own;
    assert!((100_000..101_000).contains(&own), "the last passes it on: {own}");
    Ok(())
}

#[tokio::test]
async fn a_relay_that_dies_costs_nobody_an_operation() -> Result {
    let mut cluster = Cluster::start(4, |builder| builder.plan(by_the_last(4))).await?;
    for number in 0..40u8 {
        if number == 20 {
            // In the middle of forwarding, most likely.
            drop((cluster.overlays.pop(), cluster.endpoints.pop()));
        }
        cluster.overlays[0].broadcast(vec![number; 100_000]).await?;
    }
    for overlay in &cluster.overlays[1..] {
        let mut came = Vec::new();
        while came.len() < 40 {
            came.push(next(overlay).await.1[0]);
        }
        came.sort_unstable();
        assert_eq!(came, (0..40).collect::<Vec<u8>>());
    }
    Ok(())
}

#[tokio::test]
async fn sites_come_to_a_plan_by_themselves() -> Result {
    let cluster = Cluster::start(3, |builder| builder).await?;
    let planned = async {
        while cluster.overlays.iter().any(|overlay| overlay.plan().epoch() == 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), planned).await?;
    cluster.overlays[1].broadcast(vec![1; 50_000]).await?;
    assert_eq!(next(&cluster.overlays[0]).await.0, Site(1));
    Ok(())
}

#[tokio::test]
async fn after_shutdown_requests_carry_their_messages_again() -> Result {
    let cluster = Cluster::start(3, |builder| builder.plan(by_the_last(3))).await?;
    let all = cluster.configuration()?;
    cluster.overlays[0].broadcast(vec![1; 50_000]).await?;
    cluster.overlays[0].shutdown(Duration::from_secs(20)).await;
    assert_eq!(next(&cluster.overlays[1]).await.0, Site(0));
    assert_eq!(cluster.overlays[0].next().await, None);
    let call = cluster.endpoints[0].call(LEN, vec![7; 100_000]).to_all(&all);
    assert_eq!(call.acked_by(All).await?, 100_000);
    Ok(())
}

#[tokio::test]
async fn an_overlay_of_one_site_has_nothing_to_do() -> Result {
    let cluster = Cluster::start(1, |builder| builder).await?;
    let held = cluster.overlays[0].broadcast(vec![1; 50_000]).await?.settled().await;
    assert!(held.is_over && held.by.is_empty());
    Ok(())
}

#[tokio::test]
async fn what_cannot_start_says_why() -> Result {
    let endpoint = Endpoint::builder().node(node(0)).transport(TcpTransport::new()).start().await?;
    let with = |nodes: &[u64]| {
        let builder = Overlay::builder(&endpoint);
        nodes.iter().fold(builder, |it, site| it.site_without_address(node(*site)))
    };
    let error = |started: std::result::Result<Overlay, StartError>| match started {
        Ok(_) => panic!("it was not to start"),
        Err(error) => error.to_string(),
    };
    assert!(error(with(&[1, 2]).start().await).contains("is none of the overlay's sites"));
    assert!(error(with(&[0, 1, 1]).start().await).contains("is a site twice"));
    assert!(error(with(&[]).start().await).contains("is none of the overlay's sites"));
    assert!(error(with(&[0, 1]).flows_per_site(0).start().await).contains("1 to 64, not 0"));
    assert!(error(with(&[0]).site(node(1), "tcp:/x").start().await).contains("not an address"));
    let missing = error(with(&[0]).site(node(1), "quic://x:1").start().await);
    assert!(missing.contains("QuicTransport::new(identity)"), "{missing}");
    let several = with(&[0]).site(node(1), ["tcp://127.0.0.1:1", "tcp://127.0.0.1:2"]);
    assert!(error(several.start().await).contains("was given 2 addresses"));
    assert!(error(with(&[0, 1]).listen("sim://x").start().await).contains("no transport"));
    assert!(error(with(&[0, 1]).plan(Plan::direct(3, 1)).start().await).contains("3 sites"));

    let overlay = with(&[0, 1]).start().await?;
    assert!(error(with(&[0, 1]).start().await).contains("carrier of bodies already"));
    let refused = overlay.introduce(node(9), "tcp://127.0.0.1:1");
    assert!(matches!(refused, Err(IntroduceError::NotASite { .. })));
    drop(overlay);
    with(&[0, 1]).start().await?;
    Ok(())
}
