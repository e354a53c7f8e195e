use super::*;
use crate::random::Random;

type Seen = Vec<(u64, usize)>;

fn us(count: u64) -> Timestamp {
    Timestamp::from_nanos(count * 1_000)
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// A byte takes a microsecond.
fn byte_a_us() -> Limits {
    Limits::kbit_per_s(8_000)
}

/// Everything that arrives, by its time in nanoseconds.
fn drain<T>(hose: &mut Hose<usize, T>) -> Vec<Arrival<usize, T>> {
    let mut arrivals = Vec::new();
    while let Some(at) = hose.poll_timeout() {
        arrivals.extend(std::iter::from_fn(|| hose.poll_arrival(at)));
    }
    arrivals
}

fn seen(hose: &mut Hose<usize, usize>) -> Seen {
    drain(hose).into_iter().map(|arrival| (arrival.at.as_nanos() / 1_000, arrival.item)).collect()
}

#[test]
fn a_parcel_takes_uplink_latency_and_downlink_exactly() {
    let mut hose = Hose::new();
    hose.uplink(0, byte_a_us());
    hose.downlink(1, Limits::kbit_per_s(4_000));
    hose.send(us(5), 0, 1, 1_000, ms(20), 7);
    assert_eq!(seen(&mut hose), [(5 + 1_000 + 20_000 + 2_000, 7)]);
}

#[test]
fn without_limits_and_latency_it_arrives_at_once() {
    let mut hose = Hose::new();
    hose.send(us(5), 0, 1, 1 << 40, Duration::ZERO, 7);
    let arrival = hose.poll_arrival(us(5)).expect("nothing holds it");
    assert_eq!(arrival, Arrival { at: us(5), from: 0, to: 1, bytes: 1 << 40, item: 7 });
    assert_eq!(hose.poll_timeout(), None);
}

#[test]
fn the_downlink_serves_by_arrival_and_not_by_sending() {
    let mut hose = Hose::new();
    hose.downlink(9, Limits { sharing: Sharing::FirstCome, ..byte_a_us() });
    hose.send(us(0), 0, 9, 1_000, ms(50), 0);
    hose.send(us(1), 1, 9, 1_000, ms(10), 1);
    assert_eq!(seen(&mut hose), [(11_001, 1), (51_000, 0)]);
}

#[test]
fn late_calls_make_nothing_later() {
    let run = |polls: &[u64]| {
        let mut hose = Hose::new();
        hose.uplink(0, byte_a_us());
        hose.downlink(2, byte_a_us());
        for item in 0..5 {
            hose.send(us(0), item % 2, 2, 700, ms(3), item);
        }
        let mut arrivals = Vec::new();
        for at in polls {
            arrivals.extend(std::iter::from_fn(|| hose.poll_arrival(us(*at))));
        }
        arrivals
    };
    let often: Vec<_> = (0..20_000).collect();
    assert_eq!(run(&often), run(&[20_000]));
    assert_eq!(run(&[20_000]).len(), 5);
}

#[test]
fn rounding_is_done_once_for_a_busy_period() {
    let mut hose = Hose::new();
    // A byte takes 2,666.6 ns.
    hose.uplink(0, Limits::kbit_per_s(3_000));
    for item in 0..3_000 {
        hose.send(us(0), 0, 1, 1, Duration::ZERO, item);
    }
    let last = drain(&mut hose).pop().expect("all arrive");
    assert_eq!((last.at, last.item), (us(8_000), 2_999));
}

#[test]
fn a_pair_stays_in_order_when_its_latency_shrinks() {
    let mut hose = Hose::new();
    for item in 0..100 {
        hose.send(us(item as u64), 0, 1, 10, ms(200 - item as u64), item);
    }
    assert!(seen(&mut hose).into_iter().map(|(_, item)| item).eq(0..100));
}

#[test]
fn fair_flows_get_equal_bytes_whatever_their_parcels() {
    let mut hose = Hose::new();
    hose.uplink(0, byte_a_us());
    // 64 KB parcels to site 1, packets of 1,000 bytes to site 2, and of 300 bytes to site 3.
    for (to, bytes) in [(1, 64_000), (2, 1_000), (3, 300)] {
        for item in 0..1_000_000 / bytes {
            hose.send(us(0), 0, to, bytes, Duration::ZERO, item);
        }
    }
    let mut carried = [0_u64; 4];
    while let Some(at) = hose.poll_timeout().filter(|at| *at <= us(2_000_000)) {
        while let Some(arrival) = hose.poll_arrival(at) {
            carried[arrival.to] += arrival.bytes;
            let of_others = [carried[2], carried[3]];
            let (low, high) = (of_others[0].min(of_others[1]), of_others[0].max(of_others[1]));
            assert!(high - low <= 2 * (QUANTUM_BYTES + 1_000), "{carried:?}");
            assert!(carried[1].abs_diff(low) <= 2 * 64_000, "{carried:?}");
        }
    }
    assert!(carried.iter().sum::<u64>() > 1_900_000, "the link was busy: {carried:?}");
}

#[test]
fn who_comes_first_is_served_first_if_told_so() {
    let mut hose = Hose::new();
    hose.uplink(0, Limits { sharing: Sharing::FirstCome, ..byte_a_us() });
    for item in 0..50 {
        hose.send(us(0), 0, 1 + item % 3, 100 + item as u64, Duration::ZERO, item);
    }
    assert!(seen(&mut hose).into_iter().map(|(_, item)| item).eq(0..50));
}

#[test]
fn a_full_queue_drops_the_newest_and_counts_it() {
    let mut hose = Hose::new();
    hose.uplink(0, Limits { queue_bytes_max: 2_000, ..byte_a_us() });
    hose.downlink(1, Limits { queue_bytes_max: 500, ..Limits::kbit_per_s(800) });
    for item in 0..5 {
        hose.send(us(0), 0, 1, 1_000, Duration::ZERO, item);
    }
    // One is on the uplink and two wait. Of those the downlink carries the first while one waits.
    assert_eq!(seen(&mut hose).into_iter().map(|(_, item)| item).collect::<Vec<_>>(), [0, 1]);
    let expected = HoseCounters { sent: 5, arrived: 2, dropped_uplink: 2, dropped_downlink: 1 };
    assert_eq!(hose.counters(), expected);
}

#[test]
fn a_new_capacity_holds_from_the_next_parcel_on() {
    let mut hose = Hose::new();
    hose.uplink(0, byte_a_us());
    hose.send(us(0), 0, 1, 1_000, Duration::ZERO, 0);
    hose.send(us(0), 0, 1, 1_000, Duration::ZERO, 1);
    hose.uplink(0, Limits::kbit_per_s(80_000));
    assert_eq!(hose.uplink_backlog(0), 2_000);
    assert_eq!(seen(&mut hose), [(1_000, 0), (1_100, 1)]);
}

#[test]
fn absurd_sizes_and_capacities_do_no_harm() {
    let mut hose = Hose::new();
    hose.uplink(0, Limits::kbit_per_s(0));
    for item in 0..3 {
        hose.send(us(0), 0, 1, u64::MAX, Duration::MAX, item);
        hose.send(us(0), 0, 2, u64::MAX, Duration::MAX, item);
    }
    assert_eq!(drain(&mut hose).len(), 6);
}

/// A run of random traffic between five sites; also checks that nothing overtakes the laws of a
/// link.
fn random_run(seed: u64) -> Vec<Arrival<usize, u64>> {
    let mut random = Random::new(seed);
    let mut hose = Hose::new();
    let capacities: Vec<_> = (0..10).map(|_| random.within(1_000..100_000)).collect();
    for site in 0..5 {
        let sharing = *random.pick(&[Sharing::Fair, Sharing::FirstCome]).expect("there are two");
        hose.uplink(site, Limits { sharing, ..Limits::kbit_per_s(capacities[site]) });
        hose.downlink(site, Limits { sharing, ..Limits::kbit_per_s(capacities[5 + site]) });
    }
    let (mut now, mut arrivals, mut sent) = (Timestamp::ZERO, Vec::new(), [0_u64; 5]);
    for item in 0..400 {
        now = now + random.micros(0..300);
        let (from, to) = (random.index(5), random.index(5));
        let bytes = random.within(1..20_000);
        sent[from] += bytes;
        hose.send(now, from, to, bytes, random.micros(0..40_000), item);
        arrivals.extend(std::iter::from_fn(|| hose.poll_arrival(now)));
    }
    arrivals.extend(drain(&mut hose));
    for (site, bytes) in sent.into_iter().enumerate() {
        let last = arrivals.iter().filter(|arrival| arrival.from == site).map(|a| a.at).max();
        let needed = u128::from(bytes) * 8_000_000 / u128::from(capacities[site]);
        assert!(last.is_none_or(|last| u128::from(last.as_nanos()) >= needed), "seed {seed}");
    }
    arrivals
}

#[test]
fn every_parcel_arrives_once_and_in_the_order_of_its_pair() {
    for seed in 0..50 {
        let arrivals = random_run(seed);
        let mut items: Vec<_> = arrivals.iter().map(|arrival| arrival.item).collect();
        items.sort_unstable();
        assert!(items.into_iter().eq(0..400), "seed {seed}");
        assert!(arrivals.is_sorted_by_key(|arrival| arrival.at), "seed {seed}");
        for pair in (0..25).map(|pair| (pair / 5, pair % 5)) {
            let of_pair = arrivals.iter().filter(|arrival| (arrival.from, arrival.to) == pair);
            assert!(of_pair.is_sorted_by_key(|arrival| arrival.item), "seed {seed}");
        }
    }
}

#[test]
fn the_same_traffic_is_the_same_run() {
    for seed in 0..20 {
        assert_eq!(random_run(seed), random_run(seed));
        assert_ne!(random_run(seed), random_run(seed + 1_000));
    }
}
