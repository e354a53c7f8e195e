//! First bytes of a frame: what they tell before the rest of it is there.

use crate::id::{CallId, Incarnation, MethodId};
use crate::link::ORDER_HEAD_BYTES;

use super::codec::{Reader, WireError};
use super::request::FLAG_OUTLASTED;
use super::{
    FLAG_RELAYED, First, Header, KIND_ASK, KIND_BITS, KIND_REQUEST, KIND_SETTLED, Relayed,
};

/// Call of a frame, and its method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glance {
    /// The call.
    pub call: CallId,
    /// Of a REQUEST: what it asks for.
    pub method: Option<MethodId>,
}

impl Glance {
    /// Takes it from the first bytes of a frame, or from all of a short one.
    ///
    /// # Errors
    /// [`WireError`] for what is not the beginning of a frame.
    pub fn of(head: &[u8]) -> Result<Self, WireError> {
        let mut input = Reader::new(&head[..head.len().min(ORDER_HEAD_BYTES)]);
        let (first, flags) = (First::read(&mut input)?, input.u8()?);
        let call = Header::read(&mut input)?.call;
        if first.kind != KIND_REQUEST {
            return Ok(Self { call, method: None });
        }
        if flags & FLAG_RELAYED != 0 {
            Relayed::read(&mut input)?;
        }
        let _key = input.u64()?;
        let _budget = input.varint()?;
        if flags & FLAG_OUTLASTED != 0 {
            input.varint()?;
        }
        let _floor = input.varint()?;
        Ok(Self { call, method: Some(MethodId(input.u32()?)) })
    }
}

/// Origin that a frame speaks of, by the bytes that every frame begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// That of its call or cast.
    One(Incarnation),
    /// Those that it lists.
    Several,
}

impl Subject {
    /// `None` for too few bytes to be a frame.
    #[inline]
    pub(crate) fn of(frame: &[u8]) -> Option<Self> {
        let [first, _flags, rest @ ..] = frame else { return None };
        let origin = u64::from_le_bytes(*rest.first_chunk()?);
        let is_of_several = matches!(first & KIND_BITS, KIND_ASK | KIND_SETTLED);
        Some(if is_of_several { Self::Several } else { Self::One(Incarnation(origin)) })
    }
}
