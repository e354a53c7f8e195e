//! Wakers of those who wait for calls, in a ring by number as the young calls themselves lie in.

use std::collections::BTreeMap;
use std::task::Waker;

use convoke_proto::id::CallId;
use convoke_proto::ring::Ring;

/// From the oldest call in the ring to the newest, at most. The wakers of older ones are few and in
/// a map, so that one call that is long open does not hold the room of all that came since: 64 KiB.
const SPAN_MAX: u64 = 4_096;

/// The wakers of callers, by call. They share the lock of the node, which says whom it has news
/// for.
#[derive(Debug, Default)]
pub(super) struct Parked {
    young: Ring<Waker>,
    old: BTreeMap<u64, Waker>,
}

impl Parked {
    /// Keeps who waits for a call. What it takes the place of is not woken, for its task is the one
    /// that is here; it is given back to be dropped without the lock, since that may call back.
    pub(super) fn park(&mut self, call: CallId, waker: &Waker) -> Option<Waker> {
        let seq = call.seq;
        let kept = match self.young.get_mut(seq) {
            None if self.old.is_empty() => None,
            None => self.old.get_mut(&seq),
            kept => kept,
        };
        if let Some(kept) = kept {
            return (!kept.will_wake(waker)).then(|| std::mem::replace(kept, waker.clone()));
        }
        while let Some((oldest, _)) = self.young.front()
            && seq.saturating_sub(oldest) >= SPAN_MAX
        {
            self.old.extend(self.young.remove(oldest).map(|waker| (oldest, waker)));
        }
        if let Err(waker) = self.young.insert(seq, waker.clone()) {
            self.old.insert(seq, waker);
        }
        None
    }

    /// Keeps who waits for a call that is new: its number is above all others.
    #[inline]
    pub(super) fn park_new(&mut self, call: CallId, waker: &Waker) {
        if self.young.front().is_some_and(|(oldest, _)| call.seq - oldest >= SPAN_MAX) {
            let _none = self.park(call, waker);
        } else {
            self.young.push(call.seq, waker.clone());
        }
    }

    /// Takes the waker of who waits for a call.
    #[inline]
    pub(super) fn take(&mut self, call: CallId) -> Option<Waker> {
        let young = self.young.remove(call.seq);
        if young.is_some() || self.old.is_empty() { young } else { self.old.remove(&call.seq) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use convoke_proto::id::Incarnation;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn call(seq: u64) -> CallId {
        CallId { origin: Incarnation(1), seq }
    }

    #[test]
    fn a_waker_that_is_replaced_is_given_back_and_not_woken() {
        let (mut parked, counts) = (Parked::default(), [Arc::<Count>::default(), Arc::default()]);
        let [one, other] = counts.clone().map(Waker::from);
        assert!(parked.park(call(1), &one).is_none());
        assert!(parked.park(call(1), &one).is_none(), "it is the same");
        assert!(parked.park(call(1), &other).is_some_and(|old| old.will_wake(&one)));
        parked.take(call(1)).expect("it waits").wake();
        assert!(parked.take(call(1)).is_none());
        assert_eq!(counts.map(|count| count.0.load(Ordering::Relaxed)), [0, 1]);
    }

    #[test]
    fn a_call_that_is_long_open_holds_no_room_of_the_others() {
        let mut parked = Parked::default();
        for seq in [7, 3] {
            parked.park(call(seq), Waker::noop());
        }
        for seq in 10..100_000 {
            parked.park(call(seq), Waker::noop());
            assert!(parked.take(call(seq)).is_some());
            assert!(parked.young.span() <= SPAN_MAX);
        }
        assert_eq!((parked.young.len(), parked.old.len()), (0, 2));
        assert!(parked.take(call(3)).is_some() && parked.take(call(7)).is_some());
    }
}
