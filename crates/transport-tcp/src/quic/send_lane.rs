//! Frames that one lane has to send, without I/O; the account of the connection bounds them.
//!
//! Small frames are encoded one behind the other into an open block; larger ones become blocks of
//! their own that share the caller's bytes. On the data lane a frame above the limit of the lane
//! leaves only its head there, and its rest waits in order for a stream of its own.
//!
//! Credit is not its business: QUIC grants it per stream, and takes no more than there is.

use std::collections::VecDeque;

use bytes::{BufMut, Bytes, BytesMut};
use convoke_transport::parts::SendAccount;
use convoke_transport::{Appended, Lane, NotWritable};

use crate::quic::framing::{self, HEAD_BYTES, Kind, WORD_BYTES, word};

/// A frame from head and body up to this size is copied; about what a block of its own would cost.
const COPY_BYTES_MAX: usize = 4 * 1024;
/// Bytes of open frames that make up a block.
const BLOCK_BYTES: usize = 16 * 1024;
/// Bytes that go into one batch, about.
const BATCH_BYTES: usize = 128 * 1024;

/// Bytes that a lane's stream is given at once.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) blocks: Vec<Bytes>,
    /// Number of frames, and words of the transport's own, that are out with the last block.
    pub(crate) frames: u64,
    pub(crate) transport_frames: u64,
}

/// The rest of a large frame.
#[derive(Debug)]
pub(crate) struct Large {
    pub(crate) parts: [Bytes; 2],
}

impl Large {
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }
}

/// Everything one lane has to send.
#[derive(Debug)]
pub(crate) struct SendLane {
    lane: Lane,
    /// The largest frame that goes over the lane's own stream.
    inline_bytes_max: usize,
    sealed: VecDeque<Bytes>,
    open: BytesMut,
    /// Bytes of the last block of small frames.
    block_bytes: usize,
    /// Complete with what is sealed and open.
    frames: u64,
    transport_frames: u64,
    large: VecDeque<Large>,
    /// Bytes of large frames taken to be written; in the account they wait until they are.
    large_under_way: usize,
    /// Bytes of the batch that it last filled.
    batch_bytes: usize,
    is_closed: bool,
}

impl SendLane {
    pub(crate) fn new(lane: Lane, inline_bytes_max: usize) -> Self {
        Self {
            lane,
            inline_bytes_max,
            sealed: VecDeque::new(),
            open: BytesMut::new(),
            block_bytes: 0,
            frames: 0,
            transport_frames: 0,
            large: VecDeque::new(),
            large_under_way: 0,
            batch_bytes: 0,
            is_closed: false,
        }
    }

    /// Has a frame of `len` bytes put in, if the account has room for it.
    fn put(
        &mut self,
        account: &mut SendAccount,
        len: usize,
        put: impl FnOnce(&mut Self),
    ) -> Result<Appended, NotWritable> {
        account.admit(self.lane, len, len.saturating_add(WORD_BYTES))?;
        put(self);
        account.add(self.lane, WORD_BYTES + len);
        Ok(account.appended(self.lane))
    }

    /// Appends a frame made of copies of `head` and `body`.
    pub(crate) fn append_copy(
        &mut self,
        account: &mut SendAccount,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable> {
        let len = head.len().saturating_add(body.len());
        self.put(account, len, |lane| {
            if len <= BLOCK_BYTES.min(lane.inline_bytes_max) {
                lane.put_small(head, body);
            } else {
                lane.put_shared(head, Bytes::copy_from_slice(body));
            }
        })
    }

    /// Appends a frame of `head` and `body`; a body that is not small is shared.
    pub(crate) fn append_bytes(
        &mut self,
        account: &mut SendAccount,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        let len = head.len().saturating_add(body.len());
        self.put(account, len, |lane| {
            if len <= COPY_BYTES_MAX.min(lane.inline_bytes_max) {
                lane.put_small(head, &body);
            } else {
                lane.put_shared(head, body);
            }
        })
    }

    /// Takes no more frames.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Says goodbye behind everything else, which the lane must carry; takes no more frames.
    pub(crate) fn close_with_goodbye(&mut self, account: &mut SendAccount, text: &str) {
        let len_before = self.open.len();
        framing::put_goodbye(&mut self.open, text);
        account.add(self.lane, self.open.len() - len_before);
        self.transport_frames += 1;
        self.is_closed = true;
    }

    /// Takes no more. Gives what is not sent, to be dropped without the connection's lock: the
    /// owner of a body may call back.
    pub(crate) fn abandon(&mut self) -> impl Sized + use<> {
        self.open = BytesMut::new();
        (self.frames, self.transport_frames) = (0, 0);
        (self.large_under_way, self.batch_bytes) = (0, 0);
        self.is_closed = true;
        (std::mem::take(&mut self.sealed), std::mem::take(&mut self.large))
    }

    /// Moves blocks into `batch`, of which all is written: it gives its room back. Answers whether
    /// there were any.
    pub(crate) fn fill(&mut self, account: &mut SendAccount, batch: &mut Batch) -> bool {
        let mut moved = 0;
        batch.blocks.clear();
        while moved < BATCH_BYTES
            && let Some(block) = self.next_block()
        {
            moved += block.len();
            batch.blocks.push(block);
        }
        account.leave(self.lane, moved);
        account.written(std::mem::replace(&mut self.batch_bytes, moved));
        let is_last = self.sealed.is_empty() && self.open.is_empty();
        // Which block completes which frame is not kept: they count with the last one.
        (batch.frames, batch.transport_frames) = if is_last {
            (std::mem::take(&mut self.frames), std::mem::take(&mut self.transport_frames))
        } else {
            (0, 0)
        };
        moved > 0
    }

    /// The next large frame to be sent, in order.
    pub(crate) fn next_large(&mut self) -> Option<Large> {
        let large = self.large.pop_front()?;
        self.large_under_way += large.len();
        Some(large)
    }

    /// A large frame, or `bytes` of it, is written.
    pub(crate) fn finish_large(&mut self, account: &mut SendAccount, bytes: usize) {
        // None is under way once the lane was abandoned.
        let bytes = bytes.min(self.large_under_way);
        self.large_under_way -= bytes;
        account.leave(self.lane, bytes);
        account.written(bytes);
    }

    /// True when a large frame waits for its stream.
    pub(crate) fn has_large(&self) -> bool {
        !self.large.is_empty()
    }

    /// Number of frames that the queued blocks complete.
    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// True when there is nothing for the lane's own stream.
    pub(crate) fn is_drained(&self) -> bool {
        self.sealed.is_empty() && self.open.is_empty()
    }

    /// True when everything is written, large frames included.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_drained() && self.large.is_empty() && self.large_under_way == 0
    }

    /// True when it takes no more frames.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn put_small(&mut self, head: &[u8], body: &[u8]) {
        let len = head.len() + body.len();
        if self.open.len() + len > BLOCK_BYTES {
            self.seal();
        }
        if self.open.is_empty() {
            // As much as the last block had: grown step by step it would be copied at each.
            self.open.reserve(self.block_bytes.max(WORD_BYTES + len));
        }
        self.open.extend_from_slice(&word(Kind::Frame, len));
        self.open.extend_from_slice(head);
        self.open.extend_from_slice(body);
        self.frames += 1;
    }

    fn put_shared(&mut self, head: &[u8], body: Bytes) {
        let len = head.len() + body.len();
        if len > self.inline_bytes_max && len > HEAD_BYTES {
            return self.put_large(head, body);
        }
        self.open.put_slice(&word(Kind::Frame, len));
        self.open.put_slice(head);
        self.seal();
        if !body.is_empty() {
            self.sealed.push_back(body);
        }
        self.frames += 1;
    }

    fn put_large(&mut self, head: &[u8], mut body: Bytes) {
        let len = head.len() + body.len();
        let (first, second) = head.split_at(head.len().min(HEAD_BYTES));
        self.open.put_slice(&word(Kind::Large, len));
        self.open.put_slice(first);
        self.open.put_slice(&body.split_to(HEAD_BYTES - first.len()));
        self.large.push_back(Large { parts: [Bytes::copy_from_slice(second), body] });
    }

    fn next_block(&mut self) -> Option<Bytes> {
        if self.sealed.is_empty() {
            self.seal();
        }
        self.sealed.pop_front()
    }

    fn seal(&mut self) {
        if !self.open.is_empty() {
            self.block_bytes = self.open.len();
            self.sealed.push_back(self.open.split().freeze());
        }
    }
}

#[cfg(test)]
mod tests {
    use convoke_transport::PeerName;
    use convoke_transport::id::NodeId;
    use convoke_transport::parts::{LaneLimits, SendLimits, SendPool};
    use proptest::prelude::*;

    use super::*;
    use crate::quic::framing::{Decoder, Item, LaneRules};

    const FRAME_BYTES_MAX: usize = 100_000;
    const INLINE_BYTES_MAX: usize = 20_000;

    /// The data lane of a connection, and its account.
    struct Own {
        lane: SendLane,
        account: SendAccount,
    }

    impl Own {
        fn new(soft_bytes: usize, hard_bytes: usize) -> Self {
            let lanes = [LaneLimits { soft_bytes, hard_bytes }; 2];
            let share = SendPool::new(usize::MAX).open(PeerName::Node(NodeId::new(1)));
            let limits = SendLimits { frame_bytes_max: FRAME_BYTES_MAX, lanes };
            let account = SendAccount::new(limits, share);
            Self { lane: SendLane::new(Lane::Data, INLINE_BYTES_MAX), account }
        }

        fn append(&mut self, frame: &[u8]) -> Result<Appended, NotWritable> {
            let (head, body) = frame.split_at(frame.len() / 3);
            self.lane.append_copy(&mut self.account, head, body)
        }

        fn fill(&mut self, batch: &mut Batch) -> bool {
            self.lane.fill(&mut self.account, batch)
        }

        fn finish_large(&mut self, bytes: usize) {
            self.lane.finish_large(&mut self.account, bytes);
        }
    }

    fn drain(lane: &mut Own) -> (Vec<u8>, u64) {
        let (mut batch, mut wire, mut frames) = (Batch::default(), Vec::new(), 0);
        while lane.fill(&mut batch) {
            batch.blocks.iter().for_each(|block| wire.extend_from_slice(block));
            frames += batch.frames;
        }
        (wire, frames)
    }

    proptest! {
        #[test]
        fn what_is_appended_comes_out_in_order_and_is_counted(
            lens in prop::collection::vec((0..30_000_usize, 0..300_usize, any::<bool>()), 1..12),
        ) {
            let mut lane = Own::new(100_000, 1 << 20);
            let mut expected = Vec::new();
            for (number, (len, head, is_copied)) in lens.into_iter().enumerate() {
                let frame = (0..len).map(|at| u8::try_from((at + number) & 0xff).unwrap());
                let frame: Vec<u8> = frame.collect();
                if is_copied {
                    lane.append(&frame).unwrap();
                } else {
                    let (head, body) = frame.split_at(head.min(len));
                    let body = Bytes::copy_from_slice(body);
                    lane.lane.append_bytes(&mut lane.account, head, body).unwrap();
                }
                expected.push(frame);
            }
            let (wire, on_lane) = drain(&mut lane);
            let rules = LaneRules {
                lane: Lane::Data,
                frame_bytes_max: FRAME_BYTES_MAX,
                inline_bytes_max: INLINE_BYTES_MAX,
            };
            let (mut decoder, mut wire) = (Decoder::new(rules), Bytes::from(wire));
            let (mut got, mut large_count) = (Vec::new(), 0);
            while let Some(item) = decoder.decode(&mut wire).unwrap() {
                got.push(match item {
                    Item::Frame(bytes) => bytes.to_vec(),
                    Item::Large { head, len } => {
                        large_count += 1;
                        let large = lane.lane.next_large().unwrap();
                        let whole = [head, large.parts.concat().into()].concat();
                        assert_eq!(whole.len(), len);
                        lane.finish_large(large.len());
                        whole
                    }
                    Item::Goodbye(text) => panic!("nobody said {text}"),
                });
            }
            prop_assert_eq!(on_lane + large_count, got.len() as u64);
            prop_assert_eq!(got, expected);
            prop_assert!(lane.lane.is_empty() && lane.account.is_empty());
        }
    }

    #[test]
    fn bounds_hold_and_a_frame_above_them_is_taken_when_empty() {
        let mut lane = Own::new(50, 100);
        let append = |lane: &mut Own, len| lane.append(&vec![0; len]);
        assert_eq!(append(&mut lane, 40), Ok(Appended::Writable));
        assert_eq!(append(&mut lane, 40), Ok(Appended::Full));
        assert_eq!(append(&mut lane, 40), Err(NotWritable::Full));
        let refused = NotWritable::TooLarge { size: 100_001, limit: 100_000 };
        assert_eq!(append(&mut lane, 100_001), Err(refused));
        drain(&mut lane);
        assert_eq!(append(&mut lane, 90_000), Ok(Appended::Full));
        assert_eq!(lane.lane.next_large().map(|large| large.len()), Some(90_000 - HEAD_BYTES));
        assert!(!lane.account.is_writable(Lane::Data), "a large frame counts until it is written");
        lane.finish_large(90_000 - HEAD_BYTES);
        drain(&mut lane);
        assert!(lane.lane.is_empty() && lane.account.is_writable(Lane::Data));
    }

    #[test]
    fn a_closed_lane_takes_nothing_and_an_abandoned_one_has_nothing() {
        let mut lane = Own::new(100_000, 300_000);
        lane.append(b"one").unwrap();
        lane.lane.close_with_goodbye(&mut lane.account, "bye");
        lane.account.close();
        assert_eq!(lane.append(&[]), Err(NotWritable::Closed));
        assert_eq!(drain(&mut lane).0.len(), 4 + 3 + 4 + 3);
        let mut lane = Own::new(100_000, 300_000);
        lane.append(&[0; 50_000]).unwrap();
        lane.lane.abandon();
        lane.account.abandon();
        assert!(lane.lane.is_empty() && lane.lane.is_closed());
        lane.finish_large(10_000);
        assert!(lane.account.is_empty(), "what was under way is forgotten");
    }
}
