//! The edge, called by gRPC clients that share no code with this one: those of Python and of Go, and
//! `grpcurl`, a command line.
//!
//! They are installed into a scratch folder, so that they are not run unless asked for:
//!
//! ```sh
//! cargo xtask test --only grpc-foreign
//! ```
//!
//! Where one of them cannot be had, its test says so, and tests nothing.

#[path = "../edge/echo.rs"]
#[allow(dead_code, reason = "the tests with tonic's client use more of it")]
mod echo;
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use echo::Stage;
use tempfile::TempDir;

use tools::Found;

/// The lane sets it: packages are not installed behind anybody's back.
const ASKED_FOR: &str = "CONVOKE_FOREIGN_GRPC";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_calls_the_edge() {
    let Some((python, _scratch)) = installed("Python's gRPC", tools::python).await else { return };
    const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/client.py");
    let proven = proven_by(|address| command(&python, &[SCRIPT, address])).await;
    assert_eq!(proven, 14, "facts, a line each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn go_calls_the_edge() {
    let Some((go, _scratch)) = installed("Go's gRPC", tools::go_client).await else { return };
    let proven = proven_by(|address| command(&go, &[address])).await;
    assert_eq!(proven, 10, "facts, a line each");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpcurl_calls_the_edge_without_files() {
    let Some((grpcurl, _scratch)) = installed("grpcurl", tools::grpcurl).await else { return };
    let stage = Stage::new().await;
    let address = stage.edge.local_addr().to_string();
    let asked = async |arguments: &[&str]| {
        let mut all = vec!["-plaintext", "-max-time", "60"];
        all.extend(arguments);
        let output = blocking(command(&grpcurl, &all)).await;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), text(&output.stdout), text(&output.stderr))
    };
    let listed = asked(&[&address, "list"]).await;
    assert!(listed.0 && listed.1.lines().any(|line| line == "edge.test.Echo"), "{listed:?}");
    let said = asked(&["-d", r#"{"text": "salut"}"#, &address, "edge.test.Echo/Say"]).await;
    assert!(said.0 && said.1.contains(r#""text": "SALUT""#), "{said:?}");
    let counted = asked(&["-d", r#"{"number": 3}"#, &address, "edge.test.Echo/Count"]).await;
    assert!(counted.0 && counted.1.matches(r#""text""#).count() == 3, "{counted:?}");
    let failed = asked(&["-d", r#"{"number": 5}"#, &address, "edge.test.Echo/Fail"]).await;
    assert!(!failed.0 && failed.2.contains("Code: NotFound"), "{failed:?}");
    let health = asked(&[&address, "grpc.health.v1.Health/Check"]).await;
    assert!(health.0 && health.1.contains(r#""status": "SERVING""#), "{health:?}");
    stage.stop().await;
}

/// A client that was asked for and can be had, in a scratch folder; else the reason is said loudly.
async fn installed(what: &str, install: fn(&Path) -> Found) -> Option<(PathBuf, TempDir)> {
    let skipped = "SKIPPED, NOTHING WAS TESTED";
    if std::env::var_os(ASKED_FOR).is_none() {
        eprintln!("\n!!! {skipped}: set {ASKED_FOR} to install {what}\n");
        return None;
    }
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let folder = scratch.path().to_owned();
    let installing = tokio::task::spawn_blocking(move || install(&folder));
    match installing.await.expect("it does not panic") {
        Ok(program) => Some((program, scratch)),
        Err(why) => {
            eprintln!("\n!!! {skipped}: {what} cannot be had: {why}\n");
            None
        }
    }
}

/// The number of facts that a client proves about an edge: it prints a line for each and fails at
/// the first that does not hold.
async fn proven_by(client: impl FnOnce(&str) -> Command) -> usize {
    let stage = Stage::new().await;
    let output = blocking(client(&stage.edge.local_addr().to_string())).await;
    let out = String::from_utf8_lossy(&output.stdout);
    print!("{out}");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stage.stop().await;
    out.lines().filter(|line| line.starts_with("ok ")).count()
}

/// The output of a program that ended, whatever came of it.
async fn blocking(mut program: Command) -> Output {
    let running = tokio::task::spawn_blocking(move || program.output());
    running.await.expect("it does not panic").expect("it starts")
}

fn command(program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments);
    command
}
