//! The edge, called by Python's gRPC, which shares no code with this one.
//!
//! It installs the client into a scratch folder, so it is not run unless asked for:
//!
//! ```sh
//! cargo xtask test --only grpc-foreign
//! ```
//!
//! Without Python or a package index it says so, and tests nothing.

#[path = "../edge/echo.rs"]
#[allow(dead_code, reason = "the tests with tonic's client use more of it")]
mod echo;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use echo::Stage;

/// The lane sets it: packages are not installed behind anybody's back.
const ASKED_FOR: &str = "CONVOKE_FOREIGN_GRPC";
const PACKAGES: [&str; 3] = ["grpcio", "grpcio-health-checking", "grpcio-reflection"];
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/client.py");
/// Number of facts that the script proves, a line each.
const PROVEN: usize = 14;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python_calls_the_edge() {
    if std::env::var_os(ASKED_FOR).is_none() {
        eprintln!(
            "\n!!! SKIPPED, NOTHING WAS TESTED: set {ASKED_FOR} to install a foreign client\n"
        );
        return;
    }
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let python = match python_with_grpc(scratch.path()) {
        Ok(python) => python,
        Err(why) => {
            eprintln!("\n!!! SKIPPED, NOTHING WAS TESTED: no foreign gRPC client: {why}\n");
            return;
        }
    };
    let stage = Stage::new().await;
    let address = stage.edge.local_addr().to_string();
    let client = tokio::task::spawn_blocking(move || run(&python, &[SCRIPT, &address]));
    let output = client.await.expect("it does not panic").expect("python starts");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    print!("{out}");
    assert!(output.status.success(), "{err}");
    assert_eq!(out.lines().filter(|line| line.starts_with("ok ")).count(), PROVEN);
    stage.stop().await;
}

/// A Python of its own with the packages; an error says what is missing.
fn python_with_grpc(folder: &Path) -> Result<PathBuf, String> {
    let found = ["python3", "python"].into_iter().find(|name| {
        run(Path::new(name), &["--version"]).is_ok_and(|output| output.status.success())
    });
    let found = found.ok_or("there is no python3")?;
    let folder = folder.join("venv");
    succeed(Path::new(found), &["-m", "venv", &folder.display().to_string()])?;
    let python = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let python = folder.join(python);
    let install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"];
    succeed(&python, &[&install[..], &PACKAGES[..]].concat())?;
    Ok(python)
}

fn succeed(program: &Path, arguments: &[&str]) -> Result<(), String> {
    let output = run(program, arguments).map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    let err = String::from_utf8_lossy(&output.stderr);
    Err(format!("{} {}: {}", program.display(), arguments.join(" "), err.trim()))
}

fn run(program: &Path, arguments: &[&str]) -> std::io::Result<Output> {
    Command::new(program).args(arguments).output()
}
