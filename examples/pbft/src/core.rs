//! PBFT without I/O, clock or randomness: input in, effects out.
//!
//! A [`Replica`] is one of n members, of whom f lie at most, n >= 3f + 1. What members and clients
//! say and the time are its inputs; what it wants done comes out as [`Effect`]s, in the order in
//! which they have to be done.
//!
//! ```text
//!   Signed ──▶ Keys::open ──▶ Verified          ┌─▶ Append    a record of the ledger
//!                               │               ├─▶ Say       signed, once that is durable (Held)
//!            handle_message  ◀──┤               ├─▶ Relay     words that were said before
//!            handle_request  ◀──┘  Replica ─────┼─▶ Forward   a request, to the primary
//!            handle_timeout      poll_effect    ├─▶ Reply     to a client
//!              poll_timeout ◀───────────────────┴─▶ Lied      evidence: two words of one member
//! ```
//!
//! # What is counted
//! The core takes [`Verified`] words alone, and [`Keys`] makes them: no vote is counted before its
//! signature is checked, or made. A replica's own votes come back to it by the same door, signed,
//! once what they rest on is durable. Per phase, view and place the first vote of a member counts.
//! The primary's proposal is its vote to prepare, and it has no other, so a quorum is ceil((n + f +
//! 1) / 2) of all members in each phase.
//!
//! # Requests
//! Clients sign them, or their connections prove them: see [`Trust`] for who is believed then.
//!
//! # Views
//! A request that a client has signed and that is not executed within the timeout ends the view,
//! whoever its client is. The timeout doubles with every view that fails. Word that a view is
//! wanted carries proofs that others can check: the stable checkpoint, and of each place above it
//! the batch that was prepared in the latest view. What a new view begins with, its [`Plan`],
//! follows from the word of a quorum; nobody has to be believed about it.
//!
//! # What is lost
//! Each replica reports its [`Status`] now and then, and is told again what it lacks: votes, proof
//! of a checkpoint, the beginning of a view. Batches are fetched by their digest, and the state
//! behind a checkpoint in parts by theirs, from anybody.
//!
//! # Where clients ask all
//! Each replica has heard the requests by then, so a proposal may have their digests alone: see
//! [`Outline`]. Who lacks some pulls those.
//!
//! Castro and Liskov, "Practical Byzantine fault tolerance" (OSDI 1999), with signatures for all
//! words. Departs from it: places and views are bound by the new view message alone, without
//! proposals in it; the primary proposes them again one by one, and a backup takes them if they
//! agree.

mod group;
mod handover;
mod keys;
mod known;
mod members;
mod message;
mod plan;
mod replica;
mod replies;
mod requests;
mod signature;
mod sizes;
mod slot;
mod state;
mod text;
mod trust;
mod vouches;

pub use self::group::{ClientId, Digest, Group, NoMembers, Sequence, TooOpen, View};
pub use self::handover::Handover;
pub use self::keys::{Keys, Refused, Scope, Signed, Unproven, Verified};
pub use self::members::{
    Change, Changed, FIRST_EPOCH, MEMBERS_MAX, Member, Members, Membership, NotChanged,
};
pub use self::message::{
    Batch, Checkpoint, Fetch, Fetched, Message, NewView, Outcome, Outline, Phase, Prepared, Record,
    Reply, Request, Signatures, SignedRequest, Stable, Status, ViewChange, Vote, Vouch,
};
pub use self::plan::Plan;
pub use self::replica::{Effect, Forgotten, Replica, Settings};
pub use self::replies::{Beside, SignedReply};
pub use self::signature::{Checker, Claims, Signature, Signer};
pub use self::state::{Executed, Machine};
pub use self::trust::Trust;
