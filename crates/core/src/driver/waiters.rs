//! Wakers of those who wait for credit or items of a task, or for casts: kept under the lock of the
//! node under which there was nothing for them.

use std::sync::Arc;
use std::task::{Poll, Waker};

use convoke_proto::mailbox::{MailReader, Mailboxes};
use convoke_proto::task::SendError;
use convoke_proto::time::Timestamp;
use convoke_proto::visits::TaskRef;
use convoke_transport::parts::wake_all;
use tokio::sync::futures::OwnedNotified;

use super::cores::Core;
use super::drain::Aftermath;
use super::waiting::{Part, WaitingParts};
use super::{Driver, Node, full};

impl Driver {
    /// Refuses a message that no node would take, however long it waited.
    pub(crate) fn check_size(&self, payload: &[u8]) -> Result<(), SendError> {
        let (size, limit) = (payload.len(), self.limits.message_bytes_max);
        if size > limit { Err(SendError::TooLarge { size, limit }) } else { Ok(()) }
    }

    /// Polls for what a part of a running task waits for. Without it the waker is kept until a
    /// stream of the task has credit or an item again, or the task is over.
    pub(crate) fn poll_stream<T>(
        self: &Arc<Self>,
        (task, part): (&TaskRef, Part),
        waker: &Waker,
        poll: impl FnOnce(&mut Node, Timestamp) -> Poll<T>,
    ) -> Poll<T> {
        let index = self.cores.routes.of(task.call.origin);
        let (polled, _dropped_unlocked) = self.with_core(index, |core, now, _| {
            let polled = poll(&mut core.node, now);
            let old = if polled.is_pending() { core.keep_part(task, part, waker) } else { None };
            (polled, old)
        });
        polled
    }

    /// Has no part of a task woken any more that is gone: `act` tells the node so.
    pub(crate) fn let_part_go(
        self: &Arc<Self>,
        (task, part): (&TaskRef, Part),
        act: impl FnOnce(&mut Node, Timestamp),
    ) {
        let index = self.cores.routes.of(task.call.origin);
        let _dropped_unlocked = self.with_core(index, |core, now, _| {
            act(&mut core.node, now);
            core.parts.get_mut(task).and_then(|parts| parts.forget(part))
        });
    }

    /// Polls for what a reader of casts waits for. Keeps the waker when there is nothing; `None`
    /// when nothing comes any more, as the endpoint is closed.
    pub(crate) fn poll_mail<T>(
        &self,
        reader: MailReader,
        waker: &Waker,
        poll: impl FnOnce(&mut Mailboxes) -> Poll<T>,
    ) -> Poll<Option<T>> {
        let (polled, _dropped_unlocked) = {
            let mut core = self.cores.lock_of(reader.origin());
            let polled = match poll(core.node.mailboxes_mut()) {
                Poll::Ready(some) => Poll::Ready(Some(some)),
                Poll::Pending if core.is_closed => Poll::Ready(None),
                Poll::Pending => Poll::Pending,
            };
            let old = match polled {
                Poll::Pending => core.mail_wakers.insert(reader, waker.clone()),
                Poll::Ready(_) => core.mail_wakers.remove(&reader),
            };
            (polled, old)
        };
        polled
    }

    /// A reader of casts is gone: `close` tells the node so.
    pub(crate) fn close_mail<T>(&self, reader: MailReader, close: impl FnOnce(&mut Node) -> T) {
        let _dropped_unlocked = {
            let mut core = self.cores.lock_of(reader.origin());
            (close(&mut core.node), core.mail_wakers.remove(&reader))
        };
    }

    /// The handler of a task has ended.
    pub(crate) fn forget_task(&self, task: &TaskRef) {
        let (_dropped_unlocked, parts) = {
            let mut core = self.cores.lock_of(task.call.origin);
            (core.stoppers.remove(task), core.parts.remove(task))
        };
        // Parts of it that were spawned still wait, and are told that it is over.
        if let Some((wakers, told)) = parts.map(WaitingParts::into_all) {
            wake_all(wakers);
            full::tell(&told);
        }
    }
}

impl Core {
    /// Keeps the waker of a part of a task until a stream of the task has credit or an item again,
    /// or the task is over. The one that it takes the place of is to be dropped without the lock.
    fn keep_part(&mut self, task: &TaskRef, part: Part, waker: &Waker) -> Option<Waker> {
        self.parts.entry(task.clone()).or_default().keep(part, waker)
    }

    /// A wait of a part of a task that ends with the task, at the latest. Dropped it leaves nothing
    /// here.
    pub(super) fn until_over(&mut self, task: &TaskRef) -> OwnedNotified {
        self.parts.entry(task.clone()).or_default().until_over()
    }

    /// Leaves the parts of a task that wait to be woken.
    pub(super) fn take_parts(&mut self, task: &TaskRef, aftermath: &mut Aftermath) {
        if let Some(parts) = self.parts.remove(task) {
            let (wakers, told) = parts.into_all();
            aftermath.wakers.extend(wakers);
            if let Some(told) = told {
                aftermath.rare().told.push(told);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context as Polling, Wake};

    use convoke_transport::parts::Mutex;

    use super::*;
    use crate::{Context, Endpoint, Items, Method, Service, Status};

    /// Leaves its items to others and returns.
    const LEAVE: Method<Items<String>, u64> = Method::new("test.Test/Leave");
    /// Asks the items that were left.
    const ASK: Method<u64, u64> = Method::new("test.Test/Ask");
    /// Has both run on one thread, the one after the other.
    const BOTH: Method<u64, u64> = Method::new("test.Test/Both");

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Replies of the handlers of one batch are sent together. So a part of a task may begin to
    /// wait after its handler, and before the node knows that the task is over.
    #[tokio::test]
    async fn a_part_that_begins_to_wait_after_its_handler_is_told_that_the_task_is_over() {
        let left = Arc::new(Mutex::new(None));
        let (leaving, asking, wakes) = (left.clone(), left.clone(), Arc::new(Count::default()));
        let waker = Waker::from(wakes.clone());
        let service = Service::new()
            .unary(LEAVE, move |items: Items<String>, _: Context| {
                *leaving.lock() = Some(items);
                async { Ok::<_, Status>(1) }
            })
            .unary(ASK, move |_: u64, _: Context| {
                let mut items = asking.lock();
                let items = items.as_mut().expect("they were left");
                let polled = pin!(items.next()).poll(&mut Polling::from_waker(&waker));
                assert!(polled.is_pending(), "nothing was sent");
                async { Ok::<_, Status>(2) }
            })
            .unary(BOTH, |_: u64, context: Context| async move {
                let (own, me) = (context.endpoint(), context.endpoint().me());
                let (_items, left) = own.call_stream(LEAVE).to(me).open()?;
                let asked = own.call(ASK, 0).to(me).open()?;
                Ok::<_, Status>(left.first().await?.message() + asked.first().await?.message())
            });
        let endpoint = Endpoint::builder().serve(service).start().await.expect("nothing to bind");
        let both = endpoint.call(BOTH, 0).to(endpoint.me()).await;
        assert_eq!(both.expect("both ran"), 3);
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        assert_eq!(endpoint.load().waiting, 0);
        let mut items = left.lock().take().expect("nobody took them");
        assert!(items.next().await.is_some_and(|item| item.is_err()), "its task is over");
        assert_eq!(endpoint.load().waiting, 0);
    }

    #[tokio::test]
    async fn a_part_that_is_polled_by_another_waker_each_time_leaves_one() {
        let left = Arc::new(Mutex::new(None));
        let leaving = left.clone();
        let service = Service::new().unary(LEAVE, move |items: Items<String>, _: Context| {
            *leaving.lock() = Some(items);
            std::future::pending::<Result<u64, Status>>()
        });
        let endpoint = Endpoint::builder().serve(service).start().await.expect("nothing to bind");
        let call = endpoint.call_stream(LEAVE).to(endpoint.me()).open();
        let (mut sender, _call) = call.expect("there is room");
        let before = endpoint.load().waiting;
        let mut items = left.lock().take().expect("its handler has left them");
        let wakes = [(); 100].map(|()| Arc::new(Count::default()));
        for count in &wakes {
            let waker = Waker::from(count.clone());
            let polled = pin!(items.next()).poll(&mut Polling::from_waker(&waker));
            assert!(polled.is_pending(), "nothing was sent");
        }
        assert_eq!(endpoint.load().waiting, before + 1);
        sender.send(&"one".to_owned()).await.expect("there is credit");
        let woken = wakes.map(|count| count.0.load(Ordering::Relaxed));
        assert_eq!((woken.iter().sum::<usize>(), woken[99]), (1, 1), "the last one");
        assert!(items.next().await.is_some_and(|item| item.is_ok()));
    }
}
