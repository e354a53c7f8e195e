//! `paxos node`: runs a node.

use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use console::say;
use convoke::NodeId;
use convoke::transport::IdentityWatch;
use node_kit::operation::{self, Listener, Metrics, NodeHealth, StopSignal};
use node_kit::program::{asked_to_stop, ledger, renewed, unless_asked_to_stop};
use paxos::node::{Lacking, Node};
use paxos::settings;
use tokio::sync::watch;

use super::Cluster;
use crate::args::NodeArgs;

/// Time for requests that wait, and for handing the lead over.
const STOP_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &NodeArgs) -> Result<ExitCode> {
    let page = operation::logs_and_page("info", args.page)?;
    let cluster = super::read(&args.config.config)?;
    let mut stop = StopSignal::listen()?;
    let (metrics, health) = (Metrics::install()?, NodeHealth::new("reading the ledger"));
    let at = cluster.node(args.id)?.operation;
    let _listener = Listener::of_node(at, metrics.clone(), &health, page.as_ref()).await?;
    let start = start(&cluster, args.id, &health);
    let Some(node) = unless_asked_to_stop(start, &mut stop, args.child).await else {
        return Ok(ExitCode::SUCCESS);
    };
    let (mut node, _renewal) = node?;
    metrics.sample(node.endpoint());
    page.iter().for_each(|page| page.show(node.endpoint()));
    let address = &node.endpoint().addresses()[0];
    say(format_args!("node {} of cluster {} listens at {address}", args.id, cluster.name()))?;
    let mut lacking = node.lacking();
    tokio::select! {
        biased;
        ended = node.failed() => {
            health.broken("the ledger has failed");
            ended.context("the node has stopped")?;
            return Ok(ExitCode::FAILURE);
        }
        signal = asked_to_stop(&mut stop, args.child) => {
            signal.iter().for_each(|signal| tracing::info!("{signal}"));
        }
        () = tell(&mut lacking, &health) => {}
    }
    health.stopping();
    tokio::select! {
        biased;
        stopped = node.stop(STOP_WITHIN) => stopped.context("while stopping")?,
        signal = stop.received() => {
            tracing::warn!("{signal} again: what is not done is left out");
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A node, and what renews its certificate.
type Started = (Node, Option<IdentityWatch>);

async fn start(cluster: &Cluster, id: u64, health: &NodeHealth) -> Result<Started> {
    let opened = ledger::open(cluster, id, cluster.protocol().ledger).await?;
    if let Some(cut) = opened.1.as_ref().and_then(|recovered| recovered.cut.as_ref()) {
        tracing::warn!(file = cut.file, bytes = cut.bytes, "a torn tail was cut");
    }
    // Another for each start: a ledger that is begun anew must not be taken for the one before.
    let seed = RandomState::new().hash_one(id);
    let options = settings::options(cluster, NodeId::new(id), seed)?;
    let (builder, identity) = cluster.endpoint(id)?;
    let builder = builder.health(health.endpoint()).metrics();
    let node = Node::start(options, opened, builder).await?;
    Ok((node, identity.as_ref().map(renewed)))
}

/// Says whether the node is ready, for as long as it runs, to who asks for its health.
async fn tell(lacking: &mut watch::Receiver<Option<Lacking>>, health: &NodeHealth) {
    loop {
        let now = *lacking.borrow_and_update();
        match now {
            None => health.ready(),
            Some(lacking) => health.not_ready(lacking.to_string()),
        }
        if lacking.changed().await.is_err() {
            return std::future::pending().await; // it has stopped, and says why
        }
    }
}
