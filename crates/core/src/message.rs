//! Messages as they travel: bytes of one protobuf message, or of whatever a type makes of itself.

use std::fmt;

use bytes::{Buf, Bytes, BytesMut};
use convoke_proto::encoded::Encoded;

/// A request or reply as it travels. Every `prost::Message` with a `Default` is one.
///
/// Another type of yours implements it by itself, such as one with a wire format of its own:
/// ```
/// use bytes::{Buf, BufMut, BytesMut};
/// use convoke_core::{DecodeError, Payload};
///
/// struct Celsius(f32);
///
/// /// The first byte of what travels.
/// const VERSION: u8 = 1;
///
/// impl Payload for Celsius {
///     fn encode(&self, out: &mut BytesMut) {
///         out.put_u8(VERSION);
///         out.put_f32(self.0);
///     }
///
///     fn decode(mut bytes: impl Buf) -> Result<Self, DecodeError> {
///         if bytes.try_get_u8().map_err(DecodeError::new)? != VERSION {
///             return Err(DecodeError::new("another version"));
///         }
///         bytes.try_get_f32().map(Self).map_err(DecodeError::new)
///     }
/// }
/// ```
/// The first byte of an encoded message may not be 0: requests that travel compressed or beside
/// their message begin so. No protobuf message does.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a message",
    label = "cannot be sent or received",
    note = "derive `prost::Message`, or have `convoke-build` make it of a `.proto` file",
    note = "or implement `convoke::Payload` for a type of your own",
    note = "a method that takes `Items` is called with `call_stream`"
)]
pub trait Payload: Sized + Send + Sync {
    /// Appends the message to what leaves.
    fn encode(&self, out: &mut BytesMut);

    /// Reads the message from all that came.
    ///
    /// # Errors
    /// [`DecodeError`] when the bytes are not one.
    fn decode(bytes: impl Buf) -> Result<Self, DecodeError>;

    /// The encoded message by itself. Default: what [`Payload::encode`] appends to nothing.
    fn to_bytes(&self) -> Bytes {
        let mut out = BytesMut::new();
        self.encode(&mut out);
        out.freeze()
    }

    /// The encoded message, on its way out.
    #[doc(hidden)]
    fn to_encoded(&self) -> Encoded {
        self.to_bytes().into()
    }
}

// The notes of the trait say what to do: the compiler names no bound of this, and lists no types.
#[diagnostic::do_not_recommend]
impl<M: prost::Message + Default> Payload for M {
    fn encode(&self, out: &mut BytesMut) {
        out.reserve(self.encoded_len());
        self.encode_raw(out);
    }

    fn decode(bytes: impl Buf) -> Result<Self, DecodeError> {
        <M as prost::Message>::decode(bytes).map_err(DecodeError::new)
    }

    /// Takes exactly the memory it needs.
    fn to_bytes(&self) -> Bytes {
        self.encode_to_vec().into()
    }

    fn to_encoded(&self) -> Encoded {
        Encoded::new(self.encoded_len(), |out| self.encode_raw(out))
    }
}

/// Bytes that are not the message they should be: the sender's doing, or another version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError(Box<str>);

impl DecodeError {
    /// The bytes are not the message, for this reason.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string().into())
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type beside the ones of prost.
    #[derive(Debug, PartialEq)]
    struct Pair(u8, u8);

    impl Payload for Pair {
        fn encode(&self, out: &mut BytesMut) {
            out.extend_from_slice(&[self.0, self.1]);
        }

        fn decode(mut bytes: impl Buf) -> Result<Self, DecodeError> {
            match (bytes.try_get_u8(), bytes.try_get_u8(), bytes.remaining()) {
                (Ok(one), Ok(two), 0) => Ok(Self(one, two)),
                _ => Err(DecodeError::new("a pair is two bytes")),
            }
        }
    }

    #[test]
    fn a_type_of_ones_own_is_a_message() {
        let bytes = Pair(7, 8).to_bytes();
        assert_eq!(Pair::decode(bytes), Ok(Pair(7, 8)));
        assert_eq!(Pair::decode(&[1][..]).unwrap_err().to_string(), "a pair is two bytes");
    }

    #[test]
    fn a_protobuf_message_is_the_same_appended_or_alone() {
        let text = String::from("hello");
        let mut out = BytesMut::from(&b"head"[..]);
        Payload::encode(&text, &mut out);
        assert_eq!(out[4..], Payload::to_bytes(&text));
        assert_eq!(<String as Payload>::decode(&out[4..]), Ok(text));
        assert!(<String as Payload>::decode(&[0x0a, 9, 1][..]).is_err());
    }
}
