//! Hello of the two ends: the first message in either direction.
//!
//! A protobuf message, so that later versions can add fields. The dialler speaks first; the other
//! end asks its sink, and answers with its own hello or a gRPC status that says why not.

use std::time::Duration;

use bytes::Bytes;
use convoke_transport::id::{Incarnation, NodeId};
use convoke_transport::{Address, Hello};
use prost::Message;

use crate::send_queue::MESSAGE_BYTES_MIN;
use convoke_transport::sockets;

/// The path of the method whose stream carries frames.
pub(crate) const PATH: &str = "/convoke.transport.v1.Transport/Frames";
/// Longest hello; one with 16 longest addresses takes 4,200 bytes.
const HELLO_BYTES_MAX: usize = 8 * 1024;
/// Most advertised addresses of one node; more are left out.
const ADDRESSES_MAX: usize = 16;
/// Smallest keep-alive timeout; a peer must not be able to ask for a flood of keep-alives.
pub(crate) const KEEP_ALIVE_TIMEOUT_MIN: Duration = Duration::from_millis(100);
const VERSION: u32 = 1;

#[derive(Clone, PartialEq, prost::Message)]
struct Wire {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(fixed64, tag = "2")]
    node: u64,
    #[prost(fixed64, tag = "3")]
    incarnation: u64,
    #[prost(fixed64, tag = "4")]
    random: u64,
    #[prost(uint32, tag = "5")]
    frame_bytes_max: u32,
    #[prost(uint32, tag = "6")]
    message_bytes_max: u32,
    #[prost(uint32, tag = "7")]
    keep_alive_timeout_ms: u32,
    #[prost(string, repeated, tag = "8")]
    advertised: Vec<String>,
}

/// Reason why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HelloError {
    #[error("version {VERSION} of convoke over gRPC is spoken here, not version {0}")]
    Version(u32),
    #[error("the hello is malformed: {0}")]
    Malformed(&'static str),
}

/// A hello and what only the transport needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) hello: Hello,
    /// This end's half of the connection's name.
    pub(crate) random: u64,
    /// The largest message it takes.
    pub(crate) message_bytes_max: u32,
    /// After this long without a message the sender of the greeting gives up.
    pub(crate) keep_alive_timeout: Duration,
}

impl Greeting {
    pub(crate) fn encode(&self) -> Bytes {
        let advertised = self.hello.advertised.iter().take(ADDRESSES_MAX);
        let wire = Wire {
            version: VERSION,
            node: self.hello.node.get(),
            incarnation: self.hello.incarnation.0,
            random: self.random,
            frame_bytes_max: self.hello.frame_bytes_max,
            message_bytes_max: self.message_bytes_max,
            keep_alive_timeout_ms: u32::try_from(self.keep_alive_timeout.as_millis())
                .unwrap_or(u32::MAX),
            advertised: advertised.map(|address| address.as_str().to_owned()).collect(),
        };
        wire.encode_to_vec().into()
    }

    pub(crate) fn decode(message: Bytes) -> Result<Self, HelloError> {
        use HelloError::Malformed;
        if message.len() > HELLO_BYTES_MAX {
            return Err(Malformed("it is too long"));
        }
        let wire = Wire::decode(message).map_err(|_| Malformed("it is not a protobuf message"))?;
        if wire.version != VERSION {
            return Err(HelloError::Version(wire.version));
        }
        let node = NodeId::try_from(wire.node).map_err(|_| Malformed("its node id is zero"))?;
        let keep_alive_timeout = Duration::from_millis(wire.keep_alive_timeout_ms.into());
        if wire.frame_bytes_max == 0 {
            return Err(Malformed("it takes no frames"));
        }
        if wire.message_bytes_max < MESSAGE_BYTES_MIN {
            return Err(Malformed("its messages are too small"));
        }
        if keep_alive_timeout < KEEP_ALIVE_TIMEOUT_MIN {
            return Err(Malformed("its keep-alive timeout is too short"));
        }
        let hello = Hello {
            node,
            incarnation: Incarnation(wire.incarnation),
            advertised: decode_addresses(&wire.advertised)?,
            frame_bytes_max: wire.frame_bytes_max,
        };
        let (random, message_bytes_max) = (wire.random, wire.message_bytes_max);
        Ok(Self { hello, random, message_bytes_max, keep_alive_timeout })
    }
}

fn decode_addresses(texts: &[String]) -> Result<Vec<Address>, HelloError> {
    if texts.len() > ADDRESSES_MAX {
        return Err(HelloError::Malformed("it advertises too many addresses"));
    }
    let decode = |text: &String| {
        let address = text.parse().ok()?;
        sockets::unspecified(&address).is_none().then_some(address)
    };
    let addresses: Option<_> = texts.iter().map(decode).collect();
    addresses.ok_or(HelloError::Malformed("it advertises an address nobody can dial"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn greeting() -> Greeting {
        Greeting {
            hello: Hello {
                node: NodeId::new(7),
                incarnation: Incarnation(0x1122),
                advertised: vec!["grpc://10.0.0.1:7000".parse().unwrap()],
                frame_bytes_max: 4 << 20,
            },
            random: 99,
            message_bytes_max: 256 << 10,
            keep_alive_timeout: Duration::from_secs(10),
        }
    }

    #[test]
    fn a_greeting_survives_the_wire() {
        assert_eq!(Greeting::decode(greeting().encode()), Ok(greeting()));
    }

    #[test]
    fn the_largest_greeting_fits() {
        let mut large = greeting();
        let longest = format!("grpc://{}", "x".repeat(248)).parse().unwrap();
        large.hello.advertised = vec![longest; ADDRESSES_MAX];
        assert_eq!(Greeting::decode(large.encode()), Ok(large));
    }

    #[test]
    fn another_version_is_told_apart_from_garbage() {
        let later = Wire { version: 2, ..Wire::default() };
        let decoded = Greeting::decode(later.encode_to_vec().into());
        assert_eq!(decoded, Err(HelloError::Version(2)));
        let garbage = Greeting::decode(Bytes::from_static(b"GET / HTTP/1.1"));
        assert!(matches!(garbage, Err(HelloError::Malformed(_))), "{garbage:?}");
        let long = Greeting::decode(vec![0; HELLO_BYTES_MAX + 1].into());
        assert_eq!(long, Err(HelloError::Malformed("it is too long")));
    }

    #[test]
    fn limits_nobody_can_work_with_are_refused() {
        let spoil: [fn(&mut Greeting); 4] = [
            |greeting| greeting.message_bytes_max = MESSAGE_BYTES_MIN - 1,
            |greeting| greeting.hello.frame_bytes_max = 0,
            |greeting| greeting.keep_alive_timeout = Duration::ZERO,
            |greeting| greeting.hello.advertised = vec!["grpc://0.0.0.0:1".parse().unwrap()],
        ];
        for spoil in spoil {
            let mut spoilt = greeting();
            spoil(&mut spoilt);
            let decoded = Greeting::decode(spoilt.encode());
            assert!(matches!(decoded, Err(HelloError::Malformed(_))), "{decoded:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_greeting_or_refused(message in prop::collection::vec(any::<u8>(), 0..600)) {
            if let Ok(greeting) = Greeting::decode(message.into()) {
                prop_assert_eq!(Greeting::decode(greeting.encode()), Ok(greeting));
            }
        }
    }
}
