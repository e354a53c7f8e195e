use std::time::SystemTime;

use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier as _;
use rustls::{CertificateError, Error};

use super::*;
use crate::Principal;
use certificates::{Authority, DOMAIN, Issued, for_names, for_nodes, new_key, self_signed};

#[path = "../../tests/support/certificates.rs"]
mod certificates;

fn identity(issued: &Issued, trust: &str) -> Identity {
    Identity::from_pem(&issued.certificate, &issued.key, trust).unwrap()
}

fn node(id: u64) -> NodeId {
    NodeId::new(id)
}

fn verify(identity: &Identity, peer: &Issued, claimed: u64) -> Result<Principal, IdentityMismatch> {
    identity.verify_node(&[peer.der.clone().into()], node(claimed))
}

/// As server and as client.
fn verify_chain(identity: &Identity, peer: &Issued) -> [Result<(), Error>; 2] {
    let (leaf, now) = (CertificateDer::from(peer.der.as_slice()), UnixTime::now());
    let name = ServerName::try_from("anything.example").unwrap();
    let as_server = identity.shared.verify_server_cert(&leaf, &[], &name, &[], now);
    let as_client = identity.shared.verify_client_cert(&leaf, &[], now);
    [as_server.map(|_| ()), as_client.map(|_| ())]
}

/// At an edge.
fn verify_as_client(identity: &Identity, client: &Issued) -> Result<(), Error> {
    let clients = clients::Clients { shared: Arc::clone(&identity.shared), is_mandatory: false };
    let leaf = CertificateDer::from(client.der.as_slice());
    clients.verify_client_cert(&leaf, &[], UnixTime::now()).map(|_| ())
}

#[test]
fn a_certificate_proves_the_nodes_it_names_and_no_other() {
    let authority = Authority::new();
    let identity = identity(&authority.issue([1]), &authority.pem());
    assert_eq!(identity.nodes(), [node(1)]);
    let peer = authority.issue([7, 8]);
    assert_eq!(verify_chain(&identity, &peer), [Ok(()), Ok(())]);
    let principal = verify(&identity, &peer, 8).unwrap();
    assert_eq!(principal.as_str(), format!("spiffe://{DOMAIN}/node/8"));
    let refused = verify(&identity, &peer, 9).unwrap_err();
    assert_eq!(refused.to_string(), "it claims to be n9, but its certificate proves n7, n8");
    assert_eq!(identity.verify_node(&[], node(7)), Err(IdentityMismatch::NoCertificate));
}

#[test]
fn names_of_another_domain_or_form_prove_nothing() {
    let authority = Authority::new();
    let identity = identity(&authority.issue([1]), &authority.pem());
    for name in ["spiffe://other.example/node/7", "spiffe://test.example/client/7", "https://x/7"] {
        let peer = authority.issue_from(for_names([name.to_owned()]), &new_key());
        let refused = verify(&identity, &peer, 7);
        assert_eq!(refused, Err(IdentityMismatch::NoNode { domain: DOMAIN.into() }), "{name}");
    }
    let garbage = Issued { der: b"no certificate".to_vec(), ..authority.issue([7]) };
    assert!(matches!(verify(&identity, &garbage, 7), Err(IdentityMismatch::Malformed(_))));
}

#[test]
fn without_names_the_key_is_the_node() {
    let (key, other) = (new_key(), new_key());
    let trusted = [self_signed(&key), self_signed(&other)];
    let trust = format!("{}{}", trusted[0].certificate, trusted[1].certificate);
    let [one, two] = [0, 1].map(|i| identity(&trusted[i], &trust));
    assert_ne!(one.node(), two.node());
    assert_eq!(verify_chain(&one, &trusted[1]), [Ok(()), Ok(())]);
    let principal = verify(&one, &trusted[1], two.node().get()).unwrap();
    let first = format!("key-sha256:{:016x}", two.node().get());
    assert!(principal.as_str().starts_with(&first), "{principal}");
    assert!(verify(&one, &trusted[1], one.node().get()).is_err());

    // Renewed for the same key, it is the same node; and a name of SPIFFE's form cannot change the
    // rule.
    let authority = Authority::new();
    assert_eq!(verify(&one, &self_signed(&other), two.node().get()), Ok(principal.clone()));
    let named = authority.issue_from(for_nodes([one.node().get()]), &other);
    assert_eq!(verify(&one, &named, two.node().get()), Ok(principal));
    assert!(verify(&one, &named, one.node().get()).is_err());
}

#[test]
fn a_chain_must_lead_to_a_trusted_certificate_and_be_valid_now() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let identity = identity(&authority.issue([1]), &authority.pem());
    let error = |peer: &Issued| {
        let [as_server, as_client] = verify_chain(&identity, peer);
        assert_eq!(as_server, as_client);
        as_server.unwrap_err()
    };
    let unknown = error(&stranger.issue([7]));
    assert_eq!(unknown, Error::InvalidCertificate(CertificateError::UnknownIssuer));
    let expired = error(&authority.issue_expired([7]));
    assert!(expired.to_string().contains("expired"), "{expired}");
    let early = error(&authority.issue_for_later([7]));
    assert!(early.to_string().contains("not valid yet"), "{early}");
}

#[test]
fn what_cannot_be_used_is_refused_with_its_name() {
    let authority = Authority::new();
    let (issued, trust) = (authority.issue([1]), authority.pem());
    let other = authority.issue([1]);
    let error = |certificate: &str, key: &str, trust: &str| {
        Identity::from_pem(certificate, key, trust).unwrap_err().to_string()
    };
    let (certificate, key) = (issued.certificate.as_str(), issued.key.as_str());
    assert!(error("", key, &trust).starts_with("the certificate: "));
    assert!(error(certificate, "junk", &trust).starts_with("the key: "));
    assert!(error(certificate, key, "").starts_with("the trusted certificates: "));
    assert!(error(certificate, &other.key, &trust).contains("cannot be used"));
    let cut = &certificate[..certificate.len() / 2];
    assert!(error(cut, key, &trust).starts_with("the certificate: "));
    let nameless = for_names(["spiffe://test.example/workload".to_owned()]);
    let nameless = authority.issue_from(nameless, &new_key());
    assert!(error(&nameless.certificate, &nameless.key, &trust).contains("names no node"));
    let missing = Identity::from_pem_files("/nowhere/a.pem", "/nowhere/a.key", "/nowhere/ca.pem");
    assert!(missing.unwrap_err().to_string().contains("/nowhere/a.pem"));
}

/// A folder with the three files.
fn write(folder: &std::path::Path, issued: &Issued, trust: &str) -> [PathBuf; 3] {
    let files = [("node.pem", &*issued.certificate), ("node.key", &issued.key), ("ca.pem", trust)];
    files.map(|(name, text)| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    })
}

#[test]
fn a_reload_changes_what_is_shown_and_trusted_but_never_the_node() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = [Authority::new(), Authority::new()];
    let [certificate, key, trust] = write(folder.path(), &old.issue([1]), &old.pem());
    let identity = Identity::from_pem_files(certificate, key, trust).unwrap();
    let clone = identity.clone();
    let _of_a_transport = identity.server_config(b"any");
    let peer = new.issue([7]);
    assert!(verify_chain(&clone, &peer).iter().all(Result::is_err));

    write(folder.path(), &new.issue([1]), &new.pem());
    identity.reload().unwrap();
    assert_eq!(verify_chain(&clone, &peer), [Ok(()), Ok(())]);
    assert!(verify_chain(&clone, &old.issue([7])).iter().all(Result::is_err));

    write(folder.path(), &old.issue([2]), &old.pem());
    let error = identity.reload().unwrap_err();
    assert!(matches!(error, IdentityError::NodeChanged { .. }), "{error}");
    std::fs::write(folder.path().join("node.key"), "junk").unwrap();
    assert!(matches!(identity.reload(), Err(IdentityError::Pem { .. })));
    assert_eq!(verify_chain(&clone, &peer), [Ok(()), Ok(())], "what was loaded stays");
}

#[test]
fn a_renewed_certificate_may_name_its_nodes_in_another_order() {
    let authority = Authority::new();
    let identity = identity(&authority.issue([1, 2]), &authority.pem());
    let _of_a_transport = identity.server_config(b"any");
    let renew = |nodes: &[u64]| {
        let renewed = authority.issue(nodes.to_vec());
        identity.replace(renewed.certificate, renewed.key, authority.pem())
    };
    assert_eq!(renew(&[2, 1]), Ok(()));
    for others in [&[1][..], &[1, 2, 3]] {
        assert!(matches!(renew(others), Err(IdentityError::NodeChanged { .. })), "{others:?}");
    }
}

#[test]
fn what_only_an_edge_shows_may_be_renewed_with_another_key() {
    let authority = Authority::new();
    let shown = || authority.issue_from(for_names([]), &new_key());
    let (before, after) = (shown(), shown());
    let edge = identity(&before, &authority.pem());
    let _of_an_edge = edge.edge_config(b"any", ClientCertificates::Optional);
    let node = edge.node();
    edge.replace(&after.certificate, &after.key, authority.pem()).unwrap();
    assert_ne!(edge.node(), node);
    assert!(edge.verify_own(node).is_err());
}

#[test]
fn a_client_is_its_one_name_or_its_key_and_never_a_node() {
    let authority = Authority::new();
    let edge = identity(&authority.issue([1]), &authority.pem());
    let named = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned());
        authority.issue_from(for_names(names), &new_key())
    };
    let principal = |issued: &Issued| edge.client_principal(&[issued.der.clone().into()]);
    let billing = named(&["https://other.example", "spiffe://clients.example/billing"]);
    assert_eq!(principal(&billing), Some(Principal::new("spiffe://clients.example/billing")));
    let by_key = principal(&named(&["https://other.example"])).unwrap();
    assert!(by_key.as_str().starts_with("key-sha256:"), "{by_key}");
    assert_eq!(edge.client_principal(&[]), None);
    let long = format!("spiffe://a/{}", "x".repeat(2_048));
    for names in [&["spiffe://a/b", "spiffe://a/c"][..], &["spiffe://a/b c"], &[&long]] {
        let issued = named(names);
        assert_eq!(principal(&issued), None, "{names:?}");
        let refused = verify_as_client(&edge, &issued).unwrap_err().to_string();
        assert!(refused.contains("NoClient"), "{refused}");
    }
    assert_eq!(verify_as_client(&edge, &billing), Ok(()));
    let unknown = verify_as_client(&edge, &Authority::new().issue([7]));
    let issuer = Error::InvalidCertificate(CertificateError::UnknownIssuer);
    assert_eq!(unknown, Err(issuer));
}

#[tokio::test]
async fn a_watch_reloads_once_the_files_change() {
    let folder = tempfile::tempdir().unwrap();
    let [old, new] = [Authority::new(), Authority::new()];
    let [certificate, key, trust] = write(folder.path(), &old.issue([1]), &old.pem());
    let identity = Identity::from_pem_files(certificate, key, trust).unwrap();
    let _watch = identity.watch(std::time::Duration::from_millis(1));
    write(folder.path(), &new.issue([1]), &new.pem());
    let (peer, begun) = (new.issue([7]), SystemTime::now());
    while verify_chain(&identity, &peer).iter().any(Result::is_err) {
        assert!(begun.elapsed().unwrap().as_secs() < 60, "the files changed long ago");
        tokio::task::yield_now().await;
    }
}

/// Reads by a pipe the trusted certificates once, and then nothing.
#[cfg(target_os = "linux")]
#[test]
fn a_watch_uses_what_it_has_read_though_the_files_are_gone_when_read_again() {
    use std::io::Write;
    use std::os::fd::AsRawFd;

    let folder = tempfile::tempdir().unwrap();
    let [old, new] = [Authority::new(), Authority::new()];
    let [certificate, key, trust] = write(folder.path(), &old.issue([1]), &old.pem());
    let identity = Identity::from_pem_files(certificate, key, &trust).unwrap();
    write(folder.path(), &new.issue([1]), &new.pem());
    let (once, mut text) = std::io::pipe().unwrap();
    text.write_all(new.pem().as_bytes()).unwrap();
    drop(text);
    std::fs::remove_file(&trust).unwrap();
    std::os::unix::fs::symlink(format!("/proc/self/fd/{}", once.as_raw_fd()), &trust).unwrap();
    assert!(identity.reload_if_changed(None).is_ok());
    assert_eq!(verify_chain(&identity, &new.issue([7])), [Ok(()), Ok(())]);
}
