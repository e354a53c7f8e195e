//! Faults as they strike, and their end.

use std::time::Duration;

use convoke_proto::id::LinkNonce;
use convoke_proto::time::Timestamp;

use crate::network::Place;
use crate::oracle::TaskEnd;
use crate::scenario::Fault;

use super::World;
use super::event::Event;

impl World {
    pub(super) fn plan_faults(&mut self) {
        for injection in self.scenario.faults.clone() {
            self.schedule(Timestamp::ZERO + injection.at, Event::Fault(injection.fault));
        }
        self.schedule(Timestamp::ZERO + self.scenario.heal_at, Event::Heal);
    }

    pub(super) fn on_fault(&mut self, fault: &Fault) {
        if self.is_healed {
            return;
        }
        self.trace.note(self.now, || format!("fault {fault:?}"));
        self.oracle.last_fault = self.now;
        match *fault {
            Fault::Cut(one, other) => {
                for link in self.network.between(one, other) {
                    self.cut(link);
                }
            }
            Fault::Crash(place, after) => self.crash(place, after),
            Fault::Stop(place, after) => self.stop(place, after),
            Fault::Partition(from, to, time) => {
                self.block(from, to, time);
                if self.random.chance(50) {
                    self.block(to, from, time);
                }
            }
            Fault::Pause(place, time) => self.pause(place, time),
        }
    }

    fn crash(&mut self, place: Place, after: Duration) {
        let keep_alive = self.scenario.limits.keep_alive_timeout;
        if !self.hosts[place].is_up() {
            return;
        }
        self.forget_host(place);
        // The operating system says so at once, or the machine is gone and nothing comes any more.
        let is_silent = self.random.chance(20);
        for link in self.network.of(place) {
            if is_silent {
                self.network.cut(link);
                let peer = self.peer_end(link, place);
                self.schedule_in(keep_alive, Event::LinkDown { end: peer, link });
            } else {
                self.cut(link);
            }
        }
        self.schedule_in(after, Event::Restart(place));
    }

    /// All that a node knew is gone.
    pub(super) fn forget_host(&mut self, place: Place) {
        let host = &mut self.hosts[place];
        let id = host.id;
        host.cores.clear();
        host.stopping = None;
        host.is_paused = false;
        host.backlog.clear();
        host.wake_at = None;
        host.watched.clear();
        host.writers.clear();
        let (handlers, callers) =
            (std::mem::take(&mut host.handlers), std::mem::take(&mut host.callers));
        let answers = std::mem::take(&mut host.answers);
        self.oracle.troubled.insert(id);
        for task in handlers.keys().chain(answers.iter().map(|answer| &answer.task)) {
            let name = self.oracle.name(task);
            self.oracle.end(&name, TaskEnd::Crashed);
            self.oracle.hurt(&name);
        }
        for call in callers.keys() {
            if let Some(truth) = self.oracle.calls.get_mut(call) {
                truth.is_orphan = true;
            }
        }
    }

    pub(super) fn restart(&mut self, place: Place) {
        if !self.hosts[place].is_up() {
            self.hosts[place].start(&self.scenario, self.now);
            self.note_life(place);
            self.oracle.last_fault = self.now;
            self.trace.note(self.now, || format!("{} starts again", self.hosts[place].id));
            self.settle(place);
        }
    }

    fn pause(&mut self, place: Place, time: Duration) {
        let host = &mut self.hosts[place];
        if !host.is_up() || host.is_paused {
            return;
        }
        host.is_paused = true;
        host.paused_at = self.now;
        let id = host.id;
        self.oracle.troubled.insert(id);
        let keep_alive = self.scenario.limits.keep_alive_timeout;
        for link in self.network.of(place) {
            let to = self.peer_end(link, place).place;
            self.schedule_in(keep_alive, Event::KeepAlive { link, to, since: self.now });
        }
        self.schedule_in(time, Event::Resume(place, self.now));
    }

    /// A pause is over, if no crash has ended it: a later one goes on.
    pub(super) fn end_pause(&mut self, place: Place, since: Timestamp) {
        if self.hosts[place].paused_at == since {
            self.resume(place);
        }
    }

    /// A paused node goes on: its timers first, or what has come meanwhile.
    fn resume(&mut self, place: Place) {
        if !std::mem::replace(&mut self.hosts[place].is_paused, false) {
            return;
        }
        self.trace.note(self.now, || format!("{} goes on", self.hosts[place].id));
        self.oracle.resumed_at.insert(self.hosts[place].id, self.now);
        if self.random.chance(50) {
            self.hosts[place].wake_at = None;
            self.drive_each(place, |node, now| node.handle_timeout(now));
        }
        let backlog = std::mem::take(&mut self.hosts[place].backlog);
        backlog.into_iter().for_each(|event| self.handle(event));
    }

    fn block(&mut self, from: Place, to: Place, time: Duration) {
        if self.network.is_blocked(from, to) {
            return;
        }
        let now = self.now;
        self.network.block(from, to, true);
        self.blocked_since.insert((from, to), now);
        let keep_alive = self.scenario.limits.keep_alive_timeout;
        for link in self.network.between(from, to) {
            self.schedule_in(keep_alive, Event::KeepAlive { link, to, since: now });
        }
        self.schedule_in(time, Event::Unblock(from, to, now));
    }

    pub(super) fn unblock(&mut self, from: Place, to: Place, since: Timestamp) {
        if self.blocked_since.get(&(from, to)) != Some(&since) {
            return;
        }
        self.blocked_since.remove(&(from, to));
        self.network.block(from, to, false);
        let end = self.hosts[to].end();
        for link in self.network.between(from, to) {
            for (lane, frame) in self.network.release(to, link) {
                self.handle(Event::Frame { to: end, link, lane, frame });
            }
        }
    }

    /// `to` has heard nothing over a connection for the keep-alive timeout, if the reason still
    /// holds.
    pub(super) fn on_keep_alive(&mut self, link: LinkNonce, to: Place, since: Timestamp) {
        let peer = self.peer_end(link, to);
        let host = &self.hosts[peer.place];
        let is_blocked = self.blocked_since.get(&(peer.place, to)) == Some(&since);
        let is_paused = host.life == peer.life && host.is_paused && host.paused_at == since;
        if !is_blocked && !is_paused {
            return;
        }
        let end = self.peer_end(link, peer.place);
        self.network.cut(link);
        self.handle(Event::LinkDown { end, link });
        // The goodbye reaches the other end if it can; else that end's own timeout says the same.
        let delay = if self.network.is_blocked(to, peer.place) {
            self.scenario.limits.keep_alive_timeout
        } else {
            Duration::from_micros(self.random.within(0..2_000))
        };
        self.schedule_in(delay, Event::LinkDown { end: peer, link });
    }

    pub(super) fn peer_end(&self, link: LinkNonce, place: Place) -> crate::network::End {
        let wire = self.network.wire(link).expect("connections are never forgotten");
        wire.ends[1 - wire.side(place)]
    }

    /// Everything that is wrong ends.
    pub(super) fn heal(&mut self) {
        self.trace.note(self.now, || "all faults end".to_owned());
        self.is_healed = true;
        self.network.heal();
        for (from, to) in self.network.blocked() {
            let since = self.blocked_since[&(from, to)];
            self.unblock(from, to, since);
        }
        for place in 0..self.hosts.len() {
            self.close(place); // What stops has no more time.
            self.restart(place);
            self.resume(place);
        }
        self.plan_calls_after();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Injection, Kind, Scenario};
    use crate::trace::Trace;

    #[test]
    fn a_pause_that_a_crash_has_ended_ends_no_other() {
        let ms = Duration::from_millis;
        let faults = [
            (ms(10), Fault::Pause(0, ms(100))),
            (ms(50), Fault::Crash(0, ms(10))),
            (ms(70), Fault::Pause(0, ms(1_000))),
        ];
        let faults = faults.map(|(at, fault)| Injection { at, fault });
        let scenario = Scenario { faults: faults.into(), ..Scenario::with_kind(Kind::Calm, 1) };
        let mut world = World::new(scenario, Trace::hash_only());
        world.start();
        while world.now < Timestamp::ZERO + ms(200) && world.step() {}
        assert!(world.hosts[0].is_paused, "the first was to end after 110 ms");
    }
}
