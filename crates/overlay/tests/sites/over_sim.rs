//! Whole sites, timers and flows included, on a simulated network with limited uplinks, in virtual
//! time.

#![expect(clippy::disallowed_methods, reason = "the clock of these tests is virtual")]

use std::time::Duration;

use convoke_core::{Context, Endpoint, Method, NodeId, Service, Status};
use convoke_overlay::{
    Bounds, Delivery, Fairness, HoseModel, Overlay, OverlayBuilder, Plan, Site, Tree, admit,
};
use convoke_quorum::{All, Configuration, QuorumExt};
use convoke_sim::transport::SimNetwork;
use tokio::time::Instant;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const SITES: usize = 5;
const LINK_KBIT: u64 = 100_000;
const OP_BYTES: usize = 64_000;

fn node(site: usize) -> NodeId {
    NodeId::new(site as u64 + 1)
}

fn latency(from: usize, to: usize) -> Duration {
    Duration::from_millis(if from == to { 0 } else { 20 + 10 * (from.abs_diff(to) as u64) })
}

/// The first site wants to send most of what all uplinks together can carry.
fn model() -> HoseModel {
    let pairs = (0..SITES).flat_map(|from| (0..SITES).map(move |to| latency(from, to)));
    HoseModel {
        uplink: vec![LINK_KBIT; SITES],
        downlink: vec![LINK_KBIT; SITES],
        latency_us: pairs.map(|one| u32::try_from(one.as_micros()).unwrap()).collect(),
        demand: vec![90_000, 500, 500, 500, 500],
        epoch: 1,
    }
}

async fn start(
    network: &SimNetwork,
    set: impl Fn(OverlayBuilder) -> OverlayBuilder,
) -> Result<Vec<(Endpoint, Overlay)>> {
    start_with(network, LINK_KBIT, set).await
}

/// All uplinks and downlinks being `link_kbit`.
async fn start_with(
    network: &SimNetwork,
    link_kbit: u64,
    set: impl Fn(OverlayBuilder) -> OverlayBuilder,
) -> Result<Vec<(Endpoint, Overlay)>> {
    let mut sites = Vec::new();
    for site in 0..SITES {
        for other in 0..SITES {
            network.latency(node(site), node(other), latency(site, other));
        }
        network.uplink(node(site), link_kbit);
        network.downlink(node(site), link_kbit);
        let endpoint = Endpoint::builder()
            .node(node(site))
            .transport(network.transport())
            .seed(site as u64)
            .listen(format!("sim://node-{site}"))
            .serve(Service::new().unary(LEN, len))
            .start()
            .await?;
        let overlay = Overlay::builder(&endpoint)
            .listen(format!("sim://site-{site}"))
            .incarnation(site as u64 + 100);
        let all = (0..SITES).map(|other| (node(other), format!("sim://site-{other}")));
        let overlay = all.fold(overlay, |it, (node, address)| it.site(node, address));
        sites.push((endpoint, set(overlay).start().await?));
    }
    for (_, overlay) in &sites {
        overlay.connected().await;
    }
    Ok(sites)
}

/// Site 0 broadcasts without a pause; what every other site got per second, the least of them,
/// kbit/s.
async fn throughput(sites: &[(Endpoint, Overlay)], warm_up: Duration, time: Duration) -> u64 {
    let source = sites[0].1.clone();
    let sending = tokio::spawn(async move {
        while let Ok(broadcast) = source.broadcast(vec![7; OP_BYTES]).await {
            drop(broadcast);
        }
    });
    let begin = Instant::now() + warm_up;
    let mut receivers = Vec::new();
    for (_, overlay) in &sites[1..] {
        let overlay = overlay.clone();
        receivers.push(tokio::spawn(async move {
            let mut bytes = 0;
            let counting = async {
                while let Some(Delivery::Operation { payload, .. }) = overlay.next().await {
                    bytes += if Instant::now() > begin { payload.len() as u64 } else { 0 };
                }
            };
            let _ = tokio::time::timeout_at(begin + time, counting).await;
            bytes
        }));
    }
    let mut least = u64::MAX;
    for receiver in receivers {
        least = least.min(receiver.await.expect("it only counts"));
    }
    sending.abort();
    least * 8 / u64::try_from(time.as_millis()).expect("seconds")
}

#[tokio::test(start_paused = true)]
async fn the_hot_site_gets_what_the_plan_gives_it_and_not_a_fourth_of_its_uplink() -> Result {
    let (warm_up, time) = (Duration::from_secs(2), Duration::from_secs(5));
    let network = SimNetwork::new(1);
    let sites = start(&network, |it| it.model(model())).await?;
    let planned = sites[0].1.plan().rate(Site(0));
    let overlay = throughput(&sites, warm_up, time).await;
    drop(sites);

    let network = SimNetwork::new(1);
    let sites = start(&network, |it| it.plan(Plan::direct(SITES, 1))).await?;
    let direct = throughput(&sites, warm_up, time).await;

    println!("planned {planned}, overlay {overlay}, direct {direct} kbit/s");
    assert!(direct <= LINK_KBIT / 4, "four copies share the uplink: {direct}");
    assert!(overlay * 100 >= planned * 95, "{overlay} of {planned}");
    assert!(overlay >= direct * 2, "{overlay} against {direct}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sites_that_know_nothing_find_their_plan_from_what_they_see() -> Result {
    let network = SimNetwork::new(1);
    let known = Bounds::fixed(LINK_KBIT);
    let sites = start(&network, |it| it.uplink(known).downlink(known)).await?;
    let overlay = throughput(&sites, Duration::from_secs(30), Duration::from_secs(5)).await;
    let plan = sites[0].1.plan();
    println!("epoch {}, relays {:?}, {overlay} kbit/s", plan.epoch(), plan.relays());
    assert!(!plan.relays().is_empty(), "one site sends everything");
    let most = admit(&model(), &Fairness::MaxMin)?.whole()[0];
    assert!(overlay * 10 >= most * 7, "{overlay} of {most} that all could be planned for");
    Ok(())
}

/// They take their links for five times what they are, so that the first plans overload all of them
/// and relays are late.
#[tokio::test(start_paused = true)]
async fn sites_that_think_too_much_of_their_links_find_what_those_carry() -> Result {
    let (network, link) = (SimNetwork::new(1), 20_000);
    let bounds = Bounds { initial: 100_000, ..Bounds::default() };
    let sites = start_with(&network, link, |it| it.uplink(bounds).downlink(bounds)).await?;
    let overlay = throughput(&sites, Duration::from_secs(100), Duration::from_secs(10)).await;
    println!("relays {:?}, {overlay} of {link} kbit/s", sites[0].1.plan().relays());
    assert!(overlay * 10 >= link * 6, "{overlay}: all direct, {} would fit", link / 4);
    Ok(())
}

/// They take their links for a tenth of what those are. Nobody has held them back yet, so nothing
/// is paced by the guess.
#[tokio::test(start_paused = true)]
async fn sites_that_think_too_little_of_their_links_are_never_slower_than_without_a_plan() -> Result
{
    let network = SimNetwork::new(1);
    let bounds = Bounds { initial: LINK_KBIT / 10, ..Bounds::default() };
    let sites = start(&network, |it| it.uplink(bounds).downlink(bounds)).await?;
    let first = throughput(&sites, Duration::ZERO, Duration::from_secs(10)).await;
    let then = throughput(&sites, Duration::from_secs(20), Duration::from_secs(10)).await;
    println!("a tenth: {first} kbit/s in the first 10 s, {then} from 30 to 40 s");
    assert!(first >= LINK_KBIT / 4, "{first}: all direct, {} would fit", LINK_KBIT / 4);
    assert!(then * 10 >= LINK_KBIT * 7, "{then}");
    Ok(())
}

/// Arrivals of a stream that takes all of its links, kbit/s, in each of six times five seconds
/// after those of the first `fallen` sites have fallen to a tenth; and the suspicions.
async fn after_a_fall(fallen: usize) -> Result<(Vec<u64>, u64)> {
    let (network, link) = (SimNetwork::new(1), LINK_KBIT / 2);
    let bounds = Bounds { initial: link, ..Bounds::default() };
    let sites = start_with(&network, link, |it| it.uplink(bounds).downlink(bounds)).await?;
    let five = Duration::from_secs(5);
    let before = throughput(&sites, 4 * five, five).await;
    assert!(before * 10 >= link * 9, "{before}");
    for site in 0..fallen {
        network.uplink(node(site), link / 10);
        network.downlink(node(site), link / 10);
    }
    let mut then = Vec::new();
    for _ in 0..6 {
        then.push(throughput(&sites, Duration::ZERO, five).await);
    }
    let suspicions = sites.iter().map(|(_, overlay)| overlay.counters().suspicions).sum();
    println!("{before} kbit/s before, then {then:?}; {suspicions} suspicions");
    Ok((then, suspicions))
}

/// All that relays are to bring is late for a while, as it waits at its source. That is not their
/// doing, and copies beside them would take the place of what waits.
#[tokio::test(start_paused = true)]
async fn a_link_that_falls_to_a_tenth_is_followed_within_seconds() -> Result {
    let (then, suspicions) = after_a_fall(1).await?;
    let link = LINK_KBIT / 20;
    assert_eq!(suspicions, 0);
    assert!(then.iter().all(|rate| rate * 10 >= link * 8), "{then:?} of {link}");
    Ok(())
}

/// Relays do not see their own fall as long as their connections take all that they forward.
#[tokio::test(start_paused = true)]
async fn links_that_all_fall_carry_more_than_without_a_plan() -> Result {
    let (then, _) = after_a_fall(SITES).await?;
    let direct = LINK_KBIT / 20 / 4;
    assert!(then.iter().all(|rate| *rate > direct), "{then:?}: all direct, {direct} would fit");
    Ok(())
}

const LEN: Method<Vec<u8>, u64> = Method::new("test.Test/Len");

async fn len(bytes: Vec<u8>, _: Context) -> std::result::Result<u64, Status> {
    Ok(bytes.len() as u64)
}

/// The relay of the only tree loses its link to one receiver: what it should bring there comes
/// another way.
#[tokio::test(start_paused = true)]
async fn carried_requests_are_as_fast_when_a_relay_does_not_reach_a_receiver() -> Result {
    let network = SimNetwork::new(1);
    let trees = |root: usize| match root {
        0 => vec![Tree::relayed(SITES, Site(0), Site(1), 50_000)],
        _ => vec![Tree::direct(1_000)],
    };
    let plan = Plan::fixed(1, (0..SITES).map(trees).collect())?;
    let sites = start(&network, |it| it.plan(plan.clone())).await?;
    for (to, (endpoint, _)) in sites.iter().enumerate() {
        let address = endpoint.addresses()[0].to_string();
        for (caller, _) in sites.iter().take(to) {
            caller.connect(&address).await?;
        }
    }
    let others = Configuration::new((1..SITES).map(node))?;
    let mut slowest = Vec::new();
    for is_cut in [false, true] {
        if is_cut {
            network.partition(node(1), node(3));
        }
        let mut took = Vec::new();
        for _ in 0..20 {
            let began = Instant::now();
            let call = sites[0].0.call(LEN, vec![7; 100_000]).to_all(&others);
            assert_eq!(call.acked_by(All).await?, 100_000);
            took.push(began.elapsed());
        }
        slowest.push(took.into_iter().max().unwrap_or_default());
    }
    println!("slowest write to all: {:?} before, {:?} after", slowest[0], slowest[1]);
    assert!(slowest[1] <= slowest[0] * 2, "{slowest:?}");
    Ok(())
}

/// Operations of a site at a rate, each with the time at which it was offered, and how long each
/// took to every receiver, with that time.
async fn deliveries(
    sites: &[(Endpoint, Overlay)],
    rate_kbit: u64,
    time: Duration,
    meanwhile: impl Future<Output = ()>,
) -> Vec<(Duration, Duration)> {
    let (begin, source) = (Instant::now(), sites[0].1.clone());
    let every = Duration::from_micros(OP_BYTES as u64 * 8_000 / rate_kbit);
    let sending = tokio::spawn(async move {
        for number in 0.. {
            let at = every * number;
            tokio::time::sleep_until(begin + at).await;
            let mut payload = vec![7; OP_BYTES];
            let nanos = u64::try_from(at.as_nanos()).expect("it is soon");
            payload[..8].copy_from_slice(&nanos.to_le_bytes());
            if source.broadcast(payload).await.is_err() {
                return;
            }
        }
    });
    let receivers = sites[1..].iter().map(|(_, overlay)| {
        let overlay = overlay.clone();
        tokio::spawn(async move {
            let mut took = Vec::new();
            let receiving = async {
                while let Some(Delivery::Operation { payload, .. }) = overlay.next().await {
                    let nanos = u64::from_le_bytes(payload[..8].try_into().expect("eight bytes"));
                    let sent = Duration::from_nanos(nanos);
                    took.push((sent, begin.elapsed() - sent));
                }
            };
            let _ = tokio::time::timeout_at(begin + time, receiving).await;
            took
        })
    });
    let receivers: Vec<_> = receivers.collect();
    meanwhile.await;
    let mut all = Vec::new();
    for receiver in receivers {
        all.extend(receiver.await.expect("it only counts"));
    }
    sending.abort();
    all
}

/// Plans from what the sites measure, at three quarters of what they can be planned for.
#[tokio::test(start_paused = true)]
async fn a_relay_of_a_live_plan_that_dies_costs_three_round_trips() -> Result {
    let round_trip = 2 * latency(0, SITES - 1);
    let network = SimNetwork::new(1);
    let known = Bounds::fixed(LINK_KBIT);
    let mut sites = start(&network, |it| it.uplink(known).downlink(known)).await?;
    let rate = admit(&model(), &Fairness::MaxMin)?.whole()[0] * 3 / 4;
    let (dies_at, end) = (Duration::from_secs(30), Duration::from_secs(38));
    let first = sites[0].1.clone();
    let (endpoint, dying) = sites.remove(2);
    let reader = dying.clone();
    let reading = tokio::spawn(async move { while reader.next().await.is_some() {} });
    let kill = async {
        tokio::time::sleep(dies_at).await;
        let trees = first.plan().trees(Site(0)).to_vec();
        assert!(trees.iter().any(|tree| tree.relay == Some(dying.site())), "{trees:?}");
        network.crash(node(2));
        reading.abort();
        drop((endpoint, dying));
    };
    let took = deliveries(&sites, rate, end, kill).await;
    let worst = |from: Duration, until: Duration| {
        let part = took.iter().filter(|(sent, _)| (from..until).contains(sent));
        part.map(|(_, took)| *took).max().expect("something was sent")
    };
    let second = Duration::from_secs(1);
    let before = worst(dies_at - 6 * second, dies_at - 2 * second);
    let hit = worst(dies_at - 2 * second, end - second);
    let after = worst(dies_at + 2 * second, end - second);
    let by_second = (0..7).map(|at| worst(dies_at + at * second, dies_at + (at + 1) * second));
    let by_second: Vec<Duration> = by_second.collect();
    println!(
        "{rate} kbit/s: worst {before:?} before, {hit:?} then, {after:?} after; {by_second:?}"
    );
    let suspicions: u64 = sites.iter().map(|(_, overlay)| overlay.counters().suspicions).sum();
    assert_eq!(suspicions, 0, "the others are healthy");
    // The links say so one way later.
    assert!(hit <= 3 * round_trip + round_trip / 2, "{hit:?}");
    assert!(after <= before + before / 2, "{after:?} and {before:?} before");
    Ok(())
}

/// The direct way has no rate in such a plan.
#[tokio::test(start_paused = true)]
async fn a_stream_whose_only_relay_is_gone_goes_directly_at_its_rate() -> Result {
    let (network, rate) = (SimNetwork::new(1), 20_000);
    let trees = |root: usize| match root {
        0 => vec![Tree::relayed(SITES, Site(0), Site(4), rate)],
        _ => vec![Tree::direct(1_000)],
    };
    let plan = Plan::fixed(1, (0..SITES).map(trees).collect())?;
    let mut sites = start(&network, |it| it.plan(plan.clone())).await?;
    sites.truncate(4);
    let direct = throughput(&sites, Duration::from_secs(6), Duration::from_secs(5)).await;
    assert!(direct * 10 >= rate * 9, "{direct} of {rate}");
    Ok(())
}
