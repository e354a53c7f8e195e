use proptest::prelude::*;

use super::*;

const FRAME_MAX: u32 = 400;
const CHUNK_MAX: u32 = 100;

fn decoder() -> Decoder {
    Decoder::new(FRAME_MAX, CHUNK_MAX)
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

fn put_frame(out: &mut BytesMut, lane: Lane, bytes: &[u8]) {
    let mut chunks = bytes.chunks(CHUNK_MAX as usize).peekable();
    if chunks.peek().is_none() {
        out.extend_from_slice(&Head::chunk(lane, true, 0).encode());
    }
    while let Some(chunk) = chunks.next() {
        out.extend_from_slice(&Head::chunk(lane, chunks.peek().is_none(), chunk.len()).encode());
        out.extend_from_slice(chunk);
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
            match each {
                Sent::Frame(lane, bytes) => put_frame(&mut wire, *lane, bytes),
                Sent::Credit(lane, bytes) => put_credit(&mut wire, *lane, *bytes),
                Sent::KeepAlive => put_keep_alive(&mut wire),
                Sent::Goodbye(text) => put_goodbye(&mut wire, text),
            }
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
    fn any_bytes_decode_or_are_a_fault(
        bytes in prop::collection::vec(any::<u8>(), 0..2_000),
        cuts in prop::collection::vec(any::<usize>(), 0..30),
    ) {
        prop_assert_eq!(decode_in_pieces(&bytes, &cuts), decode_in_pieces(&bytes, &[]));
    }

    #[test]
    fn a_word_that_decodes_encodes_back(word in any::<[u8; 4]>()) {
        if let Ok(head) = Head::decode(word) {
            prop_assert_eq!(head.encode(), word);
        }
    }
}

#[test]
fn chunks_of_the_other_lane_may_come_in_between() {
    let mut wire = BytesMut::new();
    wire.extend_from_slice(&Head::chunk(Lane::Data, false, 2).encode());
    wire.extend_from_slice(b"ab");
    put_frame(&mut wire, Lane::Control, b"now");
    wire.extend_from_slice(&Head::chunk(Lane::Data, true, 1).encode());
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
    let mut input = BytesMut::from(&Head::chunk(Lane::Data, true, 101).encode()[..]);
    let fault = decoder().decode(&mut input).unwrap_err();
    assert_eq!(fault, Fault::ChunkTooLarge { len: 101, limit: 100 });
}

#[test]
fn chunks_that_add_up_to_too_much_are_a_fault() {
    let (mut decoder, mut input) = (decoder(), BytesMut::new());
    for _ in 0..FRAME_MAX / CHUNK_MAX {
        input.extend_from_slice(&Head::chunk(Lane::Data, false, CHUNK_MAX as usize).encode());
        input.extend_from_slice(&[7; CHUNK_MAX as usize]);
        assert!(matches!(decoder.decode(&mut input), Ok(Some(Item::Part { .. }))));
    }
    input.extend_from_slice(&Head::chunk(Lane::Data, true, 1).encode());
    assert_eq!(decoder.decode(&mut input), Err(Fault::FrameTooLarge { limit: 400 }));
}

#[test]
fn kinds_and_lengths_that_do_not_exist_are_faults() {
    let word = |kind: u32, lane: u32, len: u32| (kind << 29 | lane << 28 | len).to_le_bytes();
    assert_eq!(Head::decode(word(5, 0, 0)), Err(Fault::UnknownKind(5)));
    assert_eq!(Head::decode(word(1, 1, 0)), Err(Fault::BadLength { kind: Kind::More, len: 0 }));
    assert_eq!(
        Head::decode(word(2, 0, 1)),
        Err(Fault::BadLength { kind: Kind::KeepAlive, len: 1 })
    );
    assert_eq!(Head::decode(word(3, 1, 5)), Err(Fault::BadLength { kind: Kind::Credit, len: 5 }));
    assert_eq!(
        Head::decode(word(4, 0, 513)),
        Err(Fault::BadLength { kind: Kind::Goodbye, len: 513 })
    );
}

#[test]
fn the_wire_is_as_documented() {
    let mut wire = BytesMut::new();
    put_frame(&mut wire, Lane::Data, b"hi");
    put_keep_alive(&mut wire);
    put_credit(&mut wire, Lane::Data, 0x0102_0304);
    put_goodbye(&mut wire, "bye");
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
    assert_eq!(cut_text(&text).len(), TEXT_BYTES_MAX);
    assert_eq!(cut_text(&format!("x{text}")).len(), TEXT_BYTES_MAX - 1);
    assert_eq!(clean_text(b"a\nb\x1b[0m\xff"), "a b [0m\u{fffd}");
}
