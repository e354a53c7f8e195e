//! Dials for the node, and for callers who know only an address.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use convoke_proto::id::{LinkNonce, NodeId};

use crate::transport::{
    Address, CloseReason, Connection, Counters, DialError, DialLimit, Sink, Transport,
};

use super::ending::SUBSCRIBER;
use super::{CONNECTION, Driver, Resolver};

impl Driver {
    /// The addresses of a node in the order to dial them: those that can prove the node first where
    /// only proof is taken, then by the [preference](crate::transport::Transport::preference) of
    /// their transports, then as they are given.
    fn in_dial_order(&self, node: NodeId, mut addresses: Vec<Address>) -> Vec<Address> {
        if addresses.len() > 1 {
            let must_prove = self.must_prove(node);
            addresses.sort_by_cached_key(|address| {
                let transport = self.transport(address.scheme());
                let proves = transport.is_some_and(|transport| transport.proves_peers());
                let preference = transport.map_or(0, |transport| transport.preference());
                (must_prove && !proves, Reverse(preference))
            });
        }
        addresses
    }

    /// Dials a node for a core, and reports a failure to all; success reports itself by `on_open`.
    /// While it is dialled already, the core is told with the others.
    pub(super) fn dial_node(self: &Arc<Self>, node: NodeId) {
        if !self.dials.lock().insert(node) {
            return;
        }
        let driver = self.clone();
        self.runtime.spawn(async move {
            loop {
                // Another may have connected since the core asked.
                if driver.is_wanted(node)
                    && let Err(why) = driver.dial_for_cores(node).await
                {
                    // Before anybody is told: a core that asks from then on is dialled for again.
                    driver.dials.lock().remove(&node);
                    return driver.report_dial_failed(node, &why);
                }
                driver.dials.lock().remove(&node);
                // The connection may have ended for a core that asked again meanwhile.
                if !driver.is_wanted(node) || !driver.dials.lock().insert(node) {
                    return;
                }
            }
        });
    }

    /// True when a core waits for a connection to a node.
    fn is_wanted(&self, node: NodeId) -> bool {
        self.cores.each().any(|core| core.node.links().is_dialling(node))
    }

    /// Dials a node, once for all who ask for it meanwhile. What panics does so in a task of its
    /// own.
    ///
    /// # Errors
    /// Why it cannot be reached, for people.
    async fn dial_for_cores(self: &Arc<Self>, node: NodeId) -> Result<(), String> {
        let dialled = self.dial_jointly(node, AskedBy::Cores).await;
        let dialled = dialled.ok_or_else(|| "the dial panicked".to_owned())?;
        dialled.map_err(|error| error.to_string())
    }

    fn report_dial_failed(self: &Arc<Self>, node: NodeId, why: &str) {
        self.with_each_node(|core, now| {
            core.note_dial_error(node, why);
            core.handle_dial_failed(now, node);
        });
    }

    /// Makes sure there is a connection to a node that is kept connected: by a dial that nobody
    /// else shares, for that may have begun long before anybody listened.
    pub(super) async fn keep_warm(self: &Arc<Self>, node: NodeId) -> Result<(), DialError> {
        if self.is_met(node) {
            return Ok(());
        }
        self.dial_wherever(node, AskedBy::Owner).await
    }

    /// True when there is a connection to a node, or it is this one.
    pub(crate) fn is_met(&self, node: NodeId) -> bool {
        node == self.identity.node || self.connection_to(node).is_some()
    }

    /// Dials a node for the endpoint's owner, once for all who ask for it meanwhile.
    pub(crate) async fn dial_by_name(self: &Arc<Self>, node: NodeId) -> Result<(), DialError> {
        match self.dial_jointly(node, AskedBy::Owner).await {
            Some(dialled) => dialled,
            None => self.dial_wherever(node, AskedBy::Owner).await,
        }
    }

    /// The same for whoever. `None` when the task of the dial did not end.
    async fn dial_jointly(
        self: &Arc<Self>,
        node: NodeId,
        asked_by: AskedBy,
    ) -> Option<Result<(), DialError>> {
        let begin = || {
            let driver = self.clone();
            async move { driver.dial_wherever(node, asked_by).await }
        };
        self.by_name.run(&self.runtime, node, begin).await
    }

    /// Dials a node where it may be, for whoever has asked, and counts the dial if it fails. One
    /// that was given other addresses while those before them failed is dialled there.
    async fn dial_wherever(
        self: &Arc<Self>,
        node: NodeId,
        asked_by: AskedBy,
    ) -> Result<(), DialError> {
        let _dialling = self.dialling(node);
        let mut known = self.addresses_of(node);
        loop {
            let dialled = self.dial_known_or_found(node, &known, asked_by).await;
            if dialled.is_ok() {
                return dialled;
            }
            let now_known = self.addresses_of(node);
            if now_known.is_within(&known) {
                self.telemetry.on_dial_failed();
                return dialled;
            }
            known = now_known;
        }
    }

    /// Dials an address, once for all who ask for it meanwhile: the node that answers there.
    pub(crate) async fn dial_address(
        self: &Arc<Self>,
        address: &Address,
    ) -> Result<NodeId, DialError> {
        let begin = || {
            let (driver, at) = (self.clone(), address.clone());
            async move { driver.meet(&at).await }
        };
        match self.by_address.run(&self.runtime, address.clone(), begin).await {
            Some(dialled) => dialled,
            None => self.meet(address).await,
        }
    }

    /// Dials an address, and keeps who is there.
    async fn meet(self: &Arc<Self>, address: &Address) -> Result<NodeId, DialError> {
        let node = self.dial(address, None).await?.link().peer.node;
        self.with_each_node(|core, _| core.configure_also(node, address.clone()));
        Ok(node)
    }

    /// Addresses at which a node may be dialled. What others say of it is known to the core alone
    /// that has heard it.
    fn addresses_of(&self, node: NodeId) -> Known {
        let mut known = Known::default();
        self.ask_each_node(|core| {
            let (all, heard) = (core.links().addresses(node), core.links().heard(node));
            add(&mut known.sure, all.into_iter().filter(|address| !heard.contains(address)));
            add(&mut known.heard, heard);
        });
        known.heard.retain(|address| !known.sure.contains(address));
        known.heard.truncate(HEARD_MAX); // As many as one core has.
        known
    }

    /// Those of them that the endpoint's owner gave.
    pub(crate) fn configured_addresses(&self, node: NodeId) -> Vec<Address> {
        self.ask_any_node(|core| core.links().configured(node).to_vec())
    }

    /// Dials a node at its known addresses in turn; when there is none or all fail, at those that
    /// the resolver finds; last at those that only others have named, for a stranger may have.
    /// Unless this node itself wants the connection, the resolver is not asked.
    async fn dial_known_or_found(
        self: &Arc<Self>,
        node: NodeId,
        known: &Known,
        asked_by: AskedBy,
    ) -> Result<(), DialError> {
        let mut failed = match self.dial_in_turn(node, known.sure.clone()).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        let (mut tried, mut resolver) = (known.sure.clone(), self.resolver.as_ref());
        let mut heard = self.in_dial_order(node, known.heard.clone()).into_iter();
        loop {
            // Cores may have come to want it themselves while it was dialled where others say.
            let is_own = || asked_by == AskedBy::Owner || self.is_called(node);
            if let Some(resolver) = resolver.take_if(|_| is_own()) {
                match self.dial_found(node, resolver, &mut tried, failed).await {
                    Ok(()) => return Ok(()),
                    Err(error) => failed = error,
                }
            }
            let next = heard.find(|address| !tried.contains(address));
            let Some(next) = next else { return Err(failed) };
            match self.dial_in_turn(node, vec![next]).await {
                Ok(()) => return Ok(()),
                Err(later) => failed = more_telling(failed, later),
            }
        }
    }

    /// True when a request or a cast waits for a connection to a node.
    fn is_called(&self, node: NodeId) -> bool {
        self.cores.each().any(|core| core.node.links().is_called(node))
    }

    /// Dials a node where the resolver finds it, but where it was `tried`, in vain.
    async fn dial_found(
        self: &Arc<Self>,
        node: NodeId,
        resolver: &Resolver,
        tried: &mut Vec<Address>,
        failed: DialError,
    ) -> Result<(), DialError> {
        self.ask_each_node(|core| core.note_resolved(node));
        let found = resolver.addresses(node, || self.now(), self.limits.backoff_min).await;
        let mut found = match found {
            Ok(found) => found,
            Err(unresolved) if tried.is_empty() => return Err(unresolved),
            Err(unresolved) => {
                SUBSCRIBER.call(|| {
                    tracing::debug!(%node, error = %unresolved, "no other address");
                });
                return Err(failed);
            }
        };
        found.retain(|address| !tried.contains(address));
        if found.is_empty() {
            return Err(failed);
        }
        tried.extend_from_slice(&found);
        let later = self.dial_in_turn(node, found).await;
        later.map_err(|later| more_telling(failed, later))
    }

    async fn dial_in_turn(
        self: &Arc<Self>,
        node: NodeId,
        addresses: Vec<Address>,
    ) -> Result<(), DialError> {
        let mut failed = DialError::NoAddress { node };
        for address in self.in_dial_order(node, addresses) {
            match self.dial(&address, Some(node)).await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    SUBSCRIBER.call(|| tracing::debug!(%node, %error, "dial failed"));
                    self.ask_each_node(|core| core.note_missed(node, &address));
                    failed = more_telling(failed, error);
                }
            }
        }
        Err(failed)
    }

    /// Of two connections between the same nodes, dialled at once, both ends keep the same one for
    /// what begins from now on. Each other ends once nothing has gone over it for the keep-alive
    /// timeout, and no items of a request can. However many there are of a node, one task watches
    /// them.
    pub(super) fn drain_doubles(self: &Arc<Self>, node: NodeId) {
        if self.doubles(node).is_empty() || !self.draining.lock().insert(node) {
            return;
        }
        let (driver, pause) = (self.me.clone(), self.keep_alive_timeout);
        self.runtime.spawn(async move {
            let mut before = BTreeMap::new();
            while let Some(driver) = driver.upgrade() {
                before = driver.close_quiet(driver.doubles(node), &before);
                if !driver.has_to_drain(node) {
                    return;
                }
                drop(driver);
                tokio::time::sleep(pause).await;
            }
        });
    }

    /// Closes those that nothing needs and over which nothing has gone since they had carried so
    /// many frames `before`, and says how many the others have by now.
    fn close_quiet(
        &self,
        doubles: Vec<Arc<dyn Connection>>,
        before: &BTreeMap<LinkNonce, (u64, u64)>,
    ) -> BTreeMap<LinkNonce, (u64, u64)> {
        let mut carried = BTreeMap::new();
        for double in doubles {
            // A panic would end the task that watches them, and nobody would watch them again.
            CONNECTION.call(|| {
                let (nonce, Counters { frames_sent, frames_received, .. }) =
                    (double.link().nonce, double.counters());
                let is_quiet = before.get(&nonce) == Some(&(frames_sent, frames_received));
                if is_quiet && !self.carries_items(&*double) {
                    double.close(CloseReason::Local);
                } else {
                    carried.insert(nonce, (frames_sent, frames_received));
                }
            });
        }
        carried
    }

    /// True while items of a request may come or go over a connection: they take no other.
    fn carries_items(&self, connection: &dyn Connection) -> bool {
        let link = connection.link();
        self.cores.each().any(|core| {
            let id = core.connections().id(link.peer.node, link.nonce);
            id.is_some_and(|id| core.node.carries_items(id))
        })
    }

    /// True while a node has doubles. When it has none, the next that opens has a task begin.
    fn has_to_drain(&self, node: NodeId) -> bool {
        // Whoever opens one has told the cores of it before it comes to this lock.
        let mut draining = self.draining.lock();
        let has_doubles = !self.doubles(node).is_empty();
        if !has_doubles {
            draining.remove(&node);
        }
        has_doubles
    }

    /// Dials an address.
    pub(crate) async fn dial(
        self: &Arc<Self>,
        address: &Address,
        expected: Option<NodeId>,
    ) -> Result<Arc<dyn Connection>, DialError> {
        let transport = self.transport(address.scheme());
        let transport =
            transport.ok_or_else(|| DialError::NoTransport { address: address.clone() })?;
        let sink: Arc<dyn Sink> = self.clone();
        let connection = dial_over(transport, address, expected, sink).await?;
        let peer = &connection.link().peer;
        self.ask_each_node(|core| core.note_met(peer.node, peer.incarnation, address));
        Ok(connection)
    }

    pub(crate) fn transport(&self, scheme: &str) -> Option<&Arc<dyn Transport>> {
        self.transports.iter().find(|transport| transport.schemes().contains(&scheme))
    }
}

/// Most addresses that only others have named of a node and that one dial tries.
const HEARD_MAX: usize = 8;

/// Origin of a dial.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AskedBy {
    /// The owner of the endpoint.
    Owner,
    /// Cores, for what waits there: the endpoint's own doing, or what others have caused.
    Cores,
}

/// Addresses at which a node may be dialled.
#[derive(Default)]
struct Known {
    /// Given by the owner of the endpoint, or told by the node itself.
    sure: Vec<Address>,
    /// Named by others alone.
    heard: Vec<Address>,
}

impl Known {
    fn is_within(&self, other: &Self) -> bool {
        let mut all = self.sure.iter().chain(&self.heard);
        all.all(|address| other.sure.contains(address) || other.heard.contains(address))
    }
}

/// Adds the addresses that are not there yet.
fn add(to: &mut Vec<Address>, addresses: impl IntoIterator<Item = Address>) {
    for address in addresses {
        if !to.contains(&address) {
            to.push(address);
        }
    }
}

/// Dials over a transport. A panic of it is a failure of this dial alone, behind which the other
/// addresses of a node are dialled.
///
/// # Errors
/// As of [`Transport::dial`], and [`DialError::Unreachable`] where it panics.
pub async fn dial_over(
    transport: &Arc<dyn Transport>,
    address: &Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Result<Arc<dyn Connection>, DialError> {
    let mut dialling = pin!(async { transport.dial(address, expected, sink).await });
    let panicked = || {
        let message = "its transport panicked".to_owned();
        DialError::Unreachable { address: address.clone(), message }
    };
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| dialling.as_mut().poll(cx)));
        polled.unwrap_or_else(|_| Poll::Ready(Err(panicked())))
    })
    .await
}

/// The one of two errors that says more: the first, unless nobody has answered there.
fn more_telling(first: DialError, later: DialError) -> DialError {
    let is_answer = !matches!(
        first,
        DialError::Unreachable { .. }
            | DialError::Timeout { limit: DialLimit::Connect(_), .. }
            | DialError::NoTransport { .. }
            | DialError::NoAddress { .. }
    );
    if is_answer { first } else { later }
}

#[cfg(test)]
pub(super) mod tests {
    use std::fmt;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use convoke_transport::conformance::{Recorder, send};
    use tokio::time::sleep;

    use super::*;
    use crate::transport::mem::MemTransport;
    use crate::transport::{DialFuture, Lane, ListenFuture};
    use crate::{CallError, Cause, Context, Endpoint, Executed, Items, Method, Service, Status};

    /// A transport in whose place a function dials, where that gives a future.
    pub(crate) struct Dialling<F>(pub(crate) MemTransport, pub(crate) F);

    impl<F> fmt::Debug for Dialling<F> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Dialling(..)")
        }
    }

    impl<F: Fn() -> Option<DialFuture> + Send + Sync + 'static> Transport for Dialling<F> {
        fn schemes(&self) -> &'static [&'static str] {
            self.0.schemes()
        }

        fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
            self.0.listen(address, sink)
        }

        fn dial(
            &self,
            address: &Address,
            expected: Option<NodeId>,
            sink: Arc<dyn Sink>,
        ) -> DialFuture {
            (self.1)().unwrap_or_else(|| self.0.dial(address, expected, sink))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_transport_that_panics_fails_the_dial_alone() {
        const ECHO: Method<u64, u64> = Method::new("test.Test/Echo");
        let echo = Service::new().unary(ECHO, async |n: u64, _: Context| Ok::<_, Status>(n));
        let mem = MemTransport::new();
        let server = Endpoint::builder().transport(mem.clone()).listen("mem://panics:0");
        let server = server.serve(echo).start().await.expect("the name is free");
        let dials = AtomicUsize::new(0);
        let panics = move || -> Option<DialFuture> {
            match dials.fetch_add(1, Ordering::Relaxed) {
                0 => panic!("on purpose"),
                1 => Some(Box::pin(async { panic!("on purpose") })),
                _ => None,
            }
        };
        let builder = Endpoint::builder().transport(Dialling(mem, panics));
        let client = builder.start().await.expect("nothing to bind");
        let peer = client.peer(server.node(), server.addresses()).expect("they are addresses");
        for _ in 0..2 {
            let call = client.call(ECHO, 7).to(peer).await;
            let Err(CallError::Branch(failure)) = call else { panic!("nobody dials: {call:?}") };
            assert_eq!((failure.cause, failure.executed), (Cause::Unreachable, Executed::No));
            assert!(failure.text.contains("its transport panicked"), "{failure}");
            sleep(2 * client.driver().limits.backoff_min).await; // until it may be dialled again
        }
        assert_eq!(client.call(ECHO, 7).to(peer).await.ok(), Some(7));
    }

    /// A transport that cannot say, for so many times, how much it is preferred.
    #[derive(Debug)]
    struct Indifferent(MemTransport, AtomicUsize);

    impl Transport for Indifferent {
        fn schemes(&self) -> &'static [&'static str] {
            self.0.schemes()
        }

        fn preference(&self) -> i8 {
            let left = self
                .1
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            assert!(left.is_err(), "on purpose");
            0
        }

        fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
            self.0.listen(address, sink)
        }

        fn dial(
            &self,
            address: &Address,
            expected: Option<NodeId>,
            sink: Arc<dyn Sink>,
        ) -> DialFuture {
            self.0.dial(address, expected, sink)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dial_that_panics_fails_and_the_node_is_dialled_again() {
        const ECHO: Method<u64, u64> = Method::new("test.Test/Echo");
        let echo = Service::new().unary(ECHO, async |n: u64, _: Context| Ok::<_, Status>(n));
        let mem = MemTransport::new();
        let server = Endpoint::builder().transport(mem.clone()).listen("mem://indifferent:0");
        let server = server.serve(echo).start().await.expect("the name is free");
        let builder = Endpoint::builder().transport(Indifferent(mem, AtomicUsize::new(2)));
        let client = builder.start().await.expect("nothing to bind");
        let addresses = [server.addresses()[0].to_string(), "mem://nobody:1".to_owned()];
        let peer = client.peer(server.node(), addresses).expect("they are addresses");
        for _ in 0..2 {
            let call = client.call(ECHO, 7).to(peer).await;
            let Err(CallError::Branch(failure)) = call else { panic!("nobody dials: {call:?}") };
            assert_eq!((failure.cause, failure.executed), (Cause::Unreachable, Executed::No));
            assert!(failure.text.contains("the dial panicked"), "{failure}");
            sleep(2 * client.driver().limits.backoff_min).await; // until it may be dialled again
        }
        assert_eq!(client.call(ECHO, 7).to(peer).await.ok(), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_of_somebody_else_says_more_than_an_address_where_nobody_is() {
        let mem = MemTransport::new();
        let other = Endpoint::builder().transport(mem.clone()).listen("mem://somebody else:0");
        let other = other.start().await.expect("the name is free");
        let client = Endpoint::builder().transport(mem).start().await.expect("nothing to bind");
        let nobody: Address = "mem://nobody:1".parse().expect("it is an address");
        let [address] = other.addresses() else { panic!("it listens once") };
        for addresses in [[&nobody, address], [address, &nobody]] {
            let dialled =
                client.driver().dial_in_turn(NodeId::new(9), addresses.map(Clone::clone).into());
            let failed = dialled.await.expect_err("node 9 is nowhere");
            assert!(matches!(failed, DialError::WrongNode { .. }), "{failed}");
        }
    }

    /// The second is never quiet, and others come and go beside it.
    #[tokio::test(start_paused = true)]
    async fn one_task_watches_all_doubles_of_a_node() {
        /// A frame that says what its sender can do, with its only word.
        const FEATURES: Bytes = Bytes::from_static(&[0x2f, 0x00, 0x01]);
        let transport = MemTransport::new();
        let builder = Endpoint::builder().transport(transport.clone()).listen("mem://doubles:0");
        let endpoint = builder.start().await.expect("the name is free");
        let (driver, node) = (endpoint.driver(), NodeId::new(7));
        let moment = Duration::from_millis(1);
        let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
        let peer = Arc::new(Recorder::new(7));
        let address = endpoint.addresses()[0].clone();
        let dial = async || {
            let dialled = transport.dial(&address, None, peer.clone()).await;
            sleep(moment).await; // The endpoint has opened its end.
            dialled.expect("it listens")
        };

        let (_first, busy) = (dial().await, dial().await);
        let before = tasks();
        let mut closed = Vec::new();
        for _ in 0..200 {
            let brief = dial().await;
            let ends = driver.doubles(node);
            let end = ends.iter().find(|end| end.link().nonce == brief.link().nonce);
            closed.push(Arc::downgrade(end.expect("it is a double")));
            brief.close(CloseReason::Local);
            sleep(moment).await;
        }
        assert_eq!(tasks(), before, "one watches them all");
        assert!(closed.iter().all(|end| end.upgrade().is_none()), "it keeps none that has closed");

        for _ in 0..3 {
            send(&busy, Lane::Control, &FEATURES).await;
            sleep(driver.keep_alive_timeout).await;
        }
        assert_eq!(driver.doubles(node).len(), 1, "it has not been quiet");
        sleep(2 * driver.keep_alive_timeout).await;
        assert!(driver.doubles(node).is_empty() && driver.draining.lock().is_empty());
        assert!(driver.connection_to(node).is_some(), "one stays");
    }

    /// Nothing goes over it for minutes, and what is sent then has no other way.
    #[tokio::test(start_paused = true)]
    async fn a_double_stays_until_the_items_of_its_requests_are_complete() {
        const COUNT: Method<Items<u64>, u64> = Method::new("test.Doubles/Count");
        let transport = MemTransport::new();
        let start = async |node: u64| {
            let count = |mut items: Items<u64>, _: Context| async move {
                let mut count = 0;
                while let Some(item) = items.next().await {
                    count += item?;
                }
                Ok::<_, Status>(count)
            };
            let builder = Endpoint::builder().transport(transport.clone()).node(NodeId::new(node));
            let builder = builder.listen(format!("mem://items of {node}:0"));
            let serving = builder.serve(Service::new().unary(COUNT, count));
            serving.start().await.expect("the name is free")
        };
        let (lower, higher) = (start(1).await, start(2).await);
        let timeout = higher.driver().keep_alive_timeout;
        let to = higher.connect(lower.addresses()).await.expect("it listens");
        let counting = higher.call_stream(COUNT).deadline(60 * timeout).to(to).open();
        let (mut items, call) = counting.expect("it is connected");
        items.send(&1).await.expect("it is read");

        // New frames take the one that the lower node has dialled.
        let dialled = lower.driver().dial(&higher.addresses()[0], None).await;
        dialled.expect("it listens");
        sleep(4 * timeout).await;
        let doubles = || [&lower, &higher].map(|at| at.driver().doubles(other(at)).len());
        assert_eq!(doubles(), [1, 1], "it has been quiet, and has to stay");
        items.send(&2).await.expect("its connection is there");
        items.finish();
        assert_eq!(call.first().await.expect("it is answered").into_inner(), 3);
        sleep(3 * timeout).await;
        assert_eq!(doubles(), [0, 0]);
    }

    /// The other one of two nodes.
    fn other(of_two: &Endpoint) -> NodeId {
        NodeId::new(3 - of_two.node().get())
    }
}
