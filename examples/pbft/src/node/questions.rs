//! Questions that anybody may ask, members or not: few of them wait at a time, so that none keeps
//! another, or the words of members, from being heard.

use std::collections::BTreeMap;
use std::sync::Arc;

use convoke::NodeId;
use parking_lot::Mutex;

/// Questions of one node that wait, at most. Clients of one endpoint may each ask at once when the
/// members change; those beyond ask again.
const EACH_MAX: usize = 64;

/// Questions that wait, at most: a small part of the inputs, and 64 MiB of answers.
const ALL_MAX: usize = 1_024;

/// All that wait, by who asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Questions(Arc<Mutex<BTreeMap<NodeId, usize>>>);

impl Questions {
    /// A place for another one of this node, if there is room.
    pub(super) fn place(&self, asker: NodeId) -> Option<Arc<Place>> {
        let mut waiting = self.0.lock();
        let (all, own) = (waiting.values().sum::<usize>(), waiting.get(&asker).copied());
        if all >= ALL_MAX || own.is_some_and(|own| own >= EACH_MAX) {
            return None;
        }
        *waiting.entry(asker).or_default() += 1;
        Some(Arc::new(Place { asker, questions: self.clone() }))
    }
}

/// The place of a question, until neither the actor nor the handler has it: a call that is given up
/// leaves its question before the actor.
#[derive(Debug)]
pub(super) struct Place {
    asker: NodeId,
    questions: Questions,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.questions.0.lock();
        if let Some(count) = waiting.get_mut(&self.asker) {
            *count -= 1;
            if *count == 0 {
                waiting.remove(&self.asker);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_much_takes_no_place_of_others() {
        let questions = Questions::default();
        let ask = |asker: u64| questions.place(NodeId::new(asker));
        let first: Vec<_> = (0..EACH_MAX).map_while(|_| ask(1)).collect();
        assert!(first.len() == EACH_MAX && ask(1).is_none());
        let others: Vec<_> = (2..).map_while(ask).take(ALL_MAX).collect();
        assert_eq!(first.len() + others.len(), ALL_MAX);
        drop(first);
        assert!(ask(1).is_some());
        drop(others);
        assert!(questions.0.lock().is_empty());
    }
}
