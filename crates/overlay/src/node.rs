//! One site of an overlay: its own stream, its part in those of others, and what it receives.
//!
//! ```text
//!   broadcast ─▶ Sender ─ Routes ─▶ Uplink per site ─▶ poll_transmit ─▶ a connection to each site
//!                  ▲      (trees)     ▲    ▲
//!                ACK                  │  answers to FETCH ◀─ Holdings
//!                  │              Forwards                      ▲
//!   handle_frame ──┴─ DATA with RELAY ┘    DATA ─▶ Receiver ─▶ whole operations ─▶ poll_event
//! ```

mod frames;
mod line;
mod links;
mod notices;
mod output;
mod own;
mod reachability;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use convoke_core::id::Incarnation;
use convoke_core::time::Timestamp;

use crate::bounds::{RTT_MAX, RTT_UNKNOWN, Want, in_flight, share};
use crate::event::{Counters, Event, Order, PlanRefused, SetupError};
use crate::limits::Limits;
use crate::pace::Bucket;
use crate::payload::Payload;
use crate::plan::Plan;
use crate::proof::Proofs;
use crate::reach::Reach;
use crate::receive::Receiver;
use crate::relay::{Credit, Forwards};
use crate::repair::{Fetches, Holdings};
use crate::routes::{LinkRate, Routes};
use crate::send::Sender;
use crate::site::{SITES_MAX, Site, SiteSet};
use crate::tally::Tally;
use crate::trust::Trust;
use crate::uplink::Uplink;
use crate::wire::{ChunkDigest, Flaw, Life, OpId, Passed, View};

use line::Line;
use reachability::{Helpers, Unhelpful};

/// Configuration of a node.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Its own site.
    pub me: Site,
    /// Number of sites, this one too.
    pub sites: usize,
    /// Its life: another one after each restart.
    pub incarnation: Incarnation,
    /// The order of delivery. Default: none.
    pub order: Order,
    /// Bounds and times.
    pub limits: Limits,
}

impl NodeConfig {
    /// The configuration of one site, with the defaults.
    pub fn new(me: Site, sites: usize, incarnation: Incarnation) -> Self {
        Self { me, sites, incarnation, order: Order::default(), limits: Limits::default() }
    }
}

/// The data plane of one site: a state machine without I/O and clock.
///
/// Its driver gives it frames, link events, operations and the time, and after each input drains
/// [`poll_transmit`](Self::poll_transmit) and [`poll_event`](Self::poll_event) until `None`, then
/// calls [`handle_timeout`](Self::handle_timeout) when [`poll_timeout`](Self::poll_timeout) says.
/// Time never goes backwards.
///
/// - **Links.** Every site is to be connected with every other. A link may consist of many
///   connections and flows, so frames to one site may pass each other. A frame arrives whole or not
///   at all; if one may have been lost, or the peer has restarted,
///   [`LinkEvent::Down`](crate::LinkEvent) and then `Up` say so. Before the first `Up` and after a
///   `Down`, frames of that site are ignored.
/// - **Backpressure.** A link that is `Blocked` gets control frames only. Operations that wait for
///   it count as unacknowledged, until [`broadcast`](Self::broadcast) is not ready. Frames to be
///   forwarded wait within the credit of their root. Nothing else waits for the link, and the node
///   always takes frames.
/// - **Trust.** Sites may crash, restart, be slow or be cut off. A relay may drop, change or hold
///   back what it forwards: its source says to each receiver what comes by it. Where no direct way
///   is left, those that help are believed. Whatever bytes others send, this node stays within its
///   bounds.
///
/// ```
/// use bytes::Bytes;
/// use convoke_core::{id::Incarnation, time::Timestamp};
/// use convoke_overlay::{Event, Frame, LinkEvent, NodeConfig, OverlayNode, Site};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let now = Timestamp::ZERO;
/// let mut nodes = Vec::new();
/// for site in [0, 1] {
///     let mut node = OverlayNode::new(now, NodeConfig::new(Site(site), 2, Incarnation(7)))?;
///     node.handle_link(now, Site(1 - site), LinkEvent::Up { incarnation: Incarnation(7) });
///     nodes.push(node);
/// }
/// nodes[0].broadcast(now, Bytes::from_static(b"to all others"))?;
/// while let Some(transmit) = nodes[0].poll_transmit(now) {
///     let bytes = transmit.frame.to_bytes(); // a connection carries them
///     nodes[1].handle_frame(now, Site(0), Frame::decode(&bytes)?)?;
/// }
/// let Some(Event::Delivered { payload, .. }) = nodes[1].poll_event() else {
///     panic!("it has come")
/// };
/// assert_eq!(payload.into_bytes(), "to all others");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OverlayNode {
    me: Site,
    sites: usize,
    limits: Limits,
    reach: Reach,
    /// The view that the others were told.
    view: View,
    /// This site is about to leave.
    is_leaving: bool,
    /// It misses much since it was away: it catches up before it relays.
    is_behind: bool,
    /// When it came to reach most of the others; none while it does not.
    back_at: Option<Timestamp>,
    /// Helpers of the sites that this one does not reach itself.
    helpers: BTreeMap<Site, Helpers>,
    /// Ends of the times in which frames of helpers may still come, of sites that are reached
    /// again.
    helped_until: BTreeMap<Site, Timestamp>,
    /// The next helper's turn.
    helper_turn: usize,
    /// Helpers that have not brought what they were given, of sites that this one does not reach.
    unhelpful: BTreeMap<Site, Unhelpful>,
    /// Control frames that go by others or are of others, and to whom they go next.
    passes: VecDeque<(Site, Passed)>,
    /// Sites that are owed nothing new, for they were down for too long.
    gone: SiteSet,
    uplinks: Vec<Uplink>,
    control: BTreeSet<(Site, Control)>,
    sender: Sender,
    line: Line,
    routes: Routes,
    trust: Trust,
    /// Credit that each site grants this one as a root, and when it last did or was asked.
    credits: Vec<(Credit, Option<Timestamp>)>,
    forwards: Forwards,
    receiver: Receiver,
    proofs: Proofs,
    /// Chunks that receivers are to be told of, by receiver and relay.
    notices: BTreeMap<(Site, Site), VecDeque<(u64, ChunkDigest)>>,
    /// Complaints to sources, by source, relay and flaw.
    missed: BTreeMap<(Site, Site, Flaw), BTreeSet<u64>>,
    holdings: Holdings,
    fetches: Fetches,
    /// Sources that there may be more room for than there was.
    roomier: SiteSet,
    /// When what is missing of a source is asked of others, that does not owe it or has no link.
    pulls: BTreeMap<Site, Timestamp>,
    /// The last floor that each site was told, and when.
    floors: Vec<Option<(u64, Timestamp)>>,
    /// The rate of the site, all links together.
    site_bucket: Bucket,
    repair_bucket: Bucket,
    events: VecDeque<Event>,
    /// Bytes that wait for `poll_event`.
    undelivered: Tally,
    /// Those that it gave, and the application has not read.
    unread: Tally,
    /// Factor on the rates of the plan, in thousandths.
    pacing_permille: u32,
    /// Chunks and bytes of the operation that was not ready.
    refused: Option<(usize, usize)>,
    /// The link that is asked first for something to send.
    turn: usize,
    counters: Counters,
    traffic: Vec<Traffic>,
}

/// Bytes of whole frames that have to do with one other site, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Own ones that it was given to pass on.
    pub relayed_by_bytes: u64,
    /// Those of its own stream that were passed on here.
    pub relayed_for_bytes: u64,
}

/// A control frame that is due. It is made when it leaves, with what is true then; so none is
/// queued twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Control {
    Floor,
    Open,
    Credit,
    Ack,
    View,
    /// Of what comes by this relay.
    Notice(Site),
    /// Of this relay, and what it did.
    Missed(Site, Flaw),
    Ping,
    Pong(u64),
    Fetch(OpId),
    HaveNot(OpId),
}

/// Control frames that may be due at once. Beyond it no HAVE_NOT is queued: whoever asked asks
/// another in time.
const CONTROL_MAX: usize = 1 << 14;

/// Reason why what waits to be sent is held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Backlog {
    /// There is nothing.
    Nothing,
    /// The rates of the plan.
    Paced,
    /// A link that takes nothing.
    Blocked,
}

/// A relay forwards faster than its roots send, in thousandths of the plan's rate, within the
/// headroom that plans leave: or what had queued once, such as when a root probed for more, would
/// never leave again, and only ever grow.
const FORWARD_PERMILLE: u64 = 1_080;

/// Events that may wait for `poll_event`. Beyond it, what a peer says that would only make more of
/// them is not taken; it says so again.
const EVENTS_MAX: usize = 1 << 16;

/// Bytes that a delivery that waits costs besides its payload, so that empty ones are bounded, too.
pub(crate) const DELIVERY_BYTES: usize = 128;

/// Amounts that a node holds, for tests and metrics. Each is bounded by [`Limits`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Payload bytes of own operations that are not acknowledged by all.
    pub unacked_bytes: usize,
    /// And their chunks.
    pub unacked_chunks: usize,
    /// Bytes of others that wait to be forwarded.
    pub forward_bytes: u64,
    /// The most of it of one root.
    pub forward_bytes_root: u64,
    /// Bytes that wait for others of their stream, the most of one source.
    pub reorder_bytes: usize,
    /// Bytes that came by relays and that their source has not spoken of yet, the most of one
    /// source.
    pub unproven_bytes: usize,
    /// Bytes that wait for `poll_event`, and 128 for each delivery.
    pub undelivered_bytes: usize,
    /// Bytes kept for the repair of others.
    pub held_bytes: usize,
    /// Operations being fetched.
    pub fetches: usize,
    /// Frames that wait in the queues of all links.
    pub queued: usize,
    /// Own chunks that have no way yet.
    pub in_line: usize,
    /// Control frames that are due.
    pub control: usize,
}

impl OverlayNode {
    /// A site without a plan and without links.
    ///
    /// # Errors
    /// [`SetupError`]: the configuration contradicts itself.
    pub fn new(now: Timestamp, config: NodeConfig) -> Result<Self, SetupError> {
        let NodeConfig { me, sites, incarnation, order, limits } = config;
        if !(1..=SITES_MAX).contains(&sites) {
            return Err(SetupError::Sites { sites });
        }
        if me.index() >= sites {
            return Err(SetupError::NotASite { me, sites });
        }
        limits.check()?;
        let relay_max = limits.relay_bytes_root_max.min(limits.relay_bytes_max / sites);
        let repair_rate = Some(limits.repair_rate_min);
        Ok(Self {
            me,
            sites,
            reach: Reach::new(me, sites, limits.quiet_after, limits.ping_period, now),
            view: View::default(),
            is_leaving: false,
            is_behind: false,
            back_at: None,
            helpers: BTreeMap::new(),
            helped_until: BTreeMap::new(),
            helper_turn: 0,
            unhelpful: BTreeMap::new(),
            passes: VecDeque::new(),
            floors: vec![None; sites],
            gone: SiteSet::EMPTY,
            uplinks: (0..sites).map(|_| Uplink::new(now, limits.burst)).collect(),
            control: BTreeSet::new(),
            sender: Sender::new(me, sites, Life::of(incarnation), &limits),
            line: Line::default(),
            routes: Routes::new(me, sites),
            trust: Trust::new(limits.probation_min, limits.probation_max),
            credits: vec![(Credit::default(), None); sites],
            forwards: Forwards::new(sites, relay_max, limits.small_bytes),
            receiver: Receiver::new(order, &limits),
            proofs: Proofs::new(limits.unproven_bytes_max),
            notices: BTreeMap::new(),
            missed: BTreeMap::new(),
            holdings: Holdings::new(&limits),
            fetches: Fetches::new(&limits),
            roomier: SiteSet::EMPTY,
            pulls: BTreeMap::new(),
            site_bucket: Bucket::new(now, None, limits.burst),
            repair_bucket: Bucket::new(now, repair_rate, limits.burst),
            events: VecDeque::new(),
            undelivered: Tally::new(sites),
            unread: Tally::new(sites),
            pacing_permille: 1_000,
            refused: None,
            turn: 0,
            counters: Counters::default(),
            traffic: vec![Traffic::default(); sites],
            limits,
        })
    }

    /// Takes a plan, made by this site or given. What is queued goes the way that was chosen for
    /// it; all sites stay correct while they have different plans. The contingency plans of the one
    /// before are forgotten.
    ///
    /// # Errors
    /// [`PlanRefused`]: the plan is not for these sites, or is older than the one in use.
    pub fn set_plan(&mut self, now: Timestamp, plan: Plan) -> Result<(), PlanRefused> {
        self.routes.set_plan(plan)?;
        self.on_routes_changed(now);
        Ok(())
    }

    /// Takes the plan to use while these relays of the plan fail, all sites of it: of the same
    /// epoch. Those for one relay are best given with the plan, others when [`Event::RelaysFail`]
    /// says so.
    ///
    /// # Errors
    /// [`PlanRefused`]: the plan is not for these sites, or not of this epoch.
    pub fn set_contingency(
        &mut self,
        now: Timestamp,
        without: SiteSet,
        plan: Plan,
    ) -> Result<(), PlanRefused> {
        self.routes.set_contingency(without, plan)?;
        self.on_routes_changed(now);
        Ok(())
    }

    /// Counts bytes of a source that the application was given and has not read yet, until
    /// [`handle_read`](Self::handle_read). They count for [`Limits::undelivered_bytes_max`], so
    /// that who does not read holds up its sources, and not events.
    ///
    /// # Panics
    /// If there is no such site.
    pub fn handle_unread(&mut self, source: Site, bytes: usize) {
        self.unread.add(source, bytes);
    }

    /// Counts bytes of a source no longer that the application has read. Where something of it was
    /// turned away, there may be a frame to send now.
    ///
    /// # Panics
    /// If there is no such site, or it has fewer that are [unread](Self::handle_unread).
    pub fn handle_read(&mut self, source: Site, bytes: usize) {
        self.unread.take(source, bytes);
        self.roomier.insert(source);
    }

    /// Sends at so many thousandths of the plan's rates from now on. Default 1000.
    pub fn set_pacing(&mut self, now: Timestamp, permille: u32) {
        if permille != self.pacing_permille {
            self.pacing_permille = permille;
            self.set_rates(now);
        }
    }

    /// Reason why what waits to be sent is held back. Links of sites that have been given up, and
    /// one of few that have taken nothing for long, say nothing of the uplink.
    pub fn backlog(&self) -> Backlog {
        // What has no way yet waits for room on one, or for the credit of a relay.
        let line = if self.line.len() > 0 { Backlog::Paced } else { Backlog::Nothing };
        let links = self.uplinks.iter().enumerate();
        let kept = links.filter(|(index, _)| !self.gone.contains(Self::site(*index)));
        line.max(Uplink::backlog(kept.map(|(_, link)| link)))
    }

    /// Its own site.
    pub fn me(&self) -> Site {
        self.me
    }

    /// Number of sites.
    pub fn sites(&self) -> usize {
        self.sites
    }

    /// The epoch of the plan in use; 0 without one.
    pub fn epoch(&self) -> u32 {
        self.routes.epoch()
    }

    /// The sites that can be reached.
    pub fn up(&self) -> SiteSet {
        self.reach.up()
    }

    /// True while something of a source was turned away, for which it is asked once there is room.
    pub(crate) fn has_turned_away(&self, source: Site) -> bool {
        self.receiver.has_turned_away(source)
    }

    /// The relays that this site suspects.
    pub fn suspects(&self) -> SiteSet {
        self.trust.suspects()
    }

    /// Counters since it began.
    pub fn counters(&self) -> Counters {
        Counters { relay_overruns: self.forwards.overruns(), ..self.counters }
    }

    /// Traffic with each site as a relay or a root, by site.
    pub fn traffic(&self) -> &[Traffic] {
        &self.traffic
    }

    /// Relays of the plan that all sites do without for now.
    pub fn failing(&self) -> SiteSet {
        self.routes.failing()
    }

    /// Relays of the plan that fail, if no plan without them was set: such a plan is wanted, as
    /// [`Event::RelaysFail`] said. Empty otherwise.
    pub fn lacking(&self) -> SiteSet {
        self.routes.lacking()
    }

    /// Load: what it holds now.
    pub fn load(&self) -> Load {
        let all = SiteSet::first(self.sites);
        let forwards = || all.iter().map(|root| self.forwards.queued(root));
        Load {
            unacked_bytes: self.sender.unacked_bytes(),
            unacked_chunks: self.sender.chunk_count(),
            forward_bytes: forwards().sum(),
            forward_bytes_root: forwards().max().unwrap_or(0),
            reorder_bytes: all
                .iter()
                .map(|site| self.receiver.waiting_bytes(site))
                .max()
                .unwrap_or(0),
            unproven_bytes: self.proofs.held_bytes(),
            undelivered_bytes: self.undelivered.total(),
            held_bytes: self.holdings.bytes(),
            fetches: self.fetches.len(),
            queued: self.uplinks.iter().map(Uplink::len).sum(),
            in_line: self.line.len(),
            control: self.control.len(),
        }
    }

    /// True while something that was not ready is to have room made for it.
    #[cfg(test)]
    pub(crate) fn is_wanting_room(&self) -> bool {
        self.refused.is_some()
    }

    /// Bytes of a source that were taken and wait to be read, and 128 for each delivery: those that
    /// wait for [`poll_event`](Self::poll_event), and those counted as
    /// [unread](Self::handle_unread). No more is taken of a source that has its share of
    /// [`Limits::undelivered_bytes_max`].
    ///
    /// # Panics
    /// If there is no such site.
    pub fn waiting_bytes(&self, source: Site) -> usize {
        self.undelivered.of(source) + self.unread.of(source)
    }

    /// The plan, or what is known of its relays, has changed.
    fn on_routes_changed(&mut self, now: Timestamp) {
        let failing = self.reach.failing(self.distrusted());
        if let Some(relays) = self.routes.avoid(failing) {
            self.events.push_back(Event::RelaysFail { relays });
        }
        self.line.choose_again();
        self.set_rates(now);
    }

    /// Gives the links what the plan gives them.
    fn set_rates(&mut self, now: Timestamp) {
        let permille = u64::from(self.pacing_permille);
        let (up, trust) = (self.reach.reached().difference(self.reach.leaving()), &self.trust);
        // Without any of its relays all of the stream goes directly, as no plan foresees: at its
        // rate, or what the network takes of that.
        let stranded = self.routes.stranded(|relay| up.contains(relay) && trust.is_trusted(relay));
        let paced = |LinkRate { own, forwarded }: LinkRate| {
            let own = own.saturating_add(stranded).saturating_mul(permille);
            let forwarded = forwarded.saturating_mul(permille.max(FORWARD_PERMILLE));
            own.saturating_add(forwarded) / 1_000
        };
        let rates = self.routes.link_rates().into_iter();
        let rates: Vec<Option<u64>> = rates.map(|rate| rate.map(paced)).collect();
        let all = rates.iter().flatten().fold(0, |sum: u64, rate| sum.saturating_add(*rate));
        let is_paced = rates.iter().any(Option::is_some);
        self.site_bucket.set_rate(now, is_paced.then_some(all));
        let share = all / 1_000 * u64::from(self.limits.repair_permille);
        // What no plan foresees, such as sending again, needs some rate on every link.
        let least = share.max(self.limits.repair_rate_min);
        for (uplink, rate) in self.uplinks.iter_mut().zip(rates) {
            uplink.set_rate(now, rate.map(|rate| rate.max(least)));
        }
        self.repair_bucket.set_rate(now, Some(least));
        self.set_bounds();
    }

    /// Gives roots the credit, and the own stream the room, that the plan needs over these
    /// distances.
    pub(super) fn set_bounds(&mut self) {
        let others = SiteSet::first(self.sites).without(self.me);
        let rtt = |site: Site| self.reach.rtt(site).unwrap_or(RTT_UNKNOWN).min(RTT_MAX);
        let limits = &self.limits;
        let base = limits.relay_bytes_root_max.min(limits.relay_bytes_max / self.sites) as u64;
        let relayed = self.routes.relayed_here().into_iter().enumerate();
        let mut wants: Vec<Want> = relayed
            .map(|(root, rate)| Want { base, needs: in_flight(rate, rtt(Self::site(root))) })
            .collect();
        // There by two hops, and back.
        let farthest = others.iter().map(rtt).max().unwrap_or_default() * 2;
        let needs = self.routes.own_rate().map_or(0, |rate| in_flight(rate, farthest));
        wants.push(Want { base: limits.unacked_bytes_max as u64, needs });
        let (granted, short) = share(&wants, limits.memory_bytes_max as u64);
        let short_before = std::mem::replace(&mut self.counters.short_of_credit, short as u64);
        if short as u64 > short_before {
            self.events.push_back(Event::ShortOfCredit { streams: short });
        }
        for root in others.iter() {
            self.forwards.set_max(root, granted[root.index()]);
            self.note_credit(root);
        }
        let unacked_max = granted.last().copied().unwrap_or(0);
        self.sender.set_unacked_max(usize::try_from(unacked_max).unwrap_or(usize::MAX));
        self.note_room();
    }

    fn site(index: usize) -> Site {
        Site(u16::try_from(index).expect("sites are at most 128"))
    }

    fn deliver(&mut self, op: OpId, payload: Payload) {
        self.counters.delivered += 1;
        self.undelivered.add(op.source, payload.len() + DELIVERY_BYTES);
        self.events.push_back(Event::Delivered { op, payload });
    }

    fn hold(&mut self, finished: Vec<(OpId, Payload)>) {
        for (op, payload) in finished {
            self.holdings.insert(op, payload);
        }
        self.note_room();
    }

    /// Says that there is room again, once.
    fn note_room(&mut self) {
        if self.refused.is_some_and(|(chunks, bytes)| self.sender.has_room(chunks, bytes)) {
            self.refused = None;
            self.events.push_back(Event::Ready);
        }
    }
}
