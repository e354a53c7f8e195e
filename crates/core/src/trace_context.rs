//! W3C trace context: which trace a request belongs to, and the span that caused it.
//!
//! It travels in every request of a tree as an extension of 25 bytes and is handed on by each task,
//! whether or not that node records spans.

use std::fmt;
use std::str::FromStr;

use convoke_proto::wire::{Extension, extension};
use convoke_transport::parts::random;

use crate::method::Request;

/// A position in a distributed trace, as the header `traceparent` of W3C Trace Context has it.
///
/// ```
/// use convoke_core::TraceContext;
///
/// let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
/// let context: TraceContext = header.parse()?;
/// assert!(context.is_sampled());
/// assert_eq!(context.to_string(), header);
/// assert_eq!(context.child().trace_id(), context.trace_id());
/// # Ok::<(), convoke_core::TraceContextError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: u128,
    span_id: u64,
    flags: u8,
}

/// A text or bytes that are no trace context: of another form, or with an id of zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no trace context: expected 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, ids not zero"
)]
pub struct TraceContextError;

/// Somebody up the trace records it.
const SAMPLED: u8 = 0x01;

/// The flags that have a meaning: sampled, and random trace id. The others are zero on their way
/// on.
const FLAGS: u8 = 0x03;

impl TraceContext {
    /// Bytes on the wire: trace id, span id, flags, the numbers in network order.
    pub const LEN: usize = 25;

    /// The context with these ids; flags without a meaning are dropped.
    ///
    /// # Errors
    /// [`TraceContextError`] when an id is zero.
    pub fn new(trace_id: u128, span_id: u64, flags: u8) -> Result<Self, TraceContextError> {
        if trace_id == 0 || span_id == 0 {
            return Err(TraceContextError);
        }
        Ok(Self { trace_id, span_id, flags: flags & FLAGS })
    }

    /// The first span of a new trace, sampled, with random ids.
    pub fn root() -> Self {
        let trace_id = (u128::from(random()) << 64) | u128::from(random_span());
        Self { trace_id, span_id: random_span(), flags: FLAGS }
    }

    /// Another span of the same trace, with a random id.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span_id: random_span(), ..*self }
    }

    /// Name of the trace.
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// Name of the span in it: the parent of what the receiver does.
    pub fn span_id(&self) -> u64 {
        self.span_id
    }

    /// The trace flags.
    pub fn flags(&self) -> u8 {
        self.flags
    }

    /// True when somebody up the trace records it.
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// As it travels.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.trace_id.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.span_id.to_be_bytes());
        bytes[24] = self.flags;
        bytes
    }

    /// From what travelled.
    ///
    /// # Errors
    /// [`TraceContextError`] unless it is [`Self::LEN`] bytes with ids that are not zero.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TraceContextError> {
        let (trace_id, rest) = bytes.split_first_chunk().ok_or(TraceContextError)?;
        let (span_id, rest) = rest.split_first_chunk().ok_or(TraceContextError)?;
        let &[flags] = rest else { return Err(TraceContextError) };
        Self::new(u128::from_be_bytes(*trace_id), u64::from_be_bytes(*span_id), flags)
    }

    pub(crate) fn among(extensions: &[Extension]) -> Option<Self> {
        let own = extensions.iter().find(|extension| extension.tag == extension::TRACE_CONTEXT)?;
        Self::from_bytes(&own.value).ok()
    }

    pub(crate) fn to_extension(self) -> Extension {
        let value = bytes::Bytes::copy_from_slice(&self.to_bytes());
        Extension { tag: extension::TRACE_CONTEXT, value }
    }
}

fn random_span() -> u64 {
    random().max(1)
}

/// The header `traceparent`, version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

impl fmt::Debug for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads the header `traceparent`. Of a later version the parts that this one knows are taken, as
/// its section 4.3 asks.
impl FromStr for TraceContext {
    type Err = TraceContextError;

    fn from_str(text: &str) -> Result<Self, TraceContextError> {
        let mut fields = text.split('-');
        let mut field = |len: usize| {
            let digits = fields.next().filter(|field| field.len() == len)?;
            let is_hex = digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
            is_hex.then(|| u128::from_str_radix(digits, 16).ok())?
        };
        let all = [field(2), field(32), field(16), field(2)];
        let [Some(version), Some(trace_id), Some(span_id), Some(flags)] = all else {
            return Err(TraceContextError);
        };
        let has_more = fields.next().is_some();
        if version == 0xff || (version == 0 && has_more) {
            return Err(TraceContextError);
        }
        let span_id = u64::try_from(span_id).map_err(|_| TraceContextError)?;
        let flags = u8::try_from(flags).map_err(|_| TraceContextError)?;
        Self::new(trace_id, span_id, flags)
    }
}

impl<Resp> Request<Resp> {
    /// Makes the request part of a trace: the span of this context caused it. All tasks below hand
    /// it on. Default: that of the handler whose task delegates it; for a call, that of the span
    /// around it if the endpoint records spans, else none.
    #[must_use]
    pub fn trace_context(mut self, context: TraceContext) -> Self {
        self.root.extensions.retain(|extension| extension.tag != extension::TRACE_CONTEXT);
        self.root.extensions.push(context.to_extension());
        self
    }

    /// Makes it part of a trace, unless it is of one already.
    pub(crate) fn join_trace(&mut self, context: TraceContext) {
        if TraceContext::among(&self.root.extensions).is_none() {
            self.root.extensions.push(context.to_extension());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_and_written_as_the_standard_has_it() {
        let context: TraceContext = HEADER.parse().unwrap();
        assert_eq!(context.trace_id(), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!(context.span_id(), 0x00f0_67aa_0ba9_02b7);
        assert!(context.is_sampled());
        assert_eq!(context.to_string(), HEADER);
    }

    #[test]
    fn a_header_of_another_form_is_refused() {
        let wrong = [
            "",
            "00",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "0x-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ];
        for text in wrong {
            assert_eq!(text.parse::<TraceContext>(), Err(TraceContextError), "{text}");
        }
    }

    #[test]
    fn a_header_of_a_later_version_is_read_as_far_as_it_is_known() {
        let later =
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff-what-the-future-will-be";
        let context: TraceContext = later.parse().unwrap();
        assert_eq!(context.flags(), 0x03, "flags without a meaning are dropped");
        assert!(context.to_string().starts_with("00-4bf9"));
    }

    #[test]
    fn bytes_are_the_header_without_the_text() {
        let context: TraceContext = HEADER.parse().unwrap();
        let bytes = context.to_bytes();
        assert_eq!(&bytes[..4], b"\x4b\xf9\x2f\x35");
        assert_eq!(&bytes[16..], b"\x00\xf0\x67\xaa\x0b\xa9\x02\xb7\x01");
        assert_eq!(TraceContext::from_bytes(&bytes), Ok(context));
        assert_eq!(TraceContext::from_bytes(&bytes[1..]), Err(TraceContextError));
        assert_eq!(TraceContext::from_bytes(&[0; 25]), Err(TraceContextError));
        assert_eq!(TraceContext::from_bytes(&[1; 26]), Err(TraceContextError));
    }

    #[test]
    fn a_child_is_another_span_of_the_same_trace() {
        let root = TraceContext::root();
        let child = root.child();
        assert_eq!((child.trace_id(), child.flags()), (root.trace_id(), root.flags()));
        assert_ne!(child.span_id(), root.span_id());
        assert_ne!(TraceContext::root().trace_id(), root.trace_id());
    }

    #[test]
    fn a_request_carries_the_context_it_was_given_last() {
        let method = crate::Method::<(), ()>::new("test.Test/None");
        let (first, last) = (TraceContext::root(), TraceContext::root());
        let request = method.request(()).trace_context(first).metadata("a", b"b");
        let request = request.trace_context(last);
        assert_eq!(TraceContext::among(&request.root.extensions), Some(last));
        assert_eq!(request.root.extensions.len(), 2);
    }
}
