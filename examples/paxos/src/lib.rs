//! A replicated key-value store by Multi-Paxos: a pure core, the node around it, and its tests.
//!
//! The core has no I/O, clock or randomness: see [`core`] for its inputs and effects, for who leads
//! and whose votes count. [`world`] runs several of it under seeded faults and checks the safety of
//! the log after every event, and progress once the faults have ended. [`kv`] is the replicated
//! state: a key-value store with the sessions of its clients. [`wire`] turns the core's messages and
//! records into bytes.
//!
//! A [`node`] drives core and store over an endpoint and a ledger, and a [`client`] sends it
//! requests that take effect once. [`simulation`] runs whole nodes and clients under seeded faults
//! of network and disks, and judges what the clients were told.
//!
//! | box of the checklist for Multi-Paxos | where |
//! |---|---|
//! | promises and votes are durable before they are said | [`core::Effect::AnswerDurable`], `node_kit::durable` |
//! | accepting in a ballot promises it; a promise is raised whatever was accepted | `core/acceptor.rs` |
//! | a ballot is durable before others hear of it | `core/replica/electing.rs` |
//! | phase 1 for all open slots, gaps as no-ops, the value of the latest ballot | `core/preparing.rs`, `core/leader.rs` |
//! | votes per slot and ballot, from distinct acceptors | `core/leader.rs` |
//! | linearizable reads by read index, above all that was proposed | [`core::Replica::read`] |
//! | direct shape: a client counts votes of one slot and ballot | [`client::votes`], `node/polls.rs` |
//! | votes never answer what has a result that is not certain | [`kv::Foresight`] |
//! | elections that get over partial connectivity | [`core::Ask::Canvass`] |
//! | catch-up, snapshots of others, resumed by part | `core/replica/learning.rs`, `node/snapshots.rs` |
//! | the log behind a snapshot is kept while that is fetched, within bounds | `core/holds.rs` |
//! | batches, a bounded pipeline, group commit | `node/requests.rs`, `node/actor.rs` |
//! | requests run once; outcomes that are unknown are said to be | [`kv`], [`client::ClientError`] |
//! | a ledger that was lost is never counted again | [`core::Lives`] |
//! | several proposers | elections alone: two nodes that both believe to lead refuse each other |
//! | members change by the log, a window later; votes per slot by the voters of the slot | [`core::Membership`], `core/replica/changing.rs` |
//! | slots of other voters are opened when these have promised | `core/leader.rs` |
//! | questions of an epoch that is over, and of who is no member, are refused | `core/replica/changing.rs` |
//! | learners | [`core::Part`] |
//! | leases | not offered |

#![forbid(unsafe_code)]

pub mod client;
pub mod core;
pub mod kv;
pub mod mutant;
pub mod node;
pub mod settings;
pub mod simulation;
pub mod wire;
pub mod world;

/// Messages, client and server, generated from `proto/paxos.proto`.
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/paxos.rs"));
}
