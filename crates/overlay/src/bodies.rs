//! Bodies of requests that came by the overlay, and the requests that wait for theirs.
//!
//! Either may come first: the request straight from its sender, the body through a relay. What is
//! here is kept for a while after it was taken, since two branches of a call may be for one node.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use convoke_core::time::Timestamp;
use convoke_core::transport::parts::WAKER;
use tokio::sync::oneshot;

use crate::node::DELIVERY_BYTES;
use crate::payload::Payload;
use crate::site::Site;
use crate::wire::OpId;

/// Bounds on the bodies that are kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyLimits {
    /// Bytes of all, and 128 for each; the oldest of the source that has most make room.
    pub(crate) bytes_max: usize,
    /// Time that one is kept.
    pub(crate) kept_for: Duration,
}

impl Default for BodyLimits {
    /// 64 MiB and 10 s: the deadline that calls have by default.
    fn default() -> Self {
        Self { bytes_max: 64 << 20, kept_for: Duration::from_secs(10) }
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Bodies {
    limits: BodyLimits,
    here: BTreeMap<OpId, Payload>,
    sources: BTreeMap<Site, Share>,
    bytes: usize,
    waiting: BTreeMap<OpId, Vec<oneshot::Sender<Payload>>>,
    is_closed: bool,
}

/// Bodies of one source, in the order in which they came.
#[derive(Debug, Default)]
struct Share {
    order: VecDeque<(Timestamp, OpId)>,
    bytes: usize,
}

/// A body, now or later.
#[derive(Debug)]
pub(crate) enum Body {
    /// It is here.
    Here(Payload),
    /// It will be sent when it comes. Closed without one, it was given up.
    Awaited(oneshot::Receiver<Payload>),
}

/// Those who waited, with what has come for them, if it has.
#[derive(Debug, Default)]
pub(crate) struct Told(Vec<(oneshot::Sender<Payload>, Option<Payload>)>);

impl Told {
    /// Tells them. To be called without any lock: a waker may run anything.
    pub(crate) fn tell(self) {
        for (waiting, body) in self.0 {
            WAKER.call(|| match body {
                // Whoever does not wait any more does not need it.
                Some(body) => drop(waiting.send(body)),
                None => drop(waiting),
            });
        }
    }
}

impl Bodies {
    pub(crate) fn new(limits: BodyLimits) -> Self {
        Self {
            limits,
            here: BTreeMap::new(),
            sources: BTreeMap::new(),
            bytes: 0,
            waiting: BTreeMap::new(),
            is_closed: false,
        }
    }

    /// Gives an operation that came to whoever waits for it, by any of its `count` sequence
    /// numbers.
    pub(crate) fn hand_out(&mut self, op: OpId, count: u64, body: &Payload, told: &mut Told) {
        let end = OpId { seq: op.seq + count, ..op };
        let names: Vec<OpId> = self.waiting.range(op..end).map(|(name, _)| *name).collect();
        for waiting in names.iter().filter_map(|name| self.waiting.remove(name)).flatten() {
            told.0.push((waiting, Some(body.clone())));
        }
    }

    /// Keeps a body that came.
    pub(crate) fn insert(&mut self, now: Timestamp, op: OpId, body: Payload) {
        self.forget_old(now);
        if cost(&body) > self.limits.bytes_max || self.here.contains_key(&op) {
            return;
        }
        self.bytes += cost(&body);
        let share = self.sources.entry(op.source).or_default();
        share.bytes += cost(&body);
        share.order.push_back((now, op));
        self.here.insert(op, body);
        while self.bytes > self.limits.bytes_max {
            let largest = self.sources.iter().max_by_key(|(_, share)| share.bytes);
            let source = largest.map(|(source, _)| *source).expect("it was inserted above");
            self.forget_oldest(source);
        }
    }

    /// The body of an operation, or a way to wait for it.
    pub(crate) fn take(&mut self, op: OpId) -> Body {
        if let Some(body) = self.here.get(&op) {
            return Body::Here(body.clone());
        }
        let (sender, receiver) = oneshot::channel();
        if self.is_closed {
            return Body::Awaited(receiver); // Without its sender it says so at once.
        }
        self.waiting.entry(op).or_default().push(sender);
        Body::Awaited(receiver)
    }

    /// Nobody has it any more: whoever waits is told.
    pub(crate) fn give_up(&mut self, op: OpId, told: &mut Told) {
        let waiting = self.waiting.remove(&op).into_iter().flatten();
        told.0.extend(waiting.map(|waiting| (waiting, None)));
    }

    /// Nothing comes any more: whoever waits is told, and whoever will is.
    pub(crate) fn close(&mut self) -> Told {
        self.is_closed = true;
        let waiting = std::mem::take(&mut self.waiting).into_values().flatten();
        Told(waiting.map(|waiting| (waiting, None)).collect())
    }

    /// A request has ceased to wait. Gives what it waited by, to be dropped without the lock: its
    /// waker may run anything as it goes.
    pub(crate) fn forget_waiting(&mut self, op: OpId) -> Vec<oneshot::Sender<Payload>> {
        let Some(waiting) = self.waiting.get_mut(&op) else { return Vec::new() };
        let gone = waiting.extract_if(.., |one| one.is_closed()).collect();
        if waiting.is_empty() {
            self.waiting.remove(&op);
        }
        gone
    }

    fn forget_old(&mut self, now: Timestamp) {
        let kept_for = self.limits.kept_for;
        let is_old = |(came, _): &(Timestamp, OpId)| now.since(*came) > kept_for;
        let old = |(source, share): (&Site, &Share)| {
            std::iter::repeat_n(*source, share.order.iter().take_while(|it| is_old(it)).count())
        };
        let old: Vec<Site> = self.sources.iter().flat_map(old).collect();
        old.into_iter().for_each(|source| self.forget_oldest(source));
    }

    fn forget_oldest(&mut self, source: Site) {
        let Some(share) = self.sources.get_mut(&source) else { return };
        if let Some((_, op)) = share.order.pop_front()
            && let Some(body) = self.here.remove(&op)
        {
            share.bytes -= cost(&body);
            self.bytes -= cost(&body);
        }
    }
}

/// Bytes that a body takes in memory: one without any, too, is kept.
fn cost(body: &Payload) -> usize {
    body.len() + DELIVERY_BYTES
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::wire::Life;
    use bytes::Bytes;

    const LIMITS: BodyLimits =
        BodyLimits { bytes_max: 100 + 3 * DELIVERY_BYTES, kept_for: Duration::from_secs(1) };

    fn op(seq: u64) -> OpId {
        OpId { source: Site(0), life: Life(7), seq }
    }

    fn body(bytes: &[u8]) -> Payload {
        Payload::cut_body(Bytes::copy_from_slice(bytes))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn hand_out(bodies: &mut Bodies, op: OpId, count: u64, body: &Payload) {
        let mut told = Told::default();
        bodies.hand_out(op, count, body, &mut told);
        told.tell();
    }

    fn give_up(bodies: &mut Bodies, op: OpId) {
        let mut told = Told::default();
        bodies.give_up(op, &mut told);
        told.tell();
    }

    fn is_here(bodies: &mut Bodies, seq: u64) -> bool {
        let is_here = matches!(bodies.take(op(seq)), Body::Here(_));
        bodies.forget_waiting(op(seq));
        is_here
    }

    #[test]
    fn whoever_waits_gets_it_and_whoever_comes_later_too() {
        let mut bodies = Bodies::new(LIMITS);
        let Body::Awaited(mut first) = bodies.take(op(1)) else { panic!("nothing came yet") };
        let Body::Awaited(second) = bodies.take(op(1)) else { panic!("nothing came yet") };
        drop(second);
        hand_out(&mut bodies, op(1), 1, &body(b"body"));
        bodies.insert(at(0), op(1), body(b"body"));
        assert_eq!(first.try_recv().unwrap().into_bytes(), "body");
        assert!(is_here(&mut bodies, 1));
        assert!(bodies.waiting.is_empty());
    }

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn nobody_is_woken_while_the_lock_is_held() {
        let (mut bodies, mut told) = (Bodies::new(LIMITS), Told::default());
        let wait = |bodies: &mut Bodies, seq| {
            let Body::Awaited(waiting) = bodies.take(op(seq)) else { panic!("nothing came yet") };
            let (mut waiting, count) = (Box::pin(waiting), Arc::new(Count::default()));
            let waker = Waker::from(count.clone());
            assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            (waiting, count)
        };
        let waits = [1, 2, 3].map(|seq| wait(&mut bodies, seq));
        let woken = || [0, 1, 2].map(|at: usize| waits[at].1.0.load(Ordering::Relaxed));
        bodies.hand_out(op(1), 1, &body(b"body"), &mut told);
        bodies.give_up(op(2), &mut told);
        let at_the_end = bodies.close();
        assert_eq!(woken(), [0, 0, 0]);
        told.tell();
        assert_eq!(woken(), [1, 1, 0]);
        at_the_end.tell();
        assert_eq!(woken(), [1, 1, 1]);
    }

    #[test]
    fn the_oldest_make_room_and_none_is_kept_for_ever() {
        let mut bodies = Bodies::new(LIMITS);
        for seq in 0..4 {
            bodies.insert(at(0), op(seq), body(&[0; 30]));
        }
        assert_eq!([0, 1, 2, 3].map(|seq| is_here(&mut bodies, seq)), [false, true, true, true]);
        bodies.insert(at(2), op(9), body(&[0; 30]));
        assert_eq!([1, 2, 3, 9].map(|seq| is_here(&mut bodies, seq)), [false, false, false, true]);
        assert_eq!((bodies.bytes, bodies.sources[&Site(0)].order.len()), (30 + DELIVERY_BYTES, 1));
    }

    #[test]
    fn one_site_displaces_only_what_is_its_own_beyond_its_share() {
        let mut bodies = Bodies::new(LIMITS);
        let other = OpId { source: Site(1), ..op(0) };
        bodies.insert(at(0), other, body(b""));
        (0..100).for_each(|seq| bodies.insert(at(0), op(seq), body(b"")));
        assert!(matches!(bodies.take(other), Body::Here(_)));
        assert!(is_here(&mut bodies, 99) && !is_here(&mut bodies, 0));
    }

    #[test]
    fn bodies_without_bytes_are_bounded_too() {
        let limits = BodyLimits { bytes_max: 1_000, kept_for: Duration::from_secs(1) };
        let mut bodies = Bodies::new(limits);
        (0..1_000).for_each(|seq| bodies.insert(at(0), op(seq), body(b"")));
        assert!(bodies.here.len() <= 10, "{}", bodies.here.len());
        assert!(is_here(&mut bodies, 999));
    }

    #[test]
    fn one_that_is_larger_than_all_room_still_reaches_who_waits() {
        let mut bodies = Bodies::new(LIMITS);
        let Body::Awaited(mut waiting) = bodies.take(op(1)) else { panic!("nothing came yet") };
        hand_out(&mut bodies, op(1), 1, &body(&[0; 900]));
        bodies.insert(at(0), op(1), body(&[0; 900]));
        assert_eq!(waiting.try_recv().unwrap().len(), 900);
        assert!(!is_here(&mut bodies, 1));
    }

    #[test]
    fn any_sequence_number_of_an_operation_names_it() {
        let mut bodies = Bodies::new(LIMITS);
        let wait = |bodies: &mut Bodies, seq| match bodies.take(op(seq)) {
            Body::Awaited(waiting) => waiting,
            Body::Here(_) => panic!("nothing came yet"),
        };
        let (mut inside, mut behind) = (wait(&mut bodies, 6), wait(&mut bodies, 8));
        hand_out(&mut bodies, op(5), 3, &body(b"body"));
        assert_eq!(inside.try_recv().unwrap().into_bytes(), "body");
        assert!(behind.try_recv().is_err());
    }

    #[test]
    fn a_copy_changes_nothing() {
        let mut bodies = Bodies::new(LIMITS);
        bodies.insert(at(0), op(1), body(&[0; 30]));
        bodies.insert(at(0), op(1), body(&[0; 30]));
        assert_eq!((bodies.bytes, bodies.sources[&Site(0)].order.len()), (30 + DELIVERY_BYTES, 1));
    }

    #[test]
    fn whoever_waits_learns_that_it_will_not_come() {
        let mut bodies = Bodies::new(LIMITS);
        let wait = |bodies: &mut Bodies| match bodies.take(op(1)) {
            Body::Awaited(waiting) => waiting,
            Body::Here(_) => panic!("nothing came yet"),
        };
        let is_told = |mut waiting: oneshot::Receiver<Payload>| {
            matches!(waiting.try_recv(), Err(oneshot::error::TryRecvError::Closed))
        };
        let given_up = wait(&mut bodies);
        give_up(&mut bodies, op(1));
        assert!(is_told(given_up));
        let at_the_end = wait(&mut bodies);
        bodies.close().tell();
        assert!(is_told(at_the_end));
        assert!(is_told(wait(&mut bodies)), "after the end");
    }
}
