//! The wire format of the call protocol: one message per file, each with its fields, codec and
//! golden bytes.
//!
//! ```text
//! frame  = keyed, version and kind u8 | flags u8 | header
//!          | [relayed: claimed sender u64, levels u8, hop varint]
//!          | [keyed: key of the branch u64] | message
//! header = origin incarnation u64 | call seq varint | path length u8 + path | hop varint
//! ```
//! Numbers of fixed width are little-endian; varints are LEB128 in their shortest form. The
//! transport adds the frame's length (4 bytes over TCP), so a typical header is 20 bytes. A
//! payload, where a message has one, is what remains of the frame.
//!
//! Reserved flag bits are zero on send and a fault on receipt. Any bytes decode or give a
//! [`WireError`], without a panic and without allocating more than a small multiple of the frame's
//! size and one list of 65,536 nodes.

mod ask;
mod cancel;
mod cast;
mod codec;
mod credit;
mod entry;
mod fail;
mod glance;
mod head;
mod header;
mod item;
mod link_down;
mod manifest;
mod parting;
mod probe;
mod reply;
mod request;
mod settled;
mod status;

pub use ask::{ASKED_MAX, Ask};
pub use cancel::{Cancel, CancelReason};
pub use cast::{About, Cast, Digest};
pub use codec::{TASKS_MAX, WireError};
pub use credit::{Credit, Credited};
pub(crate) use entry::{CHILDREN_MAX, fit_one_frame};
pub use entry::{Entry, Outcome, Sealed};
pub use fail::{Cause, Executed, Fail};
pub(crate) use fail::{cut, cut_to};
pub use glance::Glance;
pub(crate) use glance::Subject;
pub(crate) use head::Envelope;
pub use head::Head;
pub use header::Header;
pub use item::{Item, ItemKind};
pub use link_down::LinkDown;
pub use manifest::Manifest;
pub use parting::Parting;
pub use probe::{Asked, Probe};
pub use reply::{Part, Reply, ReplyKind};
pub(crate) use request::RequestHead;
pub use request::{Extension, ReplyRoute, Request, extension};
pub use settled::{EXCEPTIONS_MAX, NAMED_MAX, Settled, Statement};
pub use status::{ReplyPath, Status, TaskStatus};

use bytes::{Buf as _, Bytes};

use crate::flow::kept;
use crate::id::{NodeId, TaskKey};
use crate::key::Key;
pub(crate) use codec::Scratch;
use codec::{Count, Out, Reader, Slice};

/// Version of the wire format, in three bits of the first byte.
pub const VERSION: u8 = 2;

/// Set in the first byte of a frame that shows a key.
const KEYED: u8 = 0x80;

/// Bits of the first byte that say what message it is.
const KIND_BITS: u8 = 0x0f;

/// Set in every frame that a node between sender and receiver passed on.
const FLAG_RELAYED: u8 = 0x80;

const KIND_REQUEST: u8 = 1;
const KIND_REPLY: u8 = 2;
const KIND_FAIL: u8 = 4;
const KIND_CANCEL: u8 = 5;
const KIND_PROBE: u8 = 6;
const KIND_STATUS: u8 = 7;
const KIND_CAST: u8 = 10;
const KIND_ASK: u8 = 11;
const KIND_SETTLED: u8 = 12;
const KIND_ITEM: u8 = 13;
const KIND_REPLY_EXTENDED: u8 = 14;
const KIND_CONNECTION: u8 = 15;

/// First byte of every frame that is about its connection. The next byte is the word that it says:
/// LEAVING and SENT are read here; 0 is FEATURES, of whoever packs payloads, and has no header.
pub const ABOUT_CONNECTION: u8 = VERSION << 4 | KIND_CONNECTION;

/// One frame of the call protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The call and task it speaks of.
    pub header: Header,
    /// For a frame that relays pass on.
    pub relayed: Option<Relayed>,
    /// The key of the branch that it speaks of, where the connection alone does not speak for it.
    /// Only with REPLY, MANIFEST, FAIL, LINK_DOWN, CANCEL and CREDIT.
    pub key: Option<Key>,
    /// The message that it carries.
    pub message: Message,
}

/// Journey of a frame that relays pass on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// On its way to the initiator: the node that is said to have sent it, not authenticated. On
    /// its way from there: the node that it is for.
    pub node: NodeId,
    /// The branch that was sent from its receiver to its sender, or on the way down from its
    /// sender to its receiver. Each step up leads to a higher one, and each down to a lower one, so
    /// no frame goes in circles.
    pub at: Rung,
}

/// A branch on the path of the task that a frame speaks of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rung {
    /// Levels of the path that it has; none where the initiator is at the other end.
    pub levels: u8,
    /// Its hop.
    pub hop: u32,
}

impl Relayed {
    fn write(self, out: &mut impl Out) {
        out.node(self.node);
        out.u8(self.at.levels);
        out.varint(self.at.hop.into());
    }

    fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let node = input.node()?;
        Ok(Self { node, at: Rung { levels: input.u8()?, hop: input.varint_u32()? } })
    }
}

impl Rung {
    /// That of a task itself.
    pub fn of(task: &TaskKey) -> Self {
        let levels = u8::try_from(task.path.level_count()).unwrap_or(u8::MAX);
        Self { levels, hop: task.hop }
    }
}

/// Message of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Opens a branch.
    Request(Request),
    /// Answers the initiator.
    Reply(Reply),
    /// Declares what tasks have opened and sent.
    Manifest(Manifest),
    /// Ends a task without a proper answer.
    Fail(Fail),
    /// Cancels a subtree.
    Cancel(Cancel),
    /// Asks how tasks are.
    Probe(Probe),
    /// Says how tasks are.
    Status(Status),
    /// A parent lost its link to the node of some children.
    LinkDown(LinkDown),
    /// Grants bytes of a reply or of the items of a request.
    Credit(Credit),
    /// A one-way message of an echo phase.
    Cast(Cast),
    /// Asks which calls are settled.
    Ask(Ask),
    /// Says which calls are settled.
    Settled(Settled),
    /// An item of a streamed request.
    Item(Item),
    /// A word about the connection that it comes by.
    Parting(Parting),
}

impl Message {
    fn kind(&self) -> u8 {
        match self {
            Self::Request(_) => KIND_REQUEST,
            Self::Reply(message) => message.wire_kind(),
            Self::Manifest(_) => 3,
            Self::Fail(_) => KIND_FAIL,
            Self::Cancel(_) => KIND_CANCEL,
            Self::Probe(_) => KIND_PROBE,
            Self::Status(_) => KIND_STATUS,
            Self::LinkDown(_) => 8,
            Self::Credit(_) => 9,
            Self::Cast(_) => KIND_CAST,
            Self::Ask(_) => KIND_ASK,
            Self::Settled(_) => KIND_SETTLED,
            Self::Item(_) => KIND_ITEM,
            Self::Parting(_) => KIND_CONNECTION,
        }
    }

    fn flags(&self) -> u8 {
        match self {
            Self::Request(message) => message.head().flags(),
            Self::Reply(message) => message.flags(),
            Self::Manifest(message) => message.flags(),
            Self::Fail(message) => message.flags(),
            Self::Probe(message) => message.flags(),
            Self::LinkDown(message) => message.flags(),
            Self::Cast(message) => message.flags(),
            Self::Item(message) => message.flags(),
            Self::Credit(message) => message.flags(),
            Self::Parting(message) => message.word(),
            Self::Cancel(_) | Self::Status(_) | Self::Ask(_) | Self::Settled(_) => 0,
        }
    }

    fn write(&self, out: &mut impl Out) {
        match self {
            Self::Request(message) => message.head().write(out),
            Self::Reply(message) => message.write(out),
            Self::Manifest(message) => message.write(out),
            Self::Fail(message) => message.write(out),
            Self::Cancel(message) => message.write(out),
            Self::Probe(message) => message.write(out),
            Self::Status(message) => message.write(out),
            Self::LinkDown(message) => message.write(out),
            Self::Credit(message) => message.write(out),
            Self::Cast(message) => message.write(out),
            Self::Ask(message) => message.write(out),
            Self::Settled(message) => message.write(out),
            Self::Item(message) => message.write(out),
            Self::Parting(message) => message.write(out),
        }
    }

    fn read(kind: u8, flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        if flags != 0 && matches!(kind, KIND_CANCEL | KIND_STATUS | KIND_ASK | KIND_SETTLED) {
            return Err(WireError::Reserved);
        }
        Ok(match kind {
            KIND_REQUEST => {
                let mut request = Request::blank();
                request.read(flags, input)?;
                Self::Request(request)
            }
            KIND_REPLY => Self::Reply(Reply::read_plain(flags, input)?),
            3 => Self::Manifest(Manifest::read(flags, input)?),
            KIND_FAIL => Self::Fail(Fail::read(flags, input)?),
            KIND_CANCEL => Self::Cancel(Cancel::read(input)?),
            KIND_PROBE => Self::Probe(Probe::read(flags, input)?),
            KIND_STATUS => Self::Status(Status::read(input)?),
            8 => Self::LinkDown(LinkDown::read(flags, input)?),
            9 => Self::Credit(Credit::read(flags, input)?),
            KIND_CAST => Self::Cast(Cast::read(flags, input)?),
            KIND_ASK => Self::Ask(Ask::read(input)?),
            KIND_SETTLED => Self::Settled(Settled::read(input)?),
            KIND_ITEM => Self::Item(Item::read(flags, input)?),
            KIND_REPLY_EXTENDED => Self::Reply(Reply::read_extended(flags, input)?),
            KIND_CONNECTION => Self::Parting(Parting::read(flags, input)?),
            kind => return Err(WireError::UnknownKind(kind)),
        })
    }

    /// True when a key can be shown with it.
    pub(crate) fn shows_key(&self) -> bool {
        can_show_key(self.kind())
    }

    /// The bytes of the application it carries, if it can carry any.
    pub fn payload(&self) -> Option<&Bytes> {
        match self {
            Self::Request(message) => Some(&message.payload),
            Self::Reply(message) => Some(&message.payload),
            Self::Fail(message) => Some(&message.details),
            Self::Cast(message) => Some(&message.payload),
            Self::Item(message) => Some(&message.payload),
            _ => None,
        }
    }

    /// Takes the bytes of the application out of it. Its head is the same with or without them.
    pub fn take_payload(&mut self) -> Bytes {
        self.payload_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Has the bytes of the application leave the buffer that they came in, as [`kept`] says.
    pub(crate) fn keep_payload(&mut self) {
        if let Some(payload) = self.payload_mut() {
            *payload = kept(std::mem::take(payload));
        }
    }

    fn payload_mut(&mut self) -> Option<&mut Bytes> {
        match self {
            Self::Request(message) => Some(&mut message.payload),
            Self::Reply(message) => Some(&mut message.payload),
            Self::Fail(message) => Some(&mut message.details),
            Self::Cast(message) => Some(&mut message.payload),
            Self::Item(message) => Some(&mut message.payload),
            _ => None,
        }
    }

    /// The word for it in logs and traces.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Request(_) => "REQUEST",
            Self::Reply(_) => "REPLY",
            Self::Manifest(_) => "MANIFEST",
            Self::Fail(_) => "FAIL",
            Self::Cancel(_) => "CANCEL",
            Self::Probe(_) => "PROBE",
            Self::Status(_) => "STATUS",
            Self::LinkDown(_) => "LINK_DOWN",
            Self::Credit(_) => "CREDIT",
            Self::Cast(_) => "CAST",
            Self::Ask(_) => "ASK",
            Self::Settled(_) => "SETTLED",
            Self::Item(_) => "ITEM",
            Self::Parting(message) => message.name(),
        }
    }
}

impl Frame {
    /// A frame that goes straight to its receiver.
    pub const fn new(header: Header, message: Message) -> Self {
        Self { header, relayed: None, key: None, message }
    }

    /// The same, with the key of the branch it speaks of.
    pub const fn keyed(header: Header, key: Key, message: Message) -> Self {
        Self { header, relayed: None, key: Some(key), message }
    }

    /// Takes the frame from where it lies, for who keeps it or passes it on. Nothing is left of it
    /// there.
    pub(crate) fn take(&mut self) -> Self {
        let nothing = Message::Ask(Ask { origins: Vec::new() });
        std::mem::replace(self, Self::new(Header::without_call(), nothing))
    }

    /// Bytes before the payload.
    pub fn head_len(&self) -> usize {
        let mut count = Count::default();
        self.write_head(&mut count);
        count.len()
    }

    /// Memory that it takes while it waits, about: its payload, and 128 bytes for its head or what
    /// that has on the wire, with metadata.
    pub(crate) fn waiting_len(&self) -> usize {
        self.head_len().max(128) + self.message.payload().map_or(0, Bytes::len)
    }

    /// Bytes of the whole frame.
    pub fn encoded_len(&self) -> usize {
        self.head_len() + self.message.payload().map_or(0, Bytes::len)
    }

    /// Writes everything before the payload.
    ///
    /// # Panics
    /// Unless `to` has exactly [`Frame::head_len`] bytes.
    pub fn encode_head(&self, to: &mut [u8]) {
        let mut out = Slice::new(to);
        self.write_head(&mut out);
        out.finish();
    }

    /// Gives everything before the payload to `act`, encoded.
    pub fn with_head<T>(&self, act: impl FnOnce(Head<'_>) -> T) -> T {
        let mut head = Scratch::new();
        self.write_head(&mut head);
        act(head.head())
    }

    /// Writes the whole frame.
    ///
    /// # Panics
    /// Unless `to` has exactly [`Frame::encoded_len`] bytes.
    pub fn encode(&self, to: &mut [u8]) {
        let payload = self.message.payload().map_or(&[][..], |bytes| &bytes[..]);
        let (head, rest) = to.split_at_mut(to.len() - payload.len());
        self.encode_head(head);
        rest.copy_from_slice(payload);
    }

    /// The whole frame in bytes of its own.
    pub fn to_bytes(&self) -> Bytes {
        let mut bytes = vec![0; self.encoded_len()];
        self.encode(&mut bytes);
        bytes.into()
    }

    /// Reads a frame. Its payload stays where it is.
    ///
    /// # Errors
    /// [`WireError`]: the sender's doing.
    pub fn decode(bytes: Bytes) -> Result<Self, WireError> {
        let mut opened = Opened::nothing();
        opened.read(&bytes)?;
        opened.frame(bytes)
    }

    fn write_head(&self, out: &mut impl Out) {
        let Self { header: Header { call, task }, relayed, key, message } = self;
        let envelope = Envelope { call: *call, task, relayed: *relayed, key: *key };
        envelope.write(message.kind(), message.flags(), out);
        message.write(out);
    }
}

/// All before the message of a frame that has been read: enough to know whose it is. The messages
/// of which most frames are one need not be moved into a [`Frame`] first.
pub(crate) struct Opened {
    kind: u8,
    flags: u8,
    pub(crate) header: Header,
    pub(crate) relayed: Option<Relayed>,
    pub(crate) key: Option<Key>,
    /// Offset of the message in the frame.
    at: usize,
}

impl Opened {
    /// That of a frame of which nothing has been read.
    #[inline]
    pub(crate) fn nothing() -> Self {
        let header = Header::without_call();
        Self { kind: 0, flags: 0, header, relayed: None, key: None, at: 0 }
    }

    /// Reads all before the message of a frame, where nothing has been read.
    #[inline]
    pub(crate) fn read(&mut self, frame: &[u8]) -> Result<(), WireError> {
        let mut input = Reader::new(frame);
        let First { is_keyed, kind } = First::read(&mut input)?;
        let flags = input.u8()?;
        (self.kind, self.flags) = (kind, flags & !FLAG_RELAYED);
        self.header = Header::read(&mut input)?;
        if flags & FLAG_RELAYED != 0 {
            self.relayed = Some(Relayed::read(&mut input)?);
        }
        if is_keyed {
            self.key = Some(Key(input.u64()?));
        }
        self.at = frame.len() - input.len();
        Ok(())
    }

    pub(crate) fn is_request(&self) -> bool {
        self.kind == KIND_REQUEST
    }

    pub(crate) fn is_plain_reply(&self) -> bool {
        self.kind == KIND_REPLY
    }

    /// Reads the message of a frame that is a request into a blank one.
    #[inline]
    pub(crate) fn read_request(
        &self,
        frame: Bytes,
        request: &mut Request,
    ) -> Result<(), WireError> {
        let mut input = Reader::new(&frame[self.at..]);
        request.read(self.flags, &mut input)?; // To its end, where the payload is.
        let len = input.payload_len();
        request.payload = last_of(frame, len);
        Ok(())
    }

    /// The same of a frame that is a reply without extensions.
    #[inline]
    pub(crate) fn read_reply(&self, frame: Bytes, reply: &mut Reply) -> Result<(), WireError> {
        let mut input = Reader::new(&frame[self.at..]);
        reply.read(self.flags, &mut input)?;
        let len = input.payload_len();
        reply.payload = last_of(frame, len);
        Ok(())
    }

    /// The whole of it, with a message that was read of it.
    pub(crate) fn with(&mut self, message: Message) -> Frame {
        let Self { relayed, key, .. } = *self;
        let header = std::mem::replace(&mut self.header, Header::without_call());
        Frame { header, relayed, key, message }
    }

    /// The whole of the frame.
    pub(crate) fn frame(&mut self, frame: Bytes) -> Result<Frame, WireError> {
        let (mut message, len) = self.message(&frame, 0)?;
        if let Some(payload) = message.payload_mut() {
            *payload = last_of(frame, len);
        }
        Ok(self.with(message))
    }

    /// The whole of a frame whose payload is not behind its head.
    fn frame_with(&mut self, head: &[u8], payload: Bytes) -> Result<Frame, WireError> {
        let (mut message, _) = self.message(head, payload.len())?;
        if let Some(place) = message.payload_mut() {
            *place = payload;
        }
        Ok(self.with(message))
    }

    /// The message without its payload, and how long that is. So much of it is elsewhere.
    fn message(&self, frame: &[u8], elsewhere: usize) -> Result<(Message, usize), WireError> {
        let mut input = Reader::of_parts(&frame[self.at..], elsewhere);
        let message = Message::read(self.kind, self.flags, &mut input)?;
        input.finish()?;
        Ok((message, input.payload_len()))
    }
}

/// The last bytes of a frame, in its memory.
#[inline]
fn last_of(mut frame: Bytes, len: usize) -> Bytes {
    frame.advance(frame.len() - len);
    frame
}

/// Contents of the first byte of a frame.
struct First {
    is_keyed: bool,
    kind: u8,
}

impl First {
    #[inline]
    fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let first = input.u8()?;
        let (is_keyed, version, kind) = (first & KEYED != 0, first >> 4 & 0x07, first & KIND_BITS);
        if version != VERSION {
            return Err(WireError::Version(version));
        }
        if is_keyed && !can_show_key(kind) {
            return Err(WireError::Reserved);
        }
        Ok(Self { is_keyed, kind })
    }
}

/// True when frames of this kind speak of one branch, for which a key can be shown: those but
/// REQUEST, which brings the key, and ITEM, for which the connection of the request speaks alone.
const fn can_show_key(kind: u8) -> bool {
    matches!(kind, 2..=5 | 8 | 9 | KIND_REPLY_EXTENDED)
}

#[cfg(test)]
mod tests;
