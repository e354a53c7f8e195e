//! Multi-Paxos without I/O, clock or randomness: input in, effects out.
//!
//! A [`Replica`] is acceptor, proposer and learner of one log. What it is asked, what it is
//! answered and the time are its inputs; what it wants done comes out as [`Effect`]s, in the order
//! in which they have to be done.
//!
//! ```text
//!             handle_ask ──┐                        ┌─▶ Append      a record of the ledger
//!          handle_answer ──┤                        ├─▶ Answer      once that is durable (Held)
//!   propose, read, trim ───┼──▶  Replica  ──────────┼─▶ Ask         others
//!         handle_timeout ──┤   poll_effect          ├─▶ Apply       the next value of the log
//!                          └── poll_timeout ◀───────┴─▶ Ready       a read may be answered
//! ```
//!
//! # Who leads
//! A node that has not heard from a leader for the election timeout first *canvasses*: it asks the
//! others if they miss a leader, too. Only with a majority of them it takes a ballot of its own, so
//! that a node with broken links disturbs nobody. A leader that does not hear from a majority for
//! the same time stops leading, so that others begin to miss it. Both together get over the three
//! shapes of partial connectivity of the OmniPaxos paper (EuroSys 2023, section 2): quorum loss,
//! constrained election, chain.
//!
//! A new leader first catches up: it learns all that others know to be chosen, proposes again what
//! they have accepted behind that, and takes new values once all of it is applied.
//!
//! # Whose votes count
//! A ledger has a number, its [`Life`]. The first value of a log is the *formation*: the lives of
//! all voters, who have to be there for it, all of them, once. From then on a promise or a vote
//! counts only from the life that is written there. A node that has lost its memory or its disk has
//! another life: it learns, and is not counted, since what it had promised is forgotten (Michael
//! et al., "Recovering shared objects without stable storage", DISC 2017).
//!
//! # Who is a member
//! The members are a function of the log: a [change](Value::Change) that is chosen in a slot is in
//! force a window of slots later, and no slot further ahead is ever proposed ("a reconfigurable
//! state machine", Lamport, Paxos Made Simple, section 3). So votes are counted slot by slot, by
//! the voters of each. A leader opens slots of other voters once a majority of them has promised
//! its ballot, too. Each configuration has a number, its epoch, which all questions carry: who is
//! no member any more and does not know is told so, and disturbs nobody.
//!
//! A member that does not vote is asked as all others are, so it has the log; its answers count
//! nowhere. One that is to vote is let to by the leader when it has caught up.

mod acceptor;
mod ballot;
mod holds;
mod leader;
mod log;
mod membership;
mod message;
mod preparing;
mod replica;

pub use self::ballot::{Ballot, Life, Lives, Slot, Value};
pub use self::membership::{Member, Members, Membership, Part, majority};
pub use self::message::{Accepted, Answer, Ask, Record};
pub use self::replica::{
    Effect, Kept, NotLeading, NotProposed, Recipients, Replica, Settings, Standing, Token,
};
