//! Holds: values that a log keeps for others who fetch a snapshot and go on behind it.
//!
//! A snapshot that takes long to fetch is of no use if the log behind it is gone by then. So the
//! log is kept from there on, for as long as its fetcher goes on to ask, and as long as that takes
//! no more bytes than were granted. A fetcher that takes bytes faster than others write them needs
//! no more than the snapshot has: while its `n` bytes are fetched fewer than `n` are written, while
//! those are fetched fewer still, and so on.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke::NodeId;

use super::ballot::Slot;
use super::log::Log;

/// One for each node that is about to ask for values.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Holds(BTreeMap<NodeId, Hold>);

#[derive(Clone, Debug, Hash)]
struct Hold {
    /// All behind this is kept.
    upto: Slot,
    /// As long as it has no more bytes than these.
    bytes_max: usize,
    /// When its node asked last.
    asked: Duration,
}

impl Holds {
    /// A node fetches a snapshot of all up to here.
    pub(super) fn fetches(&mut self, now: Duration, node: NodeId, upto: Slot, bytes_max: usize) {
        self.0.insert(node, Hold { upto, bytes_max, asked: now });
    }

    /// A node knows all up to here, and asks for what is behind.
    pub(super) fn asks(&mut self, now: Duration, node: NodeId, known: Slot) {
        if let Some(hold) = self.0.get_mut(&node) {
            (hold.asked, hold.upto) = (now, hold.upto.max(known));
        }
    }

    /// The first slot behind which all is kept, of the holds that are left: those that are in vain
    /// end here, of nodes that have not asked for as long as `patience`, or of too many bytes.
    pub(super) fn first(&mut self, now: Duration, patience: Duration, log: &Log) -> Option<Slot> {
        self.0.retain(|_, hold| {
            let is_there = hold.upto >= log.trimmed();
            is_there && now < hold.asked + patience && log.bytes_behind(hold.upto) <= hold.bytes_max
        });
        self.0.values().map(|hold| hold.upto).min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::ballot::{Lives, Value};
    use super::super::membership::{Members, Membership};
    use super::super::message::{Answer, Ask, Record};
    use super::super::replica::{Effect, Kept, Replica, Settings};
    use super::*;

    const KEPT: Kept = Kept { slots: 3, bytes: 300 };

    #[derive(Clone, Debug)]
    enum Step {
        Learn {
            bytes: usize,
        },
        /// A node fetches the latest snapshot, or goes on to fetch what it has begun with.
        Fetch {
            node: u64,
            bytes_max: usize,
        },
        /// A node that has fetched one asks for values behind what it knows.
        Ask {
            node: u64,
        },
        Wait {
            ms: u64,
        },
        Save,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..200usize).prop_map(|bytes| Step::Learn { bytes }),
            2 => (2..4u64, 0..2_000usize)
                .prop_map(|(node, bytes_max)| Step::Fetch { node, bytes_max }),
            2 => (2..4u64).prop_map(|node| Step::Ask { node }),
            1 => (0..6_000u64).prop_map(|ms| Step::Wait { ms }),
            2 => Just(Step::Save),
        ]
    }

    /// A node that fetches, as it knows itself.
    #[derive(Debug)]
    struct Fetcher {
        known: Slot,
        /// Up to here, it has said when it asked last.
        said: Slot,
        bytes_max: usize,
        asked: Duration,
        /// It asked too late, or for too much, when the log was trimmed.
        is_lost: bool,
    }

    struct Case {
        now: Duration,
        replica: Replica,
        sizes: Vec<usize>,
        saved: Slot,
        fetchers: BTreeMap<u64, Fetcher>,
    }

    impl Case {
        fn new() -> Self {
            let mut replica =
                Replica::new(Settings::new(NodeId::new(1), (1..=3).map(NodeId::new)), 1);
            let lives: Lives = (1..=3).map(|node| (NodeId::new(node), node)).collect();
            let formation = Value::Formation(Membership::new(32, Members::formed(&lives)).into());
            let sizes = vec![formation.size()];
            replica.replay(Record::Learned { first: Slot::FIRST, values: vec![formation] });
            let (now, fetchers) = (Duration::ZERO, BTreeMap::new());
            Self { now, replica, sizes, saved: Slot(0), fetchers }
        }

        fn bytes_behind(&self, slot: Slot) -> usize {
            self.sizes.iter().skip(usize::try_from(slot.0).unwrap()).sum()
        }

        /// True while a node can count on what it needs.
        fn is_promised(&self, fetcher: &Fetcher) -> bool {
            !fetcher.is_lost
                && self.now < fetcher.asked + Duration::from_secs(10)
                && self.bytes_behind(fetcher.said) <= fetcher.bytes_max
        }

        fn take(&mut self, step: Step) {
            let now = self.now;
            match step {
                Step::Learn { bytes } => {
                    let value = Value::Commands(vec![0; bytes].into());
                    self.sizes.push(value.size());
                    let first = self.replica.chosen().next();
                    self.replica.replay(Record::Learned { first, values: vec![value] });
                }
                Step::Fetch { node, bytes_max } if self.saved >= Slot::FIRST => {
                    let known = self.saved;
                    let fresh =
                        Fetcher { known, said: known, bytes_max, asked: now, is_lost: false };
                    let fetcher = self.fetchers.entry(node).or_insert(fresh);
                    (fetcher.asked, fetcher.said) = (now, fetcher.known);
                    fetcher.is_lost = fetcher.known < self.replica.trimmed();
                    let (known, bytes_max) = (fetcher.known, fetcher.bytes_max);
                    self.replica.handle_fetching(now, NodeId::new(node), known, bytes_max);
                }
                Step::Ask { node } => self.ask(node),
                Step::Wait { ms } => self.now += Duration::from_millis(ms),
                Step::Save => self.save(),
                Step::Fetch { .. } => {}
            }
        }

        fn ask(&mut self, node: u64) {
            let Some(fetcher) = self.fetchers.get_mut(&node) else { return };
            let ask = Ask::CatchUp { from: fetcher.known.next() };
            while self.replica.poll_effect().is_some() {}
            self.replica.handle_ask(self.now, NodeId::new(node), 7, (1, ask));
            if !fetcher.is_lost {
                (fetcher.asked, fetcher.said) = (self.now, fetcher.known);
            }
            match self.replica.poll_effect() {
                Some(Effect::Answer { answer: Answer::Chosen { values, .. }, .. }) => {
                    // It takes a few of them.
                    fetcher.known = fetcher.known.plus(values.len().min(2));
                }
                Some(Effect::Answer { answer: Answer::Trimmed { .. }, .. }) => {
                    self.fetchers.remove(&node);
                }
                other => panic!("{other:?}"),
            }
        }

        fn save(&mut self) {
            self.saved = self.replica.chosen();
            self.replica.trim(self.now, self.saved, KEPT);
            let trimmed = self.replica.trimmed();
            let promised = self.fetchers.values().filter(|fetcher| self.is_promised(fetcher));
            let bytes = promised.map(|fetcher| fetcher.bytes_max).max().unwrap_or(0);
            assert!(self.bytes_behind(trimmed) <= bytes.max(KEPT.bytes), "{trimmed:?}");
            let mut fetchers = std::mem::take(&mut self.fetchers);
            for fetcher in fetchers.values_mut() {
                fetcher.is_lost = !self.is_promised(fetcher);
                assert!(fetcher.is_lost || fetcher.said >= trimmed, "{fetcher:?}");
            }
            self.fetchers = fetchers;
        }
    }

    proptest! {
        /// A log keeps what it has promised, and no more bytes than that or than are kept anyway.
        #[test]
        fn what_is_promised_is_kept_and_nothing_else(steps in vec(step(), 1..120)) {
            let mut case = Case::new();
            for step in steps {
                case.take(step);
            }
        }
    }
}
