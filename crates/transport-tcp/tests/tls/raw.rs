//! Peers that speak TLS as they like, with rustls and blocking sockets.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use convoke_transport::Address;
use convoke_transport::conformance::PATIENCE;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::certificates::Issued;
use crate::credulous::client_config;
pub(crate) use crate::wire::{hello, hello_with};

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
