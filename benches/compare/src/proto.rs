//! The messages of `proto/compare.proto`, and tonic's client and server of it.
#![allow(
    unreachable_pub,
    missing_docs,
    missing_debug_implementations,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated"
)]

tonic::include_proto!("compare");
