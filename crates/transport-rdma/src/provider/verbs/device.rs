//! The device, as all its connections share it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};

use super::names::Names;
use super::readiness::{Descriptors, Readiness};
use super::room::Room;
use crate::ffi::verbs as ffi;
use crate::provider::{Completion, DeviceLimits, InlineLimit, VerbsError};

/// Completions there is room for at first; enough for some dozen peers.
const COMPLETIONS_AT_FIRST: u32 = 4_096;

/// An opened device. Its parts hold what they need, so they may be dropped in any order.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) limits: DeviceLimits,
    pub(super) context: Arc<ffi::Context>,
    pub(super) domain: Arc<ffi::ProtectionDomain>,
    pub(super) queue: Arc<ffi::CompletionQueue>,
    pub(super) channel: Arc<ffi::EventChannel>,
    pub(super) readiness: Readiness,
    pub(super) inline: InlineLimit,
    /// Held while completions are handed out: a queue pair that is removed has none of them under
    /// way.
    reports: Mutex<Reports>,
    room: Mutex<Room>,
    /// Some of it will be free once the queue is seen empty.
    is_room_leaving: AtomicBool,
    pub(super) registered_bytes: AtomicU64,
    lost: OnceLock<VerbsError>,
    /// True once the engine has been told of the loss.
    pub(super) is_loss_told: AtomicBool,
}

/// Things that completions are handed out with.
#[derive(Debug, Default)]
struct Reports {
    names: Names,
    chunk: ffi::Chunk,
}

impl Device {
    pub(super) fn open(name: Option<&str>) -> Result<Arc<Self>, VerbsError> {
        let context = ffi::Context::open(name)?;
        let limits = context.limits()?;
        let domain = ffi::ProtectionDomain::new(&context)?;
        let (completion_channel, completions) = ffi::CompletionChannel::new(&context)?;
        let capacity = limits.completions_max.min(COMPLETIONS_AT_FIRST);
        let queue = ffi::CompletionQueue::new(&completion_channel, capacity)?;
        let (channel, connections) = ffi::EventChannel::new()?;
        let device = context.descriptor()?;
        Ok(Arc::new(Self {
            limits: DeviceLimits {
                name: context.name().into(),
                work_requests_max: limits.work_requests_max,
                completions_max: limits.completions_max,
            },
            domain,
            queue,
            channel,
            readiness: Readiness::new(Descriptors { completions, connections, device }),
            reports: Mutex::default(),
            room: Mutex::new(Room::new(capacity, limits.completions_max)),
            is_room_leaving: AtomicBool::new(false),
            inline: InlineLimit::new(),
            registered_bytes: AtomicU64::new(0),
            lost: OnceLock::new(),
            is_loss_told: AtomicBool::new(false),
            context,
        }))
    }

    /// Fails once the device is lost.
    #[inline]
    pub(super) fn check(&self) -> Result<(), VerbsError> {
        if self.lost.get().is_none() { Ok(()) } else { self.say_lost() }
    }

    #[cold]
    fn say_lost(&self) -> Result<(), VerbsError> {
        self.lost.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// The device is lost; the first reason counts.
    pub(super) fn lose(&self, error: VerbsError) {
        let _ = self.lost.set(error);
    }

    pub(super) fn loss(&self) -> Option<&VerbsError> {
        self.lost.get()
    }

    /// Listeners and queue pairs that the device knows. None is removed while completions are
    /// handed out.
    pub(super) fn names(&self) -> MappedMutexGuard<'_, Names> {
        MutexGuard::map(self.reports.lock(), |reports| &mut reports.names)
    }

    pub(super) fn poll_completions(
        &self,
        budget: usize,
        into: &mut Vec<Completion>,
    ) -> Result<usize, VerbsError> {
        self.check()?;
        let Reports { names, chunk } = &mut *self.reports.lock();
        let left = self.room_leaving();
        let before = into.len();
        loop {
            let polled = self.queue.poll(chunk, budget, |raw| {
                // Those of queue pairs that are gone mean nothing.
                if let Some(completion) = names.completion(raw) {
                    into.push(completion);
                }
            });
            let is_empty = polled.inspect_err(|error| self.lose(error.clone()))?;
            if is_empty {
                self.note_empty(left);
            }
            if is_empty || into.len() > before || budget == 0 {
                return Ok(into.len() - before);
            }
        }
    }

    /// Room that is free once the queue is seen empty after this.
    #[inline]
    fn room_leaving(&self) -> u32 {
        if self.is_room_leaving.load(Ordering::Acquire) { self.room.lock().leaving() } else { 0 }
    }

    /// Nothing waited in the completion queue after so much room was left.
    #[inline]
    fn note_empty(&self, left: u32) {
        if left > 0 {
            let mut room = self.room.lock();
            room.on_empty(left);
            self.is_room_leaving.store(room.leaving() > 0, Ordering::Release);
        }
    }

    /// Makes room for the completions of a queue pair.
    pub(super) fn take_room(self: &Arc<Self>, count: u32) -> Result<Taken, VerbsError> {
        let mut room = self.room.lock();
        let grown = room.take(count).map_err(|no_room| VerbsError::Exhausted {
            what: "completions",
            advice: format!(
                "{} of {} are taken and {count} more were asked for; lower the slots per peer or \
                 the number of peers",
                no_room.taken, no_room.capacity_max
            ),
        })?;
        if let Some(capacity) = grown {
            match self.queue.resize(capacity) {
                Ok(()) => room.set_capacity(capacity),
                Err(error) => {
                    room.put_back(count);
                    return Err(error);
                }
            }
        }
        Ok(Taken { device: Arc::clone(self), count })
    }
}

/// Room in the completion queue, given back when dropped.
#[derive(Debug)]
pub(super) struct Taken {
    device: Arc<Device>,
    count: u32,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut room = self.device.room.lock();
        room.leave(self.count);
        self.device.is_room_leaving.store(true, Ordering::Release);
    }
}
