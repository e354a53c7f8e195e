//! One run: nodes on a network in which links have a latency, sites an uplink, and what can fail
//! fails as a seed says.

mod faults;
mod network;
mod readers;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use convoke_core::id::Incarnation;
use convoke_core::time::Timestamp;
use convoke_overlay::{
    BroadcastError, Event as Told, FetchError, Fetched, LinkEvent, NodeConfig, OpId, OverlayNode,
    Plan, Site, SiteSet, TransmitKind,
};
use convoke_sim::random::Random;

use crate::oracle::Oracle;

/// Conditions of the network.
#[derive(Clone, Debug)]
pub(crate) struct Conditions {
    pub(crate) sites: usize,
    /// One way, of every pair.
    pub(crate) latency: Duration,
    /// And up to this much more, for each frame: what reorders them.
    pub(crate) jitter: Duration,
    /// Of each site, kbit/s; none: unlimited.
    pub(crate) uplink: Option<u64>,
    /// A site that data reaches slowly, and its rate, kbit/s.
    pub(crate) downlink: Option<(Site, u64)>,
    /// Bytes of data that a link takes before it is blocked.
    pub(crate) link_bytes: usize,
    pub(crate) loss_per_mille: u32,
    pub(crate) copy_per_mille: u32,
    /// Time after a crash or cut until the others are told that the link is down.
    pub(crate) notice: Duration,
    /// Sites that send nothing on of what others send.
    pub(crate) drops: SiteSet,
    /// Rate at which each application reads what it was given, kbit/s; none: at once.
    pub(crate) reading: Option<u64>,
}

impl Conditions {
    /// No faults, 20 ms, no limits.
    pub(crate) fn calm(sites: usize) -> Self {
        Self {
            sites,
            latency: Duration::from_millis(20),
            jitter: Duration::ZERO,
            uplink: None,
            downlink: None,
            link_bytes: 1 << 20,
            loss_per_mille: 0,
            copy_per_mille: 0,
            notice: Duration::from_millis(1),
            drops: SiteSet::EMPTY,
            reading: None,
        }
    }
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A frame has left the uplink of its sender.
    Depart {
        flight: Flight,
    },
    Arrive {
        flight: Flight,
    },
    Wake {
        site: Site,
        life: u64,
    },
    Link {
        at: Site,
        peer: Site,
        generation: u64,
        event: LinkEvent,
    },
    Broadcast {
        from: Site,
        len: usize,
    },
    /// A body for some.
    Bring {
        from: Site,
        len: usize,
        to: SiteSet,
    },
    Plan {
        at: Site,
        plan: Plan,
    },
    Crash(Site),
    Restart(Site),
    Cut(Site, Site),
    Join(Site, Site),
    /// A site ceases, or begins, to read what comes.
    Read {
        site: Site,
        is_reading: bool,
    },
    /// A site's application ceases, or begins, to take events.
    Take {
        site: Site,
        is_taking: bool,
    },
    /// A site's application has read the first of what it has.
    Consume {
        site: Site,
        life: u64,
    },
    Fetch {
        at: Site,
        op: OpId,
    },
    /// One of all operations so far, by its place among them.
    FetchAny {
        at: Site,
        place: usize,
    },
}

/// A frame on its way.
#[derive(Clone, Debug)]
pub(crate) struct Flight {
    from: (Site, u64),
    to: (Site, u64),
    /// Of the link: what of an earlier one comes late does not come.
    generation: u64,
    kind: TransmitKind,
    bytes: Bytes,
}

#[derive(Debug)]
struct Host {
    node: Option<OverlayNode>,
    life: u64,
    is_reading: bool,
    is_taking: bool,
    backlog: Vec<Flight>,
    wake_at: Option<Timestamp>,
    uplink_free_at: Timestamp,
    downlink_free_at: Timestamp,
    plan: Option<Plan>,
    /// Bytes that its application was given and has not read, with their sources.
    unread: VecDeque<(Site, usize)>,
    /// Broadcasts that were not ready.
    waiting: Vec<(usize, Option<SiteSet>)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    generation: u64,
    is_up: bool,
}

/// A run in progress.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) conditions: Conditions,
    pub(crate) oracle: Oracle,
    pub(crate) random: Random,
    pub(crate) steps: u64,
    configure: fn(&mut NodeConfig),
    queue: BTreeMap<(Timestamp, u64), Event>,
    next_event: u64,
    hosts: Vec<Host>,
    links: BTreeMap<(Site, Site), Link>,
    in_flight: BTreeMap<(Site, Site), usize>,
    blocked: BTreeMap<(Site, Site), bool>,
    /// When the lives that ended did.
    ended: BTreeMap<(Site, u64), Timestamp>,
    burst: u64,
}

impl World {
    /// All sites, connected with each other.
    pub(crate) fn new(seed: u64, conditions: Conditions, configure: fn(&mut NodeConfig)) -> Self {
        let hosts = (0..conditions.sites).map(|_| Host {
            node: None,
            life: 0,
            is_reading: true,
            is_taking: true,
            backlog: Vec::new(),
            wake_at: None,
            uplink_free_at: Timestamp::ZERO,
            downlink_free_at: Timestamp::ZERO,
            plan: None,
            unread: VecDeque::new(),
            waiting: Vec::new(),
        });
        let mut world = Self {
            now: Timestamp::from_nanos(1_000),
            oracle: Oracle::new(conditions.sites),
            random: Random::new(seed),
            steps: 0,
            configure,
            queue: BTreeMap::new(),
            next_event: 0,
            hosts: hosts.collect(),
            links: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            blocked: BTreeMap::new(),
            ended: BTreeMap::new(),
            burst: 0,
            conditions,
        };
        world.sites().for_each(|site| world.start(site));
        world
    }

    pub(crate) fn sites(&self) -> impl Iterator<Item = Site> + use<> {
        (0..self.hosts.len()).map(|index| Site(u16::try_from(index).unwrap()))
    }

    pub(crate) fn node(&self, site: Site) -> Option<&OverlayNode> {
        self.hosts[site.index()].node.as_ref()
    }

    pub(crate) fn life(&self, site: Site) -> u64 {
        self.hosts[site.index()].life
    }

    /// Something will happen so long from now.
    pub(crate) fn after(&mut self, delay: Duration, event: Event) {
        self.queue.insert((self.now + delay, self.next_event), event);
        self.next_event += 1;
    }

    /// All sites use this plan from the start, and after restarts.
    pub(crate) fn set_plan(&mut self, plan: &Plan) {
        for site in self.sites().collect::<Vec<_>>() {
            self.handle(Event::Plan { at: site, plan: plan.clone() });
        }
    }

    pub(crate) fn set_contingency(&mut self, relay: Site, plan: &Plan) {
        for site in self.sites().collect::<Vec<_>>() {
            let (host, now) = (&mut self.hosts[site.index()], self.now);
            let Some(node) = &mut host.node else { continue };
            node.set_contingency(now, SiteSet::EMPTY.with(relay), plan.clone()).unwrap();
            self.settle(site);
        }
    }

    /// Runs until nothing is left to happen, or until `end`.
    pub(crate) fn run_until(&mut self, end: Duration) {
        let end = Timestamp::ZERO + end;
        while self.queue.first_key_value().is_some_and(|((at, _), _)| *at <= end) {
            self.step();
        }
        self.now = self.now.max(end);
    }

    /// The next event. False when there is none.
    pub(crate) fn step(&mut self) -> bool {
        let Some(((at, _), event)) = self.queue.pop_first() else { return false };
        self.burst = if at > self.now { 0 } else { self.burst + 1 };
        assert!(self.burst < 100_000, "the nodes chase their tails at {at:?}");
        self.now = at;
        self.steps += 1;
        self.handle(event);
        true
    }

    pub(crate) fn handle(&mut self, event: Event) {
        match event {
            Event::Depart { flight } => self.depart(flight),
            Event::Arrive { flight } => self.arrive(flight),
            Event::Wake { site, life } => self.wake(site, life),
            Event::Link { at, peer, generation, event } => {
                self.on_link(at, peer, generation, event);
            }
            Event::Broadcast { from, len } => self.broadcast(from, len, None),
            Event::Bring { from, len, to } => self.broadcast(from, len, Some(to)),
            Event::Plan { at, plan } => self.plan(at, plan),
            Event::Crash(site) => self.crash(site),
            Event::Restart(site) => self.restart(site),
            Event::Cut(a, b) => self.cut(a, b),
            Event::Join(a, b) => self.join(a, b),
            Event::Read { site, is_reading } => self.set_reading(site, is_reading),
            Event::Take { site, is_taking } => {
                self.hosts[site.index()].is_taking = is_taking;
                self.settle(site);
            }
            Event::Consume { site, life } => self.consume(site, life),
            Event::Fetch { at, op } => self.fetch(at, op),
            Event::FetchAny { at, place } => {
                let count = self.oracle.ops.len().max(1);
                let op = self.oracle.ops.keys().nth(place % count).copied();
                op.into_iter().for_each(|op| self.fetch(at, op));
            }
        }
    }

    fn start(&mut self, site: Site) {
        let host = &mut self.hosts[site.index()];
        host.life += 1;
        let mut config = NodeConfig::new(site, self.conditions.sites, incarnation(site, host.life));
        // The links of this world queue little, so a late relay shows soon.
        config.limits.relay_timer_initial = Duration::from_secs(1);
        config.limits.relay_timer_margin = Duration::from_millis(25);
        (self.configure)(&mut config);
        let mut node = OverlayNode::new(self.now, config).unwrap();
        if let Some(plan) = &host.plan {
            node.set_plan(self.now, plan.clone()).unwrap();
        }
        host.node = Some(node);
        host.uplink_free_at = self.now;
        host.downlink_free_at = self.now;
        host.wake_at = None;
        for peer in self.sites().filter(|peer| *peer != site).collect::<Vec<_>>() {
            self.join(site, peer);
        }
    }

    fn plan(&mut self, at: Site, plan: Plan) {
        let (host, now) = (&mut self.hosts[at.index()], self.now);
        if let Some(node) = &mut host.node {
            node.set_plan(now, plan.clone()).unwrap();
        }
        host.plan = Some(plan);
        self.settle(at);
    }

    /// To all, or as a body to some.
    pub(crate) fn broadcast(&mut self, from: Site, len: usize, to: Option<SiteSet>) {
        let (host, now) = (&mut self.hosts[from.index()], self.now);
        let Some(node) = &mut host.node else { return };
        if !host.waiting.is_empty() {
            host.waiting.push((len, to));
            return;
        }
        let payload = self.oracle.payload(from, len);
        let sent = match to {
            None => node.broadcast(now, payload.clone()),
            Some(to) => node.bring(now, payload.clone(), to),
        };
        match sent {
            Ok(op) => self.oracle.on_broadcast(now, op, payload, to),
            Err(BroadcastError::NotReady) => host.waiting.push((len, to)),
            Err(error) => panic!("{error}"),
        }
        self.settle(from);
    }

    fn fetch(&mut self, at: Site, op: OpId) {
        let (host, now) = (&mut self.hosts[at.index()], self.now);
        let Some(node) = &mut host.node else { return };
        match node.fetch(now, op) {
            Ok(Fetched::Held(payload)) => self.oracle.check(op, payload),
            Ok(Fetched::Delivered) => assert!(self.oracle.has(at, op) || self.oracle.may_wait),
            Ok(Fetched::Asked) | Err(FetchError::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        self.settle(at);
    }

    fn wake(&mut self, site: Site, life: u64) {
        let (host, now) = (&mut self.hosts[site.index()], self.now);
        if host.life != life || host.wake_at.is_none_or(|at| at > now) {
            return;
        }
        host.wake_at = None;
        let Some(node) = &mut host.node else { return };
        node.handle_timeout(now);
        self.settle(site);
    }

    /// Drains a node, sets its timer, and looks at it.
    fn settle(&mut self, site: Site) {
        let index = site.index();
        loop {
            let now = self.now;
            let Some(node) = &mut self.hosts[index].node else { return };
            if let Some(transmit) = node.poll_transmit(now) {
                self.transmit(site, transmit);
                continue;
            }
            let is_taking = self.hosts[index].is_taking;
            let Some(node) = &mut self.hosts[index].node else { return };
            let Some(event) = is_taking.then(|| node.poll_event()).flatten() else { break };
            let is_ready = matches!(event, Told::Ready);
            if let Told::Delivered { op, payload } = &event {
                self.give(site, op.source, payload.len());
            }
            self.oracle.on_event(now, site, event);
            if is_ready {
                let waiting = std::mem::take(&mut self.hosts[index].waiting);
                waiting.into_iter().for_each(|(len, to)| self.broadcast(site, len, to));
            }
        }
        self.set_timer(site);
        let node = self.hosts[index].node.as_ref().expect("it was there above");
        self.oracle.look(site, node);
    }

    fn set_timer(&mut self, site: Site) {
        let host = &mut self.hosts[site.index()];
        let Some(at) = host.node.as_ref().and_then(OverlayNode::poll_timeout) else { return };
        let at = at.max(self.now);
        if host.wake_at.is_none_or(|wake_at| at < wake_at) {
            host.wake_at = Some(at);
            let (life, delay) = (host.life, at - self.now);
            self.after(delay, Event::Wake { site, life });
        }
    }
}

fn pair(a: Site, b: Site) -> (Site, Site) {
    (a.min(b), a.max(b))
}

pub(crate) fn incarnation(site: Site, life: u64) -> Incarnation {
    Incarnation(u64::from(site.0) << 32 | life)
}
