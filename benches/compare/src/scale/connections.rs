//! Many connections to one server, each by an endpoint of its own, used once and idle since.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use convoke::Endpoint;
use serde::{Deserialize, Serialize};

use crate::lab::{BODY_BYTES, ECHO, Host, PerOne, Remote};

use super::Part;

/// Cost of idle connections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionRow {
    /// How many.
    pub count: usize,
    /// Resident memory for each; the client's includes an endpoint for each.
    pub resident_bytes_each: PerOne,
}

pub(super) async fn measure(program: &Path, part: &Part) -> Result<ConnectionRow> {
    let mut server = Remote::start(program, &Host::new(1, part.room()))?;
    // What only the first of them costs is no part of the price.
    let first = connect(part, server.address()).await?;
    let before = server.states(&first)?;
    let mut endpoints = Vec::with_capacity(part.count);
    for number in 1..=part.count {
        let connected = connect(part, server.address()).await;
        endpoints.push(connected.with_context(|| refused(number, part.count))?);
    }
    let all = part.count + 1;
    server.until("all are connected", |held| held.connections == all).await?;
    let resident_bytes_each = server.states(&first)?.each(&before, part.count);
    for endpoint in endpoints {
        endpoint.shutdown(Duration::from_secs(1)).await;
    }
    server.until("all but one have gone", |held| held.connections == 1).await?;
    Ok(ConnectionRow { count: part.count, resident_bytes_each })
}

async fn connect(part: &Part, address: &str) -> Result<Endpoint> {
    let endpoint = part.room().endpoint().transport(part.room().transport()?).start().await?;
    let peer = endpoint.connect(address).await?;
    // Its buffers are made when they are first needed.
    endpoint.call(ECHO, vec![0; BODY_BYTES]).to(peer).await?;
    Ok(endpoint)
}

fn refused(number: usize, count: usize) -> String {
    format!(
        "connection {number} of {count} cannot be opened (each is an open file in either process: if there may be \
         no more, raise the limit, `ulimit -n {}`)",
        count + 64
    )
}
