//! Streamed requests: callers that send items, handlers that read them.
//!
//! Only where connections keep the order of frames, as every transport does.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use convoke_proto::id::CallId;
use convoke_proto::task::{ItemsFailure, NextItem, SendError};
use convoke_proto::visits::TaskRef;

use crate::invariants::Observation;
use crate::network::Place;
use crate::plan::{encoded, item};
use crate::random::Random;

use super::World;
use super::event::Event;
use super::handlers::{Handler, Next};

/// The items that a caller has still to send.
#[derive(Debug)]
pub(super) struct Writer {
    sizes: VecDeque<usize>,
    /// Pause between two items.
    pause: Duration,
    /// It goes away without saying that there are no others.
    gives_up: bool,
}

/// Progress of a handler that reads items.
#[derive(Debug)]
pub(super) struct ItemReader {
    read: usize,
    /// It reads so many, unless they end before.
    most: usize,
    /// Items that were there when it was last handed one.
    ahead: VecDeque<Bytes>,
}

/// Time that the items of a call may take in microseconds, and that it may wait between them, where
/// nothing goes wrong: well within the time of a call that is to complete.
const ITEMS_TIME_US: u64 = 2_000_000;

impl World {
    /// The sizes of the items of a call whose request is streamed; of other calls there are none.
    pub(super) fn item_sizes(&self, random: &mut Random) -> Option<Vec<usize>> {
        if !self.scenario.streams_requests || !random.chance(60) {
            return None;
        }
        let unscheduled = usize::try_from(self.scenario.limits.unscheduled_bytes).unwrap_or(0);
        let count = if random.chance(20) { random.index(200) } else { random.index(8) };
        let size = |random: &mut Random| match random.index(10) {
            0 => 0,
            1 => unscheduled / 2 + random.index(unscheduled * 3),
            _ => random.index(2_000),
        };
        let mut bytes_left = self.item_bytes_max();
        let mut sizes: Vec<usize> = (0..count).map(|_| size(random)).collect();
        sizes.retain(|size| {
            let rest = bytes_left.checked_sub(*size);
            bytes_left = rest.unwrap_or(bytes_left);
            rest.is_some()
        });
        Some(sizes)
    }

    /// Bytes that leave in the time for all items, where each round trip brings credit for half of
    /// a window.
    fn item_bytes_max(&self) -> usize {
        let window = usize::try_from(self.scenario.limits.stream_window_bytes).unwrap_or(0);
        let round_trip = self.network.latency_max(window) * 2;
        let round_trips = u128::from(ITEMS_TIME_US) / round_trip.as_micros().max(1);
        usize::try_from(round_trips).unwrap_or(usize::MAX).saturating_mul(window / 2)
    }

    pub(super) fn begin_items(&mut self, place: Place, call: CallId, sizes: &[usize]) {
        let mut random = Random::of(self.scenario.seed, 9_000 + call.seq);
        let gives_up = random.chance(5) && self.scenario.workload.drop_percent > 0;
        // In a run whose frames are foretold nobody takes long enough for others to worry.
        let is_slow = random.chance(60) && !self.scenario.is_countable();
        let longest = (ITEMS_TIME_US / (sizes.len() as u64 + 1)).min(200_000);
        let pause = if is_slow { random.micros(0..longest) } else { Duration::ZERO };
        let writer = Writer { sizes: sizes.to_vec().into(), pause, gives_up };
        self.hosts[place].writers.insert(call, writer);
        self.write_items(place, call);
    }

    /// Sends items for as long as they can leave.
    pub(super) fn write_items(&mut self, place: Place, call: CallId) {
        while let Some(mut writer) = self.hosts[place].writers.remove(&call) {
            let writable = self.drive(place, call, |node, _| node.poll_items_writable(call));
            match writable {
                Some(Ok(true)) => {}
                Some(Ok(false)) => {
                    self.hosts[place].writers.insert(call, writer);
                    return;
                }
                Some(Err(why)) => return self.note_refused(call, why),
                None => return,
            }
            let Some(size) = writer.sizes.pop_front() else {
                return self.end_items(place, call, &writer);
            };
            let Some(truth) = self.oracle.calls.get_mut(&call) else { return };
            let payload = item(call, truth.items.len(), size);
            // The oracle knows first: an item for the node itself is there before this returns.
            truth.items.push(payload.clone());
            let pause = writer.pause;
            self.hosts[place].writers.insert(call, writer);
            let sent =
                self.drive(place, call, |node, now| node.send_item(now, call, encoded(&payload)));
            if let Some(Err(why)) = sent {
                self.hosts[place].writers.remove(&call);
                self.note_refused(call, why);
            } else if !pause.is_zero() {
                let end = self.hosts[place].end();
                return self.schedule_in(pause, Event::Write { end, call });
            }
        }
    }

    fn end_items(&mut self, place: Place, call: CallId, writer: &Writer) {
        if writer.gives_up {
            return self.cancel_call(place, call);
        }
        if let Some(truth) = self.oracle.calls.get_mut(&call) {
            truth.has_finished_items = true;
        }
        self.drive(place, call, |node, now| node.finish_items(now, call));
    }

    fn note_refused(&mut self, call: CallId, why: SendError) {
        self.trace.note(self.now, || format!("{call:?} takes no further items: {why}"));
        self.observe(&Observation::ItemsRefused { call, why });
    }

    /// Chooses how the handler of a task reads its items.
    pub(super) fn item_reader(&self, task: &TaskRef) -> ItemReader {
        let mut random = Random::of(self.scenario.seed, 11_000 + task.call.seq);
        let most = if random.chance(20) { random.index(6) } else { usize::MAX };
        ItemReader { read: 0, most, ahead: VecDeque::new() }
    }

    /// Reads items until there are none for now.
    pub(super) fn read_on(
        &mut self,
        place: Place,
        task: &TaskRef,
        handler: &mut Handler,
    ) -> Result<Next, SendError> {
        let Some(reader) = handler.reader.as_mut() else { return Ok(Next::GoOn) };
        if reader.read >= reader.most {
            // Or it goes on with others unread, which its end says.
            let drops = reader.most.is_multiple_of(2);
            handler.reader = None;
            if drops {
                self.drive(place, task.call, |node, now| node.drop_items(now, task));
            }
            return Ok(Next::GoOn);
        }
        let next = match reader.ahead.pop_front() {
            Some(item) => Ok(Some(NextItem::Item(item))),
            None => {
                let ahead = &mut reader.ahead;
                let next = self
                    .drive(place, task.call, |node, now| node.next_item(now, task, Some(ahead)));
                next.ok_or(SendError::Ended)?
            }
        };
        let name = self.oracle.name(task);
        match &next {
            Ok(None) => {
                handler.is_blocked = true;
                self.yield_handler(place, task, handler);
                return Ok(Next::Wait);
            }
            Ok(Some(NextItem::Item(_))) => {}
            Ok(Some(NextItem::End)) | Err(_) => handler.reader = None,
        }
        if let Some(reader) = &mut handler.reader {
            reader.read += 1;
        }
        if next != Err(ItemsFailure::Ended) {
            let node = self.hosts[place].id;
            self.trace.note(self.now, || {
                let what = match &next {
                    Ok(Some(NextItem::Item(item))) => format!("item of {} bytes", item.len()),
                    other => format!("{other:?}"),
                };
                format!("{node} reads of {:?} {}: {what}", task.call, task.task)
            });
            self.observe(&Observation::ItemRead { task: &name, next: &next });
        }
        Ok(Next::GoOn)
    }
}
