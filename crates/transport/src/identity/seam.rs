//! Methods of an [`Identity`] for transports and servers: configurations for rustls, and proof of
//! who a peer is.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ring::hkdf::HKDF_SHA256;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ResolvesServerCert, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};

use crate::Principal;
use crate::id::NodeId;
use crate::identity::Identity;
use crate::identity::clients::{ClientCertificates, Clients};
use crate::identity::names::{self, IdentityMismatch, Proven};

/// Methods of an [`Identity`] for crates that speak TLS with it. They are invisible where this
/// trait is not imported, and the facade does not have it.
///
/// A configuration asks the identity for the certificates at every handshake, so that a reload
/// needs no new one. Its `protocol` is the name that both ends must give (ALPN).
pub trait IdentitySeam {
    /// For accepting nodes, each of which must present a certificate.
    fn server_config(&self, protocol: &[u8]) -> ServerConfig;

    /// For dialling nodes. Whoever is dialled must be verified by
    /// [`verify_node`](Self::verify_node): names of hosts are not compared.
    fn client_config(&self, protocol: &[u8]) -> ClientConfig;

    /// For accepting clients that are no nodes.
    fn edge_config(&self, protocol: &[u8], asked: ClientCertificates) -> ServerConfig;

    /// Verifies that the peer with these verified certificates, its own first, may call itself
    /// `claimed`.
    ///
    /// # Errors
    /// [`IdentityMismatch`] says who it may be instead.
    fn verify_node(
        &self,
        certificates: &[CertificateDer<'_>],
        claimed: NodeId,
    ) -> Result<Principal, IdentityMismatch>;

    /// Verifies that the peer with these verified certificates is any node of this one's trust
    /// domain.
    ///
    /// # Errors
    /// [`IdentityMismatch`] says why not.
    fn verify_domain(&self, certificates: &[CertificateDer<'_>]) -> Result<(), IdentityMismatch>;

    /// The nodes that these verified certificates prove, those of the peer's own; none for one that
    /// is no node's.
    fn nodes_proven(&self, certificates: &[CertificateDer<'_>]) -> Vec<NodeId>;

    /// A secret of a node by this label, which its next life has as well, for as long as its key is
    /// the same. A certificate that is renewed meanwhile changes nothing.
    fn secret(&self, node: NodeId, label: &str) -> [u8; 32];

    /// Identity of a client that is no node, by its verified certificates, its own first: the one
    /// name `spiffe://..` of its certificate, or else `key-sha256:<hash of its key>`. `None`
    /// without a certificate.
    fn client_principal(&self, certificates: &[CertificateDer<'_>]) -> Option<Principal>;

    /// True when this node is known by its own certificate, rather than by its authority's: that is
    /// trusted by itself, or this node's own names it, too.
    fn trusts_node(&self, node: NodeId) -> bool;

    /// Verifies that this node's own hello will be believed.
    ///
    /// # Errors
    /// The text that says why not.
    fn verify_own(&self, node: NodeId) -> Result<(), String>;
}

impl IdentitySeam for Identity {
    fn server_config(&self, protocol: &[u8]) -> ServerConfig {
        self.shared.is_of_node.store(true, Ordering::Relaxed);
        self.accepting(protocol, Arc::clone(&self.shared) as _)
    }

    fn client_config(&self, protocol: &[u8]) -> ClientConfig {
        self.shared.is_of_node.store(true, Ordering::Relaxed);
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

    fn edge_config(&self, protocol: &[u8], asked: ClientCertificates) -> ServerConfig {
        let is_mandatory = match asked {
            ClientCertificates::NotAsked => {
                return self.accepting(protocol, WebPkiClientVerifier::no_client_auth());
            }
            ClientCertificates::Optional => false,
            ClientCertificates::Required => true,
        };
        let shared = Arc::clone(&self.shared);
        self.accepting(protocol, Arc::new(Clients { shared, is_mandatory }))
    }

    fn verify_node(
        &self,
        certificates: &[CertificateDer<'_>],
        claimed: NodeId,
    ) -> Result<Principal, IdentityMismatch> {
        let leaf = certificates.first().ok_or(IdentityMismatch::NoCertificate)?;
        let Proven { nodes, principal } = self.shared.current().naming.of_peer(leaf, claimed)?;
        if nodes.contains(&claimed) {
            return Ok(principal);
        }
        Err(IdentityMismatch::OtherNode { claimed, proven: names::list(&nodes) })
    }

    fn verify_domain(&self, certificates: &[CertificateDer<'_>]) -> Result<(), IdentityMismatch> {
        let leaf = certificates.first().ok_or(IdentityMismatch::NoCertificate)?;
        self.shared.current().naming.of_peer(leaf, self.node()).map(|_| ())
    }

    fn nodes_proven(&self, certificates: &[CertificateDer<'_>]) -> Vec<NodeId> {
        let leaf = certificates.first();
        leaf.map(|leaf| self.shared.current().naming.nodes_of(leaf)).unwrap_or_default()
    }

    fn secret(&self, node: NodeId, label: &str) -> [u8; 32] {
        let mut secret = [0; 32];
        let info: [&[u8]; 2] = [&node.get().to_be_bytes(), label.as_bytes()];
        let expanded = self.shared.root.expand(&info, HKDF_SHA256);
        let filled = expanded.and_then(|expanded| expanded.fill(&mut secret));
        filled.expect("as long as its hash");
        secret
    }

    fn client_principal(&self, certificates: &[CertificateDer<'_>]) -> Option<Principal> {
        // One that could not be named was refused in the handshake.
        names::of_client(certificates.first()?).ok()
    }

    fn trusts_node(&self, node: NodeId) -> bool {
        self.shared.current().trusts_node(node)
    }

    fn verify_own(&self, node: NodeId) -> Result<(), String> {
        let nodes = self.nodes();
        if nodes.contains(&node) {
            return Ok(());
        }
        let proven = names::list(&nodes);
        Err(format!(
            "this endpoint is {node}, but its certificate proves {proven}: \
             give the endpoint that id with EndpointBuilder::node"
        ))
    }
}

impl Identity {
    fn accepting(&self, protocol: &[u8], clients: Arc<dyn ClientCertVerifier>) -> ServerConfig {
        let provider = Arc::clone(&self.shared.provider);
        let certificates = Arc::clone(&self.shared) as Arc<dyn ResolvesServerCert>;
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("the provider has suites of TLS 1.3")
            .with_client_cert_verifier(clients)
            .with_cert_resolver(certificates);
        config.alpn_protocols = vec![protocol.to_vec()];
        config.send_tls13_tickets = 0;
        config
    }
}
