//! The messages of `proto/compare.proto`, and tonic's client and server of it.
#![allow(
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

use anyhow::{Result, ensure};

use crate::drive::Work;

/// The count of a request that is refused as not found.
pub(crate) const NOT_FOUND: u32 = u32::MAX;
/// The count of a request that is never answered.
pub(crate) const NEVER: u32 = u32::MAX - 1;

tonic::include_proto!("compare");

/// A request of some work, with a count.
pub(crate) fn counted(work: &Work, count: usize) -> Payload {
    let count = u32::try_from(count).expect("benches count to a thousand");
    Payload { body: work.payload.clone(), count, ..Payload::default() }
}

/// Looks at the size of a reply.
///
/// # Errors
/// When it has another.
pub(crate) fn expect_bytes(reply: &Payload, bytes: usize) -> Result<()> {
    ensure!(reply.body.len() == bytes, "a reply of {} bytes instead of {bytes}", reply.body.len());
    Ok(())
}
