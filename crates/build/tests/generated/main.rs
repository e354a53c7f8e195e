//! Generated code, compiled under strict lints and run: of services and of quorum calls, in one
//! program that is linked once.

#![deny(
    warnings,
    deprecated,
    future_incompatible,
    nonstandard_style,
    rust_2018_idioms,
    unused,
    dead_code,
    missing_docs,
    missing_debug_implementations,
    unreachable_pub,
    elided_lifetimes_in_paths,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::missing_errors_doc,
    clippy::allow_attributes_without_reason
)]

mod end_to_end;
mod members;
#[allow(clippy::used_underscore_items, reason = "such names are what it is about")]
mod odd_names;
