//! Coded stripes against the plain overlay, at the same load on the same network.
//!
//! A message is cut into k pieces, and a code adds one. Each piece goes to another relay, which
//! passes it on to all others; whoever has any k of them has the message. So the death of a relay
//! delays nothing, for a k-th part more traffic. Here stripes have all that speaks for them: no
//! acknowledgements, no digests, no time for the code, and no pacing.

use std::collections::BTreeMap;
use std::time::Duration;

use convoke_core::time::Timestamp;
use convoke_overlay::{Fairness, HoseModel, Plan, PlanOptions, Site, SiteSet, plan as plan_of};
use convoke_sim::hose::{Hose, Limits};

use crate::faults::{LOAD_PERMILLE, Part, QUIET_UNTIL, SECOND, SETTLED_AT, busiest, model};
use crate::wan::{Delivery, OP_BYTES, Wan};

/// A relay dies after three seconds; runs end after ten.
const DIES_AT: Duration = Duration::from_secs(3);
const LASTS: Duration = Duration::from_secs(10);

/// Time after which a relay is left out whose links say that it is down, or that says nothing.
const NOTICED: Duration = Duration::from_millis(1);
const SILENT: Duration = Duration::from_millis(750);

/// One piece on its way: of which message, and those that it is to be passed on to.
#[derive(Clone, Debug)]
struct Piece {
    source: usize,
    number: u64,
    pass_on: Vec<usize>,
}

/// Sites that broadcast coded stripes.
struct Coded {
    now: Timestamp,
    model: HoseModel,
    hose: Hose<usize, Piece>,
    /// When each site broadcasts next, and how often.
    next: Vec<(Timestamp, Duration)>,
    sent: Vec<Vec<(Timestamp, usize)>>,
    /// Pieces that have come, by receiver, source and number.
    came: BTreeMap<(usize, usize, u64), usize>,
    dead: Option<usize>,
    /// When the others leave it out.
    known_at: Timestamp,
    deliveries: Vec<Delivery>,
}

fn site(index: usize) -> Site {
    Site(u16::try_from(index).expect("there are few sites"))
}

impl Coded {
    /// `rates` in kbit/s, by site.
    fn new(model: &HoseModel, rates: &[u64]) -> Self {
        let (n, now) = (model.sites(), Timestamp::from_nanos(1));
        let mut hose = Hose::new();
        for index in 0..n {
            hose.uplink(index, Limits::kbit_per_s(model.uplink[index]));
            hose.downlink(index, Limits::kbit_per_s(model.downlink[index]));
        }
        let every = |rate: &u64| Duration::from_nanos(OP_BYTES as u64 * 8_000_000 / rate);
        Self {
            now,
            model: model.clone(),
            hose,
            next: rates.iter().map(|rate| (now, every(rate))).collect(),
            sent: vec![Vec::new(); n],
            came: BTreeMap::new(),
            dead: None,
            known_at: Timestamp::MAX,
            deliveries: Vec::new(),
        }
    }

    fn kill(&mut self, relay: Site, known_after: Duration) {
        self.dead = Some(relay.index());
        self.known_at = self.now + known_after;
        self.next[relay.index()].0 = Timestamp::MAX;
    }

    fn is_dead(&self, index: usize) -> bool {
        self.dead == Some(index)
    }

    fn run_until(&mut self, until: Timestamp) {
        loop {
            let sources = self.next.iter().map(|(at, _)| *at);
            let at = sources.chain(self.hose.poll_timeout()).min().unwrap_or(Timestamp::MAX);
            if at > until {
                break;
            }
            self.now = self.now.max(at);
            while let Some(arrival) = self.hose.poll_arrival(self.now) {
                self.arrive(arrival.to, &arrival.item);
            }
            for index in 0..self.next.len() {
                if self.next[index].0 <= self.now {
                    self.broadcast(index);
                }
            }
        }
        self.now = until;
    }

    /// Sends each of those that it takes for alive a piece, which that one passes on to the others.
    fn broadcast(&mut self, source: usize) {
        let (at, every) = self.next[source];
        self.next[source].0 = at + every;
        let is_left_out = |index: usize| self.is_dead(index) && self.now >= self.known_at;
        let others: Vec<usize> =
            (0..self.next.len()).filter(|it| *it != source && !is_left_out(*it)).collect();
        let (number, needed) = (self.sent[source].len() as u64, others.len() - 1);
        self.sent[source].push((self.now, needed));
        for relay in &others {
            let pass_on = others.iter().copied().filter(|it| it != relay).collect();
            self.send(source, *relay, Piece { source, number, pass_on }, needed);
        }
    }

    fn send(&mut self, from: usize, to: usize, piece: Piece, needed: usize) {
        let latency_us = self.model.latency_us[from * self.model.sites() + to];
        let (latency, bytes) =
            (Duration::from_micros(latency_us.into()), OP_BYTES.div_ceil(needed));
        self.hose.send(self.now, from, to, bytes as u64, latency, piece);
    }

    fn arrive(&mut self, at: usize, piece: &Piece) {
        if self.is_dead(at) {
            return;
        }
        let number = usize::try_from(piece.number).expect("runs are short");
        let (sent, needed) = self.sent[piece.source][number];
        for to in &piece.pass_on {
            self.send(at, *to, Piece { pass_on: Vec::new(), ..piece.clone() }, needed);
        }
        let came = self.came.entry((at, piece.source, piece.number)).or_default();
        *came += 1;
        if *came == needed {
            let (source, took) = (site(piece.source), self.now.since(sent));
            self.deliveries.push(Delivery { source, to: site(at), sent, took });
        }
    }
}

/// Latencies of a run: without faults, and of all that a death may have hit.
#[derive(Debug)]
struct Took {
    median: Duration,
    worst: Duration,
    hit: Duration,
}

impl Took {
    fn of(deliveries: &[Delivery], dead: Site) -> Self {
        let dead = SiteSet::EMPTY.with(dead);
        let before = Part::among(deliveries, SETTLED_AT, QUIET_UNTIL, dead);
        let end = Timestamp::ZERO + (LASTS - SECOND);
        let hit = Part::among(deliveries, QUIET_UNTIL, end, dead);
        Self { median: before.median(), worst: before.worst(), hit: hit.worst() }
    }
}

fn plain(load_permille: u64, silence: Option<Duration>) -> (Took, Vec<u64>, Site) {
    let mut wan = Wan::planned(&model(), OP_BYTES, load_permille);
    let (relay, sites) = (busiest(&wan), wan.nodes.len());
    let rates = (0..sites).map(|it| wan.plan().rate(site(it)) * load_permille / 1_000).collect();
    wan.run_until(Timestamp::ZERO + DIES_AT);
    wan.kill(relay, silence);
    wan.run_until(Timestamp::ZERO + LASTS);
    (Took::of(&wan.deliveries, relay), rates, relay)
}

fn coded(rates: &[u64], relay: Site, known_after: Duration) -> Took {
    let mut coded = Coded::new(&model(), rates);
    coded.run_until(Timestamp::ZERO + DIES_AT);
    coded.kill(relay, known_after);
    coded.run_until(Timestamp::ZERO + LASTS);
    Took::of(&coded.deliveries, relay)
}

#[test]
fn coded_stripes_hide_a_death_and_take_longer_without_one() {
    for (silence, known_after) in [(Some(NOTICED), NOTICED), (None, SILENT)] {
        let (plain, rates, relay) = plain(LOAD_PERMILLE, silence);
        let coded = coded(&rates, relay, known_after);
        println!("known after {known_after:?}: plain {plain:?}, coded {coded:?}");
        assert!(coded.hit <= coded.worst * 2, "a piece less is enough: {coded:?}");
        assert!(plain.hit > coded.hit, "{plain:?} {coded:?}");
        assert!(coded.median > plain.median, "all of it takes two hops: {plain:?} {coded:?}");
    }
}

/// A third more for each byte is more than uplinks have left, at loads that the plan carries: see
/// `throughput`.
#[test]
fn coded_stripes_do_not_carry_what_the_plan_does() {
    let mut late = Vec::new();
    for part_permille in [750, 900, 950, 1_000] {
        let (made, model) = largest();
        let rate = |it| made.rate(site(it)) * part_permille / 1_000;
        let rates: Vec<u64> = (0..model.sites()).map(rate).collect();
        let mut coded = Coded::new(&model, &rates);
        coded.run_until(Timestamp::ZERO + LASTS);
        let end = coded.deliveries.iter().filter(|it| it.sent + it.took + SECOND >= coded.now);
        let worst = end.map(|it| it.took).max().unwrap_or_default();
        println!("{part_permille} of {} kbit/s: {worst:?} at the end", rates.iter().sum::<u64>());
        late.push(worst);
    }
    assert!(late[0] < SECOND && late[3] > SECOND, "{late:?}");
}

/// The plan of the most that fits, in these proportions.
fn largest() -> (Plan, HoseModel) {
    let mut model = model();
    model.demand.iter_mut().for_each(|rate| *rate *= 4);
    let options = PlanOptions::new().admit(Some(Fairness::Proportional));
    (plan_of(&model, &options).expect("it is a model"), model)
}
