//! Certificates of the two ends, by an authority that ends with the lab.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use crate::protocol::Pems;

/// An authority, whose key is in no file.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Another one, with a key of its own.
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// A certificate for another node. It has no name, so that the node's id is made of its key.
    pub(super) fn issue(&self) -> anyhow::Result<Pems> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::default().signed_by(&key, &self.0)?;
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        Ok(Pems { certificate, key, trust: self.0.pem() })
    }
}
