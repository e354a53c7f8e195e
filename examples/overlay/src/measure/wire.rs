//! Words of hosts that measure each other, over TCP: a byte that says what it is, then numbers.
//!
//! ```text
//! ECHO  = 'E', then 8 bytes, sent back, as often as wanted
//! BULK  = 'B' | duration ms u32, then bytes to the end; answer: how many came in the last three
//!         quarters of the duration, u64
//! SEND  = 'S' | duration ms u32 | flows u32 | count u32 | indices of sites u32 each;
//!         answer: kbit/s, u64
//! RTT   = 'R' | index of a site u32; answer: microseconds, u64
//! STOP  = 'Q'
//! ```
//! Numbers are little-endian.

use std::io::{Read, Result, Write};

pub(super) const ECHO: u8 = b'E';
pub(super) const BULK: u8 = b'B';
pub(super) const SEND: u8 = b'S';
pub(super) const RTT: u8 = b'R';
pub(super) const STOP: u8 = b'Q';

pub(super) fn read_u8(from: &mut impl Read) -> Result<u8> {
    let mut byte = [0];
    from.read_exact(&mut byte)?;
    Ok(byte[0])
}

pub(super) fn read_u32(from: &mut impl Read) -> Result<u32> {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

pub(super) fn read_u64(from: &mut impl Read) -> Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

pub(super) fn write_u64(to: &mut impl Write, number: u64) -> Result<()> {
    to.write_all(&number.to_le_bytes())
}

/// A message of a kind with numbers.
pub(super) fn message(kind: u8, numbers: impl IntoIterator<Item = u32>) -> Vec<u8> {
    let mut bytes = vec![kind];
    numbers.into_iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    bytes
}
