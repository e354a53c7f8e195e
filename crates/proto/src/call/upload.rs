//! The items of a streamed request on their way out: to one task, over the connection of its
//! request, within the credit that its node has granted.
//!
//! ```text
//!   Open ─┬─finish────────────────────────────▶ Finished ──all has left──▶ (nothing to do)
//!         ├─the task ended, or reads no more──▶ Stopped(Ended)
//!         └─the connection ended──────────────▶ Stopped(Lost)
//! ```
//! Items are neither branches nor replies: whether a call is complete does not depend on them.

use bytes::Bytes;

use crate::encoded::Encoded;
use crate::flow::{Channel, Piece};
use crate::id::LinkId;
use crate::task::SendError;
use crate::wire::{Credit, Item, ItemKind, ReplyKind};

/// The items of one call's request.
#[derive(Debug)]
pub(crate) struct Upload {
    channel: Channel,
    /// The connection that the request took, once it has left.
    link: Option<LinkId>,
    is_finished: bool,
    stopped: Option<SendError>,
    wait: Wait,
}

/// News that the writer of the items waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wait {
    /// None: it has sent, or not asked yet.
    #[default]
    Nothing,
    /// That an item can leave, or none ever will.
    Leave,
    /// That none ever will: an item can leave, but the connection may have no room.
    End,
}

impl Upload {
    pub(crate) fn new(unscheduled: u64) -> Self {
        let channel = Channel::new(unscheduled);
        Self { channel, link: None, is_finished: false, stopped: None, wait: Wait::Nothing }
    }

    /// The request has left, and so may the items.
    pub(crate) fn begin(&mut self, link: LinkId) {
        self.link.get_or_insert(link);
    }

    /// The connection that items take, once they may leave.
    pub(crate) fn link(&self) -> Option<LinkId> {
        self.link
    }

    /// True when an item can leave now. If not, its writer is told once one can. Until it sends, it
    /// is told when none ever will.
    pub(crate) fn poll_writable(&mut self) -> Result<bool, SendError> {
        self.check()?;
        let is_writable = self.is_writable();
        self.wait = if is_writable { Wait::End } else { Wait::Leave };
        Ok(is_writable)
    }

    fn is_writable(&self) -> bool {
        self.link.is_some() && self.channel.credit() > 0
    }

    fn check(&self) -> Result<(), SendError> {
        if self.is_finished {
            return Err(SendError::Ended);
        }
        self.stopped.map_or(Ok(()), Err)
    }

    /// Takes the next item. One that can leave in one frame now is to leave; another waits for
    /// [`Self::poll`]. The message of the one that leaves is beside it.
    pub(crate) fn send(
        &mut self,
        payload: &mut Encoded,
    ) -> Result<Option<(LinkId, Item, Encoded)>, SendError> {
        self.check()?;
        if self.wait == Wait::End {
            self.wait = Wait::Nothing;
        }
        let piece = Piece::whole(self.channel.next_item(), Vec::new(), std::mem::take(payload));
        let Some(link) = self.link.filter(|_| self.channel.can_send_whole(&piece)) else {
            self.channel.push(piece);
            return Ok(None);
        };
        self.channel.send_whole(&piece);
        let (item, payload) = item_of(piece);
        Ok(Some((link, item, payload)))
    }

    /// True when more items can come, and their reader waits for them.
    pub(crate) fn is_open(&self) -> bool {
        self.check().is_ok()
    }

    /// True while items may leave by a connection.
    pub(crate) fn needs(&self, link: LinkId) -> bool {
        let has_left = self.is_finished && self.channel.is_empty();
        self.link == Some(link) && self.stopped.is_none() && !has_left
    }

    /// No further items come.
    pub(crate) fn finish(&mut self) {
        if self.is_open() {
            self.is_finished = true;
            self.channel.finish();
        }
    }

    /// The task's node grants bytes of the items, over this connection. False when it is not the
    /// one that the items take.
    pub(crate) fn grant(
        &mut self,
        link: LinkId,
        limit: u64,
        let_go: &mut dyn FnMut(Encoded),
    ) -> bool {
        if self.link != Some(link) {
            return false;
        }
        match limit {
            Credit::NO_MORE => self.stop(SendError::Ended, let_go),
            limit => _ = self.channel.grant(limit),
        }
        true
    }

    /// Nobody takes further items, and what waits never leaves.
    pub(crate) fn stop(&mut self, why: SendError, let_go: &mut dyn FnMut(Encoded)) {
        if self.stopped.is_none() {
            self.stopped = Some(why);
            self.channel.clear(let_go);
        }
    }

    /// True once when its writer waits no longer for nothing.
    pub(crate) fn take_news(&mut self) -> bool {
        let has_news = match self.wait {
            Wait::Nothing => false,
            Wait::Leave => self.stopped.is_some() || self.is_writable(),
            Wait::End => self.stopped.is_some(),
        };
        if has_news {
            self.wait = Wait::Nothing;
        }
        has_news
    }

    /// The connection for the next frame, if one has credit.
    pub(crate) fn granted_link(&self) -> Option<LinkId> {
        self.link.filter(|_| self.channel.has_granted())
    }

    /// The next frame, and the connection for it.
    pub(crate) fn poll(&mut self, let_go: &mut dyn FnMut(Encoded)) -> Option<(LinkId, Item)> {
        let link = self.link?;
        let (item, payload) = item_of(self.channel.poll(let_go)?);
        Some((link, Item { payload: payload.into_bytes(), ..item }))
    }
}

/// An item without its message, and that.
fn item_of(Piece { kind, part, payload, .. }: Piece<Encoded>) -> (Item, Encoded) {
    let kind = match kind {
        ReplyKind::Item { seq, is_last } => ItemKind::Item { seq, is_last },
        ReplyKind::End { count } => ItemKind::End { count },
        ReplyKind::Message => unreachable!("items alone were appended"),
    };
    (Item { kind, part, payload: Bytes::new() }, payload)
}
