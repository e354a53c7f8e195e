//! Clients that are no nodes: which of them an edge takes, by their certificates.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
};

use crate::identity::{Shared, names};

/// Question of an edge to its clients for certificates. One that is presented must lead to a
/// certificate that the edge's [`Identity`](super::Identity) trusts, whatever is set here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Asks, and takes who has none: such a client is anonymous.
    #[default]
    Optional,
    /// Asks, and refuses who has none.
    Required,
    /// Does not ask: every client is anonymous.
    NotAsked,
}

/// Judge of the certificates of clients, by what is trusted at that moment.
#[derive(Debug)]
pub(super) struct Clients {
    pub(super) shared: Arc<Shared>,
    pub(super) is_mandatory: bool,
}

impl ClientCertVerifier for Clients {
    fn client_auth_mandatory(&self) -> bool {
        self.is_mandatory
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.shared.root_hint_subjects()
    }

    /// As of a node; and it must be clear who the client is.
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.shared.verify_client_cert(end_entity, intermediates, now)?;
        names::of_client(end_entity).map_err(|error| {
            Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error))))
        })?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ClientCertVerifier::verify_tls12_signature(&*self.shared, message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ClientCertVerifier::verify_tls13_signature(&*self.shared, message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ClientCertVerifier::supported_verify_schemes(&*self.shared)
    }
}
