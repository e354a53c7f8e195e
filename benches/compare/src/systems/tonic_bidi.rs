//! `tonic-bidi`: numbered messages over one bidirectional stream of tonic, the way to make gRPC
//! fast.

use anyhow::{Context as _, Result, ensure};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::tonic::connect;
use crate::bencher::{Bencher, Sample};
use crate::drive::Pipe;
use crate::proto::Payload;

/// Keeps one stream busy.
pub(crate) async fn measure(bencher: Bencher<'_>) -> Result<Sample> {
    let mut client = connect(&bencher.servers.addresses()[0]).await?;
    let (requests, outgoing) = mpsc::channel(2 * bencher.work.bench.in_flight());
    let replies = client.bidi(ReceiverStream::new(outgoing)).await?.into_inner();
    let body = bencher.work.payload.clone();
    bencher.windowed(MessagePipe { requests, replies, body }).await
}

struct MessagePipe {
    requests: mpsc::Sender<Payload>,
    replies: Streaming<Payload>,
    body: bytes::Bytes,
}

impl Pipe for MessagePipe {
    async fn send(&mut self, ids: &[u64]) -> Result<()> {
        for id in ids {
            let message = Payload { body: self.body.clone(), id: *id, count: 0 };
            self.requests.send(message).await.context("the stream has ended")?;
        }
        Ok(())
    }

    async fn receive(&mut self, ids: &mut Vec<u64>) -> Result<()> {
        let mut next = self.replies.message().await?;
        loop {
            let reply = next.context("the server has ended the stream")?;
            ensure!(reply.body.len() == self.body.len(), "a reply of {} bytes", reply.body.len());
            ids.push(reply.id);
            // What has arrived already is answered together, as the bare sockets do.
            match self.replies.message().now_or_never() {
                Some(more) => next = more?,
                None => return Ok(()),
            }
        }
    }
}
