//! Several sites in virtual time, on a network that delays, loses and splits.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::event::LinkEvent;
use crate::hose::HoseModel;
use crate::node::{NodeConfig, OverlayNode};
use crate::plan::{PlanOptions, plan};
use crate::wire::{Frame, View};

const STEP: Duration = Duration::from_millis(50);

/// Numbers that a seed decides: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// Within 5 % of it.
    fn about(&mut self, value: u64) -> u64 {
        value * (9_500 + self.below(1_001)) / 10_000
    }
}

type Mail = (Site, Site, ControlMessage);

struct Net {
    now: Timestamp,
    controls: Vec<Option<Control>>,
    /// Network of the sites as it really is.
    truth: HoseModel,
    mail: BTreeMap<(Timestamp, u64), Mail>,
    sent: u64,
    loss_percent: u64,
    /// Side of a partition that each site is on.
    side: Vec<u8>,
    noise: bool,
    random: Random,
    /// The epochs each site has used, in order.
    epochs: Vec<Vec<u32>>,
    /// For the loss of whom each site is prepared.
    contingencies: Vec<SiteSet>,
}

/// Five sites of 100 Mbit/s, one of which wants more than it can send to all itself.
fn truth() -> HoseModel {
    let n = 5;
    let latency = |at: u32| if at.is_multiple_of(6) { 0 } else { 10_000 + 1_000 * at };
    HoseModel {
        uplink: vec![100_000; n],
        downlink: vec![100_000; n],
        latency_us: (0..25).map(latency).collect(),
        demand: vec![50_000, 10_000, 6_000, 5_000, 4_000],
        epoch: 0,
    }
}

impl Net {
    fn new(seed: u64) -> Self {
        Self::with(seed, truth(), ControlConfig::new())
    }

    fn with(seed: u64, truth: HoseModel, config: ControlConfig) -> Self {
        let n = truth.sites();
        let now = Timestamp::from_nanos(1_000);
        let control = |site| Control::new(config.clone(), site, n, Incarnation(1), now);
        Self {
            now,
            controls: sites(n).map(|site| Some(control(site))).collect(),
            truth,
            mail: BTreeMap::new(),
            sent: 0,
            loss_percent: 0,
            side: vec![0; n],
            noise: false,
            random: Random(seed),
            epochs: vec![Vec::new(); n],
            contingencies: vec![SiteSet::EMPTY; n],
        }
    }

    fn n(&self) -> usize {
        self.truth.sites()
    }

    fn control(&mut self, site: u16) -> &mut Control {
        self.controls[usize::from(site)].as_mut().expect("it runs")
    }

    fn estimate(&mut self, site: Site) -> Estimate {
        let n = self.n();
        let (truth, random, noise) = (&self.truth, &mut self.random, self.noise);
        let mut about = |value: u64| if noise { random.about(value) } else { value };
        let mut latency = |us: &u32| u32::try_from(about((*us).into())).unwrap_or(u32::MAX);
        let row = &truth.latency_us[site.index() * n..][..n];
        let latency_us = row.iter().map(&mut latency).collect();
        Estimate {
            uplink: about(truth.uplink[site.index()]),
            downlink: about(truth.downlink[site.index()]),
            demand: about(truth.demand[site.index()]),
            latency_us,
        }
    }

    /// One step: everybody estimates, what is due arrives, timers fire.
    fn step(&mut self) {
        self.now = self.now + STEP;
        for site in sites(self.n()) {
            let estimate = self.estimate(site);
            let now = self.now;
            if let Some(control) = &mut self.controls[site.index()] {
                control.handle_estimate(now, estimate);
                if control.poll_timeout().is_some_and(|at| at <= now) {
                    control.handle_timeout(now);
                    assert!(control.poll_timeout().is_none_or(|at| at > now), "no busy loop");
                }
            }
            self.drain(site);
        }
        while let Some(first) = self.mail.first_entry().filter(|mail| mail.key().0 <= self.now) {
            let (from, to, message) = first.remove();
            if let Some(control) = &mut self.controls[to.index()] {
                let decoded = ControlMessage::decode(&message.encode()).expect("it was encoded");
                control.handle_message(self.now, from, decoded).expect("everybody is honest");
            }
            self.drain(to);
        }
    }

    fn drain(&mut self, site: Site) {
        let Some(control) = &mut self.controls[site.index()] else { return };
        while let Some(ControlTransmit { to, message }) = control.poll_transmit() {
            for to in to.iter() {
                let is_split = self.side[to.index()] != self.side[site.index()];
                if is_split || self.random.below(100) < self.loss_percent {
                    continue;
                }
                let latency = 5 + self.random.below(150);
                let at = self.now + Duration::from_millis(latency);
                self.sent += 1;
                self.mail.insert((at, self.sent), (site, to, message.clone()));
            }
        }
        while let Some(event) = control.poll_event() {
            let plan = match event {
                ControlEvent::Plan(plan) => plan,
                ControlEvent::Contingency(relay, plan) => {
                    assert!(
                        plan.relays().intersection(relay).is_empty()
                            && plan.epoch() == control.epoch()
                    );
                    let all = &mut self.contingencies[site.index()];
                    *all = all.union(relay);
                    continue;
                }
            };
            assert_eq!(&plan, control.plan(), "the last one told is in use");
            self.contingencies[site.index()] = SiteSet::EMPTY;
            let epochs = &mut self.epochs[site.index()];
            let is_stale = epochs.last().is_some_and(|last| is_later(*last, plan.epoch()));
            assert!(!is_stale, "epochs only rise");
            if epochs.last() != Some(&plan.epoch()) {
                epochs.push(plan.epoch());
            }
        }
    }

    fn run(&mut self, seconds: u64) {
        (0..seconds * 20).for_each(|_| self.step());
    }

    /// The plan that all live sites use.
    fn agreed(&self) -> Arc<Plan> {
        let mut plans = self.controls.iter().flatten().map(|control| control.plan());
        let first = plans.next().expect("a site lives");
        assert!(plans.all(|plan| plan == first), "all sites use the same plan");
        Arc::clone(first)
    }

    fn plan_count(&self) -> usize {
        self.epochs.iter().map(Vec::len).max().unwrap_or(0)
    }
}

#[test]
fn all_sites_come_to_the_plan_of_what_they_reported() {
    let mut net = Net::new(1);
    net.run(2);
    let agreed = net.agreed();
    let snapshot = net.control(3).snapshot().expect("there is one").clone();
    assert_eq!(snapshot.model.uplink, net.truth.uplink);
    assert_eq!(snapshot.model.latency_us, net.truth.latency_us);
    assert_eq!(snapshot.model.demand[0], 55_000, "with its margin");
    assert_eq!(*agreed, plan(&snapshot.model, &PlanOptions::new()).expect("it is a model"));
    assert!(!agreed.relays().is_empty() && net.plan_count() == 1);
    assert!(net.contingencies.iter().all(|prepared| *prepared == agreed.relays()));
}

/// P14.
#[test]
fn noise_of_five_percent_changes_the_plan_at_most_once() {
    for seed in 0..20 {
        let mut net = Net::new(seed);
        net.noise = true;
        net.run(120);
        net.agreed();
        assert!(net.plan_count() <= 2, "seed {seed}: {:?}", net.epochs);
    }
}

#[test]
fn a_lasting_change_is_one_more_plan() {
    let mut net = Net::new(3);
    net.noise = true;
    net.run(10);
    let (before, count) = (net.agreed(), net.plan_count());
    net.truth.uplink[2] = 30_000;
    net.run(60);
    let after = net.agreed();
    assert_ne!(before, after);
    assert!(after.uplink_use(Site(2)) <= 30_000);
    assert!(net.plan_count() <= count + 2, "{:?}", net.epochs);
}

#[test]
fn an_input_that_jumps_all_the_time_changes_plans_at_most_twice_a_second() {
    let mut net = Net::new(4);
    for _ in 0..100 {
        net.truth.demand[0] = 80_000 - net.truth.demand[0];
        net.run(1);
    }
    assert!(net.plan_count() <= 201, "{}", net.plan_count());
    net.truth.demand[0] = 50_000;
    net.run(5);
    assert!(net.agreed().rate(Site(0)) >= 50_000);
}

#[test]
fn another_site_proposes_when_the_lowest_is_gone_and_nothing_is_lost_when_it_returns() {
    let mut net = Net::new(5);
    net.run(3);
    let gone = net.controls[0].take().expect("it ran");
    net.run(8);
    let without = net.agreed();
    assert!(!without.relays().contains(Site(0)));
    net.truth.demand[1] = 60_000;
    net.run(5);
    let (epoch, now) = (net.agreed().epoch(), net.now);
    assert_eq!((epoch % 128, net.control(3).proposer(now)), (1, Site(1)));
    assert!(epoch > gone.epoch());

    // Another life of it, which knows nothing.
    let fresh = Control::new(ControlConfig::new(), Site(0), 5, Incarnation(0), net.now);
    net.controls[0] = Some(fresh);
    net.epochs[0].clear();
    net.run(5);
    assert!(net.agreed().epoch() >= epoch);
    net.truth.demand[2] = 40_000;
    net.run(5);
    assert_eq!(net.agreed().epoch() % 128, 0, "it proposes again");
}

#[test]
fn a_lost_connection_counts_before_the_silence() {
    let mut net = Net::new(6);
    net.run(3);
    let relay = net.agreed().relays().iter().last().expect("there are relays");
    net.controls[relay.index()] = None;
    let now = net.now;
    for site in (0..5).filter(|site| *site != relay.0) {
        net.control(site).handle_down(now, relay);
        net.drain(Site(site));
    }
    net.run(1);
    assert!(!net.agreed().relays().contains(relay));
}

#[test]
fn a_suspected_relay_is_soon_left_by_all() {
    let mut net = Net::new(7);
    net.run(3);
    let (before, now) = (net.agreed(), net.now);
    let relay = before.trees(Site(0)).iter().find_map(|tree| tree.relay).expect("it needs one");
    net.control(0).handle_suspicion(now, relay, true);
    net.drain(Site(0));
    net.run(2);
    let without = net.agreed();
    assert!(without.epoch() > before.epoch() && !without.relays().contains(relay));

    let now = net.now;
    net.control(0).handle_suspicion(now, relay, false);
    net.drain(Site(0));
    net.run(2);
    net.agreed();
}

#[test]
fn who_suspects_most_of_the_others_is_not_believed() {
    let mut net = Net::new(8);
    net.run(3);
    let (before, now) = (net.agreed(), net.now);
    for relay in [0, 1, 2] {
        net.control(4).handle_suspicion(now, Site(relay), true);
    }
    net.drain(Site(4));
    net.run(3);
    assert_eq!(net.agreed(), before);
}

#[test]
fn lost_messages_and_partitions_heal() {
    for seed in 0..10 {
        let mut net = Net::new(100 + seed);
        net.loss_percent = 40;
        net.noise = true;
        net.run(20);
        net.side = vec![0, 0, 1, 1, 1];
        net.truth.demand[0] = 20_000;
        net.truth.demand[4] = 50_000;
        net.run(20);
        net.side = vec![0; 5];
        net.run(10);
        net.loss_percent = 0;
        net.run(10);
        let agreed = net.agreed();
        assert!(agreed.rate(Site(4)) >= 45_000, "seed {seed}: {agreed:?}");
    }
}

#[test]
fn the_first_plan_does_not_wait_for_a_dead_site_for_ever() {
    let mut net = Net::new(9);
    net.controls[1] = None;
    net.run(2);
    assert_eq!(net.plan_count(), 0, "it is too early");
    assert_eq!(*net.agreed(), Plan::direct(5, 0));
    net.run(3);
    assert_eq!(net.plan_count(), 1);
    assert!(!net.agreed().relays().contains(Site(1)));
}

#[test]
fn a_fixed_plan_stays_and_comes_with_its_contingencies() {
    let mut model = truth();
    model.epoch = 9;
    let mut net = Net::with(10, truth(), ControlConfig::new().fixed(model));
    net.run(3);
    let agreed = net.agreed();
    assert_eq!((agreed.epoch(), net.sent), (9, 0), "nobody says anything");
    net.truth.uplink[0] = 1_000;
    net.run(3);
    assert_eq!(net.agreed(), agreed);
    let relay = agreed.relays().iter().next().expect("there are relays");
    let now = net.now;
    net.control(0).handle_suspicion(now, relay, true);
    net.run(3);
    assert_eq!((net.agreed(), net.sent), (agreed, 0));
    assert!(net.contingencies[0].contains(relay));
}

#[test]
fn one_and_two_sites_send_direct() {
    for n in [1, 2] {
        let truth = HoseModel {
            uplink: vec![100_000; n],
            downlink: vec![100_000; n],
            latency_us: (0..n * n)
                .map(|at| if at.is_multiple_of(n + 1) { 0 } else { 9_000 })
                .collect(),
            demand: vec![50_000; n],
            epoch: 0,
        };
        let mut net = Net::with(11, truth, ControlConfig::new());
        net.run(3);
        assert!(net.agreed().relays().is_empty());
    }
}

#[test]
fn a_wrong_fixed_model_is_the_direct_plan() {
    let mut model = truth();
    model.demand.pop();
    let mut net = Net::with(12, truth(), ControlConfig::new().fixed(model));
    net.run(1);
    assert_eq!(*net.agreed(), Plan::direct(5, 0));
    let of_another = HoseModel {
        uplink: vec![1],
        downlink: vec![1],
        latency_us: vec![0],
        demand: vec![1],
        epoch: 3,
    };
    let mut net = Net::with(12, truth(), ControlConfig::new().fixed(of_another));
    net.run(1);
    assert_eq!(*net.agreed(), Plan::direct(5, 3));
}

fn report(net: &mut Net, site: u16) -> SiteReport {
    let estimate = net.estimate(Site(site));
    let version = ReportVersion { incarnation: Incarnation(1), sequence: 1 };
    SiteReport { site: Site(site), version, plan_epoch: 0, estimate, suspects: SiteSet::EMPTY }
}

#[test]
fn what_cannot_be_is_a_fault_of_its_sender() {
    let mut net = Net::new(13);
    net.run(2);
    let (now, of_2) = (net.now, report(&mut net, 2));
    let mut handle = |from: u16, message| net.control(1).handle_message(now, Site(from), message);
    let fault = handle(3, ControlMessage::Report(of_2.clone()));
    assert_eq!(fault, Err(ControlFault::NotItsOwn { from: Site(3), site: Site(2) }));
    let mut of_me = of_2.clone();
    of_me.site = Site(1);
    of_me.estimate.latency_us.swap(1, 2);
    assert!(handle(1, ControlMessage::Report(of_me)).is_err());
    let mut short = of_2.clone();
    short.estimate.latency_us.pop();
    let fault = handle(2, ControlMessage::Report(short));
    assert_eq!(fault, Err(ControlFault::Sites { expected: 5, found: 4 }));
    let mut fast = of_2;
    fast.estimate.demand = u64::MAX;
    assert_eq!(handle(2, ControlMessage::Report(fast)), Err(ControlFault::Rate));
    let mut long = Snapshot { model: truth(), excluded: SiteSet::EMPTY };
    long.model.demand.push(1);
    assert!(handle(2, ControlMessage::Snapshot(long)).is_err());
    let before = net.agreed();
    net.run(3);
    assert_eq!(net.agreed(), before);
}

/// Snapshot of a liar: nobody can receive anything.
fn made_up(epoch: u32) -> Snapshot {
    let model = HoseModel { downlink: vec![0; 5], epoch, ..truth() };
    Snapshot { model, excluded: SiteSet::EMPTY }
}

#[test]
fn no_site_can_use_up_the_epochs() {
    let mut net = Net::new(16);
    net.run(2);
    for epoch in [1 << 30, 2 << 30, 3 << 30, u32::MAX, 1 << 30] {
        let message = ControlMessage::Snapshot(made_up(epoch));
        for to in 0..4 {
            let now = net.now;
            let taken = net.control(to).handle_message(now, Site(4), message.clone());
            taken.expect("it may be");
            net.drain(Site(to));
        }
        net.run(6);
        assert!(net.agreed().rate(Site(0)) >= 50_000, "the proposer has made another plan");
    }
}

#[test]
fn a_flood_of_snapshots_seldom_changes_the_plan() {
    let mut net = Net::new(17);
    net.run(2);
    let mut wrong = 0;
    for _ in 0..1_000 {
        for to in 0..4 {
            let (now, epoch) = (net.now, net.control(to).epoch());
            let message = ControlMessage::Snapshot(made_up(epoch + 131));
            net.control(to).handle_message(now, Site(4), message).expect("it may be");
            net.drain(Site(to));
        }
        net.step();
        wrong += u32::from(net.control(1).plan().rate(Site(0)) == 0);
    }
    assert!((1..200).contains(&wrong), "{wrong} of 1000 steps of 50 ms");
}

/// Everybody receives everything: the smallest downlink bounds the rates of all.
#[test]
fn a_flood_of_old_epochs_is_answered_now_and_then() {
    let mut net = Net::new(7);
    net.run(2);
    let now = net.now;
    let first = report(&mut net, 1);
    let control = net.control(0);
    assert!(control.epoch() > 0);
    while control.poll_transmit().is_some() {}
    let lessons = |control: &mut Control| {
        let sent = std::iter::from_fn(|| control.poll_transmit());
        let is_lesson = |it: &ControlTransmit| matches!(it.message, ControlMessage::Snapshot(_));
        sent.filter(is_lesson).count()
    };
    let flood = |control: &mut Control, now, from: u32| {
        for sequence in from..from + 100 {
            let version = ReportVersion { sequence, ..first.version };
            let report = SiteReport { version, ..first.clone() };
            let report = ControlMessage::Report(report);
            control.handle_message(now, Site(1), report).expect("it may be");
            let old = ControlMessage::Snapshot(made_up(0));
            control.handle_message(now, Site(1), old).expect("it may be");
        }
        lessons(control)
    };
    let from = 1_000;
    assert_eq!(flood(control, now, from), 1);
    assert_eq!(flood(control, now + Duration::from_secs(1), from + 100), 1);
}

#[test]
fn one_site_without_a_downlink_does_not_stop_the_others() {
    let mut net = Net::new(18);
    net.truth.downlink[4] = 0;
    net.run(2);
    let rates: u64 = sites(5).map(|site| net.agreed().rate(site)).sum();
    assert!((10_000..20_000).contains(&rates), "a tenth of what the others can receive: {rates}");
    // A site that is slower than others all the same is heard.
    net.truth.downlink[4] = 40_000;
    net.run(5);
    let rates: u64 = sites(4).map(|site| net.agreed().rate(site)).sum();
    assert!((20_000..=40_000).contains(&rates), "{rates}");
}

#[test]
fn an_old_report_changes_nothing() {
    let mut net = Net::new(14);
    net.run(2);
    let (now, mut old) = (net.now, report(&mut net, 2));
    old.version.sequence = 1;
    old.estimate.uplink = 1;
    assert_eq!(net.control(0).handle_message(now, Site(2), ControlMessage::Report(old)), Ok(()));
    let before = net.agreed();
    net.run(3);
    assert_eq!(net.agreed(), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any proposal of a member is a fault, or there is a plan.
    #[test]
    fn any_snapshot_is_taken_or_a_fault(
        rates in prop::collection::vec(prop_oneof![Just(0), 1..200_000_u64, 0..=1_u64 << 49], 15),
        latencies in prop::collection::vec(any::<u32>(), 25),
        epochs in prop::collection::vec(any::<u32>(), 3),
        excluded: u128,
    ) {
        let mut control =
            Control::new(ControlConfig::new(), Site(0), 5, Incarnation(1), Timestamp::ZERO);
        for (epoch, second) in epochs.into_iter().zip((0..).step_by(5)) {
            let model = HoseModel {
                uplink: rates[..5].to_vec(),
                downlink: rates[5..10].to_vec(),
                demand: rates[10..].to_vec(),
                latency_us: latencies.clone(),
                epoch,
            };
            let snapshot = Snapshot { model, excluded: SiteSet::from_bits(excluded) };
            let message = ControlMessage::Snapshot(snapshot);
            let now = Timestamp::ZERO + Duration::from_secs(second);
            let taken = control.handle_message(now, Site(3), message);
            prop_assert!(taken.is_err() || !is_later(epoch, control.epoch()));
            prop_assert_eq!(control.plan().sites(), 5);
        }
    }

    /// Any reports of the members lead to a plan that fits them, the same at all.
    #[test]
    fn any_reports_lead_to_one_plan(
        rates in prop::collection::vec(prop_oneof![Just(0), 1..200_000_u64, 0..=1_u64 << 48], 15),
        latencies in prop::collection::vec(any::<u32>(), 25),
        seed: u64,
    ) {
        let mut truth = truth();
        truth.uplink.copy_from_slice(&rates[..5]);
        truth.downlink.copy_from_slice(&rates[5..10]);
        truth.demand.copy_from_slice(&rates[10..]);
        truth.latency_us = latencies;
        (0..5).for_each(|site| truth.latency_us[site * 6] = 0);
        let mut net = Net::with(seed, truth, ControlConfig::new());
        net.run(3);
        let agreed = net.agreed();
        let snapshot = net.control(2).snapshot().expect("all have reported");
        prop_assert_eq!(agreed.verify(&snapshot.model), Ok(()));
    }
}

#[test]
fn many_sites_get_the_plan_without_a_relay_when_it_fails() {
    let n = 20;
    let truth = HoseModel {
        uplink: vec![100_000; n],
        downlink: vec![100_000; n],
        latency_us: (0..n * n).map(|at| if at.is_multiple_of(n + 1) { 0 } else { 9_000 }).collect(),
        demand: (0..n).map(|site| if site == 0 { 50_000 } else { 1_000 }).collect(),
        epoch: 0,
    };
    let mut net = Net::with(15, truth, ControlConfig::new());
    net.run(2);
    let relay = net.agreed().relays().iter().last().expect("there are relays");
    assert!(net.contingencies[0].is_empty());
    let now = net.now;
    net.control(0).handle_failing(now, SiteSet::EMPTY.with(relay));
    net.drain(Site(0));
    assert!(net.contingencies[0].contains(relay));
}

/// Each plan takes the time of all that wait for the lock.
#[test]
fn one_site_that_says_another_thing_each_time_has_one_plan_made() {
    let now = Timestamp::from_nanos(1_000);
    let n = 8;
    let model = HoseModel {
        uplink: vec![100_000; n],
        downlink: vec![200_000; n],
        latency_us: (0..n * n).map(|at| if at.is_multiple_of(n + 1) { 0 } else { 9_000 }).collect(),
        demand: (0..n).map(|site| if site == 0 { 80_000 } else { 1_000 }).collect(),
        epoch: 9,
    };
    let config = ControlConfig::new().fixed(model);
    let period = config.replan_period;
    let mut control = Control::new(config, Site(0), n, Incarnation(1), now);
    let node = NodeConfig::new(Site(0), n, Incarnation(1));
    let mut node = OverlayNode::new(now, node).expect("it is right");
    for site in (1..8).map(Site) {
        node.handle_link(now, site, LinkEvent::Up { incarnation: Incarnation(1) });
    }
    // As a driver does after each batch. The plans without several relays that were made.
    let drive = |now, node: &mut OverlayNode, control: &mut Control| {
        let mut made = Vec::new();
        while node.poll_event().is_some() {}
        control.handle_failing(now, node.lacking());
        while let Some(event) = control.poll_event() {
            match event {
                ControlEvent::Plan(plan) => node.set_plan(now, (*plan).clone()).expect("ours"),
                ControlEvent::Contingency(relays, plan) => {
                    node.set_contingency(now, relays, (*plan).clone()).expect("ours");
                    made.extend((relays.len() > 1).then_some(relays));
                }
            }
        }
        made
    };
    drive(now, &mut node, &mut control);
    let relays: Vec<Site> = control.plan().relays().iter().collect();
    let [.., liar, a, b, c] = relays[..] else { panic!("there are relays: {relays:?}") };
    let sets = [[a, b], [b, c]].map(|set| set.into_iter().collect::<SiteSet>());
    let mut made = Vec::new();
    for version in 1..=1_000 {
        let suspects = sets[version as usize % 2];
        let view = View { version, suspects, unreached: SiteSet::EMPTY };
        node.handle_frame(now, liar, Frame::View(view)).expect("it may be");
        made.extend(drive(now, &mut node, &mut control));
    }
    assert!(made.len() <= 1, "{}", made.len());
    assert_eq!(node.failing(), sets[0]);
    let later = now + period;
    assert_eq!(control.poll_timeout(), Some(later));
    control.handle_timeout(later);
    made.extend(drive(later, &mut node, &mut control));
    assert_eq!((made.last(), node.lacking()), (Some(&sets[0]), SiteSet::EMPTY));
}
