//! Two ends over a fabric, and waiting for what must happen.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use convoke_transport::conformance::{PATIENCE, Recorder, Setup, send};
use convoke_transport::{Connection, Lane, Listener, Sink, Transport};
use convoke_transport_rdma::provider::simulated::{DeviceSettings, Fabric, SimDevice};
use convoke_transport_rdma::{RdmaTransport, RdmaTransportBuilder};

/// Two ends and their devices.
pub(crate) struct Ends {
    pub(crate) fabric: Fabric,
    /// Of the listening and the dialling end.
    pub(crate) devices: [SimDevice; 2],
    pub(crate) setup: Setup,
}

/// A connection as both ends hold it.
pub(crate) struct Link {
    pub(crate) to_b: Arc<dyn Connection>,
    pub(crate) to_a: Arc<dyn Connection>,
    pub(crate) listener: Box<dyn Listener>,
}

/// Ends with the defaults.
pub(crate) fn ends() -> Ends {
    ends_with(Fabric::new(), DeviceSettings::default(), |builder| builder)
}

/// Ends that `set` sets up.
pub(crate) fn ends_with(
    fabric: Fabric,
    settings: DeviceSettings,
    set: impl Fn(RdmaTransportBuilder<SimDevice>) -> RdmaTransportBuilder<SimDevice>,
) -> Ends {
    let devices = [(), ()].map(|()| fabric.device_with(settings));
    let [listening, dialling] = devices.clone().map(|device| {
        let builder = set(RdmaTransport::builder(device));
        Arc::new(builder.build().expect("the settings are legal"))
    });
    let listen = "rdma://127.0.0.1:0".parse().expect("it is an address");
    Ends { fabric, devices, setup: Setup { listening, dialling, listen } }
}

impl Ends {
    /// Connects two sinks; `b` is a recorder that tells of its end.
    pub(crate) async fn connect(&self, a: Arc<dyn Sink>, b: &Arc<Recorder>) -> Link {
        let listener = self.setup.listen(b).await;
        let to_b = self.setup.dialling.dial(&listener.local_address(), None, a).await;
        let to_b = to_b.expect("the other end listens");
        let to_a = b.opened(0).await;
        Link { to_b, to_a, listener }
    }

    /// Nothing went wrong that credits or states must prevent.
    pub(crate) fn check(&self) {
        let counters = self.fabric.counters();
        let bad = (counters.receiver_not_ready, counters.overflows, counters.violations);
        assert_eq!(bad, (0, 0, 0), "{counters:?}");
    }

    /// Waits until no queue pair and no registered memory is left.
    pub(crate) async fn nothing_is_left(&self) {
        until("everything is given back", || {
            let counters = self.fabric.counters();
            (counters.queue_pairs, counters.registered_bytes) == (0, 0)
        })
        .await;
    }
}

/// A third node is let in, and the connection of two others goes on.
pub(crate) async fn is_not_disturbed(ends: &Ends, link: &Link, b: &Recorder) {
    let opened = b.opened_count();
    let (third, c) = (RdmaTransport::simulated(&ends.fabric), Arc::new(Recorder::new(3)));
    let to_b = third.dial(&link.listener.local_address(), None, c).await.expect("it listens");
    assert_eq!(b.opened_count(), opened + 1);
    send(&to_b, Lane::Data, &Bytes::from_static(b"let in")).await;
    b.frames(to_b.link().nonce, 1).await;
    let nonce = link.to_a.link().nonce;
    let count = b.frame_count(nonce);
    send(&link.to_b, Lane::Data, &Bytes::from_static(b"not disturbed")).await;
    b.frames(nonce, count + 1).await;
}

/// The socket address of a listener.
pub(crate) fn socket_of(listener: &dyn Listener) -> SocketAddr {
    listener.local_address().rest().parse().expect("it is a socket's")
}

/// Settings with short times, for what ends by time.
pub(crate) fn hasty(builder: RdmaTransportBuilder<SimDevice>) -> RdmaTransportBuilder<SimDevice> {
    let ms = Duration::from_millis;
    builder.keep_alive_interval(ms(20)).keep_alive_timeout(ms(100)).close_grace(ms(50))
}

/// Waits until something holds that nobody is woken for.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let held = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, held)
        .await
        .unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// True when a poll function is ready now.
pub(crate) async fn is_ready(
    mut poll: impl FnMut(&mut std::task::Context<'_>) -> Poll<()>,
) -> bool {
    poll_fn(|cx| Poll::Ready(poll(cx))).await.is_ready()
}
