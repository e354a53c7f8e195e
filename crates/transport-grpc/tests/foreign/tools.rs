//! Foreign clients, installed into a scratch folder by the package managers of their languages.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The program, or the reason why it cannot be had.
pub(crate) type Found = Result<PathBuf, String>;

const PACKAGES: [&str; 3] = ["grpcio", "grpcio-health-checking", "grpcio-reflection"];
const GO_SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/go");
const GRPCURL: &str = "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4";

/// A Python of its own with the packages of gRPC.
pub(crate) fn python(folder: &Path) -> Found {
    let found = ["python3", "python"].into_iter().find(|name| {
        let asked = Command::new(name).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    });
    let found = found.ok_or("there is no python3")?;
    let folder = folder.join("venv");
    succeed(Command::new(found).args(["-m", "venv"]).arg(&folder))?;
    let python = if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" };
    let python = folder.join(python);
    let install = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:"];
    succeed(Command::new(&python).args(install).args(PACKAGES))?;
    Ok(python)
}

/// The client in Go, built from its source beside this file.
///
/// # Panics
/// Its source does not compile, which is no reason to test nothing.
pub(crate) fn go_client(folder: &Path) -> Found {
    succeed(go()?.args(["mod", "download"]).current_dir(GO_SOURCES))?;
    let program = folder.join("foreign").with_extension(std::env::consts::EXE_EXTENSION);
    let build = ["build", "-mod=readonly", "-o"];
    let built = succeed(go()?.args(build).arg(&program).arg(".").current_dir(GO_SOURCES));
    built.unwrap_or_else(|why| panic!("the client in Go does not build: {why}"));
    Ok(program)
}

/// The command line client, which is written in Go.
pub(crate) fn grpcurl(folder: &Path) -> Found {
    succeed(go()?.args(["install", GRPCURL]).env("GOBIN", folder))?;
    Ok(folder.join("grpcurl").with_extension(std::env::consts::EXE_EXTENSION))
}

/// The command `go`, which takes what it needs from the module proxy.
fn go() -> Result<Command, String> {
    let asked = Command::new("go").arg("version").output();
    let is_there = asked.is_ok_and(|output| output.status.success());
    is_there.then(|| Command::new("go")).ok_or_else(|| "there is no go".to_owned())
}

fn succeed(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
