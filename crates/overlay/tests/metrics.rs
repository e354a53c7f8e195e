//! Metrics of sites, as a recorder sees them, on a simulated network in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::{Endpoint, NodeId};
use convoke_overlay::{Overlay, Plan, Site, Tree};
use convoke_sim::transport::SimNetwork;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

const SITES: usize = 3;

fn node(site: usize) -> NodeId {
    NodeId::new(site as u64 + 1)
}

/// Sites that count, connected with each other. The first sends by way of the last.
async fn start(network: &SimNetwork) -> Result<Vec<(Endpoint, Overlay)>> {
    network.default_latency(Duration::from_millis(5));
    let trees = |root: usize| match root {
        0 => vec![Tree::relayed(SITES, Site(0), Site(2), 50_000)],
        _ => vec![Tree::direct(1_000)],
    };
    let plan = Plan::fixed(7, (0..SITES).map(trees).collect())?;
    let mut sites = Vec::new();
    for site in 0..SITES {
        let endpoint = Endpoint::builder().node(node(site)).transport(network.transport());
        let endpoint = endpoint.start().await?;
        let overlay = Overlay::builder(&endpoint).listen(format!("sim://site-{site}"));
        let all = (0..SITES).map(|other| (node(other), format!("sim://site-{other}")));
        let overlay = all.fold(overlay, |it, (node, address)| it.site(node, address));
        sites.push((endpoint, overlay.plan(plan.clone()).metrics().start().await?));
    }
    for (_, overlay) in &sites {
        overlay.connected().await;
    }
    Ok(sites)
}

/// Counts since the last time, and present values of gauges, by name and labels.
fn seen(snapshotter: &Snapshotter) -> BTreeMap<String, f64> {
    let mut seen = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels = key.key().labels().map(|it| format!("{}={}", it.key(), it.value()));
        let name = format!("{} {}", key.key().name(), labels.collect::<Vec<_>>().join(" "));
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(_) => continue,
        };
        seen.insert(name, value);
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn a_scrape_shows_who_relays_for_whom_and_what_the_plan_says() -> Result {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _installed = metrics::set_default_local_recorder(&recorder);
    let network = SimNetwork::new(1);
    let sites = start(&network).await?;
    for _ in 0..10 {
        sites[0].1.broadcast(vec![7; 20_000]).await?.settled().await;
    }
    for (_, overlay) in &sites {
        overlay.sample_metrics();
    }
    let counted = seen(&snapshotter);
    let of = |name: &str| *counted.get(name).unwrap_or_else(|| panic!("{name}: {counted:#?}"));
    let payload = 200_000.0;
    let own = of("convoke_overlay_bytes_total node=n1 kind=own");
    assert!((payload..payload * 1.01).contains(&own), "one copy: {own}");
    assert_eq!(of("convoke_overlay_relayed_by_bytes_total node=n1 relay=n3"), own);
    let forwarded = of("convoke_overlay_relayed_for_bytes_total node=n3 root=n1");
    assert_eq!(of("convoke_overlay_bytes_total node=n3 kind=forwarded"), forwarded);
    assert!(forwarded >= payload, "{forwarded}");
    assert_eq!(of("convoke_overlay_delivered_total node=n2"), 10.0);
    assert_eq!(of("convoke_overlay_plan_epoch node=n2"), 7.0);
    assert_eq!(of("convoke_overlay_planned_kbit node=n1"), 50_000.0);
    assert_eq!(of("convoke_overlay_planned_by_kbit node=n1 relay=n3"), 50_000.0);
    assert_eq!(of("convoke_overlay_suspected node=n1 relay=n3"), 0.0);
    assert_eq!(of("convoke_overlay_unacked_bytes node=n1"), 0.0);

    // The relay is gone without a word.
    network.partition(node(2), node(0));
    network.partition(node(2), node(1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    sites[0].1.sample_metrics();
    let failing = seen(&snapshotter)["convoke_overlay_relays_failing node=n1"];
    assert_eq!(failing, 1.0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn sites_that_start_again_in_a_process_count_on() -> Result {
    let recorder = DebuggingRecorder::new();
    let _installed = metrics::set_default_local_recorder(&recorder);
    for life in 1..4 {
        let sites = start(&SimNetwork::new(life)).await?;
        for _ in 0..10 {
            sites[0].1.broadcast(vec![7; 20_000]).await?.settled().await;
        }
        sites.iter().for_each(|(_, overlay)| overlay.sample_metrics());
    }
    let seen = seen(&recorder.snapshotter());
    assert_eq!(seen["convoke_overlay_delivered_total node=n2"], 30.0);
    let own = seen["convoke_overlay_relayed_by_bytes_total node=n1 relay=n3"];
    assert!((600_000.0..606_000.0).contains(&own), "{own}");
    Ok(())
}
