//! A shop, as a user of convoke writes one: a `.proto`, three kinds of servers, TLS between them,
//! tests in virtual time. Its README says how to run it.
//!
//! - [`front`]: what customers ask; passes searches on to all shards, and takes orders;
//! - [`catalogue`]: a shard of the items; [`keeper`]: who loads new ones;
//! - [`stock`]: a replica of what is left of each; [`ledger`]: how a front changes it by
//!   majorities;
//! - [`cluster`]: who is where; [`certificates`]: who proves to be whom;
//! - [`disk`]: files that are there whole or not at all.

pub mod catalogue;
pub mod certificates;
pub mod cluster;
pub mod disk;
pub mod front;
pub mod keeper;
pub mod ledger;
pub mod stock;

/// Messages, servers and clients of `proto/shop.proto`.
#[allow(missing_docs, reason = "fields without a comment in the .proto file")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/shop.rs"));
}
