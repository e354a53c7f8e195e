//! Compressed payloads, for endpoints that asked for it, to peers that said they take them.
//!
//! ```text
//!  FEATURES, first on a connection:  2f 00 | features varint       bit 0: takes packed requests
//!  extension ACCEPTS of a request:   04    | encodings             of the initiator, 01 is zstd
//!  packed payload:                   00 01 | message length varint | zstd frame
//! ```
//! A packed payload says so itself by the byte 0, the tag of no field: no protobuf message begins
//! so. The frames of the call protocol stay what they are, and packing and unpacking happen where
//! messages are encoded and decoded, not where the endpoint's lock is held. Requests are packed for
//! a peer whose FEATURES came; replies for an initiator whose request says ACCEPTS, which tasks
//! hand on as they delegate.

#[cfg(feature = "zstd")]
mod zstd;

use bytes::Bytes;
use convoke_proto::encoded::Encoded;
use convoke_proto::id::{LinkNonce, NodeId};
use convoke_proto::wire::{ABOUT_CONNECTION, Extension};

use crate::transport::Connection;

#[cfg(feature = "zstd")]
pub use zstd::Compression;

/// First bytes of FEATURES: a word about the connection that is none of the call protocol's.
const FEATURES: [u8; 2] = [ABOUT_CONNECTION, 0];

/// Longest FEATURES frame.
#[cfg(feature = "zstd")]
const FEATURES_BYTES_MAX: usize = 12;

/// Packing and unpacking of an endpoint's payloads.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    #[cfg(feature = "zstd")]
    packer: Option<zstd::Packer>,
}

/// The message of a call that was packed last, and what it became: a message for many nodes is
/// packed once.
#[derive(Debug, Default)]
pub(crate) struct LastPacked {
    /// Kept, so that no other message takes its memory.
    #[cfg(feature = "zstd")]
    of: Option<(Bytes, Encoded)>,
}

#[cfg(feature = "zstd")]
impl LastPacked {
    fn pack(&mut self, packer: &zstd::Packer, payload: &mut Encoded) {
        let message = payload.as_shared().cloned();
        let is_same = |(of, _): &&(Bytes, Encoded)| {
            let place = |bytes: &Bytes| (bytes.as_ptr(), bytes.len());
            message.as_ref().is_some_and(|message| place(message) == place(of))
        };
        if let Some((_, packed)) = self.of.as_ref().filter(is_same) {
            payload.clone_from(packed);
            return;
        }
        *payload = packer.pack(std::mem::take(payload));
        self.of = message.map(|message| (message, payload.clone()));
    }
}

#[cfg_attr(
    not(feature = "zstd"),
    expect(
        clippy::unused_self,
        clippy::unnecessary_wraps,
        reason = "there is nothing to pack with"
    )
)]
impl Packing {
    /// With what the endpoint was told.
    #[cfg(feature = "zstd")]
    pub(crate) fn new(compression: Option<Compression>, message_bytes_max: usize) -> Self {
        Self { packer: compression.map(|how| zstd::Packer::new(how, message_bytes_max)) }
    }

    /// Tells the peer of a new connection what it may send.
    pub(crate) fn announce(&self, connection: &dyn Connection) {
        #[cfg(feature = "zstd")]
        self.packer.iter().for_each(|packer| packer.announce(connection));
        let _ = connection;
    }

    /// Takes a frame that is FEATURES; false for any other.
    ///
    /// # Errors
    /// A text: the peer's doing.
    pub(crate) fn take(&self, node: NodeId, link: LinkNonce, frame: &[u8]) -> Result<bool, String> {
        if !frame.starts_with(&FEATURES) {
            return Ok(false);
        }
        #[cfg(feature = "zstd")]
        if let Some(packer) = &self.packer {
            packer.take_features(node, link, frame)?;
        }
        let _ = (node, link);
        Ok(true)
    }

    /// A connection has ended.
    pub(crate) fn forget(&self, node: NodeId, link: LinkNonce) {
        #[cfg(feature = "zstd")]
        self.packer.iter().for_each(|packer| packer.forget(node, link));
        let _ = (node, link);
    }

    /// Packs the payload of a request to `to`, if that takes it and it is worth it. One whose bytes
    /// are those of the last, in the same memory, becomes what that became.
    pub(crate) fn pack_request(&self, to: NodeId, payload: &mut Encoded, last: &mut LastPacked) {
        #[cfg(feature = "zstd")]
        if let Some(packer) = self.packer.as_ref().filter(|packer| packer.is_accepted_by(to)) {
            last.pack(packer, payload);
        }
        let _ = (to, payload, last);
    }

    /// Says in a request of an own call that its replies may be packed.
    pub(crate) fn accept_replies(&self, extensions: &mut Vec<Extension>) {
        #[cfg(feature = "zstd")]
        if self.packer.is_some() {
            extensions.push(zstd::accepts());
        }
        let _ = extensions;
    }

    /// Packs a reply to the request that came with these extensions, if its initiator takes it and
    /// it is worth it.
    pub(crate) fn pack_reply(&self, extensions: &[Extension], payload: Encoded) -> Encoded {
        #[cfg(feature = "zstd")]
        if let Some(packer) = self.packer.as_ref().filter(|_| zstd::is_accepted(extensions)) {
            return packer.pack(payload);
        }
        let _ = extensions;
        payload
    }

    /// Bytes of the message in a payload that is packed, as it says. Few bytes may become many, so
    /// who takes it looks for room first.
    ///
    /// # Errors
    /// A text: the sender's doing.
    #[inline]
    pub(crate) fn unpacked_len(&self, payload: &Bytes) -> Result<Option<usize>, String> {
        #[cfg(feature = "zstd")]
        if let Some(packer) = &self.packer {
            return packer.unpacked_len(payload);
        }
        let _ = payload;
        Ok(None)
    }

    /// The message of a payload.
    ///
    /// # Errors
    /// A text: the sender's doing.
    pub(crate) fn unpack(&self, payload: Bytes) -> Result<Bytes, String> {
        #[cfg(feature = "zstd")]
        if let Some(packer) = &self.packer {
            return packer.unpack(payload);
        }
        Ok(payload)
    }
}
