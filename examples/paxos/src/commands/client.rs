//! `paxos client`: one request.

use std::hash::{BuildHasher as _, RandomState};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use convoke::{Endpoint, EndpointBuilder, NodeId};
use node_kit::cluster::Keys;
use node_kit::program::store::Action;
use paxos::client::{Client, Options, Shape};
use paxos::settings;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::{Cluster, Local};
use crate::args::{ClientArgs, KeysArgs};

/// Time for a request that reads something back.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(30);

/// Time in which a cluster has to have a leader, on a machine with much else to do.
pub(crate) const LEADER_WITHIN: Duration = Duration::from_secs(30);

/// Keys of a client, and the number that they prove.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    pub(crate) name: NodeId,
    pub(crate) keys: Keys,
}

impl Proof {
    pub(crate) fn of(args: &KeysArgs) -> Result<Option<Self>> {
        let (Some(folder), Some(name)) = (&args.keys, args.name) else { return Ok(None) };
        Ok(Some(Self { name: NodeId::try_from(name)?, keys: Keys::in_folder(folder) }))
    }
}

/// An endpoint for clients of a cluster.
pub(crate) async fn endpoint(cluster: &Cluster, proof: Option<&Proof>) -> Result<Endpoint> {
    Ok(builder(cluster, proof)?.start().await?)
}

fn builder(cluster: &Cluster, proof: Option<&Proof>) -> Result<EndpointBuilder> {
    if proof.is_none() && cluster.is_secure() {
        bail!(
            "the nodes of this cluster take only who proves a number: give --keys FOLDER --name N, \
             of a number that no node has"
        );
    }
    Ok(cluster.client(proof.map(|proof| (proof.name, &proof.keys)))?)
}

/// An endpoint for clients whose puts are answered so. Where voters have to reach it, it is
/// connected to all that are up.
pub(crate) async fn endpoint_for(
    shape: Shape,
    builder: EndpointBuilder,
    cluster: &Cluster,
) -> Result<Endpoint> {
    if shape == Shape::Gather {
        return Ok(builder.start().await?);
    }
    let endpoint = builder.keep_connected().start().await?;
    let mut connecting = JoinSet::new();
    for node in cluster.nodes() {
        let (endpoint, node) = (endpoint.clone(), node.id);
        connecting.spawn(async move { endpoint.warm_up(node).await });
    }
    // One that is not there in time has no vote at first: a majority need not have it.
    let _ = timeout(CONNECTED_WITHIN, connecting.join_all()).await;
    Ok(endpoint)
}

/// Time for connections to all nodes.
const CONNECTED_WITHIN: Duration = Duration::from_secs(1);

/// A client of a cluster.
pub(crate) async fn connect(
    cluster: &Cluster,
    proof: Option<&Proof>,
    deadline: Duration,
) -> Result<Client> {
    of_endpoint(&endpoint(cluster, proof).await?, cluster, deadline)
}

/// A client of a cluster by an endpoint that is there: two endpoints at a time cannot prove one
/// number.
pub(crate) fn of_endpoint(
    endpoint: &Endpoint,
    cluster: &Cluster,
    deadline: Duration,
) -> Result<Client> {
    Ok(Client::new(endpoint, &settings::members(cluster)?, options(cluster, deadline)))
}

fn options(cluster: &Cluster, deadline: Duration) -> Options {
    let mut options = Options::new(cluster.id(), RandomState::new().hash_one(0));
    options.deadline = deadline;
    options
}

/// Clients of a cluster, each with an endpoint of its own.
pub(crate) async fn several(
    cluster: &Cluster,
    shape: Shape,
    count: u64,
    deadline: Duration,
) -> Result<Vec<Client>> {
    let members = settings::members(cluster)?;
    let mut clients = Vec::new();
    for _ in 0..count {
        let endpoint = endpoint_for(shape, cluster.client(None)?, cluster).await?;
        let options = Options { shape, ..options(cluster, deadline) };
        clients.push(Client::new(&endpoint, &members, options));
    }
    Ok(clients)
}

/// A read that finds nothing, and a compare-and-swap that finds something else, end with code 1.
pub(crate) async fn run(args: ClientArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let stale = args.stale.map(|id| cluster.node(id)).transpose()?.map(|node| node.id);
    let proof = Proof::of(&args.keys)?;
    let builder = builder(&cluster, proof.as_ref())?;
    let endpoint = endpoint_for(args.shape, builder, &cluster).await?;
    let mut options = options(&cluster, Duration::from_secs(args.deadline));
    options.shape = args.shape;
    options.stale = stale;
    let mut client = Client::new(&endpoint, &settings::members(&cluster)?, options);
    let is_put = matches!(args.action, Action::Put { .. });
    let is_done = args.action.run(&mut client).await?;
    if args.shape == Shape::Direct && is_put {
        let who = if client.decided_by_votes() > 0 { "votes" } else { "the leader" };
        eprintln!("answered by {who}");
    }
    let _ = client.close().await; // a session that stays goes by itself
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The node that leads, once there is one.
pub(crate) async fn leader(local: &Local) -> Result<u64> {
    let client = connect(local.cluster(), None, Duration::from_secs(1)).await?;
    let end = Instant::now() + LEADER_WITHIN;
    while Instant::now() < end {
        for node in local.cluster().nodes() {
            let state = client.inspect(node.id).await;
            if let Ok(state) = state
                && state.standing == "leading"
            {
                return Ok(state.node);
            }
        }
        sleep(Duration::from_millis(20)).await;
    }
    bail!("no node leads after {} s", LEADER_WITHIN.as_secs())
}
