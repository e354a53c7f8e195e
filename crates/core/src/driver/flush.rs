//! One flush per connection for everything appended within a scope, or by several scopes one after
//! another.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use convoke_transport::parts::Mutex;
use tokio::sync::Notify;

use crate::transport::Connection;

/// Few, most of the time.
type Dirty = SmallVec<[Arc<dyn Connection>; 4]>;

thread_local! {
    /// Connections appended to in the innermost scope of this thread, and how many scopes are open.
    static DIRTY: RefCell<(usize, Dirty)> = const { RefCell::new((0, SmallVec::new_const())) };
}

/// Scope within which connections appended to on this thread are only noted. When the outermost
/// ends each is flushed once. A scope never lives across an await.
pub(crate) struct FlushScope(());

impl FlushScope {
    pub(crate) fn enter() -> Self {
        DIRTY.with_borrow_mut(|(depth, _)| *depth += 1);
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
        DIRTY.with_borrow_mut(|(depth, dirty)| {
            if *depth > 0 && !dirty.iter().any(|noted| Arc::ptr_eq(noted, connection)) {
                dirty.push(connection.clone());
            }
            *depth > 0
        })
    }
}

impl FlushScope {
    /// True when its end flushes something.
    pub(crate) fn has_to_flush(&self) -> bool {
        DIRTY.with_borrow(|(depth, dirty)| *depth == 1 && !dirty.is_empty())
    }

    /// Ends the scope, but leaves the flushing to `flusher`: other tasks that are about to run
    /// append meanwhile, and all of it leaves in one write.
    pub(crate) fn leave_to(self, flusher: &Flusher) {
        flusher.take_over(leave());
        std::mem::forget(self);
    }
}

impl Drop for FlushScope {
    fn drop(&mut self) {
        for connection in leave() {
            connection.flush();
        }
    }
}

/// Leaves a scope: the connections to flush, if it was the outermost of this thread.
fn leave() -> Dirty {
    DIRTY.with_borrow_mut(|(depth, dirty)| {
        *depth -= 1;
        if *depth == 0 { std::mem::take(dirty) } else { Dirty::new() }
    })
}

/// Flushes for those who have company: its task takes its turn behind all that are ready now.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    dirty: Mutex<Dirty>,
    signal: Notify,
}

impl Flusher {
    fn take_over(&self, dirty: Dirty) {
        if dirty.is_empty() {
            return;
        }
        let mut all = self.dirty.lock();
        let is_first = all.is_empty();
        for one in dirty {
            if !all.iter().any(|noted| Arc::ptr_eq(noted, &one)) {
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

    /// Waits for something to flush, and flushes it.
    pub(super) async fn turn(&self) {
        self.signal.notified().await;
        for connection in std::mem::take(&mut *self.dirty.lock()) {
            connection.flush();
        }
    }
}
