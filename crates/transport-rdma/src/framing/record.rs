//! Records: a whole frame or a fragment of one, behind a word of 4 bytes.
//!
//! ```text
//!   31     30      29     28..24   23..0
//!  ┌──────┬───────┬──────┬────────┬────────┐
//!  │ lane │ first │ last │ zero   │ length │  little-endian; lane 0 control, 1 data
//!  └──────┴───────┴──────┴────────┴────────┘
//! ```
//!
//! A frame that fits a message is one record, first and last at once. A larger one is a first
//! fragment, which says in 4 more bytes how long the frame will be, fragments, and a last one; none
//! of them is empty. Records of the two lanes may alternate, also within a message.

use convoke_transport::Lane;

use super::Fault;

/// The word before every record.
pub(crate) const WORD_BYTES: usize = 4;
/// The word and the announced length of a first fragment.
pub(crate) const FIRST_BYTES: usize = 8;
/// Largest length a word can say; slots are smaller.
pub(crate) const RECORD_BYTES_MAX: usize = (1 << 24) - 1;

const LANE_BIT: u32 = 1 << 31;
const FIRST_BIT: u32 = 1 << 30;
const LAST_BIT: u32 = 1 << 29;
const ZERO_BITS: u32 = 0x1f << 24;

/// Part of its frame that a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All of it.
    Whole,
    /// The first fragment of a frame of `frame_bytes`.
    First {
        /// Length of the frame in all.
        frame_bytes: u32,
    },
    /// Neither the first fragment nor the last.
    Middle,
    /// The last fragment.
    Last,
}

impl Part {
    /// Number of bytes that stand before those of the frame.
    #[inline]
    pub(crate) fn head_bytes(self) -> usize {
        match self {
            Self::First { .. } => FIRST_BYTES,
            Self::Whole | Self::Middle | Self::Last => WORD_BYTES,
        }
    }
}

/// Head before the bytes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) lane: Lane,
    pub(crate) part: Part,
    /// Number of bytes of the frame that follow; at most [`RECORD_BYTES_MAX`].
    pub(crate) len: usize,
}

impl Head {
    /// Writes it to the front of `out` and returns what is left.
    #[inline]
    pub(crate) fn put(self, out: &mut [u8]) -> &mut [u8] {
        let (word, rest) = out.split_at_mut(WORD_BYTES);
        word.copy_from_slice(&self.word().to_le_bytes());
        let Part::First { frame_bytes } = self.part else { return rest };
        let (announced, rest) = rest.split_at_mut(FIRST_BYTES - WORD_BYTES);
        announced.copy_from_slice(&frame_bytes.to_le_bytes());
        rest
    }

    #[inline]
    fn word(self) -> u32 {
        debug_assert!(self.len <= RECORD_BYTES_MAX);
        let len = u32::try_from(self.len).expect("records are shorter than RECORD_BYTES_MAX");
        let part = match self.part {
            Part::Whole => FIRST_BIT | LAST_BIT,
            Part::First { .. } => FIRST_BIT,
            Part::Middle => 0,
            Part::Last => LAST_BIT,
        };
        let lane = if self.lane == Lane::Data { LANE_BIT } else { 0 };
        lane | part | len
    }
}

/// The records of a message.
#[derive(Clone, Debug)]
pub(crate) struct Records<'a> {
    payload: &'a [u8],
    at: usize,
}

/// A record and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) lane: Lane,
    pub(crate) part: Part,
    /// The bytes of the frame, counted from the begin of the payload.
    pub(crate) range: std::ops::Range<usize>,
}

impl<'a> Records<'a> {
    /// Those in `payload`, which is all of a message behind its header.
    #[inline]
    pub(crate) fn new(payload: &'a [u8]) -> Self {
        Self { payload, at: 0 }
    }

    #[inline]
    fn u32_le(&mut self) -> Result<u32, Fault> {
        let rest = &self.payload[self.at..];
        let word = rest.first_chunk().ok_or(Fault::BadRecord("the message ends before it does"))?;
        self.at += WORD_BYTES;
        Ok(u32::from_le_bytes(*word))
    }

    #[inline]
    fn record(&mut self) -> Result<Record, Fault> {
        let word = self.u32_le()?;
        if word & ZERO_BITS != 0 {
            return Err(Fault::BadRecord("its word has unknown bits"));
        }
        let lane = if word & LANE_BIT != 0 { Lane::Data } else { Lane::Control };
        let len = (word & 0x00ff_ffff) as usize;
        let part = match (word & FIRST_BIT != 0, word & LAST_BIT != 0) {
            (true, true) => Part::Whole,
            (true, false) => Part::First { frame_bytes: self.u32_le()? },
            (false, false) => Part::Middle,
            (false, true) => Part::Last,
        };
        if len == 0 && part != Part::Whole {
            return Err(Fault::BadRecord("it is an empty fragment"));
        }
        if self.payload.len() - self.at < len {
            return Err(Fault::BadRecord("the message ends before it does"));
        }
        let range = self.at..self.at + len;
        self.at = range.end;
        Ok(Record { lane, part, range })
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, Fault>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.payload.len() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.at = self.payload.len();
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![
            Just(Part::Whole),
            any::<u32>().prop_map(|frame_bytes| Part::First { frame_bytes }),
            Just(Part::Middle),
            Just(Part::Last),
        ]
    }

    fn lane() -> impl Strategy<Value = Lane> {
        prop_oneof![Just(Lane::Control), Just(Lane::Data)]
    }

    fn put(records: &[(Lane, Part, Vec<u8>)]) -> Vec<u8> {
        let mut payload = Vec::new();
        for (lane, part, bytes) in records {
            let mut record = vec![0; part.head_bytes() + bytes.len()];
            let head = Head { lane: *lane, part: *part, len: bytes.len() };
            head.put(&mut record).copy_from_slice(bytes);
            payload.extend(record);
        }
        payload
    }

    #[test]
    fn a_record_has_these_bytes() {
        let frame_bytes = 0x0102_0304;
        let payload = put(&[(Lane::Data, Part::First { frame_bytes }, vec![9, 9])]);
        assert_eq!(payload, [2, 0, 0, 0xc0, 4, 3, 2, 1, 9, 9]);
    }

    #[test]
    fn an_empty_fragment_is_a_fault() {
        let payload = put(&[(Lane::Data, Part::Middle, vec![])]);
        let records: Vec<_> = Records::new(&payload).collect();
        assert_eq!(records, [Err(Fault::BadRecord("it is an empty fragment"))]);
    }

    proptest! {
        #[test]
        fn records_come_out_as_they_were_put(
            records in prop::collection::vec(
                (lane(), part(), prop::collection::vec(any::<u8>(), 1..40)), 0..8),
        ) {
            let payload = put(&records);
            let read: Vec<_> = Records::new(&payload)
                .map(|record| {
                    let record = record.unwrap();
                    (record.lane, record.part, payload[record.range].to_vec())
                })
                .collect();
            prop_assert_eq!(read, records);
        }

        #[test]
        fn any_bytes_are_records_or_a_fault(
            payload in prop::collection::vec(any::<u8>(), 0..200),
            first_len in 0..200_u8,
        ) {
            let mut payload = payload;
            // A random word is nearly always refused; most of the time let the first one be a
            // record.
            if let [len, zero, zeros, bits, ..] = payload.as_mut_slice() {
                (*len, *zero, *zeros) = (first_len, 0, 0);
                *bits &= 0xe0;
            }
            let records: Vec<_> = Records::new(&payload).collect();
            let faults = records.iter().filter(|record| record.is_err()).count();
            prop_assert!(faults <= 1 && records.len() <= payload.len() / WORD_BYTES + 1);
            let mut end = 0;
            for record in records.into_iter().flatten() {
                let range = record.range;
                prop_assert!(end + WORD_BYTES <= range.start && range.end <= payload.len());
                end = range.end;
            }
        }
    }
}
