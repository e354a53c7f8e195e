//! First bytes of a frame: what they tell before the rest of it is there.

use crate::id::{CallId, MethodId};
use crate::link::ORDER_HEAD_BYTES;

use super::codec::{Reader, WireError};
use super::request::FLAG_OUTLASTED;
use super::{FLAG_RELAYED, First, Header, KIND_REQUEST, Relayed};

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
