//! The transport over one device, as an endpoint is given it.

use std::fmt;
use std::future::ready;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use convoke_transport::id::NodeId;
use convoke_transport::{
    Address, CloseReason, DialError, DialFuture, DialLimit, ListenError, ListenFuture, Listener,
    Sink, Transport, own_address,
};
use tokio::time::{Instant, timeout};

use crate::SCHEME;
use crate::config::{Config, RdmaTransportBuilder};
use crate::engine::Engine;
use crate::provider::simulated::Fabric;
use crate::provider::{Provider, Tag, VerbsError};
use crate::wire::{Dialled, Dialling, Wire};
use convoke_transport::sockets;

/// Makes connections over one RDMA device, at addresses `rdma://host:port`. Cheap to clone; clones
/// share the device.
///
/// One task drives all that the transport listens to and has connected. It runs on the tokio
/// runtime that first listened or dialled, which needs I/O and time enabled, and ends when nothing
/// is left to drive.
#[derive(Clone)]
pub struct RdmaTransport {
    device: Arc<dyn Device>,
}

impl RdmaTransport {
    /// Over a device of the provider, with the defaults that [`RdmaTransportBuilder`] lists.
    pub fn new<P: Provider>(provider: P) -> Self {
        Self::from_config(provider, Config::default())
    }

    /// Over a new simulated device, for tests on machines without one.
    pub fn simulated(fabric: &Fabric) -> Self {
        Self::new(fabric.device())
    }

    /// Over the device of this machine with this name, such as `mlx5_0`.
    ///
    /// # Errors
    /// [`VerbsError::Unsupported`] on systems other than Linux. On Linux [`VerbsError::NoDevice`]
    /// or [`VerbsError::Permission`], with what to do; others as the system says.
    #[cfg(feature = "verbs")]
    pub fn open(device: &str) -> Result<Self, VerbsError> {
        #[cfg(target_os = "linux")]
        return crate::provider::verbs::VerbsDevice::named(device).map(Self::new);
        #[cfg(not(target_os = "linux"))]
        Err(VerbsError::Unsupported { wanted: device.to_owned() })
    }

    /// Over the first device of this machine.
    ///
    /// # Errors
    /// As for [`open`](Self::open).
    #[cfg(feature = "verbs")]
    pub fn open_first() -> Result<Self, VerbsError> {
        #[cfg(target_os = "linux")]
        return crate::provider::verbs::VerbsDevice::first().map(Self::new);
        #[cfg(not(target_os = "linux"))]
        Err(VerbsError::Unsupported { wanted: "at all".to_owned() })
    }

    /// For other settings than the defaults.
    pub fn builder<P: Provider>(provider: P) -> RdmaTransportBuilder<P> {
        RdmaTransportBuilder::new(provider)
    }

    pub(crate) fn from_config<P: Provider>(provider: P, config: Config) -> Self {
        Self { device: Arc::new(Engine::new(provider, config)) }
    }
}

impl fmt::Debug for RdmaTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RdmaTransport").field("device", &self.device.name()).finish()
    }
}

impl Transport for RdmaTransport {
    fn schemes(&self) -> &'static [&'static str] {
        &[SCHEME]
    }

    /// Above that of other transports: where both ends have a device, it is the shorter way.
    fn preference(&self) -> i8 {
        10
    }

    fn listen(&self, address: &Address, sink: Arc<dyn Sink>) -> ListenFuture {
        let (device, address) = (Arc::clone(&self.device), own_address(self.schemes(), address));
        Box::pin(async move {
            let address = address?;
            let failed = |message: String| ListenError::Bind { address: address.clone(), message };
            let resolved = sockets::resolve(address.rest()).await;
            let mut last = "the name has no address".to_owned();
            for target in resolved.map_err(|error| failed(error.to_string()))? {
                match device.listen(target, Arc::clone(&sink)) {
                    Ok(listener) => return Ok(listener),
                    Err(error) => last = error.to_string(),
                }
            }
            Err(failed(last))
        })
    }

    /// # Cancel safety
    /// A future dropped before it is ready leaves no connection behind.
    fn dial(&self, address: &Address, expected: Option<NodeId>, sink: Arc<dyn Sink>) -> DialFuture {
        let (device, address) = (Arc::clone(&self.device), own_address(self.schemes(), address));
        Box::pin(async move { dial(&*device, address?, expected, sink).await })
    }
}

/// Dials what the name stands for, one after the other, until who is wanted answers.
async fn dial(
    device: &dyn Device,
    address: Address,
    expected: Option<NodeId>,
    sink: Arc<dyn Sink>,
) -> Dialled {
    let (begun, within) = (Instant::now(), device.dial_timeout());
    let sockets = sockets::resolve_to_dial(&address, within).await?;
    let left = within.saturating_sub(begun.elapsed());
    dial_at(device, (&address, expected), &sink, (&sockets, left)).await
}

/// The same at these addresses, within what is left of the time.
async fn dial_at(
    device: &dyn Device,
    (address, expected): (&Address, Option<NodeId>),
    sink: &Arc<dyn Sink>,
    (sockets, left): (&[SocketAddr], Duration),
) -> Dialled {
    let unreachable =
        |message: String| DialError::Unreachable { address: address.clone(), message };
    // Who takes the connection has said its hello by then, or refused this one's.
    let connect = |target, share| async move {
        let (dialling, dialled) = Dialling::new(address.clone(), expected, Arc::clone(sink));
        let started = device.dial(target, dialling);
        let started = started.map_err(|error| unreachable(error.to_string()))?;
        let mut attempt = Attempt { started: Some(started) };
        match timeout(share, dialled).await {
            Ok(Ok(Err(error @ DialError::Unreachable { .. }))) => Err(error),
            Ok(Ok(answered)) => {
                attempt.started = None;
                Ok(answered)
            }
            Ok(Err(_)) => Err(unreachable(VerbsError::NoRuntime.to_string())),
            Err(_) => Err(DialLimit::Connect(device.dial_timeout()).passed(address)),
        }
    };
    let none = unreachable("the name has no address".to_owned());
    sockets::try_each(sockets, left, none, connect, ready).await
}

/// A dial under way; given up when dropped before it is over.
struct Attempt {
    started: Option<Box<dyn GiveUp>>,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(started) = self.started.take() {
            started.give_up();
        }
    }
}

/// Something that can be given up.
trait GiveUp: Send {
    fn give_up(&self);
}

impl<P: Provider> GiveUp for Arc<Wire<P>> {
    fn give_up(&self) {
        self.end(CloseReason::Local);
    }
}

/// An engine, whatever its provider.
trait Device: Send + Sync {
    fn name(&self) -> String;
    fn dial_timeout(&self) -> Duration;
    fn listen(
        &self,
        address: SocketAddr,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Listener>, VerbsError>;
    fn dial(&self, target: SocketAddr, dialling: Dialling) -> Result<Box<dyn GiveUp>, VerbsError>;
}

impl<P: Provider> Device for Arc<Engine<P>> {
    fn name(&self) -> String {
        self.provider().limits().name
    }

    fn dial_timeout(&self) -> Duration {
        self.config().common.dial_timeout
    }

    fn listen(
        &self,
        address: SocketAddr,
        sink: Arc<dyn Sink>,
    ) -> Result<Box<dyn Listener>, VerbsError> {
        let (tag, local) = Engine::listen(self, address, sink)?;
        let local = sockets::of_socket(SCHEME, local);
        tracing::debug!(address = %local, "listening");
        let is_open = AtomicBool::new(true);
        Ok(Box::new(RdmaListener { engine: Arc::clone(self), tag, local, is_open }))
    }

    fn dial(&self, target: SocketAddr, dialling: Dialling) -> Result<Box<dyn GiveUp>, VerbsError> {
        let wire = self.add_wire(|tag| Wire::dialling(self, tag, dialling))?;
        wire.begin(target);
        Ok(Box::new(wire))
    }
}

/// Accepts connections until it is closed or dropped.
#[derive(Debug)]
struct RdmaListener<P: Provider> {
    engine: Arc<Engine<P>>,
    tag: Tag,
    local: Address,
    is_open: AtomicBool,
}

impl<P: Provider> Listener for RdmaListener<P> {
    fn local_address(&self) -> Address {
        self.local.clone()
    }

    fn close(&self) {
        if self.is_open.swap(false, Ordering::Relaxed) {
            tracing::debug!(address = %self.local, "no longer listening");
            self.engine.close_listener(self.tag);
        }
    }
}

impl<P: Provider> Drop for RdmaListener<P> {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use convoke_transport::conformance::{PATIENCE, Recorder};

    use super::*;

    #[tokio::test]
    async fn a_node_is_found_at_whichever_address_of_its_name() {
        let (fabric, mut listeners, mut sockets) = (Fabric::new(), Vec::new(), Vec::new());
        for node in [1, 2] {
            let transport = RdmaTransport::simulated(&fabric);
            let any = "rdma://127.0.0.1:0".parse().expect("it is an address");
            let listener = transport.listen(&any, Arc::new(Recorder::new(node))).await;
            let listener = listener.expect("it is free");
            let at = listener.local_address();
            sockets.push(at.rest().parse::<SocketAddr>().expect("it is a socket's"));
            listeners.push((transport, listener));
        }
        let client = RdmaTransport::simulated(&fabric);
        let address = "rdma://several:1".parse().expect("it is an address");
        let sink: Arc<dyn Sink> = Arc::new(Recorder::new(9));
        let dial = |expected| {
            let wanted = (&address, Some(NodeId::new(expected)));
            dial_at(&*client.device, wanted, &sink, (&sockets, PATIENCE))
        };
        let connection = dial(2).await.expect("it is at the last");
        assert_eq!(connection.link().peer.node, NodeId::new(2));
        connection.close(CloseReason::Local);
        let error = dial(3).await.expect_err("it is nowhere");
        assert!(matches!(error, DialError::WrongNode { .. }), "{error}");
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn a_device_that_is_not_there_is_named() {
        let text = RdmaTransport::open("nosuch0").expect_err("it has a made-up name").to_string();
        assert!(text.contains("nosuch0"), "{text}");
    }
}
