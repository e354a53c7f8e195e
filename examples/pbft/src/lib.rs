//! A replicated key-value store by PBFT: a pure core, the node around it, and its tests.
//!
//! The core has no I/O, clock or randomness: see [`core`] for its inputs and effects, for what is
//! counted and how views change. [`world`] runs several of it with clients, under seeded faults and
//! lies, and checks the safety of the order after every event, and progress once the faults have
//! ended.
//!
//! [`kv`] is the replicated state: a key-value store. [`wire`] turns words, requests and records
//! into bytes, and refuses all other bytes.
//!
//! [`simulation`] runs whole nodes and clients under seeded faults, in virtual time.
//!
//! A [`node`] drives the core over an endpoint and a ledger, and a [`client`] signs requests and
//! believes what f + 1 replicas answer alike.
//!
//! | box of the checklist for PBFT | where |
//! |---|---|
//! | prepared, committed; votes to commit that come early | `core/replica/ordering.rs` |
//! | the first vote of a member counts; two are evidence | [`core::Effect::Lied`] |
//! | quorums of any n | [`core::Group::quorum`] |
//! | watermarks, stable checkpoints with the reply cache, garbage | `core/replica/checkpointing.rs` |
//! | votes are durable before they are said, and the same after a restart | [`core::Effect::Say`], `core/replica/restarting.rs` |
//! | view change: proofs, latest view, null requests, checked by all | [`core::Plan`], [`core::Keys`] |
//! | timers: of signed requests, doubled; the f + 1 rule | `core/replica/changing.rs` |
//! | clients: increasing numbers, replies kept, f + 1 alike | `core/state.rs`, `world/clients.rs` |
//! | fairness: places per client, oldest first, a clock for each request | `core/requests.rs` |
//! | words of one cluster, epoch, kind, view, place, sender | `core/text.rs` |
//! | checked before the one task, many at once; a share for each member; dropped by cause | `node/gate.rs`, `node/service.rs` |
//! | replicas answer clients themselves; f + 1 alike; all asked after a while | `node/service.rs`, [`client`] |
//! | state by digest, in parts, from anybody; a target that moves on | `core/replica/fetching.rs` |
//! | proposals by digests where clients ask all; what is lacking is pulled | `core/replica/outlining.rs` |
//! | unsigned requests, where connections prove clients: f + 1 vouch for them | [`core::Trust`], `core/replica/vouching.rs` |
//! | members change by an ordered command, epochs, proofs of their ends | `core/members.rs`, `core/replica/handing.rs`, [`core::Handover`] |
//! | read-only requests, fast paths, values that the primary chooses | not offered |

#![forbid(unsafe_code)]

pub mod client;
pub mod core;
pub mod key_file;
pub mod kv;
pub mod mutant;
pub mod node;
pub mod settings;
pub mod simulation;
pub mod wire;
pub mod world;

/// Messages, client and server, generated from `proto/pbft.proto`.
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/pbft.rs"));
}
