//! TLS: who a node is stands in its certificate; who may call what, in a rule; and certificates are
//! renewed while the node runs.
//!
//! ```sh
//! cargo run --features tls --example tls
//! ```

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use convoke::transport::{Identity, TcpTransport};
use convoke::{Caller, Code, Context, Endpoint, Executed, Method, NodeId, Service, Status};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

const READ: Method<String, String> = Method::new("vault.Vault/Read").read_only();
const ERASE: Method<String, String> = Method::new("vault.Vault/Erase");

type Authority = CertifiedIssuer<'static, KeyPair>;

/// Authority that issues the certificates of a cluster; its own is what all nodes trust.
fn authority() -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

/// Issues a certificate for a node, as files.
fn issue(authority: &Authority, node: u64, folder: &Path) -> Result<(), Box<dyn Error>> {
    let mut params = CertificateParams::default();
    let name = format!("spiffe://vault.example/node/{node}");
    params.subject_alt_names.push(SanType::URI(name.try_into()?));
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("node.pem"), certificate.pem())?;
    std::fs::write(folder.join("node.key"), key.serialize_pem())?;
    std::fs::write(folder.join("ca.pem"), authority.pem())?;
    Ok(())
}

fn load(folder: &Path) -> Result<Identity, Box<dyn Error>> {
    let identity = Identity::from_pem_files(
        folder.join("node.pem"), // and its intermediates, if there are any
        folder.join("node.key"),
        folder.join("ca.pem"), // whom to trust
    )?;
    Ok(identity)
}

/// Everybody may read; only node 1 may erase.
fn rule(caller: &Caller, method: &str) -> bool {
    let is_admin = caller.is_authenticated() && Some(caller.node()) == Some(NodeId::new(1));
    method == READ.name() || is_admin
}

async fn read(key: String, context: Context) -> Result<String, Status> {
    let caller = context.caller();
    println!("{:?} reads {key}", caller.principal());
    Ok(format!("what is kept as {key}"))
}

async fn erase(key: String, _: Context) -> Result<String, Status> {
    Ok(format!("{key} is gone"))
}

async fn start_vault(identity: Identity) -> Result<Endpoint, Box<dyn Error>> {
    let service = Service::new().unary(READ, read).unary(ERASE, erase);
    let endpoint = Endpoint::builder()
        .transport(TcpTransport::tls(identity)) // the node its certificate names, TLS only
        .listen("tls://127.0.0.1:0")
        .serve(service)
        .authorize(rule);
    Ok(endpoint.start().await?)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let (folder, authority) = (tempfile::tempdir()?, authority()?);
    let of_node = |node: u64| folder.path().join(node.to_string());
    for node in [1, 2, 7] {
        issue(&authority, node, &of_node(node))?;
    }
    let identity = load(&of_node(7))?;
    let vault = start_vault(identity.clone()).await?;
    let address = vault.addresses()[0].to_string();
    println!("{} listens at {address}", vault.node());

    // Both ends prove who they are. The client expects node 7 at this address, and nobody else.
    let admin =
        Endpoint::builder().transport(TcpTransport::tls(load(&of_node(1))?)).start().await?;
    let to_vault = admin.peer(vault.node(), [&address])?;
    admin.call(READ, "plan".into()).to(to_vault).await?;
    admin.call(ERASE, "plan".into()).to(to_vault).await?;

    // The rule knows its callers; what it denies has not run.
    let guest =
        Endpoint::builder().transport(TcpTransport::tls(load(&of_node(2))?)).start().await?;
    let from_guest = guest.peer(vault.node(), [&address])?;
    guest.call(READ, "plan".into()).to(from_guest).await?;
    let denied = guest.call(ERASE, "plan".into()).to(from_guest).await;
    let denied = denied.expect_err("node 2 is not the admin");
    println!("{denied}");
    assert_eq!(denied.status().map(|status| status.code()), Some(Code::PermissionDenied));
    assert_eq!(denied.failure().map(|failure| failure.executed), Some(Executed::No));

    // Somebody with a certificate of another authority does not get in.
    let elsewhere = folder.path().join("elsewhere");
    issue(&self::authority()?, 1, &elsewhere)?;
    let stranger =
        Endpoint::builder().transport(TcpTransport::tls(load(&elsewhere)?)).start().await?;
    let refused = stranger.connect(&address).await.expect_err("nobody knows its authority");
    println!("{refused}");

    // New certificates, new handshakes; what is open stays open.
    issue(&authority, 7, &of_node(7))?;
    identity.reload()?; // by hand, or
    let watch = identity.watch(Duration::from_secs(60)); // whenever the files change
    admin.call(READ, "plan".into()).to(to_vault).await?;

    drop(watch);
    for endpoint in [admin, guest, stranger, vault] {
        endpoint.shutdown(Duration::from_secs(5)).await;
    }
    Ok(())
}
