//! One service as it runs in earnest: both ends prove who they are, a rule says who may call, each
//! call has a deadline, and the end is graceful.
//!
//! ```sh
//! cargo run --features tls --example secured
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::transport::{Identity, TcpTransport};
use convoke::{Caller, Code, Context, Endpoint, Method, NodeId, Service, Status};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

const PAY: Method<u64, String> = Method::new("bank.Bank/Pay");

const BANK: NodeId = NodeId::new(1);
const TELLER: NodeId = NodeId::new(2);
const GUEST: NodeId = NodeId::new(3);

async fn pay(cents: u64, context: Context) -> Result<String, Status> {
    Ok(format!("{cents} cents paid to {}", context.caller().node()))
}

/// Lets the teller in, whose certificate proves it. A client of a gRPC edge on the teller has the
/// `node` of the teller, and is another caller.
fn rule(caller: &Caller, _method: &str) -> bool {
    caller.client().is_none() && caller.is_authenticated() && caller.node() == TELLER
}

/// A certificate for a node, of whoever issues them in this cluster; in earnest they are files.
fn issue(
    authority: &CertifiedIssuer<'_, KeyPair>,
    node: NodeId,
) -> Result<TcpTransport, Box<dyn Error>> {
    let mut params = CertificateParams::default();
    let name = format!("spiffe://bank.example/node/{}", node.get());
    params.subject_alt_names.push(SanType::URI(name.try_into()?));
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?.pem();
    let identity = Identity::from_pem(certificate, key.serialize_pem(), authority.pem())?;
    Ok(TcpTransport::tls(identity))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

    let server = Endpoint::builder()
        .transport(issue(&authority, BANK)?)
        .listen("tls://127.0.0.1:0")
        .serve(Service::new().unary(PAY, pay))
        .authorize(rule)
        .start()
        .await?;

    let teller = Endpoint::builder().transport(issue(&authority, TELLER)?).start().await?;
    let bank = teller.peer(BANK, server.addresses())?; // and nobody else at this address
    // It travels with each request, and ends what the bank asks of others, too.
    let client = teller.client().deadline(Duration::from_secs(2));
    println!("{}", client.call(PAY, 1_000).to(bank).await?);

    let guest = Endpoint::builder().transport(issue(&authority, GUEST)?).start().await?;
    let bank = guest.peer(BANK, server.addresses())?;
    let denied = guest.call(PAY, 1_000).to(bank).await.expect_err("only the teller pays");
    println!("{denied}");
    assert_eq!(denied.status().map(|status| status.code()), Some(Code::PermissionDenied));

    // Running requests have five seconds to end.
    assert!(server.shutdown(Duration::from_secs(5)).await);
    Ok(())
}
