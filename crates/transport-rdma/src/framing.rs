//! Messages over a queue pair, without I/O: their header of 4 bytes, and what is in them.
//!
//! Little-endian. Every message takes one receive slot of the other end:
//!
//! ```text
//!  header   window u16 | ctl_ack u8 | kind u8
//!
//!  kind 0x00  credit only: nothing follows; takes a control slot
//!       0x01  frames: one or more records up to the end of the message
//!       0x03  introduction: addresses (see `introduction`); 0x0b when more of them follow
//!       0x05  goodbye: why the sender closes, UTF-8, at most 512 bytes; no data follows
//!       0x09  keep-alive: nothing follows; its sender's process is alive
//!       0x07  frame: all that follows is one whole frame of the control lane, which may be empty;
//!             0x0f of the data lane
//!  bit 0 says that the message takes a data slot.
//! ```
//!
//! `window` and `ctl_ack` are explained in [`credit`](crate::credit), records in [`record`].
//!
//! A frame that is alone in its message needs no record: the message says how long it is, and the
//! kind which lane it takes. A receiver takes either. A sender may write records only; a
//! [link](crate::link) does so for what it copies into a message, and leaves the record out when
//! the frame is sent from where it was encoded.

pub(crate) mod reassembly;
pub(crate) mod record;

use convoke_transport::Lane;

/// The header of every message.
pub(crate) const HEADER_BYTES: usize = 4;

/// Breach of the rules of this transport by the peer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    /// Even a message that only gives credit has a whole header.
    #[error("a message of {0} bytes is shorter than its header")]
    Truncated(usize),
    /// A newer version says so in its hello, so this is garbage.
    #[error("message kind {0:#04x} does not exist")]
    UnknownKind(u8),
    /// The peer invites to overrun the slots it has.
    #[error("it announced {announced} free slots and has {slot_count}")]
    WindowTooFar {
        /// By its window.
        announced: u32,
        /// By its hello.
        slot_count: u32,
    },
    /// Honest ends send such a message only to raise the window; without the rule they could flood.
    #[error("a credit-only message gave no credit")]
    NoCredit,
    /// More control messages acknowledged than were sent.
    #[error("it acknowledged control messages that were not sent")]
    AckExcess,
    /// More data messages than were announced.
    #[error("more data messages were sent than there was credit for")]
    DataOverrun,
    /// More credit-only messages than there are control slots.
    #[error("more credit-only messages were sent than there are control slots")]
    ControlOverrun,
    /// A credit-only message or a keep-alive with something behind its header.
    #[error("a message that is all header has {0} bytes too many")]
    ExcessBytes(usize),
    /// A message of frames without any.
    #[error("a message without a frame")]
    NoFrame,
    /// The message ends within a record, or the record's word has bits that mean nothing.
    #[error("a record is malformed: {0}")]
    BadRecord(&'static str),
    /// A fragment that does not go on where the last one of its lane ended.
    #[error("a fragment on the {0:?} lane is out of place")]
    FragmentOutOfPlace(Lane),
    /// Larger than the hello of this end allows.
    #[error("a frame of {announced} bytes is over the limit of {limit}")]
    FrameTooLarge {
        /// By its first record.
        announced: usize,
        /// By the hello of this end.
        limit: usize,
    },
    /// Frames before the introduction, or another one after it.
    #[error("an introduction is out of place, or missing")]
    IntroductionOutOfPlace,
    /// Introduction that is no list of addresses.
    #[error("its introduction is malformed: {0}")]
    BadIntroduction(&'static str),
    /// A goodbye that is too long.
    #[error("a goodbye of {0} bytes")]
    GoodbyeTooLong(usize),
    /// Data after the goodbye.
    #[error("data after its goodbye")]
    AfterGoodbye,
}

/// Kind of a message, with the byte that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Gives credit and nothing else.
    Credit = 0x00,
    /// Carries frames and fragments as records.
    Frames = 0x01,
    /// Says where the sender can be dialled, or the end of it.
    Introduction = 0x03,
    /// Says where the sender can be dialled; another such message follows.
    IntroductionPart = 0x0b,
    /// The last data message of its sender.
    Goodbye = 0x05,
    /// Says that the process of its sender is alive, and nothing else.
    KeepAlive = 0x09,
    /// A frame of the control lane.
    ControlFrame = 0x07,
    /// A frame of the data lane.
    DataFrame = 0x0f,
}

impl Kind {
    /// A frame of this lane, alone.
    #[inline]
    pub(crate) fn frame(lane: Lane) -> Self {
        match lane {
            Lane::Control => Self::ControlFrame,
            Lane::Data => Self::DataFrame,
        }
    }

    /// True when it takes a data slot, and so a data credit.
    #[inline]
    pub(crate) fn is_data(self) -> bool {
        self != Self::Credit
    }

    #[inline]
    fn decode(byte: u8) -> Result<Self, Fault> {
        Ok(match byte {
            0x00 => Self::Credit,
            0x01 => Self::Frames,
            0x03 => Self::Introduction,
            0x0b => Self::IntroductionPart,
            0x05 => Self::Goodbye,
            0x09 => Self::KeepAlive,
            0x07 => Self::ControlFrame,
            0x0f => Self::DataFrame,
            other => return Err(Fault::UnknownKind(other)),
        })
    }
}

/// The first bytes of a message, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Number of data messages that the other end may have sent in all, modulo 2^16.
    pub(crate) window: u16,
    /// Number of control messages of the other end that have come in all, modulo 2^8.
    pub(crate) ctl_ack: u8,
    /// Kind of the message.
    pub(crate) kind: Kind,
}

impl Header {
    /// The bytes of it.
    #[inline]
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let [w0, w1] = self.window.to_le_bytes();
        [w0, w1, self.ctl_ack, self.kind as u8]
    }

    /// Takes a message apart into its header and what follows.
    ///
    /// # Errors
    /// A [`Fault`] where no version of this transport sends such a header.
    #[inline]
    pub(crate) fn decode(message: &[u8]) -> Result<(Self, &[u8]), Fault> {
        let (header, payload) =
            message.split_first_chunk::<HEADER_BYTES>().ok_or(Fault::Truncated(message.len()))?;
        let &[w0, w1, ctl_ack, kind] = header;
        let kind = Kind::decode(kind)?;
        Ok((Self { window: u16::from_le_bytes([w0, w1]), ctl_ack, kind }, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_header_has_these_bytes() {
        let header = Header { window: 0x0201, ctl_ack: 3, kind: Kind::Goodbye };
        assert_eq!(header.encode(), [1, 2, 3, 0x05]);
    }

    #[test]
    fn the_low_bit_of_the_kind_says_whether_it_is_data() {
        for kind in [
            Kind::Credit,
            Kind::Frames,
            Kind::Introduction,
            Kind::IntroductionPart,
            Kind::Goodbye,
            Kind::KeepAlive,
            Kind::ControlFrame,
            Kind::DataFrame,
        ] {
            let bytes = Header { window: 0, ctl_ack: 0, kind }.encode();
            assert_eq!(bytes[3] & 1 == 1, kind.is_data());
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_header_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            if let Ok((header, payload)) = Header::decode(&bytes) {
                prop_assert_eq!(&header.encode()[..], &bytes[..HEADER_BYTES]);
                prop_assert_eq!(payload, &bytes[HEADER_BYTES..]);
            }
        }

        /// Most random bytes are of no kind; these nearly are.
        #[test]
        fn almost_a_header_is_one_or_a_fault(window: u16, ctl_ack: u8, kind in 0..16_u8) {
            let mut bytes = window.to_le_bytes().to_vec();
            bytes.extend([ctl_ack, kind]);
            match Header::decode(&bytes) {
                Ok((header, _)) => prop_assert_eq!(&header.encode()[..], &bytes[..]),
                Err(fault) => prop_assert_eq!(fault, Fault::UnknownKind(kind)),
            }
        }
    }
}
