//! Places of what others ask for: so much waits at a time, and one who asks much leaves some for
//! everybody else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke::details::RetryInfo;
use convoke::{Code, NodeId, Status};
use parking_lot::Mutex;

/// Places in all, and those that are taken, by who asks. Clones are the same places.
///
/// An asker may have three times as much as is free by then. One that takes all it can leaves a
/// quarter to others, and a second one a quarter of that. As places become free those get them who
/// have few: two that go on so have three sevenths each in the end, and leave one.
#[derive(Clone, Debug)]
pub struct Places(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    each_max: usize,
    /// Share of one who asks: so many times what is free.
    own_per_free: usize,
    all: Taken,
    taken: Mutex<(Taken, BTreeMap<NodeId, Taken>)>,
}

/// Count and bytes of what waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Taken {
    count: usize,
    bytes: usize,
}

impl Places {
    /// So many places, for so many bytes in all.
    pub fn new(count: usize, bytes: usize) -> Self {
        Self::with_each_max(usize::MAX, count, bytes)
    }

    /// So many places of which one who asks has `each` at most.
    pub fn with_each_max(each: usize, count: usize, bytes: usize) -> Self {
        Self::shared(each, OWN_PER_FREE, Taken { count, bytes })
    }

    /// So many places, for so many bytes in all, which one who asks may have alone: of somebody who
    /// shares them with nobody.
    pub fn of_one(count: usize, bytes: usize) -> Self {
        Self::shared(usize::MAX, usize::MAX, Taken { count, bytes })
    }

    fn shared(each_max: usize, own_per_free: usize, all: Taken) -> Self {
        Self(Arc::new(Shared { each_max, own_per_free, all, taken: Mutex::default() }))
    }

    /// A place for so many bytes of this node, if there is room. More than all bytes count as all.
    pub fn place(&self, asker: NodeId, bytes: usize) -> Option<Place> {
        let Shared { each_max, own_per_free, all, taken } = &*self.0;
        let bytes = bytes.min(all.bytes);
        let has_room = |own: usize, free: usize, more| {
            more <= free && own.saturating_add(more) <= free.saturating_mul(*own_per_free)
        };
        let (waiting, by_asker) = &mut *taken.lock();
        let own = by_asker.get(&asker).copied().unwrap_or_default();
        let fits = own.count < *each_max
            && has_room(own.count, all.count - waiting.count, 1)
            && has_room(own.bytes, all.bytes - waiting.bytes, bytes);
        if !fits {
            return None;
        }
        for taken in [waiting, by_asker.entry(asker).or_default()] {
            taken.count += 1;
            taken.bytes += bytes;
        }
        Some(Place { asker, bytes, places: self.clone() })
    }
}

/// A place that is taken, until it is dropped.
#[derive(Debug)]
pub struct Place {
    asker: NodeId,
    bytes: usize,
    places: Places,
}

impl Drop for Place {
    fn drop(&mut self) {
        let (waiting, by_asker) = &mut *self.places.0.taken.lock();
        waiting.count -= 1;
        waiting.bytes -= self.bytes;
        if let Some(own) = by_asker.get_mut(&self.asker) {
            own.count -= 1;
            own.bytes -= self.bytes;
            if own.count == 0 {
                by_asker.remove(&self.asker);
            }
        }
    }
}

/// The refusal of a node that has no place for what it is asked for, and its advice. Nothing was
/// done.
pub fn no_place() -> Status {
    let text = "too many requests wait here: ask again after a pause, for fewer at a time";
    let status = Status::new(Code::ResourceExhausted, text).without_effect();
    status.with_detail(&RetryInfo::after(AGAIN_AFTER))
}

/// Share of one who asks beside others.
const OWN_PER_FREE: usize = 3;

/// Pause before what was refused is asked for again: thousands of requests are done by then.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    /// As many places as one who asks gets, of so many bytes each.
    fn fill(places: &Places, asker: u64, bytes: usize) -> Vec<Place> {
        std::iter::from_fn(|| places.place(NodeId::new(asker), bytes)).collect()
    }

    #[test]
    fn who_asks_much_leaves_places_for_others() {
        let places = Places::new(1_000, 1_000);
        let first = fill(&places, 1, 1);
        assert_eq!(first.len(), 750, "one has three quarters");
        let others: Vec<_> = (2..=4).map(|asker| fill(&places, asker, 1)).collect();
        assert!(others.iter().all(|of| !of.is_empty()), "others that flood have some");
        assert!(places.place(NodeId::new(5), 1).is_some(), "and one that asks once has, too");
        assert!(places.place(NodeId::new(1), 1).is_none(), "who has most gets no more");
        drop((first, others));
        assert_eq!(*places.0.taken.lock(), Default::default(), "all is free again");
    }

    #[test]
    fn bytes_are_shared_out_as_places_are() {
        let places = Places::new(1_000, 1_000);
        let first = fill(&places, 1, 10);
        assert_eq!(first.len(), 75, "three quarters of the bytes");
        assert!(places.place(NodeId::new(2), 251).is_none(), "more than is left");
        assert!(places.place(NodeId::new(2), 250).is_some(), "all that is left");
        drop(first);
        let largest = places.place(NodeId::new(1), 5_000);
        assert!(largest.is_some(), "it waits for all to be free, and for no more");
        assert!(places.place(NodeId::new(2), 1).is_none());
    }

    #[test]
    fn one_who_asks_has_no_more_than_each_may() {
        let places = Places::with_each_max(64, 1_024, usize::MAX);
        let first = fill(&places, 1, 0);
        assert_eq!(first.len(), 64);
        let others: Vec<_> = (2..).map_while(|of| places.place(NodeId::new(of), 0)).collect();
        assert_eq!(first.len() + others.len(), 1_024, "those who ask once fill all places");
        drop(first);
        assert!(places.place(NodeId::new(1), 0).is_some());
    }

    #[test]
    fn who_shares_with_nobody_has_all() {
        let places = Places::of_one(1_000, 1_000);
        let taken = fill(&places, 1, 1);
        assert_eq!(taken.len(), 1_000);
        drop(taken);
        assert_eq!(fill(&places, 1, 300).len(), 3, "bytes are bounded, too");
    }

    #[test]
    fn without_places_nobody_gets_one() {
        assert!(Places::new(0, 1_000).place(NodeId::new(1), 1).is_none());
    }

    #[test]
    fn a_refusal_says_when_to_ask_again() {
        let refusal = no_place();
        let pause = refusal.detail::<RetryInfo>().and_then(|later| later.delay());
        assert_eq!((refusal.code(), pause), (Code::ResourceExhausted, Some(AGAIN_AFTER)));
    }
}
