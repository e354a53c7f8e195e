//! One flush per connection for everything appended within a scope.

use std::cell::RefCell;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::transport::Connection;

/// Few, most of the time.
type Dirty = SmallVec<[Arc<dyn Connection>; 4]>;

thread_local! {
    /// Connections appended to in the innermost scope of this thread, and how many scopes are open.
    static DIRTY: RefCell<(usize, Dirty)> = const { RefCell::new((0, SmallVec::new_const())) };
}

/// While one is alive on this thread, connections appended to are only noted; when the outermost ends
/// each is flushed once. A scope never lives across an await.
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

impl Drop for FlushScope {
    fn drop(&mut self) {
        let dirty = DIRTY.with_borrow_mut(|(depth, dirty)| {
            *depth -= 1;
            if *depth == 0 { std::mem::take(dirty) } else { Dirty::new() }
        });
        for connection in dirty {
            connection.flush();
        }
    }
}
