//! Requests and replies whose bytes pass undecoded: for gateways, proxies and recorders, which know
//! the name of a method at run time and its messages not at all.

use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use convoke_proto::id::MethodId;
use convoke_proto::link::Principal;
use convoke_proto::wire::Extension;

use crate::message::{DecodeError, Payload};

use super::Request;

/// The encoded bytes of any message: what they say is the concern of others.
///
/// Decoding takes all bytes as they are, sharing the frame that brought them, and encoding gives
/// them back, so a message survives a hop through it bit by bit.
/// ```
/// use convoke_core::{Context, Endpoint, Method, Request, Service, Status};
/// use prost::Message;
///
/// const SHOUT: Method<String, String> = Method::new("voice.Voice/Shout");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let voice = Service::new()
///     .unary(SHOUT, |text: String, _: Context| async move {
///         Ok::<_, Status>(text.to_uppercase())
///     });
/// let endpoint = Endpoint::builder().serve(voice).start().await?;
///
/// // Somebody who has a name and bytes, and no type.
/// let bytes = String::from("hello").encode_to_vec();
/// let request = Request::raw("voice.Voice/Shout", bytes.into());
/// let reply = endpoint.invoke(request).to(&endpoint.me()).await?;
/// assert_eq!(String::decode(reply.into_bytes())?, "HELLO");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct RawMessage(Bytes);

impl RawMessage {
    /// A message of these encoded bytes.
    pub fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// The encoded bytes.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl From<Bytes> for RawMessage {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl AsRef<[u8]> for RawMessage {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[diagnostic::do_not_recommend]
impl Payload for RawMessage {
    fn encode(&self, out: &mut BytesMut) {
        out.extend_from_slice(&self.0);
    }

    /// Of a [`Bytes`] this is a slice, not a copy.
    fn decode(mut bytes: impl Buf) -> Result<Self, DecodeError> {
        Ok(Self(bytes.copy_to_bytes(bytes.remaining())))
    }

    fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }
}

/// Name in spans and metrics of a method that is known at run time only: names that others give
/// must not make a metric each.
pub(crate) const OTHER: &str = "(other)";

impl Request<RawMessage> {
    /// A request of the method with this full name, `package.Service/Method`, whose message is
    /// these encoded bytes. Whoever serves the method decodes them.
    pub fn raw(method: &str, message: Bytes) -> Self {
        Self::of(MethodId::of(method), OTHER, false, message.into())
    }

    /// As [`Request::raw`], of a method that spans and metrics may show by its name: one that is
    /// served here, or that the operator has named.
    pub fn raw_named(method: &'static str, message: Bytes) -> Self {
        Self::of(MethodId::of(method), method, false, message.into())
    }

    /// Says of a request made with [`Request::raw`] or [`Request::raw_named`] that its method
    /// changes nothing: late tasks of a decided call may be cancelled.
    #[must_use]
    pub fn raw_read_only(mut self) -> Self {
        self.is_read_only = true;
        self.is_idempotent = true;
        self
    }

    /// The deadline it was given, if any. A call has one of its own: see
    /// [`CallBuilder::deadline`](crate::CallBuilder::deadline).
    pub fn deadline_set(&self) -> Option<Duration> {
        self.root.budget
    }
}

/// Extensions of a [`Request`].
pub trait RequestSeam: Sized {
    /// Adds an extension as it goes over the wire, such as the
    /// [trace context](convoke_proto::wire::extension::TRACE_CONTEXT) a gateway was given.
    #[must_use]
    fn raw_extension(self, extension: Extension) -> Self;

    /// Says that a client of this node's edge asks, and not the node: see
    /// [`Caller::client`](crate::Caller::client).
    #[must_use]
    fn of_client(self, principal: Option<&Principal>) -> Self {
        self.raw_extension(Extension::client(principal))
    }

    /// True when a pair of its metadata has found no room: it cannot leave, whatever follows.
    fn is_oversize(&self) -> bool;
}

impl RequestSeam for Request<RawMessage> {
    fn raw_extension(mut self, extension: Extension) -> Self {
        self.root.extensions.push(extension);
        self
    }

    fn is_oversize(&self) -> bool {
        self.oversize.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_pass_as_they_are_and_uncopied() {
        let bytes = Bytes::from_static(b"\xff not even protobuf");
        let raw = RawMessage::decode(bytes.clone()).unwrap();
        assert_eq!(raw.as_ref().as_ptr(), bytes.as_ptr());
        assert_eq!(raw.to_bytes().as_ptr(), bytes.as_ptr());
        let mut out = BytesMut::new();
        raw.encode(&mut out);
        assert_eq!(out, bytes);
    }
}
