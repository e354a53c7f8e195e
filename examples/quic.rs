//! QUIC: small calls pass a large one on the same connection, and calls go on while their node
//! moves to another network address.
//!
//! ```sh
//! cargo run --features quic --example quic
//! ```

use std::error::Error;
use std::future::IntoFuture;
use std::time::Duration;

use convoke::transport::{Identity, QuicTransport};
use convoke::{Context, Endpoint, Method, Service, Status};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};

const COUNT: Method<Vec<u8>, u64> = Method::new("store.Store/Count").read_only();

type Authority = CertifiedIssuer<'static, KeyPair>;

fn authority() -> Result<Authority, rcgen::Error> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

/// Identity of a node, and the authority that it trusts; `docs/tls.md` has more on both.
fn identity(authority: &Authority, node: u64) -> Result<Identity, Box<dyn Error>> {
    let mut params = CertificateParams::default();
    let name = format!("spiffe://store.example/node/{node}");
    params.subject_alt_names.push(SanType::URI(name.try_into()?));
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    Ok(Identity::from_pem(certificate.pem(), key.serialize_pem(), authority.pem())?)
}

async fn count(bytes: Vec<u8>, _: Context) -> Result<u64, Status> {
    Ok(bytes.len() as u64)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let authority = authority()?;
    let store = Endpoint::builder()
        .transport(QuicTransport::new(identity(&authority, 1)?))
        .listen("quic://127.0.0.1:0")
        .serve(Service::new().unary(COUNT, count))
        .start()
        .await?;
    let address = store.addresses()[0].to_string();
    println!("{} listens at {address}", store.node());

    // A transport of one's own, for other settings, and to move it.
    let identity = identity(&authority, 2)?;
    let node = identity.node();
    let quic = QuicTransport::builder(identity)
        .keep_alive_timeout(Duration::from_secs(5)) // of the connection; it sends after a third of it
        .window_bytes(4 << 20) // for a fast and long path
        .build()?;
    let client = Endpoint::builder().node(node).transport(quic.clone()).start().await?;
    let to_store = client.connect(&address).await?;

    // The large request goes over a stream of its own; the small one does not wait for it.
    let large = client.call(COUNT, vec![0; 3 << 20]).to(to_store);
    let small = client.call(COUNT, vec![0; 100]).to(to_store);
    let (large, small) = tokio::join!(large.into_future(), small.into_future());
    assert_eq!((large?, small?), (3 << 20, 100));

    // The laptop leaves the office: the same connection, from another port.
    for moved in quic.rebind()? {
        println!("now at {moved}");
    }
    let again = client.call(COUNT, vec![0; 10]).to(to_store).await?;
    assert_eq!(again, 10);

    client.shutdown(Duration::from_secs(5)).await;
    store.shutdown(Duration::from_secs(5)).await;
    Ok(())
}
