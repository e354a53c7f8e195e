//! Hello of the two ends as a protobuf message, so that later versions can add fields.

use std::time::Duration;

use bytes::Bytes;
use convoke_transport::Hello;
use convoke_transport::id::{Incarnation, NodeId};
use convoke_transport::parts::{ADDRESSES_MAX, BODY_BYTES_MAX, Greeting, HelloError, dialable};
use prost::Message;

use crate::config::MESSAGE_BYTES_MIN;

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

/// The message. Of the limits of chunks and windows only the first has a place in it, as that of
/// messages.
pub(crate) fn encode(greeting: &Greeting) -> Bytes {
    let advertised = greeting.hello.advertised.iter().take(ADDRESSES_MAX);
    let timeout_ms = u32::try_from(greeting.keep_alive_timeout.as_millis());
    let wire = Wire {
        version: VERSION,
        node: greeting.hello.node.get(),
        incarnation: greeting.hello.incarnation.0,
        random: greeting.random,
        frame_bytes_max: greeting.hello.frame_bytes_max,
        message_bytes_max: greeting.chunk_bytes_max,
        keep_alive_timeout_ms: timeout_ms.unwrap_or(u32::MAX),
        advertised: advertised.map(|address| address.as_str().to_owned()).collect(),
    };
    wire.encode_to_vec().into()
}

pub(crate) fn decode(message: Bytes) -> Result<Greeting, HelloError> {
    use HelloError::Malformed;
    if message.len() > usize::from(BODY_BYTES_MAX) {
        return Err(Malformed("it is too long"));
    }
    let wire = Wire::decode(message).map_err(|_| Malformed("it is not a protobuf message"))?;
    if wire.version != VERSION {
        return Err(HelloError::Version(u16::try_from(wire.version).unwrap_or(u16::MAX)));
    }
    if wire.message_bytes_max < MESSAGE_BYTES_MIN {
        return Err(Malformed("its messages are too small"));
    }
    if wire.advertised.len() > ADDRESSES_MAX {
        return Err(Malformed("it advertises too many addresses"));
    }
    let addresses = wire.advertised.iter().map(|text| dialable(text));
    let hello = Hello {
        node: NodeId::try_from(wire.node).map_err(|_| Malformed("its node id is zero"))?,
        incarnation: Incarnation(wire.incarnation),
        advertised: addresses.collect::<Result<_, _>>()?,
        frame_bytes_max: wire.frame_bytes_max,
    };
    let greeting = Greeting {
        hello,
        random: wire.random,
        chunk_bytes_max: wire.message_bytes_max,
        // Those of HTTP/2.
        control_window: u32::MAX,
        data_window: u32::MAX,
        keep_alive_timeout: Duration::from_millis(wire.keep_alive_timeout_ms.into()),
        flow: None,
    };
    greeting.checked()
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
            chunk_bytes_max: 256 << 10,
            control_window: u32::MAX,
            data_window: u32::MAX,
            keep_alive_timeout: Duration::from_secs(10),
            flow: None,
        }
    }

    #[test]
    fn a_greeting_survives_the_wire() {
        assert_eq!(decode(encode(&greeting())), Ok(greeting()));
    }

    #[test]
    fn the_largest_greeting_fits() {
        let mut large = greeting();
        let longest = format!("grpc://{}", "x".repeat(248)).parse().unwrap();
        large.hello.advertised = vec![longest; ADDRESSES_MAX];
        assert_eq!(decode(encode(&large)), Ok(large));
    }

    #[test]
    fn another_version_is_told_apart_from_garbage() {
        let later = Wire { version: 2, ..Wire::default() };
        let decoded = decode(later.encode_to_vec().into());
        assert_eq!(decoded, Err(HelloError::Version(2)));
        let garbage = decode(Bytes::from_static(b"GET / HTTP/1.1"));
        assert!(matches!(garbage, Err(HelloError::Malformed(_))), "{garbage:?}");
        let long = decode(vec![0; usize::from(BODY_BYTES_MAX) + 1].into());
        assert_eq!(long, Err(HelloError::Malformed("it is too long")));
    }

    #[test]
    fn limits_nobody_can_work_with_are_refused() {
        let spoil: [fn(&mut Greeting); 4] = [
            |greeting| greeting.chunk_bytes_max = MESSAGE_BYTES_MIN - 1,
            |greeting| greeting.hello.frame_bytes_max = 0,
            |greeting| greeting.keep_alive_timeout = Duration::ZERO,
            |greeting| greeting.hello.advertised = vec!["grpc://0.0.0.0:1".parse().unwrap()],
        ];
        for spoil in spoil {
            let mut spoilt = greeting();
            spoil(&mut spoilt);
            let decoded = decode(encode(&spoilt));
            assert!(matches!(decoded, Err(HelloError::Malformed(_))), "{decoded:?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_greeting_or_refused(
            message in prop::collection::vec(any::<u8>(), 0..600),
        ) {
            if let Ok(greeting) = decode(message.into()) {
                prop_assert_eq!(decode(encode(&greeting)), Ok(greeting));
            }
        }
    }
}
