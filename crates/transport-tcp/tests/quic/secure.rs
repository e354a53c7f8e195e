//! Transport whose certificates are under test.

use std::sync::Arc;

use convoke_transport::{Address, Transport};
use convoke_transport_tcp::{Identity, QuicTransport};
use quinn::ConnectionError;

use crate::certificates::Issued;
use crate::raw::{Raw, hello};

pub(crate) const SCHEME: &str = "quic";

pub(crate) fn transport(identity: Identity) -> Arc<dyn Transport> {
    Arc::new(QuicTransport::new(identity))
}

/// Claims to be `node`, with this certificate or none. The text of the refusal.
pub(crate) async fn claim(address: &Address, issued: Option<Issued>, node: u64) -> String {
    let mut raw = Raw::connect_with(address, issued.as_ref()).await;
    // Without a certificate it is closed meanwhile.
    let _ = raw.control.0.write_all(&hello(node)).await;
    let _ = raw.data.0.write_all(&[0]).await;
    match raw.quic.closed().await {
        ConnectionError::ConnectionClosed(close) => {
            let alert = u64::from(close.error_code).to_le_bytes()[0];
            format!("{:?}", rustls::AlertDescription::from(alert))
        }
        other => other.to_string(),
    }
}
