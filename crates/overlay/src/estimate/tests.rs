use proptest::prelude::*;

use super::*;
use crate::{HoseModel, PlanOptions, plan};

const INTERVAL_MS: u64 = 200;
const SITES: usize = 5;

/// A site in virtual time: in each interval it sends at a rate, kbit/s.
struct Bench {
    now: Timestamp,
    estimator: Estimator,
}

impl Bench {
    fn new() -> Self {
        let now = Timestamp::from_nanos(77);
        let estimator = Estimator::new(EstimatorConfig::default(), Site(0), SITES, now);
        Self { now, estimator }
    }

    fn wait(&mut self, ms: u64) {
        self.now = self.now + Duration::from_millis(ms);
        self.estimator.handle_timeout(self.now);
    }

    fn send(&mut self, held_by: HeldBy, kbit_per_s: u64) {
        self.estimator.handle_held_by(self.now, held_by);
        self.estimator.handle_sent(bytes(kbit_per_s));
        self.wait(INTERVAL_MS);
    }

    fn uplink(&self) -> u64 {
        self.estimator.estimate().uplink
    }
}

/// Bytes that go over at a rate in an interval.
fn bytes(kbit_per_s: u64) -> u64 {
    kbit_per_s * INTERVAL_MS / 8
}

#[test]
fn it_begins_with_what_the_configuration_says() {
    let estimate = Bench::new().estimator.estimate();
    assert_eq!((estimate.uplink, estimate.downlink, estimate.demand), (100_000, 100_000, 0));
    assert_eq!(estimate.latency_us[0], 0);
    assert!(estimate.latency_us[1..].iter().all(|us| *us == LATENCY_UNKNOWN));
}

#[test]
fn what_the_network_takes_is_the_uplink() {
    let mut bench = Bench::new();
    (0..10).for_each(|_| bench.send(HeldBy::Network, 40_000));
    assert_eq!(bench.uplink(), 40_000);
}

#[test]
fn an_idle_or_paced_sender_says_nothing_of_the_uplink() {
    let mut bench = Bench::new();
    (0..500).for_each(|_| bench.send(HeldBy::Application, 1_000));
    (0..500).for_each(|_| bench.send(HeldBy::Pacing, 92_000));
    assert_eq!(bench.uplink(), 100_000);
}

#[test]
fn an_interval_that_was_idle_for_a_moment_does_not_count() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        bench.estimator.handle_held_by(bench.now, HeldBy::Application);
        bench.send(HeldBy::Network, 40_000);
        bench.estimator.handle_held_by(bench.now, HeldBy::Application);
    }
    assert_eq!(bench.uplink(), 100_000);
}

#[test]
fn a_link_that_has_room_for_a_moment_does_not_hide_that_the_others_have_none() {
    let mut bench = Bench::new();
    for _ in 0..100 {
        bench.estimator.handle_held_by(bench.now, HeldBy::Network);
        bench.now = bench.now + Duration::from_millis(40);
        bench.estimator.handle_held_by(bench.now, HeldBy::Pacing);
        bench.now = bench.now + Duration::from_millis(20);
        bench.estimator.handle_held_by(bench.now, HeldBy::Network);
        bench.estimator.handle_sent(bytes(40_000));
        bench.wait(INTERVAL_MS - 60);
    }
    assert_eq!(bench.uplink(), 40_000);
}

#[test]
fn more_than_the_estimate_counts_whatever_holds_the_sender_back() {
    let mut bench = Bench::new();
    (0..3).for_each(|_| bench.send(HeldBy::Application, 140_000));
    assert_eq!(bench.uplink(), 140_000);
}

#[test]
fn a_much_lower_capacity_shows_within_a_second_and_a_little_lower_one_after_a_window() {
    let mut bench = Bench::new();
    (0..100).for_each(|_| bench.send(HeldBy::Network, 90_000));
    (0..4).for_each(|_| bench.send(HeldBy::Network, 30_000));
    assert_eq!(bench.uplink(), 90_000, "it may be a stall");
    bench.send(HeldBy::Network, 30_000);
    assert_eq!(bench.uplink(), 30_000);
    (0..50).for_each(|_| bench.send(HeldBy::Network, 28_000));
    assert_eq!(bench.uplink(), 30_000, "ten seconds are half a window");
    (0..60).for_each(|_| bench.send(HeldBy::Network, 28_000));
    assert_eq!(bench.uplink(), 28_000);
}

/// Bytes come in chunks: of a slow link one to four of 64 KiB in an interval, two in the mean.
#[test]
fn a_slow_link_is_measured_over_longer_and_not_by_its_chunks() {
    let mut bench = Bench::new();
    (0..100).for_each(|_| bench.send(HeldBy::Network, 50_000));
    let chunk = (64 << 10) * 8 / INTERVAL_MS;
    for round in 0..200 {
        [1, 4, 0, 2, 3, 1, 2, 3].into_iter().for_each(|count| {
            bench.send(HeldBy::Network, count * chunk);
        });
        if round > 2 {
            assert!((5_000..=7_000).contains(&bench.uplink()), "{}", bench.uplink());
        }
    }
}

/// Nobody has seen the network hold anything back: what was guessed is no reason to send less.
#[test]
fn a_guess_paces_nothing_and_is_not_below_what_others_have() {
    let mut bench = Bench::new();
    bench.send(HeldBy::Pacing, 90_000);
    assert!(bench.estimator.pacing_permille(100_000) > 100_000);
    assert_eq!(bench.estimator.estimate_beside(700_000).uplink, 700_000);
    (0..3).for_each(|_| bench.send(HeldBy::Network, 200_000));
    assert_eq!(bench.estimator.pacing_permille(200_000), 1_000);
    assert_eq!(bench.estimator.estimate_beside(700_000).uplink, 200_000);
}

#[test]
fn what_waits_makes_probes_come_sooner_and_those_in_vain_later_again() {
    let mut bench = Bench::new();
    (0..10).for_each(|_| bench.send(HeldBy::Network, 50_000));
    let mut probes: Vec<u64> = Vec::new();
    let mut was_probing = false;
    for interval in 0..200 * 5 {
        bench.send(HeldBy::Pacing, 46_000);
        let is_probing = bench.estimator.pacing_permille(50_000) > 1_000;
        if is_probing && !was_probing {
            probes.push(interval / 5);
        }
        was_probing = is_probing;
    }
    let pauses: Vec<u64> = probes.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(probes[0] <= 6, "{probes:?}");
    assert!(pauses.is_sorted() && pauses.iter().all(|pause| *pause <= 62), "{probes:?}");
    assert!((4..=8).contains(&probes.len()), "{probes:?}");
}

#[test]
fn two_outliers_in_a_window_do_nothing() {
    let mut bench = Bench::new();
    (0..40).for_each(|_| bench.send(HeldBy::Network, 50_000));
    bench.send(HeldBy::Network, u64::MAX / 1_000);
    bench.send(HeldBy::Network, 0);
    bench.send(HeldBy::Network, 9_000_000);
    (0..20).for_each(|_| bench.send(HeldBy::Network, 50_000));
    assert_eq!(bench.uplink(), 50_000);
}

#[test]
fn a_paused_process_measures_nothing() {
    let mut bench = Bench::new();
    (0..10).for_each(|_| bench.send(HeldBy::Network, 50_000));
    for _ in 0..10 {
        bench.estimator.handle_sent(1 << 40);
        bench.wait(5_000);
    }
    assert_eq!(bench.uplink(), 50_000);
}

#[test]
fn bounds_hold_against_everything() {
    let mut bench = Bench::new();
    bench.estimator.config.uplink = Bounds { initial: 5_000, floor: 2_000, ceiling: 9_000 };
    assert_eq!(bench.uplink(), 5_000);
    (0..10).for_each(|_| bench.send(HeldBy::Network, u64::MAX / 1_000));
    assert_eq!(bench.uplink(), 9_000);
    (0..200).for_each(|_| bench.send(HeldBy::Network, 0));
    assert_eq!(bench.uplink(), 2_000);
    bench.estimator.config.uplink = Bounds { initial: 0, floor: 7, ceiling: 3 };
    assert_eq!(bench.uplink(), 3, "contradictory bounds are the ceiling");
}

/// Rate that a plan with the usual headroom gives a site of this uplink, which relays nothing.
fn planned(uplink: u64) -> u64 {
    let model = HoseModel {
        uplink: vec![uplink; SITES],
        downlink: vec![uplink; SITES],
        latency_us: (0..SITES * SITES).map(|pair| u32::from(pair % (SITES + 1) != 0)).collect(),
        demand: vec![uplink; SITES],
        epoch: 0,
    };
    plan(&model, &PlanOptions::new()).expect("the even load has a plan").uplink_use(Site(0))
}

/// The rates that it raises are within the headroom of their plan already.
#[test]
fn a_probe_sends_a_twentieth_above_the_estimate() {
    let mut bench = Bench::new();
    (0..10).for_each(|_| bench.send(HeldBy::Network, 100_000));
    let planned = planned(bench.uplink());
    assert_eq!(planned, 92_000, "headroom is left");
    let gains = (0..5 * 60).map(|_| {
        bench.send(HeldBy::Pacing, planned);
        u64::from(bench.estimator.pacing_permille(planned))
    });
    let fastest = gains.max().expect("it was asked") * planned / 1_000;
    assert!((104_900..=105_000).contains(&fastest), "{fastest}");
}

/// A link of 150 Mbit/s behind an estimate of 100, with plans at 92 %: how long until it is found.
#[test]
fn probes_find_what_headroom_hides_and_stop_there() {
    let mut bench = Bench::new();
    let (mut taken_for, capacity) = (bench.uplink(), 150_000);
    (0..3).for_each(|_| bench.send(HeldBy::Network, taken_for));
    for _ in 0..5 * 120 {
        let planned = planned(taken_for);
        let gain = u64::from(bench.estimator.pacing_permille(planned));
        let rate = planned * gain / 1_000;
        let held_by = if rate < capacity { HeldBy::Pacing } else { HeldBy::Network };
        bench.send(held_by, rate.min(capacity));
        if bench.uplink() > taken_for * 11 / 10 {
            taken_for = bench.uplink();
        }
    }
    assert!((149_000..=150_000).contains(&bench.uplink()), "{}", bench.uplink());
}

#[test]
fn there_is_no_probe_without_something_to_send() {
    let mut bench = Bench::new();
    (0..3).for_each(|_| bench.send(HeldBy::Network, 100_000));
    (0..1_000).for_each(|_| {
        bench.send(HeldBy::Application, 10);
        assert_eq!(bench.estimator.pacing_permille(100_000), 1_000);
    });
}

#[test]
fn demand_follows_what_is_offered() {
    let mut bench = Bench::new();
    for (rate, intervals) in [(50_000, 100), (3, 200), (70_000, 100)] {
        for _ in 0..intervals {
            bench.estimator.handle_offered(bytes(rate));
            bench.wait(INTERVAL_MS);
        }
        let demand = bench.estimator.estimate().demand;
        assert!(demand.abs_diff(rate) <= 1 + rate / 100, "{demand} for {rate}");
    }
}

#[test]
fn an_application_that_is_held_back_wants_more() {
    let mut bench = Bench::new();
    for _ in 0..400 {
        bench.estimator.handle_offered(bytes(20_000));
        bench.send(HeldBy::Pacing, 20_000);
    }
    assert!(bench.estimator.estimate().demand > 90_000);
}

#[test]
fn a_latency_is_half_the_shortest_round_trip_that_three_agree_on() {
    let mut bench = Bench::new();
    for us in [1, 30_000, 25_000, 24_000, 90_000, 26_000] {
        bench.estimator.handle_rtt(bench.now, Site(2), Duration::from_micros(us));
    }
    bench.estimator.handle_rtt(bench.now, Site(2), Duration::ZERO);
    bench.estimator.handle_rtt(bench.now, Site(2), Duration::MAX);
    bench.estimator.handle_rtt(bench.now, Site(0), Duration::from_secs(1));
    bench.estimator.handle_rtt(bench.now, Site(99), Duration::from_secs(1));
    let latency = bench.estimator.estimate().latency_us;
    assert_eq!(latency, [0, LATENCY_UNKNOWN, 12_500, LATENCY_UNKNOWN, LATENCY_UNKNOWN]);
}

#[test]
fn a_downlink_is_lower_only_when_round_trips_show_its_queue() {
    let mut bench = Bench::new();
    let receive = |bench: &mut Bench, rtt_ms: u64, intervals: usize| {
        for _ in 0..intervals {
            for site in 1..5 {
                let rtt = Duration::from_millis(rtt_ms);
                bench.estimator.handle_rtt(bench.now, Site(site), rtt);
            }
            bench.estimator.handle_received(bytes(60_000));
            bench.wait(INTERVAL_MS);
        }
        bench.estimator.estimate().downlink
    };
    assert_eq!(receive(&mut bench, 20, 50), 100_000);
    assert_eq!(receive(&mut bench, 120, 10), 60_000);
}

#[derive(Clone, Debug)]
enum Input {
    Offered(u64),
    Sent(u64),
    Received(u64),
    HeldBy(HeldBy),
    Rtt(u16, u64),
    Wait(u64),
}

fn inputs() -> impl Strategy<Value = Vec<Input>> {
    let any_bytes = prop_oneof![any::<u64>(), 0..100_000_000_u64];
    let held_by =
        prop_oneof![Just(HeldBy::Application), Just(HeldBy::Pacing), Just(HeldBy::Network),];
    let input = prop_oneof![
        any_bytes.clone().prop_map(Input::Offered),
        any_bytes.clone().prop_map(Input::Sent),
        any_bytes.prop_map(Input::Received),
        held_by.prop_map(Input::HeldBy),
        (any::<u16>(), any::<u64>()).prop_map(|(site, us)| Input::Rtt(site, us)),
        prop_oneof![0..1_000_u64, any::<u64>()].prop_map(Input::Wait),
    ];
    prop::collection::vec(input, 0..200)
}

proptest! {
    /// Estimates stay within their bounds and nothing panics, with any input.
    #[test]
    fn garbage_does_no_harm(inputs in inputs()) {
        let mut bench = Bench::new();
        for input in inputs {
            match input {
                Input::Offered(bytes) => bench.estimator.handle_offered(bytes),
                Input::Sent(bytes) => bench.estimator.handle_sent(bytes),
                Input::Received(bytes) => bench.estimator.handle_received(bytes),
                Input::HeldBy(held_by) => bench.estimator.handle_held_by(bench.now, held_by),
                Input::Rtt(site, us) => {
                    bench.estimator.handle_rtt(bench.now, Site(site), Duration::from_micros(us));
                }
                Input::Wait(ms) => bench.wait(ms),
            }
            let estimate = bench.estimator.estimate();
            let bounds = Bounds::default();
            prop_assert!((bounds.floor..=bounds.ceiling).contains(&estimate.uplink));
            prop_assert!((bounds.floor..=bounds.ceiling).contains(&estimate.downlink));
            prop_assert!(estimate.demand <= bounds.ceiling);
            let permille = bench.estimator.pacing_permille(estimate.uplink);
            prop_assert!((1_000..=2_000).contains(&permille) || permille == 1_000_000);
        }
    }
}
