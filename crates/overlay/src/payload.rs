//! Payloads: cut into chunks to be sent, put together when received; of what is received only small
//! ones were copied, out of the buffers that they came in.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};

use crate::wire::{CHUNK_BYTES, Data, Forward, OpId, WHOLE_BYTES_MAX};

/// The payload of an operation, in the pieces it travels in. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Payload {
    pieces: Pieces,
    is_body: bool,
}

#[derive(Clone, Debug)]
enum Pieces {
    One(Bytes),
    Many(Arc<[Bytes]>),
}

impl Payload {
    /// Cuts a payload: above 64 KiB into chunks of 32 KiB, which share its memory.
    pub(crate) fn cut(payload: Bytes) -> Self {
        if payload.len() <= WHOLE_BYTES_MAX {
            return Self { pieces: Pieces::One(payload), is_body: false };
        }
        let starts = (0..payload.len()).step_by(CHUNK_BYTES);
        let chunk = |at: usize| payload.slice(at..payload.len().min(at + CHUNK_BYTES));
        Self { pieces: Pieces::Many(starts.map(chunk).collect()), is_body: false }
    }

    /// The same, of a body of requests.
    pub(crate) fn cut_body(body: Bytes) -> Self {
        Self { is_body: true, ..Self::cut(body) }
    }

    /// The payload of these chunks.
    pub(crate) fn of(mut chunks: Vec<Bytes>, is_body: bool) -> Self {
        let pieces = match chunks.len() {
            1 => Pieces::One(chunks.remove(0)),
            _ => Pieces::Many(chunks.into()),
        };
        Self { pieces, is_body }
    }

    /// True for a body of requests: [`OverlayNode::bring`](crate::OverlayNode::bring).
    pub fn is_body(&self) -> bool {
        self.is_body
    }

    /// The pieces in their order: at least one, each of a frame.
    pub fn chunks(&self) -> &[Bytes] {
        match &self.pieces {
            Pieces::One(bytes) => std::slice::from_ref(bytes),
            Pieces::Many(chunks) => chunks,
        }
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.chunks().iter().map(Bytes::len).sum()
    }

    /// True when it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In one piece: without a copy up to 64 KiB, with one beyond.
    pub fn into_bytes(self) -> Bytes {
        match self.pieces {
            Pieces::One(bytes) => bytes,
            Pieces::Many(chunks) => {
                let mut whole = BytesMut::with_capacity(chunks.iter().map(Bytes::len).sum());
                chunks.iter().for_each(|chunk| whole.extend_from_slice(chunk));
                whole.freeze()
            }
        }
    }
}

/// Chunks that have come of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Assembly {
    chunks: Vec<Option<Bytes>>,
    is_body: bool,
    left: usize,
    bytes: usize,
}

/// Bytes that a chunk costs that has not come.
pub(crate) const PLACE_BYTES: usize = 64;

impl Assembly {
    /// Of so many, none.
    pub(crate) fn new(count: u32, is_body: bool) -> Self {
        let count = count as usize;
        Self { chunks: vec![None; count], is_body, left: count, bytes: 0 }
    }

    /// True if a chunk may be one of this operation.
    pub(crate) fn fits(&self, data: &Data) -> bool {
        self.is_of(data.count, data.is_body)
    }

    /// True if the operation has so many chunks.
    pub(crate) fn is_of(&self, count: u32, is_body: bool) -> bool {
        self.chunks.len() == count as usize && self.is_body == is_body
    }

    pub(crate) fn count(&self) -> usize {
        self.chunks.len()
    }

    /// Number of chunks that are missing.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Bytes that it takes in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.chunks.len() * PLACE_BYTES
    }

    /// Takes a chunk. Whether it was missing.
    pub(crate) fn insert(&mut self, index: u32, chunk: Bytes) -> bool {
        let Some(place) = self.chunks.get_mut(index as usize) else { return false };
        if place.is_some() {
            return false;
        }
        self.bytes += chunk.len();
        self.left -= 1;
        *place = Some(chunk);
        true
    }

    /// True when all have come.
    pub(crate) fn is_complete(&self) -> bool {
        self.left == 0
    }

    /// True when no chunk is missing but those that are `here`, by [`Self::present`].
    pub(crate) fn is_complete_beside(&self, here: &[u8]) -> bool {
        let is_there = |(index, chunk): (usize, &Option<Bytes>)| {
            chunk.is_some() || here.get(index / 8).is_some_and(|byte| byte >> (index % 8) & 1 == 1)
        };
        self.is_complete() || (!here.is_empty() && self.chunks.iter().enumerate().all(is_there))
    }

    /// Bit i of byte j: whether chunk 8 j + i has come. Without zeros at the end.
    pub(crate) fn present(&self) -> Bytes {
        self.present_beside(&[])
    }

    /// The same, or is `here`.
    pub(crate) fn present_beside(&self, here: &[u8]) -> Bytes {
        let mut bytes = vec![0u8; self.chunks.len().div_ceil(8)];
        bytes.iter_mut().zip(here).for_each(|(byte, here)| *byte = *here);
        for (index, _) in self.chunks.iter().enumerate().filter(|(_, chunk)| chunk.is_some()) {
            bytes[index / 8] |= 1 << (index % 8);
        }
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        bytes.into()
    }

    /// The chunks that have come, as answers to a fetch of this operation.
    pub(crate) fn into_answer(self, op: OpId) -> Vec<Data> {
        let (is_body, chunks) = (self.is_body, self.chunks.into_iter());
        let count = u32::try_from(chunks.len()).expect("chunks are few");
        let (epoch, forward) = (0, Forward::Nobody);
        let chunk = |(index, payload): (u32, Option<Bytes>)| {
            let (payload, is_repair) = (payload?, true);
            Some(Data { op, index, count, epoch, forward, is_repair, is_body, payload })
        };
        (0..).zip(chunks).filter_map(chunk).collect()
    }

    /// The payload.
    pub(crate) fn finish(self) -> Payload {
        Payload::of(self.chunks.into_iter().flatten().collect(), self.is_body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_payloads_stay_whole_and_large_ones_go_in_chunks_of_32_kib() {
        let sizes = |len: usize| {
            let payload = Payload::cut(Bytes::from(vec![1; len]));
            assert_eq!(payload.len(), len);
            payload.chunks().iter().map(Bytes::len).collect::<Vec<_>>()
        };
        assert_eq!(sizes(0), [0]);
        assert_eq!(sizes(65_536), [65_536]);
        assert_eq!(sizes(65_537), [32_768, 32_768, 1]);
        assert_eq!(sizes(131_072), [32_768; 4]);
    }

    #[test]
    fn chunks_in_any_order_give_the_payload_back_without_a_copy() {
        let bytes: Bytes =
            (0..200_000u32).map(|number| number.to_le_bytes()[0]).collect::<Vec<_>>().into();
        let payload = Payload::cut(bytes.clone());
        assert_eq!(payload.chunks()[1].as_ptr(), bytes[CHUNK_BYTES..].as_ptr());
        let mut assembly = Assembly::new(7, false);
        for index in [6, 0, 3, 1, 3, 2, 5, 4, 9] {
            let chunk = payload.chunks().get(index as usize).cloned().unwrap_or_default();
            let is_new = assembly.insert(index, chunk);
            assert_eq!(is_new, index != 9 && !(index == 3 && assembly.left != 4));
        }
        assert!(assembly.is_complete());
        assert_eq!(assembly.bytes(), 200_000 + 7 * PLACE_BYTES);
        assert_eq!(assembly.finish().into_bytes(), bytes);
    }

    #[test]
    fn what_is_present_is_told_in_bits() {
        let mut assembly = Assembly::new(20, true);
        assert_eq!(assembly.present(), Bytes::new());
        for index in [0, 9] {
            assembly.insert(index, Bytes::new());
        }
        assert_eq!(&assembly.present()[..], &[1, 2]);
    }
}
