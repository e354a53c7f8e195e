//! `volo` and `volo-pool`: Thrift by volo, a call for each request. The first numbers its calls on
//! one connection, which its documentation does not recommend; the second is volo's default, a
//! connection for each call in flight.

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};
use bytes::Bytes;
use tokio::net::TcpListener;
use volo::net::incoming::DefaultIncoming;
use volo_thrift::{MaybeException, ServerError};

use crate::bencher::{Bencher, Sample};
use crate::control::Control;
use crate::drive::{Client, Work, refused};
use crate::thrift::{
    Echo, EchoClient, EchoClientBuilder, EchoRefusedException, EchoServer, NotFound,
};

/// How calls share connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// All on one.
    Multiplex,
    /// Each has one for itself, taken from a pool.
    Pool,
}

#[derive(Clone, Debug)]
struct Node;

impl Echo for Node {
    async fn unary(&self, body: Bytes) -> Result<Bytes, ServerError> {
        Ok(body)
    }

    async fn refused(
        &self,
        _: Bytes,
    ) -> Result<MaybeException<Bytes, EchoRefusedException>, ServerError> {
        let message = "nothing here".into();
        Ok(MaybeException::Exception(EchoRefusedException::NotFound(NotFound { message })))
    }
}

/// Answers every connection. Nagle's algorithm is off, as volo has it.
pub(crate) async fn serve(control: Control, sharing: Sharing) -> Result<()> {
    let listener = TcpListener::bind(control.listen()).await?;
    control.listening(&listener.local_addr()?.to_string())?;
    let server = EchoServer::new(Node).multiplex(sharing == Sharing::Multiplex);
    match server.run(DefaultIncoming::from(listener)).await {
        Ok(()) => Ok(()),
        Err(error) => bail!("volo: {error}"),
    }
}

/// Connects, and keeps its callers busy.
pub(crate) async fn measure(bencher: Bencher<'_>, sharing: Sharing) -> Result<Sample> {
    let address: SocketAddr = bencher.servers.addresses()[0].parse()?;
    let client = EchoClientBuilder::new("compare")
        .address(address)
        .multiplex(sharing == Sharing::Multiplex)
        .build();
    // A client connects with its first call.
    client.operate(&bencher.work).await?;
    bencher.closed_loop(client).await
}

impl Client for EchoClient {
    async fn operate(&self, work: &Work) -> Result<()> {
        if work.is_refused {
            let reply = match EchoClient::refused(self, work.payload.clone()).await? {
                MaybeException::Ok(reply) => Ok(reply),
                MaybeException::Exception(EchoRefusedException::NotFound(error)) => Err(error),
            };
            return refused(reply.map_err(|error| error.message), |message| {
                message.as_str() == "nothing here"
            });
        }
        let reply = self.unary(work.payload.clone()).await?;
        ensure!(reply.len() == work.payload.len(), "a reply of {} bytes", reply.len());
        Ok(())
    }
}
