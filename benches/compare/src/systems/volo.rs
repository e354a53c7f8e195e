//! `volo` and `volo-pool`: Thrift by volo, a call for each request. The first numbers its calls on
//! one connection, which its documentation does not recommend; the second is volo's default, a
//! connection for each call in flight.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use tokio::net::TcpListener;
use volo::client::MkClient;
use volo::net::incoming::DefaultIncoming;
use volo::service::{BoxCloneService, Service};
use volo_thrift::ServerError;
use volo_thrift::client::ClientBuilder;
use volo_thrift::context::{CLIENT_CONTEXT_CACHE, ClientContext, ServerContext};
use volo_thrift::server::Server;

use crate::bencher::{Bencher, Sample};
use crate::control::Control;
use crate::drive::{Client, Work, refused};
use crate::thrift::{Entry, REFUSED, UNARY};

/// Way in which calls share connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// All on one.
    Multiplex,
    /// Each has one for itself, taken from a pool.
    Pool,
}

#[derive(Clone, Debug)]
struct Node;

impl Service<ServerContext, Entry> for Node {
    type Response = Entry;
    type Error = ServerError;

    async fn call(&self, _: &mut ServerContext, call: Entry) -> Result<Entry, ServerError> {
        Ok(call.answer())
    }
}

/// Answers every connection. Nagle's algorithm is off, as volo has it.
pub(crate) async fn serve(control: Control, sharing: Sharing) -> Result<()> {
    let listener = TcpListener::bind(control.listen()).await?;
    control.listening(&listener.local_addr()?.to_string())?;
    let server = Server::new(Node).multiplex(sharing == Sharing::Multiplex);
    match server.run(DefaultIncoming::from(listener)).await {
        Ok(()) => Ok(()),
        Err(error) => bail!("volo: {error}"),
    }
}

/// Connects, and keeps its callers busy.
pub(crate) async fn measure(bencher: Bencher<'_>, sharing: Sharing) -> Result<Sample> {
    let address: SocketAddr = bencher.servers.addresses()[0].parse()?;
    let client = ClientBuilder::new("compare", MkCaller)
        .address(address)
        .multiplex(sharing == Sharing::Multiplex)
        .build();
    // A client connects with its first call.
    client.operate(&bencher.work).await?;
    bencher.closed_loop(client).await
}

/// Client of the service, as generated ones are.
#[derive(Clone)]
struct Caller(volo_thrift::Client<Layered>);

type Layered = BoxCloneService<ClientContext, Entry, Option<Entry>, volo_thrift::ClientError>;

struct MkCaller;

impl MkClient<volo_thrift::Client<Layered>> for MkCaller {
    type Target = Caller;

    fn mk_client(&self, service: volo_thrift::Client<Layered>) -> Caller {
        Caller(service)
    }
}

impl Caller {
    async fn call(&self, method: &'static str, body: Bytes) -> Result<Result<Bytes, String>> {
        let mut context = self.0.make_cx(method, false);
        let answer = self.0.call(&mut context, Entry::call(method, body)).await?;
        CLIENT_CONTEXT_CACHE.with(|cache| {
            let mut cache = cache.borrow_mut();
            if cache.len() < cache.capacity() {
                cache.push(context);
            }
        });
        Ok(answer.context("no answer")?.into_result())
    }
}

impl Client for Caller {
    async fn operate(&self, work: &Work) -> Result<()> {
        let method = if work.is_refused { REFUSED } else { UNARY };
        let reply = self.call(method, work.payload.clone()).await?;
        if work.is_refused {
            return refused(reply, |text| text == "nothing here");
        }
        let Ok(body) = reply else { bail!("a call that was not to be refused was") };
        ensure!(body.len() == work.payload.len(), "a reply of {} bytes", body.len());
        Ok(())
    }
}
