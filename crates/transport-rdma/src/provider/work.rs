//! Work requests and what becomes of them.

/// Names a queue pair or a listener towards its provider; chosen by the engine, at most
/// [`Tag::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag(u32);

impl Tag {
    /// The largest.
    pub const MAX: u32 = (1 << 30) - 1;

    /// A tag of this number; `None` above [`Tag::MAX`].
    pub fn new(number: u32) -> Option<Self> {
        (number <= Self::MAX).then_some(Self(number))
    }

    /// Its number.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Direction of a work request: what it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// A send, or a probe.
    Send,
    /// A receive.
    Receive,
}

/// The id of a work request: all that a completion with an error still tells.
///
/// ```text
///  63        62      61 ........ 32   31 ........ 0
///  receive   zero    tag              number of the send, or slot of the receive
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WorkId(u64);

impl WorkId {
    /// The id of a send: those of a queue pair are counted from zero in the order of their posts,
    /// modulo 2^32. One that was refused takes no number.
    pub fn send(tag: Tag, number: u32) -> Self {
        Self::new(0, tag, number)
    }

    /// The id of the receive of a slot.
    pub fn receive(tag: Tag, slot: u32) -> Self {
        Self::new(1, tag, slot)
    }

    /// As it travels through the device.
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// As it came back; `None` when nobody here made it.
    pub fn from_u64(id: u64) -> Option<Self> {
        (id >> 62 & 1 == 0).then_some(Self(id))
    }

    /// Direction of the request.
    #[inline]
    pub fn direction(self) -> Direction {
        if self.0 >> 63 == 0 { Direction::Send } else { Direction::Receive }
    }

    /// Tag of the queue pair.
    #[inline]
    pub fn tag(self) -> Tag {
        Tag((self.0 >> 32) as u32 & Tag::MAX)
    }

    /// Number of the send, or slot of the receive.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the index is the lower half")]
    pub fn index(self) -> u32 {
        self.0 as u32
    }

    fn new(direction: u64, tag: Tag, index: u32) -> Self {
        Self(direction << 63 | u64::from(tag.0) << 32 | u64::from(index))
    }
}

/// A send to post.
#[derive(Clone, Copy, Debug)]
pub struct SendRequest<'a> {
    /// Data to send.
    pub data: Data<'a>,
    /// True when it reports its success.
    pub is_signalled: bool,
}

/// Data that a send carries.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    /// These bytes, copied into the work request: at most as many as the queue pair was granted.
    Inline(&'a [u8]),
    /// The first bytes of a slot.
    Slot {
        /// Index of the slot.
        slot: u32,
        /// Number of bytes.
        bytes: u32,
    },
    /// Nothing, and no receive of the peer is used: a write of zero bytes, which fails when the
    /// peer is gone.
    Probe,
}

/// Completion of a work request: what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The request's.
    pub id: WorkId,
    /// Outcome of the request.
    pub status: WorkStatus,
    /// Bytes received, of a receive that succeeded; otherwise it means nothing.
    pub bytes: u32,
}

/// Outcome of a work request. Devices disagree about codes, so everything but success ends the
/// connection, and the kind only says what to tell the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkStatus {
    /// Done.
    Success,
    /// Not done, because the queue pair had failed before or was disconnected.
    Flushed,
    /// The peer had no receive posted.
    ReceiverNotReady,
    /// The peer did not answer within the retries.
    NoAnswer,
    /// The slot was not the device's.
    SlotInUse,
    /// Anything else, in words.
    Failed(&'static str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_gives_back_what_it_was_made_of() {
        let tags = [0, 1, 77, Tag::MAX].map(|tag| Tag::new(tag).unwrap());
        for tag in tags {
            for index in [0, 1, 1 << 31, u32::MAX] {
                let ids = [WorkId::send(tag, index), WorkId::receive(tag, index)];
                assert_eq!(ids.map(WorkId::direction), [Direction::Send, Direction::Receive]);
                for id in ids {
                    assert_eq!((id.tag(), id.index()), (tag, index));
                    assert_eq!(WorkId::from_u64(id.to_u64()), Some(id));
                }
            }
        }
        assert_eq!(WorkId::from_u64(u64::MAX), None);
        assert_eq!(Tag::new(Tag::MAX + 1), None);
    }
}
