//! The pipe of a connection as the body of an HTTP/2 stream, which asks for a message before the
//! stream's window has room for it, and for the next one when it has left.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use convoke_transport::parts::Pipe;
use futures_core::Stream;
use tonic::Status;

use crate::codec::Parts;

/// The messages of a connection as the body of an HTTP/2 stream, of a request. There is one.
#[derive(Debug)]
pub(crate) struct Outgoing(pub(crate) Arc<Pipe>);

impl Stream for Outgoing {
    type Item = Parts;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Parts>> {
        self.0.poll_message(cx).map(|message| message.map(Parts))
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.0.on_gone("the HTTP/2 stream was reset");
    }
}

/// The same for a response, which could end with an error but does not.
#[derive(Debug)]
pub(crate) struct Answering(pub(crate) Outgoing);

impl Stream for Answering {
    type Item = Result<Parts, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut self.0).poll_next(cx).map(|message| message.map(Ok))
    }
}
