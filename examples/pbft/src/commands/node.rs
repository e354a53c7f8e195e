//! `pbft node`: runs a node.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use console::say;
use convoke::transport::IdentityWatch;
use node_kit::cluster::{Credits, Rdma};
use node_kit::operation::{self, Listener, Metrics, NodeHealth, StopSignal};
use node_kit::program::{asked_to_stop, ledger, renewed, unless_asked_to_stop};
use pbft::core::Signer;
use pbft::key_file::SecretKey;
use pbft::node::{Node, NodeError, Part, Standing};
use pbft::settings::{self, Auth};
use tokio::sync::watch;

use super::Cluster;
use crate::args::NodeArgs;

/// Time for the ledger to be closed.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// The secret key of a node, in its folder.
pub(super) const KEY_FILE: &str = "sign.key";

pub(crate) async fn run(args: &NodeArgs) -> Result<ExitCode> {
    let page = operation::logs_and_page("info", args.page)?;
    let cluster = super::read(&args.config.config)?.over_rdma(rdma(args));
    let mut stop = StopSignal::listen()?;
    let (metrics, health) = (Metrics::install()?, NodeHealth::new("reading the ledger"));
    let at = cluster.node(args.id)?.operation;
    let _listener = Listener::of_node(at, metrics.clone(), &health, page.as_ref()).await?;
    let start = start(&cluster, args, &health);
    let Some(node) = unless_asked_to_stop(start, &mut stop, args.child).await else {
        return Ok(ExitCode::SUCCESS);
    };
    let (mut node, _renewal) = node?;
    metrics.sample(node.endpoint());
    page.iter().for_each(|page| page.show(node.endpoint()));
    let address = &node.endpoint().addresses()[0];
    say(format_args!("node {} of cluster {} listens at {address}", args.id, cluster.name()))?;
    let mut standing = node.standing();
    tokio::select! {
        biased;
        ended = node.failed() => {
            if let Err(removed @ NodeError::Removed(_)) = &ended {
                say(format_args!("node {} stops: {removed}", args.id))?;
                return Ok(ExitCode::SUCCESS);
            }
            health.broken("the ledger has failed");
            ended.context("the node has stopped")?;
            return Ok(ExitCode::FAILURE);
        }
        signal = asked_to_stop(&mut stop, args.child) => {
            signal.iter().for_each(|signal| tracing::info!("{signal}"));
        }
        () = tell(&mut standing, &health) => {}
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

fn rdma(args: &NodeArgs) -> Rdma {
    let default = Rdma::default();
    Rdma {
        window: args.window.unwrap_or(default.window),
        credits: args.credits.map_or(default.credits, Credits::from),
    }
}

/// A node, and what renews its certificate.
type Started = (Node, Option<IdentityWatch>);

async fn start(cluster: &Cluster, args: &NodeArgs, health: &NodeHealth) -> Result<Started> {
    let NodeArgs { id, lie, .. } = *args;
    let signer = signer(cluster, id)?;
    let mut options = settings::options(cluster, cluster.node(id)?.id, signer)?;
    options.lie = lie.map(Into::into);
    if cluster.protocol().auth == Auth::None {
        tracing::warn!("nothing is signed: anybody can say anything in anybody's name");
    }
    let opened = ledger::open(cluster, id, cluster.protocol().ledger).await?;
    if let Some(cut) = opened.1.as_ref().and_then(|recovered| recovered.cut.as_ref()) {
        tracing::warn!(file = cut.file, bytes = cut.bytes, "a torn tail was cut");
    }
    let (builder, identity) = cluster.endpoint(id)?;
    let builder = builder.health(health.endpoint()).metrics();
    let node = Node::start(options, opened, builder).await?;
    Ok((node, identity.as_ref().map(renewed)))
}

/// The key of a node, which has to be that of the file.
pub(super) fn signer(cluster: &Cluster, id: u64) -> Result<Signer> {
    let key = SecretKey::read(&cluster.node(id)?.folder.join(KEY_FILE))?;
    let node = cluster.node(id)?.id;
    Ok(settings::node_signer(cluster.protocol(), node, key.signer())?)
}

/// Says how the node stands, for as long as it runs.
async fn tell(standing: &mut watch::Receiver<Standing>, health: &NodeHealth) {
    loop {
        let now = *standing.borrow_and_update();
        match lacking(now) {
            None => health.ready(),
            Some(lacking) => health.not_ready(lacking),
        }
        if standing.changed().await.is_err() {
            return std::future::pending().await; // it has stopped, and says why
        }
    }
}

/// The reason the others should not do without another node beside this one.
fn lacking(Standing { view, has_begun, primary, part }: Standing) -> Option<String> {
    let lacking = match part {
        Part::Outside => "it is no member: `pbft member add` lets it join",
        Part::Hearing => "it has not heard yet how far a quorum of the members is",
        Part::Fetching => "it fetches the state, which the others have",
        Part::Whole if has_begun => return None,
        Part::Whole => return Some(format!("view {view} of {primary} has not begun")),
    };
    Some(lacking.to_owned())
}
