//! Record of what is true: who broadcast what, who was given what, and what went over the wire.
//! Checked at every event.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use convoke_core::time::Timestamp;
use convoke_overlay::{
    Data, Event, Forward, Frame, Life, Limits, OpId, OverlayNode, Payload, Site, SiteSet,
};

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) at: Timestamp,
    pub(crate) payload: Bytes,
    /// Sites that it is for.
    pub(crate) to: SiteSet,
    is_body: bool,
    /// When it was delivered, by receiver; of its present life.
    pub(crate) delivered: BTreeMap<Site, Timestamp>,
    pub(crate) acked: SiteSet,
    /// All acknowledged, but for these.
    pub(crate) done: Option<SiteSet>,
}

/// Everything known.
#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) ops: BTreeMap<OpId, Op>,
    pub(crate) sent: Sent,
    pub(crate) gaps: BTreeMap<(Site, Site, Life), Vec<(u64, u64)>>,
    pub(crate) suspects: Vec<(Timestamp, Site, Site)>,
    pub(crate) trusted: Vec<(Timestamp, Site, Site)>,
    pub(crate) unavailable: Vec<(Site, OpId)>,
    /// Receivers may have operations that are not delivered yet: they wait for earlier ones, or for
    /// the application.
    pub(crate) may_wait: bool,
    /// Sites may be given bodies that are for others.
    pub(crate) may_stray: bool,
    /// Each source's operations come in order.
    pub(crate) is_fifo: bool,
    pub(crate) limits: Limits,
    resent: BTreeMap<Site, u64>,
    last: BTreeMap<(Site, Site, Life), u64>,
    crashed: BTreeSet<Site>,
    /// The life that a site has broadcast in last.
    lives: BTreeMap<Site, Life>,
    counter: u64,
    sites: usize,
}

/// Amounts that went over the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) frames: u64,
    pub(crate) payload: u64,
    pub(crate) heads: u64,
    pub(crate) repair_frames: u64,
    pub(crate) repair_payload: u64,
    pub(crate) relayed: u64,
    pub(crate) control: u64,
}

impl Oracle {
    pub(crate) fn new(sites: usize) -> Self {
        Self {
            ops: BTreeMap::new(),
            sent: Sent::default(),
            gaps: BTreeMap::new(),
            suspects: Vec::new(),
            trusted: Vec::new(),
            unavailable: Vec::new(),
            may_wait: false,
            may_stray: false,
            is_fifo: false,
            limits: Limits::default(),
            resent: BTreeMap::new(),
            last: BTreeMap::new(),
            crashed: BTreeSet::new(),
            lives: BTreeMap::new(),
            counter: 0,
            sites,
        }
    }

    /// A payload that no other is equal to.
    pub(crate) fn payload(&mut self, from: Site, len: usize) -> Bytes {
        self.counter += 1;
        let word = (self.counter << 8 | u64::from(from.0)).to_le_bytes();
        word.iter().copied().cycle().take(len).collect::<Vec<u8>>().into()
    }

    pub(crate) fn on_broadcast(
        &mut self,
        at: Timestamp,
        op: OpId,
        payload: Bytes,
        to: Option<SiteSet>,
    ) {
        self.lives.insert(op.source, op.life);
        let (delivered, acked) = (BTreeMap::new(), SiteSet::EMPTY);
        let is_body = to.is_some();
        let others = SiteSet::first(self.sites).without(op.source);
        let to = to.map_or(others, |to| to.intersection(others));
        let new = Op { at, payload, to, is_body, delivered, acked, done: None };
        let old = self.ops.insert(op, new);
        assert!(old.is_none(), "{op:?} names two operations");
    }

    pub(crate) fn on_crash(&mut self, site: Site) {
        self.crashed.insert(site);
        self.lives.remove(&site);
        self.ops.values_mut().for_each(|op| {
            op.delivered.remove(&site);
        });
        self.last.retain(|(at, _, _), _| *at != site);
    }

    pub(crate) fn check(&self, op: OpId, payload: Payload) {
        assert_eq!(payload.into_bytes(), self.ops[&op].payload, "{op:?} is kept changed");
    }

    pub(crate) fn has(&self, at: Site, op: OpId) -> bool {
        self.ops.get(&op).is_some_and(|op| op.delivered.contains_key(&at)) || op.source == at
    }

    pub(crate) fn on_event(&mut self, now: Timestamp, at: Site, event: Event) {
        match event {
            Event::Delivered { op: id, payload } => {
                let is_own = id.source == at && Some(id.life) == self.lives.get(&at).copied();
                assert!(
                    !is_own,
                    "own operations are not delivered, but for those of earlier lives"
                );
                let op = self.ops.get_mut(&id).expect("what is delivered was broadcast");
                assert_eq!(payload.is_body(), op.is_body, "{id:?} is of another kind at {at:?}");
                assert!(op.to.contains(at) || self.may_stray, "{id:?} is not for {at:?}");
                assert_eq!(payload.into_bytes(), op.payload, "{id:?} changed on its way to {at:?}");
                let old = op.delivered.insert(at, now);
                assert!(old.is_none(), "P11: {id:?} was delivered twice at {at:?}");
                let last = self.last.entry((at, id.source, id.life)).or_default();
                assert!(!self.is_fifo || id.seq >= *last, "{id:?} came after {last} at {at:?}");
                *last = id.seq;
            }
            Event::Acked { op: id, by, count } => {
                assert_eq!(id.source, at);
                let crashed = self.crashed.contains(&by);
                let op = self.ops.get_mut(&id).expect("what is acknowledged was broadcast");
                assert!(op.acked.len() < count && !op.acked.contains(by));
                let is_given = crashed || op.delivered.contains_key(&by);
                assert!(is_given || self.may_wait, "{by:?} has acknowledged {id:?} only");
                op.acked.insert(by);
            }
            Event::AllAcked { op: id, missed } => {
                let op = self.ops.get_mut(&id).expect("what is acknowledged was broadcast");
                assert_eq!(op.acked, op.to.difference(missed), "{id:?}");
                assert_eq!(op.done.replace(missed), None, "{id:?} ended twice");
            }
            Event::Gap { source, life, from, to } => {
                assert!(from < to);
                self.gaps.entry((at, source, life)).or_default().push((from, to));
            }
            Event::Suspect { relay, by, .. } if by == at => self.suspects.push((now, by, relay)),
            Event::Trusted { relay, by } if by == at => self.trusted.push((now, by, relay)),
            Event::Unavailable { op } => self.unavailable.push((at, op)),
            _ => {}
        }
    }

    /// P10, and what P15 counts.
    pub(crate) fn on_frame(&mut self, from: Site, to: Site, frame: &Frame) {
        assert_ne!(from, to);
        let Frame::Data(data) = frame else {
            self.sent.control += frame.encoded_len() as u64;
            return;
        };
        assert!(data.op.source != to || data.is_repair, "nobody is sent what is its own unasked");
        if data.forward != Forward::Nobody {
            self.on_relayed(from, to, data);
        }
        let sent = &mut self.sent;
        sent.frames += 1;
        sent.payload += data.payload.len() as u64;
        sent.heads += frame.head_len() as u64;
        if data.is_repair {
            sent.repair_frames += 1;
            sent.repair_payload += data.payload.len() as u64;
            *self.resent.entry(to).or_default() += data.payload.len() as u64;
        }
    }

    /// Payload bytes that were sent again to these.
    pub(crate) fn resent_to(&self, sites: SiteSet) -> u64 {
        sites.iter().filter_map(|site| self.resent.get(&site)).sum()
    }

    fn on_relayed(&mut self, from: Site, to: Site, data: &Data) {
        assert_eq!(from, data.op.source, "P10: a relay asks to forward");
        assert!(!data.is_repair, "what is sent again goes directly");
        if let Forward::To(sites) = data.forward {
            assert!(!sites.contains(from) && !sites.contains(to) && !sites.is_empty());
        }
        self.sent.relayed += 1;
    }

    /// Every bound, after every event.
    pub(crate) fn look(&self, site: Site, node: &OverlayNode) {
        let (load, limits) = (node.load(), &self.limits);
        let chunk = convoke_overlay::WHOLE_BYTES_MAX;
        assert!(load.unacked_bytes <= limits.unacked_bytes_max, "{site:?} {load:?}");
        assert!(load.unacked_chunks as u64 <= convoke_overlay::WINDOW, "{site:?} {load:?}");
        let root_max = limits.relay_bytes_root_max.min(limits.relay_bytes_max / self.sites);
        let root_max = 2 * root_max.max(chunk + 32) as u64;
        assert!(load.forward_bytes_root <= root_max, "{site:?} {load:?}");
        let reorder_max = limits.reorder_bytes_max + limits.payload_bytes_max + (8 << 10);
        assert!(load.reorder_bytes <= reorder_max, "{site:?} {load:?}");
        self.look_at_waiting(site, node, reorder_max + (4 << 10));
        assert!(load.held_bytes <= limits.held_bytes_max.max(limits.payload_bytes_max), "{load:?}");
        assert!(load.fetches <= limits.fetches_max, "{load:?}");
    }

    /// Bounds of what waits to be read. The last chunk that is taken of a source may bring all that
    /// its stream has, at most `burst`. Before that, one alone had eight ninths of the bound, and
    /// of several each its least share, or together no more than the bound.
    fn look_at_waiting(&self, site: Site, node: &OverlayNode, burst: usize) {
        let max = self.limits.undelivered_bytes_max;
        let waiting = |index: usize| node.waiting_bytes(Site(u16::try_from(index).unwrap()));
        let all: Vec<usize> = (0..self.sites).map(waiting).collect();
        let one_max = max / 9 * 8 + 9 + burst;
        assert!(all.iter().all(|waiting| *waiting <= one_max), "{site:?} {all:?}");
        let own = max / 8 / self.sites + burst;
        let shared: usize = all.iter().map(|waiting| waiting.saturating_sub(own)).sum();
        assert!(shared <= max, "{site:?} {all:?}");
    }

    /// Sites of `receivers` that have not been given something that `source` broadcast in this life
    /// of it, and that is still owed to them.
    pub(crate) fn missing(
        &self,
        source: Site,
        life: Life,
        receivers: SiteSet,
    ) -> Vec<(OpId, SiteSet)> {
        let of_source = |id: &OpId| id.source == source && id.life == life;
        let lacks = |(id, op): (&OpId, &Op)| {
            let has: SiteSet = op.delivered.keys().copied().collect();
            let missed = op.done.unwrap_or(SiteSet::EMPTY);
            (*id, receivers.intersection(op.to).difference(has).difference(missed))
        };
        let all = self.ops.iter().filter(|(id, _)| of_source(id)).map(lacks);
        all.filter(|(_, missing)| !missing.is_empty()).collect()
    }
}
