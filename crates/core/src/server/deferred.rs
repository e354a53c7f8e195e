//! Answers that outlive their handler.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use convoke_proto::task::{SendError, TaskFailure};
use convoke_proto::wire::{Cause, Executed};

use crate::driver::{Deferral, HandlerResult, LastWord, Stopper};
use crate::error::Status;
use crate::message::Payload;

use super::{Finish, Task};

/// A task that is answered later, from anywhere; see [`Task::defer`].
///
/// Dropped without an answer, the task fails with [`Cause::Dropped`]. Its deadline holds: when that
/// has passed, or the call was cancelled, it is stopped as any task and nobody takes an answer.
#[must_use = "dropped without an answer, the task fails"]
pub struct Deferred<Resp> {
    task: Task<Resp>,
    stopper: Arc<Stopper>,
    is_over: bool,
}

impl<Resp: Payload> Task<Resp> {
    /// Lets the handler return now and the answer come later: the token waits in a queue, say, and
    /// one round answers many. Nothing else is kept of the handler, and the next one of an ordered
    /// method may start.
    /// ```
    /// use std::sync::mpsc::Sender;
    /// use convoke_core::{Deferred, Finish, Status, Task};
    ///
    /// async fn append(entry: String, task: Task<u64>, queue: Sender<(String, Deferred<u64>)>)
    ///     -> Result<Finish, Status>
    /// {
    ///     let (later, finish) = task.defer();
    ///     let _ = queue.send((entry, later)); // if nobody listens it is dropped, and so fails
    ///     Ok(finish)
    /// }
    ///
    /// fn round(queue: Vec<(String, Deferred<u64>)>) {
    ///     for (number, (_entry, later)) in (0..).zip(queue) {
    ///         let _ = later.answer(&number); // an error: who asked has given up
    ///     }
    /// }
    /// ```
    pub fn defer(self) -> (Deferred<Resp>, Finish) {
        let stopper = Arc::<Stopper>::default();
        let finish = Finish(HandlerResult::Deferred(Deferral::new(stopper.clone())));
        (Deferred { task: self, stopper, is_over: false }, finish)
    }
}

impl<Resp: Payload> Deferred<Resp> {
    /// The task: it can reply, stream, delegate and call until it has ended.
    pub fn task(&self) -> &Task<Resp> {
        &self.task
    }

    /// Sends the last reply and ends the task.
    ///
    /// # Errors
    /// [`SendError`] when the task has been stopped or the message is too large. One that is too
    /// large fails the task.
    pub fn answer(mut self, reply: &Resp) -> Result<(), SendError> {
        let reply = reply.to_encoded();
        self.is_over = true;
        self.task.handle().answer_deferred(reply)
    }

    /// Ends the task.
    pub fn finish(mut self) {
        self.end(LastWord::Nothing);
    }

    /// Ends the task with an error.
    pub fn fail(mut self, status: Status) {
        self.end(TaskFailure::from(status).into());
    }

    /// True when nobody waits for an answer any more: the deadline has passed, the call was
    /// cancelled, the endpoint was shut down, or the handler has not returned its [`Finish`].
    pub fn is_stopped(&self) -> bool {
        self.stopper.is_stopped()
    }

    /// Resolves when the task is stopped; see [`Deferred::is_stopped`].
    ///
    /// # Cancel safety
    /// Dropped before it resolves, nothing is lost.
    pub async fn stopped(&mut self) {
        poll_fn(|cx| if self.stopper.poll_stopped(cx) { Poll::Ready(()) } else { Poll::Pending })
            .await;
    }
}

impl<Resp> Deferred<Resp> {
    fn end(&mut self, word: LastWord) {
        self.is_over = true;
        self.task.handle().finish(word.ended());
    }
}

impl<Resp> Drop for Deferred<Resp> {
    fn drop(&mut self) {
        if !self.is_over {
            let failure = TaskFailure::new(Cause::Dropped, Executed::Maybe, "");
            self.end(failure.into());
        }
    }
}

impl<Resp> fmt::Debug for Deferred<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred")
            .field("task", &self.task)
            .field("is_stopped", &self.stopper.is_stopped())
            .finish_non_exhaustive()
    }
}
