//! The program as people use it: a node from a cluster file, clients, its end, its ledger.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use console::assert_ends_quietly_unread;
use convoke::NodeId;
use node_kit::cluster::Authority;
use node_kit::operation::{get, ready};
use node_kit::processes::Ports;

const PROGRAM: &str = env!("CARGO_BIN_EXE_paxos");

fn paxos(arguments: &[&str]) -> Output {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).stderr(Stdio::inherit()).output().expect("it is built")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A node that ends with its standard input. It listens.
fn start(config: &str) -> Child {
    start_with(config, &[])
}

fn start_with(config: &str, options: &[&str]) -> Child {
    let mut command = Command::new(PROGRAM);
    let command = command.args(["node", "--config", config, "--id", "1", "--child"]).args(options);
    let mut node = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(node.stdout.take().expect("it is piped"));
    output.read_line(&mut line).unwrap();
    assert!(line.contains("listens at "), "{line}");
    node
}

/// A cluster of one node, and what keeps its port free.
fn write_config(folder: &Path) -> (String, Ports) {
    let ports = Ports::reserve(1).unwrap();
    let port = ports[0];
    let text = format!(
        "[cluster]\nid = 7\nname = \"one\"\n\n[[node]]\nid = 1\nfolder = \"node\"\n\
         addresses = [\"tcp://127.0.0.1:{port}\"]\n\n[protocol]\nheartbeat_ms = 50\n"
    );
    let config = folder.join("cluster.toml");
    std::fs::write(&config, text).unwrap();
    let config = config.to_str().expect("a temporary folder has a plain name").to_owned();
    (config, ports)
}

/// As `paxos sim .. | head -0`.
#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let replay = ["sim", "--core", "--seed", "1"];
    assert_ends_quietly_unread(Command::new(PROGRAM).args(replay));
    // Where somebody reads, the same command has something to say.
    assert!(text(&paxos(&replay)).lines().count() > 2);
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let mut node = Command::new(PROGRAM);
    let node = node.args(["node", "--config", &config, "--id", "1", "--child"]);
    assert_ends_quietly_unread(node.env("RUST_LOG", "warn").stdin(Stdio::null()));
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
        ("bench", "--payload", "2000000"),
        ("bench", "--delay-ms", "18446744073709551615"),
        ("bench", "--nodes", "18446744073709551615"),
        ("bench", "--clients", "1,0"),
        ("bench", "--keys", "0"),
        ("bench", "--reads", "101"),
        ("bench", "--seconds", "0"),
        ("bench", "--rate", "0"),
        ("bench", "--rate", "nan"),
        ("bench", "--rate", "1e300"),
        ("figures", "--rounds", "0"),
        ("sim", "--seeds", "0"),
        ("torture", "--seconds", "1000000000000"),
        ("torture", "--nodes", "0"),
    ] {
        let output = Command::new(PROGRAM).args([command, argument, value]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let is_told = said.contains(argument) && said.contains(" is not in ");
        assert!(output.status.code() == Some(2) && is_told, "{command} {argument}: {said}");
    }
}

#[test]
fn the_help_has_the_options_of_the_command_that_need_not_be_named() {
    let help = text(&paxos(&["--help"]));
    for word in ["--seconds", "--clients", "--keep", "demo", "torture"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    // They are those of the command, and belong to no other.
    assert_eq!(paxos(&["--seconds", "1", "sim"]).status.code(), Some(2));
    assert_eq!(paxos(&["--clients", "0"]).status.code(), Some(2));
}

#[test]
fn the_time_without_a_leader_is_measured_by_seeds() {
    let said = text(&paxos(&["sim", "--failover", "--seeds", "2", "--start-seed", "7"]));
    assert!(said.ends_with("2 seeds: 0 beyond three, 0 beyond six\n"), "{said}");
    assert_eq!(said, text(&paxos(&["sim", "--failover", "--seeds", "2", "--start-seed", "7"])));
    assert_eq!(paxos(&["sim", "--failover", "--core"]).status.code(), Some(2));
}

#[test]
fn a_node_serves_clients_and_comes_back_with_all_that_it_had() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let client = |arguments: &[&str]| {
        let output = paxos(&[&["client", "--config", &config], arguments].concat());
        (output.status.code(), text(&output))
    };
    let mut node = start(&config);
    assert_eq!(client(&["put", "k", "a"]), (Some(0), String::new()));
    assert_eq!(client(&["cas", "k", "c", "--expected", "b"]), (Some(1), "a\n".to_owned()));
    assert_eq!(client(&["cas", "k", "b", "--expected", "a"]), (Some(0), String::new()));
    let status = text(&paxos(&["status", "--config", &config]));
    assert!(status.contains("leading"), "{status}");
    drop(node.stdin.take());
    assert!(node.wait().unwrap().success());

    let ledger = folder.path().join("node/ledger");
    let dump = paxos(&["dump-ledger", ledger.to_str().expect("as above")]);
    let dumped = text(&dump);
    assert!(dump.status.success() && dumped.contains("the file was closed"), "{dumped}");
    let of_node = paxos(&["dump-ledger", &config.replace("cluster.toml", "node")]);
    assert!(of_node.status.success(), "the folder of its node");
    assert_eq!(text(&of_node), dumped);
    let empty = folder.path().join("node/nothing");
    std::fs::create_dir(&empty).unwrap();
    let none = paxos(&["dump-ledger", empty.to_str().expect("as above")]);
    assert_eq!((none.status.code(), text(&none)), (Some(1), String::new()), "no ledger is there");

    let mut node = start(&config);
    assert_eq!(client(&["scan"]), (Some(0), "k\tb\n".to_owned()));
    assert_eq!(client(&["delete", "k"]), (Some(0), "b\n".to_owned()));
    assert_eq!(client(&["get", "k"]).0, Some(1));
    node.kill().unwrap();
    node.wait().unwrap();
}

#[tokio::test]
async fn a_node_shows_a_page_where_it_was_asked_to() {
    let (folder, ports) = (tempfile::tempdir().unwrap(), Ports::reserve(1).unwrap());
    let (config, _ports) = write_config(folder.path());
    let address = ([127, 0, 0, 1], ports[0]).into();
    let text = std::fs::read_to_string(&config).unwrap();
    let text = text.replace("[protocol]", &format!("operation = \"{address}\"\n[protocol]"));
    std::fs::write(&config, text).unwrap();
    for options in [&["--page"][..], &[]] {
        let mut node = start_with(&config, options);
        assert!(paxos(&["client", "--config", &config, "put", "k", "a"]).status.success());
        ready(address, Duration::from_secs(60)).await.unwrap();
        let (status, page) = get(address, "/").await.unwrap();
        if options.is_empty() {
            assert_eq!(status, 404);
        } else {
            let parts =
                ["<h1>Node n1</h1>", "Ready: it takes requests.", "<figure>", "at n1, from"];
            assert!(status == 200 && parts.iter().all(|part| page.contains(part)), "{page}");
        }
        node.kill().unwrap();
        node.wait().unwrap();
    }
}

#[test]
fn a_node_that_wants_proof_takes_clients_with_keys() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let text = std::fs::read_to_string(&config).unwrap();
    let text =
        text.replace("tcp://", "tls://").replace("id = 1\n", "id = 1\nkeys = \"node/keys\"\n");
    std::fs::write(&config, text).unwrap();
    let authority = Authority::new("one.example").unwrap();
    authority.issue(NodeId::new(1), &folder.path().join("node/keys")).unwrap();
    authority.issue(NodeId::new(9), &folder.path().join("client")).unwrap();
    let keys = folder.path().join("client");
    let proof = ["--keys", keys.to_str().expect("as above"), "--name", "9"];
    let mut node = start(&config);
    let put = ["put", "k", "a"];
    let words = refused("client", &config, &put);
    assert!(words.contains("--keys FOLDER --name N"), "{words}");
    let client = [&["client", "--config", &config], &proof[..]].concat();
    assert!(paxos(&[&client[..], &put].concat()).status.success());
    assert_eq!(self::text(&paxos(&[&client[..], &["get", "k"]].concat())), "a\n");
    let status = paxos(&[&["status", "--config", &config], &proof[..]].concat());
    assert!(self::text(&status).contains("leading"));
    node.kill().unwrap();
    node.wait().unwrap();
}

#[test]
fn a_file_that_is_wrong_is_refused_with_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    assert!(paxos(&["check-config", "--config", &config, "--id", "1"]).status.success());
    let text = std::fs::read_to_string(&config).unwrap().replace("heartbeat_ms", "hartbeat_ms");
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new(PROGRAM);
    let output = command.args(["node", "--config", &config, "--id", "1"]).output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_told = words.contains("cluster.toml:11") && words.contains("hartbeat_ms");
    assert!(!output.status.success() && is_told, "{words}");
}

/// A node that may write files of 32 KiB (or 64, by some shells) at most: as on a disk that is
/// full from there on.
#[cfg(unix)]
#[test]
fn a_node_whose_disk_is_full_says_so_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\"", PROGRAM]);
    command.args(["node", "--config", &config, "--id", "1", "--child"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut node = command.spawn().unwrap();
    let value = "v".repeat(20 << 10);
    let put = |key: &str| {
        let arguments = ["client", "--config", &config, "--deadline", "5", "put", key, &value];
        let mut command = Command::new(PROGRAM);
        command.args(arguments).stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(put("first") && ["second", "third", "fourth"].into_iter().any(|key| !put(key)));
    // Its standard input is still open.
    let input = node.stdin.take();
    let output = node.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.contains("File too large"), "{words}");
    drop(input);
}

/// A file of its ledger is a pipe into which nobody writes, so that to read it takes for ever.
#[cfg(unix)]
#[test]
fn a_node_whose_disk_hangs_as_it_starts_ends_when_it_is_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let mut node = start(&config);
    drop(node.stdin.take());
    assert!(node.wait().unwrap().success());
    let files = std::fs::read_dir(folder.path().join("node/ledger")).unwrap();
    let mut files = files.map(|file| file.unwrap().path());
    let segment = files.find(|file| file.to_string_lossy().contains("segment-")).unwrap();
    std::fs::remove_file(&segment).unwrap();
    assert!(Command::new("mkfifo").arg(&segment).status().unwrap().success());
    let mut command = Command::new(PROGRAM);
    command.args(["node", "--config", &config, "--id", "1", "--child"]).stdin(Stdio::piped());
    let mut node = command.spawn().unwrap();
    drop(node.stdin.take());
    let begun = std::time::Instant::now();
    let ended = loop {
        if let Some(status) = node.try_wait().unwrap() {
            break Some(status);
        }
        if begun.elapsed() > Duration::from_secs(60) {
            break None;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    if ended.is_none() {
        node.kill().unwrap();
        node.wait().unwrap();
    }
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}

/// All that a command says which does not end well.
fn refused(command: &str, config: &str, arguments: &[&str]) -> String {
    let mut program = Command::new(PROGRAM);
    let output = program.args([command, "--config", config]).args(arguments).output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    text(&output) + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn what_is_too_large_or_of_another_cluster_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let mut node = start(&config);
    let words = refused("client", &config, &["put", &"k".repeat(5_000), "v"]);
    assert!(words.contains("its key is above 4096 bytes"), "{words}");
    let text = std::fs::read_to_string(&config).unwrap().replace("id = 7", "id = 8");
    let other = folder.path().join("other.toml");
    std::fs::write(&other, text).unwrap();
    let other = other.to_str().expect("as above");
    let words = refused("client", other, &["put", "k", "v"]);
    assert!(words.contains("refused: this is cluster 7, and 8 was meant"), "{words}");
    for (command, action) in [("status", &[][..]), ("member", &["list"])] {
        let words = refused(command, other, action);
        assert!(words.contains("n1 is of cluster 7, and 8 was meant"), "{command}: {words}");
    }
    node.kill().unwrap();
    node.wait().unwrap();
}

#[test]
fn nodes_that_are_not_there_are_neither_asked_nor_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let words = refused("member", &config, &["--deadline", "1", "list"]);
    assert!(words.contains("no node says within 1 s who the members are"), "{words}");
    let words = refused("client", &config, &["--stale", "99", "get", "k"]);
    assert!(words.contains("the cluster has no node 99"), "{words}");
    let mut node = start(&config);
    let words = refused("member", &config, &["remove", "99"]);
    assert!(words.contains("nothing was changed: n99 is no member"), "{words}");
    let words = refused("member", &config, &["remove", "1"]);
    assert!(words.contains("refused: the last voter cannot leave"), "{words}");
    node.kill().unwrap();
    node.wait().unwrap();
}

#[test]
fn a_measurement_counts_what_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let (json, svg) = (folder.path().join("rows.json"), folder.path().join("charts"));
    let (json, svg) = (json.to_str().expect("as above"), svg.to_str().expect("as above"));
    let flags = ["--nodes", "1", "--transport", "tcp,tls,quic,grpc", "--clients", "1,2"];
    let more = ["--reads", "50", "--seconds", "1", "--ledger", "ram"];
    let output = paxos(&[&["bench", "--json", json, "--svg", svg], &flags[..], &more].concat());
    assert!(output.status.success(), "{}", text(&output));
    let rows: Vec<serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let cases = rows.iter().map(|row| (row["transport"].as_str(), row["clients"].as_u64()));
    let transports = ["tcp", "tls", "quic", "grpc"].into_iter();
    let wanted = transports.flat_map(|name| [1, 2].map(|clients| (Some(name), Some(clients))));
    assert!(cases.eq(wanted), "{rows:?}");
    for row in rows {
        assert!(row["completed"].as_u64() > Some(0) && row["failed"] == 0, "{row}");
        assert!(row["server_cpu_us_per_operation"].as_f64() > Some(0.0), "{row}");
    }
    for chart in ["throughput.svg", "latency.svg"] {
        let text = std::fs::read_to_string(Path::new(svg).join(chart)).unwrap();
        assert!(text.starts_with("<svg ") && text.contains("quic"), "{chart}");
    }
}

#[test]
fn nodes_can_be_far_from_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("rows.json");
    let json = json.to_str().expect("as above");
    let flags = ["--clients", "1", "--delay-ms", "20", "--seconds", "1", "--transport", "tls"];
    let output = paxos(&[&["bench", "--json", json], &flags[..]].concat());
    assert!(output.status.success(), "{}", text(&output));
    let rows: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    // There and back.
    assert!(rows[0]["latency_us"]["min"].as_u64() >= Some(40_000), "{rows}");
    let output = Command::new(PROGRAM)
        .args(["bench", "--delay-ms", "20", "--transport", "quic"])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && words.contains("--delay-ms"), "{words}");
}

#[test]
fn a_scan_that_leaves_pairs_out_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let mut node = start(&config);
    for key in ["a", "b", "c"] {
        assert!(paxos(&["client", "--config", &config, "put", key, "v"]).status.success());
    }
    let scan = |limit: &str| {
        let mut command = Command::new(PROGRAM);
        let command = command.args(["client", "--config", &config, "scan", "--limit", limit]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        (text(&output), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (pairs, words) = scan("2");
    assert!(pairs == "a\tv\nb\tv\n" && words.contains("there is more, from \"c\" on"), "{words}");
    assert_eq!(scan("3"), ("a\tv\nb\tv\nc\tv\n".to_owned(), String::new()));
    node.kill().unwrap();
    node.wait().unwrap();
}

#[test]
fn options_that_a_workload_would_ignore_are_refused_by_name() {
    let refused = |arguments: &[&str]| {
        let output = Command::new(PROGRAM).arg("bench").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let words = refused(&["--workload", "a", "--lost", "1", "--keys", "9", "--svg", "charts"]);
    assert!(words.contains("--keys, --lost, --svg"), "{words}");
    let words = refused(&["--workload", "b", "--proposers", "2"]);
    assert!(words.contains("--proposers"), "{words}");
}

#[test]
fn a_put_is_answered_in_the_shape_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (config, _ports) = write_config(folder.path());
    let mut node = start(&config);
    let put = |shape: &str| {
        let mut command = Command::new(PROGRAM);
        let command = command.args(["client", "--config", &config, "--shape", shape, "put"]);
        let output = command.args(["k", shape]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(put("gather"), "");
    let get = || text(&paxos(&["client", "--config", &config, "--shape", "direct", "get", "k"]));
    assert_eq!(get(), "gather\n");
    assert_eq!(put("direct"), "answered by votes\n");
    assert_eq!(get(), "direct\n");
    node.kill().unwrap();
    node.wait().unwrap();
}

/// JSON that a command writes with `--json`.
fn measured(folder: &Path, arguments: &[&str]) -> Vec<serde_json::Value> {
    let json = folder.join("rows.json");
    let output = paxos(&[arguments, &["--json", json.to_str().expect("as above")]].concat());
    assert!(output.status.success(), "{}", text(&output));
    serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap()
}

#[test]
fn proposers_go_on_when_the_machine_of_the_leader_dies() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["bench", "--workload", "c", "--every-ms", "20", "--seconds", "2"];
    for row in measured(folder.path(), &flags) {
        assert!(row["went_on_after_ms"].is_u64() && row["lost"] == 0, "{row}");
        let counts = [0, 1].map(|at| row["proposers"][at]["count"].as_u64());
        assert!(counts.iter().all(|count| *count > Some(0)), "{row}");
    }
    let flags = ["bench", "--workload", "d", "--nodes", "3", "--every-ms", "20", "--seconds", "1"];
    for row in measured(folder.path(), &[&flags[..], &["--ledger", "ram"]].concat()) {
        let proposers = row["proposers"].as_array().expect("there are some");
        assert!(proposers.len() == 2 && row["lost"] == 0, "{row}");
        assert!(proposers.iter().all(|one| one["count"].as_u64() > Some(0)), "{row}");
    }
}

#[test]
fn figures_have_all_their_points() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("figures");
    let figures = ["figures", "--quick", "--only", "4.1.1,4.1.4,4.2.2", "--rounds", "1"];
    let flags = ["--seconds", "0.3", "--every-ms", "20", "--svg", svg.to_str().expect("as above")];
    let rows = measured(folder.path(), &[&figures[..], &flags].concat());
    // Two sizes and two ledgers; two counts of machines; two sizes, ledgers and proposers.
    assert_eq!(rows.len(), 4 + 2 + 8, "{rows:?}");
    for row in &rows {
        assert!(row["count"].as_u64() > Some(0) && row["failed"] == 0, "{row}");
        // There and back.
        let is_far = row["delay_ms"] == 50;
        assert!(!is_far || row["min_us"].as_u64() >= Some(100_000), "{row}");
    }
    for (name, lines) in [("4.1.1", 3), ("4.1.4", 1), ("4.2.2", 5)] {
        let text = std::fs::read_to_string(svg.join(format!("{name}.svg"))).unwrap();
        assert_eq!(text.matches("<polyline").count(), lines, "{name}");
    }
    assert!(!paxos(&["figures", "--only", "4.9"]).status.success());
}

#[test]
fn rdma_is_refused_with_the_remedy_where_there_is_none() {
    let remedy = if cfg!(feature = "rdma") {
        "--host takes the address of a device"
    } else {
        "build it with `--features rdma`"
    };
    for (arguments, words) in [
        (&["--transport", "rdma"][..], remedy),
        (&["--transport", "tcp,rdma", "--delay-ms", "1"], "which QUIC and RDMA do not use"),
    ] {
        let refused = Command::new(PROGRAM).arg("bench").args(arguments).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains(words), "{arguments:?}: {told}");
    }
}

#[test]
fn puts_are_measured_without_a_follower() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["bench", "--keys", "300", "--clients", "4", "--seconds", "1", "--lost", "1"];
    for row in measured(folder.path(), &flags) {
        assert!(row["lost"] == 1 && row["failed"] == 0, "{row}");
        assert!(row["completed"].as_u64() > Some(0), "{row}");
    }
    let refused = paxos(&["bench", "--lost", "2"]);
    assert!(!refused.status.success());
}

#[test]
fn a_follower_that_starts_again_has_read_its_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["bench", "--keys", "300", "--fill", "--clients", "4", "--seconds", "1"];
    for row in measured(folder.path(), &[&flags[..], &["--restarts", "1"]].concat()) {
        assert!(row["keys"].as_u64() >= Some(300) && row["failed"] == 0, "{row}");
        let restart = &row["restarts"][0];
        // There was no snapshot.
        assert!(restart["keys"].as_u64() >= Some(300), "{row}");
        assert!(restart["replayed"].as_u64() > Some(0) && restart["restored_us"] == 0, "{row}");
    }
    let refused = paxos(&["bench", "--restarts", "1", "--ledger", "ram"]);
    assert!(!refused.status.success());
}
