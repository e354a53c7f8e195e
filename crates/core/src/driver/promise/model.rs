//! The promise as the driver uses it, run by loom in every order of events up to a bound: whatever
//! is appended is written once the flusher has had its turns.

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::*;

/// The lock of the connection is another than that of the promise.
#[derive(Default)]
struct Queue {
    appended: usize,
    written: usize,
    writes: usize,
}

#[derive(Default)]
struct Shared {
    promise: Mutex<Promise>,
    queue: Mutex<Queue>,
}

#[derive(Clone, Default)]
struct Model(Arc<Shared>);

impl Model {
    /// A caller appends. True when it is to tell the flusher.
    fn append(&self) -> bool {
        let mut promise = self.0.promise.lock().unwrap();
        self.0.queue.lock().unwrap().appended += 1;
        promise.rely(Timestamp::ZERO) == Turn::First
    }

    /// A turn of the flusher, in the order in which it acts.
    fn turn(&self) {
        self.0.promise.lock().unwrap().settle();
        let mut queue = self.0.queue.lock().unwrap();
        if queue.written < queue.appended {
            queue.writes += 1;
            queue.written = queue.appended;
        }
    }

    /// A caller on a thread of its own, and the turn that it asks for.
    fn run(&self) -> thread::JoinHandle<()> {
        let model = self.clone();
        thread::spawn(move || {
            if model.append() {
                model.turn();
            }
        })
    }

    /// Amount appended, amount written, and number of writes.
    fn counts(&self) -> (usize, usize, usize) {
        let queue = self.0.queue.lock().unwrap();
        (queue.appended, queue.written, queue.writes)
    }
}

/// Every order with at most two switches where a thread could have gone on.
fn in_every_order(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(test);
}

#[test]
fn callers_before_its_turn_share_a_write() {
    in_every_order(|| {
        let model = Model::default();
        assert_eq!([(); 3].map(|()| model.append()), [true, false, false]);
        assert_eq!(model.counts(), (3, 0, 0), "the others rely on the first");
        model.turn();
        assert_eq!(model.counts(), (3, 3, 1));
        assert!(model.append(), "who comes later asks again");
    });
}

#[test]
fn after_all_turns_that_were_asked_for_everything_is_written() {
    in_every_order(|| {
        let model = Model::default();
        let others = [model.run(), model.run()];
        if model.append() {
            model.turn();
        }
        for other in others {
            other.join().unwrap();
        }
        let (appended, written, writes) = model.counts();
        assert_eq!((appended, written), (3, 3));
        assert!(writes <= 3);
    });
}

#[test]
fn nobody_relies_for_long_on_a_promise_that_is_not_kept() {
    let (mut promise, start) = (Promise::default(), Timestamp::ZERO);
    let late = start + TRUST + Duration::from_nanos(1);
    assert_eq!(promise.rely(start), Turn::First);
    assert_eq!(promise.rely(start + TRUST), Turn::Promised);
    let turns = [late, late + TRUST, late + TRUST * 2].map(|now| promise.rely(now));
    assert_eq!(turns, [Turn::Own, Turn::Promised, Turn::Own], "who flushes does it for a while");
    promise.settle();
    assert_eq!(promise.rely(late), Turn::First);
}
