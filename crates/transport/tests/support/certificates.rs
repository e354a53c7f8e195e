//! Certificates for tests: an authority, and what it issues.
#![allow(dead_code, reason = "every test uses its own part")]

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    date_time_ymd,
};

pub(crate) const DOMAIN: &str = "test.example";

/// Somebody whose signature is trusted.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) der: Vec<u8>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let (params, key) = of_authority();
        let issuer = CertifiedIssuer::self_signed(params, key).expect("it can be signed");
        Self { issuer }
    }

    /// An intermediate whose certificate this one signs.
    pub(crate) fn below(&self) -> Self {
        let (params, key) = of_authority();
        let issuer = CertifiedIssuer::signed_by(params, key, &self.issuer);
        Self { issuer: issuer.expect("it can be signed") }
    }

    /// Its own certificate, as PEM.
    pub(crate) fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// For these nodes of [`DOMAIN`].
    pub(crate) fn issue(&self, nodes: impl IntoIterator<Item = u64>) -> Issued {
        self.issue_from(for_nodes(nodes), &new_key())
    }

    /// For these nodes, no longer valid.
    pub(crate) fn issue_expired(&self, nodes: impl IntoIterator<Item = u64>) -> Issued {
        let mut params = for_nodes(nodes);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.issue_from(params, &new_key())
    }

    /// For these nodes, not yet valid.
    pub(crate) fn issue_for_later(&self, nodes: impl IntoIterator<Item = u64>) -> Issued {
        let mut params = for_nodes(nodes);
        params.not_before = date_time_ymd(3000, 1, 1);
        params.not_after = date_time_ymd(3001, 1, 1);
        self.issue_from(params, &new_key())
    }

    pub(crate) fn issue_from(&self, params: CertificateParams, key: &KeyPair) -> Issued {
        let signed = params.signed_by(key, &self.issuer).expect("it can be signed");
        issued(&signed, key)
    }
}

fn of_authority() -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = new_key();
    // Two authorities of the same name would be told apart by their signatures only.
    let name: String = key.public_key_raw().iter().map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name.push(DnType::CommonName, &name[..32]);
    (params, key)
}

pub(crate) fn new_key() -> KeyPair {
    KeyPair::generate().expect("keys can be made")
}

/// A certificate that signs itself, named by its key.
pub(crate) fn self_signed(key: &KeyPair) -> Issued {
    issued(&CertificateParams::default().self_signed(key).expect("it can be signed"), key)
}

pub(crate) fn for_nodes(nodes: impl IntoIterator<Item = u64>) -> CertificateParams {
    for_names(nodes.into_iter().map(|node| format!("spiffe://{DOMAIN}/node/{node}")))
}

pub(crate) fn for_names(names: impl IntoIterator<Item = String>) -> CertificateParams {
    let mut params = CertificateParams::default();
    let names = names.into_iter().map(|name| name.try_into().expect("it is ASCII"));
    params.subject_alt_names.extend(names.map(SanType::URI));
    params
}

fn issued(certificate: &rcgen::Certificate, key: &KeyPair) -> Issued {
    Issued {
        certificate: certificate.pem(),
        key: key.serialize_pem(),
        der: certificate.der().to_vec(),
    }
}
