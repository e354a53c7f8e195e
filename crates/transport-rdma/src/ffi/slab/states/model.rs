//! The states as guards and the engine use them, run by loom in every order of events up to a
//! bound: each slot that is returned is taken once, with all that was done to it before, and an
//! engine that sleeps is woken for it. A wake-up that is lost shows as a deadlock.

use std::task::Wake;

use loom::sync::{Arc, Condvar, Mutex, atomic};
use loom::thread;

use super::*;

enum Loom {}

impl Atomics for Loom {
    type State = atomic::AtomicU8;
    type Link = atomic::AtomicU32;
    type Flag = atomic::AtomicBool;
}

/// Loom takes sequentially consistent accesses for acquire and release, but is exact about fences.
/// One behind each such store is what a processor needs for them; what their order with other loads
/// is worth, this does not tell.
fn fence_if_sequential(order: Ordering) {
    if order == Ordering::SeqCst {
        atomic::fence(Ordering::SeqCst);
    }
}

macro_rules! implement_atomic {
    ($($atomic:ty, $value:ty;)*) => { $(
        impl Atomic<$value> for $atomic {
            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }

            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }

            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
                fence_if_sequential(order);
            }

            fn swap(&self, value: $value, order: Ordering) -> $value {
                let before = self.swap(value, order);
                fence_if_sequential(order);
                before
            }

            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                let result = self.compare_exchange(current, new, success, failure);
                fence_if_sequential(if result.is_ok() { success } else { failure });
                result
            }

            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                Atomic::compare_exchange(self, current, new, success, failure)
            }
        }
    )* };
}

implement_atomic! {
    atomic::AtomicU8, u8;
    atomic::AtomicU32, u32;
    atomic::AtomicBool, bool;
}

/// Bell that the engine sleeps on. It keeps one wake-up.
#[derive(Default)]
struct Bell {
    is_rung: Mutex<bool>,
    rung: Condvar,
}

impl Wake for Bell {
    fn wake(self: std::sync::Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &std::sync::Arc<Self>) {
        *self.is_rung.lock().unwrap() = true;
        self.rung.notify_one();
    }
}

impl Bell {
    fn wait(&self) {
        let mut is_rung = self.is_rung.lock().unwrap();
        while !*is_rung {
            is_rung = self.rung.wait(is_rung).unwrap();
        }
        *is_rung = false;
    }
}

#[derive(Clone)]
struct Model {
    states: Arc<States<Loom>>,
    /// The bytes of each slot: 1 once whoever had it is done.
    bytes: Arc<[atomic::AtomicU8; 2]>,
    bell: std::sync::Arc<Bell>,
}

impl Model {
    /// Two slots in this state.
    fn new(state: u8) -> Self {
        let bell = std::sync::Arc::new(Bell::default());
        let states = States::new(2, Waker::from(std::sync::Arc::clone(&bell)));
        (0..2).for_each(|slot| states.leave(slot, state));
        let bytes = Arc::new([0, 0].map(atomic::AtomicU8::new));
        Self { states: Arc::new(states), bytes, bell }
    }

    /// A thread that drops the guard of a slot.
    fn drop_guard(&self, slot: u32) -> thread::JoinHandle<()> {
        let model = self.clone();
        thread::spawn(move || {
            model.bytes[index(slot)].store(1, Ordering::Relaxed);
            model.states.end_loan(slot);
        })
    }

    /// The engine, until it has taken so many slots: it posts what is there, and sleeps when that
    /// is nothing. Answers which it took; `then` sees each after that.
    fn run_engine(&self, count: usize, mut then: impl FnMut(u32)) -> Vec<u32> {
        let mut slots = Vec::new();
        loop {
            self.states.take_returned(|slot| {
                assert!(self.states.step(slot, FREE, POSTED), "a slot that is taken is free");
                assert_eq!(self.bytes[index(slot)].load(Ordering::Relaxed), 1, "it is still read");
                slots.push(slot);
                then(slot);
            });
            if slots.len() >= count {
                slots.sort_unstable();
                return slots;
            }
            self.states.set_starved(true);
            if !self.states.has_returned() {
                self.bell.wait();
            }
        }
    }
}

/// Every order with at most three switches where a thread could have gone on.
fn in_every_order(test: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

#[test]
fn every_slot_that_is_returned_is_taken_once_and_wakes_who_is_starved() {
    in_every_order(|| {
        let model = Model::new(LENT);
        let guards = [model.drop_guard(0), model.drop_guard(1)];
        assert_eq!(model.run_engine(2, |_| ()), [0, 1]);
        guards.into_iter().for_each(|guard| guard.join().unwrap());
        assert!(!model.states.has_returned());
    });
}

#[test]
fn a_slot_may_be_lent_and_returned_again_while_another_one_is_returned() {
    in_every_order(|| {
        let model = Model::new(LENT);
        let guards = [model.drop_guard(0), model.drop_guard(1)];
        let mut is_again = false;
        let slots = model.run_engine(3, |slot| {
            if slot == 0 && !std::mem::replace(&mut is_again, true) {
                model.states.leave(slot, LENT);
                model.states.end_loan(slot);
            }
        });
        assert_eq!(slots, [0, 0, 1]);
        guards.into_iter().for_each(|guard| guard.join().unwrap());
        assert!(!model.states.has_returned());
    });
}

#[test]
fn a_slot_that_is_lent_while_it_is_read_is_returned_once() {
    in_every_order(|| {
        let model = Model::new(READING_LENT);
        let guard = model.drop_guard(0);
        let reader = {
            let model = model.clone();
            thread::spawn(move || model.states.end_reading(0))
        };
        assert_eq!(model.run_engine(1, |_| ()), [0]);
        guard.join().unwrap();
        reader.join().unwrap();
        assert!(!model.states.has_returned());
    });
}
