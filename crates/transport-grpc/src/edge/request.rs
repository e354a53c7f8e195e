//! The body of a request, whose messages are measured and counted before any of them is kept.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use convoke_core::wire::Executed;
use hyper::body::{Body, Frame};
use tonic::codegen::StdError;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status, Streaming};

use super::status;
use crate::codec::BytesCodec;
use crate::framing::{Breach, Framing};

/// A body that breaks off with a status where its client breaks a rule.
pub(super) struct Checked<B> {
    body: B,
    framing: Framing,
    /// The method takes one message.
    is_of_one: bool,
}

impl<B> Checked<B> {
    pub(super) fn new(body: B, message_bytes_max: usize, is_of_one: bool) -> Self {
        Self { body, framing: Framing::new(message_bytes_max), is_of_one }
    }

    fn check(&mut self, data: &[u8]) -> Result<(), Status> {
        self.framing.handle_data(data).map_err(breach)?;
        if self.is_of_one && self.framing.begun() > 1 {
            return Err(not_one("more than one message"));
        }
        Ok(())
    }

    fn check_end(&self) -> Result<(), Status> {
        self.framing.handle_end().map_err(breach)?;
        if self.is_of_one && self.framing.begun() == 0 {
            return Err(not_one("no message"));
        }
        Ok(())
    }
}

impl<B> Body for Checked<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<StdError>,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Poll::Ready(match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Some(self.check(&data).map(|()| Frame::data(data))),
                // tonic would put trailers in the place of headers, which layers have set or seen.
                Err(_) => self.check_end().err().map(Err),
            },
            Some(Err(error)) => Some(Err(broken(error))),
            None => self.check_end().err().map(Err),
        })
    }
}

/// The headers of a request and its one message.
pub(super) type Whole = (MetadataMap, Bytes);
/// The headers of a request and its messages as they come.
pub(super) type Several = (MetadataMap, Streaming<Bytes>);

/// Reads a request of one message to its end.
pub(super) async fn whole<B>(request: http::Request<Checked<B>>) -> Result<Whole, Status>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<StdError>,
{
    let (headers, mut messages) = messages(request)?;
    let message = messages.message().await?.ok_or_else(|| not_one("no message"))?;
    while messages.message().await?.is_some() {}
    Ok((headers, message))
}

/// Begins to read a request of several messages.
pub(super) fn messages<B>(request: http::Request<Checked<B>>) -> Result<Several, Status>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<StdError>,
{
    let (head, body) = request.into_parts();
    if let Some(encoding) = head.headers.get(ENCODING).filter(|value| *value != IDENTITY) {
        return Err(compressed(encoding.as_bytes()));
    }
    let messages = Streaming::new_request(BytesCodec::of_a_call(), body, None, Some(usize::MAX));
    Ok((MetadataMap::from_headers(head.headers), messages))
}

const ENCODING: &str = "grpc-encoding";
const IDENTITY: &str = "identity";

/// Status of a request that is compressed, with what is not ("Compression" of gRPC).
fn compressed(encoding: &[u8]) -> Status {
    let text = format!("messages in \"{}\", where none are compressed", encoding.escape_ascii());
    let mut status = status::own(Code::Unimplemented, text, Executed::No);
    let taken = MetadataValue::from_static(IDENTITY);
    status.metadata_mut().insert("grpc-accept-encoding", taken);
    status
}

fn breach(breach: Breach) -> Status {
    status::own(breach.code(), breach.to_string(), Executed::No)
}

/// "Request cardinality violation" of gRPC's status codes.
fn not_one(found: &str) -> Status {
    let text = format!("{found} in the request of a method that takes one");
    status::own(Code::Unimplemented, text, Executed::No)
}

/// Status of a body that has failed.
fn broken(error: impl Into<StdError>) -> Status {
    let status = Status::from_error(error.into());
    match status.code() {
        // Which tonic takes for the end of the messages, so that a part would pass for the whole.
        Code::Cancelled => Status::aborted("the client has reset its stream"),
        _ => status,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message and then a reset by its client, as tonic's own bodies tell of it.
    struct Reset(Option<Bytes>);

    impl Body for Reset {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            let message = self.0.take().map(Frame::data);
            Poll::Ready(Some(message.ok_or_else(|| Status::cancelled("it was reset"))))
        }
    }

    #[tokio::test]
    async fn a_reset_is_not_the_end_of_the_messages() {
        let body = Checked::new(Reset(Some(Bytes::from_static(&[0; 5]))), 10, false);
        let codec = BytesCodec::of_a_call();
        let mut messages = Streaming::new_request(codec, body, None, None);
        assert_eq!(messages.message().await.unwrap(), Some(Bytes::new()));
        let status = messages.message().await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{status}");
    }
}
