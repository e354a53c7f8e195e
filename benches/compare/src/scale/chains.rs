//! Chains of servers at the highest rate that the machine makes, and what each server then holds.

use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use convoke::{Endpoint, Peer};
use serde::{Deserialize, Serialize};

use crate::lab::{BODY_BYTES, HOPS, Held, Host, Remote, Room, until};

use super::Part;

/// Servers of a chain.
const SERVERS: usize = 5;
/// Chains at once.
const CALLERS: usize = 64;
/// Calls that each server may remember for good: too few to be worth a question.
const REMEMBERED_MAX: usize = 64;

/// Traces that chains leave behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChainRow {
    /// How many.
    pub count: usize,
    /// Servers that the client has a connection to, from the first on.
    pub connected: usize,
    /// Chains.
    pub per_second: f64,
    /// From the last chain until every server remembers at most 64 calls.
    pub forgotten_ms: f64,
    /// The tables of the servers then, in the order of the chain.
    pub held: Vec<Held>,
    /// Growth of the resident memory of each server since the warm-up, right after the last chain.
    pub resident_bytes_grown: Option<Vec<i64>>,
}

pub(super) async fn measure(program: &Path, part: &Part, connected: usize) -> Result<ChainRow> {
    let mut servers = Vec::new();
    for node in 1..=SERVERS as u64 {
        servers.push(Remote::start(program, &Host::new(node, Room::DEFAULT))?);
    }
    let addresses: Vec<String> = servers.iter().map(|server| server.address().to_owned()).collect();
    for (server, next) in servers.iter_mut().zip(&addresses[1..]) {
        server.join(next)?;
    }
    let room = Room::DEFAULT;
    let endpoint = room.endpoint().transport(room.transport()?).start().await?;
    let mut first = None;
    for address in addresses[..connected].iter().rev() {
        first = Some(endpoint.connect(address).await?);
    }
    let client = Client { endpoint, first: first.expect("it knows the first at least") };
    client.go((part.count / 10).max(CALLERS)).await?; // to warm up
    forgotten(&mut servers).await?;
    let before = resident(&mut servers)?;

    let begun = Instant::now();
    client.go(part.count).await?;
    let time = begun.elapsed();
    let over = Instant::now();
    let after = resident(&mut servers)?;
    let held = forgotten(&mut servers).await?;
    let grown = before.iter().zip(&after).map(|(before, after)| {
        Some(i64::try_from((*after)?).ok()? - i64::try_from((*before)?).ok()?)
    });
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let per_second = part.count as f64 / time.as_secs_f64();
    Ok(ChainRow {
        count: part.count,
        connected,
        per_second,
        forgotten_ms: over.elapsed().as_secs_f64() * 1e3,
        held,
        resident_bytes_grown: grown.collect(),
    })
}

/// Waits until every server remembers little. What they hold then.
async fn forgotten(servers: &mut [Remote]) -> Result<Vec<Held>> {
    let mut all = Vec::new();
    until(Room::DEFAULT.longest(), "all servers have forgotten the chains", || {
        let states = servers.iter_mut().map(|server| Ok(server.state()?.held));
        all = states.collect::<Result<Vec<Held>>>()?;
        Ok(all.iter().all(|held| held.remembered <= REMEMBERED_MAX && held.tasks == 0))
    })
    .await?;
    Ok(all)
}

fn resident(servers: &mut [Remote]) -> Result<Vec<Option<u64>>> {
    servers.iter_mut().map(|server| Ok(server.state()?.resident_bytes)).collect()
}

#[derive(Clone)]
struct Client {
    endpoint: Endpoint,
    first: Peer,
}

impl Client {
    async fn go(&self, count: usize) -> Result<()> {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let each = count / CALLERS + usize::from(caller < count % CALLERS);
                tokio::spawn(self.clone().call(each))
            })
            .collect();
        for caller in callers {
            caller.await??;
        }
        Ok(())
    }

    async fn call(self, times: usize) -> Result<()> {
        for _ in 0..times {
            let request = HOPS.request(vec![7; BODY_BYTES]);
            let reply = self.endpoint.invoke(request).to(self.first).await?;
            ensure!(reply.len() == BODY_BYTES, "a reply of {} bytes", reply.len());
        }
        Ok(())
    }
}
