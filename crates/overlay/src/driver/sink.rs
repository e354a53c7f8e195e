//! Input from transports: flows that open, bring frames and close.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use convoke_core::seam::SUBSCRIBER;
use convoke_core::time::Timestamp;
use convoke_core::transport::{CloseReason, Connection, Hello, Lane, Link, Order, Received, Sink};

use crate::control::ControlMessage;
use crate::event::LinkEvent;
use crate::site::Site;
use crate::wire::{Frame, WHOLE_BYTES_MAX};

use super::drain::Aftermath;
use super::roster::Roster;
use super::unsaid::Unsaid;
use super::{Driver, State};

/// Largest frame: a whole operation with its head, or a snapshot of 128 sites.
pub(crate) const FRAME_BYTES_MAX: u32 = 128 << 10;

/// Most flows that are taken of one site.
pub(crate) const FLOWS_MAX: usize = 64;

/// A frame of any kind, told by its first byte.
enum Incoming {
    Data(Frame),
    Control(ControlMessage),
    Roster(Roster),
}

impl Incoming {
    /// # Errors
    /// A text: the sender's doing.
    fn decode(received: &Received) -> Result<Self, String> {
        let bytes = &received.bytes;
        if let Some(roster) = Roster::decode(bytes) {
            return Ok(Self::Roster(roster));
        }
        if ControlMessage::is_control(bytes) {
            let message = ControlMessage::decode(bytes).map_err(|error| error.to_string())?;
            return Ok(Self::Control(message));
        }
        Frame::decode(bytes).map(Self::Data).map_err(|error| error.to_string())
    }
}

impl Sink for Driver {
    fn hello(&self) -> Hello {
        self.hello.lock().clone()
    }

    fn on_open(&self, connection: Arc<dyn Connection>) -> Result<(), String> {
        let peer = &connection.link().peer;
        let site = self.site_of(peer.node).filter(|site| *site != self.me);
        let Some(site) = site else {
            return Err(format!("{} is none of the overlay's other sites", peer.node));
        };
        if (peer.frame_bytes_max as usize) < WHOLE_BYTES_MAX + 1_024 {
            return Err(format!("{} takes no frames of {WHOLE_BYTES_MAX} bytes", peer.node));
        }
        // First of all that goes over it. One that takes nothing closes.
        let _ = connection.append_bytes(Lane::Control, self.roster.frame(), Bytes::new());
        let opened = self
            .as_arc()
            .with_aftermath(|state, now, aftermath| state.open(now, site, &connection, aftermath));
        opened.inspect(|()| {
            SUBSCRIBER.call(|| tracing::debug!(node = %peer.node, "flow open"));
        })
    }

    fn on_batch(
        &self,
        from: &Arc<dyn Connection>,
        frames: &mut dyn Iterator<Item = Received>,
    ) -> Result<(), String> {
        let Some(site) = self.site_of(from.link().peer.node) else { return Ok(()) };
        let mut bytes = 0;
        // Not under the lock.
        let frames: Result<Vec<_>, String> = frames
            .map(|received| {
                bytes += if received.lane == Lane::Data { received.bytes.len() as u64 } else { 0 };
                Incoming::decode(&received)
            })
            .collect();
        let frames = frames?;
        let is_other =
            |frame: &Incoming| matches!(frame, Incoming::Roster(it) if *it != self.roster);
        if frames.iter().any(is_other) {
            return Err("its overlay has other sites: all sites need the same list of nodes".into());
        }
        let link = from.link();
        self.as_arc().with_aftermath(|state, now, aftermath| {
            // What waited for the lock while the flow was given up may be of an earlier life.
            if !state.flows[site.index()].has(link.nonce) {
                return;
            }
            if let Some(estimator) = &mut state.estimator {
                estimator.handle_received(bytes);
            }
            for frame in frames {
                match frame {
                    // It is the same, or this would not be reached.
                    Incoming::Roster(_) => state.join(now, site, link, aftermath),
                    Incoming::Data(frame) => state.take(now, site, frame, aftermath),
                    Incoming::Control(message) => state.take_control(now, site, message, aftermath),
                }
            }
        });
        Ok(())
    }

    /// Frames of one site may pass each other.
    fn order(&self, head: &[u8]) -> Order {
        let mix = |number: u64, byte: &u8| number.wrapping_mul(31).wrapping_add(u64::from(*byte));
        Order::Group(head.iter().fold(0, mix))
    }

    fn on_closed(&self, link: &Link, reason: CloseReason) {
        let Some(site) = self.site_of(link.peer.node) else { return };
        if let Some(left_out) = self.closed.pass() {
            SUBSCRIBER.call(|| {
                tracing::info!(node = %link.peer.node, %reason, left_out, "flow closed");
            });
        }
        let closed = |state: &mut State, now, aftermath: &mut Aftermath| {
            state.flow_closed(now, site, link, aftermath);
        };
        self.as_arc().with_aftermath(closed);
        self.dialling.notify_waiters();
    }
}

impl State {
    fn open(
        &mut self,
        now: Timestamp,
        site: Site,
        connection: &Arc<dyn Connection>,
        aftermath: &mut Aftermath,
    ) -> Result<(), String> {
        if self.is_closed {
            return Err("the overlay shuts down".into());
        }
        let incarnation = connection.link().peer.incarnation;
        let flows = &mut self.flows[site.index()];
        let was_joined = flows.joined() > 0;
        // Those of an earlier life of the site are dead, whether they know it or not.
        let old = flows.close_others(incarnation);
        if flows.len() >= FLOWS_MAX {
            return Err(format!("there are {FLOWS_MAX} flows already"));
        }
        flows.open(now, connection.clone());
        // With the list of sites.
        aftermath.flushes.push(connection.clone());
        let is_joined = flows.joined() > 0;
        aftermath.closes.extend(old.into_iter().map(|one| (one, CloseReason::Stale)));
        if was_joined && !is_joined {
            self.lose(now, site);
        }
        Ok(())
    }

    /// A site has said over this flow that its sites are the same: from now on there is a link.
    fn join(&mut self, now: Timestamp, site: Site, link: &Link, aftermath: &mut Aftermath) {
        let flows = &mut self.flows[site.index()];
        if !flows.join(link.nonce) {
            return;
        }
        let incarnation = link.peer.incarnation;
        let is_first = flows.joined() == 1;
        let event = if is_first { LinkEvent::Up { incarnation } } else { LinkEvent::Writable };
        self.node.handle_link(now, site, event);
        aftermath.has_settled |= is_first;
    }

    /// No flow of a site is left.
    fn lose(&mut self, now: Timestamp, site: Site) {
        self.node.handle_link(now, site, LinkEvent::Down);
        if let Some(control) = &mut self.control {
            control.handle_down(now, site);
        }
    }

    fn flow_closed(&mut self, now: Timestamp, site: Site, link: &Link, aftermath: &mut Aftermath) {
        let flows = &mut self.flows[site.index()];
        if !flows.close(now, link.nonce) {
            return;
        }
        if flows.joined() == 0 {
            return self.lose(now, site);
        }
        // What was in its buffers may be lost, though others are left.
        let (incarnation, is_writable) = (link.peer.incarnation, flows.is_writable());
        self.node.handle_link(now, site, LinkEvent::Down);
        // All others are told, so that none waits for what it has had the site relay.
        self.drain(now, aftermath);
        self.node.handle_link(now, site, LinkEvent::Up { incarnation });
        if !is_writable {
            self.node.handle_link(now, site, LinkEvent::Blocked);
        }
    }

    /// Takes a frame. One that breaks the rules is dropped: its sender is a site, and the rest of
    /// what it says may be of use.
    fn take(&mut self, now: Timestamp, from: Site, frame: Frame, aftermath: &mut Aftermath) {
        if let Err(fault) = self.node.handle_frame(now, from, frame) {
            self.note_dropped(from, &fault, aftermath);
        }
    }

    fn take_control(
        &mut self,
        now: Timestamp,
        from: Site,
        message: ControlMessage,
        aftermath: &mut Aftermath,
    ) {
        // Until it has said that its sites are the same, what it counts may be others.
        if self.flows[from.index()].joined() == 0 {
            return;
        }
        let Some(control) = &mut self.control else { return };
        if let Err(fault) = control.handle_message(now, from, message) {
            self.note_dropped(from, &fault, aftermath);
        }
    }

    /// Has it logged that something a site sent breaks the rules.
    fn note_dropped(&self, from: Site, fault: &dyn Display, aftermath: &mut Aftermath) {
        if let Some(left_out) = self.dropped.pass() {
            let fault = fault.to_string();
            aftermath.unsaid.push(Unsaid::Dropped { from, fault, left_out });
        }
    }

    fn has_room(&mut self, now: Timestamp, site: Site, connection: &Arc<dyn Connection>) {
        let flows = &mut self.flows[site.index()];
        flows.set_writable(connection.link().nonce);
        if flows.is_writable() {
            self.node.handle_link(now, site, LinkEvent::Writable);
        }
    }
}

/// Waits until a full connection has room, or is closed.
pub(super) async fn await_room(driver: Arc<Driver>, site: Site, connection: Arc<dyn Connection>) {
    std::future::poll_fn(|cx| connection.poll_writable(Lane::Data, cx)).await;
    driver.with(|state, now| state.has_room(now, site, &connection));
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Poll};
    use std::time::Duration;

    use convoke_core::NodeId;
    use convoke_core::id::{Incarnation, LinkNonce};
    use convoke_core::transport::parts::Mutex;
    use convoke_core::transport::{Appended, Buffer, Counters, NotWritable};
    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;
    use crate::bodies::{Bodies, BodyLimits};
    use crate::driver::{Offer, Parts};
    use crate::event::BroadcastError;
    use crate::node::{DELIVERY_BYTES, NodeConfig, OverlayNode};
    use crate::plan::Plan;
    use crate::site::SiteSet;
    use crate::wire::{Data, Forward, Life, OpId};

    /// A connection to a node, with no transport below: it keeps what it is given, or takes
    /// nothing.
    #[derive(Debug)]
    struct Bare {
        link: Link,
        kept: Option<Mutex<Vec<Vec<u8>>>>,
        /// Tells that it has kept something.
        keeps: Notify,
        /// Frames at which it panics before it keeps one.
        panics: AtomicUsize,
    }

    impl Bare {
        /// To the first of the nodes.
        fn deaf(incarnation: Incarnation, nonce: u64) -> Arc<dyn Connection> {
            Arc::new(Self::new(link(1, incarnation, nonce), None))
        }

        fn keeper(node: u64, incarnation: Incarnation, nonce: u64) -> Arc<Self> {
            Arc::new(Self::new(link(node, incarnation, nonce), Some(Mutex::default())))
        }

        fn new(link: Link, kept: Option<Mutex<Vec<Vec<u8>>>>) -> Self {
            Self { link, kept, keeps: Notify::new(), panics: AtomicUsize::new(0) }
        }

        /// Panics, if it is to.
        fn may_panic(&self) {
            let one_less = |left: usize| left.checked_sub(1);
            let left = self.panics.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
            assert!(left.is_err(), "on purpose");
        }

        /// Takes what it has kept.
        fn take(&self) -> Vec<Vec<u8>> {
            self.kept.as_ref().map_or_else(Vec::new, |kept| std::mem::take(&mut *kept.lock()))
        }
    }

    fn link(node: u64, incarnation: Incarnation, nonce: u64) -> Link {
        Link {
            peer: hello(node, incarnation),
            nonce: LinkNonce(nonce),
            is_dialler: false,
            scheme: "test",
            principal: None,
            remote: None,
        }
    }

    impl Connection for Bare {
        fn link(&self) -> &Link {
            &self.link
        }
        fn with_buffer(&self, _: &mut dyn FnMut(&mut dyn Buffer)) {}
        fn append_bytes(&self, _: Lane, head: &[u8], body: Bytes) -> Result<Appended, NotWritable> {
            let kept = self.kept.as_ref().ok_or(NotWritable::Closed)?;
            self.may_panic();
            kept.lock().push([head, &body].concat());
            self.keeps.notify_one();
            Ok(Appended::Writable)
        }
        fn flush(&self) {}
        fn poll_flush(&self, _: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }
        fn poll_writable(&self, _: Lane, _: &mut Context<'_>) -> Poll<()> {
            Poll::Ready(())
        }
        fn close(&self, _: CloseReason) {
            self.may_panic();
        }
        fn counters(&self) -> Counters {
            Counters::default()
        }
    }

    fn hello(node: u64, incarnation: Incarnation) -> Hello {
        let node = NodeId::new(node);
        Hello { node, incarnation, advertised: Vec::new(), frame_bytes_max: FRAME_BYTES_MAX }
    }

    /// The second of two sites.
    fn driver() -> Arc<Driver> {
        driver_of(2)
    }

    /// The second of so many sites.
    fn driver_of(sites: u16) -> Arc<Driver> {
        let (me, incarnation) = (Site(1), Incarnation(7));
        let config = NodeConfig::new(me, sites.into(), incarnation);
        Driver::start(Parts {
            me,
            nodes: (1..=u64::from(sites)).map(NodeId::new).collect(),
            hello: hello(2, incarnation),
            transports: Vec::new(),
            flows_per_site: 1,
            addresses: vec![None; sites.into()],
            node: OverlayNode::new(Timestamp::ZERO, config).expect("it is right"),
            bodies: Bodies::new(BodyLimits::default()),
            control: None,
            estimator: None,
            plan: Arc::new(Plan::direct(sites.into(), 0)),
            #[cfg(feature = "metrics")]
            meters: None,
        })
    }

    #[tokio::test]
    async fn what_is_closed_or_leaves_takes_no_bodies() {
        let driver = driver();
        let body = || Bytes::from_static(b"it");
        let bring = || driver.with(|state, now| state.bring(now, body(), SiteSet::first(2)));
        assert!(bring().is_ok());
        driver.leave();
        assert_eq!(bring(), Err(BroadcastError::Closed));
        driver.close();
        assert_eq!(bring(), Err(BroadcastError::Closed));
    }

    #[tokio::test]
    async fn a_broadcast_that_nobody_waits_for_any_more_makes_no_room() {
        let driver = driver();
        let flow = Bare::deaf(Incarnation(1), 1);
        driver.on_open(flow.clone()).expect("it is of a site");
        bring(&driver, &flow, driver.roster.frame().clone());
        let payload = Bytes::from(vec![0; 8 << 20]);
        let cx = Context::from_waker(std::task::Waker::noop());
        let is_sent = || Offer::new(&driver, payload.clone()).poll(&cx).is_ready();
        let sent = (0..100).take_while(|_| is_sent()).count();
        assert!((1..100).contains(&sent), "it is owed to the other");
        let is_wanted = || driver.with_quietly(|state| state.node.is_wanting_room());
        assert!(!is_wanted(), "it was dropped at once");
        let mut offers = [0, 1].map(|_| Offer::new(&driver, payload.clone()));
        assert!(offers.iter_mut().all(|offer| offer.poll(&cx).is_pending()));
        let [first, second] = offers;
        drop(first);
        assert!(is_wanted());
        drop(second);
        assert!(!is_wanted());
        driver.close();
    }

    /// As a transport of an application may.
    #[tokio::test(start_paused = true)]
    async fn the_timer_goes_on_though_a_connection_panics_in_it() {
        const HOUR: Duration = Duration::from_secs(3_600);
        let (driver, flow) = (driver(), Bare::keeper(1, Incarnation(1), 1));
        let connection: Arc<dyn Connection> = flow.clone();
        driver.on_open(connection.clone()).expect("it is of a site");
        bring(&driver, &connection, driver.roster.frame().clone());
        let sent = driver.with(|state, now| state.broadcast(now, Bytes::from_static(b"it")));
        assert!(sent.is_ok() && !flow.take().is_empty(), "it has left");
        flow.keeps.notified().await;
        // Nobody says that it came, so that the timer repeats it.
        flow.panics.store(3, Ordering::Relaxed);
        timeout(HOUR, flow.keeps.notified()).await.expect("the timer has ended");
        assert_eq!(flow.panics.load(Ordering::Relaxed), 0);
        driver.close();
    }

    #[tokio::test]
    async fn an_overlay_closes_though_a_connection_panics() {
        let (driver, flow) = (driver(), Bare::keeper(1, Incarnation(1), 1));
        driver.on_open(flow.clone()).expect("it is of a site");
        flow.panics.store(1, Ordering::Relaxed);
        let closes = async { driver.close() };
        let ((), ()) = tokio::join!(driver.connected(), closes);
        assert_eq!(flow.panics.load(Ordering::Relaxed), 0);
    }

    fn bring(driver: &Driver, by: &Arc<dyn Connection>, bytes: Bytes) {
        let frames = &mut [Received { lane: Lane::Data, bytes }].into_iter();
        driver.on_batch(by, frames).expect("it is right");
    }

    #[tokio::test]
    async fn operations_without_bytes_count_until_they_are_read() {
        let (driver, flow) = (driver(), Bare::deaf(Incarnation(1), 1));
        driver.on_open(flow.clone()).expect("it is of a site");
        bring(&driver, &flow, driver.roster.frame().clone());
        for seq in 0..100 {
            bring(&driver, &flow, data(1, seq, Bytes::new()).to_bytes());
        }
        let unread = || driver.with_quietly(|state| state.node.waiting_bytes(Site(0)));
        assert_eq!(unread(), 100 * DELIVERY_BYTES);
        while driver.with_quietly(State::poll_next).is_ready() {}
        assert_eq!(unread(), 0);
        driver.close();
    }

    /// The first site's.
    fn data(life: u64, seq: u64, payload: Bytes) -> Frame {
        let op = OpId { source: Site(0), life: Life::of(Incarnation(life)), seq };
        let forward = Forward::Nobody;
        let (is_repair, is_body) = (false, false);
        let (index, count, epoch) = (0, 1, 0);
        Frame::Data(Data { op, index, count, epoch, forward, is_repair, is_body, payload })
    }

    /// It was read before, and waits for the lock while the site comes back.
    #[tokio::test]
    async fn a_batch_of_a_flow_of_an_earlier_life_does_not_count_for_the_next() {
        let driver = driver();
        let [before, now] = [1, 2].map(|life| Bare::deaf(Incarnation(life), life));
        let data = |life: u64, seq| data(life, seq, Bytes::from_static(b"it"));
        let roster = driver.roster.frame().clone();
        for (flow, life) in [(&before, 1), (&now, 2)] {
            driver.on_open(flow.clone()).expect("it is of a site");
            bring(&driver, flow, roster.clone());
            bring(&driver, flow, data(life, 0).to_bytes());
        }
        let delivered = || driver.with_quietly(|state| state.node.counters().delivered);
        assert_eq!(delivered(), 2);
        bring(&driver, &before, data(2, 1).to_bytes());
        assert_eq!(delivered(), 2);
        bring(&driver, &now, data(2, 1).to_bytes());
        assert_eq!(delivered(), 3);
        driver.close();
    }

    /// The buffers of a flow that ends are lost: its sources are to send that another way, and not
    /// to wait until the relay seems to have dropped it.
    #[tokio::test]
    async fn all_others_are_told_of_a_site_of_which_one_of_several_flows_is_lost() {
        let driver = driver_of(3);
        let relay = [1, 2].map(|nonce| Bare::deaf(Incarnation(1), nonce));
        let source = Bare::keeper(3, Incarnation(1), 3);
        let flows = relay.iter().cloned().chain([source.clone() as Arc<dyn Connection>]);
        for flow in flows {
            driver.on_open(flow.clone()).expect("it is of a site");
            bring(&driver, &flow, driver.roster.frame().clone());
        }
        source.take();
        driver.on_closed(relay[0].link(), CloseReason::Local);
        let told = source.take();
        let unreached =
            told.iter().filter_map(|it| match Frame::decode(&Bytes::copy_from_slice(it)) {
                Ok(Frame::View(view)) => Some(view.unreached),
                _ => None,
            });
        let told: Vec<SiteSet> = unreached.collect();
        assert_eq!(told, [SiteSet::EMPTY.with(Site(0)), SiteSet::EMPTY]);
        driver.close();
    }
}
