//! The head of a frame: all before its payload, as bytes that leave.

use std::mem::take;

use bytes::Bytes;

use crate::encoded::Encoded;
use crate::flow::part_of;
use crate::id::{CallId, TaskKey};
use crate::key::Key;

use super::codec::{Out, Scratch};
use super::{
    FLAG_RELAYED, Frame, Item, KEYED, KIND_ASK, KIND_BITS, KIND_CANCEL, KIND_CAST, KIND_CONNECTION,
    KIND_FAIL, KIND_ITEM, KIND_PROBE, KIND_REPLY, KIND_REQUEST, KIND_SETTLED, KIND_STATUS, Message,
    Opened, Part, Relayed, Reply, RequestHead, Sealed, VERSION, WireError, can_show_key, header,
    reply,
};

/// Bytes that the head of a frame may grow by as it says which part of its message it has.
const PART_HEAD_BYTES: usize = 20;

/// Least room for a part in a frame: a message of 4 MiB becomes a thousand frames at most.
const PART_BYTES_MIN: usize = 4 << 10;

/// The head of a frame that is about to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a>(&'a [u8]);

impl<'a> Head<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// True for a REQUEST.
    pub fn is_request(self) -> bool {
        self.kind() == KIND_REQUEST
    }

    /// True for a CAST.
    pub fn is_cast(self) -> bool {
        self.kind() == KIND_CAST
    }

    /// True for a FAIL.
    pub fn is_fail(self) -> bool {
        self.kind() == KIND_FAIL
    }

    /// True for a CANCEL.
    pub fn is_cancel(self) -> bool {
        self.kind() == KIND_CANCEL
    }

    /// True for a question that its sender does without, or asks again, and for the answer to one:
    /// PROBE, STATUS, ASK, SETTLED, LEAVING, SENT.
    pub fn is_of_question(self) -> bool {
        matches!(self.kind(), KIND_PROBE | KIND_STATUS | KIND_ASK | KIND_SETTLED | KIND_CONNECTION)
    }

    /// The frame of this head and its payload, which stays where it is.
    ///
    /// # Errors
    /// [`WireError`] for what no peer would take, such as an extension above its limit.
    pub fn frame(self, payload: Bytes) -> Result<Frame, WireError> {
        let mut opened = Opened::nothing();
        opened.read(self.0)?;
        opened.frame_with(self.0, payload)
    }

    /// The frames of a reply or an item that is too large for one of `bytes_max`: parts of its
    /// message, in their order. The first has its metadata, and the last what ends its task. `None`
    /// for any other frame, and where these leave too little room for the message.
    #[cold]
    pub fn in_parts(self, payload: &Encoded, bytes_max: usize) -> Option<Vec<Frame>> {
        let room = bytes_max.checked_sub(self.0.len() + PART_HEAD_BYTES)?;
        if room < PART_BYTES_MIN {
            return None;
        }
        let mut whole = self.frame(payload.clone().into_bytes()).ok()?;
        let begin = match &whole.message {
            Message::Reply(reply) => reply.part,
            Message::Item(item) => item.part,
            _ => return None,
        };
        let begin = begin.unwrap_or(Part { offset: 0, total: payload.len() as u64 });
        whole.message.take_payload();
        let parts = (0..payload.len()).step_by(room).map(|at| {
            let end = payload.len().min(at + room);
            let part = Part { offset: begin.offset + at as u64, ..begin };
            let bytes = part_of(payload, at..end).into_bytes();
            let message = whole.message.take_part(part, bytes, end == payload.len());
            Frame { header: whole.header.clone(), message, ..whole }
        });
        Some(parts.collect())
    }

    fn kind(self) -> u8 {
        self.0.first().map_or(0, |first| first & KIND_BITS)
    }
}

/// All that a frame says before its message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Envelope<'a> {
    pub(crate) call: CallId,
    pub(crate) task: &'a TaskKey,
    pub(crate) relayed: Option<Relayed>,
    pub(crate) key: Option<Key>,
}

impl Message {
    /// A part of a reply, or of an item. Takes what goes with the first and with the last of them.
    fn take_part(&mut self, part: Part, payload: Bytes, is_last: bool) -> Self {
        match self {
            Self::Reply(reply) => Self::Reply(Reply {
                index: reply.index,
                kind: reply.kind,
                part: Some(part),
                is_final: is_last && reply.is_final,
                own_entry: if is_last { reply.own_entry.take() } else { None },
                inherited: if is_last { take(&mut reply.inherited) } else { Vec::new() },
                extensions: take(&mut reply.extensions),
                payload,
            }),
            Self::Item(item) => Self::Item(Item { kind: item.kind, part: Some(part), payload }),
            _ => unreachable!("replies and items alone are in parts"),
        }
    }
}

impl Envelope<'_> {
    /// The head of a REQUEST.
    pub(crate) fn request(&self, request: &RequestHead<'_>) -> Scratch {
        let mut head = Scratch::new();
        self.write(KIND_REQUEST, request.flags(), &mut head);
        request.write(&mut head);
        head
    }

    /// The head of a REPLY that is all its task says, beside what that was given to pass on.
    #[inline]
    pub(crate) fn sole_reply(&self, inherited: &[Sealed]) -> Scratch {
        let mut head = Scratch::new();
        self.write(KIND_REPLY, reply::sole_flags(inherited), &mut head);
        reply::write_sole(inherited, &mut head);
        head
    }

    /// The head of a REPLY.
    pub(crate) fn reply(&self, reply: &Reply) -> Scratch {
        let mut head = Scratch::new();
        self.write(reply.wire_kind(), reply.flags(), &mut head);
        reply.write(&mut head);
        head
    }

    /// The head of an ITEM.
    pub(crate) fn item(&self, item: &Item) -> Scratch {
        let mut head = Scratch::new();
        self.write(KIND_ITEM, item.flags(), &mut head);
        item.write(&mut head);
        head
    }

    #[inline]
    pub(super) fn write(&self, kind: u8, flags: u8, out: &mut impl Out) {
        let (is_keyed, is_relayed) = (self.key.is_some(), self.relayed.is_some());
        debug_assert!(!is_keyed || can_show_key(kind), "a frame of kind {kind} shows no key");
        out.u8(if is_keyed { KEYED } else { 0 } | VERSION << 4 | kind);
        out.u8(flags | if is_relayed { FLAG_RELAYED } else { 0 });
        header::write(self.call, self.task, out);
        if let Some(relayed) = self.relayed {
            relayed.write(out);
        }
        if let Some(key) = self.key {
            out.u64(key.0);
        }
    }
}
