//! Identity of this node and the peers it trusts: certificates, keys and the ids they prove.
//!
//! TLS and QUIC share it. Both ends of a connection present a certificate. Each verifies that it
//! leads to a certificate it trusts, and that it proves the node id which the peer claims in its
//! hello ([`names`] has the rule). Names of hosts play no part: a node is who its certificate says,
//! wherever it runs.
//!
//! The configurations for rustls are made once per transport. They ask the identity for the current
//! certificates at every handshake, so a reload needs no new configuration and leaves open
//! connections alone. Sessions are never resumed, since a resumed one would be trusted by what was
//! loaded when it began.

mod names;
mod pem;
mod verifier;
mod watch;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use convoke_transport::Principal;
use convoke_transport::id::NodeId;
use parking_lot::{Mutex, RwLock};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::version::TLS13;
use rustls::{CipherSuite, ClientConfig, ServerConfig, SupportedCipherSuite};

use crate::identity::names::{Naming, Proven};
use crate::identity::pem::{Credentials, Source};
use crate::identity::verifier::Current;

pub(crate) use names::IdentityMismatch;
pub use watch::IdentityWatch;

/// A node's certificate and key, and the certificates it trusts, for `tls://` and `quic://`.
///
/// Cheap to clone; clones share what is loaded, so that [`reload`](Self::reload) of one renews all.
///
/// # Which node ids a certificate proves
///
/// - With URI names `spiffe://<trust domain>/node/<id>`, those ids, in decimal. Peers must be of
///   the same trust domain.
/// - Without any URI name that begins with `spiffe://`, the id made of its key: the first 8 bytes
///   of the SHA-256 of its SubjectPublicKeyInfo, big-endian. It stays while the certificate is
///   renewed for the same key.
///
/// This node's own certificate chooses between the two, for its peers as well: a peer cannot choose
/// the rule it is judged by.
#[derive(Clone)]
pub struct Identity {
    shared: Arc<Shared>,
}

struct Shared {
    source: Source,
    naming: Naming,
    nodes: Vec<NodeId>,
    current: RwLock<Arc<Current>>,
    provider: Arc<CryptoProvider>,
    /// Held while reloading, so that what was read first is not put in place last.
    reloading: Mutex<()>,
}

/// Reason why certificates cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A file cannot be read.
    #[error("cannot read {}: {message}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Message of the operating system.
        message: String,
    },
    /// The input is not PEM, or lacks what is needed.
    #[error("{what}: {message}")]
    Pem {
        /// Input: a path, or what it is for.
        what: String,
        /// Defect that was found.
        message: String,
    },
    /// The certificate is malformed, its key does not belong to it, or its key cannot sign.
    #[error("the node's own certificate and key cannot be used: {0}")]
    Unusable(String),
    /// The certificate has names of SPIFFE, but none of a node.
    #[error(
        "the certificate's name {0:?} names no node: expected spiffe://<trust domain>/node/<id>"
    )]
    NoNode(String),
    /// The reloaded certificate proves another node, which an endpoint cannot become while it
    /// runs. What was loaded before stays.
    #[error("the new certificate proves {found}, not {expected}: restart the node to rename it")]
    NodeChanged {
        /// Nodes that the old certificate proves.
        expected: String,
        /// Nodes that the new one proves.
        found: String,
    },
}

impl Identity {
    /// Of PEM files: the node's certificate followed by its intermediates, the certificate's key
    /// (PKCS #8, PKCS #1 or SEC 1), and the certificates to trust, most often one of an authority.
    /// [`reload`](Self::reload) reads the same files again. Reads them at once, blocking.
    ///
    /// # Errors
    /// [`IdentityError`] says which file is wrong, and how.
    pub fn from_pem_files(
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
        trust: impl Into<PathBuf>,
    ) -> Result<Self, IdentityError> {
        Self::new(Source::Files {
            certificate: certificate.into(),
            key: key.into(),
            trust: trust.into(),
        })
    }

    /// Of PEM texts, as [`from_pem_files`](Self::from_pem_files) reads them from files. Use
    /// [`replace`](Self::replace) to renew them.
    ///
    /// # Errors
    /// [`IdentityError`] says which text is wrong, and how.
    pub fn from_pem(
        certificate: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
        trust: impl AsRef<[u8]>,
    ) -> Result<Self, IdentityError> {
        let credentials =
            Credentials::from_pem(certificate.as_ref(), key.as_ref(), trust.as_ref())?;
        Self::from_credentials(Source::Given, credentials)
    }

    fn new(source: Source) -> Result<Self, IdentityError> {
        let credentials = source.read()?;
        Self::from_credentials(source, credentials)
    }

    fn from_credentials(source: Source, credentials: Credentials) -> Result<Self, IdentityError> {
        let provider = Arc::new(provider());
        let (naming, nodes) = Naming::of_own(credentials.leaf())?;
        let current = RwLock::new(Arc::new(Current::new(credentials, &naming, &provider)?));
        let reloading = Mutex::default();
        let shared = Shared { source, naming, nodes, current, provider, reloading };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The node its certificate proves; the first, if it proves several. The endpoint must have
    /// this id, or another that the certificate proves.
    pub fn node(&self) -> NodeId {
        self.shared.nodes[0]
    }

    /// Every node its certificate proves; more than one only where several endpoints share it.
    pub fn nodes(&self) -> &[NodeId] {
        &self.shared.nodes
    }

    /// Reads the PEM files again. Handshakes from now on use what they hold; open connections live
    /// on. Reads them at once, blocking. Does nothing to an identity [`from_pem`](Self::from_pem).
    ///
    /// # Errors
    /// [`IdentityError`]; what was loaded before then stays in use.
    pub fn reload(&self) -> Result<(), IdentityError> {
        let _in_turn = self.shared.reloading.lock();
        match &self.shared.source {
            Source::Files { .. } => self.put(self.shared.source.read()?),
            Source::Given => Ok(()),
        }
    }

    /// Uses these PEM texts from the next handshake on; open connections live on.
    ///
    /// # Errors
    /// [`IdentityError`]; what was loaded before then stays in use.
    pub fn replace(
        &self,
        certificate: impl AsRef<[u8]>,
        key: impl AsRef<[u8]>,
        trust: impl AsRef<[u8]>,
    ) -> Result<(), IdentityError> {
        let _in_turn = self.shared.reloading.lock();
        self.put(Credentials::from_pem(certificate.as_ref(), key.as_ref(), trust.as_ref())?)
    }

    fn put(&self, credentials: Credentials) -> Result<(), IdentityError> {
        let shared = &*self.shared;
        let (naming, nodes) = Naming::of_own(credentials.leaf())?;
        if (&naming, &nodes) != (&shared.naming, &shared.nodes) {
            return Err(IdentityError::NodeChanged {
                expected: shared.naming.describe(&shared.nodes),
                found: naming.describe(&nodes),
            });
        }
        let current = Arc::new(Current::new(credentials, &naming, &shared.provider)?);
        *shared.current.write() = current;
        tracing::info!(node = %self.node(), "certificates reloaded");
        Ok(())
    }

    /// For accepting, with the certificates that are current at each handshake.
    pub(crate) fn server_config(&self, protocol: &[u8]) -> ServerConfig {
        let provider = Arc::clone(&self.shared.provider);
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has suites of TLS 1.3")
            .with_client_cert_verifier(Arc::clone(&self.shared) as _)
            .with_cert_resolver(Arc::clone(&self.shared) as _);
        config.alpn_protocols = vec![protocol.to_vec()];
        config.send_tls13_tickets = 0;
        config
    }

    /// For dialling, with the certificates that are current at each handshake.
    pub(crate) fn client_config(&self, protocol: &[u8]) -> ClientConfig {
        let provider = Arc::clone(&self.shared.provider);
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has suites of TLS 1.3")
            // What is dangerous is to verify too little. Names of hosts are left out on purpose:
            // `verify_node` compares the node id, which says more.
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&self.shared) as _)
            .with_client_cert_resolver(Arc::clone(&self.shared) as _);
        config.alpn_protocols = vec![protocol.to_vec()];
        config.resumption = Resumption::disabled();
        config
    }

    /// Verifies that the peer with these verified certificates, its own first, may call itself
    /// `claimed`.
    pub(crate) fn verify_node(
        &self,
        certificates: &[CertificateDer<'_>],
        claimed: NodeId,
    ) -> Result<Principal, IdentityMismatch> {
        let leaf = certificates.first().ok_or(IdentityMismatch::NoCertificate)?;
        let Proven { nodes, principal } = self.shared.naming.of_peer(leaf, claimed)?;
        if nodes.contains(&claimed) {
            return Ok(principal);
        }
        Err(IdentityMismatch::OtherNode { claimed, proven: names::list(&nodes) })
    }

    /// True when this node is known by its own certificate, rather than by its authority's: that is
    /// trusted by itself, or this node's own names it, too.
    pub(crate) fn trusts_node(&self, node: NodeId) -> bool {
        self.shared.nodes.contains(&node) || self.shared.current().trusts_node(node)
    }

    /// Verifies that the peer with these verified certificates is any node of this one's trust
    /// domain.
    pub(crate) fn verify_domain(
        &self,
        certificates: &[CertificateDer<'_>],
    ) -> Result<(), IdentityMismatch> {
        let leaf = certificates.first().ok_or(IdentityMismatch::NoCertificate)?;
        self.shared.naming.of_peer(leaf, self.node()).map(|_| ())
    }

    /// Verifies that this node's own hello will be believed; says why not.
    pub(crate) fn verify_own(&self, node: NodeId) -> Result<(), String> {
        if self.shared.nodes.contains(&node) {
            return Ok(());
        }
        let proven = names::list(&self.shared.nodes);
        Err(format!(
            "this endpoint is {node}, but its certificate proves {proven}: \
             give the endpoint that id with EndpointBuilder::node"
        ))
    }
}

/// That of rustls, with AES of 128 bits first: it is the cheapest of its ciphers where the
/// processor has AES, and as strong as the keys of P-256 and X25519 that the handshake rests on.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let is_first =
        |suite: &SupportedCipherSuite| suite.suite() == CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| !is_first(suite));
    provider
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("nodes", &self.shared.nodes).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
