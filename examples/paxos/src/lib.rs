//! Multi-Paxos as a pure core, and the world that tests it.
//!
//! The core has no I/O, clock or randomness: see [`core`] for its inputs and effects, for who leads
//! and whose votes count. [`world`] runs several of it under seeded faults and checks the safety of
//! the log after every event, and progress once the faults have ended.
//!
//! It is not a node yet: nothing here listens. The program `paxos` runs seeds of the world.
//!
//! | box of the checklist for Multi-Paxos | where |
//! |---|---|
//! | promises and votes are durable before they are said | [`core::Effect::AnswerDurable`], `node_kit::durable` |
//! | accepting in a ballot promises it; a promise is raised whatever was accepted | `core/acceptor.rs` |
//! | a ballot is durable before others hear of it | `core/replica/electing.rs` |
//! | phase 1 for all open slots, gaps as no-ops, the value of the latest ballot | `core/replica/leading.rs` |
//! | votes per slot and ballot, from distinct acceptors | `core/leader.rs` |
//! | linearizable reads by read index, above all that was proposed | [`core::Replica::read`] |
//! | elections that get over partial connectivity | [`core::Ask::Canvass`] |
//! | catch-up, snapshots of others | `core/replica/learning.rs` |
//! | a ledger that was lost is never counted again | [`core::Lives`] |
//! | several proposers | elections alone: two nodes that both believe to lead refuse each other |
//! | membership change, learners by configuration, leases | not offered |

#![forbid(unsafe_code)]

pub mod core;
pub mod mutant;
pub mod world;
