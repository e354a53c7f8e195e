//! The framing of messages in a body (gRPC over HTTP/2, "Length-Prefixed-Message"), followed beside
//! tonic: what tonic says of a breach looks like a status that the peer has sent.

use tonic::Code;

/// Bytes before a message: a flag and its length.
pub(crate) const PREFIX_BYTES: usize = 5;

/// Position in the messages of a body.
#[derive(Debug)]
pub(crate) struct Framing {
    bytes_max: usize,
    prefix: [u8; PREFIX_BYTES],
    /// Bytes of the next prefix that have come.
    prefix_bytes: usize,
    /// Bytes of the message that has begun last.
    announced: usize,
    /// Bytes of it that are yet to come.
    left: usize,
    begun: u64,
}

/// Breach of the framing, or of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Breach {
    /// No encoding is ever agreed on.
    #[error("the flag of a message is {0}, where nothing is compressed")]
    Flag(u8),
    #[error("a message of {bytes} bytes is above the limit of {limit} bytes")]
    TooLarge { bytes: usize, limit: usize },
    #[error("the stream ended within a message")]
    Cut,
}

impl Framing {
    /// At the start of a body whose messages have at most so many bytes.
    pub(crate) fn new(bytes_max: usize) -> Self {
        let prefix = [0; PREFIX_BYTES];
        Self { bytes_max, prefix, prefix_bytes: 0, announced: 0, left: 0, begun: 0 }
    }

    /// Follows data.
    pub(crate) fn handle_data(&mut self, mut data: &[u8]) -> Result<(), Breach> {
        loop {
            let skipped = self.left.min(data.len());
            self.left -= skipped;
            data = &data[skipped..];
            let missing = &mut self.prefix[self.prefix_bytes..];
            let taken = missing.len().min(data.len());
            missing[..taken].copy_from_slice(&data[..taken]);
            self.prefix_bytes += taken;
            data = &data[taken..];
            if self.prefix_bytes < PREFIX_BYTES {
                return Ok(());
            }
            self.begin()?;
        }
    }

    fn begin(&mut self) -> Result<(), Breach> {
        let [flag, length @ ..] = self.prefix;
        if flag != 0 {
            return Err(Breach::Flag(flag));
        }
        let bytes = u32::from_be_bytes(length) as usize;
        if bytes > self.bytes_max {
            return Err(Breach::TooLarge { bytes, limit: self.bytes_max });
        }
        (self.prefix_bytes, self.announced, self.left) = (0, bytes, bytes);
        self.begun += 1;
        Ok(())
    }

    /// Ends the body.
    pub(crate) fn handle_end(&self) -> Result<(), Breach> {
        if self.is_within() { Err(Breach::Cut) } else { Ok(()) }
    }

    /// True when a message, or its prefix, has begun and is not whole.
    pub(crate) fn is_within(&self) -> bool {
        self.left > 0 || self.prefix_bytes > 0
    }

    /// Bytes of the message that has begun last, as its prefix says.
    pub(crate) fn announced(&self) -> usize {
        self.announced
    }

    /// Messages that have come whole.
    pub(crate) fn whole(&self) -> u64 {
        self.begun - u64::from(self.left > 0)
    }

    /// Messages that have begun.
    pub(crate) fn begun(&self) -> u64 {
        self.begun
    }
}

impl Breach {
    /// Code that gRPC has for it.
    pub(crate) fn code(self) -> Code {
        match self {
            Self::TooLarge { .. } => Code::ResourceExhausted,
            Self::Flag(_) | Self::Cut => Code::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_however_they_are_cut() {
        let body = [&[0, 0, 0, 0, 3, 7, 7, 7][..], &[0; 5], &[0, 0, 0, 0, 1, 7]].concat();
        for piece in 1..=body.len() {
            let mut framing = Framing::new(3);
            assert_eq!(framing.handle_end(), Ok(()));
            for (index, piece) in body.chunks(piece).enumerate() {
                assert_eq!(framing.handle_data(piece), Ok(()), "piece {index}");
            }
            assert_eq!((framing.begun(), framing.whole(), framing.handle_end()), (3, 3, Ok(())));
        }
    }

    #[test]
    fn a_body_ends_between_messages_alone() {
        let body = [0, 0, 0, 0, 2, 7, 7];
        for len in 1..body.len() {
            let mut framing = Framing::new(2);
            framing.handle_data(&body[..len]).expect("it is within the limit");
            assert_eq!(
                (framing.handle_end(), framing.whole()),
                (Err(Breach::Cut), 0),
                "{len} bytes"
            );
        }
    }

    #[test]
    fn a_flag_is_looked_at_before_the_length() {
        let mut framing = Framing::new(2);
        assert_eq!(framing.handle_data(b"<html>"), Err(Breach::Flag(b'<')));
    }

    #[test]
    fn a_message_above_the_limit_is_known_by_its_prefix() {
        let mut framing = Framing::new(2);
        let too_large = Breach::TooLarge { bytes: 3, limit: 2 };
        assert_eq!(framing.handle_data(&[0, 0, 0, 0, 3]), Err(too_large));
    }
}
