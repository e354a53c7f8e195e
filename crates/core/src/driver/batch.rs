//! Frames that one read has brought: each core is locked once for all of its own.

use std::cell::RefCell;
use std::sync::Arc;

use bytes::Bytes;
use convoke_proto::Fault;
use convoke_proto::id::{LinkId, LinkNonce, NodeId};
use convoke_proto::parting::LinkName;
use convoke_proto::time::Timestamp;
use convoke_proto::wire::{ABOUT_CONNECTION, Cast, Frame, Message};

use crate::transport::{Connection, Received};

use super::Driver;
use super::cores::Core;
use super::drain::Aftermath;
use super::partings::Words;

/// Frames of a connection as they come, each with its core, without those that no core is given.
pub(super) struct Intake<'a> {
    driver: &'a Driver,
    peer: NodeId,
    nonce: LinkNonce,
    frames: &'a mut dyn Iterator<Item = Received>,
    /// Parts of the last frame that are still to come, the last one first.
    parts: Vec<(usize, Bytes)>,
    /// Number of those that have come.
    pub(super) count: u64,
    /// Casts whose values are still to be brought.
    pub(super) carried: Vec<Frame>,
    /// Words about the connection.
    pub(super) words: Words,
}

impl<'a> Intake<'a> {
    pub(super) fn new(
        driver: &'a Driver,
        from: &dyn Connection,
        frames: &'a mut dyn Iterator<Item = Received>,
    ) -> Self {
        let (peer, nonce) = (from.link().peer.node, from.link().nonce);
        let (parts, carried, words) = (Vec::new(), Vec::new(), Words::default());
        Self { driver, peer, nonce, frames, parts, count: 0, carried, words }
    }

    /// The next frame, or part of one that several cores have a part in.
    #[inline(always)]
    fn next(&mut self) -> Result<Option<(usize, Bytes)>, String> {
        while self.parts.is_empty() {
            let Some(Received { bytes, .. }) = self.frames.next() else { return Ok(None) };
            self.count += 1;
            if bytes.first() == Some(&ABOUT_CONNECTION) {
                self.take_word(bytes)?;
                continue;
            }
            if Cast::is_carried_in(&bytes) {
                self.carried.push(decode(bytes)?);
                continue;
            }
            let routes = &self.driver.cores.routes;
            if let Some(core) = routes.of_frame(&bytes) {
                return Ok(Some((core, bytes)));
            }
            let parts = routes.parts(decode(bytes)?).into_iter().rev();
            self.parts.extend(parts.map(|(core, part)| (core, part.to_bytes())));
        }
        Ok(self.parts.pop())
    }

    #[cold]
    fn take_word(&mut self, bytes: Bytes) -> Result<(), String> {
        if self.driver.packing.take(self.peer, self.nonce, &bytes)? {
            return Ok(());
        }
        match decode(bytes)? {
            Frame { relayed: None, message: Message::Parting(word), .. } => self.words.add(word),
            _ => return Err(Fault::Misrouted.to_string()),
        }
        Ok(())
    }

    /// The name that both ends have for the connection.
    pub(super) fn link(&self) -> LinkName {
        (self.peer, self.nonce)
    }
}

fn decode(bytes: Bytes) -> Result<Frame, String> {
    Frame::decode(bytes).map_err(|error| error.to_string())
}

/// Frames for other cores than that of the first one, in the order in which they came.
#[derive(Default)]
struct Aside {
    frames: Vec<(usize, Bytes)>,
    /// The cores that they are for, a bit for each.
    cores: u64,
}

thread_local! {
    /// Room of the last frames that were put aside on this thread: as it ends there may be none.
    static ROOM: RefCell<Vec<(usize, Bytes)>> = RefCell::default();
}

/// Most frames whose room is kept.
const ROOM_MAX: usize = 4_096;

impl Aside {
    fn push(&mut self, core: usize, frame: Bytes) {
        if self.frames.is_empty() {
            self.frames = ROOM.try_with(RefCell::take).unwrap_or_default();
        }
        self.cores |= 1 << core;
        self.frames.push((core, frame));
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.frames.is_empty() && self.frames.capacity() <= ROOM_MAX {
            self.frames.clear();
            let _ = ROOM.try_with(|room| room.replace(std::mem::take(&mut self.frames)));
        }
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
        let taken = self.give(intake, &mut aftermath);
        if aftermath.is_closing {
            self.note_come(intake.link());
        }
        self.finish(&mut aftermath);
        taken
    }

    /// Gives the core of the first frame its own as they come, most often all, then each other core
    /// what was put aside for it meanwhile.
    fn give(&self, intake: &mut Intake<'_>, aftermath: &mut Aftermath) -> Result<(), String> {
        let Some((first, frame)) = intake.next()? else { return Ok(()) };
        let mut aside = Aside::default();
        // Once frames are put aside: how many were before the request of each task that starts.
        let mut order: Vec<usize> = Vec::new();
        let mut taken = self.visit(first, aftermath, |core, now, aftermath| {
            let Some(link) = self.link_of(core, intake) else { return Ok(()) };
            core.take(now, link, frame)?;
            let start_count = |core: &Core| aftermath.starts.len() + core.node.start_count();
            let taken = loop {
                match intake.next() {
                    Ok(Some((index, frame))) if index == first => {
                        if let Err(fault) = core.take(now, link, frame) {
                            break Err(fault);
                        }
                    }
                    Ok(Some((index, frame))) => {
                        order.resize(start_count(core), aside.frames.len());
                        aside.push(index, frame);
                    }
                    Ok(None) => break Ok(()),
                    Err(fault) => break Err(fault),
                }
            };
            if !aside.frames.is_empty() {
                order.resize(start_count(core), aside.frames.len());
            }
            taken
        });
        if aside.frames.is_empty() {
            return taken; // As most often.
        }
        let cores = (0..self.cores.routes.len()).filter(|core| aside.cores & 1 << core != 0);
        for index in cores {
            // Those that the node before has started itself come behind.
            order.resize(aftermath.starts.len(), usize::MAX);
            let own = aside.frames.iter_mut().enumerate().filter(|(_, (core, _))| *core == index);
            taken = taken.and(self.visit(index, aftermath, |core, now, aftermath| {
                let Some(link) = self.link_of(core, intake) else { return Ok(()) };
                for (place, (_, frame)) in own {
                    core.take(now, link, std::mem::take(frame))?;
                    order.resize(aftermath.starts.len() + core.node.start_count(), place);
                }
                Ok(())
            }));
        }
        if !order.is_sorted() {
            order.resize(aftermath.starts.len(), usize::MAX);
            let mut starts: Vec<_> = order.into_iter().zip(aftermath.starts.drain(..)).collect();
            starts.sort_by_key(|(place, _)| *place);
            aftermath.starts.extend(starts.into_iter().map(|(_, start)| start));
        }
        taken
    }

    /// The name that a core has for the connection of a batch, unless that is over. The core has
    /// then heard what the others have taken for its peer.
    fn link_of(&self, core: &mut Core, intake: &Intake<'_>) -> Option<LinkId> {
        let link = core.connections().id(intake.peer, intake.nonce)?;
        self.cores.hear(core, link);
        Some(link)
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
