use proptest::prelude::*;

use super::*;

const FRAME_MAX: u32 = 400;
const CHUNK_MAX: u32 = 100;

fn decoder() -> Decoder {
    Decoder::new(Words::WITH_CREDIT, FRAME_MAX, CHUNK_MAX)
}

/// Everything in `bytes`, given to one decoder in pieces that end at `cuts`.
fn decode_in_pieces(bytes: &[u8], cuts: &[usize]) -> Result<Vec<Item>, Fault> {
    let (mut decoder, mut input, mut items) = (decoder(), BytesMut::new(), Vec::new());
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    ends.push(bytes.len());
    ends.sort_unstable();
    let mut start = 0;
    for end in ends {
        input.extend_from_slice(&bytes[start..end]);
        start = end;
        while let Some(item) = decoder.decode(&mut input)? {
            items.push(item);
        }
        assert!(input.len() < WORD_BYTES + CHUNK_MAX.max(512) as usize, "input is held back");
        assert!(decoder.partial.iter().all(|part| part.capacity() <= FRAME_MAX as usize * 2));
    }
    Ok(items)
}

/// Everything in `input`, so many frames at a time.
fn decode_together(mut input: BytesMut, frames_max: usize) -> Result<Vec<Item>, Fault> {
    let (mut decoder, mut items) = (decoder(), Vec::new());
    loop {
        let (mut chunks, mut left) = (Whole::of(&mut input, frames_max), frames_max);
        while left > 0
            && let Some(item) = decoder.decode(&mut chunks)?
        {
            left -= usize::from(matches!(item, Item::Frame { .. }));
            items.push(item);
        }
        assert!(chunks.taken.is_empty(), "what was taken off the buffer is lost");
        if left > 0 {
            return Ok(items);
        }
    }
}

fn put_frame(out: &mut BytesMut, lane: Lane, bytes: &[u8]) {
    let mut chunks = bytes.chunks(CHUNK_MAX as usize).peekable();
    if chunks.peek().is_none() {
        out.extend_from_slice(&Head::chunk(lane, true, 0).encode(Words::WITH_CREDIT));
    }
    while let Some(chunk) = chunks.next() {
        out.extend_from_slice(
            &Head::chunk(lane, chunks.peek().is_none(), chunk.len()).encode(Words::WITH_CREDIT),
        );
        out.extend_from_slice(chunk);
    }
}

fn put(out: &mut BytesMut, sent: &Sent) {
    match sent {
        Sent::Frame(lane, bytes) => put_frame(out, *lane, bytes),
        Sent::Credit(lane, bytes) => put_credit(out, *lane, *bytes),
        Sent::KeepAlive => put_keep_alive(out),
        Sent::Goodbye(text) => put_goodbye(out, Words::WITH_CREDIT, text),
    }
}

#[derive(Clone, Debug)]
enum Sent {
    Frame(Lane, Vec<u8>),
    Credit(Lane, u32),
    KeepAlive,
    Goodbye(String),
}

fn lane() -> impl Strategy<Value = Lane> {
    prop_oneof![Just(Lane::Control), Just(Lane::Data)]
}

fn sent() -> impl Strategy<Value = Sent> {
    let bytes = prop::collection::vec(any::<u8>(), 0..=FRAME_MAX as usize);
    prop_oneof![
        4 => (lane(), bytes).prop_map(|(lane, bytes)| Sent::Frame(lane, bytes)),
        1 => (lane(), any::<u32>()).prop_map(|(lane, bytes)| Sent::Credit(lane, bytes)),
        1 => Just(Sent::KeepAlive),
        1 => "[a-zé ]{0,40}".prop_map(Sent::Goodbye),
    ]
}

proptest! {
    #[test]
    fn the_same_frames_come_out_however_the_bytes_are_cut(
        sent in prop::collection::vec(sent(), 0..12),
        cuts in prop::collection::vec(any::<usize>(), 0..30),
    ) {
        let mut wire = BytesMut::new();
        let mut expected = Vec::new();
        for each in &sent {
            put(&mut wire, each);
            expected.push(each.clone());
        }
        let items = decode_in_pieces(&wire, &cuts).unwrap();
        let got: Vec<Sent> = items.into_iter().filter_map(|item| match item {
            Item::Frame { lane, bytes, .. } => Some(Sent::Frame(lane, bytes.to_vec())),
            Item::Part { .. } => None,
            Item::Credit { lane, bytes } => Some(Sent::Credit(lane, bytes)),
            Item::KeepAlive => Some(Sent::KeepAlive),
            Item::Goodbye(text) => Some(Sent::Goodbye(text)),
        }).collect();
        prop_assert_eq!(format!("{got:?}"), format!("{expected:?}"));
    }

    #[test]
    fn chunks_that_are_taken_together_are_those_that_are_taken_one_by_one(
        sent in prop::collection::vec(sent(), 0..12),
        (behind, frames_max) in (prop::collection::vec(any::<u8>(), 0..40), 1..4_usize),
    ) {
        let mut wire = BytesMut::new();
        sent.iter().for_each(|sent| put(&mut wire, sent));
        wire.extend_from_slice(&behind);
        let one_by_one = decode_in_pieces(&wire, &[]);
        prop_assert_eq!(decode_together(wire, frames_max), one_by_one);
    }

    #[test]
    fn any_bytes_decode_or_are_a_fault(
        bytes in prop::collection::vec(any::<u8>(), 0..2_000),
        cuts in prop::collection::vec(any::<usize>(), 0..30),
    ) {
        prop_assert_eq!(decode_in_pieces(&bytes, &cuts), decode_in_pieces(&bytes, &[]));
    }

    #[test]
    fn a_word_that_decodes_encodes_back(word in any::<[u8; 4]>()) {
        if let Ok(head) = Head::decode(word, Words::WITH_CREDIT) {
            prop_assert_eq!(head.encode(Words::WITH_CREDIT), word);
        }
    }
}

#[test]
fn chunks_of_the_other_lane_may_come_in_between() {
    let mut wire = BytesMut::new();
    wire.extend_from_slice(&Head::chunk(Lane::Data, false, 2).encode(Words::WITH_CREDIT));
    wire.extend_from_slice(b"ab");
    put_frame(&mut wire, Lane::Control, b"now");
    wire.extend_from_slice(&Head::chunk(Lane::Data, true, 1).encode(Words::WITH_CREDIT));
    wire.extend_from_slice(b"c");
    let frames: Vec<_> = decode_in_pieces(&wire, &[])
        .unwrap()
        .into_iter()
        .filter_map(|item| match item {
            Item::Frame { lane, bytes, .. } => Some((lane, bytes)),
            _ => None,
        })
        .collect();
    let expected = [(Lane::Control, "now"), (Lane::Data, "abc")];
    assert_eq!(frames, expected.map(|(lane, text)| (lane, Bytes::from_static(text.as_bytes()))));
}

#[test]
fn a_length_is_judged_before_its_bytes_arrive() {
    let mut input =
        BytesMut::from(&Head::chunk(Lane::Data, true, 101).encode(Words::WITH_CREDIT)[..]);
    let fault = decoder().decode(&mut input).unwrap_err();
    assert_eq!(fault, Fault::ChunkTooLarge { len: 101, limit: 100 });
}

#[test]
fn chunks_that_add_up_to_too_much_are_a_fault() {
    let (mut decoder, mut input) = (decoder(), BytesMut::new());
    for _ in 0..FRAME_MAX / CHUNK_MAX {
        input.extend_from_slice(
            &Head::chunk(Lane::Data, false, CHUNK_MAX as usize).encode(Words::WITH_CREDIT),
        );
        input.extend_from_slice(&[7; CHUNK_MAX as usize]);
        assert!(matches!(decoder.decode(&mut input), Ok(Some(Item::Part { .. }))));
    }
    input.extend_from_slice(&Head::chunk(Lane::Data, true, 1).encode(Words::WITH_CREDIT));
    assert_eq!(decoder.decode(&mut input), Err(Fault::FrameTooLarge { limit: 400 }));
}

#[test]
fn kinds_and_lengths_that_do_not_exist_are_faults() {
    let words = Words::WITH_CREDIT;
    let word = |kind: u32, lane: u32, len: u32| (kind << 29 | lane << 28 | len).to_le_bytes();
    let decode = |kind, lane, len| Head::decode(word(kind, lane, len), words);
    let bad = |kind, len| Err(Fault::BadLength { noun: "frame", kind, len });
    assert_eq!(decode(5, 0, 0), Err(Fault::UnknownKind { noun: "frame", kind: 5 }));
    assert_eq!(decode(1, 1, 0), bad(Kind::More, 0));
    assert_eq!(decode(2, 0, 1), bad(Kind::KeepAlive, 1));
    assert_eq!(decode(3, 1, 5), bad(Kind::Credit, 5));
    assert_eq!(decode(4, 0, 513), bad(Kind::Goodbye, 513));
}

#[test]
fn where_no_credit_is_given_the_goodbye_has_its_kind() {
    let words = Words::WITHOUT_CREDIT;
    let mut decoder = Decoder::new(words, FRAME_MAX, CHUNK_MAX);
    let mut wire = BytesMut::new();
    put_goodbye(&mut wire, words, "bye");
    assert_eq!(&wire[..], [3, 0, 0, 0x60, b'b', b'y', b'e']);
    let goodbye = decoder.decode(&mut wire.freeze());
    assert_eq!(goodbye, Ok(Some(Item::Goodbye("bye".into()))));
    let fault = Head::decode([0, 0, 0, 0x80], words);
    assert_eq!(fault, Err(Fault::UnknownKind { noun: "chunk", kind: 4 }));
}

#[test]
fn the_wire_is_as_documented() {
    let mut wire = BytesMut::new();
    put_frame(&mut wire, Lane::Data, b"hi");
    put_keep_alive(&mut wire);
    put_credit(&mut wire, Lane::Data, 0x0102_0304);
    put_goodbye(&mut wire, Words::WITH_CREDIT, "bye");
    let expected: &[u8] = &[
        2, 0, 0, 0x10, b'h', b'i', // last chunk, data
        0, 0, 0, 0x40, // keep-alive
        4, 0, 0, 0x70, 4, 3, 2, 1, // credit, data
        3, 0, 0, 0x80, b'b', b'y', b'e', // goodbye
    ];
    assert_eq!(&wire[..], expected);
}

#[test]
fn a_long_text_is_cut_at_a_character() {
    let text = "é".repeat(300);
    let mut wire = BytesMut::new();
    put_goodbye(&mut wire, Words::WITH_CREDIT, &text);
    assert_eq!(wire.len(), WORD_BYTES + TEXT_BYTES_MAX);
    wire.clear();
    put_goodbye(&mut wire, Words::WITH_CREDIT, &format!("x{text}"));
    assert_eq!(wire.len(), WORD_BYTES + TEXT_BYTES_MAX - 1);
}

#[test]
fn a_message_that_ends_within_a_chunk_is_cut() {
    let mut decoder = decoder();
    let chunk = [&Head::chunk(Lane::Data, true, 3).encode(Words::WITH_CREDIT)[..], b"abc"].concat();
    for end in 1..chunk.len() {
        let mut message = Bytes::copy_from_slice(&chunk[..end]);
        assert_eq!(decoder.decode(&mut message), Err(Fault::Cut), "{end}");
    }
    let mut message = Bytes::from(chunk);
    assert!(matches!(decoder.decode(&mut message), Ok(Some(Item::Frame { .. }))));
    assert_eq!(decoder.decode(&mut message), Ok(None));
}
