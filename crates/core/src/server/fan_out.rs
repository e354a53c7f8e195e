//! Several branches of a task, opened one after the other.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, ready};

use convoke_proto::task::SendError;
use smallvec::SmallVec;

use crate::carrier;
use crate::driver::{NewBranches, RoomWait};
use crate::error::Status;
use crate::message::Payload;
use crate::method::Request;
use crate::packing::LastPacked;
use crate::peer::Peer;

use super::{Finish, Task};

/// Opens the branches of [`Task::fan_out`], then finishes the task.
///
/// # Cancel safety
/// Dropped before it resolves, some branches may have been opened. The task ends as any whose
/// handler returns or fails afterwards.
#[must_use = "no branch is opened until it is awaited"]
pub struct FanOut<Resp> {
    task: Option<Task<Resp>>,
    /// Those that are not opened yet, or why one of them cannot be.
    branches: Result<NewBranches, SendError>,
    room: RoomWait,
}

impl<Resp: Payload> Task<Resp> {
    /// Opens branches and ends. Peers whose connections have no room are asked last: this waits
    /// until they have, and the others do not wait for them. A peer that is known to be dead is
    /// asked all the same, so that it becomes a failure record at the initiator and the others go
    /// on.
    ///
    /// All branches are taken from the iterator at once; it may borrow from the handler's own:
    /// ```
    /// # use convoke_core::{Finish, Method, Peer, Status, Task};
    /// # const LOOK: Method<String, String> = Method::new("search.Search/Look");
    /// async fn find(shards: &[Peer], word: &str, task: Task<String>) -> Result<Finish, Status> {
    ///     task.fan_out(shards.iter().map(|shard| (shard, LOOK.request(word.into())))).await
    /// }
    /// ```
    /// A large message that several branches have in common goes to the carrier of the endpoint,
    /// such as an overlay, as that of a call does.
    ///
    /// With the guard of a lock in the argument take two statements, so that it is not held while
    /// this waits: `let all = task.fan_out(known.lock().iter().map(..)); all.await`.
    ///
    /// The compiler refuses a branch of a method that answers with something else:
    /// ```compile_fail,E0271
    /// # use convoke_core::{Finish, Method, Peer, Status, Task};
    /// # const LENGTH: Method<String, u64> = Method::new("search.Search/Length");
    /// async fn find(shards: &[Peer], task: Task<String>) -> Result<Finish, Status> {
    ///     task.fan_out(shards.iter().map(|shard| (shard, LENGTH.request("heron".into())))).await
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Status`] when the task has been stopped or a bound is reached.
    pub fn fan_out<P: Into<Peer>>(
        self,
        branches: impl IntoIterator<Item = (P, Request<Resp>)>,
    ) -> FanOut<Resp> {
        let branches = branches.into_iter().map(|(peer, request)| (peer.into(), request));
        let mut branches: SmallVec<[_; 4]> = branches.collect();
        let driver = self.handle().driver();
        let me = driver.identity().node;
        carrier::carry(
            me,
            || driver.carried_from(),
            |to, body| driver.offer(to, body),
            &mut branches,
        );
        let mut last = LastPacked::default();
        let branches =
            branches.iter().map(|(peer, request)| self.handle().branch(request, *peer, &mut last));
        FanOut { branches: branches.collect(), room: RoomWait::default(), task: Some(self) }
    }
}

impl<Resp: Payload> Future for FanOut<Resp> {
    type Output = Result<Finish, Status>;

    /// # Panics
    /// When it is polled after it has resolved.
    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        let Self { task, branches, room } = &mut *self;
        let handle = task.as_ref().expect("it is polled until it resolves").handle();
        let branches = branches.as_mut().map_err(|refusal| Status::from(*refusal))?;
        while !branches.is_empty() {
            ready!(handle.poll_fan_out(branches, room, cx))?;
        }
        let task = task.take().expect("it was there above");
        Poll::Ready(Ok(task.finish()))
    }
}

impl<Resp> fmt::Debug for FanOut<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FanOut")
            .field("task", &self.task)
            .field("branches", &self.branches.as_ref().map_or(0, NewBranches::len))
            .finish()
    }
}
