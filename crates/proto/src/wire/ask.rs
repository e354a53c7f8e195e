//! ASK: a server asks which calls of some origins are settled.

use crate::id::Incarnation;

use super::codec::{Out, Reader, WireError};

/// Most origins that one ASK asks for, and most statements of one SETTLED, which answers it.
pub const ASKED_MAX: usize = 256;

/// Asks for statements about the calls of some origins, each from a number on. It is about no one
/// call: its header is [`Header::of_question`](super::Header::of_question). Typically 29 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Origins that the answer should be about, and the least call number of each: one to
    /// [`ASKED_MAX`], ascending, each once.
    pub origins: Vec<(Incarnation, u64)>,
}

/// Fewest bytes of an origin and a number.
const ORIGIN_BYTES_MIN: usize = 9;

impl Ask {
    pub(super) fn write(&self, out: &mut impl Out) {
        out.count(self.origins.len());
        for (origin, from) in &self.origins {
            out.u64(origin.0);
            out.varint(*from);
        }
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let origins = input.some(ASKED_MAX, ORIGIN_BYTES_MIN, |input| {
            Ok((Incarnation(input.u64()?), input.varint()?))
        })?;
        // Twice the same would be twice the work.
        let is_once = origins.is_sorted_by(|(one, _), (next, _)| one < next);
        if is_once { Ok(Self { origins }) } else { Err(WireError::Invalid) }
    }
}
