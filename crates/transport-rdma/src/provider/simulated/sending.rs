//! Passage of messages from one queue pair to another: what the adapter does.

use std::cmp::Reverse;

use super::FabricCounters;
use super::state::{End, EndCondition, EndId, State};
use crate::provider::{
    Completion, Data, INVALID, PostError, SendRequest, Tag, VerbsError, WorkId, WorkStatus,
};

/// A send in its queue.
pub(super) struct Posted {
    number: u64,
    payload: Payload,
    is_signalled: bool,
    due: u64,
}

enum Payload {
    Inline(Vec<u8>),
    Slot { slot: u32, bytes: u32 },
    Probe,
}

/// A work request whose completion waits to be polled.
pub(super) struct Finished {
    pub(super) end: EndId,
    completion: Completion,
    /// Number of the send.
    number: Option<u64>,
}

impl Finished {
    /// Takes it into account and hands it out.
    pub(super) fn settle(self, end: &mut End, counters: &mut FabricCounters) -> Option<Completion> {
        match self.number {
            Some(number) => end.sends_retired = end.sends_retired.max(number + 1),
            None => {
                end.receives_open -= 1;
                if !end.slab.end_receive(self.completion.id.index()) {
                    counters.violations += 1;
                }
            }
        }
        Some(self.completion)
    }
}

impl State {
    pub(super) fn post_receives(&mut self, id: EndId, slots: &[u32]) -> Result<(), PostError> {
        for (posted, slot) in slots.iter().enumerate() {
            self.post_receive(id, *slot).map_err(|error| PostError { posted, error })?;
        }
        Ok(())
    }

    fn post_receive(&mut self, id: EndId, slot: u32) -> Result<(), VerbsError> {
        let device = self.end_mut(id).device;
        self.working(device)?;
        let end = self.end_mut(id);
        if end.receives_open >= end.settings.receives_max {
            self.counters.overflows += 1;
            return Err(VerbsError::QueueFull("receive"));
        }
        if !end.slab.begin_receive(slot) {
            self.counters.violations += 1;
            return Err(VerbsError::SlotInUse(slot));
        }
        end.receives_open += 1;
        if end.is_failed() {
            let tag = end.tag;
            self.finish(Finished::receive(id, WorkId::receive(tag, slot), WorkStatus::Flushed, 0));
        } else {
            end.receives.push_back(slot);
        }
        Ok(())
    }

    pub(super) fn post_sends(
        &mut self,
        id: EndId,
        inline_bytes_max: u32,
        sends: &[SendRequest<'_>],
    ) -> Result<(), PostError> {
        for (posted, send) in sends.iter().enumerate() {
            self.post_send(id, inline_bytes_max, send)
                .map_err(|error| PostError { posted, error })?;
        }
        self.deliver_due();
        if !self.under_way.is_empty() {
            self.wake_all();
        }
        Ok(())
    }

    fn post_send(
        &mut self,
        id: EndId,
        inline_bytes_max: u32,
        send: &SendRequest<'_>,
    ) -> Result<(), VerbsError> {
        let device = self.end_mut(id).device;
        self.working(device)?;
        let delay = match self.delay_steps_max {
            0 => 0,
            max => self.random_below(max + 1),
        };
        let step = self.step;
        let mut spare = self.spare.pop().unwrap_or_default();
        let end = self.end_mut(id);
        if end.sends_posted - end.sends_retired >= u64::from(end.settings.sends_max) {
            self.counters.overflows += 1;
            return Err(VerbsError::QueueFull("send"));
        }
        let payload = match send.data {
            Data::Inline(bytes) if bytes.len() > inline_bytes_max as usize => {
                let message = format!("{} bytes inline, {inline_bytes_max} granted", bytes.len());
                return Err(VerbsError::System { call: "post_send", code: INVALID, message });
            }
            Data::Inline(bytes) => {
                spare.clear();
                spare.extend_from_slice(bytes);
                Payload::Inline(spare)
            }
            Data::Slot { slot, bytes } => {
                if bytes as usize > end.slab.slot_bytes() || !end.slab.begin_send(slot) {
                    self.counters.violations += 1;
                    return Err(VerbsError::SlotInUse(slot));
                }
                Payload::Slot { slot, bytes }
            }
            Data::Probe => Payload::Probe,
        };
        // Those of one queue pair stay in order.
        let due = end.sends.back().map_or(0, |last| last.due).max(step + delay);
        let number = end.sends_posted;
        end.sends_posted += 1;
        let is_first = end.sends.is_empty();
        end.sends.push_back(Posted { number, payload, is_signalled: send.is_signalled, due });
        if end.is_failed() {
            self.flush_end(id);
        } else if is_first {
            self.under_way.push(Reverse((due, id)));
        }
        Ok(())
    }

    /// One more step.
    pub(super) fn advance(&mut self) {
        self.step += 1;
        self.deliver_due();
    }

    fn deliver_due(&mut self) {
        while let Some(&Reverse((due, id))) = self.under_way.peek() {
            if due > self.step {
                break;
            }
            self.under_way.pop();
            self.deliver_first(id);
        }
    }

    /// Delivers the first send of an end, and sees to the next.
    fn deliver_first(&mut self, id: EndId) {
        if !self.ends.contains_key(&id) {
            return;
        }
        // Without a way it stays in its queue, and those after it too.
        let Some(to) = self.way(id) else { return };
        let end = self.end_mut(id);
        let tag = end.tag;
        let Some(posted) = end.sends.pop_front() else { return };
        if let Some(next) = end.sends.front() {
            let due = next.due;
            self.under_way.push(Reverse((due, id)));
        }
        let status = self.transmit(id, to, &posted.payload);
        if let Payload::Inline(bytes) = posted.payload {
            self.spare.push(bytes);
        }
        if status == WorkStatus::Success {
            if posted.is_signalled {
                self.finish(Finished::send(id, tag, posted.number, status));
            }
        } else {
            self.finish(Finished::send(id, tag, posted.number, status));
            self.fail_end(id);
        }
    }

    /// The end that the sends of an end arrive at; `None` while nobody answers.
    fn way(&self, id: EndId) -> Option<EndId> {
        let end = &self.ends[&id];
        let peer = end.peer?;
        // A peer in its error state answers nothing.
        let to = self.ends.get(&peer).filter(|to| !to.is_failed())?;
        self.is_linked(end.device, to.device).then_some(peer)
    }

    fn transmit(&mut self, from: EndId, to: EndId, payload: &Payload) -> WorkStatus {
        let mut scratch = std::mem::take(&mut self.scratch);
        let status = match payload {
            Payload::Probe => {
                self.counters.probes += 1;
                WorkStatus::Success
            }
            Payload::Inline(bytes) => self.hand_over(to, bytes),
            Payload::Slot { slot, bytes } => {
                if self.ends[&from].slab.collect(*slot, *bytes as usize, &mut scratch) {
                    self.hand_over(to, &scratch)
                } else {
                    self.counters.violations += 1;
                    WorkStatus::SlotInUse
                }
            }
        };
        self.scratch = scratch;
        status
    }

    /// Puts a message into the first posted receive of an end; answers how the send went.
    fn hand_over(&mut self, to: EndId, bytes: &[u8]) -> WorkStatus {
        let end = self.end_mut(to);
        let Some(slot) = end.receives.pop_front() else {
            self.counters.receiver_not_ready += 1;
            return WorkStatus::ReceiverNotReady;
        };
        let id = WorkId::receive(end.tag, slot);
        if bytes.len() > end.slab.slot_bytes() {
            let status = WorkStatus::Failed("the message is longer than the slot");
            self.finish(Finished::receive(to, id, status, 0));
            self.fail_end(to);
            return WorkStatus::Failed("the message is longer than the receive");
        }
        if !end.slab.deliver(slot, bytes) {
            self.counters.violations += 1;
            return WorkStatus::SlotInUse;
        }
        self.counters.delivered += 1;
        let bytes = u32::try_from(bytes.len()).expect("a slot is far below 4 GiB");
        self.finish(Finished::receive(to, id, WorkStatus::Success, bytes));
        WorkStatus::Success
    }

    fn fail_end(&mut self, id: EndId) {
        let end = self.end_mut(id);
        if !end.is_failed() {
            end.condition = EndCondition::Failed { is_disconnected: false };
        }
        self.flush_end(id);
    }

    /// Everything an end in its error state has posted comes back.
    pub(super) fn flush_end(&mut self, id: EndId) {
        let end = self.end_mut(id);
        let (sends, receives) = (std::mem::take(&mut end.sends), std::mem::take(&mut end.receives));
        let tag = end.tag;
        self.under_way.retain(|Reverse((_, under_way))| *under_way != id);
        for posted in sends {
            self.finish(Finished::send(id, tag, posted.number, WorkStatus::Flushed));
        }
        for slot in receives {
            self.finish(Finished::receive(id, WorkId::receive(tag, slot), WorkStatus::Flushed, 0));
        }
    }
}

impl Finished {
    fn send(end: EndId, tag: Tag, number: u64, status: WorkStatus) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "ids count modulo 2^32")]
        let id = WorkId::send(tag, number as u32);
        Self { end, completion: Completion { id, status, bytes: 0 }, number: Some(number) }
    }

    fn receive(end: EndId, id: WorkId, status: WorkStatus, bytes: u32) -> Self {
        Self { end, completion: Completion { id, status, bytes }, number: None }
    }
}
