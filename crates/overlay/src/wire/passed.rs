//! PASSED: a control frame for a site that its sender does not reach, by way of one that reaches
//! both.

use bytes::Bytes;

use crate::site::Site;

use super::codec::{Reader, WireError, write_site};

/// A frame inside a frame. The site that it comes to first passes it on as it is, and no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Its sender.
    pub from: Site,
    /// Its receiver.
    pub to: Site,
    /// The frame.
    pub frame: Bytes,
}

/// Largest frame in it, in bytes: an acknowledgement of a whole window is smaller.
const FRAME_BYTES_MAX: usize = 8 << 10;

impl Passed {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_site(self.from, out);
        write_site(self.to, out);
        out.extend_from_slice(&self.frame);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (from, to, frame) = (input.site()?, input.site()?, input.rest_to_keep());
        if frame.len() > FRAME_BYTES_MAX {
            return Err(WireError::Invalid("the size of the frame inside"));
        }
        Ok(Self { from, to, frame })
    }
}
