//! Peers that speak TLS as they like, with rustls and blocking sockets.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use bytes::BufMut;
use convoke_transport::Address;
use convoke_transport::conformance::PATIENCE;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::certificates::Issued;
use crate::credulous::client_config;

pub(crate) type RawClient = StreamOwned<ClientConnection, TcpStream>;

/// Connects and does what the test wants, beside the runtime.
pub(crate) async fn attack<T: Send + 'static>(
    address: &Address,
    issued: Option<Issued>,
    act: impl FnOnce(&mut RawClient) -> T + Send + 'static,
) -> T {
    let address = address.rest().to_owned();
    let attacked =
        tokio::task::spawn_blocking(move || act(&mut connect(&address, issued.as_ref())));
    attacked.await.expect("the attack does not panic")
}

/// Connects; blocks.
pub(crate) fn connect(address: &str, issued: Option<&Issued>) -> RawClient {
    let socket = TcpStream::connect(address).expect("the victim listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("it is not zero");
    let name = ServerName::try_from("victim").expect("it is a name");
    let client = ClientConnection::new(Arc::new(client_config(issued, None)), name);
    StreamOwned::new(client.expect("the settings are legal"), socket)
}

/// Sends `bytes` within TLS and answers what comes until the end, or why it ended.
pub(crate) fn say(raw: &mut RawClient, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let said = |error: io::Error| error.to_string();
    raw.write_all(bytes).map_err(said)?;
    let mut heard = Vec::new();
    raw.read_to_end(&mut heard).map_err(said)?;
    Ok(heard)
}

/// The hello of a node with the usual limits.
pub(crate) fn hello(node: u64) -> Vec<u8> {
    hello_with(node, &[])
}

/// The same with more behind it.
pub(crate) fn hello_with(node: u64, more: &[u8]) -> Vec<u8> {
    let mut message = b"\x93convoke\x01\0\0\0".to_vec();
    message.put_u16_le(u16::try_from(45 + more.len()).expect("test hellos are short"));
    for number in [node, 1, 12_345] {
        message.put_u64_le(number);
    }
    for limit in [1 << 20, 64 << 10, 64 << 10, 1 << 20, 10_000] {
        message.put_u32_le(limit);
    }
    message.put_u8(0);
    message.put_slice(more);
    message
}
