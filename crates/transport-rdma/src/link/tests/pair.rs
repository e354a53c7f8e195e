//! Two links joined by a wire that loses nothing, with queue pairs that forgive nothing.
//!
//! A message without a receive posted for it, one that is longer than its slot, a send too many for
//! the send queue, a receive posted into a slot that somebody still reads: each of them panics.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use convoke_transport::parts::{LaneLimits, SendLimits, SendPool, index};
use convoke_transport::{Buffer, Lane, PeerName, Received};

use crate::defect::Defects;
use crate::framing::HEADER_BYTES;
use crate::hello::Terms;
use crate::link::{Event, Link, LinkConfig, Outbox};
use crate::slot_ring::Slot;

pub(super) struct Pair {
    pub(super) ends: [End; 2],
}

/// A link and its driver.
pub(super) struct End {
    pub(super) link: Link,
    queue_pair: QueuePair,
    /// Messages on their way here.
    wire: VecDeque<Vec<u8>>,
    loans: Arc<Mutex<Loans>>,
    pub(super) received: [Vec<Bytes>; 2],
    /// Events that the link told, but for frames.
    pub(super) told: Vec<Told>,
    /// Number of data messages that the pool has buffers for.
    pub(super) room: usize,
    /// Messages up to this size need no buffer when they are all there is to send.
    pub(super) inline_bytes_max: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    Introduced(usize),
    Writable(Lane),
    Goodbye(String),
}

#[derive(Default)]
struct QueuePair {
    send_queue_depth: u32,
    completion_count_max: usize,
    slot_bytes: usize,
    receives: VecDeque<Slot>,
    /// Sends that have not left the send queue, the signalled ones marked.
    sends: VecDeque<bool>,
    /// Number of them that are done.
    done: usize,
}

/// The slots that are lent, and those that came back.
#[derive(Default)]
struct Loans {
    lent: BTreeSet<Slot>,
    back: Vec<Slot>,
}

struct Guard {
    slot: Slot,
    message: Vec<u8>,
    loans: Arc<Mutex<Loans>>,
}

impl AsRef<[u8]> for Guard {
    fn as_ref(&self) -> &[u8] {
        &self.message
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut loans = self.loans.lock().unwrap();
        assert!(loans.lent.remove(&self.slot));
        loans.back.push(self.slot);
    }
}

/// A chain of messages that is posted as a whole.
struct Chain {
    room: usize,
    slot_bytes: usize,
    messages: Vec<(Vec<u8>, bool)>,
}

impl Outbox for Chain {
    fn room(&self) -> usize {
        self.room
    }

    fn buffer(&mut self, len: usize) -> &mut [u8] {
        assert!(len <= self.slot_bytes, "longer than a slot of the peer");
        if len > HEADER_BYTES {
            self.room = self.room.checked_sub(1).expect("there was room");
        }
        self.messages.push((vec![0xee; len], false));
        &mut self.messages.last_mut().unwrap().0
    }

    fn post(&mut self, is_last: bool) {
        self.messages.last_mut().unwrap().1 = is_last;
    }
}

pub(super) fn terms(slot_count: u16, control_slot_count: u8) -> Terms {
    Terms { slot_count, control_slot_count, slot_bytes: 1024, frame_bytes_max: 100_000 }
}

pub(super) fn config(own: Terms, peer: Terms) -> LinkConfig {
    LinkConfig {
        own,
        peer,
        send_queue_depth: 16,
        send: SendLimits {
            frame_bytes_max: peer.frame_bytes_max as usize,
            lanes: [
                LaneLimits { soft_bytes: 8_000, hard_bytes: 16_000 },
                LaneLimits { soft_bytes: 32_000, hard_bytes: 400_000 },
            ],
        },
        defects: Defects::default(),
    }
}

impl Pair {
    /// Two ends that have posted all their receives and said nothing yet.
    pub(super) fn silent(one: Terms, two: Terms) -> Self {
        Self { ends: [End::new(&config(one, two)), End::new(&config(two, one))] }
    }

    /// Two ends that have introduced themselves.
    pub(super) fn new(one: Terms, two: Terms) -> Self {
        let mut pair = Self::silent(one, two);
        pair.ends.iter_mut().for_each(|end| end.link.introduce(&[]));
        pair.settle();
        assert!(pair.ends.iter().all(|end| end.told == [Told::Introduced(0)]));
        pair.ends.iter_mut().for_each(|end| end.told.clear());
        pair
    }

    /// Lets both go on until nothing happens any more.
    pub(super) fn settle(&mut self) {
        while (0..2).any(|at| self.step(at)) {}
    }

    /// Does one of everything at one end. True when anything happened.
    pub(super) fn step(&mut self, at: usize) -> bool {
        let is_delivered = self.deliver(at);
        let is_completed = self.ends[at].complete();
        self.progress(at) || is_delivered || is_completed
    }

    /// Does what a driver does after any input. True when anything was sent.
    pub(super) fn progress(&mut self, at: usize) -> bool {
        let sent = self.ends[at].progress();
        let is_any = !sent.is_empty();
        self.ends[1 - at].wire.extend(sent);
        is_any
    }

    /// The next message on the wire completes a receive of this end, and a send of the other.
    pub(super) fn deliver(&mut self, at: usize) -> bool {
        let Some(message) = self.ends[at].wire.pop_front() else { return false };
        self.ends[at].receive(message);
        self.ends[1 - at].queue_pair.done += 1;
        true
    }

    /// The other end gets bytes that no link has sent.
    pub(super) fn inject(&mut self, at: usize, message: Vec<u8>) {
        self.ends[at].receive(message);
    }

    pub(super) fn wire(&self, at: usize) -> &VecDeque<Vec<u8>> {
        &self.ends[at].wire
    }
}

impl End {
    fn new(config: &LinkConfig) -> Self {
        let mut end = Self {
            link: Link::new(config, SendPool::new(usize::MAX).open(PeerName::Place("".into()))),
            queue_pair: QueuePair {
                send_queue_depth: config.send_queue_depth,
                completion_count_max: config.completion_count_max() as usize,
                slot_bytes: config.peer.slot_bytes as usize,
                ..QueuePair::default()
            },
            wire: VecDeque::new(),
            loans: Arc::default(),
            received: [Vec::new(), Vec::new()],
            told: Vec::new(),
            room: usize::MAX,
            inline_bytes_max: 0,
        };
        end.post();
        assert_eq!(end.queue_pair.receives.len(), config.own.receive_count() as usize);
        end
    }

    pub(super) fn append(&mut self, lane: Lane, bytes: &[u8]) -> bool {
        self.link.append_copy(lane, &[], bytes).is_ok()
    }

    /// Slots that the application has given back, unseen by the link so far, are returned to it.
    pub(super) fn progress(&mut self) -> Vec<Vec<u8>> {
        let back = std::mem::take(&mut self.loans.lock().unwrap().back);
        back.into_iter().for_each(|slot| self.link.handle_slot_returned(slot));
        while let Some(event) = self.link.poll_event() {
            match event {
                Event::Introduced(addresses) => self.told.push(Told::Introduced(addresses.len())),
                Event::Writable(lane) => self.told.push(Told::Writable(lane)),
                Event::Goodbye(text) => self.told.push(Told::Goodbye(text)),
            }
        }
        if let Some(mut frames) = self.link.take_received() {
            for Received { lane, bytes } in frames.drain(..) {
                self.received[index(lane)].push(bytes);
            }
            self.link.reuse(frames);
        }
        self.post();
        self.send()
    }

    /// The send queue reports what a signalled send stands for: the last of a chain. True when
    /// there was one.
    fn complete(&mut self) -> bool {
        let queue_pair = &mut self.queue_pair;
        let done = queue_pair.sends.iter().take(queue_pair.done);
        let Some(last) =
            done.copied().collect::<Vec<_>>().iter().rposition(|is_signalled| *is_signalled)
        else {
            return false;
        };
        let count = last + 1;
        queue_pair.sends.drain(..count);
        queue_pair.done -= count;
        self.link.handle_sent(u32::try_from(count).unwrap());
        true
    }

    fn post(&mut self) {
        let mut slots = Vec::new();
        self.link.poll_post(&mut slots);
        for slot in slots.into_iter().map(Slot) {
            let is_lent = self.loans.lock().unwrap().lent.contains(&slot);
            assert!(!is_lent, "a receive for a slot that is lent");
            assert!(!self.queue_pair.receives.contains(&slot), "two receives for one slot");
            self.queue_pair.receives.push_back(slot);
        }
    }

    fn send(&mut self) -> Vec<Vec<u8>> {
        let in_place = self.link.poll_send_in_place(self.inline_bytes_max).map(<[u8]>::to_vec);
        let slot_bytes = self.queue_pair.slot_bytes;
        let mut chain = Chain { room: self.room, slot_bytes, messages: Vec::new() };
        let count = self.link.poll_send(&mut chain);
        assert_eq!(count, chain.messages.len());
        if let Some(message) = in_place {
            assert!(message.len() <= self.inline_bytes_max);
            assert_eq!(count, 0, "it was all there was to send");
            chain.messages.push((message, true));
        }
        assert!(chain.messages.last().is_none_or(|(_, is_last)| *is_last));
        self.queue_pair.sends.extend(chain.messages.iter().map(|(_, is_last)| *is_last));
        let outstanding = self.queue_pair.sends.len();
        assert!(outstanding <= self.queue_pair.send_queue_depth as usize, "send queue overflow");
        let completions = outstanding + self.queue_pair.receives.len();
        assert!(completions <= self.queue_pair.completion_count_max, "completion queue overflow");
        chain.messages.into_iter().map(|(message, _)| message).collect()
    }

    fn receive(&mut self, message: Vec<u8>) {
        let slot = self.queue_pair.receives.pop_front().expect("receiver not ready");
        let loans = Arc::clone(&self.loans);
        let lend = || {
            assert!(loans.lock().unwrap().lent.insert(slot));
            let loans = Arc::clone(&loans);
            Bytes::from_owner(Guard { slot, message: message.clone(), loans })
        };
        // A fault closes the link; tests look at that.
        let _ = self.link.handle_message(slot, &message, lend);
    }
}
