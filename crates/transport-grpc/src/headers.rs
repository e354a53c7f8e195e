//! A pair of metadata as a header or trailer of gRPC.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use tonic::metadata::{
    Ascii, AsciiMetadataKey, Binary, BinaryMetadataKey, MetadataMap, MetadataValue,
};

/// Bytes charged for a header besides its name and value (RFC 9113, section 6.5.2).
pub(crate) const HEADER_BYTES: usize = 32;

/// Headers that belong to HTTP and gRPC: they say nothing to a service, nor does it say them.
const HOP_BY_HOP: [&str; 13] = [
    "te",
    "content-type",
    "content-length",
    "content-encoding",
    "user-agent",
    "connection",
    "keep-alive",
    "proxy-connection",
    "host",
    "accept-encoding",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// True when a key in lower case may be metadata of a service.
pub(crate) fn is_for_service(key: &str) -> bool {
    !key.starts_with("grpc-") && !HOP_BY_HOP.contains(&key)
}

/// True for the content type of gRPC, with a format or parameters behind it. gRPC-Web is another
/// protocol.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let found = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    let rest = found.and_then(|found| found.strip_prefix(b"application/grpc"));
    rest.is_some_and(|rest| matches!(rest.first(), None | Some(b'+' | b';')))
}

/// A pair that gRPC can carry.
pub(crate) enum Header {
    Ascii(AsciiMetadataKey, MetadataValue<Ascii>),
    Binary(BinaryMetadataKey, MetadataValue<Binary>),
}

impl Header {
    /// The header for a pair: a key that ends in `-bin` may have any bytes, others printable ASCII,
    /// which goes without the spaces at its ends: HTTP/2 has none there (RFC 9113, section 8.2.1).
    pub(crate) fn of(key: &str, value: &[u8]) -> Option<Self> {
        if key.ends_with("-bin") {
            let key = BinaryMetadataKey::from_bytes(key.as_bytes()).ok()?;
            return Some(Self::Binary(key, MetadataValue::from_bytes(value)));
        }
        let key = AsciiMetadataKey::from_bytes(key.as_bytes()).ok()?;
        let is_printable = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
        let value = MetadataValue::try_from(value.trim_ascii()).ok().filter(|_| is_printable)?;
        Some(Self::Ascii(key, value))
    }

    /// Adds it behind those of the same key.
    pub(crate) fn append_to(self, map: &mut MetadataMap) {
        match self {
            Self::Ascii(key, value) => drop(map.append(key, value)),
            Self::Binary(key, value) => drop(map.append_bin(key, value)),
        }
    }

    /// Its bytes, as HTTP/2 counts them.
    pub(crate) fn bytes(&self) -> usize {
        let (key, value) = match self {
            Self::Ascii(key, value) => (key.as_str(), value.as_encoded_bytes()),
            Self::Binary(key, value) => (key.as_str(), value.as_encoded_bytes()),
        };
        key.len() + value.len() + HEADER_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_grpc_itself_are_not_metadata() {
        assert!(is_for_service("tenant") && is_for_service("tenant-bin"));
        assert!(!is_for_service("grpc-encoding") && !is_for_service("te"));
    }

    /// With them a message is malformed (RFC 9113, section 8.2.1), and its stream is reset.
    #[test]
    fn text_goes_without_the_spaces_at_its_ends() {
        let sent = |key, value: &str| match Header::of(key, value.as_bytes())? {
            Header::Ascii(_, value) => Some(value.as_bytes().to_vec()),
            Header::Binary(_, value) => value.to_bytes().ok().map(|value| value.to_vec()),
        };
        let cases = [(" a  b ", "a  b"), ("a ", "a"), (" a", "a"), ("  ", ""), ("", "")];
        for (value, left) in cases {
            assert_eq!(sent("k", value), Some(left.into()), "{value:?}");
            assert_eq!(sent("k-bin", value), Some(value.into()), "{value:?}");
        }
        assert_eq!(sent("k", "\ta"), None);
    }
}
