//! Sockets of this host: a node serves other hosts at a port and the programs beside it at a path,
//! where the kernel says which user calls.
//!
//! ```sh
//! cargo run --example unix
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use convoke::{Caller, Code, Context, Endpoint, Method, Service, Status};

const READ: Method<String, String> = Method::new("vault.Vault/Read").read_only();
const ERASE: Method<String, String> = Method::new("vault.Vault/Erase");

/// Everybody may read; only programs of this user, on this host, may erase.
fn rule(caller: &Caller, method: &str, user: u32) -> bool {
    let is_user = caller.credentials().is_some_and(|found| found.uid == user);
    method == READ.name() || is_user
}

async fn read(key: String, _: Context) -> Result<String, Status> {
    Ok(format!("what is kept as {key}"))
}

async fn erase(key: String, context: Context) -> Result<String, Status> {
    println!("{:?} erases {key}", context.caller().credentials());
    Ok(format!("{key} is gone"))
}

async fn start_vault(path: &Path, user: u32) -> Result<Endpoint, Box<dyn Error>> {
    let endpoint = convoke::endpoint()
        .listen("tcp://127.0.0.1:0")
        .listen(format!("unix://{}", path.display())) // such as unix:///run/vault/vault.sock
        .serve(Service::new().unary(READ, read).unary(ERASE, erase))
        .authorize(move |caller, method| rule(caller, method, user));
    Ok(endpoint.start().await?)
}

/// The user whose folder this is.
#[cfg(unix)]
fn owner(folder: &Path) -> std::io::Result<u32> {
    use std::os::unix::fs::MetadataExt;
    Ok(std::fs::metadata(folder)?.uid())
}

#[cfg(not(unix))]
fn owner(_: &Path) -> std::io::Result<u32> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    if cfg!(not(unix)) {
        println!("this system has no sockets of the file system");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let vault = start_vault(&folder.path().join("vault.sock"), owner(folder.path())?).await?;
    let [by_port, by_path] = vault.addresses() else { return Err("two addresses".into()) };

    // A program beside it.
    let beside = convoke::endpoint().start().await?;
    let to_vault = beside.connect(by_path).await?;
    println!("{}", beside.call(ERASE, "plan".into()).to(to_vault).await?);

    // One that comes by the network: nobody knows its user.
    let remote = convoke::endpoint().start().await?;
    let to_vault = remote.connect(by_port).await?;
    println!("{}", remote.call(READ, "plan".into()).to(to_vault).await?);
    let denied = remote.call(ERASE, "plan".into()).to(to_vault).await;
    let denied = denied.expect_err("its user is not known");
    println!("{denied}");
    assert_eq!(denied.status().map(|status| status.code()), Some(Code::PermissionDenied));

    for endpoint in [beside, remote, vault] {
        endpoint.shutdown(Duration::from_secs(5)).await;
    }
    assert!(folder.path().read_dir()?.next().is_none(), "a listener that ends removes its socket");
    Ok(())
}
