//! Numbered frames whose length and content follow from their number.

use bytes::Bytes;

/// Below, at and above what is sent inline, copied out, put into one slot, and cut.
const LENGTHS: [usize; 10] = [8, 64, 216, 217, 1_024, 1_025, 4_000, 8_184, 8_185, 20_000];

/// The frame of this number.
pub(crate) fn frame(number: u64) -> Bytes {
    let mut frame = vec![fill(number); length(number)];
    frame[..8].copy_from_slice(&number.to_le_bytes());
    frame.into()
}

/// Complaint about a frame that should be of this number.
pub(crate) fn complaint(number: u64, frame: &[u8]) -> Option<String> {
    let Some(head) = frame.first_chunk::<8>() else {
        return Some(format!("frame {number} has {} bytes", frame.len()));
    };
    let found = u64::from_le_bytes(*head);
    if found != number {
        return Some(format!("frame {found} came in place of {number}"));
    }
    if frame.len() != length(number) {
        return Some(format!("frame {number} has {} bytes, not {}", frame.len(), length(number)));
    }
    // One byte of each line of a cache shows what a whole look would: nothing writes less.
    let is_changed = |byte: &&u8| **byte != fill(number);
    let changed = frame[8..].iter().step_by(61).find(is_changed);
    changed.map(|byte| format!("frame {number} holds {byte} where {} was sent", fill(number)))
}

fn length(number: u64) -> usize {
    let index = usize::try_from(number % LENGTHS.len() as u64).expect("it is below ten");
    LENGTHS[index]
}

fn fill(number: u64) -> u8 {
    number.to_le_bytes()[0] ^ 0x5a
}
