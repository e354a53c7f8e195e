//! Tasks that wait for a connection.

use std::task::{Context, Waker};

use super::Guest;
use super::lanes::{LANES, index};
use crate::Lane;

/// Whoever wakes is to go on though a waker panics.
pub static WAKER: Guest = Guest::new("waker of a task");

/// Wakes them all, also where one of them panics. To be called without any lock: a waker may run
/// anything.
pub fn wake_all(wakers: impl IntoIterator<Item = Waker>) {
    let mut wakers = wakers.into_iter();
    let mut wake = || {
        for waker in &mut wakers {
            waker.wake();
        }
    };
    // Once for all, most often. One that has panicked is not among the rest.
    while WAKER.call(&mut wake).is_none() {}
}

/// Tasks waiting for the same thing; one entry per task.
#[derive(Debug, Default)]
pub struct Wakers(Vec<Waker>);

impl Wakers {
    /// Adds the task, unless it waits already.
    pub fn register(&mut self, cx: &Context<'_>) {
        if !self.0.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.0.push(cx.waker().clone());
        }
    }

    /// True when no task waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes over the tasks of `other`.
    pub fn append(&mut self, other: &mut Self) {
        if !other.0.is_empty() {
            self.0.append(&mut other.0);
        }
    }

    /// Wakes them all. To be called without any lock: a waker may run anything.
    pub fn wake(self) {
        if !self.0.is_empty() {
            wake_all(self.0);
        }
    }
}

impl Extend<Waker> for Wakers {
    fn extend<T: IntoIterator<Item = Waker>>(&mut self, wakers: T) {
        self.0.extend(wakers);
    }
}

/// Those who wait for one connection: for everything to be sent, or for room in a lane.
#[derive(Debug, Default)]
pub struct Waiters {
    /// For [`Connection::poll_flush`](crate::Connection::poll_flush).
    pub flush: Wakers,
    /// For [`Connection::poll_writable`](crate::Connection::poll_writable), per lane.
    pub writable: [Wakers; 2],
}

impl Waiters {
    /// Those of the lanes of which `is_worth_waking` says so.
    pub fn take_writable(&mut self, is_worth_waking: impl Fn(Lane) -> bool) -> Wakers {
        let mut woken = Wakers::default();
        for lane in LANES {
            let waiting = &mut self.writable[index(lane)];
            if !waiting.is_empty() && is_worth_waking(lane) {
                woken.append(waiting);
            }
        }
        woken
    }

    /// All, as when the connection ends.
    pub fn take_all(&mut self) -> Wakers {
        let mut woken = std::mem::take(&mut self.flush);
        self.writable.iter_mut().for_each(|wakers| woken.append(wakers));
        woken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Panics, unless it is the one that counts.
    struct Woken(Option<AtomicUsize>);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.as_ref().expect("on purpose").fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_waker_that_panics_keeps_none_from_being_woken() {
        let counts = Arc::new(Woken(Some(AtomicUsize::new(0))));
        let (panics, counting) = (Arc::new(Woken(None)), counts.clone());
        let order = [&panics, &counting, &panics, &panics, &counting, &panics];
        wake_all(order.map(|woken| Waker::from(woken.clone())));
        assert_eq!(counts.0.as_ref().map(|count| count.load(Ordering::Relaxed)), Some(2));
    }
}
