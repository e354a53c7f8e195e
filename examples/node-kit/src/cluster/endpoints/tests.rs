use std::fs;
use std::time::Duration;

use super::super::Authority;
use super::super::tests::{TEXT, Voting};
use super::*;

#[test]
fn keys_prove_their_node_and_are_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.toml");
    fs::write(&path, TEXT).unwrap();
    let missing = check::<Voting>(&path, Some(1)).unwrap_err().to_string();
    assert!(missing.contains("node.key"), "{missing}");

    let authority = Authority::new("accounts.example").unwrap();
    let keys = authority.issue(NodeId::new(1), &folder.path().join("node-1/keys")).unwrap();
    assert!(authority.issue(NodeId::new(1), &folder.path().join("node-1/keys")).is_err());
    let said = check::<Voting>(&path, Some(1)).unwrap();
    assert!(said.ends_with("the keys of node 1 prove it\n"), "{said}");

    let other = keys.identity(NodeId::new(2)).unwrap_err().to_string();
    assert!(other.ends_with("proves [1], and not node 2"), "{other}");
    fs::write(keys.certificate(), "nothing").unwrap();
    let garbled = keys.identity(NodeId::new(1)).unwrap_err();
    assert!(matches!(garbled, KeysError::Identity(_)), "{garbled}");
}

#[cfg(unix)]
#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let keys = Authority::new("a.example").unwrap().issue(NodeId::new(1), folder.path()).unwrap();
    for mode in [0o644, 0o640, 0o602] {
        fs::set_permissions(keys.key(), fs::Permissions::from_mode(mode)).unwrap();
        let error = keys.identity(NodeId::new(1)).unwrap_err();
        assert!(
            matches!(error, KeysError::Exposed { mode: found, .. } if found == mode),
            "{error}"
        );
    }
    fs::set_permissions(keys.key(), fs::Permissions::from_mode(0o400)).unwrap();
    keys.identity(NodeId::new(1)).unwrap();
}

#[tokio::test]
async fn endpoints_of_a_file_reach_each_other_by_their_certificates() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("accounts.example").unwrap();
    let node = |id: u64, port: u16| {
        let id = NodeId::new(id);
        let keys = folder.path().join(format!("keys-{id}"));
        authority.issue(id, &keys).unwrap();
        let address: Address = format!("tls://127.0.0.1:{port}").parse().unwrap();
        Node { keys: Some(keys), ..Node::new(id, address, format!("{id}")) }
    };
    let ports = crate::processes::Ports::reserve(2).unwrap();
    let nodes = vec![node(1, ports[0]), node(2, ports[1])];
    let cluster = Cluster::new(1, "a", nodes, Voting::default()).unwrap();
    let (first, identity) = cluster.endpoint(1).unwrap();
    let (first, second) = (first.start().await.unwrap(), cluster.endpoint(2).unwrap().0);
    let second = second.start().await.unwrap();
    first.warm_up(second.node()).await.unwrap();

    // Another authority: whoever comes with the keys of the new one is refused until then.
    let again = Authority::new("accounts.example").unwrap();
    let keys = again.issue(NodeId::new(8), &folder.path().join("later")).unwrap();
    let later = cluster.client(Some((NodeId::new(8), &keys))).unwrap().start().await.unwrap();
    assert!(later.warm_up(NodeId::new(1)).await.is_err(), "it proves itself by the old one");
    std::fs::remove_dir_all(folder.path().join("keys-n1")).unwrap();
    again.issue(NodeId::new(1), &folder.path().join("keys-n1")).unwrap();
    let _watch = identity.map(|identity| identity.watch(Duration::from_millis(10)));
    while later.warm_up(NodeId::new(1)).await.is_err() {}

    let refused = cluster.client(None).unwrap_err().to_string();
    assert!(refused.contains("give keys"), "{refused}");
    let keys = authority.issue(NodeId::new(9), &folder.path().join("client")).unwrap();
    let client = cluster.client(Some((NodeId::new(9), &keys))).unwrap().start().await.unwrap();
    client.warm_up(NodeId::new(2)).await.unwrap();
}
