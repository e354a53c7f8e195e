//! Certificates for the systems in which both ends present one. Each measurement has an authority
//! of its own, in a temporary folder of the process that measures; with it, every process issues
//! itself a certificate. So no key outlives its measurement.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use convoke::transport::Identity;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// Names the authority's folder in the environment of a server process.
pub const VARIABLE: &str = "CONVOKE_COMPARE_AUTHORITY";

const CERTIFICATE: &str = "ca.pem";
const KEY: &str = "ca.key";

/// An authority, in a folder that is removed with it.
#[derive(Debug)]
pub struct Authority(TempDir);

impl Authority {
    /// Another one, with a key of its own.
    ///
    /// # Errors
    /// When its files cannot be written.
    pub fn create() -> Result<Self> {
        let folder = tempfile::tempdir().context("no temporary folder for an authority")?;
        let key = KeyPair::generate()?;
        let certificate = params().self_signed(&key)?;
        // Nobody else on this machine may look into the folder.
        fs::write(folder.path().join(CERTIFICATE), certificate.pem())?;
        fs::write(folder.path().join(KEY), key.serialize_pem())?;
        Ok(Self(folder))
    }

    /// The folder of its certificate and its key.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }
}

/// The folder of the authority that whoever started this process named, if any.
pub fn named() -> Option<PathBuf> {
    env::var_os(VARIABLE).map(PathBuf::from)
}

/// Issues this process a certificate. It has no name, so that the node's id is made of its key.
///
/// # Errors
/// When there is no authority in the folder.
pub fn issue(folder: &Path) -> Result<Identity> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    };
    let issuer = Issuer::new(params(), KeyPair::from_pem(&read(KEY)?)?);
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::default().signed_by(&key, &issuer)?;
    Ok(Identity::from_pem(certificate.pem(), key.serialize_pem(), read(CERTIFICATE)?)?)
}

/// Contents of every authority's certificate, but for the key.
fn params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_certificate_is_another_node() {
        let authority = Authority::create().unwrap();
        let [one, other] = [(); 2].map(|()| issue(authority.folder()).unwrap());
        assert_ne!(one.node(), other.node());
    }

    #[test]
    fn an_authority_leaves_nothing_behind() {
        let authority = Authority::create().unwrap();
        let folder = authority.folder().to_owned();
        drop(authority);
        assert!(!folder.exists());
        assert!(issue(&folder).unwrap_err().to_string().contains(KEY));
    }
}
