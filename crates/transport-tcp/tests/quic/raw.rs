//! A peer without manners: QUIC with a good certificate, and any bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::BufMut;
use convoke_transport::Address;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, Endpoint, RecvStream, SendStream};

use crate::certificates::Issued;
use crate::credulous;

/// A QUIC connection and the streams of its lanes.
pub(crate) struct Raw {
    pub(crate) quic: Connection,
    pub(crate) control: (SendStream, RecvStream),
    pub(crate) data: (SendStream, RecvStream),
    endpoint: Endpoint,
}

pub(crate) fn socket(address: &Address) -> SocketAddr {
    address.rest().parse().expect("a listener's address is a socket's")
}

impl Raw {
    /// Connects and opens the lanes, without a word.
    pub(crate) async fn connect(to: &Address, issued: &Issued) -> Self {
        Self::connect_with(to, Some(issued)).await
    }

    /// The same with any certificate, or none.
    pub(crate) async fn connect_with(to: &Address, issued: Option<&Issued>) -> Self {
        let mut endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a port is free");
        endpoint.set_default_client_config(client_config(issued, b"convoke/1"));
        let connecting = endpoint.connect(socket(to), "any").expect("the address is good");
        let quic = connecting.await.expect("the other end accepts QUIC");
        let control = quic.open_bi().await.expect("there is credit for the lanes");
        let data = quic.open_bi().await.expect("there is credit for the lanes");
        Self { quic, control, data, endpoint }
    }

    /// The same, and says a good hello as `node`.
    pub(crate) async fn hello(to: &Address, issued: &Issued, node: u64) -> Self {
        let mut raw = Self::connect(to, issued).await;
        raw.control.0.write_all(&hello(node)).await.expect("it is open");
        raw.data.0.write_all(&[0]).await.expect("it is open");
        let mut envelope = [0; 14];
        raw.control.1.read_exact(&mut envelope).await.expect("the hello is answered");
        assert_eq!(envelope[..8], *b"\x93convoke");
        raw
    }

    /// Closes the connection. The other end has been told.
    pub(crate) async fn leave(self) {
        self.quic.close(0u32.into(), b"");
        self.endpoint.wait_idle().await;
    }

    /// Writes to the data lane.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.data.0.write_all(bytes).await.expect("it is open");
    }

    /// With what text the other end closes, empty for none.
    pub(crate) async fn told(&self) -> String {
        match self.quic.closed().await {
            quinn::ConnectionError::ApplicationClosed(close) => {
                String::from_utf8_lossy(&close.reason).into_owned()
            }
            _ => String::new(),
        }
    }

    /// With what text the other end closes.
    pub(crate) async fn close_text(&self) -> String {
        match self.quic.closed().await {
            quinn::ConnectionError::ApplicationClosed(close) => {
                String::from_utf8_lossy(&close.reason).into_owned()
            }
            other => panic!("expected a close with a text, not {other}"),
        }
    }
}

/// A hello of version 1.
pub(crate) fn hello(node: u64) -> Vec<u8> {
    let mut body = Vec::new();
    for number in [node, 1, 99] {
        body.put_u64_le(number);
    }
    for number in [1 << 20, 64 << 10, 1 << 20, 1 << 20, 10_000] {
        body.put_u32_le(number);
    }
    body.put_u8(0);
    let mut message = b"\x93convoke\x01\0\0\0".to_vec();
    message.put_u16_le(u16::try_from(body.len()).expect("it is short"));
    message.extend(body);
    message
}

/// The word before a frame (kind 0), a large frame (1) or a goodbye (2).
pub(crate) fn word(kind: u32, len: usize) -> [u8; 4] {
    (kind << 30 | u32::try_from(len).expect("tests use short frames")).to_le_bytes()
}

pub(crate) fn client_config(issued: Option<&Issued>, protocol: &[u8]) -> ClientConfig {
    let tls = credulous::client_config(issued, Some(protocol));
    let tls = QuicClientConfig::try_from(tls).expect("ring has the initial suite");
    ClientConfig::new(Arc::new(tls))
}
