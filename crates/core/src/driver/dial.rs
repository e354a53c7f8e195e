//! Dials for the node, and for callers who know only an address.

use std::cmp::Reverse;
use std::sync::Arc;

use convoke_proto::id::NodeId;

use crate::transport::{Address, CloseReason, Connection, Counters, DialError, Sink};

use super::Driver;

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
                    && let Err(error) = driver.dial_by_name(node).await
                {
                    // Before anybody is told: a core that asks from then on is dialled for again.
                    driver.dials.lock().remove(&node);
                    return driver.report_dial_failed(node, &error);
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

    fn report_dial_failed(self: &Arc<Self>, node: NodeId, error: &DialError) {
        self.telemetry.on_dial_failed();
        self.with_each_node(|core, now| {
            core.note_dial_error(node, &error.to_string());
            core.handle_dial_failed(now, node);
        });
    }

    /// Makes sure there is a connection to a node.
    pub(crate) async fn warm_up(self: &Arc<Self>, node: NodeId) -> Result<(), DialError> {
        if self.is_met(node) {
            return Ok(());
        }
        self.dial_by_name(node).await
    }

    /// The same for a node that is kept connected: in a dial that nobody else shares, for it may
    /// have begun long before anybody listened.
    pub(super) async fn keep_warm(self: &Arc<Self>, node: NodeId) -> Result<(), DialError> {
        if self.is_met(node) {
            return Ok(());
        }
        self.dial_wherever(node).await
    }

    fn is_met(&self, node: NodeId) -> bool {
        node == self.identity.node || self.connection_to(node).is_some()
    }

    /// Dials a node, once for all who ask for it meanwhile.
    async fn dial_by_name(self: &Arc<Self>, node: NodeId) -> Result<(), DialError> {
        let begin = || {
            let driver = self.clone();
            async move { driver.dial_wherever(node).await }
        };
        match self.by_name.run(&self.runtime, node, begin).await {
            Some(dialled) => dialled,
            None => self.dial_wherever(node).await,
        }
    }

    /// Dials a node where it may be. One that was given other addresses while those before them
    /// failed is dialled there.
    async fn dial_wherever(self: &Arc<Self>, node: NodeId) -> Result<(), DialError> {
        let _dialling = self.dialling(node);
        let mut known = self.addresses_of(node);
        loop {
            let dialled = self.dial_known_or_found(node, &known).await;
            let now_known = self.addresses_of(node);
            if dialled.is_ok() || now_known.iter().all(|address| known.contains(address)) {
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

    /// Addresses at which a node may be dialled.
    fn addresses_of(&self, node: NodeId) -> Vec<Address> {
        self.ask_any_node(|core| core.links().addresses(node))
    }

    /// Those of them that the endpoint's owner gave.
    pub(super) fn configured_addresses(&self, node: NodeId) -> Vec<Address> {
        self.ask_any_node(|core| core.links().configured(node).to_vec())
    }

    /// Dials a node at its known addresses in turn and, when there is none or all fail, at those
    /// that the resolver finds.
    async fn dial_known_or_found(
        self: &Arc<Self>,
        node: NodeId,
        known: &[Address],
    ) -> Result<(), DialError> {
        let dialled = self.dial_in_turn(node, known.to_vec()).await;
        let (Err(error), Some(resolver)) = (&dialled, &self.resolver) else { return dialled };
        let mut found = match resolver.addresses(node, self.now(), self.limits.backoff_min).await {
            Ok(found) => found,
            Err(unresolved) if known.is_empty() => return Err(unresolved),
            Err(unresolved) => {
                tracing::debug!(%node, error = %unresolved, "no other address");
                return Err(error.clone());
            }
        };
        found.retain(|address| !known.contains(address));
        if found.is_empty() { dialled } else { self.dial_in_turn(node, found).await }
    }

    async fn dial_in_turn(
        self: &Arc<Self>,
        node: NodeId,
        addresses: Vec<Address>,
    ) -> Result<(), DialError> {
        let mut result = Err(DialError::NoAddress { node });
        for address in self.in_dial_order(node, addresses) {
            match self.dial(&address, Some(node)).await {
                Ok(_) => return Ok(()),
                Err(error) => {
                    tracing::debug!(%node, %error, "dial failed");
                    result = Err(error);
                }
            }
        }
        result
    }

    /// Of two connections between the same nodes, dialled at once, both ends keep the same one for
    /// what begins from now on. The other ends once nothing has gone over it for the keep-alive
    /// timeout.
    pub(super) fn drain_doubles(self: &Arc<Self>, node: NodeId) {
        let doubles = self.doubles(node);
        if doubles.is_empty() {
            return;
        }
        let (driver, pause) = (self.me.clone(), self.keep_alive_timeout);
        self.runtime.spawn(async move {
            let mut before: Vec<Counters> = Vec::new();
            loop {
                let seen: Vec<Counters> = doubles.iter().map(|double| double.counters()).collect();
                let frames = |all: &[Counters]| -> Vec<(u64, u64)> {
                    all.iter().map(|c| (c.frames_sent, c.frames_received)).collect()
                };
                if frames(&seen) == frames(&before) {
                    break;
                }
                before = seen;
                tokio::time::sleep(pause).await;
            }
            let Some(driver) = driver.upgrade() else { return };
            // One of them may have become the only one.
            let still = driver.doubles(node);
            for double in
                doubles.iter().filter(|double| still.iter().any(|s| Arc::ptr_eq(s, double)))
            {
                double.close(CloseReason::Local);
            }
        });
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
        let connection = transport.dial(address, expected, sink).await?;
        let peer = &connection.link().peer;
        self.ask_each_node(|core| core.note_met(peer.node, peer.incarnation, address));
        Ok(connection)
    }

    pub(crate) fn transport(&self, scheme: &str) -> Option<&Arc<dyn crate::transport::Transport>> {
        self.transports.iter().find(|transport| transport.schemes().contains(&scheme))
    }
}
