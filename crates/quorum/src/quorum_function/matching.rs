//! Members that say the same.

use std::fmt;

use crate::{QuorumFunction, QuorumSystem, Replies, Threshold, Verdict};

/// The reply on which a number of members agree; see [`matching`].
#[derive(Clone, Copy)]
pub struct Matching<E> {
    enough: Threshold,
    are_equal: E,
}

/// The reply that `count` members give alike. With up to `f` members that lie, `f + 1` matching
/// replies include an honest one.
pub fn matching<Resp: PartialEq>(count: usize) -> Matching<fn(&Resp, &Resp) -> bool> {
    Matching { enough: Threshold(count), are_equal: Resp::eq }
}

/// As [`matching`], where `are_equal` says which replies are alike. It must be an equivalence.
pub fn matching_by<Resp, E: Fn(&Resp, &Resp) -> bool>(count: usize, are_equal: E) -> Matching<E> {
    Matching { enough: Threshold(count), are_equal }
}

impl<Resp, E: Fn(&Resp, &Resp) -> bool> QuorumFunction<Resp> for Matching<E> {
    type Output = Resp;

    fn system(&self) -> &dyn QuorumSystem {
        &self.enough
    }

    fn believes_relays(&self) -> bool {
        false // Only where some may lie does it take several that agree.
    }

    fn decide(&mut self, replies: &mut Replies<Resp>) -> Verdict<Resp> {
        let Threshold(count) = self.enough;
        let count_alike = |reply: &Resp| {
            replies.iter().filter(|(_, other)| (self.are_equal)(reply, other)).count()
        };
        let largest = replies
            .iter()
            .map(|(member, reply)| (count_alike(reply), member))
            .max_by_key(|(count, _)| *count);
        let (most, member) = match largest {
            Some((most, member)) => (most, Some(member)),
            None => (0, None),
        };
        if most >= count {
            let agreed = member.and_then(|member| replies.take(member));
            return agreed.map_or(Verdict::Impossible, Verdict::Done);
        }
        // A member that streams may come to say what any of the others say.
        let is_streaming = |member| {
            let index = replies.index_of(member);
            index.is_some_and(|index| replies.streaming().contains(index))
        };
        let best = match replies.streaming().is_empty() {
            true => most,
            false => {
                let streaming = replies.iter().filter(|(member, _)| is_streaming(*member));
                let streaming: Vec<&Resp> = streaming.map(|(_, reply)| reply).collect();
                let others = |reply: &Resp| {
                    streaming.iter().filter(|other| !(self.are_equal)(reply, other)).count()
                };
                let each = replies.iter().map(|(_, reply)| count_alike(reply) + others(reply));
                each.chain([streaming.len()]).max().unwrap_or(0)
            }
        };
        match best + replies.remaining() < count {
            true => Verdict::Impossible,
            false => Verdict::Continue,
        }
    }

    fn why_impossible(&self, replies: &Replies<Resp>) -> Option<String> {
        let Threshold(count) = self.enough;
        let is_told = replies.iter().count() >= count;
        is_told.then(|| format!("no {count} of the replies are equal"))
    }
}

impl<E> fmt::Debug for Matching<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matching({})", self.enough.0)
    }
}
