//! `quinn-1stream` and `quinn-stream-per-request`: frames over bare QUIC, all on one stream, or
//! each request on a stream of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use bytes::{Bytes, BytesMut};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Connection, Endpoint, Incoming, ServerConfig};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::TLS13;

use super::frames::{FramePipe, HEADER_BYTES, answer, first_frame, put_frame};
use crate::bench::{Bench, ITEMS};
use crate::bencher::{Bencher, Sample};
use crate::control::Control;
use crate::drive::{Client, Work};

const ANYWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// The name in the certificate.
const NAME: &str = "localhost";
const PROTOCOL: &[u8] = b"compare";

/// Answers every stream of every connection.
pub(crate) async fn serve(control: Control) -> Result<()> {
    let certified = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    let certificate = certified.cert.der().clone();
    let endpoint = Endpoint::server(server_config(&certified)?, ANYWHERE)?;
    control.listening(&address(endpoint.local_addr()?, &certificate))?;
    while let Some(incoming) = endpoint.accept().await {
        // It ends when the client does, however that looks from here.
        tokio::spawn(connection(incoming));
    }
    Ok(())
}

async fn connection(incoming: Incoming) -> Result<()> {
    let connection = incoming.await?;
    loop {
        let (output, input) = connection.accept_bi().await?;
        tokio::spawn(answer(input, output));
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

fn server_config(certified: &rcgen::CertifiedKey<rcgen::KeyPair>) -> Result<ServerConfig> {
    let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der());
    let key = key.ok().context("the key is one that was just made")?;
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)?;
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls)?)))
}

fn client_config(certificate: CertificateDer<'static>) -> Result<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certificate)?;
    let mut tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls)?)))
}

/// Address to connect to and certificate to trust there, in one word: `ADDRESS/CERTIFICATE`.
fn address(at: SocketAddr, certificate: &[u8]) -> String {
    let hex: String = certificate.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{at}/{hex}")
}

fn parse_address(address: &str) -> Result<(SocketAddr, CertificateDer<'static>)> {
    let (at, hex) = address.split_once('/').context("an address and a certificate")?;
    let bytes =
        (0..hex.len() / 2).map(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16));
    let bytes: Vec<u8> = bytes.collect::<Result<_, _>>()?;
    Ok((at.parse()?, bytes.into()))
}

async fn connect(address: &str) -> Result<(Endpoint, Connection)> {
    let (at, certificate) = parse_address(address)?;
    let mut endpoint = Endpoint::client(ANYWHERE)?;
    endpoint.set_default_client_config(client_config(certificate)?);
    let connection = endpoint.connect(at, NAME)?.await?;
    Ok((endpoint, connection))
}

/// Keeps one stream busy.
pub(crate) async fn measure_one_stream(bencher: Bencher<'_>) -> Result<Sample> {
    let (_endpoint, connection) = connect(&bencher.servers.addresses()[0]).await?;
    let (output, input) = connection.open_bi().await?;
    let items = if bencher.work.bench == Bench::StreamItems { ITEMS } else { 0 };
    let payload = bencher.work.payload.clone();
    bencher.windowed(FramePipe::new(input, output, payload, items)).await
}

/// Keeps callers busy, each with a new stream for every request.
pub(crate) async fn measure_stream_per_request(bencher: Bencher<'_>) -> Result<Sample> {
    let (_endpoint, connection) = connect(&bencher.servers.addresses()[0]).await?;
    let mut frame = BytesMut::new();
    put_frame(&mut frame, 0, 0, &bencher.work.payload);
    bencher.closed_loop(Caller { connection, frame: frame.freeze() }).await
}

#[derive(Clone, Debug)]
struct Caller {
    connection: Connection,
    frame: Bytes,
}

impl Client for Caller {
    async fn operate(&self, work: &Work) -> Result<()> {
        let (mut output, mut input) = self.connection.open_bi().await?;
        output.write_chunk(self.frame.clone()).await?;
        output.finish()?;
        let reply = input.read_to_end(self.frame.len()).await?;
        let whole = first_frame(&reply).map(|(len, ..)| len);
        ensure!(whole == Some(HEADER_BYTES + work.payload.len()), "a reply of {whole:?} bytes");
        Ok(())
    }
}
