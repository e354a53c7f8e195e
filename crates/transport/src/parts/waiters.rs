//! Tasks that wait for a connection.

use std::task::{Context, Waker};

use super::lanes::{LANES, index};
use crate::Lane;

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
            self.0.into_iter().for_each(Waker::wake);
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
            if is_worth_waking(lane) {
                woken.append(&mut self.writable[index(lane)]);
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
