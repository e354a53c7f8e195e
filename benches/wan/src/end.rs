//! One end of a path: an endpoint that answers calls and makes them at a rate.

mod bulk;
mod calls;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use convoke_core::transport::Transport;
use convoke_core::{Context, Endpoint, Method, Service, Status};
use convoke_transport_tcp::{Identity, QuicTransport, TcpTransport};
use serde::Serialize;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin, stdin};

use crate::protocol::{Calls, Pems, Start};
use crate::wire::{Scheme, Wire};

/// Answers what it is asked.
const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("wan.Lab/Echo");

/// Answers as many bytes as it is asked for.
const BULK: Method<u32, Vec<u8>> = Method::new("wan.Lab/Bulk");

/// Largest reply in bulk: what fits a frame with the defaults.
const BULK_BYTES_MAX: u32 = 4 << 20;

/// Time for the last calls at the end.
const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// Starts as the first line of its input says, and takes orders for calls until the input ends.
pub(crate) fn run() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let mut lines = BufReader::new(stdin()).lines();
        let first = lines.next_line().await?.context("the input ended before the first line")?;
        let endpoint = start(serde_json::from_str(&first)?).await?;
        let done = obey(&endpoint, &mut lines).await;
        endpoint.shutdown(CLOSE_GRACE).await;
        done
    });
    // Reading standard input may still hold a thread of the runtime.
    runtime.shutdown_background();
    done
}

async fn obey(endpoint: &Endpoint, lines: &mut Lines<BufReader<Stdin>>) -> anyhow::Result<()> {
    let addresses = endpoint.addresses().iter();
    say(&addresses.map(ToString::to_string).collect::<Vec<_>>())?;
    while let Some(line) = lines.next_line().await? {
        let calls: Calls = serde_json::from_str(&line).context("reading which calls to make")?;
        say(&calls.make(endpoint).await?)?;
    }
    Ok(())
}

fn say(answer: &impl Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string(answer)?);
    Ok(())
}

async fn start(start: Start) -> anyhow::Result<Endpoint> {
    let identity = start.identity.map(Pems::identity).transpose()?;
    let mut builder = Endpoint::builder();
    if let Some(identity) = &identity {
        builder = builder.node(identity.node());
    }
    if let Some(address) = start.listen {
        builder = builder.listen(address);
    }
    let service = Service::new().unary(ECHO, echo).unary(BULK, bulk);
    Ok(builder.transport(start.wire.transport(identity)?).serve(service).start().await?)
}

async fn echo(request: Vec<u8>, _: Context) -> Result<Vec<u8>, Status> {
    Ok(request)
}

async fn bulk(bytes: u32, _: Context) -> Result<Vec<u8>, Status> {
    Ok(vec![0x5a; bytes.min(BULK_BYTES_MAX) as usize])
}

impl Pems {
    fn identity(self) -> anyhow::Result<Identity> {
        Ok(Identity::from_pem(self.certificate, self.key, self.trust)?)
    }
}

impl Wire {
    /// The transport, with its defaults but for the flows.
    fn transport(self, identity: Option<Identity>) -> anyhow::Result<Arc<dyn Transport>> {
        let tcp = TcpTransport::builder().flows(self.flows);
        let identity = || identity.context("nobody gave this end a certificate");
        Ok(match self.scheme {
            Scheme::Tcp => Arc::new(tcp.build()?),
            Scheme::Tls => Arc::new(tcp.tls(identity()?).build()?),
            Scheme::Quic => Arc::new(QuicTransport::new(identity()?)),
        })
    }
}
