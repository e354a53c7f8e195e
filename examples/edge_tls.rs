//! Frames between nodes over gRPC with TLS, and an edge that knows its clients by their
//! certificates.
//!
//! ```sh
//! cargo run --example edge_tls --features grpc,tls
//! ```

use std::error::Error;
use std::time::Duration;

use convoke::grpc::{ClientCertificates, GrpcEdge};
use convoke::transport::{GrpcTransport, Identity};
use convoke::{Caller, Code, Context, Endpoint, Method, NodeId, Service, Status};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

const PAY: Method<u64, String> = Method::new("bank.Bank/Pay");

const BANK: NodeId = NodeId::new(1);
const TELLER: NodeId = NodeId::new(2);

async fn pay(cents: u64, context: Context) -> Result<String, Status> {
    let caller = context.caller();
    let who = caller.client().and_then(|client| client.principal()).or(caller.principal());
    // The rule lets this node call itself, which has shown no certificate.
    let nobody = || Status::new(Code::PermissionDenied, "the bank pays others").without_effect();
    Ok(format!("{cents} cents for {}", who.ok_or_else(nobody)?))
}

/// Nodes may call, and of the clients of an edge those in accounts.
fn rule(caller: &Caller, _method: &str) -> bool {
    let Some(client) = caller.client() else { return caller.is_authenticated() };
    let principal = client.principal().filter(|_| client.is_authenticated());
    principal.is_some_and(|who| who.as_str().starts_with("spiffe://clients.example/accounts/"))
}

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

/// An identity with this name; in earnest it is in files.
fn issue(authority: &Authority, name: SanType) -> Result<Identity, Box<dyn Error>> {
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(name);
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?.pem();
    Ok(Identity::from_pem(certificate, key.serialize_pem(), authority.pem())?)
}

fn of_node(authority: &Authority, node: NodeId) -> Result<Identity, Box<dyn Error>> {
    let name = format!("spiffe://bank.example/node/{}", node.get());
    issue(authority, SanType::URI(name.try_into()?))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let nodes = authority()?;
    let bank = Endpoint::builder()
        .transport(GrpcTransport::tls(of_node(&nodes, BANK)?)) // the node its certificate names
        .listen("grpcs://127.0.0.1:0")
        .serve(Service::new().unary(PAY, pay))
        .authorize(rule)
        .start()
        .await?;

    let teller = GrpcTransport::tls(of_node(&nodes, TELLER)?);
    let teller = Endpoint::builder().transport(teller).start().await?;
    let to_bank = teller.peer(BANK, bank.addresses())?;
    let paid = teller.call(PAY, 1_000).to(to_bank).await?;
    assert_eq!(paid, "1000 cents for spiffe://bank.example/node/2");
    let denied = bank.call(PAY, 1_000).to(bank.me()).await.expect_err("it has no certificate");
    assert_eq!(denied.status().map(|status| status.code()), Some(Code::PermissionDenied));

    // The certificate of the host, and the authority of clients: not those of the nodes.
    let shown = issue(&authority()?, SanType::DnsName("localhost".try_into()?))?;
    let edge = GrpcEdge::builder(&bank)
        .tls(shown)
        .client_certificates(ClientCertificates::Required)
        .start("127.0.0.1:0")
        .await?;
    println!("{paid}; clients with certificates call {}", edge.local_addr());

    edge.shutdown(Duration::from_secs(1)).await;
    for endpoint in [teller, bank] {
        endpoint.shutdown(Duration::from_secs(1)).await;
    }
    Ok(())
}
