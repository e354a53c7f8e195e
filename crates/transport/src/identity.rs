//! Identity of this node and the peers it trusts: certificates, keys and the ids they prove.
//!
//! TLS, QUIC and gRPC share it. Both ends of a connection present a certificate. Each verifies that
//! it leads to a certificate it trusts, and that it proves the node id which the peer claims in its
//! hello (`names.rs` has the rule). Names of hosts play no part: a node is who its certificate
//! says, wherever it runs.
//!
//! Clients of a gRPC edge are no nodes: they may present a certificate, and what it says of them is
//! never a node id (`clients.rs`).
//!
//! The configurations for rustls are made once per transport. They ask the identity for the current
//! certificates at every handshake, so a reload needs no new configuration and leaves open
//! connections alone. Sessions are never resumed, since a resumed one would be trusted by what was
//! loaded when it began.

mod clients;
mod failure;
mod names;
mod pem;
mod seam;
mod verifier;
mod watch;

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ring::hkdf::{HKDF_SHA256, Prk, Salt};
use rustls::crypto::CryptoProvider;
use rustls::{CipherSuite, SupportedCipherSuite};

use crate::id::NodeId;
use crate::identity::pem::{Credentials, Source};
use crate::identity::verifier::Current;
use crate::parts::Mutex;

pub use clients::ClientCertificates;
pub use failure::{TlsError, rustls_error};
pub use names::IdentityMismatch;
pub use seam::IdentitySeam;
pub use watch::IdentityWatch;

/// A node's certificate and key, and the certificates it trusts, for `tls://`, `quic://` and
/// `grpcs://`, and for the TLS of a gRPC edge.
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
    current: Mutex<Arc<Current>>,
    provider: Arc<CryptoProvider>,
    /// Held while reloading, so that what was read first is not put in place last.
    reloading: Mutex<()>,
    /// A transport proves by it which node an endpoint is: that must stay.
    is_of_node: AtomicBool,
    /// Root of secrets, made of the first key.
    root: Prk,
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
        let root = Salt::new(HKDF_SHA256, b"convoke").extract(credentials.key.secret_der());
        let current = Mutex::new(Arc::new(Current::new(credentials, &provider)?));
        let (reloading, is_of_node) = Default::default();
        let shared = Shared { source, current, provider, reloading, is_of_node, root };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The node its certificate proves; the first, if it proves several. An endpoint takes it
    /// unless its builder's `node` gives another that the certificate proves.
    pub fn node(&self) -> NodeId {
        self.shared.current().nodes[0]
    }

    /// Every node its certificate proves; more than one only where several endpoints share it.
    pub fn nodes(&self) -> Vec<NodeId> {
        self.shared.current().nodes.clone()
    }

    /// Reads the PEM files again. Handshakes from now on use what they hold; open connections live
    /// on. Reads them at once, blocking. Does nothing to an identity [`from_pem`](Self::from_pem).
    ///
    /// # Errors
    /// [`IdentityError`]; what was loaded before then stays in use. A certificate of another node
    /// is one, unless only gRPC edges use the identity, which are no nodes.
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
        let (old, new) = (shared.current(), Current::new(credentials, &shared.provider)?);
        let sets = [&old.nodes, &new.nodes].map(|nodes| nodes.iter().collect::<BTreeSet<_>>());
        let is_renamed = old.naming != new.naming || sets[0] != sets[1];
        if is_renamed && shared.is_of_node.load(Ordering::Relaxed) {
            return Err(IdentityError::NodeChanged {
                expected: old.naming.describe(&old.nodes),
                found: new.naming.describe(&new.nodes),
            });
        }
        *shared.current.lock() = Arc::new(new);
        tracing::info!(node = %self.node(), "certificates reloaded");
        Ok(())
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
        f.debug_struct("Identity").field("nodes", &self.nodes()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("nodes", &self.current().nodes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
