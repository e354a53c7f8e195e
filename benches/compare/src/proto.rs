//! The messages of `proto/compare.proto`, and tonic's client and server of it.
#![allow(
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

/// The count of a request that is refused as not found.
pub(crate) const NOT_FOUND: u32 = u32::MAX;
/// The count of a request that is never answered.
pub(crate) const NEVER: u32 = u32::MAX - 1;

tonic::include_proto!("compare");
