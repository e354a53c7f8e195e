//! The predicate of quorum calls in a run: replies of k distinct authenticated nodes decide.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use convoke_proto::call::{Decision, Predicate, Tally};
use convoke_proto::id::NodeId;
use convoke_proto::mutant::{self, Mutant};

/// What a predicate was last asked: shared between the call and the oracle.
#[derive(Clone, Debug, Default)]
pub struct QuorumLog(Arc<Mutex<Question>>);

/// One question to a predicate.
#[derive(Clone, Debug, Default)]
pub struct Question {
    /// Senders of replies so far, and whether the connection authenticates them.
    pub senders: Vec<(NodeId, bool)>,
    /// Replies that can still come, if that is known.
    pub max_remaining: Option<u64>,
    /// How often it was asked.
    pub count: u64,
}

impl QuorumLog {
    /// The last question.
    pub fn last(&self) -> Question {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, tally: &Tally<'_>) {
        let mut question = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        question.senders = tally.replies.iter().map(|d| (d.from, d.is_authenticated)).collect();
        question.max_remaining = tally.max_remaining;
        question.count += 1;
    }
}

impl Question {
    /// Distinct nodes that certainly replied.
    pub fn distinct_count(&self) -> usize {
        let authenticated = self.senders.iter().filter(|(_, is_authenticated)| *is_authenticated);
        authenticated.map(|(node, _)| *node).collect::<BTreeSet<_>>().len()
    }
}

/// Replies of `k` distinct authenticated nodes decide.
pub fn predicate(k: usize, log: QuorumLog) -> Predicate {
    Box::new(move |tally| {
        log.note(tally);
        let question = log.last();
        // The mutant counts branches: two that went to the same node are one voice.
        let count = match mutant::is(Mutant::QuorumByPath) {
            true => question.senders.len(),
            false => question.distinct_count(),
        };
        let remaining = tally.max_remaining.and_then(|most| usize::try_from(most).ok());
        if count >= k {
            Decision::Done
        } else if remaining.is_some_and(|most| count + most < k) {
            Decision::Impossible
        } else {
            Decision::Continue
        }
    })
}
