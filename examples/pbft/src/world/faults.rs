//! The network and its faults, crashes, and the end of both.

use std::time::Duration;

use convoke::NodeId;

use super::{Event, HostId, Violation, World};
use crate::core::{Handover, Message, Outcome, Reply, Signed, SignedRequest, Trust, View};

impl World {
    /// Sends words to a member, as a replica wants it, or what its liar makes of it.
    pub(super) fn send(&mut self, from: HostId, to: NodeId, message: Signed<Message>) {
        let node = from.0;
        if to == node {
            let pause = self.random.micros(1..100);
            return self.schedule.after(pause, Event::Message { from: node, to: from, message });
        }
        let Some(liar) = self.liars.get_mut(&node) else {
            return self.transmit(node, to, message);
        };
        let is_heard = !self.menu.habits.is_twins || liar.side(to) == from.1;
        let said = match is_heard {
            true => liar.say(&mut self.random, &self.menu, to, message),
            false => Vec::new(),
        };
        for message in said {
            self.transmit(node, to, message);
        }
        if self.random.per_mille(self.menu.habits.invented_per_mille) {
            let liar = &self.liars[&node];
            let request = liar.invent(&mut self.random, &self.menu);
            if self.menu.trust == Trust::Channels {
                let words = liar.vouch(&mut self.random, &request);
                self.transmit(node, to, words);
            }
            self.deliver_request(node, to, request);
        }
    }

    /// Tells a node how an epoch has ended.
    pub(super) fn hand_over(&mut self, from: NodeId, to: NodeId, handover: Handover) {
        for pause in self.pauses(Some(from), to) {
            let (to, handover) = ((to, self.side(to, from)), handover.clone());
            self.schedule.after(pause, Event::HandOver { to, handover });
        }
    }

    /// Sends words as they are.
    fn transmit(&mut self, from: NodeId, to: NodeId, message: Signed<Message>) {
        self.report.messages += 1;
        if let Some(liar) = self.liars.get_mut(&to) {
            liar.hear(&message);
        }
        for pause in self.pauses(Some(from), to) {
            let to = (to, self.side(to, from));
            self.schedule.after(pause, Event::Message { from, to, message: message.clone() });
        }
    }

    /// The twin of a member that hears another.
    fn side(&self, of: NodeId, other: NodeId) -> u8 {
        let liar = self.liars.get(&of).filter(|_| self.menu.habits.is_twins);
        liar.map_or(0, |liar| liar.side(other))
    }

    /// Times until copies of a message arrive: none when it is lost.
    fn pauses(&mut self, from: Option<NodeId>, to: NodeId) -> Vec<Duration> {
        let is_cut = from.is_some_and(|from| self.cuts.contains(&(from, to)));
        let copies = if is_cut { 0 } else { self.menu.network.copies(&mut self.random) };
        (0..copies).map(|_| self.pause(from)).collect()
    }

    fn pause(&mut self, from: Option<NodeId>) -> Duration {
        let pause = self.menu.network.delay(&mut self.random);
        let is_liar = from.is_some_and(|from| self.is_liar(from));
        if is_liar && self.random.chance(self.menu.habits.late_percent) {
            // Just under a timeout, or just over it.
            return self.timeout() * u32::try_from(self.random.within(90..115)).unwrap_or(100)
                / 100;
        }
        self.menu.network.late(&mut self.random, pause)
    }

    pub(super) fn send_request(&mut self, from: NodeId, to: NodeId, request: SignedRequest) {
        self.deliver_request(from, to, request);
    }

    pub(super) fn deliver_request(&mut self, from: NodeId, to: NodeId, request: SignedRequest) {
        self.report.messages += 1;
        // Links of clients are not cut.
        let member = Some(from).filter(|from| self.keys.group().contains(*from));
        for pause in self.pauses(member, to) {
            // Of twins each hears of some requests.
            let is_second = self.menu.habits.is_twins && self.is_liar(to) && self.random.chance(50);
            let to = (to, u8::from(is_second));
            self.schedule.after(pause, Event::Request { from, to, request: request.clone() });
        }
    }

    pub(super) fn send_reply(&mut self, node: NodeId, mut reply: Reply) {
        if self.is_liar(node) && self.random.per_mille(self.menu.habits.tampered_per_mille) {
            reply.outcome = Outcome::Done("a lie".into());
        }
        if self.is_liar(node) && self.random.per_mille(self.menu.habits.forged_per_mille) {
            self.forge_replies(node, reply.clone());
        }
        let signed = self.keys.sign_replies(&self.signers[&node], node, [reply]);
        let pause = self.menu.network.delay(&mut self.random);
        if !self.random.per_mille(self.menu.network.lost_per_mille) {
            for reply in signed {
                self.schedule.after(pause, Event::Reply { from: node, reply });
            }
        }
    }

    /// Sends a client the same lie in the name of all.
    fn forge_replies(&mut self, node: NodeId, mut reply: Reply) {
        reply.outcome = Outcome::Done("a lie of all".into());
        for member in self.keys.group().members().to_vec() {
            for reply in self.keys.sign_replies(&self.signers[&node], member, [reply.clone()]) {
                self.schedule.after(Duration::ZERO, Event::Reply { from: node, reply });
            }
        }
    }

    pub(super) fn run_faults(&mut self) -> Result<(), Violation> {
        self.schedule.after(Duration::ZERO, Event::Fault);
        let end = self.schedule.now() + self.menu.faulty_for;
        while self.step(end)? {}
        Ok(())
    }

    pub(super) fn fault(&mut self) {
        let pause = self.random.micros(self.menu.fault_us.clone());
        self.schedule.after(pause, Event::Fault);
        self.liars.values_mut().for_each(|liar| liar.divide(&mut self.random));
        if self.is_healed {
            return;
        }
        let members: Vec<NodeId> = self.signers.keys().copied().collect();
        let node = members[self.random.index(members.len())];
        let other = members[self.random.index(members.len())];
        let draw = u32::try_from(self.random.within(0..100)).unwrap_or(0);
        match draw {
            draw if draw < self.menu.crash => self.crash(node),
            draw if draw < self.menu.crash + self.menu.cut / 2 => {
                self.cuts.extend(members.iter().flat_map(|of| [(node, *of), (*of, node)]));
            }
            draw if draw < self.menu.crash + self.menu.cut => {
                self.cuts.insert((node, other));
            }
            _ => self.cuts.clear(),
        }
    }

    /// Ends a member's process; it comes back after a while.
    pub(super) fn crash(&mut self, node: NodeId) {
        for twin in 0..2 {
            let longest = [3_000, 1_000_000][self.random.index(2)];
            let pause = self.random.micros(1_000..longest);
            let kept = self.random.draw();
            let host = (node, twin);
            if self.hosts.get_mut(&host).is_some_and(|host| host.crash(kept)) {
                self.report.crashes += 1;
                self.schedule.after(pause, Event::Restart { host });
            }
        }
    }

    /// Ends a member's process, which does not come back.
    pub(super) fn lose(&mut self, node: NodeId) {
        self.crash(node);
        self.away.insert(node);
    }

    /// Ends the faults, and wants every request executed, and views that stay.
    pub(super) fn run_healed(&mut self) -> Result<(), Violation> {
        self.heal();
        let missing = self.open();
        self.run_until(HEALS_WITHIN, |world| {
            missing.iter().all(|request| !world.open().contains(request))
        })?;
        let (epoch, view) = self.view();
        let end = self.schedule.now() + CALM_FOR.max(self.timeout() * 8);
        while self.step(end)? {}
        self.finish()?;
        let risen = match self.view() {
            (same, View(last)) if same == epoch => last - view.0,
            (_, View(last)) => last,
        };
        if risen > self.menu.nodes { Err(Violation::Unstable(risen)) } else { Ok(()) }
    }

    /// Has no more requests made, and wants every one executed.
    pub(super) fn finish(&mut self) -> Result<(), Violation> {
        self.is_closing = true;
        self.run_until(HEALS_WITHIN, |world| world.open().is_empty() && world.is_settled())
    }

    pub(super) fn run_until(
        &mut self,
        longest: Duration,
        is_reached: impl Fn(&Self) -> bool,
    ) -> Result<(), Violation> {
        let end = self.schedule.now() + longest;
        while !is_reached(self) {
            if !self.step(end)? {
                return Err(Violation::Stuck(self.describe()));
            }
        }
        Ok(())
    }

    /// Requests that have no outcome yet.
    fn open(&self) -> Vec<(u64, u64)> {
        let of = self.clients.iter();
        of.flat_map(|(id, client)| client.open().map(|number| (id.0, number))).collect()
    }

    fn heal(&mut self) {
        self.is_healed = true;
        self.cuts.clear();
        self.menu.network.heal();
        self.menu.crash_per_mille = 0;
        let members = self.final_members();
        let honest = members.iter().rev().filter(|node| !self.is_liar(**node)).copied();
        let last = honest.take(usize::try_from(self.menu.away).unwrap_or(0));
        let last: Vec<NodeId> = last.collect();
        for node in last {
            self.lose(node);
        }
        for host in self.hosts.keys().copied().collect::<Vec<_>>() {
            self.schedule.after(Duration::ZERO, Event::Restart { host });
        }
    }

    fn describe(&self) -> String {
        let state = |((node, twin), host): (&HostId, &super::Host)| {
            let Some(replica) = host.replica() else { return format!("{node}.{twin} is down") };
            let ((view, is_in), executed) = (replica.view(), replica.executed());
            let stable = replica.stable().checkpoint.sequence;
            let (is_in, timeout) = (if is_in { "in" } else { "before" }, replica.timeout());
            let epoch = replica.epoch();
            format!("{node}.{twin} {is_in} {epoch}.{view:?} {stable:?}..{executed:?} {timeout:?}")
        };
        let hosts: Vec<String> = self.hosts.iter().map(state).collect();
        format!("{}; open {:?}; liars {}", hosts.join(", "), self.open(), self.liars.len())
    }
}

/// In so much time without faults all that was asked has to be executed: views had four seconds to
/// fail, so that the timeout is at most about as long.
const HEALS_WITHIN: Duration = Duration::from_secs(90);

/// So long views are watched.
const CALM_FOR: Duration = Duration::from_secs(2);
