//! `ntex-grpc`: gRPC by ntex, with HTTP/2 of its own, a call for each request over one connection.
//!
//! Everything of ntex stays on the thread where it began. A server has workers, each a thread with
//! its connections; the callers of a client are all on one thread. Both are run by tokio.

use std::net::{SocketAddr, TcpListener};
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};
use ntex_grpc::client::{Client, ClientError, Request};
use ntex_grpc::encoding::{decode_key, skip_field};
use ntex_grpc::server::{GrpcServer, ServerError, ServerRequest, ServerResponse};
use ntex_grpc::types::DefaultValue;
use ntex_grpc::{
    BytePages, ByteString, Bytes, DecodeError, GrpcStatus, HeaderValue, Message, MethodDef,
    NativeType, Service, ServiceCtx, ServiceFactory,
};
use ntex_h2::client::ClientBuilder;
use ntex_net::DefaultRuntime;
use ntex_net::connect::Connect;
use ntex_rt::System;
use ntex_service::cfg::SharedCfg;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::bencher::{Bencher, Sample};
use crate::control::Control;
use crate::drive::{LocalClient, Work, closed_loop_local, refused};
use crate::proto::NOT_FOUND;

/// The message of `proto/compare.proto`, as ntex has it: its codec and bytes are its own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Payload {
    body: Bytes,
    id: u64,
    count: u32,
}

/// As the generator of ntex-grpc writes it, which needs `protoc`.
impl Message for Payload {
    fn read(src: &mut Bytes) -> Result<Self, DecodeError> {
        let mut message = Self::default();
        while !src.is_empty() {
            let (tag, kind) = decode_key(src)?;
            match tag {
                1 => message.body.deserialize(tag, kind, src)?,
                2 => message.id.deserialize(tag, kind, src)?,
                3 => message.count.deserialize(tag, kind, src)?,
                _ => skip_field(kind, tag, src)?,
            }
        }
        Ok(message)
    }

    fn write(&self, dst: &mut BytePages) {
        self.body.serialize(1, DefaultValue::Default, dst);
        self.id.serialize(2, DefaultValue::Default, dst);
        self.count.serialize(3, DefaultValue::Default, dst);
    }

    fn encoded_len(&self) -> usize {
        self.body.serialized_len(1, DefaultValue::Default)
            + self.id.serialized_len(2, DefaultValue::Default)
            + self.count.serialized_len(3, DefaultValue::Default)
    }
}

/// The method that echoes.
struct Unary;

impl MethodDef for Unary {
    const NAME: &'static str = "Unary";
    const PATH: ByteString = ByteString::from_static("/compare.Rival/Unary");
    type Input = Payload;
    type Output = Payload;
}

#[derive(Clone, Debug)]
struct Node;

impl Service<ServerRequest> for Node {
    type Response = ServerResponse;
    type Error = ServerError;

    async fn call(
        &self,
        mut request: ServerRequest,
        _: ServiceCtx<'_, Self>,
    ) -> Result<ServerResponse, ServerError> {
        let refusal = |status, text| ServerError::new(status, HeaderValue::from_static(text), None);
        if request.name != Unary::NAME {
            return Err(refusal(GrpcStatus::Unimplemented, "no such method"));
        }
        let message = Unary.decode(&mut request.payload)?;
        if message.count == NOT_FOUND {
            return Err(refusal(GrpcStatus::NotFound, "nothing here"));
        }
        let mut reply = BytePages::default();
        Unary.encode(message, &mut reply);
        Ok(ServerResponse::new(reply))
    }
}

impl ServiceFactory<ServerRequest, SharedCfg> for Node {
    type Response = ServerResponse;
    type Error = ServerError;
    type Service = Self;
    type InitError = ();

    async fn create(&self, _: SharedCfg) -> Result<Self, ()> {
        Ok(self.clone())
    }
}

/// Answers every connection, with as many workers as the runtime has that this is called on.
/// Nagle's algorithm is off, as ntex has it.
pub(crate) async fn serve(control: Control) -> Result<()> {
    let listener = TcpListener::bind(control.listen())?;
    control.listening(&listener.local_addr()?.to_string())?;
    let workers = Handle::current().metrics().num_workers();
    let (ended, wait) = oneshot::channel();
    thread::spawn(move || {
        let system = System::new("compare", DefaultRuntime);
        let served = system.block_on(async move {
            ntex_server::net::build()
                .workers(workers)
                .disable_signals()
                .listen("compare", listener, async |_| GrpcServer::new(Node))?
                .run()
                .await
        });
        // Nobody listens once the process ends.
        let _ = ended.send(served);
    });
    Ok(wait.await.context("ntex has panicked")??)
}

/// Connects, and keeps its callers busy, all on a thread that ntex runs.
pub(crate) async fn measure(bencher: Bencher<'_>) -> Result<Sample> {
    let address = bencher.servers.addresses()[0].clone();
    let work = bencher.work.clone();
    let (quotas, mut asked) = mpsc::unbounded_channel();
    let (tell, tallies) = mpsc::unbounded_channel();
    let client = thread::spawn(move || {
        System::new("compare", DefaultRuntime).block_on(async move {
            let caller = Caller::connect(address, &work).await?;
            while let Some(quota) = asked.recv().await {
                tell.send(closed_loop_local(&caller, &work, quota).await?)?;
            }
            anyhow::Ok(())
        })
    });
    let sample = bencher.closed_loop_elsewhere(quotas, tallies).await;
    // It ends with the quotas, or has ended for a reason.
    client.join().map_err(|_| anyhow!("ntex has panicked"))??;
    sample
}

#[derive(Clone)]
struct Caller {
    client: Client,
    body: Bytes,
}

impl Caller {
    /// A pool of connections by default, of which no more than one is made here.
    async fn connect(address: String, work: &Work) -> Result<Self> {
        let at: SocketAddr = address.parse()?;
        let client = ClientBuilder::with_default(Connect::with(address, at)).maxconn(1);
        let client = client.build(SharedCfg::default()).await;
        let client = client.map_err(|error| anyhow!("ntex cannot connect: {error:?}"))?;
        let body = Bytes::copy_from_slice(&work.payload);
        let caller = Self { client: Client::new(client), body };
        // A client connects with its first call.
        caller.operate(work).await?;
        Ok(caller)
    }
}

impl LocalClient for Caller {
    async fn operate(&self, work: &Work) -> Result<()> {
        let count = if work.is_refused { NOT_FOUND } else { 0 };
        let request = Payload { body: self.body.clone(), count, ..Payload::default() };
        let reply = Request::<_, Unary>::new(&self.client, &request).send().await;
        if work.is_refused {
            return refused(reply, |error| {
                matches!(**error, ClientError::GrpcStatus(GrpcStatus::NotFound, _))
            });
        }
        let body = reply.map_err(|error| anyhow!("{error}"))?.into_inner().body;
        ensure!(body.len() == work.payload.len(), "a reply of {} bytes", body.len());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::proto;

    #[test]
    fn messages_are_those_of_the_others() {
        for (len, id, count) in [(0, 0, 0), (100, 0, 0), (4096, 0, NOT_FOUND), (3, 1 << 40, 1)] {
            let (ours, theirs) = (Bytes::from(vec![7; len]), vec![7; len].into());
            let ours = Payload { body: ours, id, count };
            let theirs = proto::Payload { body: theirs, id, count };
            let mut written = BytePages::default();
            ours.write(&mut written);
            let mut written = written.freeze();
            assert_eq!(&written[..], theirs.encode_to_vec());
            assert_eq!(Message::encoded_len(&ours), written.len());
            assert_eq!(Payload::read(&mut written).unwrap(), ours);
        }
    }
}
