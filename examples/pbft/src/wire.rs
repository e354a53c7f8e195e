//! Bytes of the core's words, requests, replies and records, and back.
//!
//! Every value has one encoding, and no other bytes are read as it: what ends too early, goes on
//! behind the end, has an unknown kind, or names members twice is [`Malformed`]. Nothing is
//! allocated for what is announced and not there: a count is believed as far as so many values fit
//! into the bytes that are left.
//!
//! ```
//! use pbft::core::{ClientId, Request, Signature, SignedRequest};
//! use pbft::wire::{self, Malformed};
//!
//! let request = Request { client: ClientId(7), number: 1, operation: "x".into() };
//! let signed = SignedRequest { request, signature: Signature([3; 64]) };
//! let bytes = wire::encode(&signed);
//! assert_eq!(wire::decode(bytes.clone()), Ok(signed));
//! assert_eq!(wire::decode::<SignedRequest>(bytes.slice(1..)), Err(Malformed::Format(7)));
//! ```

mod members;
mod message;
mod reader;
mod record;
#[cfg(test)]
mod tests;

use bytes::Bytes;

pub(crate) use self::message::kinds;
pub use self::reader::{Malformed, Reader};
pub(crate) use self::reader::{put_bytes, put_kind};

/// The format of all that is encoded here. Another is refused by its number.
const FORMAT: u8 = 3;

/// A value that has bytes.
pub trait Wire: Sized {
    /// The fewest bytes that it takes.
    const LEAST: usize;

    /// Appends its bytes.
    fn put(&self, out: &mut Vec<u8>);

    /// Takes it from the front of what is left.
    ///
    /// # Errors
    /// [`Malformed`].
    fn take(from: &mut Reader) -> Result<Self, Malformed>;
}

/// The bytes of a value, with the format before them.
pub fn encode(value: &impl Wire) -> Bytes {
    let mut out = vec![FORMAT];
    value.put(&mut out);
    out.into()
}

/// The value of these bytes, which have to be all of it.
///
/// # Errors
/// [`Malformed`].
pub fn decode<T: Wire>(bytes: Bytes) -> Result<T, Malformed> {
    let mut from = Reader::new(bytes);
    match u8::take(&mut from)? {
        FORMAT => {}
        other => return Err(Malformed::Format(other)),
    }
    let value = T::take(&mut from)?;
    from.finish().map(|()| value)
}
