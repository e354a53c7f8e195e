//! Replicas join and leave as processes, by the administrator's command, while clients with the
//! first cluster file go on.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use node_kit::processes::Ports;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pbft");

fn pbft(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).output().expect("it is built")
}

fn text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).trim().to_owned()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("a temporary folder has a plain name").to_owned()
}

fn keygen(folder: &Path, name: &str) -> String {
    text(&pbft(&["keygen", &path(folder, name)]))
}

/// A node that ends with its standard input, and what it prints.
struct Node {
    child: Child,
    prints: BufReader<ChildStdout>,
}

impl Node {
    /// Ends it.
    fn stop(&mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }

    /// Waits until it ends by itself, and gives its last line.
    fn ended(&mut self) -> String {
        let input = self.child.stdin.take(); // `wait` would close it
        let mut line = String::new();
        self.prints.read_line(&mut line).expect("it prints text");
        assert!(self.child.wait().unwrap().success());
        drop(input);
        line
    }
}

/// A node that listens.
fn start(config: &str, id: u64) -> Node {
    let mut command = Command::new(PROGRAM);
    let command = command.args(["node", "--config", config, "--id", &id.to_string(), "--child"]);
    command.env("RUST_LOG", "warn").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it is built");
    let mut line = String::new();
    let mut prints = BufReader::new(child.stdout.take().expect("it is piped"));
    prints.read_line(&mut line).expect("it prints text");
    assert!(line.contains("listens at t"), "{line}");
    Node { child, prints }
}

/// The file of the first four, and those that join.
struct Files {
    first: String,
    fifth: Joining,
    sixth: Joining,
}

/// A node that is to join: its file, its key and its address.
struct Joining {
    file: String,
    key: String,
    address: String,
}

fn write(folder: &Path, ports: &Ports) -> Files {
    let (mut nodes, mut keys) = (Vec::new(), Vec::new());
    for (id, port) in (1..).zip(ports.iter()) {
        nodes.push(format!(
            "[[node]]\nid = {id}\nfolder = \"node-{id}\"\n\
             addresses = [\"tcp://127.0.0.1:{port}\"]\n"
        ));
        keys.push(keygen(folder, &format!("node-{id}/sign.key")));
    }
    let row = |whose: &str, id: u64, key: &str| {
        format!("[[protocol.{whose}]]\nid = {id}\nkey = \"{key}\"\n")
    };
    let members: String = (1..5).zip(&keys).map(|(id, key)| row("member", id, key)).collect();
    let clients = row("client", 1001, &keygen(folder, "client.key"))
        + &row("client", 1002, &keygen(folder, "administrator.key"));
    let file = |nodes: &[String], more: &str| {
        format!(
            "[cluster]\nid = 7\nname = \"four\"\n{}[protocol]\ntimeout_ms = 20000\n\
             checkpoint_every = 8\nadministrator = 1002\n{members}{more}{clients}",
            nodes.concat()
        )
    };
    std::fs::write(folder.join("first.toml"), file(&nodes[..4], "")).unwrap();
    let joining = |id: u64| {
        let (index, name) = (usize::try_from(id - 1).unwrap(), format!("joins-{id}.toml"));
        let (own, key) = (nodes[index].clone(), keys[index].clone());
        let joins = row("member", id, &key) + "joins = true\n";
        let text = file(&[&nodes[..4], &[own]].concat(), &joins);
        std::fs::write(folder.join(&name), text).unwrap();
        let address = format!("tcp://127.0.0.1:{}", ports.iter().collect::<Vec<_>>()[index]);
        Joining { file: path(folder, &name), key, address }
    };
    Files { first: path(folder, "first.toml"), fifth: joining(5), sixth: joining(6) }
}

#[test]
fn a_replica_joins_and_another_leaves_while_clients_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Ports::reserve(6).unwrap();
    let files = write(folder.path(), &ports);
    let key = path(folder.path(), "client.key");
    let client = |arguments: &[&str]| {
        let flags = ["client", "--config", &files.first, "--id", "1001", "--key", &key];
        let output = pbft(&[&flags, &["--deadline", "120"][..], arguments].concat());
        (output.status.code(), text(&output))
    };
    let member = |key: &str, arguments: &[&str]| {
        let key = path(folder.path(), key);
        let flags = ["member", "--config", &files.first, "--key", &key, "--deadline", "120"];
        let output = pbft(&[&flags, arguments].concat());
        (output.status.success(), text(&output))
    };
    let mut nodes: Vec<Node> = (1..=4).map(|id| start(&files.first, id)).collect();
    assert_eq!(client(&["put", "k", "a"]), (Some(0), String::new()));
    nodes.push(start(&files.fifth.file, 5));

    let (address, public) = (&files.fifth.address[..], &files.fifth.key[..]);
    let add = ["add", "5", "--address", address, "--public-key", public];
    let (is_done, told) = member("client.key", &add);
    assert!(!is_done && told.contains("does not belong to its key"), "{told}");
    let (is_done, told) = member("administrator.key", &["remove", "4"]);
    assert!(!is_done && told.contains("fewer than 4 members"), "{told}");
    let (is_done, told) = member("administrator.key", &add);
    assert!(is_done && told.contains("epoch 2") && told.contains(address), "{told}");
    assert_eq!(client(&["put", "k", "b"]), (Some(0), String::new()));

    let (is_done, told) = member("administrator.key", &["remove", "1"]);
    assert!(is_done && told.contains("epoch 3"), "{told}");
    // The first primary has left, and its process ends by itself. Of four one may be away now.
    for _ in 0..2 {
        let told = nodes[0].ended();
        assert!(told.contains("no member from epoch 3 on"), "{told}");
        nodes[0] = start(&files.first, 1); // as a service manager does
    }
    let told = nodes[0].ended();
    assert!(told.contains("no member from epoch 3 on"), "{told}");
    // Who has the first file sees who has joined, and misses nobody who has left.
    let status = pbft(&["status", "--config", &files.first]);
    let (is_well, status) = (status.status.success(), text(&status));
    let is_told = status.contains("   1  no member: ") && status.contains("\n   5      3");
    assert!(is_well && is_told, "{status}");
    nodes[2].stop();
    assert_eq!(client(&["get", "k"]), (Some(0), "b".to_owned()));
    // So none can take the place of another that is up, unless it is up itself.
    let (address, public) = (&files.sixth.address[..], &files.sixth.key[..]);
    let sixth = ["add", "6", "--address", address, "--public-key", public, "--in-place-of", "2"];
    let (is_done, told) = member("administrator.key", &sixth);
    assert!(!is_done && told.contains("3 have to be up") && told.contains("n3, n6"), "{told}");
    let (is_done, told) = member("client.key", &["list"]);
    assert!(is_done && told.contains("epoch 3") && told.lines().count() == 5, "{told}");

    // The fifth takes up again what its ledger has, though its file has it join: it is needed.
    nodes[2] = start(&files.first, 3);
    nodes[4].stop();
    nodes[4] = start(&files.fifth.file, 5);
    nodes[3].stop();
    assert_eq!(client(&["put", "k", "c"]), (Some(0), String::new()));
    assert_eq!(client(&["get", "k"]), (Some(0), "c".to_owned()));

    // One takes the place of another in one step.
    nodes[3] = start(&files.first, 4);
    nodes.push(start(&files.sixth.file, 6));
    let (is_done, told) = member("administrator.key", &sixth);
    assert!(is_done && told.contains("epoch 4") && told.contains(address), "{told}");
    let told = nodes[1].ended();
    assert!(told.contains("no member from epoch 4 on"), "{told}");
    assert_eq!(client(&["get", "k"]), (Some(0), "c".to_owned()));
    let list = pbft(&["member", "--config", &files.first, "list"]);
    assert!(list.status.success() && text(&list).contains("epoch 4"), "{list:?}");
    [2, 3, 4, 5].into_iter().for_each(|node: usize| nodes[node].stop());
}
