use super::*;
use crate::site::SiteSet;
use proptest::prelude::*;

fn op(source: u16, seq: u64) -> OpId {
    OpId { source: Site(source), life: Life(0x0102_0304), seq }
}

fn data(count: u32, index: u32, forward: Forward) -> Data {
    let len = if count == 1 { 5 } else { CHUNK_BYTES };
    let payload = Bytes::from(vec![7; len]);
    Data {
        op: op(3, 300),
        index,
        count,
        epoch: 9,
        forward,
        is_repair: false,
        is_body: false,
        payload,
    }
}

#[test]
fn data_has_these_bytes() {
    let frame = Frame::Data(data(1, 0, Forward::To(SiteSet::from_bits(0b10110))));
    let expected = [0x11, 9, 3, 4, 3, 2, 1, 0xac, 2, 9, 0x16, 7, 7, 7, 7, 7];
    assert_eq!(&frame.to_bytes()[..], &expected);
    let whole = Frame::Data(Data { is_repair: true, ..data(1, 0, Forward::Nobody) });
    assert_eq!(&whole.to_bytes()[..11], &[0x11, 2, 3, 4, 3, 2, 1, 0xac, 2, 9, 7]);
}

#[test]
fn control_frames_have_these_bytes() {
    let view = View {
        version: 3,
        suspects: SiteSet::EMPTY.with(Site(4)),
        unreached: SiteSet::EMPTY.with(Site(0)).with(Site(7)),
    };
    let golden: [(Frame, &[u8]); 13] = [
        (
            Frame::Ack(Ack { life: Life(1), next: 5, beyond: Bytes::from_static(&[0, 2]) }),
            &[0x12, 1, 0, 0, 0, 5, 0, 2],
        ),
        (
            Frame::Floor(Floor { life: Life(1), seq: 200, others: vec![] }),
            &[0x13, 1, 0, 0, 0, 0xc8, 1],
        ),
        (
            Frame::Floor(Floor { life: Life(1), seq: 3, others: vec![(1, 3), (130, 131)] }),
            &[0x13, 1, 0, 0, 0, 3, 1, 2, 0x82, 1, 1],
        ),
        (Frame::RelayOpen, &[0x14]),
        (Frame::RelayCredit { session: 2, limit_bytes: 128 }, &[0x15, 2, 0x80, 1]),
        (
            Frame::Fetch(Fetch { op: op(1, 2), present: Bytes::from_static(&[5]) }),
            &[0x16, 1, 4, 3, 2, 1, 2, 5],
        ),
        (Frame::HaveNot { op: op(1, 2), until: 7 }, &[0x17, 1, 4, 3, 2, 1, 2, 7]),
        (Frame::View(view), &[0x18, 3, 0x10, 0x81, 1]),
        (
            Frame::Notice(Notice {
                life: Life(1),
                relay: Site(2),
                chunks: vec![(200, ChunkDigest([9; 16]))],
            }),
            &[0x19, 1, 0, 0, 0, 2, 0xc8, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9],
        ),
        (
            Frame::Missed(Missed {
                life: Life(1),
                relay: Site(2),
                flaw: Flaw::Changed,
                seqs: vec![5, 6],
            }),
            &[0x1a, 1, 0, 0, 0, 2, 1, 5, 6],
        ),
        (
            Frame::Passed(Passed {
                from: Site(1),
                to: Site(3),
                frame: Bytes::from_static(&[0x14]),
            }),
            &[0x10, 1, 3, 0x14],
        ),
        (Frame::Ping { at: 258 }, &[0x1c, 2, 1, 0, 0, 0, 0, 0, 0]),
        (Frame::Pong { at: 1 }, &[0x1d, 1, 0, 0, 0, 0, 0, 0, 0]),
    ];
    for (frame, bytes) in golden {
        assert_eq!(&frame.to_bytes()[..], bytes, "{}", frame.name());
        assert_eq!(Frame::decode(&Bytes::from_static(bytes)), Ok(frame));
    }
}

#[test]
fn the_head_of_data_takes_at_most_24_bytes() {
    let last = CHUNKS_MAX - 1;
    let op = OpId { source: Site(127), life: Life(u32::MAX), seq: (1 << 35) - 1 };
    let widest = Data { op, epoch: (1 << 21) - 1, ..data(CHUNKS_MAX, last, Forward::AllOthers) };
    assert_eq!(Frame::Data(widest.clone()).head_len(), 19);
    let forward = Forward::To(SiteSet::first(28));
    assert!(Frame::Data(Data { forward, ..widest }).head_len() <= 24);
}

#[test]
fn bad_bytes_are_named() {
    let decode = |bytes: &[u8]| Frame::decode(&Bytes::copy_from_slice(bytes));
    assert_eq!(decode(&[]), Err(WireError::Truncated));
    assert_eq!(decode(&[0x24]), Err(WireError::Version(2)));
    assert_eq!(decode(&[0x1f]), Err(WireError::UnknownKind(15)));
    assert_eq!(decode(&[0x14, 0]), Err(WireError::Trailing(1)));
    assert_eq!(decode(&[0x11, 4, 0]), Err(WireError::Reserved));
    assert_eq!(decode(&[0x17, 0x80, 1, 1]), Err(WireError::Invalid("a site")));
    assert_eq!(decode(&[0x18, 1, 0x81, 0, 1]), Err(WireError::Invalid("a number")));
    assert_eq!(decode(&[0x1c, 1, 2]), Err(WireError::Truncated));
    let set_without_relay = [0x11, 8, 3, 4, 3, 2, 1, 0, 9, 1];
    assert_eq!(decode(&set_without_relay), Err(WireError::Invalid("a set of sites without RELAY")));
    let short_chunk = [0x11, 16, 3, 4, 3, 2, 1, 0, 9, 0, 2, 7];
    assert_eq!(decode(&short_chunk), Err(WireError::Invalid("the size of the payload")));
    let chunk_beyond = [0x11, 16, 3, 4, 3, 2, 1, 0, 9, 2, 2, 7];
    assert_eq!(decode(&chunk_beyond), Err(WireError::Invalid("the chunk")));
}

#[test]
fn a_large_payload_shares_the_frame_s_memory() {
    let bytes = Frame::Data(data(2, 0, Forward::AllOthers)).to_bytes();
    let Ok(Frame::Data(read)) = Frame::decode(&bytes) else { panic!("it is DATA") };
    assert_eq!(read.payload.as_ptr(), bytes[bytes.len() - CHUNK_BYTES..].as_ptr());
}

#[test]
fn an_ack_lists_what_has_come_beyond_the_first_hole() {
    let beyond = bits_beyond(10, [11, 12, 19, 40].into_iter());
    let ack = Ack { life: Life(0), next: 10, beyond };
    assert_eq!(ack.iter_beyond().collect::<Vec<_>>(), [11, 12, 19, 40]);
}

proptest! {
    #[test]
    fn data_survives_the_wire(
        seq in 0..=1u64 << 62, epoch: u32, source in 0..128u16, last: bool, bits: u128,
        is_repair: bool, is_body: bool,
        payload in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let forward = [Forward::Nobody, Forward::AllOthers, Forward::To(SiteSet::from_bits(bits))];
        for forward in forward {
            let (index, count) = if last && !payload.is_empty() { (2, 3) } else { (0, 1) };
            let op = OpId { source: Site(source), life: Life(epoch ^ 77), seq };
            let payload = Bytes::from(payload.clone());
            let frame = Frame::Data(Data {
                op, index, count, epoch, forward, is_repair, is_body, payload,
            });
            prop_assert_eq!(frame.encoded_len(), frame.to_bytes().len());
            prop_assert_eq!(Frame::decode(&frame.to_bytes()), Ok(frame));
        }
    }

    #[test]
    fn any_bytes_decode_or_are_refused_and_what_decodes_is_written_the_same(
        kind in 0..16u8, bytes in proptest::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut frame = vec![VERSION << 4 | kind];
        frame.extend(bytes);
        let frame = Bytes::from(frame);
        if let Ok(decoded) = Frame::decode(&frame) {
            prop_assert_eq!(decoded.to_bytes(), frame);
        }
    }
}
