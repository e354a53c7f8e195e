//! A streamed reply, within the credit its reader grants.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::sync::Arc;

use convoke_proto::task::SendError;

use crate::driver::TaskHandle;
use crate::message::Payload;

/// Sends the items of one streamed reply. Dropping it ends the stream.
pub struct ReplyStream<Resp> {
    handle: Arc<TaskHandle>,
    index: u32,
    types: PhantomData<fn(Resp)>,
}

impl<Resp: Payload> ReplyStream<Resp> {
    pub(super) fn new(handle: Arc<TaskHandle>, index: u32) -> Self {
        Self { handle, index, types: PhantomData }
    }

    /// Sends an item once the initiator has granted room for it. It leaves when the handler waits
    /// for something or ends, or with a few others.
    ///
    /// # Errors
    /// [`SendError`] when the task has been stopped, or at once when the message is too large. A
    /// handler that is stopped may still have up to 32 small items taken before it is told.
    ///
    /// # Cancel safety
    /// Dropped before it resolves, the item was not sent.
    pub async fn send(&mut self, item: &Resp) -> Result<(), SendError> {
        let (handle, index) = (&self.handle, self.index);
        let mut payload = handle.packed(item.to_encoded());
        handle.driver().check_size(&payload)?;
        poll_fn(|cx| handle.poll_item(cx, index, &mut payload)).await
    }
}

impl<Resp> Drop for ReplyStream<Resp> {
    fn drop(&mut self) {
        self.handle.end_stream(self.index);
    }
}

impl<Resp> fmt::Debug for ReplyStream<Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplyStream")
            .field("task", self.handle.task())
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
