//! Transport whose certificates are under test.

use std::sync::Arc;

use convoke_transport::{Address, Transport};
use convoke_transport_tcp::{Identity, TcpTransport};

use crate::certificates::Issued;
use crate::raw::{attack, hello, say};

pub(crate) const SCHEME: &str = "tls";

pub(crate) fn transport(identity: Identity) -> Arc<dyn Transport> {
    Arc::new(TcpTransport::tls(identity))
}

/// Claims to be `node`, with this certificate or none. The text of the refusal.
pub(crate) async fn claim(address: &Address, issued: Option<Issued>, node: u64) -> String {
    let heard = attack(address, issued, move |raw| say(raw, &hello(node))).await;
    heard.map_or_else(|refused| refused, |told| String::from_utf8_lossy(&told).into_owned())
}
