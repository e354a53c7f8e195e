//! TLS as a peer without scruples speaks it: it believes any server, and shows what it likes.
#![allow(dead_code, reason = "every test uses its own part")]

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::TLS13;
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme};

use crate::certificates::Issued;

/// For dialling with this certificate, or none, and this name of the protocol, or none.
pub(crate) fn client_config(issued: Option<&Issued>, protocol: Option<&[u8]>) -> ClientConfig {
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites of TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Credulous));
    let mut config = match issued.map(pair) {
        Some((chain, key)) => {
            config.with_client_auth_cert(chain, key).expect("they belong together")
        }
        None => config.with_no_client_auth(),
    };
    config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
    config
}

/// For accepting anybody with this certificate, and this name of the protocol, or none.
pub(crate) fn server_config(issued: &Issued, protocol: Option<&[u8]>) -> ServerConfig {
    let (chain, key) = pair(issued);
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .expect("the provider has suites of TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the certificate and its key belong together");
    config.alpn_protocols = protocol.into_iter().map(<[u8]>::to_vec).collect();
    config
}

fn pair(issued: &Issued) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).expect("it is a key");
    (vec![issued.der.clone().into()], key)
}

/// Believes any server.
#[derive(Debug)]
struct Credulous;

impl ServerCertVerifier for Credulous {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        default_provider().signature_verification_algorithms.supported_schemes()
    }
}
