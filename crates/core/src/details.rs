//! Details of a failure for programs: the messages of Google's `error_details.proto`, which clients
//! of gRPC in every language read.
//!
//! [`Status::with_detail`] adds one of them, or a message of your own, and [`Status::detail`] finds
//! it again at the caller. On the wire they are a `google.rpc.Status`, and the edge of gRPC sends
//! that as `grpc-status-details-bin`.
//! ```
//! use std::time::Duration;
//! use convoke_core::details::RetryInfo;
//! use convoke_core::{Code, Status};
//!
//! let busy = Status::new(Code::Unavailable, "the store is being counted");
//! let busy = busy.with_detail(&RetryInfo::after(Duration::from_secs(30)));
//!
//! let retry = busy.detail::<RetryInfo>().expect("it was added");
//! assert_eq!(retry.delay(), Some(Duration::from_secs(30)));
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use prost::{Message as _, Name};

use crate::error::Status;

impl Status {
    /// Adds a message for programs, one of [`details`](crate::details) or of your own. Several can
    /// be added, one of a kind or more. Bytes that [`Status::with_details`] gave are replaced,
    /// unless they are an encoded `google.rpc.Status`.
    #[must_use]
    pub fn with_detail(self, detail: &impl Name) -> Self {
        let mut all = RpcStatus::of(self.details()).unwrap_or_else(|| RpcStatus {
            code: self.code() as i32,
            message: self.message().to_owned(),
            details: Vec::new(),
        });
        all.details.push(Any::of(detail));
        self.with_details(all.encode_to_vec())
    }

    /// The first detail of this type, if there is one that can be decoded.
    pub fn detail<T: Name + Default>(&self) -> Option<T> {
        RpcStatus::of(self.details())?.details.iter().find_map(Any::get)
    }
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, prost::Message)]
struct RpcStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
    #[prost(message, repeated, tag = "3")]
    details: Vec<Any>,
}

impl RpcStatus {
    /// The status in the details of a failure, if that is what they are.
    fn of(details: &Bytes) -> Option<Self> {
        Self::decode(details.clone()).ok().filter(|_| !details.is_empty())
    }
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, prost::Message)]
struct Any {
    #[prost(string, tag = "1")]
    type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

impl Any {
    fn of<T: Name>(message: &T) -> Self {
        let type_url = format!("type.googleapis.com/{}", T::full_name());
        Self { type_url, value: message.encode_to_vec().into() }
    }

    fn get<T: Name + Default>(&self) -> Option<T> {
        let (_, name) = self.type_url.rsplit_once('/')?;
        let is_it = name == T::full_name();
        is_it.then(|| T::decode(self.value.clone()).ok()).flatten()
    }
}

/// Cause of an error, in words of a program.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ErrorInfo {
    /// The cause, in capitals and underscores: `STOCK_LOCKED`.
    #[prost(string, tag = "1")]
    pub reason: String,
    /// The service that the reason belongs to: `shop.example.com`.
    #[prost(string, tag = "2")]
    pub domain: String,
    /// More about this error, by keys in lower camel case.
    #[prost(btree_map = "string, string", tag = "3")]
    pub metadata: BTreeMap<String, String>,
}

/// Time after which a caller may try again.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RetryInfo {
    /// The least time to wait.
    #[prost(message, optional, tag = "1")]
    pub retry_delay: Option<RetryDelay>,
}

/// A `google.protobuf.Duration`: seconds and nanoseconds of the same sign.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RetryDelay {
    /// Whole seconds.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// The rest.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

impl RetryInfo {
    /// Asks a caller to wait so long.
    pub fn after(delay: Duration) -> Self {
        let seconds = i64::try_from(delay.as_secs()).unwrap_or(i64::MAX);
        let nanos = i32::try_from(delay.subsec_nanos()).unwrap_or(i32::MAX);
        Self { retry_delay: Some(RetryDelay { seconds, nanos }) }
    }

    /// The time to wait, if it is there and not negative.
    pub fn delay(&self) -> Option<Duration> {
        let RetryDelay { seconds, nanos } = self.retry_delay?;
        let nanos = u64::try_from(nanos).ok()?;
        Duration::from_secs(u64::try_from(seconds).ok()?).checked_add(Duration::from_nanos(nanos))
    }
}

/// Place in a program at which an error came up.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DebugInfo {
    /// The stack, a frame each.
    #[prost(string, repeated, tag = "1")]
    pub stack_entries: Vec<String>,
    /// Anything more.
    #[prost(string, tag = "2")]
    pub detail: String,
}

/// Quotas that a caller has used up.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct QuotaFailure {
    /// Each of them.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<QuotaViolation>,
}

/// One quota that was used up.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct QuotaViolation {
    /// The party it counts: `clientip:192.0.2.7`, `project:shop`.
    #[prost(string, tag = "1")]
    pub subject: String,
    /// The quota, for people.
    #[prost(string, tag = "2")]
    pub description: String,
    /// The service that has the quota.
    #[prost(string, tag = "3")]
    pub api_service: String,
    /// The metric it limits.
    #[prost(string, tag = "4")]
    pub quota_metric: String,
    /// Its name.
    #[prost(string, tag = "5")]
    pub quota_id: String,
    /// Its dimensions, such as a region.
    #[prost(btree_map = "string, string", tag = "6")]
    pub quota_dimensions: BTreeMap<String, String>,
    /// Its value.
    #[prost(int64, tag = "7")]
    pub quota_value: i64,
    /// Its value once a change under way is made.
    #[prost(int64, optional, tag = "8")]
    pub future_quota_value: Option<i64>,
}

/// Conditions that are not met.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreconditionFailure {
    /// Each of them.
    #[prost(message, repeated, tag = "1")]
    pub violations: Vec<PreconditionViolation>,
}

/// One condition that is not met.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PreconditionViolation {
    /// Its kind, as the service names it: `TERMS`.
    #[prost(string, tag = "1")]
    pub r#type: String,
    /// Subject of the condition.
    #[prost(string, tag = "2")]
    pub subject: String,
    /// Way to meet it, for people.
    #[prost(string, tag = "3")]
    pub description: String,
}

/// Fields of a request that are wrong.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BadRequest {
    /// Each of them.
    #[prost(message, repeated, tag = "1")]
    pub field_violations: Vec<FieldViolation>,
}

/// One field that is wrong.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FieldViolation {
    /// The path to it: `address.street`, `emails[1]`.
    #[prost(string, tag = "1")]
    pub field: String,
    /// Its fault, for people.
    #[prost(string, tag = "2")]
    pub description: String,
    /// Its fault, in capitals and underscores.
    #[prost(string, tag = "3")]
    pub reason: String,
    /// Its fault in a language of people.
    #[prost(message, optional, tag = "4")]
    pub localized_message: Option<LocalizedMessage>,
}

/// The request as the service's logs know it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RequestInfo {
    /// Its name.
    #[prost(string, tag = "1")]
    pub request_id: String,
    /// Data about it that only the service understands, such as an encrypted stack.
    #[prost(string, tag = "2")]
    pub serving_data: String,
}

/// The resource that was asked for.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ResourceInfo {
    /// Its type: `book`, or a type URL.
    #[prost(string, tag = "1")]
    pub resource_type: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub resource_name: String,
    /// Its owner, if there is one: `user:ada`.
    #[prost(string, tag = "3")]
    pub owner: String,
    /// The trouble with it, for people.
    #[prost(string, tag = "4")]
    pub description: String,
}

/// Pages that help.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Help {
    /// Each of them.
    #[prost(message, repeated, tag = "1")]
    pub links: Vec<HelpLink>,
}

/// One page that helps.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct HelpLink {
    /// Content of the page.
    #[prost(string, tag = "1")]
    pub description: String,
    /// Its address.
    #[prost(string, tag = "2")]
    pub url: String,
}

/// The error in a language of people.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct LocalizedMessage {
    /// The language, by BCP 47: `en-US`, `no`.
    #[prost(string, tag = "1")]
    pub locale: String,
    /// The message in it.
    #[prost(string, tag = "2")]
    pub message: String,
}

macro_rules! of_google_rpc {
    ($($message:ident),*) => {
        $(impl Name for $message {
            const NAME: &'static str = stringify!($message);
            const PACKAGE: &'static str = "google.rpc";
        })*
    };
}

of_google_rpc!(
    BadRequest,
    DebugInfo,
    ErrorInfo,
    Help,
    LocalizedMessage,
    PreconditionFailure,
    QuotaFailure,
    RequestInfo,
    ResourceInfo,
    RetryInfo
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Code;

    fn status() -> Status {
        Status::new(Code::NotFound, "no")
    }

    fn help() -> Help {
        let link = HelpLink { description: "the manual".into(), url: "https://example.com".into() };
        Help { links: vec![link] }
    }

    /// By `google/rpc/status.proto`, `any.proto` and `error_details.proto`.
    #[test]
    fn details_are_the_bytes_of_a_google_rpc_status() {
        let status = status().with_detail(&RetryInfo::after(Duration::from_millis(1_500)));
        let mut expected = b"\x08\x05\x12\x02no\x1a\x36".to_vec();
        expected.extend_from_slice(b"\x0a\x28type.googleapis.com/google.rpc.RetryInfo");
        expected.extend_from_slice(b"\x12\x0a\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01");
        assert_eq!(status.details(), &expected);
    }

    #[test]
    fn each_detail_is_found_by_its_type_and_the_first_of_several() {
        let info = |reason: &str| ErrorInfo { reason: reason.into(), ..ErrorInfo::default() };
        let status = status().with_detail(&info("FIRST")).with_detail(&help());
        let status = status.with_detail(&info("SECOND"));
        assert_eq!(status.detail(), Some(info("FIRST")));
        assert_eq!(status.detail(), Some(help()));
        assert_eq!(status.detail::<RetryInfo>(), None);
        assert_eq!((status.code(), status.message()), (Code::NotFound, "no"));
    }

    #[test]
    fn bytes_that_are_no_status_have_no_detail_and_make_room_for_one() {
        let status = status().with_details(&b"\xff\xff"[..]);
        assert_eq!(status.detail::<Help>(), None);
        assert_eq!(status.with_detail(&help()).detail(), Some(help()));
    }

    #[test]
    fn a_detail_that_cannot_be_decoded_is_passed_over() {
        let broken = Any { value: Bytes::from_static(b"\x0a\xff"), ..Any::of(&help()) };
        let all = RpcStatus { details: vec![broken, Any::of(&help())], ..RpcStatus::default() };
        assert_eq!(status().with_details(all.encode_to_vec()).detail(), Some(help()));
    }

    #[test]
    fn a_delay_that_is_none_is_none() {
        let delay =
            |seconds, nanos| RetryInfo { retry_delay: Some(RetryDelay { seconds, nanos }) }.delay();
        assert_eq!(delay(1, 5), Some(Duration::new(1, 5)));
        assert_eq!((delay(-1, 0), delay(0, -1), RetryInfo::default().delay()), (None, None, None));
        assert_eq!(
            RetryInfo::after(Duration::MAX).delay().map(|delay| delay.as_secs()),
            Some(i64::MAX.unsigned_abs())
        );
    }
}
