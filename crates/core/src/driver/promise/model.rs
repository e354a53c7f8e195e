//! The promise as the driver uses it, run by loom in every order of events up to a bound: whatever
//! is appended is written by the time all callers are gone, wherever they were dropped.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::{Arc, Mutex};
use loom::thread;

use super::*;

/// Part of it under the driver's lock.
#[derive(Default)]
struct State {
    promise: Promise,
    calls: usize,
}

/// The lock of the connection is another.
#[derive(Default)]
struct Queue {
    appended: usize,
    written: usize,
    writes: usize,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    queue: Mutex<Queue>,
}

#[derive(Clone, Default)]
struct Model(Arc<Shared>);

impl Promiser for Model {
    fn settle(&self) {
        self.0.state.lock().unwrap().promise.settle();
    }

    fn flush(&self) {
        let mut queue = self.0.queue.lock().unwrap();
        if queue.written < queue.appended {
            queue.writes += 1;
            queue.written = queue.appended;
        }
    }
}

impl Model {
    /// A caller, from its opening to its going on with other things.
    async fn call(self, now: Timestamp) {
        let guard = self.open(now);
        if guard.is_some() {
            yield_once().await;
        }
        drop(guard);
    }

    fn open(&self, now: Timestamp) -> Option<Guard<Self>> {
        let turn = {
            let mut state = self.0.state.lock().unwrap();
            state.calls += 1;
            let is_alone = state.calls == 1;
            self.0.queue.lock().unwrap().appended += 1;
            state.promise.on_append(now, is_alone)
        };
        match turn {
            Turn::Now => self.flush(),
            Turn::Soon => return Some(Guard::new(self.clone())),
            Turn::Others => {}
        }
        None
    }

    /// Another that is open already, so that nobody is alone.
    fn with_company() -> Self {
        let model = Self::default();
        model.0.state.lock().unwrap().calls = 1;
        model
    }

    /// A caller on a thread of its own.
    fn run(&self) -> thread::JoinHandle<()> {
        let call = self.clone().call(Timestamp::ZERO);
        thread::spawn(|| block_on(call))
    }

    /// One that is dropped where it waits, if it waits.
    fn run_and_drop(&self) -> thread::JoinHandle<()> {
        let call = self.clone().call(Timestamp::ZERO);
        thread::spawn(|| {
            let _ = pin!(call).poll(&mut Context::from_waker(Waker::noop()));
        })
    }

    /// Amount appended, amount written, and number of writes.
    fn counts(&self) -> (usize, usize, usize) {
        let queue = self.0.queue.lock().unwrap();
        (queue.appended, queue.written, queue.writes)
    }
}

async fn yield_once() {
    let mut has_yielded = false;
    poll_fn(|cx| match mem::replace(&mut has_yielded, true) {
        true => Poll::Ready(()),
        false => {
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// Every order with at most two switches where a thread could have gone on.
fn in_every_order(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(test);
}

#[test]
fn who_is_alone_writes_once_and_at_once() {
    in_every_order(|| {
        let model = Model::default();
        assert!(model.open(Timestamp::ZERO).is_none());
        assert_eq!(model.counts(), (1, 1, 1));
    });
}

#[test]
fn callers_on_one_thread_share_a_write() {
    in_every_order(|| {
        let model = Model::with_company();
        let guards = [(); 3].map(|()| model.open(Timestamp::ZERO));
        assert_eq!(model.counts(), (3, 0, 0), "the first yields, and the others rely on it");
        drop(guards);
        assert_eq!(model.counts(), (3, 3, 1));
    });
}

#[test]
fn when_all_callers_went_on_everything_is_written() {
    in_every_order(|| {
        let model = Model::with_company();
        let others = [model.run(), model.run()];
        block_on(model.clone().call(Timestamp::ZERO));
        for other in others {
            other.join().unwrap();
        }
        let (appended, written, writes) = model.counts();
        assert_eq!((appended, written), (3, 3));
        assert!(writes <= 3);
    });
}

#[test]
fn a_caller_that_is_dropped_where_it_waits_leaves_nothing_behind() {
    in_every_order(|| {
        let model = Model::with_company();
        let others = [model.run_and_drop(), model.run()];
        model.clone().run_and_drop().join().unwrap();
        for other in others {
            other.join().unwrap();
        }
        let (appended, written, _) = model.counts();
        assert_eq!((appended, written), (3, 3));
    });
}

#[test]
fn nobody_relies_for_long_on_a_promise_that_is_not_kept() {
    in_every_order(|| {
        let model = Model::with_company();
        let never_polled = model.open(Timestamp::ZERO);
        let soon = Timestamp::ZERO + TRUST;
        assert!(model.open(soon).is_none(), "it is still trusted");
        let later = soon + Duration::from_nanos(1);
        drop(model.open(later).expect("it is trusted no more"));
        assert_eq!(model.counts(), (3, 3, 1));
        drop(never_polled);
    });
}

#[test]
fn the_timer_finds_a_promise_that_is_not_kept() {
    let mut promise = Promise::default();
    assert!(!promise.take_overdue(Timestamp::MAX), "nobody has promised anything");
    assert_eq!(promise.on_append(Timestamp::ZERO, false), Turn::Soon);
    assert!(!promise.take_overdue(Timestamp::ZERO + TRUST));
    assert!(promise.take_overdue(Timestamp::ZERO + TRUST + Duration::from_nanos(1)));
    assert!(!promise.take_overdue(Timestamp::MAX), "it is settled");
}
