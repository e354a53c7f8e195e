//! `paxos client`: one request.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use paxos::client::{Client, Options};
use paxos::proto::Scan;
use paxos::settings;

use super::Cluster;
use crate::args::{ClientAction, ClientArgs};

/// A client of a cluster.
pub(crate) async fn connect(cluster: &Cluster, deadline: Duration) -> Result<Client> {
    let members = settings::members(cluster)?;
    let endpoint = cluster.client(None)?.start().await?;
    let mut options = Options::new(cluster.id(), RandomState::new().hash_one(0));
    options.deadline = deadline;
    Ok(Client::new(&endpoint, &members, options))
}

/// A read that finds nothing, and a compare-and-swap that finds something else, end with code 1.
pub(crate) async fn run(args: ClientArgs) -> Result<ExitCode> {
    let cluster = super::read(&args.config.config)?;
    let mut client = connect(&cluster, Duration::from_secs(args.deadline)).await?;
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
