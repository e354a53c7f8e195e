//! `tarpc`: a call for each request, bincode in length-delimited frames.

use anyhow::{Result, ensure};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tarpc::client;
use tarpc::context::{self, Context};
use tarpc::server::{BaseChannel, Channel as _};
use tarpc::tokio_util::codec::LengthDelimitedCodec;
use tokio::net::{TcpListener, TcpStream};
use tokio_serde::formats::Bincode;

use crate::bencher::{Bencher, Sample};
use crate::control::Control;
use crate::drive::{Client, Work, refused};

/// The service that the client calls.
#[tarpc::service]
pub(crate) trait Echo {
    /// Echoes.
    async fn echo(body: Bytes) -> Bytes;
    /// Fails.
    async fn not_found(body: Bytes) -> Result<Bytes, String>;
    /// Never answers.
    async fn never(body: Bytes) -> Bytes;
}

/// Error of what is not found.
const NOTHING: &str = "nothing here";

#[derive(Clone, Debug)]
struct Node;

impl Echo for Node {
    async fn echo(self, _: Context, body: Bytes) -> Bytes {
        body
    }

    async fn not_found(self, _: Context, _: Bytes) -> Result<Bytes, String> {
        Err(NOTHING.to_owned())
    }

    async fn never(self, _: Context, _: Bytes) -> Bytes {
        std::future::pending().await
    }
}

/// The frames of either end of a connection.
macro_rules! framed {
    ($stream:expr) => {{
        $stream.set_nodelay(true)?;
        let frames = LengthDelimitedCodec::builder().new_framed($stream);
        tarpc::serde_transport::new(frames, Bincode::default())
    }};
}

/// Answers every connection; a task for each request, as tarpc's own examples have it.
pub(crate) async fn serve(control: Control) -> Result<()> {
    let listener = TcpListener::bind(control.listen()).await?;
    control.listening(&listener.local_addr()?.to_string())?;
    loop {
        let (stream, _) = listener.accept().await?;
        let requests = BaseChannel::with_defaults(framed!(stream)).execute(Node.serve());
        tokio::spawn(requests.for_each(async |request| {
            tokio::spawn(request);
        }));
    }
}

/// Connects, and keeps its callers busy.
pub(crate) async fn measure(bencher: Bencher<'_>) -> Result<Sample> {
    let client = connect(&bencher.servers.addresses()[0]).await?;
    bencher.closed_loop(client).await
}

/// A client over a connection of its own.
pub(crate) async fn connect(address: &str) -> Result<EchoClient> {
    let stream = TcpStream::connect(address).await?;
    Ok(EchoClient::new(client::Config::default(), framed!(stream)).spawn())
}

impl Client for EchoClient {
    async fn operate(&self, work: &Work) -> Result<()> {
        if work.is_refused {
            let reply = self.not_found(context::current(), work.payload.clone()).await?;
            return refused(reply, |error| error == NOTHING);
        }
        let reply = self.echo(context::current(), work.payload.clone()).await?;
        ensure!(reply.len() == work.payload.len(), "a reply of {} bytes", reply.len());
        Ok(())
    }
}
