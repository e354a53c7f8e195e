//! State of a fabric, and what its devices are asked about.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::connecting::{Listening, Noted};
use super::sending::{Finished, Posted};
use super::{DeviceSettings, FabricCounters};
use crate::ffi::slab::Slab;
use crate::provider::{Completion, DeviceLimits, QueuePairSettings, Tag, VerbsError};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DeviceId(pub(super) usize);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EndId(pub(super) u64);

/// Everything of a fabric.
pub(super) struct State {
    pub(super) devices: Vec<Device>,
    pub(super) ends: BTreeMap<EndId, End>,
    pub(super) listeners: BTreeMap<SocketAddr, Listening>,
    /// To be woken once the lock is released.
    pub(super) woken: Vec<Waker>,
    pub(super) counters: FabricCounters,
    pub(super) delay_steps_max: u64,
    pub(super) step: u64,
    /// Ends with sends under way, by the step at which the first of them is due.
    pub(super) under_way: BinaryHeap<Reverse<(u64, EndId)>>,
    pub(super) next_port: u16,
    pub(super) next_end: u64,
    pub(super) scratch: Vec<u8>,
    pub(super) spare: Vec<Vec<u8>>,
    random: u64,
}

pub(super) struct Device {
    pub(super) settings: DeviceSettings,
    pub(super) events: VecDeque<(Option<EndId>, Noted)>,
    pub(super) finished: VecDeque<Finished>,
    /// Completions its queue pairs may have at most.
    pub(super) reserved: u32,
    pub(super) registered_bytes: usize,
    pub(super) condition: Condition,
    is_armed: bool,
    is_notified: bool,
    is_unwatched: bool,
    /// Number of polls to come that panic.
    panics: u32,
    probe_panics: u32,
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Working,
    /// It reaches nobody.
    CutOff,
    /// Its process is gone.
    Killed,
    Lost,
}

/// A queue pair.
pub(super) struct End {
    pub(super) device: DeviceId,
    pub(super) tag: Tag,
    pub(super) slab: Arc<Slab>,
    pub(super) settings: QueuePairSettings,
    pub(super) condition: EndCondition,
    pub(super) peer: Option<EndId>,
    pub(super) target: Option<SocketAddr>,
    pub(super) receives: VecDeque<u32>,
    pub(super) sends: VecDeque<Posted>,
    pub(super) sends_posted: u64,
    /// Sends whose place in the queue has been freed by polling a completion.
    pub(super) sends_retired: u64,
    /// Receives posted and not yet polled as completed.
    pub(super) receives_open: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndCondition {
    /// Not connected yet.
    Fresh,
    Connected,
    /// The error state; `is_disconnected` when our side has asked for the end.
    Failed {
        is_disconnected: bool,
    },
}

impl State {
    pub(super) fn new(seed: u64, delay_steps_max: u64) -> Self {
        Self {
            devices: Vec::new(),
            ends: BTreeMap::new(),
            listeners: BTreeMap::new(),
            woken: Vec::new(),
            counters: FabricCounters::default(),
            delay_steps_max,
            step: 0,
            under_way: BinaryHeap::new(),
            next_port: 40_000,
            next_end: 0,
            scratch: Vec::new(),
            spare: Vec::new(),
            random: seed,
        }
    }

    pub(super) fn add_device(&mut self, settings: DeviceSettings) -> DeviceId {
        self.devices.push(Device {
            settings,
            events: VecDeque::new(),
            finished: VecDeque::new(),
            reserved: 0,
            registered_bytes: 0,
            condition: Condition::Working,
            is_armed: false,
            is_notified: false,
            is_unwatched: false,
            panics: 0,
            probe_panics: 0,
            waker: None,
        });
        DeviceId(self.devices.len() - 1)
    }

    pub(super) fn counters(&self) -> FabricCounters {
        FabricCounters {
            queue_pairs: self.ends.len(),
            registered_bytes: self.devices.iter().map(|device| device.registered_bytes).sum(),
            ..self.counters.clone()
        }
    }

    pub(super) fn limits(&self, id: DeviceId) -> DeviceLimits {
        let settings = &self.devices[id.0].settings;
        DeviceLimits {
            name: format!("sim{}", id.0),
            work_requests_max: settings.work_requests_max,
            completions_max: settings.completions_max,
        }
    }

    pub(super) fn register(&mut self, id: DeviceId, bytes: usize) -> Result<(), VerbsError> {
        let device = self.working(id)?;
        let limit = device.settings.registered_bytes_max;
        if device.registered_bytes.saturating_add(bytes) > limit {
            return Err(VerbsError::MemoryLimit {
                needed_bytes: bytes as u64,
                used_bytes: device.registered_bytes as u64,
                limit_bytes: Some(limit as u64),
            });
        }
        device.registered_bytes += bytes;
        Ok(())
    }

    pub(super) fn deregister(&mut self, id: DeviceId, bytes: usize) {
        self.devices[id.0].registered_bytes -= bytes;
    }

    /// The device, unless it is lost.
    pub(super) fn working(&mut self, id: DeviceId) -> Result<&mut Device, VerbsError> {
        let device = &mut self.devices[id.0];
        if device.condition == Condition::Lost {
            return Err(lost());
        }
        Ok(device)
    }

    pub(super) fn poll_completions(
        &mut self,
        id: DeviceId,
        budget: usize,
        into: &mut Vec<Completion>,
    ) -> Result<usize, VerbsError> {
        self.advance();
        self.working(id)?;
        let mut count = 0;
        while count < budget {
            let device = &mut self.devices[id.0];
            if device.condition == Condition::Killed {
                break;
            }
            let Some(finished) = device.finished.pop_front() else { break };
            let Some(end) = self.ends.get_mut(&finished.end) else { continue };
            if let Some(completion) = finished.settle(end, &mut self.counters) {
                into.push(completion);
                count += 1;
            }
        }
        Ok(count)
    }

    pub(super) fn arm(&mut self, id: DeviceId) -> Result<(), VerbsError> {
        self.working(id)?.is_armed = true;
        Ok(())
    }

    pub(super) fn poll_ready(
        &mut self,
        id: DeviceId,
        cx: &Context<'_>,
    ) -> Poll<Result<(), VerbsError>> {
        self.advance();
        let device = &mut self.devices[id.0];
        if device.is_unwatched {
            return Poll::Ready(Err(lost()));
        }
        if device.condition != Condition::Killed {
            if std::mem::take(&mut device.is_notified) || !device.events.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if !self.under_way.is_empty() {
                // Steps are the only clock, so somebody must go on stepping.
                self.woken.push(cx.waker().clone());
            }
        }
        match &mut device.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Completes a work request of an end.
    pub(super) fn finish(&mut self, finished: Finished) {
        let Some(end) = self.ends.get(&finished.end) else { return };
        let id = end.device;
        let device = &mut self.devices[id.0];
        if device.finished.len() >= device.settings.completions_max as usize {
            self.counters.overflows += 1;
            return self.lose(id);
        }
        device.finished.push_back(finished);
        if std::mem::take(&mut device.is_armed) {
            device.is_notified = true;
            self.wake(id);
        }
    }

    /// Adds an event to a device; `about` is the end it is dropped with.
    pub(super) fn note(&mut self, id: DeviceId, about: Option<EndId>, noted: Noted) {
        self.devices[id.0].events.push_back((about, noted));
        self.wake(id);
    }

    /// Polling is the clock: whoever sleeps while something is under way must go on.
    pub(super) fn wake_all(&mut self) {
        self.woken.extend(self.devices.iter().filter_map(|device| device.waker.clone()));
    }

    fn wake(&mut self, id: DeviceId) {
        let waker = self.devices[id.0].waker.as_ref();
        self.woken.extend(waker.cloned());
    }

    /// A number below `bound`, which is not zero.
    pub(super) fn random_below(&mut self, bound: u64) -> u64 {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % bound
    }

    pub(super) fn kill(&mut self, id: DeviceId) {
        self.devices[id.0].condition = Condition::Killed;
        self.listeners.retain(|_, listening| listening.device != id);
        let dead: Vec<_> = self.ends.iter().filter(|(_, end)| end.device == id).collect();
        let peers: Vec<_> = dead.into_iter().filter_map(|(_, end)| end.peer).collect();
        for peer in peers {
            self.note_disconnected(peer);
        }
    }

    pub(super) fn cut_off(&mut self, id: DeviceId) {
        self.devices[id.0].condition = Condition::CutOff;
    }

    pub(super) fn stop_waiting(&mut self, id: DeviceId) {
        self.devices[id.0].is_unwatched = true;
    }

    pub(super) fn panic_in_polls(&mut self, id: DeviceId, count: u32) {
        let device = &mut self.devices[id.0];
        device.panics = count;
        device.is_notified = true;
        self.wake(id);
    }

    /// False when the next poll is to panic.
    pub(super) fn is_sound(&mut self, id: DeviceId) -> bool {
        let panics = &mut self.devices[id.0].panics;
        std::mem::replace(panics, panics.saturating_sub(1)) == 0
    }

    pub(super) fn panic_in_probes(&mut self, id: DeviceId, count: u32) {
        self.devices[id.0].probe_panics = count;
    }

    /// False when the next probe is to panic.
    pub(super) fn is_sound_in_probes(&mut self, id: DeviceId) -> bool {
        let panics = &mut self.devices[id.0].probe_panics;
        std::mem::replace(panics, panics.saturating_sub(1)) == 0
    }

    pub(super) fn lose(&mut self, id: DeviceId) {
        let device = &mut self.devices[id.0];
        if device.condition == Condition::Lost {
            return;
        }
        device.condition = Condition::Lost;
        self.listeners.retain(|_, listening| listening.device != id);
        self.note(id, None, Noted::DeviceLost { error: lost() });
        // A real device may well complete nothing any more.
        self.devices[id.0].finished.clear();
    }

    /// True when two devices reach each other.
    pub(super) fn is_linked(&self, one: DeviceId, other: DeviceId) -> bool {
        let is_working = |id: DeviceId| self.devices[id.0].condition == Condition::Working;
        is_working(one) && is_working(other)
    }
}

impl End {
    pub(super) fn is_failed(&self) -> bool {
        matches!(self.condition, EndCondition::Failed { .. })
    }
}

pub(super) fn lost() -> VerbsError {
    VerbsError::DeviceLost("the simulated device broke".into())
}
