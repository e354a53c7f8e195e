//! The proof by which words and requests are believed: signatures, or connections.
//!
//! With [`Trust::Channels`] whoever is at the other end of a connection has proven his name there,
//! and what he says in that name needs no signature. That convinces the one who hears it and nobody
//! else, so signed is still what others are shown: proposals and votes to prepare, of which proofs
//! are made that a batch was prepared, claims about checkpoints, and the words of a view change.
//! Requests, replies, votes to commit and everything that is fetched are not.
//!
//! # Requests
//! A request is believed that came from its client, and a replica that believes one can only
//! *vouch* for it to the others: one that lies may vouch for what nobody has asked for. So f + 1
//! that vouch are believed, of whom one does not lie. A vote to prepare vouches for all of a batch.
//!
//! A client may lie, too, and ask some replicas alone. Proposed is therefore what 2f + 1 vouch for,
//! and only such a request ends a view: f + 1 of these do not lie, and tell all others, so that
//! nobody waits for something that others never believe. It is the reliable broadcast of Bracha
//! (Information and Computation 1987), of which the last two steps are left out while all goes
//! well.

use super::message::{Message, Phase};

/// The proof by which words and requests are believed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trust {
    /// Signatures, under all of them.
    #[default]
    Signatures,
    /// Connections that prove who is at their other end, and signatures under what certificates
    /// are made of.
    Channels,
}

impl Trust {
    /// True when words like these are believed by the signature under them, whoever brings them.
    pub(super) fn signs(self, message: &Message) -> bool {
        match message {
            Message::Propose(..)
            | Message::Outline(..)
            | Message::Checkpoint(_)
            | Message::ViewChange(_)
            | Message::NewView(_) => true,
            Message::Vote(vote) => self == Self::Signatures || vote.phase != Phase::Commit,
            Message::Stable(_)
            | Message::Status(_)
            | Message::Fetch(_)
            | Message::Fetched(_)
            | Message::Vouch(_)
            | Message::Pass(_)
            | Message::Pull(_) => self == Self::Signatures,
        }
    }
}
