//! Dials for several who ask for the same at once, done once for all of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use convoke_transport::parts::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

/// Dials under way, by what is dialled, each with its outcome to come.
type UnderWay<K, T> = Mutex<BTreeMap<K, watch::Receiver<Option<T>>>>;

/// Dials under way. Each is a task of its own, so that nobody waits for one whose future somebody
/// else has begun and does not poll.
#[derive(Debug)]
pub(super) struct Joint<K, T>(Arc<UnderWay<K, T>>);

impl<K, T> Joint<K, T>
where
    K: Ord + Clone + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// The outcome of what is under way for `key`, or of `begin`. `None` when its task did not end:
    /// the runtime is gone.
    pub(super) async fn run(
        &self,
        runtime: &Handle,
        key: K,
        begin: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (sender, begun) = watch::channel(None);
        let mut outcome = self.0.lock().entry(key.clone()).or_insert(begun.clone()).clone();
        if outcome.same_channel(&begun) {
            let place = Place { joint: self.0.clone(), key };
            // Without the lock: a runtime that is gone drops it, and its place, at once.
            runtime.spawn(async move {
                sender.send_replace(Some(begin.await));
                drop(place);
            });
        }
        outcome.wait_for(Option::is_some).await.ok()?.clone()
    }
}

impl<K, T> Default for Joint<K, T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

/// Place of what is under way, however it ends.
struct Place<K: Ord, T> {
    joint: Arc<UnderWay<K, T>>,
    key: K,
}

impl<K: Ord, T> Drop for Place<K, T> {
    fn drop(&mut self) {
        let _dropped_unlocked = self.joint.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn who_comes_meanwhile_shares_the_outcome_and_who_comes_later_begins_anew() {
        let (joint, begun) = (Joint::default(), Arc::new(AtomicUsize::new(0)));
        let runtime = Handle::current();
        let run = || {
            let begun = begun.clone();
            joint.run(&runtime, 1, async move { begun.fetch_add(1, Ordering::Relaxed) })
        };
        assert_eq!(tokio::join!(run(), run(), run()), (Some(0), Some(0), Some(0)));
        while !joint.0.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let other = joint.run(&runtime, 2, async { 7 });
        assert_eq!(tokio::join!(run(), other), (Some(1), Some(7)));
    }

    #[tokio::test]
    async fn whoever_began_need_not_stay() {
        let (joint, may_end) = (Joint::default(), Arc::new(Notify::new()));
        let runtime = Handle::current();
        let ends = may_end.clone();
        let mut first = Box::pin(joint.run(&runtime, 1, async move {
            ends.notified().await;
            1
        }));
        let at_once = std::time::Duration::ZERO;
        assert!(tokio::time::timeout(at_once, &mut first).await.is_err(), "it waits");
        // It is there, and nobody polls it.
        may_end.notify_one();
        assert_eq!(joint.run(&runtime, 1, async { 2 }).await, Some(1));
        drop(first);
    }

    #[test]
    fn a_runtime_that_is_gone_is_not_waited_for() {
        let (joint, gone) = (Joint::default(), tokio::runtime::Runtime::new().expect("it starts"));
        let handle = gone.handle().clone();
        gone.shutdown_background();
        let here = tokio::runtime::Runtime::new().expect("it starts");
        assert_eq!(here.block_on(joint.run(&handle, 1, async { 1 })), None);
    }
}
