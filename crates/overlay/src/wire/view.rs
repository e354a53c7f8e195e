//! VIEW: what a site thinks of the others.

use crate::site::SiteSet;

use super::codec::{Reader, WireError, write_number};

/// The sites that its sender suspects and does not reach, in place of what it said before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Counts up with each change, in one life of its sender: what comes late is no news.
    pub version: u32,
    /// Relays of its own stream that it suspects.
    pub suspects: SiteSet,
    /// Sites that it has no link to, or has not heard for too long.
    pub unreached: SiteSet,
}

impl View {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_number(self.version.into(), out);
        write_number(self.suspects.bits(), out);
        write_number(self.unreached.bits(), out);
    }

    pub(super) fn read(input: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { version: input.number()?, suspects: input.sites()?, unreached: input.sites()? })
    }
}
