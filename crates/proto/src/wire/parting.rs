//! LEAVING and SENT: words about the connection that they come by, of which one end takes no
//! requests any more.

use super::codec::{Out, Reader, WireError};

const LEAVING: u8 = 0x01;
const SENT: u8 = 0x02;

/// A word by which two nodes part. It is about no call: its header is
/// [`Header::without_call`](super::Header::without_call). Typically 17 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parting {
    /// LEAVING: its sender takes no requests any more, and refuses those that still come.
    Leaving,
    /// SENT, the answer: its sender has sent so many requests over the connection, and sends no
    /// others.
    Sent(u64),
}

impl Parting {
    /// Its name in the byte that has the flags of other messages.
    pub(super) fn word(self) -> u8 {
        match self {
            Self::Leaving => LEAVING,
            Self::Sent(_) => SENT,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Leaving => "LEAVING",
            Self::Sent(_) => "SENT",
        }
    }

    pub(super) fn write(self, out: &mut impl Out) {
        match self {
            Self::Leaving => {}
            Self::Sent(requests) => out.varint(requests),
        }
    }

    pub(super) fn read(word: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        match word {
            LEAVING => Ok(Self::Leaving),
            SENT => Ok(Self::Sent(input.varint()?)),
            _ => Err(WireError::Reserved),
        }
    }
}
