//! Costs of faults, in time: five sites over the latencies of ShallowForest, skew 1, three quarters
//! of the plan.

use std::time::Duration;

use convoke_core::time::Timestamp;
use convoke_overlay::{Frame, HoseModel, Site, SiteSet};

use crate::tables::row;
use crate::wan::{Delivery, OP_BYTES, Wan};

/// The longest round trip between two of the sites.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(228);
pub(crate) const SECOND: Duration = Duration::from_secs(1);
/// Faults begin after three seconds; what was sent from the first to the second has nothing to do
/// with them.
pub(crate) const SETTLED_AT: Timestamp = Timestamp::from_nanos(1_000_000_000);
pub(crate) const QUIET_UNTIL: Timestamp = Timestamp::from_nanos(2_000_000_000);
pub(crate) const LOAD_PERMILLE: u64 = 750;

/// Uplinks and downlinks of 75 Mbit/s.
pub(crate) fn model() -> HoseModel {
    let mut model = row(5, 1.0).model();
    for rates in [&mut model.uplink, &mut model.downlink, &mut model.demand] {
        rates.iter_mut().for_each(|rate| *rate /= 2);
    }
    model
}

/// The relay that carries most for the hot site.
pub(crate) fn busiest(wan: &Wan) -> Site {
    let trees = wan.plan().trees(Site(0)).iter().filter(|tree| tree.relay.is_some());
    trees.max_by_key(|tree| tree.rate).and_then(|tree| tree.relay).expect("it needs relays")
}

/// A part of a run, by when things were sent.
pub(crate) struct Part {
    took: Vec<Duration>,
}

impl Part {
    pub(crate) fn of(wan: &Wan, from: Timestamp, until: Timestamp, without: SiteSet) -> Self {
        Self::among(&wan.deliveries, from, until, without)
    }

    pub(crate) fn among(
        deliveries: &[Delivery],
        from: Timestamp,
        until: Timestamp,
        without: SiteSet,
    ) -> Self {
        let is_in = |it: &&Delivery| {
            (from..until).contains(&it.sent)
                && !without.contains(it.to)
                && !without.contains(it.source)
        };
        let mut took: Vec<Duration> = deliveries.iter().filter(is_in).map(|it| it.took).collect();
        took.sort_unstable();
        assert!(!took.is_empty());
        Self { took }
    }

    pub(crate) fn worst(&self) -> Duration {
        self.took[self.took.len() - 1]
    }

    pub(crate) fn median(&self) -> Duration {
        self.took[self.took.len() / 2]
    }
}

pub(crate) fn assert_all_came(wan: &Wan, without: SiteSet) {
    assert_eq!(wan.ages(without), vec![], "some of it is missed");
    assert_eq!(wan.missed, vec![], "a site that has it was reported to have missed it");
}

fn dies(notice: Option<Duration>, silence: Duration) {
    let mut wan = Wan::planned(&model(), OP_BYTES, LOAD_PERMILLE);
    let relay = busiest(&wan);
    wan.run_until(wan.now + 3 * SECOND);
    let died_at = wan.now;
    wan.kill(relay, notice);
    wan.run_until(wan.now + 14 * SECOND);
    wan.stop();
    wan.run_until(wan.now + 10 * SECOND);
    let dead = SiteSet::EMPTY.with(relay);
    let part = |from, until| Part::of(&wan, died_at + from, died_at + until, dead);
    let before = Part::of(&wan, SETTLED_AT, QUIET_UNTIL, dead);
    let hit = Part::of(&wan, QUIET_UNTIL, died_at + 14 * SECOND, dead);
    println!(
        "{relay:?} dies, {notice:?}: worst {:?} before, {:?} after; by second {:?}; median {:?} and {:?}; suspects {:?}",
        before.worst(),
        hit.worst(),
        (0..14).map(|at| part(at * SECOND, (at + 1) * SECOND).worst()).collect::<Vec<_>>(),
        before.median(),
        part(10 * SECOND, 14 * SECOND).median(),
        wan.suspicions,
    );
    assert_all_came(&wan, dead);
    assert!(wan.suspicions.iter().all(|(.., suspect)| *suspect == relay), "{:?}", wan.suspicions);
    assert!(hit.worst() <= silence + 3 * ROUND_TRIP, "{:?}", hit.worst());
    let after = part(silence + 3 * ROUND_TRIP + SECOND, 14 * SECOND);
    assert!(after.worst() <= before.worst() + before.worst() / 2, "{:?}", after.worst());
}

#[test]
fn a_relay_that_dies_costs_three_round_trips_once_its_links_say_so() {
    dies(Some(Duration::from_millis(1)), Duration::ZERO);
}

#[test]
fn a_relay_that_dies_without_a_word_costs_a_second_more() {
    dies(None, SECOND);
}

/// Measures how many frames of the hot site a bad relay is given before the site suspects it.
fn misbehaves(name: &str, tamper: crate::wan::Tamper) {
    let mut wan = Wan::planned(&model(), OP_BYTES, LOAD_PERMILLE);
    let relay = busiest(&wan);
    assert_eq!(relay, BAD, "what follows is made for it");
    wan.run_until(wan.now + 3 * SECOND);
    let began_at = wan.now;
    let before = Part::of(&wan, SETTLED_AT, QUIET_UNTIL, SiteSet::EMPTY);
    wan.tamper = Some(tamper);
    wan.run_until(wan.now + 14 * SECOND);
    wan.stop();
    wan.run_until(wan.now + 30 * SECOND);
    let share = wan.plan().trees(Site(0)).iter().filter(|tree| tree.relay == Some(relay));
    let rate: u64 = share.map(|tree| tree.rate).sum();
    let suspected_at = wan.suspicions.iter().find(|(_, by, who)| (*by, *who) == (Site(0), BAD));
    let frames = suspected_at.map(|(at, ..)| {
        u64::try_from(at.since(began_at).as_millis()).expect("seconds") * rate * LOAD_PERMILLE
            / 1_000
            / 8
            / 32_768
    });
    let part = |from, until| Part::of(&wan, began_at + from, began_at + until, SiteSet::EMPTY);
    let after = part(4 * SECOND, 14 * SECOND);
    println!(
        "{relay:?} {name}: suspected after {:?}, {frames:?} frames; worst {:?} before, {:?} and {:?} after, median {:?} and {:?}; suspects {:?}",
        suspected_at.map(|(at, ..)| at.since(began_at)),
        before.worst(),
        part(Duration::ZERO, SECOND).worst(),
        after.worst(),
        before.median(),
        after.median(),
        wan.suspicions.len(),
    );
    assert_all_came(&wan, SiteSet::EMPTY);
    assert!(wan.suspicions.iter().all(|(.., suspect)| *suspect == relay), "{:?}", wan.suspicions);
    assert!(frames.is_some_and(|frames| frames <= 20), "{frames:?}");
    assert!(after.median().as_secs_f64() <= before.median().as_secs_f64() * 1.1);
}

/// The busiest relay.
const BAD: Site = Site(2);

#[test]
fn a_relay_that_drops_everything_is_suspected_within_twenty_messages() {
    misbehaves("drops", |relay, _, frame| (relay != BAD).then_some(frame));
}

#[test]
fn a_relay_that_drops_what_is_for_one_receiver_is_suspected_within_twenty_messages() {
    misbehaves("drops for one", |relay, to, frame| {
        ((relay, to) != (BAD, Site(3))).then_some(frame)
    });
}

#[test]
fn a_relay_that_changes_a_byte_is_suspected_and_nothing_changed_is_delivered() {
    misbehaves("changes a byte", |relay, _, frame| match frame {
        Frame::Data(mut data) if relay == BAD => {
            let mut payload = data.payload.to_vec();
            payload[20_000] ^= 1;
            data.payload = payload.into();
            Some(Frame::Data(data))
        }
        frame => Some(frame),
    });
}

#[test]
fn two_sites_that_lose_their_link_miss_nothing() {
    for (a, b) in [(Site(0), Site(3)), (Site(0), BAD), (Site(1), Site(2))] {
        let mut wan = Wan::planned(&model(), OP_BYTES, LOAD_PERMILLE);
        wan.run_until(wan.now + 3 * SECOND);
        let cut_at = wan.now;
        wan.cut(a, b, Duration::from_millis(1));
        wan.run_until(wan.now + 15 * SECOND);
        wan.join(a, b);
        wan.run_until(wan.now + 5 * SECOND);
        wan.stop();
        wan.run_until(wan.now + 20 * SECOND);
        let part = |from, until| Part::of(&wan, cut_at + from, cut_at + until, SiteSet::EMPTY);
        let sent = wan.sent();
        println!(
            "{a:?} and {b:?} cut: worst {:?} before, by second {:?}, {} and {} of {} and {} came, {} reported missed, suspects {:?}",
            part(Duration::ZERO, SECOND).worst(),
            (0..20).map(|at| part(at * SECOND, (at + 1) * SECOND).worst()).collect::<Vec<_>>(),
            wan.received[b.index()][a.index()].len(),
            wan.received[a.index()][b.index()].len(),
            sent[a.index()],
            sent[b.index()],
            wan.missed.len(),
            wan.suspicions,
        );
        assert_all_came(&wan, SiteSet::EMPTY);
        let hit = Part::of(&wan, QUIET_UNTIL, cut_at + 20 * SECOND, SiteSet::EMPTY);
        assert!(hit.worst() <= 3 * ROUND_TRIP, "{:?}", hit.worst());
        assert_eq!(wan.suspicions, vec![]);
    }
}
