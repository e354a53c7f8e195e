//! The program `overlay`, run as a user runs it.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use console::assert_ends_quietly_unread;
use serde_json::Value;

fn network(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("networks").join(name)
}

fn overlay(input: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overlay"));
    command.args(["plan", "--input"]).arg(input).args(arguments);
    command.output().expect("the program was built")
}

fn printed(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

#[test]
fn explains_who_relays_how_much_for_whom_and_what_binds() {
    let explained = printed(&overlay(&network("five.toml"), &["--explain"]));
    for line in [
        "5 sites want to broadcast 727.5 Mbit/s. The plan carries 727.5; all direct, 435.0 would fit.",
        "Ireland broadcasts 465.0 Mbit/s",
        "      207.5 (45 %) through Virginia",
        "  relays 207.5 of Ireland",
        "  uplink: 67.5 of its own + 622.5 relayed = 690.0 of 690.0 Mbit/s, full",
        "Uplinks that bind: Ireland, Virginia, Oregon.",
    ] {
        assert!(explained.contains(line), "{line}\n{explained}");
    }
    assert_eq!(explained, printed(&overlay(&network("five.toml"), &[])));
}

#[test]
fn prints_the_plan_as_json() {
    let plan = printed(&overlay(&network("five.toml"), &["--json"]));
    let plan: Value = serde_json::from_str(&plan).expect("JSON");
    assert_eq!((&plan["planned_kbit"], &plan["direct_kbit"]), (&727_500.into(), &435_000.into()));
    let ireland = &plan["sites"][0];
    assert_eq!((&ireland["name"], &ireland["rate_kbit"]), (&"Ireland".into(), &465_000.into()));
    assert_eq!(ireland["is_full"], true);
    let trees = ireland["trees"].as_array().expect("a list");
    let rates: u64 = trees.iter().filter_map(|tree| tree["rate_kbit"].as_u64()).sum();
    assert_eq!(rates, 465_000);
    assert!(trees.iter().any(|tree| tree["relay"] == "Virginia"));
}

#[test]
fn draws_every_edge_and_every_uplink() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plan.svg");
    let drawn = overlay(&network("five.toml"), &["--svg", path.to_str().expect("text")]);
    assert_eq!(printed(&drawn), "");
    let svg = std::fs::read_to_string(&path).expect("it was written");
    assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    // Eight trees reach four sites each; three of Ireland's and the one of Virginia have a relay.
    assert_eq!(svg.matches("class=\"strong line").count(), 4);
    assert_eq!(svg.matches("class=\"faint line").count(), 8 * 4 - 4);
    assert_eq!(svg.matches("class=\"room axis\"").count(), 5);
    assert!(svg.contains(">Virginia</text>"));
    let kept = include_str!("../../../docs/pictures/plan.svg");
    assert!(svg == kept, "the command of docs/overlay-planning.md draws another picture");
}

#[test]
fn bad_input_is_an_error_that_names_the_file_and_the_field() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bad.toml");
    let text = std::fs::read_to_string(network("five.toml")).expect("the example");
    let bad = text.replacen("uplink_mbit = 750", "uplink_mbit = -750", 1);
    std::fs::write(&path, bad).expect("a scratch folder");
    let output = overlay(&path, &["--explain"]);
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.contains("bad.toml: sites[0].uplink_mbit is -750"), "{error}");
    let refusing = text.replace("headroom_permille = 920", "headroom_permille = 500");
    std::fs::write(&path, refusing + "fairness = \"refuse\"").expect("a scratch folder");
    let error = String::from_utf8(overlay(&path, &[]).stderr).expect("text");
    assert!(error.contains("not sustainable: uplink:0 needs 465000 kbit/s of 375000"), "{error}");
}

/// Three hosts on one machine, at ports that the system chose.
#[test]
fn measures_a_network_and_writes_the_file_that_it_plans() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("network.toml");
    let ports: Vec<TcpListener> =
        (0..3).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
    let sites = ["Ireland", "New York", "Tokyo"].into_iter().zip(&ports);
    let sites = sites.map(|(name, port)| format!("{name}={}", port.local_addr().expect("bound")));
    let sites: Vec<String> = sites.collect();
    drop(ports);
    let start = |me: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_overlay"));
        command.args(["measure", "--me", me, "--seconds", "0.2", "--flows", "2"]);
        for site in &sites {
            command.args(["--site", site]);
        }
        command.arg("--out").arg(&path);
        command.stderr(Stdio::piped()).spawn().expect("the program was built")
    };
    let hosts: Vec<_> = ["Tokyo", "New York", "Ireland"].into_iter().map(start).collect();
    for host in hosts {
        printed(&host.wait_with_output().expect("it ends"));
    }
    let measured = std::fs::read_to_string(&path).expect("it was written");
    let rate = |line: &str| line.rsplit(' ').next()?.parse::<f64>().ok();
    let rates = measured.lines().filter(|line| line.contains("link_mbit"));
    let rates: Vec<f64> = rates.filter_map(rate).collect();
    assert!(rates.len() == 6 && rates.iter().all(|rate| *rate > 1.0), "{measured}");
    let wanting = measured.replacen("demand_mbit = 0", "demand_mbit = 1", 1);
    std::fs::write(&path, wanting).expect("a scratch folder");
    let plan = printed(&overlay(&path, &[]));
    assert!(plan.contains("3 sites want to broadcast 1.0 Mbit/s"), "{plan}");
}

/// The first host is this test, which asks too much and goes.
#[test]
fn a_host_says_why_it_refuses_and_ends_when_the_first_has_gone() {
    let first = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = TcpListener::bind("127.0.0.1:0").expect("a port");
    let (at, waits_at) = (first.local_addr().expect("bound"), port.local_addr().expect("bound"));
    drop(port);
    let mut command = Command::new(env!("CARGO_BIN_EXE_overlay"));
    command.args(["measure", "--me", "Tokyo", "--site", &format!("Ireland={at}")]);
    command.args(["--site", &format!("Tokyo={waits_at}")]);
    let waits = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("built");
    let (mut echoes, _) = first.accept().expect("it asks whether the first host is there");
    let mut beat = [0; 9];
    echoes.read_exact(&mut beat).expect("an echo is asked for");
    echoes.write_all(&beat[1..]).expect("it waits for it");

    let mut asked = TcpStream::connect(waits_at).expect("it listens");
    let numbers = [1_u32, 1_000, 0].map(u32::to_le_bytes).concat();
    asked.write_all(&[b"S", &numbers[..]].concat()).expect("it takes questions");
    assert_eq!(asked.read(&mut [0]).expect("it refuses"), 0);
    drop((first, echoes));
    let ended = waits.wait_with_output().expect("it ends");
    let said = String::from_utf8(ended.stderr).expect("text");
    assert!(!ended.status.success(), "{said}");
    assert!(said.contains("too much at once"), "{said}");
    assert!(said.contains("Ireland has gone without a word"), "{said}");
}

#[test]
fn what_no_host_would_do_is_refused_at_the_start() {
    let many: Vec<String> = (0..129).map(|site| format!("s{site}=127.0.0.1:1")).collect();
    for (sites, option, words) in [
        (&many[..2], ["--seconds", "600.1"], "--seconds 600.1 is not a time above 0 s, and 600 s"),
        (&many[..2], ["--seconds", "0"], "--seconds 0 is not a time"),
        (&many[..2], ["--seconds", "nan"], "--seconds NaN is not a time"),
        (&many[..2], ["--flows", "257"], "--flows 257 is not a number from 1 to 256"),
        (&many[..2], ["--flows", "0"], "--flows 0 is not a number"),
        (&many[..], ["--flows", "1"], "there are 129 sites, and 128 at most"),
        (&many[..20], ["--flows", "256"], "--flows 256 are 4864 from a site to all others: 40"),
        (&[&many[..2], &many[..1]].concat(), ["--flows", "1"], "two sites are named \"s0\""),
        (&many[..1], ["--flows", "1"], "there is one site"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_overlay"));
        command.args(["measure", "--me", "s0"]).args(option);
        command.args(sites.iter().flat_map(|site| ["--site", site]));
        let refused = command.output().expect("the program was built");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(words), "{option:?}: {said}");
    }
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let output = overlay(Path::new("no such file.toml"), &[]);
    assert!(!output.status.success());
    let error = String::from_utf8(output.stderr).expect("text");
    assert!(error.contains("cannot read no such file.toml"), "{error}");
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_overlay"));
    assert_ends_quietly_unread(command.args(["plan", "--input"]).arg(network("five.toml")));
}
