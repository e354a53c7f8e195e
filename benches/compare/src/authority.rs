//! Certificates for the systems in which both ends present one. Each measurement has an authority
//! of its own, whose key never leaves the process that measures: it issues each process a
//! certificate, which a server finds in its environment. So no key outlives its measurement.

use std::env;

use anyhow::{Context as _, Result};
use convoke::transport::Identity;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde::{Deserialize, Serialize};

/// Names a certificate in the environment of a server process.
const VARIABLE: &str = "CONVOKE_COMPARE_CERTIFICATE";

/// An authority, with a key of its own.
#[derive(Debug)]
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// Another one.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn create() -> Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Ok(Self(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// Issues a certificate. It has no name, so that the node's id is made of its key.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn issue(&self) -> Result<Certificate> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::default().signed_by(&key, &self.0)?;
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        Ok(Certificate { certificate, key, trust: self.0.pem() })
    }
}

/// A certificate, its key, and the certificate of its authority, as PEM.
#[derive(Debug, Serialize, Deserialize)]
pub struct Certificate {
    certificate: String,
    key: String,
    trust: String,
}

impl Certificate {
    /// The variable of the environment in which a process finds it.
    ///
    /// # Panics
    /// Never: it is text.
    pub fn variable(&self) -> (&'static str, String) {
        (VARIABLE, serde_json::to_string(self).expect("it is text"))
    }

    /// The one that whoever started this process has given it, if any.
    ///
    /// # Errors
    /// When that is none.
    pub fn given() -> Result<Option<Self>> {
        let parse = |text: String| serde_json::from_str(&text);
        env::var(VARIABLE).ok().map(parse).transpose().with_context(|| VARIABLE)
    }

    /// The identity that it proves.
    ///
    /// # Errors
    /// When key and certificate do not belong together.
    pub fn identity(self) -> Result<Identity> {
        Ok(Identity::from_pem(self.certificate, self.key, self.trust)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_certificate_is_another_node() {
        let authority = Authority::create().unwrap();
        let [one, other] = [(); 2].map(|()| authority.issue().unwrap());
        let (_, text) = one.variable();
        let same: Certificate = serde_json::from_str(&text).unwrap();
        let [one, other, same] = [one, other, same].map(|one| one.identity().unwrap().node());
        assert!(one == same && one != other);
    }
}
