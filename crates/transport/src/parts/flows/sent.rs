//! Numbers of frames sent over the flows of a connection, and what each flow was told of the
//! others.

/// Most bytes of one number: 7 bits a byte, the lowest first (LEB128).
pub(super) const COUNT_BYTES_MAX: u32 = 10;

/// Numbers of frames, by flow, and the buffer in which the next frame gets its head.
#[derive(Debug)]
pub(super) struct Sent {
    counts: Vec<u64>,
    /// By flow, the numbers as the last frame over it told them.
    told: Vec<Vec<u64>>,
    head: Vec<u8>,
}

impl Sent {
    pub(super) fn new(flows: usize) -> Self {
        let told = vec![vec![0; flows]; flows];
        Self { counts: vec![0; flows], told, head: Vec::new() }
    }

    /// The head of a frame over this flow, with the numbers before it.
    pub(super) fn prefixed(&mut self, flow: usize, head: &[u8]) -> &[u8] {
        self.head.clear();
        for (other, (count, told)) in self.counts.iter().zip(&self.told[flow]).enumerate() {
            if other != flow {
                put(&mut self.head, count - told);
            }
        }
        self.head.extend_from_slice(head);
        &self.head
    }

    /// The frame was taken.
    pub(super) fn count(&mut self, flow: usize) {
        self.told[flow].copy_from_slice(&self.counts);
        self.counts[flow] += 1;
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

/// Takes a number from the front of what came.
pub(super) fn take(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        let bits = u64::from(byte & 0x7f);
        if bits.leading_zeros() < shift {
            return None;
        }
        number |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_wire_and_others_are_none() {
        for number in [0, 1, 0x7f, 0x80, 0x3fff, 0x4000, u64::from(u32::MAX), u64::MAX] {
            let mut bytes = Vec::new();
            put(&mut bytes, number);
            assert!(bytes.len() <= COUNT_BYTES_MAX as usize);
            let mut rest = &bytes[..];
            assert_eq!((take(&mut rest), rest.len()), (Some(number), 0));
            assert_eq!(take(&mut &bytes[..bytes.len() - 1]), None);
        }
        assert_eq!(take(&mut &[0xff; 20][..]), None);
        assert_eq!(take(&mut &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2][..]), None);
    }

    #[test]
    fn a_flow_is_told_how_many_were_sent_over_the_others_since_it_was_told_last() {
        let mut sent = Sent::new(3);
        let mut send = |flow| {
            let prefix = sent.prefixed(flow, &[]).to_vec();
            sent.count(flow);
            prefix
        };
        assert_eq!(send(0), [0, 0]);
        assert_eq!(send(0), [0, 0]);
        assert_eq!(send(1), [2, 0]);
        assert_eq!(send(2), [2, 1]);
        assert_eq!(send(1), [0, 1]);
        assert_eq!(send(0), [2, 1]);
    }
}
