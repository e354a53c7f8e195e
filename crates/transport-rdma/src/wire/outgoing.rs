//! The sends of one queue pair: where messages are written, and which are under way.

use std::collections::VecDeque;

use crate::ffi::slab::{Slab, SlotMut};
use crate::framing::HEADER_BYTES;
use crate::link::Outbox;
use crate::provider::{Data, Provider, SendRequest, VerbsError};

/// As many sends are posted with one call.
const CHAIN_MAX: usize = 16;

/// Sends of one queue pair.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// Granted by the device.
    inline_bytes_max: usize,
    /// Slots to write to.
    free: Vec<u32>,
    /// Number of sends that are posted and not known to be done: the last ones.
    under_way: u32,
    /// Number of them that are not in the link's account: the very last, at the end of a
    /// connection.
    uncounted: u32,
    /// The slots among them, in order.
    sending: VecDeque<Sending>,
    /// Messages that are written and not posted.
    written: Vec<Written>,
    /// Bytes of the inline ones among them.
    inline: Vec<u8>,
    /// As the provider counts them.
    next_number: u32,
    /// Sends since the last that was signalled, and whether one of them holds a slot.
    unsignalled: u32,
    is_slot_unsignalled: bool,
    /// So many sends, and the last of them is signalled in any case.
    unsignalled_max: u32,
}

#[derive(Debug)]
struct Sending {
    number: u32,
    slot: u32,
}

#[derive(Clone, Copy, Debug)]
struct Written {
    number: u32,
    place: Place,
    bytes: u32,
    is_signalled: bool,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Inline { start: usize },
    Slot(u32),
}

impl Outgoing {
    /// Sends from `slots` of the slab, and through a queue of `depth` requests.
    pub(super) fn new(slots: std::ops::Range<u32>, depth: u32) -> Self {
        Self {
            inline_bytes_max: 0,
            free: slots.rev().collect(),
            under_way: 0,
            uncounted: 0,
            sending: VecDeque::new(),
            written: Vec::new(),
            inline: Vec::new(),
            next_number: 0,
            unsignalled: 0,
            is_slot_unsignalled: false,
            unsignalled_max: (depth / 4).max(1),
        }
    }

    /// The largest message that goes inline.
    #[inline]
    pub(super) fn inline_bytes_max(&self) -> usize {
        self.inline_bytes_max
    }

    /// Sets the number of inline bytes that the queue pair was granted.
    pub(super) fn set_inline_bytes_max(&mut self, bytes: u32) {
        self.inline_bytes_max = bytes as usize;
    }

    /// True when a message that only gives credit could be written now, as a link demands at any
    /// time.
    #[inline]
    pub(super) fn takes_credit(&self) -> bool {
        self.inline_bytes_max >= HEADER_BYTES || !self.free.is_empty()
    }

    /// Number of sends that are not done.
    #[inline]
    pub(super) fn under_way(&self) -> u32 {
        self.under_way
    }

    /// Outbox into which the link writes.
    pub(super) fn outbox<'a>(&'a mut self, slab: &'a Slab, is_closing: bool) -> SlabOutbox<'a> {
        SlabOutbox { outgoing: self, slab, is_closing, editing: None }
    }

    /// Posts what was written.
    pub(super) fn post<P: Provider>(
        &mut self,
        provider: &P,
        queue_pair: &P::QueuePair,
    ) -> Result<(), VerbsError> {
        let inline = &self.inline;
        let (mut posted, mut result) = (0, Ok(()));
        for chain in self.written.chunks(CHAIN_MAX) {
            let requests: [_; CHAIN_MAX] = std::array::from_fn(|at| {
                let written = chain.get(at).unwrap_or(&chain[0]);
                written.request(inline)
            });
            match provider.post_sends(queue_pair, &requests[..chain.len()]) {
                Ok(()) => posted += chain.len(),
                Err(refused) => {
                    posted += refused.posted;
                    result = Err(refused.error);
                    break;
                }
            }
        }
        self.sending.extend(self.written.drain(..posted).filter_map(|written| written.sending()));
        // After an error the queue pair is given up, and the slots of the refused with it.
        self.take_back(self.written.len());
        self.written.clear();
        self.inline.clear();
        result
    }

    /// Posts a message that is short enough to go inline.
    #[inline]
    pub(super) fn post_inline<P: Provider>(
        &mut self,
        provider: &P,
        queue_pair: &P::QueuePair,
        message: &[u8],
    ) -> Result<(), VerbsError> {
        let is_signalled = self.signals(false, true, false);
        let request = SendRequest { data: Data::Inline(message), is_signalled };
        provider.post_send(queue_pair, &request)?;
        self.take_number();
        Ok(())
    }

    /// True when a send reports its completion: the last of a batch when a slot is to come back, or
    /// the end of the connection waits for it, and one of every quarter of the queue. Those that
    /// hold no slot need not be heard of sooner: half the completions of a ping-pong would be
    /// theirs.
    #[inline]
    fn signals(&mut self, has_slot: bool, is_last: bool, is_closing: bool) -> bool {
        self.is_slot_unsignalled |= has_slot;
        self.unsignalled += 1;
        let is_wanted = is_last && (self.is_slot_unsignalled || is_closing);
        let is_due = is_wanted || self.unsignalled >= self.unsignalled_max;
        if is_due {
            self.unsignalled = 0;
            self.is_slot_unsignalled = false;
        }
        is_due
    }

    /// Posts a probe of the peer; `is_counted` when the link has a place for it.
    #[cold]
    pub(super) fn post_probe<P: Provider>(
        &mut self,
        provider: &P,
        queue_pair: &P::QueuePair,
        is_counted: bool,
    ) -> Result<(), VerbsError> {
        let probe = SendRequest { data: Data::Probe, is_signalled: true };
        provider.post_send(queue_pair, &probe)?;
        self.take_number();
        self.uncounted += u32::from(!is_counted);
        Ok(())
    }

    /// Nothing under way is waited for any more.
    pub(super) fn forget(&mut self) {
        (self.under_way, self.uncounted) = (0, 0);
        self.sending.clear();
    }

    /// The send of this number is done, and so are all before it; answers how many of those the
    /// link counts.
    #[inline]
    pub(super) fn complete(&mut self, number: u32, slab: &Slab) -> u32 {
        let after = self.next_number.wrapping_sub(number).wrapping_sub(1);
        let done = self.under_way.saturating_sub(after);
        self.under_way -= done;
        while let Some(first) = self.sending.front() {
            if is_before(number, first.number) {
                break;
            }
            let was_sending = slab.end_send(first.slot);
            debug_assert!(was_sending, "a slot under way is the device's");
            self.free.push(first.slot);
            self.sending.pop_front();
        }
        let uncounted = if self.under_way == 0 { std::mem::take(&mut self.uncounted) } else { 0 };
        done - uncounted
    }

    /// The device has refused the last so many, which then take no numbers.
    fn take_back(&mut self, count: usize) {
        let count = u32::try_from(count).expect("as many were counted");
        self.next_number = self.next_number.wrapping_sub(count);
        self.under_way -= count;
    }

    #[inline]
    fn take_number(&mut self) -> u32 {
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.under_way += 1;
        number
    }
}

impl Written {
    #[inline]
    fn request<'a>(&self, inline: &'a [u8]) -> SendRequest<'a> {
        let data = match self.place {
            Place::Inline { start } => Data::Inline(&inline[start..start + self.bytes as usize]),
            Place::Slot(slot) => Data::Slot { slot, bytes: self.bytes },
        };
        SendRequest { data, is_signalled: self.is_signalled }
    }

    #[inline]
    fn sending(&self) -> Option<Sending> {
        match self.place {
            Place::Inline { .. } => None,
            Place::Slot(slot) => Some(Sending { number: self.number, slot }),
        }
    }
}

/// Numbers wrap, and fewer than half of them are under way.
#[inline]
fn is_before(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) > u32::MAX / 2
}

/// The outbox of a link: small messages go inline, others into slots.
pub(super) struct SlabOutbox<'a> {
    outgoing: &'a mut Outgoing,
    slab: &'a Slab,
    is_closing: bool,
    editing: Option<SlotMut<'a>>,
}

impl Outbox for SlabOutbox<'_> {
    #[inline]
    fn room(&self) -> usize {
        // One slot stays for credit where nothing goes inline.
        let kept = usize::from(self.outgoing.inline_bytes_max < HEADER_BYTES);
        self.outgoing.free.len().saturating_sub(kept)
    }

    #[inline]
    fn buffer(&mut self, len: usize) -> &mut [u8] {
        let outgoing = &mut *self.outgoing;
        let number = outgoing.take_number();
        let bytes = u32::try_from(len).expect("a message is not longer than a slot");
        let start = outgoing.inline.len();
        let mut written =
            Written { number, place: Place::Inline { start }, bytes, is_signalled: false };
        if len <= outgoing.inline_bytes_max {
            outgoing.written.push(written);
            outgoing.inline.resize(start + len, 0);
            return &mut outgoing.inline[start..];
        }
        let slot = outgoing.free.pop().expect("the link asks for room first");
        written.place = Place::Slot(slot);
        outgoing.written.push(written);
        let editing = self.slab.edit(slot).expect("a slot on the free list is free");
        &mut self.editing.insert(editing)[..len]
    }

    fn post(&mut self, is_last: bool) {
        self.editing = None;
        let written = self.outgoing.written.last().expect("it was written before");
        let has_slot = matches!(written.place, Place::Slot(_));
        let is_signalled = self.outgoing.signals(has_slot, is_last, self.is_closing);
        self.outgoing.written.last_mut().expect("the same").is_signalled = is_signalled;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::provider::simulated::{Fabric, SimDevice, SimQueuePair};
    use crate::provider::{QueuePairSettings, Tag};

    /// Sends of a batch that report, by whether each holds a slot.
    fn signals(outgoing: &mut Outgoing, slots: &[bool], is_closing: bool) -> Vec<bool> {
        let last = slots.len() - 1;
        let sends = slots.iter().enumerate();
        sends.map(|(at, has_slot)| outgoing.signals(*has_slot, at == last, is_closing)).collect()
    }

    #[test]
    fn the_last_of_a_batch_reports_when_a_slot_is_to_come_back() {
        let mut outgoing = Outgoing::new(0..4, 32);
        assert_eq!(signals(&mut outgoing, &[true, false, false], false), [false, false, true]);
        assert_eq!(signals(&mut outgoing, &[false, false], false), [false, false]);
        assert_eq!(signals(&mut outgoing, &[true], false), [true]);
    }

    #[test]
    fn without_slots_one_of_every_quarter_of_the_queue_reports() {
        let mut outgoing = Outgoing::new(0..4, 32);
        let reports: Vec<bool> = (0..24).map(|_| outgoing.signals(false, true, false)).collect();
        let expected: Vec<bool> = (1..=24).map(|at| at % 8 == 0).collect();
        assert_eq!(reports, expected);
        // Within a long batch, too.
        assert_eq!(signals(&mut outgoing, &[true; 10], false).iter().position(|is| *is), Some(7));
    }

    /// A queue pair that takes four sends and sends none, since nobody has answered yet.
    fn dialled(slab: &Arc<Slab>) -> (SimDevice, SimQueuePair) {
        let device = Fabric::new().device();
        let memory = Arc::new(device.register(slab).unwrap());
        let settings = QueuePairSettings {
            receives_max: 1,
            sends_max: 4,
            inline_bytes: 64,
            retry_count: 6,
            ack_timeout_exponent: 14,
        };
        let (tag, nowhere) = (Tag::new(1).unwrap(), "127.0.0.1:9".parse().unwrap());
        let queue_pair = device.dial(tag, nowhere, Duration::ZERO, settings, &memory).unwrap();
        (device, queue_pair)
    }

    /// Writes and sends a message from a slot; answers its number and the slot.
    fn send(outgoing: &mut Outgoing, slab: &Slab) -> (u32, u32) {
        let mut outbox = outgoing.outbox(slab, false);
        outbox.buffer(300);
        outbox.post(true);
        drop(outbox);
        let sending = outgoing.written.pop().and_then(|written| written.sending()).unwrap();
        assert!(slab.begin_send(sending.slot));
        let sent = (sending.number, sending.slot);
        outgoing.sending.push_back(sending);
        sent
    }

    #[test]
    fn a_send_that_is_done_gives_back_the_slots_up_to_it_and_is_counted_with_those_before() {
        let slab = Slab::new(4, 1024, std::task::Waker::noop().clone());
        let mut outgoing = Outgoing::new(0..4, 32);
        outgoing.next_number = u32::MAX - 1;
        let [first, second, third] = [(); 3].map(|()| send(&mut outgoing, &slab));
        assert_eq!((first.0, third.0), (u32::MAX - 1, 0), "numbers wrap");
        outgoing.take_number();
        assert_eq!(outgoing.under_way(), 4);
        assert_eq!(outgoing.complete(second.0, &slab), 2);
        assert_eq!(outgoing.free[outgoing.free.len() - 2..], [first.1, second.1]);
        assert_eq!(outgoing.complete(second.0, &slab), 0, "it is known");
        assert_eq!((outgoing.complete(1, &slab), outgoing.under_way()), (2, 0));
        assert!(slab.edit(third.1).is_some());
    }

    #[test]
    fn the_probe_at_the_end_is_not_counted() {
        let slab = Slab::new(4, 1024, std::task::Waker::noop().clone());
        let mut outgoing = Outgoing::new(0..4, 32);
        let (device, queue_pair) = dialled(&slab);
        outgoing.post_probe(&device, &queue_pair, true).unwrap();
        outgoing.post_probe(&device, &queue_pair, false).unwrap();
        assert_eq!((outgoing.complete(0, &slab), outgoing.under_way()), (1, 1));
        assert_eq!((outgoing.complete(1, &slab), outgoing.under_way()), (0, 0));
        outgoing.take_number();
        outgoing.forget();
        assert_eq!((outgoing.complete(2, &slab), outgoing.under_way()), (0, 0));
    }

    #[test]
    fn what_the_device_refuses_was_never_sent() {
        let slab = Slab::new(8, 1024, std::task::Waker::noop().clone());
        let (device, queue_pair) = dialled(&slab);
        let mut outgoing = Outgoing::new(0..8, 32);
        for _ in 0..3 {
            outgoing.post_inline(&device, &queue_pair, b"x").unwrap();
        }
        let mut outbox = outgoing.outbox(&slab, false);
        for is_last in [false, true] {
            outbox.buffer(300);
            outbox.post(is_last);
        }
        drop(outbox);
        let full = VerbsError::QueueFull("send");
        assert_eq!(outgoing.post(&device, &queue_pair), Err(full.clone()), "one of them fits");
        assert_eq!(outgoing.post_inline(&device, &queue_pair, b"x"), Err(full.clone()));
        assert_eq!(outgoing.post_probe(&device, &queue_pair, true), Err(full));
        assert_eq!((outgoing.under_way(), outgoing.sending.len()), (4, 1));
        assert_eq!((outgoing.complete(3, &slab), outgoing.under_way()), (4, 0));
    }

    #[test]
    fn the_end_of_a_connection_waits_for_a_report() {
        let mut outgoing = Outgoing::new(0..4, 32);
        assert_eq!(signals(&mut outgoing, &[false, false], true), [false, true]);
    }
}
