//! Changes of the members: who may ask, and what a leader does until a change is in force.

use std::time::Duration;

use convoke::NodeId;
use node_kit::durable::Held;

use super::super::ballot::{Ballot, Life, Slot, Value};
use super::super::leader::Role;
use super::super::membership::{Members, Part};
use super::super::message::{Answer, Ask};
use super::{Effect, NotLeading, NotProposed, Replica, Standing};
use crate::mutant::{self, Mutant};

impl Replica {
    /// Proposes other members, whose epoch is the next one. They are in force a window behind the
    /// slot in which that is chosen: see [`Effect::Membership`].
    ///
    /// # Errors
    /// [`NotProposed`]: nothing was done.
    pub fn change(&mut self, now: Duration, to: Members) -> Result<(Ballot, Slot), NotProposed> {
        let leader = self.leader();
        let Role::Leading(leading) = &self.role else {
            return Err(NotProposed::NotLeading(NotLeading { leader }));
        };
        let is_free = self.membership.as_ref().is_some_and(|membership| {
            let is_free = membership.next.is_none() && !leading.is_changing();
            let follows = to.epoch == membership.now.epoch + 1;
            follows && (is_free || mutant::is(Mutant::WindowsOverlap))
        });
        if self.room() > 0 && !is_free {
            return Err(NotProposed::Changing);
        }
        self.propose(now, Value::Change(to))
    }

    /// Voters of these members that this leader has not heard lately, where the others are no
    /// majority: once these members are in force, nothing is chosen until enough of them are back.
    pub fn unheard(&self, now: Duration, members: &Members) -> Vec<NodeId> {
        let Role::Leading(leading) = &self.role else { return Vec::new() };
        let lately = now.saturating_sub(self.settings.election_timeout);
        let is_heard = |node, life| leading.is_one((node, life), |of| of.heard >= lately);
        if members.is_majority(is_heard) {
            return Vec::new();
        }
        let unheard = members.voters().filter(|(node, life)| !is_heard(*node, *life));
        unheard.map(|(node, _)| node).collect()
    }

    /// True for a leader that has not had the time to hear all who are there.
    pub fn leads_anew(&self, now: Duration) -> bool {
        let timeout = self.settings.election_timeout;
        matches!(&self.role, Role::Leading(leading) if now < leading.since + timeout)
    }

    /// True when a majority of the voters of now is known to have in its ledgers that it is one:
    /// those who have left are not needed any more. Only a leader knows.
    pub fn is_settled(&self) -> bool {
        let (Role::Leading(leading), Some(membership)) = (&self.role, &self.membership) else {
            return false;
        };
        leading.is_known_upto(membership.since.before(), membership)
    }

    /// Refuses who is no member, and who asks for a configuration that is over: it may not know.
    pub(super) fn other_epoch(&self, from: NodeId, of: u64, ask: &Ask) -> Option<Answer> {
        let (epoch, chosen) = (self.epoch(), self.log.chosen());
        // A leader that was removed goes on until enough others know.
        let leads = self.followed == Some(from);
        let is_member = match &self.membership {
            Some(membership) => membership.contains(from) || leads,
            None => false,
        };
        let is_later = of > epoch || self.membership.is_none();
        let is_known = is_member || (is_later && self.settings.peers.contains(&from));
        let is_over = of < epoch && !leads && !matches!(ask, Ask::CatchUp { .. });
        let is_checked = matches!(ask, Ask::CatchUp { .. }) || !mutant::is(Mutant::EpochNotChecked);
        let is_refused = is_checked && (!is_known || is_over);
        is_refused.then_some(Answer::OtherEpoch { epoch, is_member, chosen })
    }

    /// Another node refuses to talk to this one as a member of its configuration. It says up to
    /// where the log is known, if it takes this one for a member.
    ///
    /// Voters that are refused go on to elect one of them, where they are a majority of the
    /// configuration that they know: so they learn what has removed them. They have chosen all
    /// slots before the first of the next configuration, so phase 1 finds each of these, or a node
    /// that knows it; and they decide no other, so nothing new is chosen, and no read is answered.
    /// One that stopped at each refusal, before the votes of the others came, would begin to lead
    /// again and again.
    pub(super) fn handle_other_epoch(
        &mut self,
        now: Duration,
        from: NodeId,
        epoch: u64,
        chosen: Option<Slot>,
    ) {
        let node = self.settings.node;
        let has_left = self.membership.as_ref().is_some_and(|members| !members.contains(node));
        let first = if has_left { self.epoch() } else { self.epoch() + 1 };
        if epoch < first {
            return;
        }
        match chosen {
            Some(chosen) if chosen > self.log.chosen() => self.is_behind(now, from, chosen),
            Some(_) => {}
            None => {
                // It may be wrong, if that was long ago: so this node tries again later, and goes
                // on to fetch a snapshot of another, which takes it for a member.
                if !self.is_fetching() {
                    self.behind = None;
                }
                self.defer_election(now);
                if !self.hears_leader(now) {
                    self.stand(Standing::Outside);
                }
            }
        }
    }

    /// Others are members from now on, or will be.
    pub(super) fn members_changed(&mut self) {
        let Some(membership) = self.membership.clone() else { return };
        if let Role::Leading(leading) = &mut self.role {
            // Of who joins anew the last word may be that of a ledger which was lost.
            let is_known = |node: &NodeId| {
                membership.contains(*node) && membership.now.part(*node) != Some(Part::Joining)
            };
            leading.followers.retain(|node, _| is_known(node));
        }
        self.effects.push_back(Effect::Membership(membership));
        self.ask_promises();
    }

    /// Asks voters of now and of the change under way who have not promised yet, if they are
    /// needed.
    fn ask_promises(&mut self) {
        let (Role::Leading(leading), Some(membership)) = (&self.role, &self.membership) else {
            return;
        };
        let prepared = &leading.prepared;
        let ballot = prepared.ballot;
        let next = membership.next.as_ref().map(|(_, members)| members);
        let open = [Some(&membership.now), next].into_iter().flatten();
        let missing: Vec<NodeId> = open
            .filter(|members| !prepared.is_prepared(members))
            .flat_map(Members::voters)
            .filter(|(node, life)| !prepared.has_promised(*node, *life))
            .map(|(node, _)| node)
            .filter(|node| *node != self.settings.node)
            .collect();
        let from = self.log.chosen().next();
        for node in missing {
            self.ask(node, Ask::Prepare { ballot, from });
        }
    }

    /// A leader brings a change to its end: with each round, until nothing is left to do.
    pub(super) fn tend(&mut self, now: Duration) {
        self.ask_promises();
        self.fill_up(now);
        self.let_vote(now);
        self.settle(now);
        self.retire();
    }

    /// Without load nothing says what the ledger of this node has.
    fn settle(&mut self, now: Duration) {
        if self.membership.is_none() || self.is_settled() {
            return;
        }
        let Role::Leading(leading) = &self.role else { return };
        let (ballot, first, beat) = (leading.ballot(), leading.proposed().next(), leading.beat);
        let own = self.accept(now, ballot, first, Vec::new(), beat);
        self.effects.push_back(Effect::Own(Held::new(own)));
    }

    /// A change is in force some slots later: without load they are filled with nothing.
    fn fill_up(&mut self, now: Duration) {
        let Some((first, _)) = self.membership.as_ref().and_then(|of| of.next.clone()) else {
            return;
        };
        let room = self.room();
        let Role::Leading(leading) = &mut self.role else { return };
        let missing = first.before().since(leading.proposed());
        for _ in 0..missing.min(room as u64) {
            leading.propose(Value::Noop);
        }
        self.ask_accepts(now, Duration::ZERO);
    }

    /// Members that are to vote, and have caught up, vote from the next change on.
    fn let_vote(&mut self, now: Duration) {
        let (Role::Leading(leading), Some(membership)) = (&self.role, &self.membership) else {
            return;
        };
        let near = self.log.chosen().0.saturating_sub(membership.window);
        let lately = now.saturating_sub(self.settings.election_timeout);
        let life_of = |node: &NodeId| -> Option<Life> {
            let follower = leading.followers.get(node)?;
            let is_near = follower.chosen >= Slot(near) && follower.heard >= lately;
            is_near.then_some(follower.life)
        };
        let mut members = membership.now.clone();
        members.epoch += 1;
        let mut is_new = false;
        for (node, member) in &mut members.nodes {
            if member.part == Part::Joining
                && let Some(life) = life_of(node)
            {
                member.part = Part::Voter(life);
                is_new = true;
            }
        }
        if is_new {
            let _ = self.change(now, members); // it is tried again with the next round
        }
    }

    /// A leader that is no voter any more stops when enough of them know, and nothing is open.
    pub(super) fn retire(&mut self) {
        let Role::Leading(leading) = &self.role else { return };
        let is_idle = leading.pending.is_empty();
        if self.membership.is_some() && !self.votes() && is_idle && self.is_settled() {
            self.hand_over();
            self.step_down();
        }
    }
}
