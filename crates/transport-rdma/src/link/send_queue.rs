//! The frames of one lane that wait to be sent, and how they are cut into records. The account of
//! the connection bounds them.
//!
//! Small frames are encoded as records when they are appended, one after the other, so that a
//! message takes any number of them with one copy; a message that needs no copy is sent from there,
//! and a frame that is alone in it goes without its record. A large frame waits as it is, and a
//! fragment as large as the room in the message is cut off whenever there is some.

use std::collections::VecDeque;

use bytes::Bytes;
use convoke_transport::parts::SendAccount;
use convoke_transport::{Appended, Lane, NotWritable};

use crate::framing::record::{FIRST_BYTES, Head, Part, WORD_BYTES};
use crate::framing::{HEADER_BYTES, Header, Kind};
use crate::link::spent::Spent;

/// A fragment that is not the last of its frame is at least this large: smaller ones would be
/// mostly overhead.
const FRAGMENT_BYTES_MIN: usize = 256;

/// Queue of what one lane has to send.
#[derive(Debug)]
pub(crate) struct SendQueue {
    lane: Lane,
    /// The most bytes of records in one message.
    payload_max: usize,
    waiting: VecDeque<Waiting>,
    /// Records behind everything in `waiting`.
    open: Open,
    /// Somebody was told to wait.
    is_awaited: bool,
}

#[derive(Debug)]
enum Waiting {
    /// Encoded records, at most as many as fit a message.
    Records { bytes: Bytes, frames: u64 },
    /// A frame that is cut when it is sent.
    Large(Large),
}

#[derive(Debug)]
struct Large {
    head: Bytes,
    body: Bytes,
    /// Number of its bytes that are sent.
    sent: usize,
}

impl SendQueue {
    /// An empty queue for messages of at most `payload_max` bytes.
    pub(crate) fn new(lane: Lane, payload_max: usize) -> Self {
        Self { lane, payload_max, waiting: VecDeque::new(), open: Open::new(), is_awaited: false }
    }

    /// Appends a frame made of copies of `head` and `body`.
    #[inline]
    pub(crate) fn append_copy(
        &mut self,
        account: &mut SendAccount,
        head: &[u8],
        body: &[u8],
    ) -> Result<Appended, NotWritable> {
        let len = head.len().saturating_add(body.len());
        self.admit(account, len)?;
        if self.is_small(len) {
            self.put_small(head, body);
        } else {
            self.put_large(Bytes::copy_from_slice(head), Bytes::copy_from_slice(body));
        }
        Ok(self.appended(account, len))
    }

    /// Appends a frame of `head` and `body`; a body that fits no message is not copied here.
    pub(crate) fn append_bytes(
        &mut self,
        account: &mut SendAccount,
        head: &[u8],
        body: Bytes,
    ) -> Result<Appended, NotWritable> {
        let len = head.len().saturating_add(body.len());
        self.admit(account, len)?;
        if self.is_small(len) {
            self.put_small(head, &body);
        } else {
            self.put_large(Bytes::copy_from_slice(head), body);
        }
        Ok(self.appended(account, len))
    }

    /// Number of bytes that [`take`](Self::take) would write into `room` bytes; 0 when there is
    /// nothing to send, or what is next does not fit.
    #[inline]
    pub(crate) fn measure(&self, room: usize) -> usize {
        if self.waiting.is_empty() { self.open.fitting(room) } else { self.measure_waiting(room) }
    }

    #[inline(never)]
    fn measure_waiting(&self, room: usize) -> usize {
        let mut left = room;
        for waiting in &self.waiting {
            match waiting {
                Waiting::Records { bytes, .. } if bytes.len() <= left => left -= bytes.len(),
                Waiting::Records { .. } => return room - left,
                Waiting::Large(large) => {
                    let Some(cut) = large.cut(left) else { return room - left };
                    left -= cut.bytes();
                    if !cut.is_last(large) {
                        return room - left;
                    }
                }
            }
        }
        room - left + self.open.fitting(left)
    }

    /// Moves records into `out`, which has exactly the length that was measured. Returns how many
    /// frames are complete with it. The bodies of large ones among them are `spent`.
    #[inline]
    pub(crate) fn take(
        &mut self,
        account: &mut SendAccount,
        out: &mut [u8],
        spent: &mut Spent,
    ) -> u64 {
        if out.is_empty() {
            return 0;
        }
        if self.waiting.is_empty() {
            self.take_open(account, out)
        } else {
            self.take_waiting(account, out, spent)
        }
    }

    /// Encoded in place and copied once: nothing is shared, so the buffer stays.
    #[inline]
    fn take_open(&mut self, account: &mut SendAccount, out: &mut [u8]) -> u64 {
        out.copy_from_slice(self.open.records());
        account.sent(self.lane, out.len());
        self.open.clear()
    }

    #[inline(never)]
    fn take_waiting(
        &mut self,
        account: &mut SendAccount,
        mut out: &mut [u8],
        spent: &mut Spent,
    ) -> u64 {
        let mut frames = 0;
        while !out.is_empty() {
            match self.waiting.front_mut() {
                Some(Waiting::Records { bytes, frames: count }) => {
                    let (place, rest) = out.split_at_mut(bytes.len());
                    place.copy_from_slice(bytes);
                    frames += *count;
                    account.sent(self.lane, bytes.len());
                    self.waiting.pop_front();
                    out = rest;
                }
                Some(Waiting::Large(large)) => {
                    let cut = large.cut(out.len()).expect("it was measured");
                    let (place, rest) = out.split_at_mut(cut.bytes());
                    let is_last = cut.is_last(large);
                    large.put(&cut, self.lane, place);
                    account.sent(self.lane, cut.len);
                    if is_last {
                        frames += 1;
                        account.sent(self.lane, WORD_BYTES);
                        spent.put(std::mem::take(&mut large.body));
                        self.waiting.pop_front();
                    }
                    out = rest;
                }
                None => {
                    frames += self.take_open(account, out);
                    break;
                }
            }
        }
        frames
    }

    /// Everything that waits as one message, when it is small frames and nothing else.
    #[inline]
    pub(crate) fn in_place(&self) -> Option<InPlace> {
        let is_all = self.waiting.is_empty() && self.open.frames > 0;
        is_all.then(|| self.open.in_place(self.lane))
    }

    /// Takes what [`in_place`](Self::in_place) found and gives it this header. The message is there
    /// until the next frame.
    // Always, as `CreditEngine::send`.
    #[inline(always)]
    pub(crate) fn seal_in_place(
        &mut self,
        account: &mut SendAccount,
        message: &InPlace,
        header: Header,
    ) -> &[u8] {
        account.sent(self.lane, account.queued(self.lane));
        self.open.clear();
        let message = &mut self.open.buffer[message.start..message.end];
        message[..HEADER_BYTES].copy_from_slice(&header.encode());
        message
    }

    /// Empties it. The bodies of large frames are `spent`.
    pub(crate) fn clear(&mut self, spent: &mut Spent) {
        for waiting in std::mem::take(&mut self.waiting) {
            if let Waiting::Large(large) = waiting {
                spent.put(large.body);
            }
        }
        self.open = Open::new();
    }

    /// True when nobody needs to wait for the lane. Else somebody does: others may have taken of
    /// the room for all since a frame was appended.
    pub(crate) fn poll_writable(&mut self, account: &SendAccount) -> bool {
        let is_writable = account.is_writable(self.lane);
        self.is_awaited |= !is_writable;
        is_writable
    }

    /// True when those who were told to wait should be woken: once, when they would not have to
    /// wait again, at half the soft bound, so that they do not come for every frame.
    #[inline]
    pub(crate) fn take_writable_again(&mut self, account: &SendAccount) -> bool {
        self.is_awaited
            && account.is_worth_waking(self.lane)
            && account.is_writable(self.lane)
            && self.take_awaited()
    }

    /// True when those who were told to wait should be woken now that the lane is about to be
    /// empty.
    #[inline]
    pub(crate) fn take_awaited(&mut self) -> bool {
        std::mem::take(&mut self.is_awaited)
    }

    #[inline]
    fn admit(&mut self, account: &mut SendAccount, len: usize) -> Result<(), NotWritable> {
        let admitted = account.admit(self.lane, len, len.saturating_add(WORD_BYTES));
        self.is_awaited |= admitted == Err(NotWritable::Full);
        admitted
    }

    #[inline]
    fn is_small(&self, len: usize) -> bool {
        len + WORD_BYTES <= self.payload_max
    }

    #[inline]
    fn put_small(&mut self, head: &[u8], body: &[u8]) {
        let len = head.len() + body.len();
        if self.open.len() + WORD_BYTES + len > self.payload_max {
            self.seal();
        }
        self.open.put(self.lane, head, body);
    }

    #[inline(never)]
    fn put_large(&mut self, head: Bytes, body: Bytes) {
        self.seal();
        self.waiting.push_back(Waiting::Large(Large { head, body, sent: 0 }));
    }

    #[inline]
    fn appended(&mut self, account: &mut SendAccount, len: usize) -> Appended {
        account.add(self.lane, WORD_BYTES + len);
        let appended = account.appended(self.lane);
        self.is_awaited |= appended == Appended::Full;
        appended
    }

    #[inline(never)]
    fn seal(&mut self) {
        if self.open.len() > 0 {
            let Open { mut buffer, end, frames } = std::mem::replace(&mut self.open, Open::new());
            buffer.truncate(end);
            let bytes = Bytes::from(buffer).slice(HEADER_BYTES..);
            self.waiting.push_back(Waiting::Records { bytes, frames });
        }
    }
}

/// The next fragment of a large frame.
#[derive(Clone, Copy, Debug)]
struct Cut {
    part: Part,
    len: usize,
}

impl Cut {
    fn bytes(&self) -> usize {
        self.part.head_bytes() + self.len
    }

    fn is_last(&self, large: &Large) -> bool {
        large.sent + self.len == large.len()
    }
}

impl Large {
    fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// The largest fragment that fits `room`; `None` when that would be too small.
    fn cut(&self, room: usize) -> Option<Cut> {
        let rest = self.len() - self.sent;
        if self.sent > 0 && rest + WORD_BYTES <= room {
            return Some(Cut { part: Part::Last, len: rest });
        }
        let (part, head_bytes) = if self.sent == 0 {
            let frame_bytes = u32::try_from(self.len()).expect("frames are within u32 bytes");
            (Part::First { frame_bytes }, FIRST_BYTES)
        } else {
            (Part::Middle, WORD_BYTES)
        };
        let len = room.checked_sub(head_bytes)?;
        debug_assert!(len < rest, "something stays for the last fragment, which must not be empty");
        (len >= FRAGMENT_BYTES_MIN).then_some(Cut { part, len })
    }

    fn put(&mut self, cut: &Cut, lane: Lane, out: &mut [u8]) {
        let mut out = Head { lane, part: cut.part, len: cut.len }.put(out);
        let (start, end) = (self.sent, self.sent + cut.len);
        for (piece, offset) in [(&self.head, 0), (&self.body, self.head.len())] {
            let from = start.clamp(offset, offset + piece.len()) - offset;
            let to = end.clamp(offset, offset + piece.len()) - offset;
            let (place, rest) = out.split_at_mut(to - from);
            place.copy_from_slice(&piece[from..to]);
            out = rest;
        }
        self.sent = end;
    }
}

/// A message where its frames were encoded.
#[derive(Clone, Debug)]
pub(crate) struct InPlace {
    pub(crate) kind: Kind,
    /// Frames that are complete with it.
    pub(crate) frames: u64,
    /// Start of it in the buffer, header included.
    start: usize,
    end: usize,
}

impl InPlace {
    /// Length of it, header included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }
}

/// Small frames, encoded one after the other behind the room for a header.
#[derive(Debug)]
struct Open {
    /// Up to `end` it is a message. Behind it is what was written before: to overwrite that is
    /// cheaper than to zero it first.
    buffer: Vec<u8>,
    end: usize,
    frames: u64,
}

impl Open {
    fn new() -> Self {
        Self { buffer: vec![0; HEADER_BYTES], end: HEADER_BYTES, frames: 0 }
    }

    #[inline]
    fn records(&self) -> &[u8] {
        &self.buffer[HEADER_BYTES..self.end]
    }

    #[inline]
    fn len(&self) -> usize {
        self.end - HEADER_BYTES
    }

    /// As a message of its own. A frame that is alone has its header right before it, over the word
    /// of its record.
    #[inline]
    fn in_place(&self, lane: Lane) -> InPlace {
        let (kind, start) =
            if self.frames == 1 { (Kind::frame(lane), WORD_BYTES) } else { (Kind::Frames, 0) };
        InPlace { kind, frames: self.frames, start, end: self.end }
    }

    /// All of it or nothing.
    #[inline]
    fn fitting(&self, room: usize) -> usize {
        if self.len() <= room { self.len() } else { 0 }
    }

    /// Adds the record of a whole frame.
    #[inline]
    fn put(&mut self, lane: Lane, head: &[u8], body: &[u8]) {
        let len = head.len() + body.len();
        let end = self.end + WORD_BYTES + len;
        if self.buffer.len() < end {
            self.buffer.resize(end, 0);
        }
        let record = Head { lane, part: Part::Whole, len }.put(&mut self.buffer[self.end..end]);
        let (record_head, record_body) = record.split_at_mut(head.len());
        record_head.copy_from_slice(head);
        record_body.copy_from_slice(body);
        self.end = end;
        self.frames += 1;
    }

    /// Forgets the records; answers how many there were.
    #[inline]
    fn clear(&mut self) -> u64 {
        self.end = HEADER_BYTES;
        std::mem::take(&mut self.frames)
    }
}

#[cfg(test)]
mod tests;
