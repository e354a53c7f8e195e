//! The codec as a whole: what is written is read back, and what is read could only have been
//! written that way.

mod golden;
mod limits;
mod strategies;

use bytes::Bytes;
use proptest::prelude::*;

use super::{Frame, Glance, ItemKind, Message, Part, ReplyKind, WireError};
use crate::link::ORDER_HEAD_BYTES;
use strategies::{cases, frame};

proptest! {
    #![proptest_config(cases(2000))]

    #[test]
    fn what_was_encoded_decodes_to_the_same(frame in frame()) {
        prop_assert_eq!(Frame::decode(frame.to_bytes()), Ok(frame));
    }

    #[test]
    fn the_lengths_are_those_of_the_bytes(frame in frame()) {
        let payload = frame.message.payload().cloned().unwrap_or_default();
        let mut head = vec![0; frame.head_len()];
        frame.encode_head(&mut head);
        let bytes = frame.to_bytes();
        prop_assert_eq!(bytes.len(), frame.encoded_len());
        prop_assert_eq!(bytes, [&head[..], &payload[..]].concat());
    }

    #[test]
    fn parts_of_a_frame_fit_and_together_say_what_it_says(
        mut frame in frame(),
        (len, limit) in (1..100_000_usize, 6_000..40_000_usize),
    ) {
        let payload = Bytes::from_iter((0..=250_u8).cycle().take(len));
        let is_message = match &mut frame.message {
            Message::Reply(reply) => {
                reply.part = None;
                reply.payload = payload.clone();
                !matches!(reply.kind, ReplyKind::End { .. })
            }
            Message::Item(item) => {
                item.part = None;
                item.payload = payload.clone();
                !matches!(item.kind, ItemKind::End { .. })
            }
            _ => false,
        };
        let parts = frame.with_head(|head| head.in_parts(&payload.clone().into(), limit));
        if !is_message {
            prop_assert_eq!(parts, None);
            return Ok(());
        }
        let Some(mut parts) = parts else {
            prop_assert!(frame.head_len() + 5_000 > limit, "there is room for a part");
            return Ok(());
        };
        for part in &parts {
            prop_assert!(part.encoded_len() <= limit);
            prop_assert_eq!(&Frame::decode(part.to_bytes()), &Ok(part.clone()));
        }
        let count = parts.len();
        let mut joined = Vec::new();
        for (index, part) in parts.iter_mut().enumerate() {
            let (offset, is_last) = (joined.len() as u64, index + 1 == count);
            joined.extend(part.message.take_payload());
            let said = match &mut part.message {
                Message::Reply(reply) => {
                    prop_assert!(index == 0 || reply.extensions.is_empty());
                    let is_bare = reply.own_entry.is_none() && reply.inherited.is_empty();
                    prop_assert!(is_last || (is_bare && !reply.is_final));
                    reply.part.take()
                }
                Message::Item(item) => item.part.take(),
                other => panic!("{other:?} is no part"),
            };
            prop_assert_eq!(said, Some(Part { offset, total: len as u64 }));
        }
        prop_assert_eq!(&joined, &payload);
        let (first, last) = (parts[0].clone(), &mut parts[count - 1]);
        if let (Message::Reply(first), Message::Reply(last)) = (first.message, &mut last.message) {
            last.extensions = first.extensions;
        }
        frame.message.take_payload();
        prop_assert_eq!(last, &mut frame);
    }

    #[test]
    fn the_head_of_a_frame_tells_its_call_and_method(frame in frame()) {
        let bytes = frame.to_bytes();
        let head = &bytes[..bytes.len().min(ORDER_HEAD_BYTES)];
        let method = match &frame.message {
            Message::Request(request) => Some(request.method),
            _ => None,
        };
        prop_assert_eq!(Glance::of(head), Ok(Glance { call: frame.header.call, method }));
    }

    #[test]
    fn any_bytes_decode_canonically_or_are_refused(
        bytes in prop::collection::vec(any::<u8>(), 0..96),
    ) {
        check_canonical(&bytes.into())?;
    }

    #[test]
    fn any_bytes_behind_a_valid_header_decode_canonically_or_are_refused(
        (kind, flags, is_keyed) in (1..=15_u8, any::<u8>(), any::<bool>()),
        rest in prop::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..64),
    ) {
        let first = if is_keyed { 0xa0 | kind } else { 0x20 | kind };
        let header = [first, flags, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 2, 0];
        check_canonical(&[&header[..], &rest[..]].concat().into())?;
    }

    #[test]
    fn a_changed_byte_decodes_canonically_or_is_refused(
        (frame, at, value) in (frame(), any::<prop::sample::Index>(), any::<u8>()),
    ) {
        let mut bytes = frame.to_bytes().to_vec();
        let at = at.index(bytes.len());
        bytes[at] = value;
        check_canonical(&bytes.into())?;
    }

    #[test]
    fn a_truncated_frame_loses_payload_or_is_refused(frame in frame()) {
        let bytes = frame.to_bytes();
        for len in 0..bytes.len() {
            match Frame::decode(bytes.slice(..len)) {
                Ok(shorter) => prop_assert_eq!(shorter, with_payload_of(&frame, len)?),
                Err(error) => prop_assert!(len < frame.head_len() || is_piece(&frame), "{error}"),
            }
        }
    }

    #[test]
    fn a_byte_behind_a_frame_is_payload_or_refused(frame in frame()) {
        let longer: Bytes = [&frame.to_bytes()[..], &[0]].concat().into();
        match Frame::decode(longer.clone()) {
            Ok(decoded) => {
                let len = frame.message.payload().map(|payload| payload.len() + 1);
                prop_assert_eq!(decoded.message.payload().map(Bytes::len), len);
            }
            Err(WireError::Trailing) => prop_assert!(frame.message.payload().is_none()),
            Err(error) => prop_assert!(
                error == WireError::Invalid
                    && matches!(frame.message, Message::Reply(_) | Message::Item(_)),
                "{error}"
            ),
        }
    }

    #[test]
    fn a_payload_shares_the_memory_of_its_frame(frame in frame()) {
        let bytes = frame.to_bytes();
        let decoded = Frame::decode(bytes.clone()).unwrap();
        if let Some(payload) = decoded.message.payload().filter(|payload| !payload.is_empty()) {
            prop_assert_eq!(payload.as_ptr(), bytes[frame.head_len()..].as_ptr());
        }
    }
}

/// A frame that decodes has one encoding: the one it came in.
fn check_canonical(bytes: &Bytes) -> Result<(), TestCaseError> {
    if let Ok(frame) = Frame::decode(bytes.clone()) {
        prop_assert_eq!(frame.to_bytes(), bytes);
    }
    Ok(())
}

/// The frame as its first `len` bytes must decode, which end within the payload.
fn with_payload_of(frame: &Frame, len: usize) -> Result<Frame, TestCaseError> {
    prop_assert!(len >= frame.head_len(), "{len} bytes are not even the head");
    let mut shorter = frame.clone();
    let payload = match &mut shorter.message {
        Message::Request(message) => &mut message.payload,
        Message::Reply(message) => &mut message.payload,
        Message::Fail(message) => &mut message.details,
        Message::Cast(message) => &mut message.payload,
        Message::Item(message) => &mut message.payload,
        message => {
            return Err(TestCaseError::fail(format!("{} carries no payload", message.name())));
        }
    };
    payload.truncate(len - frame.head_len());
    Ok(shorter)
}

/// A piece of an item, which may not be empty.
fn is_piece(frame: &Frame) -> bool {
    matches!(&frame.message, Message::Item(item) if item.part.is_some())
}
