//! The way to stop a handler.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use convoke_transport::parts::{Mutex, wake_all};

/// Tells a running handler to stop: its future is dropped at the next chance.
#[derive(Debug, Default)]
pub(crate) struct Stopper {
    is_stopped: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Stopper {
    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped.load(Ordering::Acquire)
    }

    /// True when it is stopped; otherwise keeps the waker.
    pub(crate) fn poll_stopped(&self, cx: &Context<'_>) -> bool {
        let waker = cx.waker().clone();
        let _dropped_unlocked = self.waker.lock().replace(waker);
        self.is_stopped()
    }

    pub(super) fn stop(&self) {
        wake_all(self.stop_later());
    }

    /// Stops, leaving it to the caller to wake.
    pub(super) fn stop_later(&self) -> Option<Waker> {
        self.is_stopped.store(true, Ordering::Release);
        self.waker.lock().take()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak, mpsc};
    use std::task::Wake;
    use std::time::Duration;

    use super::*;

    /// Stops as it is dropped, as a task does that is kept by its waker alone.
    struct Stops(Weak<Stopper>);

    impl Wake for Stops {
        fn wake(self: Arc<Self>) {}
    }

    impl Drop for Stops {
        fn drop(&mut self) {
            self.0.upgrade().expect("it is polled").stop();
        }
    }

    #[test]
    fn a_waker_that_another_takes_the_place_of_may_stop_what_it_waited_for() {
        let (done, is_done) = mpsc::channel();
        std::thread::spawn(move || {
            let stopper = Arc::new(Stopper::default());
            let waker = Waker::from(Arc::new(Stops(Arc::downgrade(&stopper))));
            assert!(!stopper.poll_stopped(&Context::from_waker(&waker)));
            drop(waker);
            stopper.poll_stopped(&Context::from_waker(Waker::noop()));
            done.send(stopper.is_stopped())
        });
        let stopped = is_done.recv_timeout(Duration::from_secs(60));
        assert_eq!(stopped, Ok(true), "it does not wait for itself");
    }
}
