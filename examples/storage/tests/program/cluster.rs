//! Replicas and clients by a cluster file, as on several hosts.

use std::fs;
use std::io::{self, BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Replicas by `storage node`; dropping them ends them.
struct Nodes {
    config: PathBuf,
    nodes: Vec<Child>,
}

impl Nodes {
    fn start(folder: &Path, count: u64) -> Self {
        Self::start_by(folder, count, Self::node)
    }

    fn start_by(folder: &Path, count: u64, node: fn(&Path, u64) -> Option<Child>) -> Self {
        let config = folder.join("cluster.toml");
        for _ in 0..5 {
            // What replicas of an attempt before have left.
            (1..=count).for_each(|id| drop(fs::remove_dir_all(folder.join(format!("node-{id}")))));
            fs::write(&config, cluster(count)).expect("the folder is writable");
            let mut started = Self { config: config.clone(), nodes: Vec::new() };
            started.nodes.extend((1..=count).map_while(|id| node(&config, id)));
            if started.nodes.len() as u64 == count {
                return started;
            }
        }
        panic!("somebody takes the ports away every time");
    }

    /// Started, and listening; unless another program took its port meanwhile. Nobody reads more
    /// than the line that says so.
    fn node(config: &Path, id: u64) -> Option<Child> {
        let mut child = node(config, id).stdout(Stdio::piped()).spawn().expect("it runs");
        let mut output = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it says where it listens");
        if line.is_empty() {
            child.wait().expect("it has ended");
            return None;
        }
        assert!(line.starts_with(&format!("replica {id} of ")), "{line:?}");
        Some(child)
    }

    fn kill(&mut self, index: usize) {
        let child = &mut self.nodes[index];
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
    }

    fn client(&self, args: &[&str]) -> (bool, String) {
        client(&self.config, args)
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        for child in &mut self.nodes {
            // Both fail only when it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The command that runs a replica, beside its cluster file.
fn node(config: &Path, id: u64) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storage"));
    command.current_dir(config.parent().expect("it is in a folder")).args(["node", "--config"]);
    command.arg(config.file_name().expect("it is a file")).args(["--id", &id.to_string()]);
    command
}

/// Runs a client. Returns true when it went well, with its output.
fn client(config: &Path, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_storage"));
    command.arg("client").arg("--config").arg(config).args(args);
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("it is text"))
}

/// Of ports that were free a moment ago.
fn cluster(count: u64) -> String {
    let free = |_| TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let listeners: Vec<TcpListener> = (0..count).map(free).collect();
    let replica = |(id, listener): (u64, &TcpListener)| {
        let address = listener.local_addr().expect("it is bound");
        format!("[[node]]\nid = {id}\naddresses = [\"tcp://{address}\"]\n")
    };
    let replicas: String = (1..).zip(&listeners).map(replica).collect();
    format!("[cluster]\nid = 7\nname = \"birds\"\n{replicas}")
}

#[test]
fn what_is_written_is_read_by_another_and_outlives_a_minority() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = Nodes::start(folder.path(), 3);
    let ok = |text: &str| (true, format!("{text}\n"));
    assert_eq!(nodes.client(&["read", "bird"]), ok("bird was never written"));
    for (form, timestamp) in [("echo", 1), ("nested", 2), ("client", 3)] {
        let written = nodes.client(&["write", "bird", form, "--form", form, "--phases", "2"]);
        assert_eq!(written, ok(&format!("bird = {form}, timestamp {timestamp}")));
    }
    nodes.kill(1);
    assert_eq!(nodes.client(&["read", "bird"]), ok("bird = client, timestamp 3"));
    assert_eq!(nodes.client(&["write", "bird", "heron"]), ok("bird = heron, timestamp 4"));
    nodes.kill(0);
    let (is_read, text) = nodes.client(&["read", "bird"]);
    assert!(!is_read);
    assert!(text.contains("a quorum is not possible any more: "), "{text}");
    assert!(text.contains("n1") && text.contains("n2"), "{text}");
}

#[test]
fn a_replica_that_the_file_does_not_have_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("cluster.toml");
    fs::write(&config, cluster(2)).expect("the folder is writable");
    let output = node(&config, 3).output().expect("it runs");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("the cluster has no node 3: its nodes are [1, 2]"), "{text}");
}

/// Values are in memory: a replica that has run and begins again, empty, could be of the majority
/// that a read asks.
#[test]
fn a_replica_that_has_run_does_not_start_again_in_its_cluster() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = Nodes::start(folder.path(), 3);
    assert!(nodes.client(&["write", "bird", "heron"]).0);
    nodes.kill(0);
    if let Some(started) = Nodes::node(&nodes.config, 1) {
        nodes.nodes.push(started);
        panic!("it is there again, and empty");
    }
    let again = node(&nodes.config, 1).output().expect("it ends");
    let text = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(2), "{text}");
    assert!(text.contains("replica 1 of cluster 7 has run before, or runs now"), "{text}");
}

/// Its only life would be used up.
#[test]
fn a_replica_that_nobody_reads_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = Nodes::start_by(folder.path(), 1, |config, id| {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut child = node(config, id).stdout(writer).spawn().expect("it runs");
        while !client(config, &["read", "bird"]).0 {
            if let Some(status) = child.try_wait().expect("it is a child") {
                assert!(!status.success(), "it ended, but not for want of its port");
                return None;
            }
        }
        Some(child)
    });
    assert!(nodes.client(&["write", "bird", "heron"]).0);
}

/// Those of another cluster, and those of another list of members, of which two majorities need not
/// have a replica in common.
#[test]
fn a_client_with_another_cluster_file_is_refused_and_told_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = Nodes::start(folder.path(), 3);
    assert!(nodes.client(&["write", "bird", "heron"]).0);
    let file = fs::read_to_string(&nodes.config).expect("it is there");
    let more = "[[node]]\nid = 4\naddresses = [\"tcp://127.0.0.1:1\"]\n";
    for other in [file.replace("id = 7", "id = 8"), format!("{file}{more}")] {
        nodes.config = folder.path().join("other.toml");
        fs::write(&nodes.config, other).expect("the folder is writable");
        for args in [&["read", "bird"][..], &["write", "bird", "stork", "--form", "nested"]] {
            let (is_done, text) = nodes.client(args);
            assert!(!is_done, "{text}");
            assert!(text.contains("take the cluster file that the replicas have"), "{text}");
        }
    }
    nodes.config = folder.path().join("cluster.toml");
    assert_eq!(nodes.client(&["read", "bird"]), (true, "bird = heron, timestamp 1\n".to_owned()));
}

/// As a supervisor ends it.
#[cfg(unix)]
#[test]
fn a_replica_ends_in_good_order_at_sigterm() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut nodes = Nodes::start(folder.path(), 1);
    let child = &mut nodes.nodes[0];
    let asked = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
    assert!(asked.expect("it runs").success());
    assert_eq!(child.wait().expect("it ends").code(), Some(0));
}
