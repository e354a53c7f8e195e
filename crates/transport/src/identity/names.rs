//! Node ids that a certificate proves: names of SPIFFE's form, or the hash of its key.

use crate::Principal;
use crate::id::NodeId;
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

use crate::identity::IdentityError;

const SPIFFE: &str = "spiffe://";
/// Longest name that is looked at, as in SPIFFE.
const NAME_BYTES_MAX: usize = 2_048;

/// The rule that this node and its peers are named by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Names `spiffe://<trust domain>/node/<id>` of this trust domain.
    Spiffe { domain: String },
    /// The hash of the key.
    KeyHash,
}

/// Nodes that a peer's certificate proves.
#[derive(Debug)]
pub(crate) struct Proven {
    pub(crate) nodes: Vec<NodeId>,
    /// Of the claimed node, if it is among them.
    pub(crate) principal: Principal,
}

/// Reason why a peer is not who it claims to be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityMismatch {
    /// It presented no certificate.
    #[error("it presented no certificate")]
    NoCertificate,
    /// Its certificate cannot be read.
    #[error("its certificate cannot be read: {0}")]
    Malformed(String),
    /// Its certificate names no node of this trust domain.
    #[error("its certificate names no node of the trust domain {domain}")]
    NoNode {
        /// This node's own trust domain.
        domain: String,
    },
    /// Its certificate proves another node.
    #[error("it claims to be {claimed}, but its certificate proves {proven}")]
    OtherNode {
        /// Node that its hello named.
        claimed: NodeId,
        /// Names in the certificate; the first few.
        proven: String,
    },
    /// Its certificate names several clients, or one that cannot be shown.
    #[error("its certificate has not exactly one plain name that begins with spiffe://")]
    NoClient,
}

/// A name `spiffe://<domain>/node/<id>`.
#[derive(Debug, PartialEq, Eq)]
struct NodeName<'a> {
    domain: &'a str,
    node: NodeId,
}

impl Naming {
    /// The rule that this node's own certificate chooses, and the nodes it proves; at least one.
    pub(crate) fn of_own(leaf: &CertificateDer<'_>) -> Result<(Self, Vec<NodeId>), IdentityError> {
        let certificate = EndEntityCert::try_from(leaf)
            .map_err(|error| IdentityError::Unusable(error.to_string()))?;
        let Some(first) = certificate.valid_uri_names().find(|name| name.starts_with(SPIFFE))
        else {
            let hash = key_hash(&certificate);
            let node = node_of_hash(hash).ok_or_else(|| {
                IdentityError::Unusable("the hash of its key is zero: make another key".into())
            })?;
            return Ok((Self::KeyHash, vec![node]));
        };
        let domain = certificate.valid_uri_names().find_map(parse).map(|name| name.domain);
        let domain = domain.ok_or_else(|| IdentityError::NoNode(first.to_owned()))?;
        let nodes = nodes_of(&certificate, domain).collect();
        Ok((Self::Spiffe { domain: domain.to_owned() }, nodes))
    }

    /// Reads what a peer's certificate proves under this rule.
    pub(crate) fn of_peer(
        &self,
        leaf: &CertificateDer<'_>,
        claimed: NodeId,
    ) -> Result<Proven, IdentityMismatch> {
        let certificate = end_entity(leaf)?;
        match self {
            Self::Spiffe { domain } => {
                let nodes: Vec<NodeId> = nodes_of(&certificate, domain).collect();
                if nodes.is_empty() {
                    return Err(IdentityMismatch::NoNode { domain: domain.clone() });
                }
                let principal = Principal::new(&format!("{SPIFFE}{domain}/node/{}", claimed.get()));
                Ok(Proven { nodes, principal })
            }
            Self::KeyHash => {
                let hash = key_hash(&certificate);
                let (nodes, principal) = (node_of_hash(hash).into_iter().collect(), of_key(hash));
                Ok(Proven { nodes, principal })
            }
        }
    }

    /// The nodes that a certificate proves under this rule, if it is one of a node.
    pub(crate) fn nodes_of(&self, certificate: &CertificateDer<'_>) -> Vec<NodeId> {
        let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Vec::new() };
        match self {
            Self::Spiffe { domain } => nodes_of(&certificate, domain).collect(),
            Self::KeyHash => node_of_hash(key_hash(&certificate)).into_iter().collect(),
        }
    }

    /// For a message about a change.
    pub(crate) fn describe(&self, nodes: &[NodeId]) -> String {
        match self {
            Self::Spiffe { domain } => format!("{} of {domain}", list(nodes)),
            Self::KeyHash => format!("{} by its key", list(nodes)),
        }
    }
}

/// Identity of a client that is no node: the one name of SPIFFE's form, whatever its trust domain
/// and path, else the hash of its key. As SPIFFE asks, a certificate with several names is invalid.
pub(crate) fn of_client(leaf: &CertificateDer<'_>) -> Result<Principal, IdentityMismatch> {
    let certificate = end_entity(leaf)?;
    let mut names = certificate.valid_uri_names().filter(|name| name.starts_with(SPIFFE));
    let Some(name) = names.next() else { return Ok(of_key(key_hash(&certificate))) };
    // It goes to logs and rules as it is.
    let is_plain = name.len() <= NAME_BYTES_MAX && name.bytes().all(|byte| byte.is_ascii_graphic());
    if !is_plain || names.next().is_some() {
        return Err(IdentityMismatch::NoClient);
    }
    Ok(Principal::new(name))
}

fn end_entity<'a>(leaf: &'a CertificateDer<'a>) -> Result<EndEntityCert<'a>, IdentityMismatch> {
    EndEntityCert::try_from(leaf).map_err(|error| IdentityMismatch::Malformed(error.to_string()))
}

fn of_key(hash: [u8; 32]) -> Principal {
    let text: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    Principal::new(&format!("key-sha256:{text}"))
}

/// The first few, for a message.
pub(crate) fn list(nodes: &[NodeId]) -> String {
    const SHOWN_MAX: usize = 4;
    let shown: Vec<String> = nodes.iter().take(SHOWN_MAX).map(NodeId::to_string).collect();
    match nodes.len().saturating_sub(SHOWN_MAX) {
        0 if shown.is_empty() => "no node".into(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

fn nodes_of<'a>(
    certificate: &EndEntityCert<'a>,
    domain: &'a str,
) -> impl Iterator<Item = NodeId> + use<'a> {
    let names = certificate.valid_uri_names().filter_map(parse);
    names.filter(move |name| name.domain == domain).map(|name| name.node)
}

/// Reads a name; `None` for any that is not exactly of this form. There is one way to write an id,
/// so that what a person sees in a certificate is what it proves.
fn parse(name: &str) -> Option<NodeName<'_>> {
    if name.len() > NAME_BYTES_MAX {
        return None;
    }
    let (domain, path) = name.strip_prefix(SPIFFE)?.split_once('/')?;
    let id = path.strip_prefix("node/")?;
    let is_domain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c);
    let node = id.parse::<NodeId>().ok()?;
    let is_right =
        !domain.is_empty() && domain.chars().all(is_domain) && node.get().to_string() == id;
    is_right.then_some(NodeName { domain, node })
}

fn key_hash(certificate: &EndEntityCert<'_>) -> [u8; 32] {
    let key = certificate.subject_public_key_info();
    digest(&SHA256, key.as_ref()).as_ref().try_into().expect("a SHA-256 has 32 bytes")
}

fn node_of_hash(hash: [u8; 32]) -> Option<NodeId> {
    let first = hash.first_chunk().expect("a SHA-256 has 32 bytes");
    NodeId::try_from(u64::from_be_bytes(*first)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_form() {
        let node = NodeId::new;
        let right = parse("spiffe://shop.example/node/7");
        assert_eq!(right, Some(NodeName { domain: "shop.example", node: node(7) }));
        let largest = format!("spiffe://a/node/{}", u64::MAX);
        assert_eq!(parse(&largest).map(|name| name.node), Some(node(u64::MAX)));
        let wrong = [
            "spiffe://shop.example/node/0",
            "spiffe://shop.example/node/07",
            "spiffe://shop.example/node/+7",
            "spiffe://shop.example/node/7/",
            "spiffe://shop.example/node/7?x",
            "spiffe://shop.example/node/18446744073709551616",
            "spiffe://shop.example//node/7",
            "spiffe://shop.example/node/",
            "spiffe://shop.example/7",
            "spiffe:///node/7",
            "spiffe://Shop.example/node/7",
            "spiffe://a@shop.example/node/7",
            "spiffe://shop.example:1/node/7",
            "https://shop.example/node/7",
            "SPIFFE://shop.example/node/7",
            "",
        ];
        for name in wrong {
            assert_eq!(parse(name), None, "{name}");
        }
        assert_eq!(parse(&format!("spiffe://{}/node/7", "a".repeat(NAME_BYTES_MAX))), None);
    }

    #[test]
    fn a_long_list_of_nodes_is_cut() {
        let nodes: Vec<_> = (1..=6).map(NodeId::new).collect();
        assert_eq!(list(&nodes), "n1, n2, n3, n4 and 2 more");
        assert_eq!(list(&nodes[..1]), "n1");
        assert_eq!(list(&[]), "no node");
    }
}
