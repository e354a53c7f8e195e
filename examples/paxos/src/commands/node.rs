//! `paxos node`: runs a node.

use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoke::NodeId;
use convoke::disk::HostDisk;
use node_kit::ledger::{self, Ledger, Recovered};
use node_kit::operation::{self, Listener, Metrics, NodeHealth, StopSignal};
use node_kit::processes::Parent;
use paxos::core::Standing;
use paxos::node::Node;
use paxos::settings::{self, LedgerForm};
use tokio::sync::watch;

use super::Cluster;
use crate::args::NodeArgs;

/// Time for requests that wait, and for handing the lead over.
const STOP_WITHIN: Duration = Duration::from_secs(5);

pub(crate) async fn run(args: &NodeArgs) -> Result<ExitCode> {
    operation::logs("info")?;
    let cluster = super::read(&args.config.config)?;
    let mut stop = StopSignal::listen()?;
    let (metrics, health) = (Metrics::install()?, NodeHealth::new("reading the ledger"));
    let _listener = match cluster.node(args.id)?.operation {
        Some(at) => Some(Listener::start(at, metrics, health.clone()).await?),
        None => None,
    };
    let mut node = start(&cluster, args.id, &health).await?;
    let address = &node.endpoint().addresses()[0];
    println!("node {} of cluster {} listens at {address}", args.id, cluster.name());
    let mut standing = node.standing();
    tokio::select! {
        biased;
        ended = node.failed() => {
            health.broken("the ledger has failed");
            ended.context("the node has stopped")?;
            return Ok(ExitCode::FAILURE);
        }
        () = asked_to_stop(&mut stop, args.child) => {}
        () = tell(&mut standing, &health) => {}
    }
    health.stopping();
    tokio::select! {
        biased;
        stopped = node.stop(STOP_WITHIN) => stopped.context("while stopping")?,
        signal = stop.received() => tracing::warn!("{signal} again: what is not done is left out"),
    }
    Ok(ExitCode::SUCCESS)
}

async fn start(cluster: &Cluster, id: u64, health: &NodeHealth) -> Result<Node> {
    let of_file = cluster.node(id)?;
    let folder = of_file.folder.join("ledger");
    let ledger = match cluster.protocol().ledger {
        LedgerForm::Disk => open(&folder, cluster.ledger_identity(of_file.id)).await?,
        LedgerForm::Ram => (Ledger::in_memory(), None),
    };
    // Another for each start: a ledger that is begun anew must not be taken for the one before.
    let seed = RandomState::new().hash_one(id);
    let options = settings::options(cluster, NodeId::new(id), seed)?;
    let builder = cluster.endpoint(id)?.health(health.endpoint()).metrics();
    Ok(Node::start(options, ledger, builder).await?)
}

async fn open(folder: &Path, identity: ledger::Identity) -> Result<(Ledger, Option<Recovered>)> {
    let place = || format!("the ledger in {}", folder.display());
    std::fs::create_dir_all(folder).with_context(place)?;
    let disk = HostDisk::new(folder);
    let opened = Ledger::open(disk, identity, ledger::Settings::default()).await;
    let (ledger, recovered) = opened.with_context(place)?;
    if let Some(cut) = &recovered.cut {
        tracing::warn!(file = cut.file, bytes = cut.bytes, "a torn tail was cut");
    }
    Ok((ledger, Some(recovered)))
}

/// Says how the node stands, for as long as it runs: to who asks for its health, and in the log.
async fn tell(standing: &mut watch::Receiver<Standing>, health: &NodeHealth) {
    loop {
        match *standing.borrow_and_update() {
            Standing::Leading(_) | Standing::Following(_) => health.ready(),
            Standing::Leaderless => health.not_ready("no leader is known"),
            Standing::Uncounted => {
                tracing::error!(
                    "the cluster was formed with another ledger of this node: it learns, and its \
                     votes are never counted"
                );
                health.not_ready("its votes are not counted");
            }
        }
        if standing.changed().await.is_err() {
            return std::future::pending().await; // it has stopped, and says why
        }
    }
}

async fn asked_to_stop(stop: &mut StopSignal, is_child: bool) {
    tokio::select! {
        biased;
        signal = stop.received() => tracing::info!("{signal}"),
        () = orphaned(), if is_child => {}
    }
}

async fn orphaned() {
    // An input that cannot be read has ended, too.
    let _ = Parent::silent().wait_for_end().await;
}
