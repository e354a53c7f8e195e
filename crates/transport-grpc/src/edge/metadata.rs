//! From the headers of a gRPC request to deadline, metadata and trace context, and from the
//! metadata of replies to headers and trailers.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use convoke_core::seam::RequestSeam;
use convoke_core::wire::{Executed, Extension, extension};
use convoke_core::{Metadata, RawMessage, Request};
use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::metadata::{KeyAndValueRef, MetadataMap};
use tonic::{Code, Status};

use super::status;
use crate::headers::{HEADER_BYTES, Header, is_for_service};

pub(super) const TIMEOUT: &str = "grpc-timeout";
const TRACEPARENT: &str = "traceparent";
/// Most headers or trailers of an answer, in bytes: what clients of gRPC take at least.
pub(super) const ANSWER_BYTES_MAX: usize = 8 * 1024;

/// Most headers of a request with its path, in bytes: metadata of 16,000 bytes finds room, of which
/// binary values take a third more. HTTP/2 reads more than these, so that a client is told.
/// Each value of a header of several counts as a header: it becomes a pair.
const REQUEST_BYTES_MAX: usize = 32 * 1024;

/// Checks the headers of a request before anything of them is kept.
pub(super) fn check_size(headers: &HeaderMap, path: &str) -> Result<(), Status> {
    let sizes = headers.iter().map(|(key, value)| {
        let of_each = key.as_str().len() + HEADER_BYTES;
        value.len() + of_each * (1 + further_values(key, value))
    });
    let bytes = path.len() + sizes.sum::<usize>();
    if bytes <= REQUEST_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "headers of {bytes} bytes, with {HEADER_BYTES} for each, are above the limit of \
         {REQUEST_BYTES_MAX} bytes"
    );
    Err(status::own(Code::ResourceExhausted, text, Executed::No))
}

/// Number of values of a header but for its first.
fn further_values(key: &HeaderName, value: &HeaderValue) -> usize {
    let is_binary = key.as_str().ends_with("-bin");
    let commas = || value.as_bytes().iter().filter(|byte| **byte == b',').count();
    if is_binary { commas() } else { 0 }
}

/// Adds what the headers say to a request, up to what finds no room.
pub(super) fn apply(
    headers: &MetadataMap,
    mut request: Request<RawMessage>,
) -> Result<Request<RawMessage>, Status> {
    for pair in headers.iter() {
        request = match pair {
            KeyAndValueRef::Ascii(key, value) => ascii(request, key.as_str(), value.as_bytes())?,
            KeyAndValueRef::Binary(key, value) => {
                binary(request, key.as_str(), value.as_encoded_bytes())?
            }
        };
        if request.is_oversize() {
            break;
        }
    }
    Ok(request)
}

fn ascii(
    request: Request<RawMessage>,
    key: &str,
    value: &[u8],
) -> Result<Request<RawMessage>, Status> {
    Ok(match key {
        TIMEOUT => request.deadline(timeout(value).ok_or_else(|| not_a_timeout(value))?),
        // A context that is none is to be ignored (W3C Trace Context, section 4.3).
        TRACEPARENT => match trace_context(value) {
            Some(value) => {
                request.raw_extension(Extension { tag: extension::TRACE_CONTEXT, value })
            }
            None => request,
        },
        key if is_for_service(key) => request.metadata(key, value),
        _ => request,
    })
}

/// Deadline of a request, if it says one.
pub(super) fn deadline(headers: &HeaderMap) -> Option<Duration> {
    timeout(headers.get(TIMEOUT)?.as_bytes())
}

/// Adds the metadata of a reply or a failure to what leaves with an answer, `beside` bytes of its
/// own. A pair is left out that cannot be a header, that is not a service's to say, or that finds
/// no room.
pub(super) fn append(metadata: Metadata<'_>, to: &mut MetadataMap, beside: usize) {
    let mut pairs = metadata.iter().peekable();
    if pairs.peek().is_some() {
        add(pairs.filter_map(|(key, value)| header_of_service(key, value)), to, beside);
    }
}

/// Adds what earlier replies have left for the end of an answer, as far as there is room.
pub(super) fn merge(from: &MetadataMap, to: &mut MetadataMap, beside: usize) {
    let headers = from.iter().map(|pair| match pair {
        KeyAndValueRef::Ascii(key, value) => Header::Ascii(key.clone(), value.clone()),
        KeyAndValueRef::Binary(key, value) => Header::Binary(key.clone(), value.clone()),
    });
    add(headers, to, beside);
}

fn add(headers: impl Iterator<Item = Header>, to: &mut MetadataMap, beside: usize) {
    let mut bytes = bytes_of(to) + beside;
    for header in headers {
        if bytes + header.bytes() > ANSWER_BYTES_MAX {
            tracing::debug!(bytes, "metadata of a reply left out: an answer takes no more");
            continue;
        }
        bytes += header.bytes();
        header.append_to(to);
    }
}

fn header_of_service(key: &str, value: &[u8]) -> Option<Header> {
    let lower = key.to_ascii_lowercase();
    let is_allowed = is_for_service(&lower) && !lower.starts_with("convoke-");
    let header = Header::of(&lower, value).filter(|_| is_allowed);
    if header.is_none() {
        tracing::debug!(key, "metadata of a reply left out: it cannot be a header of the service");
    }
    header
}

/// Bytes of headers, as HTTP/2 counts them.
pub(super) fn bytes_of(map: &MetadataMap) -> usize {
    let bytes = |pair| match pair {
        KeyAndValueRef::Ascii(key, value) => key.as_str().len() + value.as_encoded_bytes().len(),
        KeyAndValueRef::Binary(key, value) => key.as_str().len() + value.as_encoded_bytes().len(),
    };
    map.iter().map(|pair| bytes(pair) + HEADER_BYTES).sum()
}

/// A header may have several values with commas between them (gRPC over HTTP/2, "Custom-Metadata").
fn binary(
    mut request: Request<RawMessage>,
    key: &str,
    values: &[u8],
) -> Result<Request<RawMessage>, Status> {
    for value in values.split(|byte| *byte == b',').filter(|_| is_for_service(key)) {
        let value = from_base64(value).ok_or_else(|| not_base64(key))?;
        request = request.metadata(key, &value);
        if request.is_oversize() {
            break;
        }
    }
    Ok(request)
}

fn from_base64(value: &[u8]) -> Option<Bytes> {
    const KEY: &str = "value-bin";
    let value = HeaderValue::from_bytes(value.trim_ascii()).ok()?;
    let map = HeaderMap::from_iter([(HeaderName::from_static(KEY), value)]);
    MetadataMap::from_headers(map).get_bin(KEY)?.to_bytes().ok()
}

fn not_base64(key: &str) -> Status {
    let text = format!("the header {key} is binary by its name, but not base64");
    status::own(Code::InvalidArgument, text, Executed::No)
}

fn not_a_timeout(value: &[u8]) -> Status {
    let text = format!("grpc-timeout is \"{}\": expected digits and a unit", value.escape_ascii());
    status::own(Code::InvalidArgument, text, Executed::No)
}

/// At most 8 digits and a unit (gRPC over HTTP/2, "Timeout").
fn timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    let is_number = matches!(digits.len(), 1..=8) && digits.iter().all(u8::is_ascii_digit);
    let number: u64 = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    Some(match unit {
        b'H' => Duration::from_secs(number * 3_600),
        b'M' => Duration::from_secs(number * 60),
        b'S' => Duration::from_secs(number),
        b'm' => Duration::from_millis(number),
        b'u' => Duration::from_micros(number),
        b'n' => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The 25 bytes of a W3C context: trace id, parent id, flags.
///
/// `00-<32 hex>-<16 hex>-<2 hex>`; a later version may have more behind that.
fn trace_context(value: &[u8]) -> Option<Bytes> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.split('-');
    let version = hex(parts.next()?, 1)?;
    let (trace, parent) = (hex(parts.next()?, 16)?, hex(parts.next()?, 8)?);
    let flags = hex(parts.next()?, 1)?;
    let has_rest = parts.next().is_some();
    let is_version_right = version[0] != 0xff && (version[0] != 0 || !has_rest);
    let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    if !is_version_right || is_zero(&trace) || is_zero(&parent) {
        return None;
    }
    let mut context = BytesMut::with_capacity(25);
    [trace, parent, flags].iter().for_each(|part| context.put_slice(part));
    Some(context.freeze())
}

/// Exactly `len` bytes of lower-case hexadecimal digits.
fn hex(text: &str, len: usize) -> Option<Vec<u8>> {
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() != 2 * len || !text.as_bytes().iter().all(is_hex) {
        return None;
    }
    (0..len).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(key: &'static str, value: String) -> HeaderMap {
        let value = value.try_into().expect("it is a value of a header");
        HeaderMap::from_iter([(HeaderName::from_static(key), value)])
    }

    #[test]
    fn each_of_several_values_in_one_header_counts_as_a_header() {
        let refused = check_size(&headers("k-bin", ",".repeat(20_000)), "/a.B/C").unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
        let text = headers("k", ",".repeat(20_000));
        assert!(check_size(&text, "/a.B/C").is_ok(), "in a text a comma is a comma");
        let few = headers("k-bin", ",".repeat(800));
        assert!(check_size(&few, "/a.B/C").is_ok());
    }

    /// What follows is not looked at, as the end shows: it is not base64.
    #[test]
    fn no_value_is_read_behind_one_that_finds_no_room() {
        let headers = headers("k-bin", ",".repeat(20_000) + "!");
        let request = Request::raw("a.B/C", Bytes::new());
        let applied = apply(&MetadataMap::from_headers(headers), request);
        assert!(applied.expect("the call says it").is_oversize());
    }

    #[test]
    fn timeouts_have_at_most_eight_digits_and_a_unit() {
        let cases = [
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("99999999m", Some(Duration::from_millis(99_999_999))),
            ("5u", Some(Duration::from_micros(5))),
            ("0n", Some(Duration::ZERO)),
            ("", None),
            ("S", None),
            ("1", None),
            ("+1S", None),
            ("123456789S", None),
            ("1s", None),
        ];
        for (text, expected) in cases {
            assert_eq!(timeout(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_trace_context_is_taken_apart_or_ignored() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let context = trace_context(good.as_bytes()).unwrap();
        assert_eq!((context.len(), context[0], context[16], context[24]), (25, 0x0a, 0xb7, 1));
        let later = good.replacen("00", "cc", 1) + "-more";
        assert_eq!(trace_context(later.as_bytes()), Some(context));
        let bad = [
            format!("{good}-more"),
            good.replacen("00", "ff", 1),
            good.to_uppercase(),
            good.replace("0af7651916cd43dd8448eb211c80319c", &"0".repeat(32)),
            good.replace("b7ad6b7169203331", &"0".repeat(16)),
            good[..54].to_owned(),
            "ü".repeat(30),
        ];
        for text in bad {
            assert_eq!(trace_context(text.as_bytes()), None, "{text}");
        }
    }
}
