//! Proof that the other end of a connection has given of itself, by its certificates; nothing
//! without TLS.

#[cfg(feature = "tls")]
use std::sync::Arc;

use convoke_transport::id::NodeId;
#[cfg(feature = "tls")]
use convoke_transport::identity::IdentitySeam as _;
use convoke_transport::security::Security;
use convoke_transport::{PeerName, Principal};
#[cfg(feature = "tls")]
use rustls::pki_types::CertificateDer;

/// Outcome of a handshake of TLS; empty for a connection without.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shown {
    /// The name that the connection is counted by, unless by its place.
    pub(crate) name: Option<PeerName>,
    /// Identity of a client of the edge.
    pub(crate) client: Option<Principal>,
    /// Certificates of a node, its own first; verified but for the node's id.
    #[cfg(feature = "tls")]
    pub(crate) certificates: Arc<[CertificateDer<'static>]>,
}

impl Shown {
    /// Principal that a peer which claims to be `claimed` has proven to be; nobody without TLS.
    ///
    /// # Errors
    /// The text that says what it has proven instead.
    pub(crate) fn verify_peer(
        &self,
        security: &Security,
        claimed: NodeId,
    ) -> Result<Option<Principal>, String> {
        #[cfg(feature = "tls")]
        if let Some(tls) = security.as_tls() {
            let proven = tls.identity.verify_node(&self.certificates, claimed);
            return proven.map(Some).map_err(|mismatch| mismatch.to_string());
        }
        let _ = (security, claimed);
        Ok(None)
    }
}
