//! Requests and replies whose bytes pass undecoded: for gateways, proxies and recorders, which know
//! the name of a method at run time and its messages not at all.

use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use convoke_proto::id::MethodId;
use convoke_proto::wire::Extension;
use prost::DecodeError;
use prost::encoding::{DecodeContext, WireType, decode_varint, encode_key, encode_varint};

use super::Request;

/// The encoded bytes of any message: what they say is the concern of others.
///
/// Decoding takes all bytes as they are, sharing the frame that brought them, and encoding gives
/// them back, so a message survives a hop through it bit by bit.
/// ```
/// use convoke_core::{CallBuilder, Context, Endpoint, Method, RawMessage, Request, Service, Status};
/// use prost::Message;
///
/// const SHOUT: Method<String, String> = Method::new("voice.Voice/Shout");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let voice = Service::new()
///     .unary(SHOUT, |text: String, _: Context| async move { Ok::<_, Status>(text.to_uppercase()) });
/// let endpoint = Endpoint::builder().serve(voice).start().await?;
///
/// // Somebody who has a name and bytes, and no type.
/// let bytes = String::from("hello").encode_to_vec();
/// let request = Request::raw("voice.Voice/Shout", bytes.into());
/// let reply = CallBuilder::new(&endpoint).branch(request, &endpoint.me()).await?;
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

    fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::from(std::mem::take(&mut self.0));
        write(&mut bytes);
        self.0 = bytes.into();
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

impl prost::Message for RawMessage {
    fn encode_raw(&self, buf: &mut impl BufMut) {
        buf.put_slice(&self.0);
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0 = Bytes::new();
    }

    fn decode(mut buf: impl Buf) -> Result<Self, DecodeError> {
        // Of a `Bytes` this is a slice, not a copy.
        Ok(Self(buf.copy_to_bytes(buf.remaining())))
    }

    /// Two encoded messages one behind the other are the encoding of both merged.
    fn merge(&mut self, buf: impl Buf) -> Result<(), DecodeError> {
        self.append(|bytes| bytes.put(buf));
        Ok(())
    }

    /// Only a message around this one comes here, since `decode` and `merge` take all at once: the
    /// field is kept as it came.
    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buf: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        let fixed = |buf: &mut dyn Buf, len: usize| {
            (buf.remaining() >= len).then(|| buf.copy_to_bytes(len))
        };
        let (number, body) = match wire_type {
            WireType::Varint => (Some(decode_varint(buf)?), Some(Bytes::new())),
            WireType::LengthDelimited => {
                let len = decode_varint(buf)?;
                (Some(len), usize::try_from(len).ok().and_then(|len| fixed(buf, len)))
            }
            WireType::SixtyFourBit => (None, fixed(buf, 8)),
            WireType::ThirtyTwoBit => (None, fixed(buf, 4)),
            WireType::StartGroup | WireType::EndGroup => {
                return prost::encoding::skip_field(wire_type, tag, buf, context);
            }
        };
        let Some(body) = body else {
            // What prost says of a field that is cut.
            return prost::encoding::skip_field(WireType::SixtyFourBit, tag, &mut &[][..], context);
        };
        self.append(|bytes| {
            encode_key(tag, wire_type, bytes);
            number.into_iter().for_each(|number| encode_varint(number, bytes));
            bytes.put(body);
        });
        Ok(())
    }
}

/// What spans and metrics call a method that is known at run time only: names that others give must
/// not make a metric each.
const RAW: &str = "(raw)";

impl Request<RawMessage> {
    /// A request of the method with this full name, `package.Service/Method`, whose message is
    /// these encoded bytes. Whoever serves the method decodes them.
    pub fn raw(method: &str, message: Bytes) -> Self {
        Self::of(MethodId::of(method), RAW, false, message)
    }

    /// Says of a request made with [`Request::raw`] that its method changes nothing: late tasks of
    /// a decided call may be cancelled.
    #[must_use]
    pub fn raw_read_only(mut self) -> Self {
        self.is_read_only = true;
        self.is_idempotent = true;
        self
    }

    /// The deadline it was given, if any. A call has one of its own: see
    /// [`CallBuilder::deadline`](crate::CallBuilder::deadline).
    pub fn deadline_set(&self) -> Option<Duration> {
        self.deadline
    }

    /// Adds an extension as it goes over the wire, such as the
    /// [trace context](convoke_proto::wire::extension::TRACE_CONTEXT) a gateway was given.
    #[must_use]
    pub fn raw_extension(mut self, extension: Extension) -> Self {
        self.extensions.push(extension);
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Inner {
        #[prost(string, tag = "1")]
        name: String,
        #[prost(sint64, tag = "2")]
        number: i64,
        #[prost(double, tag = "3")]
        weight: f64,
        #[prost(fixed32, tag = "4")]
        bits: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Outer {
        #[prost(message, optional, tag = "1")]
        inner: Option<Inner>,
    }

    /// The same to somebody who does not know what is inside.
    #[derive(Clone, PartialEq, prost::Message)]
    struct Opaque {
        #[prost(message, optional, tag = "1")]
        inner: Option<RawMessage>,
    }

    #[test]
    fn bytes_pass_as_they_are_and_uncopied() {
        let bytes = Bytes::from_static(b"\xff not even protobuf");
        let raw = RawMessage::decode(bytes.clone()).unwrap();
        assert_eq!(raw.as_ref().as_ptr(), bytes.as_ptr());
        assert_eq!((raw.encoded_len(), raw.encode_to_vec()), (bytes.len(), bytes.to_vec()));
    }

    #[test]
    fn merging_is_appending() {
        let (first, second) =
            (String::from("a").encode_to_vec(), String::from("b").encode_to_vec());
        let mut raw = RawMessage::new(first.into());
        raw.merge(&second[..]).unwrap();
        assert_eq!(String::decode(raw.into_bytes()).unwrap(), "b");
    }

    #[test]
    fn a_field_that_is_cut_is_an_error() {
        for cut in
            [&b"\x0a\x03\x0a\x05a"[..], b"\x0a\x03\x11ab", b"\x0a\x03\x15ab", b"\x0a\x01\x0b"]
        {
            assert!(Opaque::decode(cut).is_err(), "{cut:?}");
        }
    }

    proptest! {
        #[test]
        fn inside_another_message_it_keeps_every_field(
            name in ".{0,20}", number in any::<i64>(), weight in -1e9..1e9, bits in any::<u32>(),
        ) {
            let inner = Inner { name, number, weight, bits };
            let bytes = Outer { inner: Some(inner.clone()) }.encode_to_vec();
            let outer = Opaque::decode(&bytes[..]).unwrap();
            let kept = outer.inner.clone().unwrap().into_bytes();
            prop_assert_eq!(Inner::decode(kept).unwrap(), inner);
            prop_assert_eq!(outer.encode_to_vec(), bytes);
        }
    }
}
