//! Votes: a client that counts them knows its request chosen one way sooner than through the
//! leader.
//!
//! ```text
//!   gather   client ─▶ leader ─▶ acceptors ─▶ leader ─▶ client     4 ways
//!   direct   client ─▶ leader ─▶ acceptors ─▶ client               3 ways
//! ```
//! The leader has each voter reply to the client itself, as a branch of the client's call. That is
//! for puts whose result is certain beforehand, as votes prove a request chosen, and nothing of its
//! result: all else is answered by the leader, by what the machine has replied.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use convoke::quorum::{Configuration, QuorumError, QuorumExt as _, Verdict};
use convoke::{CallBuilder, CallError, Failure};

use super::attempts::has_not_run;
use crate::core::{Ballot, Slot, majority};
use crate::mutant::{self, Mutant};
use crate::proto::{Done, Reply, Vote, reply};
use crate::wire;

/// Shape of a client's puts. Either is as safe; they differ in delay, and in what they cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// The leader gathers the votes, and answers.
    #[default]
    Gather,
    /// Voters answer the client, which counts them. Its endpoint has to be connected to all of
    /// them, as one that [keeps connected](convoke::EndpointBuilder::keep_connected) is.
    Direct,
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gather => "gather",
            Self::Direct => "direct",
        })
    }
}

/// A reply to a request.
#[derive(Clone, Debug)]
pub struct Counted {
    /// The reply.
    pub reply: Reply,
    /// True where the leader has not said so: a majority has voted for it.
    pub by_votes: bool,
}

/// Makes a call whose leaves may be voters among these members.
///
/// # Errors
/// That of the node that was asked; [`CallError::NoReply`] where the request may be chosen.
pub async fn count(
    call: CallBuilder<Reply>,
    members: &Configuration,
    within: Duration,
) -> Result<Counted, CallError> {
    let call = call.among(members).deadline(within);
    let counted = call.quorum_by(|replies| {
        let replies = || replies.iter().map(|(_, reply)| reply);
        let is_vote = |reply: &&Reply| matches!(reply.result, Some(reply::Result::Vote(_)));
        let told = replies().find(|reply| !is_vote(reply)).cloned();
        let told = told.map(|reply| Counted { reply, by_votes: false });
        let chosen = || Some(Counted { reply: chosen(replies())?, by_votes: true });
        told.or_else(chosen).map_or(Verdict::Continue, Verdict::Done)
    });
    counted.await.map_err(failure)
}

/// Done, if these replies, each of another node, have the votes of a majority in one slot and one
/// ballot.
pub fn chosen<'a>(replies: impl IntoIterator<Item = &'a Reply>) -> Option<Reply> {
    let mut counts = BTreeMap::<(Slot, Ballot), usize>::new();
    for reply in replies {
        let Some(reply::Result::Vote(Vote { slot, ballot, voters })) = &reply.result else {
            continue;
        };
        let ballot = wire::ballot(*ballot);
        // Votes of two ballots may be for two values.
        let counted = if mutant::is(Mutant::CountsPerSlot) { Ballot::NONE } else { ballot };
        let count = counts.entry((Slot(*slot), counted)).or_default();
        *count += 1;
        if *count >= majority(usize::try_from(*voters).unwrap_or(usize::MAX)) {
            let result = Some(reply::Result::Done(Done {}));
            return Some(Reply { result, leader: ballot.node });
        }
    }
    None
}

/// The refusal of the node that was asked, or that it handed the request to, if nothing else is
/// known. Below that are the branches of voters, whose failure says nothing of the request.
fn failure(error: QuorumError) -> CallError {
    if let QuorumError::NotOpened(error) = error {
        return error;
    }
    let Some(short) = error.shortfall() else { return CallError::NoReply };
    let members = short.failed.iter().filter_map(|(_, error)| error.failure());
    let is_of_asked = |failure: &&Failure| failure.task.path.level_count() == 1;
    let (asked, below): (Vec<_>, Vec<_>) = members.chain(&short.others).partition(is_of_asked);
    let Some(error) = asked.first().map(|failure| CallError::Branch((*failure).clone())) else {
        return CallError::NoReply;
    };
    let is_alone = below.is_empty() && short.replied.is_empty();
    if has_not_run(&error) && !is_alone { CallError::NoReply } else { error }
}
