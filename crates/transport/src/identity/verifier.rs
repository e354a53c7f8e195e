//! Answers to rustls during a handshake, from what is loaded at that moment.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use crate::id::NodeId;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, RootCertStore,
    SignatureScheme,
};

use crate::identity::names::Naming;
use crate::identity::pem::Credentials;
use crate::identity::{IdentityError, Shared};

/// Credentials that are loaded, ready for use.
pub(crate) struct Current {
    key: Arc<CertifiedKey>,
    roots: Arc<RootCertStore>,
    clients: Arc<dyn ClientCertVerifier>,
    /// The nodes whose own certificates are trusted.
    trusted: BTreeSet<NodeId>,
    /// The rule by which this node and its peers are named.
    pub(super) naming: Naming,
    /// The nodes that this end's own certificate proves; at least one.
    pub(super) nodes: Vec<NodeId>,
}

impl Current {
    pub(crate) fn new(
        credentials: Credentials,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, IdentityError> {
        let unusable = |error: &dyn fmt::Display| IdentityError::Unusable(error.to_string());
        let (naming, nodes) = Naming::of_own(credentials.leaf())?;
        let Credentials { chain, key, roots, trusted } = credentials;
        let trusted = trusted.iter().flat_map(|certificate| naming.nodes_of(certificate)).collect();
        let key = CertifiedKey::from_der(chain, key, provider).map_err(|error| unusable(&error))?;
        let roots = Arc::new(roots);
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider))
                .build()
                .map_err(|error| unusable(&error))?;
        Ok(Self { key: Arc::new(key), roots, clients, trusted, naming, nodes })
    }

    /// True when a node is known by its own certificate, rather than by its authority's: that is
    /// trusted by itself, or this node's own names it, too.
    pub(crate) fn trusts_node(&self, node: NodeId) -> bool {
        self.nodes.contains(&node) || self.trusted.contains(&node)
    }
}

impl Shared {
    pub(super) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.lock())
    }

    fn verify_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for Shared {
    /// The chain, the times and the purpose; the name is the business of
    /// [`Identity::verify_node`](crate::identity::Identity::verify_node).
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        verify_server_cert_signed_by_trust_anchor(
            &ParsedCertificate::try_from(end_entity)?,
            &self.current().roots,
            intermediates,
            now,
            self.provider.signature_verification_algorithms.all,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Shared {
    /// None: a node has one certificate, and need not choose.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current().clients.verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verify_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ResolvesServerCert for Shared {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current().key))
    }
}

impl ResolvesClientCert for Shared {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current().key))
    }

    fn has_certs(&self) -> bool {
        true
    }
}
