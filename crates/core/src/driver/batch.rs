//! Frames that one read has brought: each core is locked once for all of its own.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use convoke_proto::id::{LinkId, LinkNonce, NodeId};
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{Cast, Frame};

use crate::transport::{Connection, Received};

use super::Driver;
use super::cores::Core;
use super::drain::Aftermath;

/// Frames of a connection as they come, without those that no core is given.
pub(super) struct Intake<'a> {
    driver: &'a Driver,
    peer: NodeId,
    nonce: LinkNonce,
    frames: &'a mut dyn Iterator<Item = Received>,
    /// Number of those that have come.
    pub(super) count: u64,
    /// Casts whose values are still to be brought.
    pub(super) carried: Vec<Frame>,
}

impl<'a> Intake<'a> {
    pub(super) fn new(
        driver: &'a Driver,
        from: &dyn Connection,
        frames: &'a mut dyn Iterator<Item = Received>,
    ) -> Self {
        let (peer, nonce) = (from.link().peer.node, from.link().nonce);
        Self { driver, peer, nonce, frames, count: 0, carried: Vec::new() }
    }

    /// The next frame for a core.
    #[inline]
    fn next(&mut self) -> Result<Option<Bytes>, String> {
        for Received { bytes, .. } in &mut *self.frames {
            self.count += 1;
            if self.driver.packing.take(self.peer, self.nonce, &bytes)? {
                continue;
            }
            if Cast::is_carried_in(&bytes) {
                let frame = Frame::decode(bytes).map_err(|error| error.to_string())?;
                self.carried.push(frame);
                continue;
            }
            return Ok(Some(bytes));
        }
        Ok(None)
    }
}

/// Frames with the core that each is for, in the order in which they came.
struct Sorted {
    frames: Vec<(usize, Bytes)>,
    /// The cores that they are for, a bit for each.
    cores: u64,
}

thread_local! {
    /// Room of the last frames that were sorted on this thread.
    static ROOM: RefCell<Vec<(usize, Bytes)>> = RefCell::default();
}

/// Most frames whose room is kept.
const ROOM_MAX: usize = 4_096;

impl Sorted {
    /// Reads all frames, as far as they can be read.
    fn read(&mut self, driver: &Driver, intake: &mut Intake<'_>) -> Result<(), String> {
        while let Some(frame) = intake.next()? {
            self.push(driver, frame)?;
        }
        Ok(())
    }

    /// Adds a frame, or the parts of one that several cores have a part in.
    fn push(&mut self, driver: &Driver, frame: Bytes) -> Result<(), String> {
        match driver.cores.routes.of_frame(&frame) {
            Some(core) => self.push_to(core, frame),
            None => {
                let frame = Frame::decode(frame).map_err(|error| error.to_string())?;
                for (core, part) in driver.cores.routes.parts(frame) {
                    self.push_to(core, part.to_bytes());
                }
            }
        }
        Ok(())
    }

    fn push_to(&mut self, core: usize, frame: Bytes) {
        self.cores |= 1 << core;
        self.frames.push((core, frame));
    }
}

impl Driver {
    /// Gives the frames of a connection to their cores, then carries out what these want. Handlers
    /// start in the order of their requests, whichever their cores.
    ///
    /// # Errors
    /// The fault of a frame that breaks the protocol. What its core had before it counts.
    pub(super) fn take_batch(self: &Arc<Self>, intake: &mut Intake<'_>) -> Result<(), String> {
        let mut aftermath = Aftermath::default();
        let taken = match self.cores.routes.len() {
            1 => self.visit(0, &mut aftermath, |core, now, _| {
                let Some(link) = core.connections().id(intake.peer, intake.nonce) else {
                    return Ok(());
                };
                while let Some(frame) = intake.next()? {
                    core.take(now, link, frame)?;
                }
                Ok(())
            }),
            _ => self.sort_and_give(intake, &mut aftermath),
        };
        self.finish(&mut aftermath);
        taken
    }

    fn sort_and_give(
        &self,
        intake: &mut Intake<'_>,
        aftermath: &mut Aftermath,
    ) -> Result<(), String> {
        let mut sorted = Sorted { frames: ROOM.take(), cores: 0 };
        let sorting = sorted.read(self, intake);
        let Sorted { mut frames, cores } = sorted;
        // The place of each request that has started a task: where there are several cores, their
        // tasks are in the order of cores at first.
        let mut order: Vec<usize> = Vec::new();
        let mut given = Ok(());
        let cores = (0..self.cores.routes.len()).filter(|core| cores & 1 << core != 0);
        for index in cores {
            let of_core = frames.iter_mut().enumerate().filter(|(_, (core, _))| *core == index);
            given = given.and(self.visit(index, aftermath, |core, now, aftermath| {
                let Some(link) = core.connections().id(intake.peer, intake.nonce) else {
                    return Ok(());
                };
                self.cores.hear(core, link);
                for (place, (_, frame)) in of_core {
                    core.take(now, link, std::mem::take(frame))?;
                    order.resize(aftermath.starts.len() + core.node.start_count(), place);
                }
                Ok(())
            }));
            // Those that the node has started itself come behind.
            order.resize(aftermath.starts.len(), usize::MAX);
        }
        if !order.is_sorted() {
            let mut starts: Vec<_> = order.into_iter().zip(aftermath.starts.drain(..)).collect();
            starts.sort_by_key(|(place, _)| *place);
            aftermath.starts.extend(starts.into_iter().map(|(_, start)| start));
        }
        frames.clear();
        if frames.capacity() <= ROOM_MAX {
            ROOM.set(frames);
        }
        given.and(sorting)
    }
}

impl Core {
    /// # Errors
    /// The frame's fault, in words.
    #[inline]
    fn take(&mut self, now: Timestamp, link: LinkId, frame: Bytes) -> Result<(), String> {
        self.node.handle_bytes(now, link, frame).map_err(|fault| fault.to_string())
    }
}
