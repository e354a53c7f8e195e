//! One flush per connection for everything appended within a scope, or by several scopes one after
//! another.

use std::cell::RefCell;
use std::future::poll_fn;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use convoke_proto::time::Timestamp;
use convoke_transport::parts::Mutex;
use smallvec::SmallVec;
use tokio::sync::Notify;

use crate::transport::Connection;

/// Few, most of the time: one for a call, or as many as a quorum has members.
pub(super) type Dirty = SmallVec<[Arc<dyn Connection>; 4]>;

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

    /// True within a scope.
    pub(crate) fn is_open() -> bool {
        OPEN.with_borrow(|open| open.depth > 0)
    }

    /// Notes that a connection was appended to, or flushes it at once outside any scope.
    pub(crate) fn note(connection: &Arc<dyn Connection>) {
        let is_noted = OPEN.with_borrow_mut(|open| {
            let Open { depth, dirty, .. } = open;
            if *depth > 0 && !dirty.iter().any(|noted| Arc::ptr_eq(noted, connection)) {
                dirty.push(connection.clone());
            }
            *depth > 0
        });
        if !is_noted {
            connection.flush();
        }
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
    pub(crate) fn leave_to(self, flusher: &Flusher, now: impl FnOnce() -> Timestamp) {
        let left = leave();
        std::mem::forget(self);
        if let Some(dirty) = left {
            let due = |connection| Due { connection, promised_in: None };
            flusher.take_over(now, dirty.into_iter().map(due));
        }
    }
}

impl Drop for FlushScope {
    fn drop(&mut self) {
        if let Some(dirty) = leave() {
            dirty.iter().for_each(|connection| connection.flush());
        }
    }
}

/// Leaves a scope: the connections to flush, of which there are some if it was the outermost of
/// this thread, or one is full.
fn leave() -> Option<Dirty> {
    OPEN.with_borrow_mut(|open| {
        open.depth -= 1;
        let is_over = std::mem::take(&mut open.is_full) || open.depth == 0;
        (is_over && !open.dirty.is_empty()).then(|| std::mem::take(&mut *open.dirty))
    })
}

/// Flushes for those who have company: its task takes its turn behind all that are ready now.
#[derive(Debug, Default)]
pub(crate) struct Flusher {
    due: Mutex<DueList>,
    signal: Notify,
}

#[derive(Debug, Default)]
struct DueList {
    connections: SmallVec<[Due; 4]>,
    /// When the first of them came.
    since: Timestamp,
}

/// A connection to be flushed.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) connection: Arc<dyn Connection>,
    /// The core whose callers were [promised](super::promise) that it will be.
    pub(super) promised_in: Option<usize>,
}

impl Flusher {
    /// Has these, of which there is one at least, flushed at its next turn. Answers since when it
    /// has had something to flush: `now`, where they are the first.
    pub(super) fn take_over(
        &self,
        now: impl FnOnce() -> Timestamp,
        due: impl IntoIterator<Item = Due>,
    ) -> Timestamp {
        let mut all = self.due.lock();
        let is_first = all.connections.is_empty();
        if is_first {
            all.since = now();
        }
        let since = all.since;
        for one in due {
            // What is promised comes once.
            let is_same = |noted: &Due| Arc::ptr_eq(&noted.connection, &one.connection);
            if one.promised_in.is_some() || !all.connections.iter().any(is_same) {
                all.connections.push(one);
            }
        }
        drop(all);
        if is_first {
            self.signal.notify_one();
        }
        since
    }

    /// Lets the task look whether it is still needed.
    pub(super) fn wake(&self) {
        self.signal.notify_one();
    }

    /// Waits for its turn.
    pub(super) async fn turn(&self, is_one_thread: bool) {
        self.signal.notified().await;
        if !is_one_thread {
            take_turn().await;
        }
    }

    /// Flushes what is due. First each promise is settled: who appends after a flush must not rely
    /// on it.
    pub(super) fn flush_due(&self, settle: impl Fn(usize, &dyn Connection)) {
        // Without the lock: others may come meanwhile, those too whom a flush wakes.
        let due = std::mem::take(&mut self.due.lock().connections);
        for Due { connection, promised_in } in due {
            if let Some(core) = promised_in {
                settle(core, &*connection);
            }
            if catch_unwind(AssertUnwindSafe(|| connection.flush())).is_err() {
                let peer = connection.link().peer.node;
                tracing::error!(%peer, "a connection panicked as it was flushed");
            }
        }
    }
}

/// Waits until the tasks that are ready have had their turn: a runtime of several workers puts who
/// was woken before those of its worker, and one of a single thread behind, where this is spared.
async fn take_turn() {
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
pub(super) mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Context;

    use convoke_proto::id::{Incarnation, LinkNonce, NodeId};

    use super::super::promise::TRUST;
    use super::*;
    use crate::transport::{Buffer, CloseReason, Counters, Hello, Lane, Link};

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

    /// A connection whose flush does something, and its close the same.
    #[derive(Debug)]
    pub(in crate::driver) struct Flushed {
        link: Link,
        act: fn(&Flusher),
        flusher: Arc<Flusher>,
        count: AtomicUsize,
    }

    impl Flushed {
        pub(in crate::driver) fn new(flusher: &Arc<Flusher>, act: fn(&Flusher)) -> Arc<Self> {
            let peer = Hello {
                node: NodeId::new(1),
                incarnation: Incarnation(1 << 8),
                advertised: Vec::new(),
                frame_bytes_max: 1 << 20,
            };
            let (nonce, scheme) = (LinkNonce(1), "test");
            let link =
                Link { peer, nonce, is_dialler: false, scheme, principal: None, remote: None };
            Arc::new(Self { link, act, flusher: flusher.clone(), count: AtomicUsize::new(0) })
        }

        pub(in crate::driver) fn count(&self) -> usize {
            self.count.load(Ordering::Relaxed)
        }
    }

    impl Connection for Flushed {
        fn link(&self) -> &Link {
            &self.link
        }
        fn with_buffer(&self, _: &mut dyn FnMut(&mut dyn Buffer)) {}
        fn flush(&self) {
            self.count.fetch_add(1, Ordering::Relaxed);
            (self.act)(&self.flusher);
        }
        fn poll_flush(&self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }
        fn poll_writable(&self, _: Lane, _: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }
        fn close(&self, _: CloseReason) {
            (self.act)(&self.flusher);
        }
        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    fn due(connection: &Arc<Flushed>, promised_in: Option<usize>) -> [Due; 1] {
        [Due { connection: connection.clone(), promised_in }]
    }

    #[test]
    fn a_flush_that_panics_keeps_none_from_theirs() {
        let flusher = Arc::<Flusher>::default();
        let broken = Flushed::new(&flusher, |_| panic!("on purpose"));
        let other = Flushed::new(&flusher, |_| ());
        for connection in [&broken, &other] {
            flusher.take_over(|| Timestamp::ZERO, due(connection, Some(0)));
        }
        let settled = AtomicUsize::new(0);
        flusher.flush_due(|_, _| _ = settled.fetch_add(1, Ordering::Relaxed));
        assert_eq!((broken.count(), other.count(), settled.into_inner()), (1, 1, 2));
    }

    /// As a waker does that a flush calls and that polls what it wakes.
    #[test]
    fn who_is_woken_by_a_flush_may_append() {
        let flusher = Arc::<Flusher>::default();
        let one = Flushed::new(&flusher, |flusher| {
            let other = Flushed::new(&Arc::default(), |_| ());
            flusher.take_over(|| Timestamp::ZERO, due(&other, None));
        });
        flusher.take_over(|| Timestamp::ZERO, due(&one, None));
        flusher.flush_due(|_, _| ());
        assert_eq!((one.count(), flusher.due.lock().connections.len()), (1, 1));
    }

    #[test]
    fn who_comes_later_is_told_since_when_the_flusher_is_held_up() {
        let flusher = Arc::<Flusher>::default();
        let one = Flushed::new(&flusher, |_| ());
        let (start, late) = (Timestamp::ZERO, Timestamp::ZERO + TRUST * 2);
        for now in [start, start + TRUST, late] {
            assert_eq!(flusher.take_over(|| now, due(&one, None)), start);
        }
        flusher.flush_due(|_, _| ());
        assert_eq!(one.count(), 1, "what a scope leaves is noted once");
        assert_eq!(flusher.take_over(|| late, due(&one, None)), late);
    }
}
