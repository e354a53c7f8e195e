//! A shop, as a user of convoke writes one: a `.proto`, three kinds of servers, TLS between them, tests in
//! virtual time. Its README says how to run it.
//!
//! - [`front`]: what customers ask; passes searches on to all shards, and takes orders;
//! - [`catalogue`]: a shard of the items;
//! - [`stock`]: a replica of what is left of each; [`ledger`]: how a front changes it by majorities;
//! - [`cluster`]: who is where; [`certificates`]: who proves to be whom.

pub mod catalogue;
pub mod certificates;
pub mod cluster;
pub mod front;
pub mod ledger;
pub mod stock;

/// Messages, servers and clients of `proto/shop.proto`.
#[allow(missing_docs, reason = "fields without a comment in the .proto file")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/shop.rs"));
}
