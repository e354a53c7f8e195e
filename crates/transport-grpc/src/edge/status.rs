//! From what a call ended with to what gRPC calls a status.
//!
//! The codes are the same ones. What gRPC has no place for, which branch failed, where, and whether
//! it may have run, is in the message for people and in trailers for programs.

use bytes::Bytes;
use convoke_core::wire::{Cause, Executed};
use convoke_core::{CallError, End, Failure, Outcome};
use convoke_transport::parts::cut_text;
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::metadata;
use super::methods::Known;

/// The trailer that says whether the call may have had effects: `no`, `yes` or `maybe`.
pub(crate) const EXECUTED: &str = "convoke-executed";
/// The trailer that describes a failed branch; once for each, up to [`FAILURES_MAX`].
pub(crate) const FAILURE: &str = "convoke-failure";

/// The trailer that names a part of a status that no client would take, for its size.
const LEFT_OUT: &str = "convoke-left-out";

/// Most failures that are described, and bytes of their descriptions; trailers have a bound in
/// every client.
const FAILURES_MAX: usize = 8;
const FAILURES_BYTES_MAX: usize = 2 * 1024;
/// Longest description, in bytes.
const TEXT_BYTES_MAX: usize = 300;
/// Longest message of a status, in bytes as they are sent.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;
/// Bytes of what is in each answer without details: its code, and names.
const CODE_BYTES: usize = 256;

/// The status of a call that gave no answer.
pub(crate) fn of_error(error: &CallError) -> Status {
    match error {
        CallError::Branch(failure) => of_failures(std::slice::from_ref(failure)),
        CallError::NoReply => own(Code::Internal, error.to_string(), Executed::Yes),
        CallError::Decode { .. } => own(Code::Internal, error.to_string(), Executed::Yes),
        CallError::TooLarge { .. }
        | CallError::MetadataTooLarge { .. }
        | CallError::NotOpened(_) => own(Code::ResourceExhausted, error.to_string(), Executed::No),
        CallError::Stopped => own(Code::Unavailable, error.to_string(), Executed::No),
        CallError::Ended(end) => of_end(*end),
        other => own(Code::Internal, other.to_string(), Executed::No),
    }
}

/// The status of a call that was read to its end; `None` when it is complete. It is for a call
/// without a reply: see [`replied`].
pub(crate) fn of_outcome(outcome: &Outcome) -> Option<Status> {
    if outcome.is_complete() {
        return None;
    }
    Some(match &outcome.failures[..] {
        [] => of_end(outcome.end),
        failures => of_failures(failures),
    })
}

/// The status of a call that has replied and answers more than that one message: with another
/// reply, or with these failures. A method that answers so has to be a stream.
pub(crate) fn of_part(known: Option<Known>, failures: &[Failure]) -> Status {
    let (name, answer) = known.map_or(("the method", ".."), |known| (known.name, known.answer));
    let mut text = format!("{name} answers more than once: write `returns (stream {answer})`");
    if let [first, ..] = failures {
        text += &format!(" (it has replied, and {first})");
    }
    fitting(Code::Internal, &text, Bytes::new(), trailers(failures, Executed::Yes))
}

/// A status without what no client would take: one whose trailers are too large loses them all, and
/// some end the whole connection.
fn fitting(code: Code, text: &str, details: Bytes, mut trailers: MetadataMap) -> Status {
    let text = cut_text(text, sendable(text));
    let bytes = CODE_BYTES + encoded_len(text) + metadata::bytes_of(&trailers);
    if bytes + base64_len(&details) <= metadata::ANSWER_BYTES_MAX {
        return Status::with_details_and_metadata(code, text, details, trailers);
    }
    tracing::warn!(bytes = details.len(), "details of a status left out: no client takes as many");
    trailers.insert(LEFT_OUT, MetadataValue::from_static("details"));
    Status::with_metadata(code, text, trailers)
}

/// Bytes of the longest start of a text that can be a message.
fn sendable(text: &str) -> usize {
    let mut bytes = 0;
    let fits = text.bytes().take_while(|byte| {
        bytes += escaped_len(*byte);
        bytes <= MESSAGE_BYTES_MAX
    });
    fits.count()
}

/// Bytes of a status besides its metadata.
pub(super) fn bytes_of(status: &Status) -> usize {
    CODE_BYTES + encoded_len(status.message()) + base64_len(status.details())
}

fn encoded_len(text: &str) -> usize {
    text.bytes().map(escaped_len).sum()
}

/// Bytes of one as a message has it: percent-encoded, unless it is plain.
fn escaped_len(byte: u8) -> usize {
    match byte {
        b'"' | b'#' | b'%' | b'<' | b'>' | b'`' | b'?' | b'{' | b'}' => 3,
        b'!'..=b'~' => 1,
        _ => 3,
    }
}

fn base64_len(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(3) * 4
}

/// The status of a call that has replied, which proves that it has run.
pub(super) fn replied(mut status: Status) -> Status {
    status.metadata_mut().insert(EXECUTED, word(Executed::Yes));
    status
}

/// A status that is the edge's own doing.
pub(crate) fn own(code: Code, message: impl AsRef<str>, executed: Executed) -> Status {
    let text = message.as_ref();
    let mut status = Status::new(code, cut_text(text, sendable(text)));
    status.metadata_mut().insert(EXECUTED, word(executed));
    status
}

fn of_end(end: End) -> Status {
    let (code, text) = match end {
        End::Cancelled => (Code::Cancelled, "the call was cancelled"),
        End::Exhausted => (Code::ResourceExhausted, "the replies outgrew a bound of the call"),
        _ => (Code::Unknown, "the call ended early"),
    };
    own(code, text, Executed::Maybe)
}

/// The first failure gives code and metadata; all of them are described.
fn of_failures(failures: &[Failure]) -> Status {
    let first = &failures[0];
    let trailers = trailers(failures, executed(failures));
    // Those of the runtime, such as an epoch, are nothing to a client of gRPC.
    let (message, details) = match first.cause {
        Cause::Application => (first.text.clone(), first.details.clone()),
        _ => (first.to_string(), Bytes::new()),
    };
    let mut status = fitting(code(first), &message, details, trailers);
    let own = bytes_of(&status);
    metadata::append(first.metadata(), status.metadata_mut(), own);
    status
}

/// Execution of a call without a reply, as far as its failures show. Each speaks of its own task;
/// one below the root, or behind a transfer, proves that the task at the root has run.
fn executed(failures: &[Failure]) -> Executed {
    let has_run =
        |failure: &Failure| failure.executed == Executed::Yes || !failure.task.opens_root();
    if failures.iter().any(has_run) {
        Executed::Yes
    } else if failures.iter().all(|failure| failure.executed == Executed::No) {
        Executed::No
    } else {
        Executed::Maybe
    }
}

fn trailers(failures: &[Failure], executed: Executed) -> MetadataMap {
    let mut trailers = MetadataMap::new();
    trailers.insert(EXECUTED, word(executed));
    let mut bytes = 0;
    for failure in failures.iter().take(FAILURES_MAX) {
        let described = describe(failure);
        bytes += described.len();
        if bytes <= FAILURES_BYTES_MAX {
            trailers.append(FAILURE, described);
        }
    }
    trailers
}

fn code(failure: &Failure) -> Code {
    match failure.cause {
        Cause::Application => code_of_number(failure.code),
        Cause::UnknownMethod => Code::Unimplemented,
        Cause::BadRequest => Code::InvalidArgument,
        Cause::Deadline => Code::DeadlineExceeded,
        Cause::Cancelled => Code::Cancelled,
        Cause::StaleEpoch => Code::FailedPrecondition,
        Cause::Overloaded
        | Cause::PathTooDeep
        | Cause::TooManyBranches
        | Cause::ResourceExhausted => Code::ResourceExhausted,
        Cause::NodeDown
        | Cause::Lost
        | Cause::ReplyLost
        | Cause::Orphaned
        | Cause::Unreachable
        | Cause::ShuttingDown => Code::Unavailable,
        _ => Code::Internal,
    }
}

/// gRPC's code of a service's own error. A failure is never 0, which would mean success.
fn code_of_number(number: u32) -> Code {
    Code::from(convoke_core::Code::from_number(number) as i32)
}

fn word(executed: Executed) -> MetadataValue<Ascii> {
    MetadataValue::from_static(match executed {
        Executed::No => "no",
        Executed::Yes => "yes",
        Executed::Maybe => "maybe",
    })
}

/// In the printable ASCII that headers carry, without spaces at the end.
fn describe(failure: &Failure) -> MetadataValue<Ascii> {
    let plain = |c: char| if (' '..='~').contains(&c) { c } else { '?' };
    let text: String = failure.to_string().chars().map(plain).take(TEXT_BYTES_MAX).collect();
    text.trim_end().parse().expect("printable ASCII is a header value")
}

#[cfg(test)]
mod tests {
    use convoke_transport::id::{NodeId, Path, TaskKey};

    use super::*;

    /// A failure at the root.
    fn failure(cause: Cause, executed: Executed, code: u32) -> Failure {
        let task = TaskKey { path: Path::from_indices(&[0]).unwrap(), hop: 0 };
        let mut failure = Failure::found(task, Some(NodeId::new(7)), cause, executed);
        (failure.code, failure.text) = (code, "größe".into());
        failure.details = Bytes::from_static(b"more");
        failure
    }

    #[test]
    fn every_code_of_a_service_keeps_its_number() {
        for number in 1..=16_u32 {
            let status = of_failures(&[failure(Cause::Application, Executed::Yes, number)]);
            assert_eq!(status.code() as u32, number);
            assert_eq!((status.message(), status.details()), ("größe", &b"more"[..]));
        }
        assert_eq!(code_of_number(0), Code::Unknown);
        assert_eq!(code_of_number(99), Code::Unknown);
    }

    #[test]
    fn details_are_those_of_a_service_alone() {
        let status = of_failures(&[failure(Cause::StaleEpoch, Executed::No, 0)]);
        assert_eq!((status.code(), status.details()), (Code::FailedPrecondition, &b""[..]));
    }

    #[test]
    fn failures_say_where_and_whether_they_ran() {
        let down = failure(Cause::NodeDown, Executed::Maybe, 0);
        let lost = failure(Cause::Lost, Executed::No, 0);
        let outcome = Outcome { end: End::Partial, failures: vec![lost, down] };
        let status = of_outcome(&outcome).unwrap();
        assert_eq!(status.code(), Code::Unavailable);
        assert_eq!(status.metadata().get(EXECUTED).unwrap(), "maybe");
        let described: Vec<_> = status.metadata().get_all(FAILURE).iter().collect();
        assert_eq!(described.len(), 2);
        let text = described[0].to_str().unwrap();
        assert!(text.contains("gr??e") && text.contains("(it did not run)"), "{text}");
    }

    /// After "no" a client repeats the call, all of it.
    #[test]
    fn a_call_has_not_run_only_where_its_root_has_not() {
        let root = |executed| failure(Cause::Lost, executed, 0);
        let at = |indices: &[u32], hop| {
            let task = TaskKey { path: Path::from_indices(indices).unwrap(), hop };
            Failure::found(task, None, Cause::Lost, Executed::No)
        };
        for (failures, expected) in [
            (vec![root(Executed::No)], "no"),
            (vec![root(Executed::Maybe)], "maybe"),
            (vec![root(Executed::Yes)], "yes"),
            (vec![at(&[0, 1], 0)], "yes"),
            (vec![at(&[0], 1)], "yes"),
            (vec![root(Executed::No), at(&[0, 0, 2], 0)], "yes"),
            (vec![root(Executed::Maybe), root(Executed::Yes)], "yes"),
        ] {
            let status = of_failures(&failures);
            assert_eq!(status.metadata().get(EXECUTED).unwrap(), expected, "{failures:?}");
        }
    }

    #[test]
    fn a_status_is_no_larger_than_clients_take() {
        let bytes = |status: &Status| bytes_of(status) + metadata::bytes_of(status.metadata());
        for (text, details) in [(0, 5_000), (0, 100_000), (4_096, 1_500), (4_096, 0), (10, 10)] {
            for letter in ["a", "a ", "ü"] {
                let text = letter.repeat(text / letter.len());
                let details = Bytes::from(vec![7; details]);
                let mut failing = failure(Cause::Application, Executed::Yes, 5);
                (failing.text, failing.details) = (text.clone(), details.clone());
                let status = of_failures(&vec![failing; 20]);
                assert_eq!(status.code(), Code::NotFound);
                assert!(bytes(&status) <= metadata::ANSWER_BYTES_MAX, "{}", bytes(&status));
                let is_left_out = status.metadata().get(LEFT_OUT).is_some();
                assert_eq!(status.details(), if is_left_out { &[][..] } else { &details[..] });
                assert_eq!(status.metadata().get(EXECUTED).unwrap(), "yes");
                assert_eq!(
                    is_left_out,
                    details.len() > 5_000 || text.len() + details.len() > 5_000
                );
            }
        }
    }

    #[test]
    fn the_number_of_described_failures_is_bounded() {
        let failures = vec![failure(Cause::Deadline, Executed::Maybe, 0); 1_000];
        let status = of_failures(&failures);
        assert_eq!(status.code(), Code::DeadlineExceeded);
        assert_eq!(status.metadata().get_all(FAILURE).iter().count(), FAILURES_MAX);
        let mut long = failures[0].clone();
        long.text = "x".repeat(400);
        let told = of_failures(&vec![long; 8]).metadata().get_all(FAILURE).iter().count();
        assert!(told < FAILURES_MAX, "of these fewer are enough");
    }

    /// As [`Header::of`](crate::headers::Header::of) has it.
    #[test]
    fn a_described_failure_does_not_end_with_a_space() {
        let mut failing = failure(Cause::Application, Executed::Maybe, 5);
        failing.text = " ".repeat(2 * TEXT_BYTES_MAX);
        let described = describe(&failing);
        let text = described.to_str().expect("it is text");
        assert_eq!(text, text.trim_end());
    }

    #[test]
    fn an_endpoint_that_has_stopped_is_unavailable() {
        let status = of_error(&CallError::Stopped);
        assert_eq!(status.code(), Code::Unavailable, "another server may be asked");
        assert_eq!(status.metadata().get(EXECUTED).unwrap(), "no");
    }

    #[test]
    fn a_complete_call_has_no_status() {
        assert!(of_outcome(&Outcome { end: End::Complete, failures: Vec::new() }).is_none());
        let end = of_outcome(&Outcome { end: End::Exhausted, failures: Vec::new() });
        assert_eq!(end.unwrap().code(), Code::ResourceExhausted);
    }
}
