//! `pbft client`: one request.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use convoke::{Endpoint, NodeId};
use node_kit::cluster::Keys;
use pbft::client::{Client, Options};
use pbft::core::{ClientId, Signer};
use pbft::key_file::SecretKey;
use pbft::settings::{self, Auth, Proposals, Settings};

use super::Cluster;
use crate::args::{ClientArgs, IdentityArgs, Way};

/// An endpoint for clients of a cluster.
pub(crate) async fn endpoint(cluster: &Cluster, identity: &IdentityArgs) -> Result<Endpoint> {
    let keys = identity.certificates.as_ref().map(Keys::in_folder);
    let node = identity.node_id.map(NodeId::try_from).transpose().context("--node-id")?;
    let proof = node.zip(keys.as_ref());
    if proof.is_none() && cluster.is_secure() {
        bail!(
            "the nodes of this cluster take only who proves a number: give --certificates FOLDER \
             --node-id N, of a number that no node has, beside the --key of a client"
        );
    }
    let builder = cluster.client(proof)?;
    Ok(builder.keep_connected().start().await?)
}

/// True when all replicas are asked at once. Nothing else will do for connections that prove
/// requests. Proposals that have digests of requests would have them pulled otherwise.
pub(crate) fn is_to_all(path: Option<Way>, settings: &Settings) -> Result<bool> {
    match (path, settings.auth) {
        (Some(Way::Primary), Auth::Channel) => bail!(
            "with auth = \"channel\" a replica believes a request that it hears from the client: \
             take --path all"
        ),
        (Some(Way::All), _) | (None, Auth::Channel) => Ok(true),
        (Some(Way::Primary), _) => Ok(false),
        (None, _) => Ok(settings.proposals == Proposals::Digests),
    }
}

/// A client of a cluster, if the key is the one that the cluster file has.
pub(crate) fn connect(
    endpoint: &Endpoint,
    cluster: &Cluster,
    (id, signer): (u64, Option<Signer>),
    options: Options,
) -> Result<Client> {
    let signer = settings::client_signer(cluster.protocol(), id, signer)?;
    let (members, keys) = (settings::members(cluster)?, Arc::new(settings::keys(cluster)?));
    Ok(Client::new(endpoint, &members, keys, (ClientId(id), signer), options))
}

/// A client of a cluster that asks for nothing which has to be signed.
pub(crate) fn reader(endpoint: &Endpoint, cluster: &Cluster, options: Options) -> Result<Client> {
    let (members, keys) = (settings::members(cluster)?, Arc::new(settings::keys(cluster)?));
    Ok(Client::new(endpoint, &members, keys, (ClientId(0), Signer::Unsigned), options))
}

/// A read that finds nothing, and a compare-and-swap that finds something else, end with code 1.
pub(crate) async fn run(args: ClientArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let key = args.key.as_deref().map(SecretKey::read).transpose()?;
    let signer = key.map(|key| key.signer());
    let endpoint = endpoint(&cluster, &args.identity).await?;
    let options = Options {
        deadline: Duration::from_secs(args.deadline),
        is_to_all: is_to_all(args.path, cluster.protocol())?,
        ..Options::default()
    };
    let mut client = connect(&endpoint, &cluster, (args.id, signer), options)?;
    let is_done = args.action.run(&mut client).await?;
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
