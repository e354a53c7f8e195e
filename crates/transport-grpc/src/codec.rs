//! The codec of messages that are bytes already: nothing is encoded or decoded.

use bytes::{Buf, BufMut, Bytes};
use smallvec::SmallVec;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

/// A message made of parts, in order. Most have one or two.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts(pub(crate) SmallVec<[Bytes; 3]>);

impl Parts {
    /// Bytes of all.
    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }
}

impl From<Bytes> for Parts {
    fn from(bytes: Bytes) -> Self {
        Self(smallvec::smallvec![bytes])
    }
}

/// Sends [`Parts`] and receives [`Bytes`], which share the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BytesCodec {
    settings: BufferSettings,
}

/// First buffer of a call of the edge; larger messages grow it.
const CALL_BUFFER_BYTES: usize = 4 * 1024;
/// First buffer of the stream of a connection.
const STREAM_BUFFER_BYTES: usize = 32 * 1024;
/// From how many bytes on an encoded buffer is handed on though more is ready.
const YIELD_BYTES: usize = 64 * 1024;

impl BytesCodec {
    /// For a call: small buffers, since there are many.
    pub(crate) fn of_a_call() -> Self {
        Self { settings: BufferSettings::new(CALL_BUFFER_BYTES, YIELD_BYTES) }
    }

    /// For the stream of a connection.
    pub(crate) fn of_a_connection() -> Self {
        Self { settings: BufferSettings::new(STREAM_BUFFER_BYTES, YIELD_BYTES) }
    }
}

impl Codec for BytesCodec {
    type Encode = Parts;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for BytesCodec {
    type Item = Parts;
    type Error = Status;

    fn encode(&mut self, parts: Parts, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.reserve(parts.len());
        parts.0.into_iter().for_each(|part| out.put(part));
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.settings
    }
}

impl Decoder for BytesCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(message.copy_to_bytes(message.remaining())))
    }

    fn buffer_settings(&self) -> BufferSettings {
        self.settings
    }
}
