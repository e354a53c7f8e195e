//! View change: leaving a view, wanting the next one, and beginning it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use convoke::NodeId;

use super::Replica;
use super::fetching::ASKED_MAX;
use crate::core::group::{Digest, View};
use crate::core::keys::Signed;
use crate::core::message::{Batch, Fetch, Message, NewView, Record, ViewChange};
use crate::core::plan::{Plan, latest_stable};
use crate::core::sizes::is_small;
use crate::core::state::Machine;
use crate::mutant::{self, Mutant};

/// Clocks of a replica.
#[derive(Clone, Debug, Hash)]
pub(super) struct Clock {
    base: Duration,
    timeout: Duration,
    /// When the view began.
    entered: Duration,
    /// A view that a quorum wants has to begin until then.
    wait: Option<Duration>,
    /// This node has begun the view, as its primary.
    has_begun: bool,
    /// The longest that a request took since the one below.
    slowest: Option<Duration>,
    /// When the view began, or the timeout fell or was found not too long.
    watched: Duration,
    /// When to report the next time what is lacking.
    pub(super) tick: Duration,
}

impl Clock {
    pub(super) fn new(base: Duration) -> Self {
        let zero = Duration::ZERO;
        Self {
            base,
            timeout: base,
            entered: zero,
            wait: None,
            has_begun: false,
            slowest: None,
            watched: zero,
            tick: zero,
        }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// A view has begun: requests have all their time again.
    pub(super) fn enter(&mut self, now: Duration) {
        self.entered = now;
        self.wait = None;
        self.watch(now);
    }

    /// An epoch has begun, in its first view.
    pub(super) fn begin_epoch(&mut self, now: Duration) {
        self.enter(now);
        self.has_begun = false;
    }

    /// A view has failed.
    fn fail(&mut self) {
        self.wait = None;
        self.has_begun = false;
        self.slowest = None;
        if !mutant::is(Mutant::TimerNotDoubled) {
            self.timeout = (self.timeout * 2).min(self.base * DOUBLED_MAX);
        }
    }

    /// A request was executed.
    pub(super) fn took(&mut self, now: Duration, since: Duration) {
        self.slowest = self.slowest.max(Some(self.waited(now, since)));
    }

    /// A checkpoint is stable. Four times of what all requests took is enough, so the timeout does
    /// not fall so far that it rises again. What waits longest counts with them: those that were
    /// executed may be the fast ones alone. And they have to be of some time, [`CALM`]: those of a
    /// checkpoint may be a lucky few.
    pub(super) fn settle(&mut self, now: Duration, oldest: Option<Duration>) {
        let waits = oldest.map(|since| self.waited(now, since)).unwrap_or_default();
        let Some(slowest) = self.slowest.map(|slowest| slowest.max(waits)) else { return };
        let is_long = slowest * 4 < self.timeout;
        if is_long && now < self.watched + self.base * CALM {
            return;
        }
        if is_long {
            self.timeout = (self.timeout / 2).max(self.base);
        }
        self.watch(now);
    }

    /// Begins anew to look at how long requests take.
    fn watch(&mut self, now: Duration) {
        (self.watched, self.slowest) = (now, None);
    }

    /// The time that a request since then has had in its view.
    fn waited(&self, now: Duration, since: Duration) -> Duration {
        now.saturating_sub(since.max(self.entered))
    }

    /// When a request that waits since then has waited too long.
    fn due(&self, since: Duration) -> Duration {
        since.max(self.entered) + self.timeout
    }
}

/// The longest timeout, in shortest ones: about a minute of a second. What is slower than that is
/// no network to agree over, and whoever has come this far waits as long for each primary that is
/// gone once all is well again.
const DOUBLED_MAX: u32 = 64;

/// The time for which a timeout has to be too long before it is halved, in shortest ones. One that
/// fell too far costs a view, so no more than one in this time. The longest one comes down to the
/// shortest in ten times as much.
const CALM: u32 = 16;

impl<M: Machine> Replica<M> {
    /// When [`Replica::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Duration {
        self.change_due().map_or(self.clock.tick, |due| due.min(self.clock.tick))
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.forget_decided(); // a request that came too late never runs, and fails no view
        if self.change_due().is_some_and(|due| due <= now) {
            self.start_change(now, self.view.next());
        }
        if self.clock.tick <= now {
            self.clock.tick = now + self.settings.repeat;
            self.report(now);
        }
        self.hand_over(now);
        self.propose_more();
    }

    /// When the view has failed: a request, or the end of the epoch, has waited too long, or the
    /// view does not begin though a quorum wants it. A replica that fetches state judges nobody.
    fn change_due(&self) -> Option<Duration> {
        if self.is_changing {
            return self.clock.wait;
        }
        let waiting = self.requests.oldest().into_iter().chain(self.lingers_since()).min();
        let waiting = waiting.filter(|_| self.transfer.is_none() && self.takes_part());
        waiting.map(|since| self.clock.due(since))
    }

    /// Leaves all views before this one, and wants it.
    fn start_change(&mut self, now: Duration, view: View) {
        self.view = view;
        self.is_changing = true;
        self.clock.fail();
        self.drop_outlines();
        let change = Message::ViewChange(Arc::new(self.change()));
        self.say_after(Record::Left(view), change);
        self.wait_for_view(now);
    }

    /// Word of this node that it wants its view, and of all that is prepared here.
    pub(super) fn change(&self) -> ViewChange {
        let open = self.slots.range(self.low().next()..);
        let prepared = open.filter_map(|(_, slot)| slot.prepared.clone());
        let prepared = prepared.filter(|_| !mutant::is(Mutant::ProofsDropped)).collect();
        ViewChange { view: self.view, stable: self.stable.clone(), prepared }
    }

    pub(super) fn on_view_change(&mut self, now: Duration, signed: Signed<Arc<ViewChange>>) {
        let known = self.changes.get(&signed.by);
        let is_known = known.is_some_and(|known| known.body.view >= signed.body.view);
        // Those of others were measured before; its own would not be heard by others either.
        if is_known || !is_small(&signed.body, self.quorum()) {
            return;
        }
        self.changes.insert(signed.by, signed);
        self.join(now);
        self.wait_for_view(now);
    }

    /// Joins others: of f + 1 that want later views, one does not lie.
    fn join(&mut self, now: Duration) {
        let wanted = self.changes.values().map(|change| change.body.view);
        let later: Vec<View> = wanted.filter(|view| *view > self.view).collect();
        if later.len() >= self.group.witnesses()
            && let Some(first) = later.into_iter().min()
        {
            self.start_change(now, first);
        }
    }

    /// Once a quorum wants the view, or a later one, gives its primary a timeout. Those that want a
    /// later one have seen a quorum for this one, which others may not have been told of.
    fn wait_for_view(&mut self, now: Duration) {
        let views = self.changes.values().map(|change| change.body.view);
        let wanted = views.filter(|view| *view >= self.view).count();
        if self.is_changing && wanted >= self.quorum() && self.clock.wait.is_none() {
            self.clock.wait = Some(now + self.clock.timeout);
        }
        self.begin_as_primary();
    }

    /// Begins the view as its primary, once a quorum wants it whose batches are all here.
    ///
    /// A liar may show proof of a batch and give the batch to nobody: a view that began with it
    /// could not go on. Who does not lie has what its word proves, and gives it, so the words of
    /// those are enough; and in each quorum one of them proves what is committed.
    pub(super) fn begin_as_primary(&mut self) {
        if self.clock.has_begun {
            return;
        }
        let is_backed = |word: &&Signed<_>| {
            self.lacking_of(word).next().is_none() || mutant::is(Mutant::BegunWithoutBatches)
        };
        let backed = self.words_to_begin().filter(is_backed);
        let changes: Vec<_> = backed.take(self.quorum()).cloned().collect();
        if changes.len() >= self.quorum() {
            self.clock.has_begun = true;
            let new_view = NewView { view: self.view, changes };
            self.say(Message::NewView(Arc::new(new_view)));
        }
    }

    /// Words by which this node would begin the view, as its primary.
    pub(super) fn words_to_begin(&self) -> impl Iterator<Item = &Signed<Arc<ViewChange>>> {
        let is_to_begin = self.is_changing && self.is_primary();
        let of_view = move |word: &&Signed<Arc<ViewChange>>| word.body.view == self.view;
        self.changes.values().filter(move |_| is_to_begin).filter(of_view)
    }

    /// Batches with which the view begins where this word counts, but for what is stable here.
    pub(super) fn bound_by(&self, change: &ViewChange) -> impl Iterator<Item = Digest> {
        let low = self.low();
        let open = change.prepared.iter().filter(move |proof| proof.sequence > low);
        open.map(|proof| proof.digest)
    }

    fn lacking_of(&self, word: &Signed<Arc<ViewChange>>) -> impl Iterator<Item = Digest> {
        let null = Batch::null().digest();
        let bound = self.bound_by(&word.body);
        bound.filter(move |of| *of != null && !self.batches.contains_key(of))
    }

    /// Asks for batches that words prove and this node lacks, as who is to begin the view: one of
    /// those who show the proof of each, another one each time, so that a liar among them hides
    /// none for long. Some may be stable here by now.
    pub(super) fn fetch_to_begin(&mut self) {
        self.begin_as_primary();
        if self.clock.has_begun {
            return;
        }
        let mut provers = BTreeMap::<Digest, Vec<NodeId>>::new();
        for word in self.words_to_begin() {
            for digest in self.lacking_of(word) {
                provers.entry(digest).or_default().push(word.by);
            }
        }
        let turn = self.turn_to_begin;
        self.turn_to_begin += 1;
        let mut asked = BTreeMap::<NodeId, usize>::new();
        for (digest, of) in provers {
            let by = of[turn % of.len()];
            let count = asked.entry(by).or_default();
            *count += 1;
            if *count <= ASKED_MAX {
                self.tell(by, Message::Fetch(Fetch::Batch(digest)));
            }
        }
    }

    /// True for a batch that is lacking to begin the view.
    pub(super) fn is_to_begin_with(&self, digest: Digest) -> bool {
        let mut lacking = self.words_to_begin().flat_map(|word| self.lacking_of(word));
        lacking.any(|of| of == digest)
    }

    pub(super) fn on_new_view(&mut self, now: Duration, signed: Signed<Arc<NewView>>) {
        let view = signed.body.view;
        let is_primary = signed.by == self.group.primary(view);
        let is_next = view > self.view || (view == self.view && self.is_changing);
        if is_primary && is_next && view > View(0) {
            let stable = latest_stable(&signed.body).cloned();
            self.enter(signed);
            self.clock.enter(now);
            if let Some(stable) = stable {
                self.on_stable(now, stable);
            }
            self.begin();
        }
    }

    /// Is in a view from now on, and knows what it has to begin with.
    pub(super) fn enter(&mut self, signed: Signed<Arc<NewView>>) {
        self.view = signed.body.view;
        self.is_changing = false;
        self.plan = Plan::of(&signed.body);
        self.proposed = self.plan.high;
        self.slots.values_mut().for_each(|slot| slot.begin_view());
        self.requests.begin_view();
        self.doubted.clear();
        self.drop_outlines();
        self.append(Record::Entered(signed.clone()));
        self.entered = Some(signed);
    }

    /// Proposes again what the view has to begin with, or passes its primary what waits.
    fn begin(&mut self) {
        self.forget();
        if !self.is_primary() {
            return self.forward();
        }
        let open = self.plan.bound.range(self.low().next()..);
        for (sequence, digest) in open.map(|(at, of)| (*at, *of)).collect::<Vec<_>>() {
            let batch = self.batches.get(&digest).cloned();
            if let Some(batch) = &batch {
                self.mark_proposed(batch);
            }
            self.propose(sequence, digest, batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(60);

    /// A clock of which two views have failed, in one that began at zero.
    fn risen() -> Clock {
        let mut clock = Clock::new(BASE);
        clock.fail();
        clock.fail();
        clock.enter(Duration::ZERO);
        assert_eq!(clock.timeout(), BASE * 4);
        clock
    }

    /// A request that took a tenth of the shortest timeout is executed.
    fn take_fast(clock: &mut Clock, now: Duration) {
        clock.took(now, now.saturating_sub(BASE / 10));
    }

    #[test]
    fn the_timeout_falls_by_half_in_each_time_of_calm() {
        let (mut clock, calm) = (risen(), BASE * CALM);
        for (now, timeout) in [(calm, 2), (calm * 3 / 2, 2), (calm * 2, 1), (calm * 3, 1)] {
            take_fast(&mut clock, now);
            clock.settle(now, None);
            assert_eq!(clock.timeout(), BASE * timeout, "at {now:?}");
        }
    }

    #[test]
    fn a_few_fast_requests_bring_no_timeout_down() {
        let mut clock = risen();
        for tenth in 1..10 {
            take_fast(&mut clock, BASE * CALM * tenth / 10);
            clock.settle(BASE * CALM * tenth / 10, None);
        }
        assert_eq!(clock.timeout(), BASE * 4);
    }

    #[test]
    fn a_slow_request_keeps_the_timeout_for_a_time_of_calm() {
        let (mut clock, calm) = (risen(), BASE * CALM);
        clock.took(calm / 2, calm / 2 - BASE);
        clock.settle(calm / 2, None);
        for (now, timeout) in [(calm, 4), (calm * 3 / 2, 2)] {
            take_fast(&mut clock, now);
            clock.settle(now, None);
            assert_eq!(clock.timeout(), BASE * timeout, "at {now:?}");
        }
    }

    #[test]
    fn a_request_that_waits_for_long_counts_before_it_is_executed() {
        let (mut clock, calm) = (risen(), BASE * CALM);
        take_fast(&mut clock, calm);
        clock.settle(calm, Some(calm - BASE));
        assert_eq!(clock.timeout(), BASE * 4);
    }

    #[test]
    fn the_timeout_stays_below_a_longest_one() {
        let mut clock = Clock::new(BASE);
        for _ in 0..20 {
            clock.fail();
        }
        assert_eq!(clock.timeout(), BASE * DOUBLED_MAX);
    }

    #[test]
    fn where_nothing_was_executed_the_timeout_stays() {
        let mut clock = risen();
        clock.settle(BASE * CALM, None);
        assert_eq!(clock.timeout(), BASE * 4);
    }
}
