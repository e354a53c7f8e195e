//! REQUEST: opens a branch.

use bytes::Bytes;

use crate::address::Address;
use crate::id::{MethodId, NodeId};
use crate::key::Key;
use crate::link::Principal;

use super::codec::{Out, Reader, WireError};
use super::entry::{Sealed, read_sealed_into, write_sealed};

const FLAG_EXTENSIONS: u8 = 0x01;
pub(super) const FLAG_OUTLASTED: u8 = 0x02;

/// Opens the branch named in the header at the receiver. Typically 39 bytes before the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The key of the branch: who shows it may speak for the branch and all below it.
    pub key: Key,
    /// Time that remains until the deadline when it leaves, in microseconds; 0 is expired.
    /// Relative, so that clocks need not agree.
    pub budget_us: u64,
    /// By how much the call outlasts the branch, in microseconds; 0 unless the branch was given
    /// less time than there is. Until then the initiator may ask for the task, so until then it is
    /// remembered.
    pub outlasted_us: u64,
    /// Distance from the oldest unsettled call of its initiator up to the call's number. Every
    /// older call is settled: nothing of it can be in flight, so what is remembered of it may go.
    /// Believed from the initiator itself ([`ReplyRoute::Sender`]) alone; other nodes say that no
    /// call is.
    pub floor: u64,
    /// The method to run.
    pub method: MethodId,
    /// The way to reach the initiator.
    pub reply_route: ReplyRoute,
    /// Entries of ancestors on their way to the initiator.
    pub inherited: Vec<Sealed>,
    /// Trace context, metadata and the like; absent costs nothing.
    pub extensions: Vec<Extension>,
    /// The request message.
    pub payload: Bytes,
}

/// Way by which a task reaches the initiator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplyRoute {
    /// The sender is the initiator: reply on this connection.
    Sender,
    /// The initiator is this node, which can be dialled at these addresses (none: it only dials
    /// out).
    Node {
        /// The initiator.
        node: NodeId,
        /// The addresses at which it listens.
        addresses: Vec<Address>,
    },
}

/// A field that travels with a request, a reply or a failure and is not part of every one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// Kind. A critical one (highest bit set) that the receiver does not know makes it refuse.
    pub tag: u8,
    /// Its value. Unknown ones are copied when the task delegates.
    pub value: Bytes,
}

/// The extension tags in use; 3 is reserved.
pub mod extension {
    /// W3C trace context: 25 bytes (trace id, parent id, flags).
    pub const TRACE_CONTEXT: u8 = 1;
    /// One metadata pair: key length u8, key, value. May occur several times.
    pub const METADATA: u8 = 2;
    /// Encodings of a reply that its initiator takes besides plain messages: one byte each, 1 is
    /// zstd.
    pub const ACCEPTS: u8 = 4;
    /// The epoch of the configuration that the request was made for: u64. A node that was told of a
    /// later one refuses.
    pub const EPOCH: u8 = 5 | CRITICAL;
    /// Items of the request follow it; without a value. Only with a root branch, and not inherited.
    pub const ITEMS: u8 = 6 | CRITICAL;
    /// The request is of a client of the sender's gRPC edge, not of the sender itself. The value is
    /// what the client's certificate proved there, empty when it had none. Not inherited: what a
    /// task delegates is its node's.
    pub const CLIENT: u8 = 7 | CRITICAL;
    /// The bit that makes an extension critical.
    pub const CRITICAL: u8 = 0x80;
}

/// Most addresses of one node in a request.
const ADDRESSES_MAX: usize = 8;

impl Extension {
    /// The epoch of the configuration that a request is made for.
    pub fn epoch(epoch: u64) -> Self {
        Self { tag: extension::EPOCH, value: Bytes::copy_from_slice(&epoch.to_le_bytes()) }
    }

    /// The mark of a request that items follow.
    pub const fn items() -> Self {
        Self { tag: extension::ITEMS, value: Bytes::new() }
    }

    /// The mark of a request that a client of an edge makes, with what it has proven.
    pub fn client(principal: Option<&Principal>) -> Self {
        let text = principal.map_or("", Principal::as_str);
        Self { tag: extension::CLIENT, value: Bytes::copy_from_slice(text.as_bytes()) }
    }

    /// The client among these, and what it has proven: nothing, if that cannot be read.
    pub fn client_among(extensions: &[Self]) -> Option<Option<Principal>> {
        let client = extensions.iter().find(|extension| extension.tag == extension::CLIENT)?;
        let text = std::str::from_utf8(&client.value).ok();
        // It goes to logs and rules as it is.
        let is_plain = |text: &&str| text.bytes().all(|byte| byte.is_ascii_graphic());
        Some(text.filter(|text| !text.is_empty()).filter(is_plain).map(Principal::new))
    }

    /// The epoch among these: 0 without one.
    ///
    /// # Errors
    /// [`WireError::Invalid`] when it is not of eight bytes.
    pub fn epoch_among(extensions: &[Self]) -> Result<u64, WireError> {
        let epoch = extensions.iter().find(|extension| extension.tag == extension::EPOCH);
        let bytes = epoch.map(|epoch| <[u8; 8]>::try_from(&epoch.value[..]));
        let bytes = bytes.transpose().map_err(|_| WireError::Invalid)?;
        Ok(bytes.map_or(0, u64::from_le_bytes))
    }
}

/// A request but for its payload, as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestHead<'a> {
    pub(crate) key: Key,
    pub(crate) budget_us: u64,
    pub(crate) outlasted_us: u64,
    pub(crate) floor: u64,
    pub(crate) method: MethodId,
    pub(crate) reply_route: &'a ReplyRoute,
    pub(crate) inherited: &'a [Sealed],
    pub(crate) extensions: &'a [Extension],
}

impl RequestHead<'_> {
    /// The request of this head and a payload, for who keeps it.
    pub(crate) fn with(self, payload: Bytes) -> Request {
        let Self { key, budget_us, outlasted_us, floor, method, .. } = self;
        Request {
            key,
            budget_us,
            outlasted_us,
            floor,
            method,
            reply_route: self.reply_route.clone(),
            inherited: self.inherited.to_vec(),
            extensions: self.extensions.to_vec(),
            payload,
        }
    }

    pub(super) fn flags(&self) -> u8 {
        let extensions = if self.extensions.is_empty() { 0 } else { FLAG_EXTENSIONS };
        let outlasted = if self.outlasted_us == 0 { 0 } else { FLAG_OUTLASTED };
        extensions | outlasted
    }

    #[inline]
    pub(super) fn write(&self, out: &mut impl Out) {
        out.u64(self.key.0);
        out.varint(self.budget_us);
        if self.outlasted_us != 0 {
            out.varint(self.outlasted_us);
        }
        out.varint(self.floor);
        out.u32(self.method.0);
        self.reply_route.write(out);
        write_sealed(self.inherited, out);
        if !self.extensions.is_empty() {
            write_extensions(self.extensions, out);
        }
    }
}

impl Request {
    pub(super) fn head(&self) -> RequestHead<'_> {
        let Self { key, budget_us, outlasted_us, floor, method, .. } = *self;
        let Self { reply_route, inherited, extensions, .. } = self;
        RequestHead {
            key,
            budget_us,
            outlasted_us,
            floor,
            method,
            reply_route,
            inherited,
            extensions,
        }
    }

    /// One that says nothing, to be read into.
    pub(crate) const fn blank() -> Self {
        Self {
            key: Key(0),
            budget_us: 0,
            outlasted_us: 0,
            floor: 0,
            method: MethodId(0),
            reply_route: ReplyRoute::Sender,
            inherited: Vec::new(),
            extensions: Vec::new(),
            payload: Bytes::new(),
        }
    }

    /// Reads all but the payload into a blank one: most requests are not moved again.
    pub(super) fn read(&mut self, flags: u8, input: &mut Reader<'_>) -> Result<(), WireError> {
        if flags & !(FLAG_EXTENSIONS | FLAG_OUTLASTED) != 0 {
            return Err(WireError::Reserved);
        }
        self.key = Key(input.u64()?);
        self.budget_us = input.varint()?;
        if flags & FLAG_OUTLASTED != 0 {
            self.outlasted_us = input.varint()?;
        }
        self.floor = input.varint()?;
        self.method = MethodId(input.u32()?);
        if let Some(addresses) = input.u8()?.checked_sub(1) {
            self.reply_route = ReplyRoute::read_node(addresses, input)?;
        }
        read_sealed_into(&mut self.inherited, input)?;
        if flags & FLAG_EXTENSIONS != 0 {
            self.extensions = read_extensions(input)?;
        }
        if flags & FLAG_OUTLASTED != 0 && self.outlasted_us == 0 {
            return Err(WireError::Invalid);
        }
        input.payload();
        Ok(())
    }
}

pub(super) fn write_extensions(extensions: &[Extension], out: &mut impl Out) {
    out.count(extensions.len());
    for extension in extensions {
        out.u8(extension.tag);
        out.short_bytes(&extension.value);
    }
}

/// A list of one at least, for a flag or the kind of the frame says that there are any.
pub(super) fn read_extensions(input: &mut Reader<'_>) -> Result<Vec<Extension>, WireError> {
    input.some(usize::MAX, 2, read_extension)
}

fn read_extension(input: &mut Reader<'_>) -> Result<Extension, WireError> {
    let tag = input.u8()?;
    let value = Bytes::copy_from_slice(input.short_bytes(EXTENSION_BYTES_MAX)?);
    Ok(Extension { tag, value })
}

/// Largest extension, in bytes.
const EXTENSION_BYTES_MAX: usize = 16 * 1024;

impl ReplyRoute {
    #[inline]
    fn write(&self, out: &mut impl Out) {
        match self {
            Self::Sender => out.u8(0),
            Self::Node { node, addresses } => {
                let count = addresses.len().min(ADDRESSES_MAX);
                out.u8(1 + u8::try_from(count).expect("at most 8"));
                out.node(*node);
                for address in &addresses[..count] {
                    out.short_bytes(address.as_str().as_bytes());
                }
            }
        }
    }

    /// Reads that of a node with so many addresses.
    fn read_node(count: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        if usize::from(count) > ADDRESSES_MAX {
            return Err(WireError::OverLimit);
        }
        let node = input.node()?;
        let addresses = (0..count).map(|_| {
            let text = input.text(crate::address::ADDRESS_BYTES_MAX)?;
            text.parse().map_err(|_| WireError::Invalid)
        });
        let addresses = addresses.collect::<Result<_, _>>()?;
        Ok(Self::Node { node, addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_read_as_it_was_said_and_what_is_no_plain_text_proves_nothing() {
        let billing = Principal::new("spiffe://a/billing");
        for principal in [None, Some(billing)] {
            let said = [Extension::epoch(7), Extension::client(principal.as_ref())];
            assert_eq!(Extension::client_among(&said), Some(principal));
        }
        assert_eq!(Extension::client_among(&[Extension::epoch(7)]), None);
        for value in [&b"spiffe://a/b\n"[..], b"two words", b"\xff", "spiffe://a/ü".as_bytes()] {
            let said = Extension { tag: extension::CLIENT, value: Bytes::from_static(value) };
            assert_eq!(Extension::client_among(&[said]), Some(None));
        }
    }
}
