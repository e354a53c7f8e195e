//! `paxos client`: one request.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use convoke::{Endpoint, NodeId};
use node_kit::cluster::Keys;
use paxos::client::{Client, Options};
use paxos::proto::Scan;
use paxos::settings;

use super::Cluster;
use crate::args::{ClientAction, ClientArgs, KeysArgs};

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
    let builder = cluster.client(proof.map(|proof| (proof.name, &proof.keys)))?;
    Ok(builder.start().await?)
}

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
    let members = settings::members(cluster)?;
    let mut options = Options::new(cluster.id(), RandomState::new().hash_one(0));
    options.deadline = deadline;
    Ok(Client::new(endpoint, &members, options))
}

/// A read that finds nothing, and a compare-and-swap that finds something else, end with code 1.
pub(crate) async fn run(args: ClientArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let proof = Proof::of(&args.keys)?;
    let mut client = connect(&cluster, proof.as_ref(), Duration::from_secs(args.deadline)).await?;
    let is_done = act(&mut client, args.action).await?;
    let _ = client.close().await; // a session that stays goes by itself
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn act(client: &mut Client, action: ClientAction) -> Result<bool> {
    Ok(match action {
        ClientAction::Put { key, value } => {
            client.put(key, value).await?;
            true
        }
        ClientAction::Get { key } => print(client.get(key).await?),
        ClientAction::Delete { key } => print(client.delete(key).await?),
        ClientAction::Cas { key, value, expected } => {
            match client.cas(key, expected.map(Bytes::from), value).await? {
                Ok(()) => true,
                Err(found) => {
                    print(found);
                    false
                }
            }
        }
        ClientAction::Scan { prefix, limit } => {
            scan(client, prefix, limit).await?;
            true
        }
    })
}

fn print(value: Option<Bytes>) -> bool {
    match &value {
        Some(value) => println!("{}", String::from_utf8_lossy(value)),
        None => eprintln!("there is nothing"),
    }
    value.is_some()
}

async fn scan(client: &mut Client, prefix: String, limit: u32) -> Result<()> {
    let mut scan = Scan { from: Bytes::new(), prefix: prefix.into(), limit };
    loop {
        let scanned = client.scan(scan.clone()).await?;
        for pair in &scanned.pairs {
            let text = String::from_utf8_lossy;
            writeln!(std::io::stdout(), "{}\t{}", text(&pair.key), text(&pair.value))?;
        }
        scan.limit -= u32::try_from(scanned.pairs.len()).unwrap_or(scan.limit).min(scan.limit);
        let Some(next) = scanned.next.filter(|_| scan.limit > 0) else { return Ok(()) };
        scan.from = next;
    }
}
