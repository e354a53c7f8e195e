//! Notices of chunks that go by relays, and complaints: proof, or blame.

use convoke_core::time::Timestamp;

use crate::event::{Event, Evidence, Fault};
use crate::proof::Proof;
use crate::site::{Site, SiteSet};
use crate::wire::{Data, Flaw, Forward, Frame, Missed, Notice};

use super::{Control, OverlayNode};

impl OverlayNode {
    /// A frame of the own stream leaves by a relay: those behind it are told what comes to them.
    pub(super) fn announce(&mut self, relay: Site, data: &Data) {
        let behind = match data.forward {
            Forward::Nobody => return,
            Forward::AllOthers => SiteSet::first(self.sites).without(self.me).without(relay),
            Forward::To(sites) => sites,
        };
        let chunk = (data.seq(), self.sender.digest(data));
        for site in behind.intersection(self.sendable()).iter() {
            self.notices.entry((site, relay)).or_default().push_back(chunk);
            self.control.insert((site, Control::Notice(relay)));
        }
    }

    pub(super) fn make_notice(&mut self, to: Site, relay: Site) -> Option<Frame> {
        let chunks = self.notices.get_mut(&(to, relay))?;
        let count = chunks.len().min(Notice::CHUNKS_MAX);
        let first = chunks.drain(..count).collect();
        match chunks.is_empty() {
            true => drop(self.notices.remove(&(to, relay))),
            false => drop(self.control.insert((to, Control::Notice(relay)))),
        }
        let life = self.sender.id(0).life;
        Some(Frame::Notice(Notice { life, relay, chunks: first }))
    }

    pub(super) fn make_missed(&mut self, source: Site, relay: Site, flaw: Flaw) -> Option<Frame> {
        let mut seqs = self.missed.remove(&(source, relay, flaw))?;
        let life = self.receiver.life_of(source)?;
        if let Some(next) = seqs.iter().nth(Notice::CHUNKS_MAX).copied() {
            let rest = seqs.split_off(&next);
            self.missed.insert((source, relay, flaw), rest);
            self.control.insert((source, Control::Missed(relay, flaw)));
        }
        let seqs = seqs.into_iter().collect();
        Some(Frame::Missed(Missed { life, relay, flaw, seqs }))
    }

    pub(super) fn on_notice(
        &mut self,
        now: Timestamp,
        source: Site,
        notice: Notice,
    ) -> Result<(), Fault> {
        let Notice { life, relay, chunks } = notice;
        if relay.index() >= self.sites || relay == self.me || relay == source {
            return Err(Fault::Site { site: relay });
        }
        for chunk in chunks {
            if !self.receiver.wants(source, life, chunk.0) {
                continue;
            }
            for (from, data) in self.proofs.on_notice(now, source, life, relay, chunk) {
                // What is wrong is the doing of who brought it, and held against that one.
                let _ = self.prove(now, from, data);
            }
        }
        Ok(())
    }

    /// A chunk that did not come from its source: taken only if it is what the source says.
    pub(super) fn prove(&mut self, now: Timestamp, from: Site, data: Data) -> Result<(), Fault> {
        let (op, seq) = (data.op, data.seq());
        if self.proofs.is_late(now, from, &data) {
            self.note_missed(op.source, from, Flaw::Late, vec![seq]);
        }
        if !self.receiver.wants(op.source, op.life, seq) {
            self.counters.duplicates += 1;
            if !self.reach.reached().contains(op.source) {
                // Who passes on its acknowledgements may have lost them.
                self.receiver.note_copy(now, op.source, op.life);
                self.poll_acks(now);
            }
            return Ok(());
        }
        match self.proofs.check(&data) {
            Proof::Right if self.is_full(op.source) => {
                self.find_no_room(now, from, op, seq, data.payload.len());
                Ok(())
            }
            Proof::Right => self.receive(now, from, data),
            Proof::None => {
                self.proofs.hold(from, data);
                Ok(())
            }
            Proof::Wrong => {
                self.counters.changed += 1;
                self.note_missed(op.source, from, Flaw::Changed, vec![seq]);
                Err(Fault::Changed { relay: from, op })
            }
        }
    }

    pub(super) fn note_missed(&mut self, source: Site, relay: Site, flaw: Flaw, seqs: Vec<u64>) {
        if self.sendable().contains(source) {
            self.missed.entry((source, relay, flaw)).or_default().extend(seqs);
            self.control.insert((source, Control::Missed(relay, flaw)));
        }
    }

    /// Relays that should have brought something by now.
    pub(super) fn poll_missed(&mut self, now: Timestamp) {
        while let Some((source, relay, seqs)) = self.proofs.poll_missed(now) {
            self.counters.missed += seqs.len() as u64;
            self.note_missed(source, relay, Flaw::Absent, seqs);
        }
    }

    /// A receiver has missed what a relay was to bring: it gets it directly, at once.
    pub(super) fn on_missed(&mut self, now: Timestamp, by: Site, missed: Missed) {
        let Missed { life, relay, flaw, seqs } = missed;
        // A relay has no word in what is held against it.
        if life != self.sender.id(0).life || relay == by {
            return;
        }
        let (is_changed, was_here) = (flaw == Flaw::Changed, flaw != Flaw::Absent);
        let evidence = if is_changed { Evidence::Changed { by } } else { Evidence::Missed { by } };
        for seq in seqs {
            if flaw == Flaw::Late {
                self.on_late(now, relay, by);
            } else if flaw == Flaw::Full && relay == self.me {
                if self.sender.on_room(seq, by) {
                    self.send_again(seq, SiteSet::EMPTY.with(by));
                }
            } else if flaw == Flaw::Full {
                if let Some(is_proven) = self.sender.on_full(seq, (relay, by)) {
                    self.send_again(seq, SiteSet::EMPTY.with(by));
                    if is_proven {
                        self.note_proven(now, relay, seq);
                    }
                }
            } else if self.sender.on_missed(now, seq, (relay, by), was_here) {
                self.send_again(seq, SiteSet::EMPTY.with(by));
                // It has said so, or it is being left, and what it still has to forward has no rate
                // in the plan.
                let has_said = self.reach.unreached_by(relay).contains(by);
                let is_left = self.routes.failing().contains(relay);
                if has_said || (is_left && self.trust.is_trusted(relay)) {
                    continue;
                }
                self.blame_missed(now, seq, (relay, by), evidence);
            }
        }
        if matches!(flaw, Flaw::Absent | Flaw::Changed) {
            self.leave_helper(now, relay, by);
        }
    }

    /// A receiver has not got from a relay what that was to bring it.
    pub(super) fn blame_missed(
        &mut self,
        now: Timestamp,
        seq: u64,
        (relay, by): (Site, Site),
        evidence: Evidence,
    ) {
        let is_changed = matches!(evidence, Evidence::Changed { .. });
        let relays_max = self.sites.saturating_sub(2);
        let is_new = self.trust.on_missed(now, (relay, by), seq, is_changed, relays_max);
        self.suspect(now, relay, is_new, evidence);
    }

    /// All behind a relay have what it was sent.
    pub(super) fn note_proven(&mut self, now: Timestamp, relay: Site, seq: u64) {
        if self.trust.on_acked(now, relay, seq) {
            self.events.push_back(Event::Trusted { relay, by: self.me });
            self.on_reach_changed(now);
        }
    }

    /// Takes back the blame for a chunk that has come: its relay queues.
    fn on_late(&mut self, now: Timestamp, relay: Site, by: Site) {
        if self.trust.on_late(now, relay, by) {
            self.events.push_back(Event::Trusted { relay, by: self.me });
            self.on_reach_changed(now);
        }
    }

    /// Repeats the notices of all that is on its way to a site by relays: it may not have heard of
    /// them.
    pub(super) fn announce_again(&mut self, site: Site) {
        for (relay, chunk) in self.sender.relayed_to(site) {
            self.notices.entry((site, relay)).or_default().push_back(chunk);
            self.control.insert((site, Control::Notice(relay)));
        }
    }

    /// Leaves a relay that has failed, if it was trusted until now; none: nothing new.
    pub(super) fn suspect(
        &mut self,
        now: Timestamp,
        relay: Site,
        is_new: Option<bool>,
        evidence: Evidence,
    ) {
        let Some(is_new) = is_new else { return };
        self.sender.back_off(relay);
        if is_new {
            self.counters.suspicions += 1;
            self.events.push_back(Event::Suspect { relay, by: self.me, evidence });
            self.on_reach_changed(now);
            self.route_around(now, relay);
        }
    }
}
