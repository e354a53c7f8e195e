//! Joining and parting of queue pairs: what rdma_cm does.

use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;

use super::address_of;
use super::state::{Condition, DeviceId, End, EndCondition, EndId, State};
use crate::ffi::slab::Slab;
use crate::provider::{INVALID, QueuePairSettings, Tag, VerbsError};

/// An event before it has the handles of the outside.
#[derive(Debug)]
pub(super) enum Noted {
    Request {
        listener: Tag,
        from: EndId,
        peer: SocketAddr,
        local: SocketAddr,
        private_data: Vec<u8>,
    },
    Resolved {
        tag: Tag,
        local: SocketAddr,
    },
    Established {
        tag: Tag,
        private_data: Vec<u8>,
    },
    Rejected {
        tag: Tag,
        is_by_listener: bool,
        private_data: Vec<u8>,
    },
    Disconnected {
        tag: Tag,
    },
    DeviceLost {
        error: VerbsError,
    },
}

pub(super) struct Listening {
    pub(super) device: DeviceId,
    tag: Tag,
    backlog: u16,
    /// Requests that were neither accepted nor rejected.
    waiting: Vec<EndId>,
}

impl State {
    pub(super) fn listen(
        &mut self,
        device: DeviceId,
        tag: Tag,
        mut address: SocketAddr,
        backlog: u16,
    ) -> Result<SocketAddr, VerbsError> {
        self.working(device)?;
        if address.port() == 0 {
            address.set_port(self.next_port);
            self.next_port += 1;
        }
        if self.listeners.contains_key(&address) {
            return Err(VerbsError::Address(format!("{address} is in use")));
        }
        self.listeners.insert(address, Listening { device, tag, backlog, waiting: Vec::new() });
        Ok(address)
    }

    pub(super) fn close_listener(&mut self, address: SocketAddr) {
        let Some(listening) = self.listeners.remove(&address) else { return };
        let device = &mut self.devices[listening.device.0];
        device.events.retain(|(_, noted)| {
            !matches!(noted, Noted::Request { listener, .. } if *listener == listening.tag)
        });
        for from in listening.waiting {
            self.reject(from, false, &[]);
        }
    }

    pub(super) fn dial(
        &mut self,
        device: DeviceId,
        tag: Tag,
        target: SocketAddr,
        settings: QueuePairSettings,
        slab: Arc<Slab>,
    ) -> Result<EndId, VerbsError> {
        let end = self.add_end(device, tag, settings, slab)?;
        self.end_mut(end).target = Some(target);
        let local = SocketAddr::new(address_of(device), 0);
        self.note(device, Some(end), Noted::Resolved { tag, local });
        Ok(end)
    }

    pub(super) fn connect(&mut self, id: EndId, private_data: &[u8]) -> Result<(), VerbsError> {
        let end = self.end_mut(id);
        let (device, target) = (end.device, end.target);
        let target = target.expect("only a dialled end connects");
        self.working(device)?;
        let wildcard = SocketAddr::new(
            if target.is_ipv4() { [0; 4].into() } else { [0; 16].into() },
            target.port(),
        );
        let at = [target, wildcard].into_iter().find(|at| self.listeners.contains_key(at));
        let Some(listening) = at.and_then(|at| self.listeners.get_mut(&at)) else {
            self.reject(id, false, &[]);
            return Ok(());
        };
        let (listener, to) = (listening.tag, listening.device);
        if listening.waiting.len() >= usize::from(listening.backlog) {
            self.reject(id, false, &[]);
            return Ok(());
        }
        listening.waiting.push(id);
        if !self.is_linked(device, to) {
            // Nobody answers.
            return Ok(());
        }
        // What rdma_cm gives: always as long as fits, padded.
        let mut padded = private_data.to_vec();
        padded.resize(crate::provider::REQUEST_DATA_BYTES_MAX, 0);
        let peer = SocketAddr::new(address_of(device), 1);
        let noted =
            Noted::Request { listener, from: id, peer, local: target, private_data: padded };
        self.note(to, Some(id), noted);
        Ok(())
    }

    pub(super) fn prepare(
        &mut self,
        device: DeviceId,
        tag: Tag,
        from: EndId,
        settings: QueuePairSettings,
        slab: Arc<Slab>,
    ) -> Result<EndId, VerbsError> {
        let id = self.add_end(device, tag, settings, slab)?;
        self.end_mut(id).peer = Some(from);
        self.answered(from);
        Ok(id)
    }

    pub(super) fn accept(&mut self, id: EndId, private_data: &[u8]) -> Result<(), VerbsError> {
        let end = self.end_mut(id);
        end.condition = EndCondition::Connected;
        let (device, tag, from) = (end.device, end.tag, end.peer);
        self.working(device)?;
        let dialler = from.and_then(|from| self.ends.get_mut(&from));
        let Some(dialler) = dialler.filter(|dialler| !dialler.is_failed()) else {
            self.note(device, Some(id), Noted::Disconnected { tag });
            return Ok(());
        };
        dialler.condition = EndCondition::Connected;
        dialler.peer = Some(id);
        let (to, tag) = (dialler.device, dialler.tag);
        let mut padded = private_data.to_vec();
        padded.resize(crate::provider::ACCEPT_DATA_BYTES_MAX, 0);
        self.note(to, from, Noted::Established { tag, private_data: padded });
        Ok(())
    }

    pub(super) fn reject(&mut self, from: EndId, is_by_listener: bool, private_data: &[u8]) {
        self.answered(from);
        let Some(end) = self.ends.get_mut(&from) else { return };
        end.condition = EndCondition::Failed { is_disconnected: true };
        let (device, tag) = (end.device, end.tag);
        let private_data = private_data.to_vec();
        self.note(device, Some(from), Noted::Rejected { tag, is_by_listener, private_data });
        self.flush_end(from);
    }

    pub(super) fn disconnect(&mut self, id: EndId) {
        let end = self.end_mut(id);
        if end.condition == (EndCondition::Failed { is_disconnected: true }) {
            return;
        }
        let was_fresh = end.condition == EndCondition::Fresh;
        end.condition = EndCondition::Failed { is_disconnected: true };
        let peer = end.peer;
        if was_fresh {
            self.forget_request(id);
        }
        self.flush_end(id);
        self.part(id, peer);
    }

    pub(super) fn destroy(&mut self, id: EndId) {
        self.forget_request(id);
        let Some(end) = self.ends.remove(&id) else { return };
        let device = &mut self.devices[end.device.0];
        device.reserved -= end.settings.sends_max + end.settings.receives_max;
        device.events.retain(|(about, _)| *about != Some(id));
        device.finished.retain(|finished| finished.end != id);
        self.under_way.retain(|Reverse((_, under_way))| *under_way != id);
        if end.condition == EndCondition::Connected || end.is_failed() {
            self.part_from(end.device, end.peer);
        }
    }

    pub(super) fn poll_event(&mut self, id: DeviceId) -> Option<Noted> {
        let device = &mut self.devices[id.0];
        if device.condition == Condition::Killed {
            return None;
        }
        let (about, noted) = device.events.pop_front()?;
        if let Noted::Established { .. } = noted {
            self.confirm(about);
        }
        Some(noted)
    }

    /// The dialling end has heard that it is accepted; then the accepting end hears it, too.
    fn confirm(&mut self, dialler: Option<EndId>) {
        let acceptor = dialler.and_then(|id| self.ends.get(&id)?.peer);
        let Some((acceptor, end)) = acceptor.and_then(|id| Some((id, self.ends.get(&id)?))) else {
            return;
        };
        if end.target.is_none() {
            let (device, tag) = (end.device, end.tag);
            self.note(device, Some(acceptor), Noted::Established { tag, private_data: Vec::new() });
        }
    }

    /// Tells an end that its peer is gone. Nothing of it is flushed by that.
    pub(super) fn note_disconnected(&mut self, id: EndId) {
        let Some(end) = self.ends.get(&id) else { return };
        let (device, tag) = (end.device, end.tag);
        self.note(device, Some(id), Noted::Disconnected { tag });
    }

    fn part(&mut self, id: EndId, peer: Option<EndId>) {
        let device = self.end_mut(id).device;
        let answers = self.part_from(device, peer);
        if answers {
            self.note_disconnected(id);
        }
    }

    /// Tells the peer, if it can be told; answers whether there is nobody left to answer.
    fn part_from(&mut self, device: DeviceId, peer: Option<EndId>) -> bool {
        let Some((peer, end)) = peer.and_then(|id| Some((id, self.ends.get(&id)?))) else {
            return true;
        };
        if !self.is_linked(device, end.device) {
            return false;
        }
        let has_disconnected = end.condition == (EndCondition::Failed { is_disconnected: true });
        self.note_disconnected(peer);
        has_disconnected
    }

    /// A request that is no longer wanted by whoever made it.
    fn forget_request(&mut self, from: EndId) {
        self.answered(from);
        for device in &mut self.devices {
            device.events.retain(
                |(_, noted)| !matches!(noted, Noted::Request { from: of, .. } if *of == from),
            );
        }
    }

    fn answered(&mut self, from: EndId) {
        for listening in self.listeners.values_mut() {
            listening.waiting.retain(|waiting| *waiting != from);
        }
    }

    fn add_end(
        &mut self,
        device_id: DeviceId,
        tag: Tag,
        settings: QueuePairSettings,
        slab: Arc<Slab>,
    ) -> Result<EndId, VerbsError> {
        self.limits(device_id).check(&settings)?;
        let device = self.working(device_id)?;
        let needed = settings.sends_max.saturating_add(settings.receives_max);
        let limits = device.settings;
        if settings.inline_bytes > limits.inline_bytes_max {
            let message = format!("at most {} bytes go inline", limits.inline_bytes_max);
            return Err(VerbsError::System { call: "create_qp", code: INVALID, message });
        }
        if device.reserved.saturating_add(needed) > limits.completions_max {
            let advice = format!("its completion queue holds {}", limits.completions_max);
            return Err(VerbsError::Exhausted { what: "queue pairs", advice });
        }
        device.reserved += needed;
        let id = EndId(self.next_end);
        self.next_end += 1;
        self.ends.insert(id, End::new(device_id, tag, slab, settings));
        Ok(id)
    }

    pub(super) fn end_mut(&mut self, id: EndId) -> &mut End {
        self.ends.get_mut(&id).expect("an end lives as long as its queue pair")
    }
}

impl End {
    fn new(device: DeviceId, tag: Tag, slab: Arc<Slab>, settings: QueuePairSettings) -> Self {
        Self {
            device,
            tag,
            slab,
            settings,
            condition: EndCondition::Fresh,
            peer: None,
            target: None,
            receives: std::collections::VecDeque::new(),
            sends: std::collections::VecDeque::new(),
            sends_posted: 0,
            sends_retired: 0,
            receives_open: 0,
        }
    }
}
