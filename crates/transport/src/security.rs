//! Security that a transport over TCP puts over its sockets: none, or TLS with an identity.

use std::fmt;
#[cfg(feature = "identity")]
use std::sync::Arc;

#[cfg(feature = "identity")]
use rustls::pki_types::ServerName;
#[cfg(feature = "identity")]
use rustls::{ClientConfig, ServerConfig};

#[cfg(feature = "identity")]
use crate::Address;
use crate::id::NodeId;
#[cfg(feature = "identity")]
use crate::identity::{Identity, IdentitySeam as _};

/// Security of the sockets of a transport. Default: none, so that peers prove nothing.
#[derive(Clone, Default)]
pub struct Security {
    #[cfg(feature = "identity")]
    tls: Option<Arc<Tls>>,
}

/// Parts that a transport needs to speak TLS.
#[cfg(feature = "identity")]
pub struct Tls {
    /// Certificates of this end, and whom it trusts.
    pub identity: Identity,
    /// For accepting.
    pub server: Arc<ServerConfig>,
    /// For dialling.
    pub client: Arc<ClientConfig>,
}

impl Security {
    /// TLS 1.3 with certificates of both ends, and this name of the protocol inside (ALPN).
    #[cfg(feature = "identity")]
    pub fn tls(identity: Identity, protocol: &[u8]) -> Self {
        let server = Arc::new(identity.server_config(protocol));
        let client = Arc::new(identity.client_config(protocol));
        Self { tls: Some(Arc::new(Tls { identity, server, client })) }
    }

    /// Parts of TLS, where there is TLS.
    #[cfg(feature = "identity")]
    pub fn as_tls(&self) -> Option<&Arc<Tls>> {
        self.tls.as_ref()
    }

    /// The first where it is plain, the second where it is TLS.
    pub fn choose<T>(&self, plain: T, tls: T) -> T {
        if self.proves_peers() { tls } else { plain }
    }

    /// True when peers prove who they are.
    pub fn proves_peers(&self) -> bool {
        #[cfg(feature = "identity")]
        return self.tls.is_some();
        #[cfg(not(feature = "identity"))]
        false
    }

    /// True when a certificate of this very node is trusted.
    pub fn trusts_node(&self, node: NodeId) -> bool {
        #[cfg(feature = "identity")]
        if let Some(tls) = &self.tls {
            return tls.identity.trusts_node(node);
        }
        let _ = node;
        false
    }

    /// The nodes that this end can prove to be.
    pub fn nodes(&self) -> Vec<NodeId> {
        #[cfg(feature = "identity")]
        if let Some(tls) = &self.tls {
            return tls.identity.nodes();
        }
        Vec::new()
    }

    /// Verifies that this end can prove to be `node`.
    ///
    /// # Errors
    /// The text that says why not.
    pub fn verify_own(&self, node: NodeId) -> Result<(), String> {
        #[cfg(feature = "identity")]
        if let Some(tls) = &self.tls {
            return tls.identity.verify_own(node);
        }
        let _ = node;
        Ok(())
    }
}

/// Name by which a dialler calls the other end. Nobody verifies it; a relay in between may look at
/// it.
///
/// # Panics
/// Never: a host that is no name is called `convoke`.
#[cfg(feature = "identity")]
pub fn server_name(address: &Address) -> ServerName<'static> {
    let host = address.rest().rsplit_once(':').map_or(address.rest(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let fallback = || ServerName::try_from("convoke").expect("it is a name");
    ServerName::try_from(host.to_owned()).unwrap_or_else(|_| fallback())
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.choose("Plain", "Tls"))
    }
}

#[cfg(feature = "identity")]
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("identity", &self.identity).finish_non_exhaustive()
    }
}
