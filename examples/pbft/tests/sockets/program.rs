//! The program as people use it: keys, a cluster file, nodes, clients, their end, their ledgers.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use console::assert_ends_quietly_unread;
use convoke::NodeId;
use node_kit::cluster::Authority;
use node_kit::operation::{get, ready};
use node_kit::processes::Ports;

const PROGRAM: &str = env!("CARGO_BIN_EXE_pbft");

fn pbft(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stderr(Stdio::inherit()).output().expect("it is built")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().expect("a temporary folder has a plain name").to_owned()
}

/// Four nodes that end with their standard input. They listen.
fn start(config: &str) -> Vec<Child> {
    start_as(config, &[], |_| Command::new(PROGRAM))
}

/// Four nodes with these options, each the program that this command runs.
fn start_as(config: &str, options: &[&str], program: impl Fn(u64) -> Command) -> Vec<Child> {
    let begin = |id| spawn(config, id, options, program(id));
    let mut nodes: Vec<Child> = (1..=4).map(begin).collect();
    for node in &mut nodes {
        let mut line = String::new();
        let mut output = BufReader::new(node.stdout.take().expect("it is piped"));
        output.read_line(&mut line).expect("it prints text");
        assert!(line.contains("listens at t"), "{line}");
    }
    nodes
}

fn spawn(config: &str, id: u64, options: &[&str], mut program: Command) -> Child {
    let id = id.to_string();
    program.args(["node", "--config", config, "--id", &id, "--child"]).args(options);
    program.env("RUST_LOG", "warn").stdin(Stdio::piped()).stdout(Stdio::piped());
    program.spawn().expect("it is built")
}

/// The same file for TLS: with certificates of all nodes and of a client, and without keys of
/// clients.
fn secure_config(folder: &Path) -> (String, Ports) {
    let (config, ports) = write_config(folder);
    let authority = Authority::new("local.example").unwrap();
    for id in 1..=4 {
        authority.issue(NodeId::new(id), &folder.join(format!("node-{id}/keys"))).unwrap();
    }
    authority.issue(NodeId::new(9), &folder.join("client")).unwrap();
    let file = std::fs::read_to_string(&config).unwrap();
    let (file, _) = file.split_once("[[protocol.client]]").unwrap();
    let mut secure = String::new();
    for line in file.lines() {
        secure += &match line.strip_prefix("folder = ") {
            Some(folder) => format!("{line}\nkeys = \"{}/keys\"\n", folder.trim_matches('"')),
            None => line.replace("tcp://", "tls://") + "\n",
        };
    }
    let secure = secure.replace("[protocol]", "[protocol]\nauth = \"channel\"");
    std::fs::write(&config, secure + "[[protocol.client]]\nid = 1001\nnode = 9\n").unwrap();
    (config, ports)
}

/// A cluster file, as the page says to write it, and what keeps its ports free.
fn write_config(folder: &Path) -> (String, Ports) {
    let ports = Ports::reserve(4).unwrap();
    let mut file = "[cluster]\nid = 7\nname = \"four\"\n".to_owned();
    let mut keys = String::new();
    for (id, port) in (1..).zip(ports.iter()) {
        file += &format!(
            "[[node]]\nid = {id}\nfolder = \"node-{id}\"\n\
             addresses = [\"tcp://127.0.0.1:{port}\"]\n"
        );
        let key = text(&pbft(&["keygen", &path(folder, &format!("node-{id}/sign.key"))]));
        keys += &format!("[[protocol.member]]\nid = {id}\nkey = \"{}\"\n", key.trim());
    }
    let key = text(&pbft(&["keygen", &path(folder, "client.key")]));
    keys += &format!("[[protocol.client]]\nid = 1001\nkey = \"{}\"\n", key.trim());
    // Long enough for a machine with much else to do.
    std::fs::write(folder.join("cluster.toml"), file + "[protocol]\ntimeout_ms = 20000\n" + &keys)
        .unwrap();
    (path(folder, "cluster.toml"), ports)
}

/// As `pbft sim .. | head -0`.
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let replay = ["sim", "--part", "world", "--seed", "1"];
    assert_ends_quietly_unread(Command::new(PROGRAM).args(replay));
    // Where somebody reads, the same command has something to say.
    assert!(text(&pbft(&replay)).lines().count() > 2);
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let mut node = Command::new(PROGRAM);
    let node = node.args(["node", "--config", &config, "--id", "1", "--child"]);
    assert_ends_quietly_unread(node.env("RUST_LOG", "warn").stdin(Stdio::null()));
    let bench = ["bench", "--clients", "1", "--requests", "1", "--ledger", "ram"];
    assert_ends_quietly_unread(Command::new(PROGRAM).args(bench));
}

#[test]
fn a_time_that_is_none_is_refused_in_words() {
    let output = Command::new(PROGRAM).args(["demo", "--seconds=-1"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("--seconds: "), "{said}");
}

#[test]
fn what_is_beyond_the_range_of_an_argument_is_refused_before_anything_begins() {
    for (command, argument, value) in [
        ("bench", "--payload", "18446744073709551615"),
        ("bench", "--replicas", "18446744073709551615"),
        ("bench", "--clients", "18446744073709551615"),
        ("bench", "--rounds", "0"),
        ("bench", "--requests", "0"),
        ("bench", "--seconds", "0"),
        ("demo", "--timeout", "18446744073709551615"),
        ("sim", "--seeds", "0"),
        ("torture", "--seconds", "1000000000000"),
    ] {
        let output = Command::new(PROGRAM).args([command, argument, value]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let is_told = said.contains(argument) && said.contains(" is not in ");
        assert!(output.status.code() == Some(2) && is_told, "{command} {argument}: {said}");
    }
}

#[test]
fn the_help_has_the_options_of_the_command_that_need_not_be_named() {
    let help = text(&pbft(&["--help"]));
    for word in ["--seconds", "--clients", "--keep", "demo", "torture"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    // They are those of the command, and belong to no other.
    assert_eq!(pbft(&["--seconds", "1", "sim"]).status.code(), Some(2));
    assert_eq!(pbft(&["--clients", "0"]).status.code(), Some(2));
}

#[test]
fn nodes_serve_clients_and_come_back_with_all_that_they_had() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let key = path(folder.path(), "client.key");
    let client = |arguments: &[&str]| {
        let flags = ["client", "--config", &config, "--id", "1001", "--key", &key];
        let output = pbft(&[&flags, &["--deadline", "120"][..], arguments].concat());
        (output.status.code(), text(&output))
    };
    let mut nodes = start(&config);
    assert_eq!(client(&["put", "k", "a"]), (Some(0), String::new()));
    assert_eq!(client(&["cas", "k", "c", "--expected", "b"]), (Some(1), "a\n".to_owned()));
    assert_eq!(client(&["--path", "all", "cas", "k", "b", "--expected", "a"]).0, Some(0));
    let status = text(&pbft(&["status", "--config", &config]));
    assert!(status.contains("primary") && status.contains("backup"), "{status}");
    assert!(pbft(&["member", "--config", &config, "list"]).status.success());

    let file = std::fs::read_to_string(&config).unwrap();
    let other = path(folder.path(), "other.toml");
    std::fs::write(&other, file.replace("id = 7\n", "id = 8\n")).unwrap();
    let status = pbft(&["status", "--config", &other]);
    let told = text(&status);
    let is_told = told.matches("it is of cluster 7, and 8 was meant").count() == 4;
    assert!(status.status.code() == Some(1) && is_told, "{told}");
    assert_eq!(pbft(&["member", "--config", &other, "list"]).status.code(), Some(1));

    for node in &mut nodes {
        drop(node.stdin.take());
        assert!(node.wait().unwrap().success());
    }

    let dump = pbft(&["dump-ledger", &path(folder.path(), "node-1/ledger")]);
    let dumped = text(&dump);
    let is_whole = dumped.contains("the file was closed") && dumped.contains("committed: batch");
    assert!(dump.status.success() && is_whole, "{dumped}");

    let mut nodes = start(&config);
    assert_eq!(client(&["scan"]), (Some(0), "k\tb\n".to_owned()));
    assert_eq!(client(&["delete", "k"]), (Some(0), "b\n".to_owned()));
    assert_eq!(client(&["get", "k"]).0, Some(1));
    for node in &mut nodes {
        node.kill().unwrap();
        node.wait().unwrap();
    }
}

#[tokio::test]
async fn nodes_show_pages_where_they_were_asked_to() {
    let (folder, ports) = (tempfile::tempdir().unwrap(), Ports::reserve(4).unwrap());
    let (config, _ports) = write_config(folder.path());
    let mut text = std::fs::read_to_string(&config).unwrap();
    for (id, port) in (1..).zip(ports.iter()) {
        let folder = format!("folder = \"node-{id}\"\n");
        text = text.replace(&folder, &format!("{folder}operation = \"127.0.0.1:{port}\"\n"));
    }
    std::fs::write(&config, text).unwrap();
    let mut nodes = start_as(&config, &["--page"], |_| Command::new(PROGRAM));
    let key = path(folder.path(), "client.key");
    let flags = ["client", "--config", &config, "--id", "1001", "--key", &key];
    let put = ["--deadline", "120", "put", "k", "a"];
    assert!(pbft(&[&flags[..], &put].concat()).status.success());
    // Each is asked by the client, or told by the primary.
    for (id, port) in (1..).zip(ports.iter()) {
        let address = ([127, 0, 0, 1], *port).into();
        ready(address, Duration::from_secs(60)).await.unwrap();
        let (status, page) = get(address, "/").await.unwrap();
        let title = format!("<h1>Node n{id}</h1>");
        let parts = [&title, "Ready: it takes requests.", "<td>tcp, "];
        assert!(status == 200 && parts.iter().all(|part| page.contains(part)), "{page}");
    }
    for node in &mut nodes {
        node.kill().unwrap();
        node.wait().unwrap();
    }
    // One that comes back alone may be behind: to stop another on its word would be too early.
    let address = ([127, 0, 0, 1], ports[0]).into();
    let mut alone = spawn(&config, 1, &[], Command::new(PROGRAM));
    BufReader::new(alone.stdout.take().expect("it is piped"))
        .read_line(&mut String::new())
        .unwrap();
    let (status, words) = get(address, "/readyz").await.unwrap();
    assert!(status == 503 && words.contains("how far a quorum"), "{status}: {words}");
    alone.kill().unwrap();
    alone.wait().unwrap();
}

/// Nothing tells it apart from one that starts for the first time: there is no checkpoint yet.
#[test]
fn a_replica_that_begins_where_others_have_gone_on_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let mut nodes = start(&config);
    let key = path(folder.path(), "client.key");
    let flags = ["client", "--config", &config, "--id", "1001", "--key", &key];
    let put = |value| [&flags[..], &["--deadline", "120", "put", "k", value]].concat();
    assert!(pbft(&put("a")).status.success());
    drop(nodes[1].stdin.take());
    assert!(nodes[1].wait().unwrap().success());
    // Of the three others at least two have executed this when its client knows.
    assert!(pbft(&put("b")).status.success());
    std::fs::remove_dir_all(folder.path().join("node-2/ledger")).unwrap();
    let mut program = Command::new(PROGRAM);
    program.stderr(Stdio::piped());
    nodes[1] = spawn(&config, 2, &[], program);
    let (said, lines) = std::sync::mpsc::channel();
    let errors = BufReader::new(nodes[1].stderr.take().expect("it is piped"));
    std::thread::spawn(move || {
        errors.lines().map_while(Result::ok).try_for_each(|line| said.send(line))
    });
    let next = || lines.recv_timeout(Duration::from_secs(60)).expect("it says so");
    while !next().contains("the ledger was empty at the start, and n") {}
    for node in &mut nodes {
        node.kill().unwrap();
        node.wait().unwrap();
    }
}

/// One node may write files of 32 KiB (or 64, by some shells) at most: as on a disk that is full
/// from there on.
#[cfg(unix)]
#[test]
fn a_node_whose_disk_is_full_says_so_and_ends_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let key = path(folder.path(), "client.key");
    let mut nodes = start_as(&config, &[], |id| {
        if id != 2 {
            return Command::new(PROGRAM);
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"", PROGRAM]);
        shell.stderr(Stdio::piped());
        shell
    });
    let value = "v".repeat(20 << 10);
    for name in ["a", "b", "c", "d", "e"] {
        let flags = ["client", "--config", &config, "--id", "1001", "--key", &key];
        let put = ["--deadline", "120", "put", name, &value];
        assert!(pbft(&[&flags, &put[..]].concat()).status.success(), "{name}");
    }
    // Its standard input is still open.
    let mut full = nodes.remove(1);
    let input = full.stdin.take();
    let output = full.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.contains("File too large"), "{words}");
    drop(input);
    for node in &mut nodes {
        node.kill().unwrap();
        node.wait().unwrap();
    }
}

#[test]
fn certificates_alone_let_clients_in_and_no_plain_address_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = secure_config(folder.path());
    let mut nodes = start(&config);
    let certificates = path(folder.path(), "client");
    let client = |node: &str, arguments: &[&str]| {
        let flags = ["client", "--config", &config, "--id", "1001", "--node-id", node];
        let certificates = ["--certificates", &certificates, "--deadline", "120"];
        let output = pbft(&[&flags, &certificates[..], arguments].concat());
        (output.status.code(), text(&output))
    };
    assert_eq!(client("9", &["put", "k", "a"]), (Some(0), String::new()));
    assert_eq!(client("9", &["get", "k"]), (Some(0), "a\n".to_owned()));
    assert_eq!(client("10", &["get", "k"]).0, Some(1), "the certificate proves another");
    assert_eq!(client("9", &["--path", "primary", "get", "k"]).0, Some(1));
    for node in &mut nodes {
        node.kill().unwrap();
        node.wait().unwrap();
    }

    let plain = std::fs::read_to_string(&config).unwrap().replace("tls://", "tcp://");
    std::fs::write(&config, plain).unwrap();
    for command in ["check-config", "node"] {
        let mut program = Command::new(PROGRAM);
        let program = program.args([command, "--config", &config, "--id", "1"]);
        let output = program.output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let remedy = "give node 1 addresses of tls:// or quic://";
        assert!(!output.status.success() && words.contains(remedy), "{words}");
    }
}

#[test]
fn keys_that_are_not_those_of_the_file_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    assert!(pbft(&["check-config", "--config", &config, "--id", "1"]).status.success());
    let other = path(folder.path(), "node-2/sign.key");
    std::fs::copy(&other, path(folder.path(), "node-1/sign.key")).unwrap();
    let mut command = Command::new(PROGRAM);
    let output = command.args(["node", "--config", &config, "--id", "1"]).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.contains("secret key of node 1"), "{words}");
    let again = Command::new(PROGRAM).args(["keygen", &other]).output().unwrap();
    let words = String::from_utf8_lossy(&again.stderr);
    let remedy = "sign.key is there already: keep it, or write the new key to another file";
    assert!(!again.status.success() && words.contains(remedy), "{words}");
}

#[test]
fn a_measurement_counts_what_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let json = path(folder.path(), "row.json");
    let flags = ["bench", "--clients", "2", "--seconds", "1", "--ledger", "ram", "--json", &json];
    let charts = path(folder.path(), "charts");
    let more = ["--auth", "signed,channel", "--transport", "quic", "--svg", &charts];
    let output = pbft(&[&flags, &more[..]].concat());
    assert!(output.status.success(), "{}", text(&output));
    let rows: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    for (index, auth) in ["signed", "channel"].into_iter().enumerate() {
        let row = &rows[index];
        assert!(row["failed"] == 0 && row["unknown"] == 0 && row["auth"] == auth, "{row}");
        assert!(row["server_cpu_us_per_operation"].as_f64() >= Some(0.0), "{row}");
    }
    for chart in ["throughput", "latency", "processor"] {
        let chart = std::fs::read_to_string(path(folder.path(), &format!("charts/{chart}.svg")));
        assert!(chart.unwrap().contains("quic, channel"));
    }
}

#[test]
fn so_many_empty_requests_are_measured_in_each_round_and_no_frame_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let json = path(folder.path(), "rows.json");
    let flags = ["bench", "--clients", "1", "--payload", "0", "--requests", "50", "--rounds", "2"];
    let output = pbft(&[&flags, &["--ledger", "ram", "--json", &json][..]].concat());
    assert!(output.status.success(), "{}", text(&output));
    let rows: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    for (index, round) in [1, 2].into_iter().enumerate() {
        let row = &rows[index];
        assert!(row["round"] == round && row["payload_bytes"] == 0, "{row}");
        // One more was under way as counting began.
        assert!((50..=51).contains(&row["completed"].as_u64().unwrap()), "{row}");
        // A request, its branches, three kinds of words, and the answers.
        assert!(row["frames_sent"].as_u64().unwrap() > 50 * 20, "{row}");
        assert_eq!(row["frames_lost"], 0, "{row}");
    }
}

#[test]
fn a_measurement_that_cannot_be_is_refused_with_the_remedy() {
    let unbuilt = if cfg!(feature = "rdma") {
        "--host takes the address of a device"
    } else {
        "build it with `--features rdma`"
    };
    let channel = ["--auth", "channel", "--transport"];
    for (arguments, remedy) in [
        (&[channel[0], channel[1]][..], "tcp proves nobody: take --transport tls or quic"),
        (&[&channel[..], &["rdma"]].concat(), "rdma proves nobody: take --transport tls or quic"),
        (&["--transport", "rdma"], unbuilt),
        (&["--window", "8"], "settings of --transport rdma"),
        (&["--credits", "unlimited"], "settings of --transport rdma"),
        (&["--host", "192.0.2.1"], "ports of 192.0.2.1"),
    ] {
        let output = Command::new(PROGRAM).arg("bench").args(arguments).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && words.contains(remedy), "{arguments:?}: {words}");
    }
}

#[test]
fn a_file_with_addresses_of_rdma_is_refused_with_the_remedy_where_there_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let file = std::fs::read_to_string(&config).unwrap();
    // The address is of nobody: it is for documentation.
    std::fs::write(&config, file.replace("tcp://127.0.0.1", "rdma://192.0.2.1")).unwrap();
    let key = path(folder.path(), "client.key");
    let node = ["--config", &config, "--id", "1"];
    let client = ["--config", &config, "--id", "1001", "--key", &key, "get", "k"];
    for (command, arguments) in [("check-config", &node[..]), ("node", &node), ("client", &client)]
    {
        let output = Command::new(PROGRAM).arg(command).args(arguments).output().unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_told = words.contains("use tcp:// addresses")
            || cfg!(feature = "rdma") && words.contains("and tcp:// takes none");
        assert!(!output.status.success() && is_told, "{command}: {words}");
    }
}
