//! One mailbox: the casts that wait, and who sent how many.

use std::mem::size_of;

use bytes::Bytes;
use smallvec::SmallVec;

use crate::id::NodeId;
use crate::time::Timestamp;
use crate::wire::{About, Cast, Digest};

/// Senders that one mailbox may have.
pub(super) const SENDERS_MAX: usize = 1_024;

/// A payload up to this size is copied out of the buffer that it came in, which it would keep as a
/// whole: a few bytes could hold 64 KiB. What is larger fills most of its buffer.
const COPIED_BYTES_MAX: usize = 32 << 10;

/// Cost of an allocation besides its bytes, for a common allocator.
const ALLOCATION_BYTES: usize = 16;

/// Most bytes that a cast takes in a mailbox besides its payload. In a stream it takes fewer.
pub(crate) const OVERHEAD_BYTES_MAX: usize = {
    let of_post = size_of::<Post>() * 9 / 8 + size_of::<Bytes>() + 2 * ALLOCATION_BYTES;
    let of_posts = size_of::<Post>() + ALLOCATION_BYTES;
    let of_senders = SENDERS * size_of::<Sender>() + ALLOCATION_BYTES;
    of_post + of_posts + of_senders
};

/// Casts about one call or tag.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// Most that wait for their reader are one.
    posts: SmallVec<[Post; 1]>,
    senders: SmallVec<[Sender; 1]>,
    /// Node that spoke of it first, before anybody here read it.
    pub(super) begun_by: Option<NodeId>,
}

/// A cast that waits: what its name and its expiry do not say.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) from: NodeId,
    /// Time until which it waits for a reader.
    expires: Timestamp,
    epoch: u64,
    /// Most have none.
    payload: Option<Box<Bytes>>,
    digest: Digest,
    phase: u16,
    sender: u16,
}

#[derive(Debug)]
struct Sender {
    node: NodeId,
    /// Casts that came, read or not.
    count: u32,
    /// Phases below 64 in which one came.
    phases: u64,
    /// Bytes that wait, of which one mailbox has fewer than that.
    bytes: u32,
}

/// Senders that a mailbox of more than one has room for at first.
const SENDERS: usize = 8;

impl Post {
    pub(super) fn new(from: NodeId, expires: Timestamp, cast: Cast) -> Self {
        let Cast { phase, sender, epoch, digest, payload, .. } = cast;
        let payload = match payload.len() {
            0 => None,
            1..COPIED_BYTES_MAX => Some(Box::new(Bytes::copy_from_slice(&payload))),
            _ => Some(Box::new(payload)),
        };
        Self { from, expires, epoch, payload, digest, phase, sender }
    }

    /// The cast, about what it was kept for. It waits no longer.
    pub(super) fn into_cast(self, about: About) -> Cast {
        let Self { phase, sender, epoch, digest, .. } = self;
        let payload = self.payload.map(|payload| *payload).unwrap_or_default();
        Cast { about, phase, sender, epoch, budget_us: 0, digest, is_carried: false, payload }
    }

    /// Bytes that it takes in a mailbox.
    pub(super) fn cost(&self) -> usize {
        self.cost_as::<Self>()
    }

    /// Bytes that it takes in a list of these: its place, with the room by which the list grows,
    /// and its payload.
    pub(super) fn cost_as<Entry>(&self) -> usize {
        let payload = self
            .payload
            .as_ref()
            .map_or(0, |payload| payload.len() + size_of::<Bytes>() + 2 * ALLOCATION_BYTES);
        size_of::<Entry>() * 9 / 8 + payload
    }
}

impl Mail {
    /// Bytes that one without casts takes: it but for the place of its first cast, its own in the
    /// table, and its time.
    pub(super) const BYTES: usize =
        size_of::<Self>() - size_of::<Post>() + ALLOCATION_BYTES + TABLES_BYTES;

    pub(super) fn begun_by(node: NodeId) -> Self {
        Self { begun_by: Some(node), ..Self::default() }
    }

    /// Bytes that it takes more with this cast: the lists have a place for the first within.
    pub(super) fn cost_with(&self, post: &Post) -> usize {
        let has_sender = self.senders.iter().any(|sender| sender.node == post.from);
        let of_senders = match self.senders.len() {
            1 if !has_sender => SENDERS * size_of::<Sender>() + ALLOCATION_BYTES,
            SENDERS.. if !has_sender => 2 * size_of::<Sender>(),
            _ => 0,
        };
        let of_posts = match self.posts.len() {
            1 => size_of::<Post>() + ALLOCATION_BYTES,
            _ => 0,
        };
        post.cost() + of_posts + of_senders
    }

    /// Keeps a cast, if its sender has fewer and less waiting here than these. False when not. The
    /// first in a phase is kept however many others came: they may be copies.
    pub(super) fn post(&mut self, post: Post, (casts_max, bytes_max): (usize, usize)) -> bool {
        let cost = self.cost_with(&post);
        let phase = bit_of(post.phase);
        let fits = |bytes: u32| {
            let bytes = bytes as usize + cost;
            u32::try_from(bytes).ok().filter(|_| bytes <= bytes_max)
        };
        match self.senders.iter().position(|sender| sender.node == post.from) {
            Some(at) => {
                let sender = &mut self.senders[at];
                let Some(bytes) = fits(sender.bytes) else { return false };
                let is_first = sender.phases & phase != phase;
                if sender.count as usize >= casts_max && !is_first {
                    return false;
                }
                (sender.count, sender.bytes) = (sender.count + 1, bytes);
                sender.phases |= phase;
            }
            None if self.senders.len() >= SENDERS_MAX => return false,
            None => {
                let Some(bytes) = fits(0) else { return false };
                if self.senders.len() == 1 {
                    self.senders.reserve_exact(SENDERS - 1);
                }
                self.senders.push(Sender { node: post.from, count: 1, phases: phase, bytes });
            }
        }
        // An eighth more than there are: most hold few, and twice as much is not paid for.
        if self.posts.len() == self.posts.capacity() {
            self.posts.reserve_exact(1 + self.posts.len() / 8);
        }
        self.posts.push(post);
        true
    }

    /// Casts that wait.
    pub(super) fn len(&self) -> usize {
        self.posts.len()
    }

    /// Those who have sent any.
    pub(super) fn senders(&self) -> impl Iterator<Item = NodeId> + Clone {
        self.senders.iter().map(|sender| sender.node)
    }

    /// Bytes that wait of each sender, and wait no longer.
    pub(super) fn take_bytes(&mut self) -> impl Iterator<Item = (NodeId, usize)> {
        let bytes = |sender: &mut Sender| std::mem::take(&mut sender.bytes) as usize;
        self.senders.iter_mut().map(move |sender| (sender.node, bytes(sender)))
    }

    /// The casts, oldest first.
    pub(super) fn take_posts(&mut self) -> impl Iterator<Item = Post> {
        std::mem::take(&mut self.posts).into_iter()
    }

    /// Drops what has no time left, and tells who gets how many bytes back for it. When the next
    /// has none, and the number of those dropped; no time when none is left.
    pub(super) fn expire(
        &mut self,
        now: Timestamp,
        mut given: impl FnMut(NodeId, usize),
    ) -> (Option<Timestamp>, usize) {
        let Self { posts, senders, .. } = self;
        let before = posts.len();
        posts.retain(|post| {
            let stays = post.expires > now;
            if !stays && let Some(of) = senders.iter_mut().find(|of| of.node == post.from) {
                let cost = post.cost();
                given(of.node, cost);
                of.count -= 1;
                of.phases &= !bit_of(post.phase);
                of.bytes -= u32::try_from(cost).unwrap_or(of.bytes);
            }
            stays
        });
        senders.retain(|sender| {
            let stays = sender.count > 0;
            if !stays {
                given(sender.node, sender.bytes as usize);
            }
            stays
        });
        posts.shrink_to_fit();
        senders.shrink_to_fit();
        (posts.iter().map(|post| post.expires).min(), before - posts.len())
    }

    #[cfg(test)]
    pub(super) fn posts(&self) -> impl Iterator<Item = &Post> {
        self.posts.iter()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.senders.iter().map(|sender| sender.bytes as usize).sum()
    }
}

/// The bit of a phase, if it is below 64.
fn bit_of(phase: u16) -> u64 {
    1_u64.checked_shl(phase.into()).unwrap_or(0)
}

/// An entry of the table of mailboxes and one of their times, in nodes that are little more than
/// half full, as those of ascending names are.
const TABLES_BYTES: usize = {
    let of_box = size_of::<(super::MailKey, super::State)>();
    let of_time = size_of::<(Timestamp, super::MailKey)>();
    (of_box + of_time) * 7 / 4
};
