//! Sockets within this host: what their addresses may be, whose files are whose, and what the
//! kernel says of who connects.
#![cfg(unix)]

mod addresses;
mod files;
mod peers;
mod takeover;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use convoke_transport::conformance::Recorder;
use convoke_transport::{Address, ListenError, Listener, Transport};
use convoke_transport_tcp::TcpTransport;
use tempfile::TempDir;

fn address(text: &str) -> Address {
    text.parse().expect("it is an address")
}

/// A folder, and a path in it.
fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("there is room for a folder");
    let path = folder.path().join("a.sock");
    (folder, path)
}

fn at(path: &Path) -> Address {
    address(&format!("unix://{}", path.display()))
}

async fn listen(address: &Address) -> Result<Box<dyn Listener>, ListenError> {
    TcpTransport::new().listen(address, Arc::new(Recorder::new(1))).await
}

/// Dials, as another node.
async fn dial(address: &Address) -> Result<(), convoke_transport::DialError> {
    TcpTransport::new().dial(address, None, Arc::new(Recorder::new(2))).await.map(drop)
}

/// The reason why nobody can listen there, which must have this in it.
async fn is_refused(address: &Address, expected: &str) {
    match listen(address).await {
        Err(ListenError::Bind { address: of, message }) => {
            assert!(message.contains(expected) && of == *address, "{message}");
        }
        other => panic!("{address} is no place to listen at: {other:?}"),
    }
}

/// Names of the files in a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let name = |entry: std::io::Result<std::fs::DirEntry>| {
        entry.expect("it can be read").file_name().into_string().expect("names are plain")
    };
    let mut names: Vec<_> = entries.map(name).collect();
    names.sort();
    names
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
