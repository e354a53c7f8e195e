//! Dials for several who ask for the same at once, done once for all of them.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use convoke_transport::parts::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::transport::DialError;

/// Dials under way, by what is dialled, each with its outcome to come.
type UnderWay<K, T> = Mutex<BTreeMap<K, watch::Receiver<Option<Dialled<T>>>>>;

type Dialled<T> = Result<T, DialError>;

/// Dials under way. Each is a task of its own, so that nobody waits for one whose future somebody
/// else has begun and does not poll.
#[derive(Debug)]
pub(super) struct Joint<K, T>(Arc<UnderWay<K, T>>);

impl<K, T> Joint<K, T>
where
    K: Ord + Clone + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// The outcome of the dial under way for `key`, or of one that this begins. A failure of what
    /// began before it was asked for says nothing of now: nobody may have listened yet. `None` when
    /// a task did not end: the runtime is gone.
    pub(super) async fn run<F>(
        &self,
        runtime: &Handle,
        key: K,
        begin: impl Fn() -> F,
    ) -> Option<Dialled<T>>
    where
        F: Future<Output = Dialled<T>> + Send + 'static,
    {
        let (is_own, outcome) = self.join(runtime, &key, &begin);
        match ended(outcome).await? {
            Err(_) if !is_own => ended(self.join(runtime, &key, &begin).1).await,
            dialled => Some(dialled),
        }
    }

    /// Joins the dial under way, or begins one: then true, beside the outcome to come.
    fn join<F>(
        &self,
        runtime: &Handle,
        key: &K,
        begin: impl Fn() -> F,
    ) -> (bool, watch::Receiver<Option<Dialled<T>>>)
    where
        F: Future<Output = Dialled<T>> + Send + 'static,
    {
        let (sender, begun) = watch::channel(None);
        let outcome = self.0.lock().entry(key.clone()).or_insert(begun.clone()).clone();
        let is_own = outcome.same_channel(&begun);
        if is_own {
            let (dialled, place) = (begin(), Place { joint: self.0.clone(), key: key.clone() });
            // Without the lock: a runtime that is gone drops it, and its place, at once.
            runtime.spawn(async move {
                let outcome = dialled.await;
                // First: who came between the two would join what has failed already.
                drop(place);
                sender.send_replace(Some(outcome));
            });
        }
        (is_own, outcome)
    }
}

async fn ended<T: Clone>(mut outcome: watch::Receiver<Option<T>>) -> Option<T> {
    outcome.wait_for(Option::is_some).await.ok()?.clone()
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
    use std::pin::pin;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use tokio::sync::Semaphore;

    use super::*;

    /// Dials that are counted, each of which ends once it is let.
    #[derive(Clone)]
    struct Dials {
        begun: Arc<AtomicUsize>,
        may_end: Arc<Semaphore>,
    }

    impl Dials {
        fn new() -> Self {
            Self { begun: Arc::default(), may_end: Arc::new(Semaphore::new(0)) }
        }

        /// The number of the dial; the first fails.
        fn dial(&self) -> impl Future<Output = Dialled<usize>> + Send + 'static {
            let Self { begun, may_end } = self.clone();
            async move {
                let number = begun.fetch_add(1, Ordering::Relaxed);
                may_end.acquire().await.expect("it is open").forget();
                if number == 0 { Err(failed()) } else { Ok(number) }
            }
        }
    }

    fn failed() -> DialError {
        DialError::NoAddress { node: convoke_proto::id::NodeId::new(1) }
    }

    async fn is_begun(dials: &Dials) {
        while dials.begun.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn who_comes_meanwhile_shares_the_outcome_and_a_failure_of_before_is_tried_again() {
        let (joint, dials, runtime) = (Joint::default(), Dials::new(), Handle::current());
        let run = || joint.run(&runtime, 1, || dials.dial());
        dials.may_end.add_permits(2);
        // Two have come while the first dialled.
        let (first, second, third) = tokio::join!(run(), run(), run());
        assert_eq!(first, Some(Err(failed())));
        assert_eq!((second, third), (Some(Ok(1)), Some(Ok(1))));
        while !joint.0.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        dials.may_end.add_permits(1);
        assert_eq!(run().await, Some(Ok(2)), "who comes later begins anew");
    }

    /// Notes, when it is woken, that the dial is not under way any more.
    struct Looks {
        under_way: Arc<UnderWay<u8, usize>>,
        is_over: AtomicBool,
    }

    impl Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.is_over.store(self.under_way.lock().is_empty(), Ordering::Relaxed);
        }
    }

    #[tokio::test]
    async fn nobody_joins_a_dial_whose_outcome_is_known() {
        let (joint, dials, runtime) = (Joint::default(), Dials::new(), Handle::current());
        let mut run = pin!(joint.run(&runtime, 1, || dials.dial()));
        let looks = Arc::new(Looks { under_way: joint.0.clone(), is_over: AtomicBool::new(false) });
        let waker = Waker::from(looks.clone());
        assert!(run.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        dials.may_end.add_permits(1);
        while !joint.0.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        assert!(looks.is_over.load(Ordering::Relaxed));
        assert_eq!(run.await, Some(Err(failed())));
    }

    #[tokio::test]
    async fn whoever_began_need_not_stay() {
        let (joint, dials, runtime) = (Joint::default(), Dials::new(), Handle::current());
        let mut first = Box::pin(joint.run(&runtime, 1, || dials.dial()));
        let at_once = std::time::Duration::ZERO;
        assert!(tokio::time::timeout(at_once, &mut first).await.is_err(), "it waits");
        is_begun(&dials).await;
        // It is there, and nobody polls it.
        dials.may_end.add_permits(2);
        assert_eq!(joint.run(&runtime, 1, || dials.dial()).await, Some(Ok(1)));
        drop(first);
    }

    #[test]
    fn a_runtime_that_is_gone_is_not_waited_for() {
        let (joint, gone) = (Joint::default(), tokio::runtime::Runtime::new().expect("it starts"));
        let handle = gone.handle().clone();
        gone.shutdown_background();
        let here = tokio::runtime::Runtime::new().expect("it starts");
        let dials = Dials::new();
        assert_eq!(here.block_on(joint.run(&handle, 1, || dials.dial())), None);
    }
}
