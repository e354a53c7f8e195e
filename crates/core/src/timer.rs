//! Timers of an endpoint's runtime for whoever awaits by it, wherever that is.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer of an endpoint's runtime, that may be polled anywhere: also without a runtime, or in one
/// without timers. When that of the endpoint ends, it has run out: nobody is left to tell the time.
pub struct Timer {
    runtime: Handle,
    at: Instant,
    state: State,
}

enum State {
    /// It has not been polled.
    New,
    /// Of a task of the endpoint's runtime.
    Own(Pin<Box<Sleep>>),
    /// Of a caller elsewhere. A timer would panic where its runtime has ended; a task is cancelled.
    Elsewhere(Task),
    Over,
}

struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Timer {
    /// A timer that runs out after so much time, or never.
    pub fn after(runtime: &Handle, time: Duration) -> Self {
        let _entered = runtime.enter();
        #[expect(clippy::disallowed_methods, reason = "it is of the clock of a runtime")]
        let now = Instant::now();
        Self::at(runtime, now.checked_add(time).unwrap_or_else(|| now + FAR))
    }

    /// A timer that runs out at this time.
    pub fn at(runtime: &Handle, at: Instant) -> Self {
        Self { runtime: runtime.clone(), at, state: State::New }
    }

    /// The time at which it runs out.
    pub fn deadline(&self) -> Instant {
        self.at
    }

    /// Has it run out at another time.
    pub fn reset(&mut self, at: Instant) {
        self.at = at;
        match &mut self.state {
            State::Own(sleep) => sleep.as_mut().reset(at),
            state => *state = State::New,
        }
    }

    fn begin(&self) -> State {
        let is_own = Handle::try_current().is_ok_and(|own| own.id() == self.runtime.id());
        if is_own {
            return State::Own(Box::pin(sleep_until(self.at)));
        }
        let at = self.at;
        State::Elsewhere(Task(self.runtime.spawn(async move { sleep_until(at).await })))
    }
}

impl Future for Timer {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self.state, State::New) {
            self.state = self.begin();
        }
        let is_over = match &mut self.state {
            State::Own(sleep) => sleep.as_mut().poll(cx).is_ready(),
            State::Elsewhere(Task(task)) => Pin::new(task).poll(cx).is_ready(),
            State::New | State::Over => true,
        };
        if !is_over {
            return Poll::Pending;
        }
        if matches!(self.state, State::Elsewhere(_)) {
            self.state = State::Over;
        }
        Poll::Ready(())
    }
}

/// Awaits a future for as long as a timer has not run out.
pub async fn in_time<F: Future>(mut timer: Timer, future: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        output = future => Some(output),
        () = &mut timer => None,
    }
}

/// For what never comes: thirty years, within what a clock can add.
const FAR: Duration = Duration::from_secs(86_400 * 365 * 30);

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").field("at", &self.at).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use tokio::runtime::Builder;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn is_over(timer: &mut Timer) -> bool {
        Pin::new(timer).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// It is polled without a runtime, and tokio panics where a timer is polled whose own has
    /// ended.
    #[test]
    fn a_timer_has_run_out_once_its_runtime_has_ended() {
        for is_polled in [true, false] {
            let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build();
            let runtime = runtime.expect("the system gives a runtime");
            let mut timer = Timer::after(runtime.handle(), HOUR);
            assert!(!is_polled || !is_over(&mut timer), "an hour is left");
            drop(runtime);
            assert!(is_over(&mut timer), "nobody tells the time any more");
            assert!(is_over(&mut timer), "nor does it begin again");
            timer.reset(timer.deadline() + HOUR);
            assert!(is_over(&mut timer), "nor does another");
        }
    }

    #[test]
    fn a_timer_runs_out_at_its_time_wherever_it_is_polled() {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let runtime = runtime.expect("the system gives a runtime");
        let other = Builder::new_current_thread().build().expect("the system gives a runtime");
        for is_own in [true, false] {
            let mut timer = Timer::after(runtime.handle(), HOUR);
            let poll = async |timer: &mut Timer| is_over(timer);
            let on = if is_own { &runtime } else { &other };
            assert!(!on.block_on(poll(&mut timer)));
            runtime.block_on(async { tokio::time::sleep(HOUR / 2).await });
            assert!(!on.block_on(poll(&mut timer)), "half an hour is left");
            runtime.block_on(async { tokio::time::sleep(HOUR).await });
            assert!(on.block_on(poll(&mut timer)));
        }
    }
}
