//! MANIFEST: entries that found no other frame to ride on.

use super::codec::{Out, Reader, WireError};
use super::entry::{Entry, Sealed, read_sealed, write_sealed};

pub(super) const FLAG_OWN: u8 = 0x01;

/// Entries for the initiator, at least one. Typically 28 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The declaration of the task named in the header, which sends them.
    pub own: Option<Entry>,
    /// Entries of ancestors.
    pub inherited: Vec<Sealed>,
}

impl Manifest {
    pub(super) fn flags(&self) -> u8 {
        if self.own.is_some() { FLAG_OWN } else { 0 }
    }

    pub(super) fn write(&self, out: &mut impl Out) {
        if let Some(own) = &self.own {
            own.write(out);
        }
        write_sealed(&self.inherited, out);
    }

    pub(super) fn read(flags: u8, input: &mut Reader<'_>) -> Result<Self, WireError> {
        let (own, inherited) = read_own_and_sealed(flags, input)?;
        if own.is_none() && inherited.is_empty() {
            return Err(WireError::Invalid);
        }
        Ok(Self { own, inherited })
    }
}

/// Reads what ends a MANIFEST and a LINK_DOWN, whose one flag is [`FLAG_OWN`].
pub(super) fn read_own_and_sealed(
    flags: u8,
    input: &mut Reader<'_>,
) -> Result<(Option<Entry>, Vec<Sealed>), WireError> {
    if flags & !FLAG_OWN != 0 {
        return Err(WireError::Reserved);
    }
    let own = (flags & FLAG_OWN != 0).then(|| Entry::read(input)).transpose()?;
    Ok((own, read_sealed(input)?))
}
