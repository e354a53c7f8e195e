//! One flush per connection for everything appended within a scope, or by several scopes one after
//! another.

use std::cell::RefCell;
use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::task::Poll;

use smallvec::SmallVec;

use convoke_transport::parts::Mutex;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use crate::transport::Connection;

/// Few, most of the time.
type Dirty = SmallVec<[Arc<dyn Connection>; 4]>;

/// Scopes that are open on a thread.
struct Open {
    depth: usize,
    /// Connections appended to since the outermost began, and not flushed yet: none outside any
    /// scope. Without a destructor this is there as long as its thread, also for what is dropped at
    /// the end of that.
    dirty: ManuallyDrop<Dirty>,
    /// One of them has as much to send as it should: the next scope that ends flushes all.
    is_full: bool,
}

thread_local! {
    static OPEN: RefCell<Open> =
        const {
            let dirty = ManuallyDrop::new(SmallVec::new_const());
            RefCell::new(Open { depth: 0, dirty, is_full: false })
        };
}

/// Scope within which connections appended to on this thread are only noted. When the outermost
/// ends each is flushed once; and before that where one [is full](FlushScope::note_full). A scope
/// never lives across an await.
pub(crate) struct FlushScope(());

impl FlushScope {
    pub(crate) fn enter() -> Self {
        OPEN.with_borrow_mut(|open| open.depth += 1);
        Self(())
    }

    /// Notes that a connection was appended to, or flushes it at once outside any scope.
    pub(crate) fn note(connection: &Arc<dyn Connection>) {
        if !Self::note_if_open(connection) {
            connection.flush();
        }
    }

    /// Notes that a connection was appended to; false outside any scope.
    pub(crate) fn note_if_open(connection: &Arc<dyn Connection>) -> bool {
        OPEN.with_borrow_mut(|open| {
            let Open { depth, dirty, .. } = open;
            if *depth > 0 && !dirty.iter().any(|noted| Arc::ptr_eq(noted, connection)) {
                dirty.push(connection.clone());
            }
            *depth > 0
        })
    }

    /// Notes that a connection has as much to send as it should have: what is noted does not wait
    /// for the end of the outermost scope, but for that of the innermost, where the lock of the
    /// driver is free.
    pub(crate) fn note_full() {
        OPEN.with_borrow_mut(|open| open.is_full = open.depth > 0);
    }
}

impl FlushScope {
    /// True when its end flushes something.
    pub(crate) fn has_to_flush(&self) -> bool {
        OPEN.with_borrow(|open| open.depth == 1 && !open.dirty.is_empty())
    }

    /// Ends the scope, but leaves the flushing to `flusher`: other tasks that are about to run
    /// append meanwhile, and all of it leaves in one write.
    pub(crate) fn leave_to(self, flusher: &Flusher) {
        let dirty = leave();
        std::mem::forget(self);
        if !dirty.is_empty() {
            let due = |connection| Due { connection, promised_in: None };
            flusher.take_over(dirty.into_iter().map(due));
        }
    }
}

impl Drop for FlushScope {
    fn drop(&mut self) {
        for connection in leave() {
            connection.flush();
        }
    }
}

/// Leaves a scope: the connections to flush, if it was the outermost of this thread, or one is
/// full.
fn leave() -> Dirty {
    OPEN.with_borrow_mut(|open| {
        open.depth -= 1;
        let is_full = std::mem::take(&mut open.is_full);
        if open.depth == 0 || is_full { std::mem::take(&mut *open.dirty) } else { Dirty::new() }
    })
}

/// Flushes for those who have company: its task takes its turn behind all that are ready now.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    due: Mutex<SmallVec<[Due; 4]>>,
    signal: Notify,
}

/// A connection to be flushed.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) connection: Arc<dyn Connection>,
    /// The core whose callers were [promised](super::promise) that it will be.
    pub(super) promised_in: Option<usize>,
}

impl Due {
    fn is(&self, other: &Self) -> bool {
        self.promised_in == other.promised_in && Arc::ptr_eq(&self.connection, &other.connection)
    }
}

impl Flusher {
    /// Has these, of which there is one at least, flushed at its next turn.
    pub(super) fn take_over(&self, due: impl IntoIterator<Item = Due>) {
        let mut all = self.due.lock();
        let is_first = all.is_empty();
        for one in due {
            if !all.iter().any(|noted| noted.is(&one)) {
                all.push(one);
            }
        }
        drop(all);
        if is_first {
            self.signal.notify_one();
        }
    }

    /// Lets the task look whether it is still needed.
    pub(super) fn wake(&self) {
        self.signal.notify_one();
    }

    /// Waits for something to flush, and flushes it. First each promise is settled: who appends
    /// after a flush must not rely on it.
    pub(super) async fn turn(&self, settle: impl Fn(usize, &dyn Connection)) {
        self.signal.notified().await;
        take_turn().await;
        for Due { connection, promised_in } in std::mem::take(&mut *self.due.lock()) {
            if let Some(core) = promised_in {
                settle(core, &*connection);
            }
            connection.flush();
        }
    }
}

/// Waits until the tasks that are ready have had their turn: a runtime of several workers puts who
/// was woken before those of its worker, one of a single thread behind.
async fn take_turn() {
    if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
        return;
    }
    let mut turns = [Poll::Pending, Poll::Ready(())].into_iter();
    poll_fn(|cx| {
        let turn = turns.next().unwrap_or(Poll::Ready(()));
        if turn.is_pending() {
            cx.waker().wake_by_ref();
        }
        turn
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Appends as it is dropped, as the last handle of an endpoint does.
    struct Last;

    impl Drop for Last {
        fn drop(&mut self) {
            drop(FlushScope::enter());
        }
    }

    #[test]
    fn what_a_thread_keeps_may_append_as_the_thread_ends() {
        thread_local! {
            static KEPT: Last = const { Last };
        }
        let thread = std::thread::spawn(|| {
            KEPT.with(|_| ()); // First, so that it is dropped last.
            drop(FlushScope::enter());
        });
        thread.join().expect("it ends as any");
    }
}
