//! Misfortunes that no table names, at the same network and load as `faults`: nobody healthy is
//! held up by them for long.

use std::time::Duration;

use convoke_core::time::Timestamp;
use convoke_overlay::{Site, SiteSet};

use crate::faults::{
    LOAD_PERMILLE, Part, QUIET_UNTIL, ROUND_TRIP, SECOND, SETTLED_AT, assert_all_came, busiest,
    model,
};
use crate::wan::{OP_BYTES, Wan};

/// Sites under load for three seconds, the busiest relay, and how long things took until then.
fn begin() -> (Wan, Site, Part) {
    let mut wan = Wan::planned(&model(), OP_BYTES, LOAD_PERMILLE);
    let relay = busiest(&wan);
    wan.run_until(wan.now + 3 * SECOND);
    let before = Part::of(&wan, SETTLED_AT, QUIET_UNTIL, SiteSet::EMPTY);
    (wan, relay, before)
}

/// The worst of each second between sites that have nothing to do with it.
fn seconds(wan: &Wan, from: Timestamp, count: u32, without: SiteSet) -> Vec<Duration> {
    let part = |at: u32| Part::of(wan, from + at * SECOND, from + (at + 1) * SECOND, without);
    (0..count).map(|at| part(at).worst()).collect()
}

/// Prints how a run went: before it, by second, and after it.
fn tell(what: &str, wan: &Wan, (before, by_second, after): (&Part, &[Duration], &Part)) {
    let (worst, medians) = (before.worst(), (before.median(), after.median()));
    println!("{what}: worst {worst:?} before, by second {by_second:?}; medians {medians:?}");
    println!("    suspects {:?}, refused {}", wan.suspicions, wan.refused);
}

#[test]
fn a_relay_that_is_slow_for_ever_is_left() {
    let (mut wan, relay, before) = begin();
    let began_at = wan.now;
    wan.slow(relay, model().uplink[relay.index()] / 10);
    wan.run_until(wan.now + 14 * SECOND);
    let own = SiteSet::EMPTY.with(relay);
    let by_second = seconds(&wan, began_at, 12, own);
    let after = Part::of(&wan, began_at + 7 * SECOND, began_at + 12 * SECOND, own);
    tell(&format!("{relay:?} slow"), &wan, (&before, &by_second, &after));
    // What it broadcasts itself is late, too, so that it may suspect others.
    let mut by_others = wan.suspicions.iter().filter(|(_, by, _)| *by != relay);
    assert!(by_others.all(|(.., suspect)| *suspect == relay), "{:?}", wan.suspicions);
    assert!(after.median() <= before.median() * 5 / 4, "{:?}", after.median());
    // Once, and each time that it is tried again, which is after twice as long.
    assert!(by_second.iter().all(|worst| *worst <= 4 * SECOND), "{by_second:?}");
    let good = by_second.iter().filter(|worst| **worst <= 3 * ROUND_TRIP).count();
    assert!(good >= 5, "{by_second:?}");
}

#[test]
fn a_relay_that_never_reads_holds_up_nobody() {
    let (mut wan, relay, before) = begin();
    let began_at = wan.now;
    wan.window_bytes = 4 << 20;
    wan.deafen(relay);
    wan.run_until(wan.now + 22 * SECOND);
    let own = SiteSet::EMPTY.with(relay);
    let by_second = seconds(&wan, began_at, 20, own);
    let after = Part::of(&wan, began_at + 2 * SECOND, began_at + 20 * SECOND, own);
    tell(&format!("{relay:?} never reads"), &wan, (&before, &by_second, &after));
    let suspects = wan.nodes.iter().filter(|node| node.me() != relay).map(|node| node.suspects());
    let suspects = suspects.fold(SiteSet::EMPTY, SiteSet::union);
    assert!(suspects.without(relay).is_empty(), "{suspects:?}");
    assert!(after.worst() <= 3 * ROUND_TRIP, "{:?}", after.worst());
    assert!(after.median() <= before.median() * 5 / 4, "{:?}", after.median());
    assert_eq!(wan.refused, 0, "who does not read takes the room of the sources");
}

#[test]
fn a_relay_that_restarts_under_load_costs_three_round_trips_each_time() {
    let (mut wan, relay, before) = begin();
    let began_at = wan.now;
    let notice = Some(Duration::from_millis(1));
    for _ in 0..2 {
        wan.kill(relay, notice);
        wan.run_until(wan.now + SECOND);
        wan.restart(relay.index());
        wan.run_until(wan.now + 2 * SECOND);
    }
    wan.run_until(wan.now + 4 * SECOND);
    wan.stop();
    wan.run_until(wan.now + 8 * SECOND);
    let own = SiteSet::EMPTY.with(relay);
    let by_second = seconds(&wan, began_at, 10, own);
    let after = Part::of(&wan, began_at, began_at + 10 * SECOND, own);
    tell(&format!("{relay:?} restarts"), &wan, (&before, &by_second, &after));
    assert_all_came(&wan, own);
    assert_eq!(wan.suspicions, vec![]);
    assert!(after.worst() <= 3 * ROUND_TRIP, "{:?}", after.worst());
    // It catches up, and relays nothing until it has.
    let again =
        wan.deliveries.iter().filter(|it| it.to == relay && it.sent >= began_at + 7 * SECOND);
    let took = again.map(|it| it.took).max().expect("it receives");
    assert!(took <= 2 * SECOND, "{took:?}");
}

/// Of five sites, two that relay, one shortly after the other.
#[test]
fn two_dead_relays_of_five_cost_what_one_does() {
    for (apart, notice) in [(300, true), (300, false)] {
        let (mut wan, relay, before) = begin();
        let began_at = wan.now;
        let notice = notice.then_some(Duration::from_millis(1));
        let others = wan.plan().trees(Site(0)).iter().filter_map(|tree| tree.relay);
        let second = others.filter(|it| *it != relay).max().expect("it needs several relays");
        wan.kill(relay, notice);
        wan.run_until(wan.now + Duration::from_millis(apart));
        wan.kill(second, notice);
        wan.run_until(wan.now + 8 * SECOND);
        wan.stop();
        wan.run_until(wan.now + 8 * SECOND);
        let dead = SiteSet::EMPTY.with(relay).with(second);
        let by_second = seconds(&wan, began_at, 8, dead);
        let silence = if notice.is_some() { Duration::ZERO } else { SECOND };
        let after = Part::of(&wan, began_at + 4 * SECOND, began_at + 8 * SECOND, dead);
        let what = format!("{relay:?} and {second:?} die {apart} ms apart, {notice:?}");
        tell(&what, &wan, (&before, &by_second, &after));
        assert_all_came(&wan, dead);
        assert!(wan.suspicions.iter().all(|(.., it)| dead.contains(*it)), "{:?}", wan.suspicions);
        let hit = Part::of(&wan, QUIET_UNTIL, began_at + 8 * SECOND, dead);
        assert!(hit.worst() <= silence + 3 * ROUND_TRIP, "{:?}", hit.worst());
        assert!(after.worst() <= before.worst() * 3 / 2, "{:?}", after.worst());
    }
}
