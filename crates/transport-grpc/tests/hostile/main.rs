//! Peers that do not keep to the rules, at the transport's port and at the edge: each is refused
//! with a reason, and none harms another.

mod attack;
#[cfg(feature = "tls")]
#[path = "../../../transport/tests/support/certificates.rs"]
mod certificates;
#[cfg(feature = "tls")]
mod clients;
#[cfg(feature = "tls")]
#[path = "../../../transport/tests/support/credulous.rs"]
mod credulous;
mod deeds;
#[path = "../edge/echo.rs"]
#[allow(dead_code, reason = "the tests with tonic's client use more of it")]
mod echo;
mod edge;
#[cfg(feature = "tls")]
mod handshakes;
mod http2;
#[cfg(feature = "tls")]
#[path = "../../../transport/tests/support/identities.rs"]
mod identities;
#[cfg(feature = "tls")]
#[path = "../../../transport/tests/support/log.rs"]
mod log;
#[cfg(feature = "tls")]
mod nodes;
mod over;
#[cfg(feature = "tls")]
mod secure;
#[cfg(feature = "tls")]
mod tls_client;
mod transport;
#[cfg(feature = "tls")]
#[path = "../../../transport/tests/support/trust.rs"]
mod trust;
mod victim;

use std::time::Duration;

/// Time that a test waits for what must happen: only a hang runs into it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it happens")
}
