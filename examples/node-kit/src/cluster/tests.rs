use std::fs;

use serde::{Deserialize, Serialize};

use super::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Voting {
    election_timeout_ms: u64,
    heartbeat_ms: u64,
}

impl Default for Voting {
    fn default() -> Self {
        Self { election_timeout_ms: 300, heartbeat_ms: 50 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Role {
    #[default]
    Voter,
    Learner,
}

impl Protocol for Voting {
    type Role = Role;

    fn contradictions(&self, nodes: &[Node<Role>]) -> Vec<String> {
        let mut found = Vec::new();
        if self.heartbeat_ms >= self.election_timeout_ms {
            found.push("heartbeat_ms is not below election_timeout_ms".to_owned());
        }
        if !nodes.iter().any(|node| node.role == Role::Voter) {
            found.push("no node is a voter".to_owned());
        }
        found
    }
}

pub(super) const TEXT: &str = "[cluster]
id = 4711
name = \"accounts\"

[[node]]
id = 1
addresses = [\"tls://10.0.0.1:7000\"]
listen = [\"tls://0.0.0.0:7000\"]
folder = \"node-1\"
keys = \"node-1/keys\"
operation = \"127.0.0.1:9001\"
role = \"voter\"

[[node]]
id = 2
addresses = [\"tls://10.0.0.2:7000\", \"quic://10.0.0.2:7000\"]
folder = \"node-2\"
keys = \"node-2/keys\"
role = \"learner\"

[protocol]
election_timeout_ms = 300
heartbeat_ms = 50
";

fn parse(text: &str) -> Result<Cluster<Voting>, ClusterError> {
    Cluster::parse(text)
}

fn error(text: &str) -> String {
    parse(text).expect_err(text).to_string()
}

/// The text with one part of it replaced.
fn with(part: &str, other: &str) -> String {
    assert!(TEXT.contains(part), "{part}");
    TEXT.replacen(part, other, 1)
}

#[test]
fn a_cluster_survives_its_text() {
    let cluster = parse(TEXT).unwrap();
    assert_eq!(cluster.to_text(), TEXT);
    assert_eq!((cluster.id(), cluster.name()), (4711, "accounts"));
    assert_eq!(cluster.node(1).unwrap().listen[0].as_str(), "tls://0.0.0.0:7000");
    assert_eq!(cluster.node(2).unwrap().listen.len(), 2);
    let learners: Vec<u64> = cluster.of(&Role::Learner).map(|node| node.id.get()).collect();
    assert_eq!(learners, [2]);
    assert_eq!(cluster.protocol().election_timeout_ms, 300);
    assert_eq!(cluster.ledger_identity(NodeId::new(2)).to_string(), "node 2 of cluster 4711");
}

#[test]
fn what_may_be_left_out_has_its_default() {
    let text = "node = [{ id = 1, addresses = ['tcp://a:1'] }]\n\
                cluster = { id = 1, name = 'a' }";
    let cluster = parse(text).unwrap();
    assert_eq!(cluster.protocol(), &Voting::default());
    assert_eq!(cluster.nodes()[0].role, Role::Voter);
    let node = Node::new(NodeId::new(1), "tcp://a:1".parse().unwrap(), "node-1");
    assert_eq!(cluster.nodes()[0], node);
}

#[test]
fn unknown_words_are_told_with_their_line_and_the_one_that_was_meant() {
    let cases = [
        (
            "listen =",
            "lissten =",
            "line 8: node[1]: unknown key \"lissten\": did you mean \"listen\"?",
        ),
        ("[protocol]", "[protocl]", "line 21: unknown key \"protocl\": did you mean \"protocol\"?"),
        (
            "heartbeat_ms",
            "hartbeat_ms",
            "line 23: protocol: unknown key \"hartbeat_ms\": did you mean \"heartbeat_ms\"?",
        ),
        (
            "\"voter\"",
            "\"voters\"",
            "line 12: node[1].role: unknown word \"voters\": did you mean \"voter\"?",
        ),
        ("name =", "zzz = 1\nname =", "line 3: cluster: unknown key \"zzz\": known are id, name"),
        (
            "tls://10.0.0.1",
            "tsl://10.0.0.1",
            "line 5: node 1 has tsl://10.0.0.1:7000: unknown scheme \"tsl\": did you mean \"tls\"?",
        ),
    ];
    for (part, other, expected) in cases {
        let found = error(&with(part, other));
        assert!(found.lines().any(|line| line == expected), "{found}\n{expected}");
    }
}

#[test]
fn values_that_are_not_what_they_should_be_are_told_with_line_and_key() {
    let cases = [
        ("id = 4711\n", "", "line 1: cluster: the key \"id\" is missing"),
        ("id = 2\n", "", "line 14: node[2]: the key \"id\" is missing"),
        ("id = 2", "id = 0", "line 15: node[2].id: a node id is a number from 1"),
        ("id = 2", "id = -2", "line 15: node[2].id: invalid value: integer `-2`, expected u64"),
        ("id = 2", "id = 99999999999999999999", "line 15: node[2].id: the number is too large"),
        ("id = 2", "id = \"2\"", "line 15: node[2].id: invalid type: string \"2\", expected u64"),
        ("\"quic://10.0.0.2:7000\"", "\"nowhere\"", "line 16: node[2].addresses[2]: \"nowhere\":"),
        ("\"127.0.0.1:9001\"", "\"9001\"", "line 11: node[1].operation: \"9001\": invalid socket"),
        ("= 50", "= true", "line 23: protocol.heartbeat_ms: invalid type: boolean `true`"),
        ("name = ", "id = 1\nname = ", "line 3: duplicate key"),
        ("[[node]]", "[[node", "line 5: "),
        ("[protocol]", "[[protocol]]", "line 21: protocol: expected a table, found array"),
    ];
    for (part, other, expected) in cases {
        let found = error(&with(part, other));
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn contradictions_are_told_all_with_what_and_where() {
    let cases = [
        ("id = 4711", "id = 0", "cluster.id is a number from 1 to"),
        ("\"accounts\"", "\" \"", "cluster.name is empty"),
        ("id = 2", "id = 1", "line 14: nodes 1 (line 5) and 1 have one id"),
        (
            "tls://10.0.0.2",
            "tls://10.0.0.1",
            "line 14: nodes 1 (line 5) and 2 have one address, tls",
        ),
        ("tls://10.0.0.2:7000\", \"quic", "tcp", "differ in that one proves who it is"),
        (
            "quic://10.0.0.2:7000",
            "tcp://10.0.0.2:70",
            "line 14: node 2 has tls://10.0.0.2:7000, where it",
        ),
        ("keys = \"node-2/keys\"\n", "", "line 14: node 2 has tls://10.0.0.2:7000 and no `keys`"),
        (
            "tls://10.0.0.1:7000",
            "tls://0.0.0.0:7000",
            "node 1 has tls://0.0.0.0:7000, which is every",
        ),
        ("tls://10.0.0.1:7000", "tls://10.0.0.1:0", "node 1 has tls://10.0.0.1:0, whose port the"),
        (
            "tls://0.0.0.0:7000",
            "quic://0.0.0.0:7000",
            "node 1 is dialled over tls://, and `listen`",
        ),
        ("[\"tls://0.0.0.0:7000\"]", "[]", "line 5: node 1 listens nowhere"),
        ("[\"tls://10.0.0.1:7000\"]", "[]", "line 5: node 1 has no address"),
        ("127.0.0.1:9001", "0.0.0.0:9001", "line 5: node 1 serves its metrics at 0.0.0.0:9001"),
        ("= 300", "= 50", "protocol: heartbeat_ms is not below election_timeout_ms"),
        ("\"voter\"", "\"learner\"", "protocol: no node is a voter"),
    ];
    for (part, other, expected) in cases {
        let found = error(&with(part, other));
        assert!(found.contains(expected), "{found}\n{expected}");
    }
    let two = error(&with("id = 4711", "id = 0").replace("\"accounts\"", "\"\""));
    assert_eq!(two.lines().count(), 2, "{two}");
}

#[test]
fn nodes_of_one_host_share_neither_folder_nor_address_of_operation() {
    let node = |id, address: &str| {
        let node = Node::new(NodeId::new(id), address.parse().unwrap(), "same");
        Node { operation: "127.0.0.1:9".parse().ok(), ..node }
    };
    let cluster = |nodes| Cluster::new(1, "a", nodes, Voting::default());
    assert!(cluster(vec![node(1, "tcp://a:1"), node(2, "tcp://b:1")]).is_ok());
    let found = cluster(vec![node(1, "tcp://a:1"), node(2, "tcp://a:2")]).unwrap_err().to_string();
    assert!(found.contains("one folder on one host, same"), "{found}");
    assert!(found.contains("one address of operation on one host, 127.0.0.1:9"), "{found}");
}

#[test]
fn a_cluster_without_nodes_and_a_node_that_is_not_there_are_refused() {
    let found = Cluster::new(1, "a", Vec::new(), Voting::default()).unwrap_err().to_string();
    assert!(found.contains("there is no [[node]]"), "{found}");
    let found = parse(TEXT).unwrap().node(3).unwrap_err().to_string();
    assert_eq!(found, "the cluster has no node 3: its nodes are [1, 2]");
}

#[test]
fn any_bytes_are_a_cluster_or_an_error() {
    let config = proptest::test_runner::Config::with_cases(2000);
    let part = (0..TEXT.len(), 0..TEXT.len(), "[a-z\\[\\]{}=\"'\\n.,0-9-]{0,6}");
    proptest::test_runner::TestRunner::new(config)
        .run(&part, |(from, to, put)| {
            let (from, to) = (from.min(to), from.max(to));
            let _ = parse(&[&TEXT[..from], &put, &TEXT[to..]].concat());
            Ok(())
        })
        .unwrap();
}

#[test]
fn a_file_is_named_where_it_is_wrong_and_its_paths_begin_at_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.toml");
    let missing = Cluster::<Voting>::read(&path).unwrap_err().to_string();
    assert!(missing.contains("cluster.toml"), "{missing}");
    let near = Cluster::<Voting>::read("no-such.toml").unwrap_err().to_string();
    let here = std::env::current_dir().unwrap();
    assert!(near.ends_with(&format!("; looked for from {}", here.display())), "{near}");
    fs::write(&path, TEXT).unwrap();
    let cluster = Cluster::<Voting>::read(&path).unwrap();
    assert_eq!(cluster.node(1).unwrap().folder, folder.path().join("node-1"));
    fs::write(&path, with("listen", "lissten")).unwrap();
    let wrong = Cluster::<Voting>::read(&path).unwrap_err().to_string();
    assert!(wrong.contains("cluster.toml:8: node[1]: unknown key"), "{wrong}");
    fs::write(&path, " ".repeat(2 << 20)).unwrap();
    let large = Cluster::<Voting>::read(&path).unwrap_err().to_string();
    assert!(large.contains("more than 1048576 bytes"), "{large}");
    fs::write(&path, [0xff, 0xfe]).unwrap();
    let garbled = Cluster::<Voting>::read(&path).unwrap_err().to_string();
    assert!(garbled.contains("UTF-8"), "{garbled}");
}
