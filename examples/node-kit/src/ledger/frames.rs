//! Records of one file, read in order and in bounded memory.

use std::sync::Arc;

use bytes::Bytes;
use convoke::disk::{DiskError, Open};

use super::Identity;
use super::error::LedgerError;
use super::files::{File, Volume};
use super::format::{HEAD_BYTES, HEADER_BYTES, Head, Header, Sort};

/// Bytes that are read at once.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes of one file, through a window.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    pub(super) name: String,
    pub(super) header: Header,
    /// Length of the file when it was opened.
    pub(super) len: u64,
    file: Arc<dyn File>,
    window: Bytes,
    window_at: u64,
}

/// Found at a place of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A whole record, or part of a snapshot; the next begins behind it.
    Record { head: Head, body: Bytes, next: u64 },
    /// The word that all before it is durable.
    Seal(Head),
    /// A whole head before other bytes than were written.
    WrongBody { head: Head, next: u64 },
    /// Nothing that was written here.
    Nothing,
}

/// Place of the first record of a file.
pub(super) const FIRST_AT: u64 = HEADER_BYTES as u64;

impl Frames {
    /// Opens a file of a ledger, of whichever node.
    pub(super) async fn open(
        volume: &dyn Volume,
        name: &str,
        sort: Sort,
    ) -> Result<Self, LedgerError> {
        let file = volume.open(name, Open::Read).await?;
        let (len, window) = (file.len().await?, file.read_at(0, CHUNK_BYTES).await?);
        let header = Header::decode(name, sort, &window)?;
        Ok(Self { name: name.to_owned(), header, len, file, window, window_at: 0 })
    }

    /// Opens a file of this node's ledger.
    pub(super) async fn open_own(
        volume: &dyn Volume,
        name: &str,
        sort: Sort,
        expected: Identity,
    ) -> Result<Self, LedgerError> {
        let frames = Self::open(volume, name, sort).await?;
        match frames.header.identity {
            found if found == expected => Ok(frames),
            found => Err(LedgerError::Foreign { file: name.to_owned(), found, expected }),
        }
    }

    /// Finds out what is at a place.
    pub(super) async fn at(&mut self, at: u64) -> Result<Found, DiskError> {
        let Some(head) = Head::decode(self.header.salt, &self.bytes(at, HEAD_BYTES).await?) else {
            return Ok(Found::Nothing);
        };
        let body_at = at.saturating_add(HEAD_BYTES as u64);
        let next = body_at.saturating_add(head.len.into());
        // Nothing is set aside for a length that the file does not have.
        let body = if next > self.len { None } else { Some(self.body(body_at, head.len).await?) };
        Ok(match body.filter(|body| head.is_of(body)) {
            Some(_) if head.is_seal => Found::Seal(head),
            // A copy, so that a small record that is kept does not keep the whole window.
            Some(body) if body.len() < CHUNK_BYTES => {
                Found::Record { head, body: Bytes::copy_from_slice(&body), next }
            }
            Some(body) => Found::Record { head, body, next },
            None => Found::WrongBody { head, next },
        })
    }

    /// Searches the next whole head from a place on that stands before `position` or behind it, as
    /// far as this file can have records.
    pub(super) async fn head_from(
        &mut self,
        from: u64,
        position: u64,
    ) -> Result<Option<(u64, Head)>, DiskError> {
        let room = self.len.saturating_sub(from) / HEAD_BYTES as u64;
        let positions = position..=position.saturating_add(room);
        let mut at = from;
        while at < self.len {
            let window = self.ahead(at).await?;
            for (ahead, head) in window.windows(HEAD_BYTES).enumerate() {
                // Two in a million places pass this, so that few checksums are computed.
                let found = u64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
                if !positions.contains(&found) {
                    continue;
                }
                if let Some(head) = Head::decode(self.header.salt, head) {
                    return Ok(Some((at + ahead as u64, head)));
                }
            }
            let searched = window.len().saturating_sub(HEAD_BYTES - 1);
            if searched == 0 {
                break;
            }
            at += searched as u64;
        }
        Ok(None)
    }

    async fn body(&mut self, at: u64, len: u32) -> Result<Bytes, DiskError> {
        self.bytes(at, usize::try_from(len).unwrap_or(usize::MAX)).await
    }

    /// Bytes from a place on, as many as were read already, if a head may be among them.
    async fn ahead(&mut self, at: u64) -> Result<Bytes, DiskError> {
        let start = at.checked_sub(self.window_at).and_then(|start| usize::try_from(start).ok());
        match start.filter(|start| start.saturating_add(HEAD_BYTES) <= self.window.len()) {
            Some(start) => Ok(self.window.slice(start..)),
            None => self.bytes(at, CHUNK_BYTES).await,
        }
    }

    /// Bytes from a place on, fewer where the file ends.
    async fn bytes(&mut self, at: u64, len: usize) -> Result<Bytes, DiskError> {
        if let Some(bytes) = self.in_window(at, len) {
            return Ok(bytes);
        }
        let window = self.file.read_at(at, len.max(CHUNK_BYTES)).await?;
        // A large record is read alone, and not kept.
        let bytes = window.slice(..len.min(window.len()));
        if window.len() <= CHUNK_BYTES {
            (self.window, self.window_at) = (window, at);
        }
        Ok(bytes)
    }

    fn in_window(&self, at: u64, len: usize) -> Option<Bytes> {
        let start = usize::try_from(at.checked_sub(self.window_at)?).ok()?;
        let end = start.checked_add(len)?;
        (end <= self.window.len()).then(|| self.window.slice(start..end))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use bytes::BytesMut;

    use super::*;
    use crate::ledger::files::Pending;
    use crate::ledger::format::encode;
    use crate::ledger::segment::End;

    /// A file that is only read, and counts of how much.
    #[derive(Debug)]
    struct Counted(Bytes, AtomicU64);

    impl File for Counted {
        fn len(&self) -> Pending<'_, u64> {
            Box::pin(async { Ok(self.0.len() as u64) })
        }

        fn read_at(&self, offset: u64, len: usize) -> Pending<'_, Bytes> {
            let start = usize::try_from(offset).map_or(self.0.len(), |at| at.min(self.0.len()));
            let bytes = self.0.slice(start..start.saturating_add(len).min(self.0.len()));
            self.1.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            Box::pin(async { Ok(bytes) })
        }

        fn write_all_at(&self, _: u64, _: Bytes) -> Pending<'_, ()> {
            unreachable!("a file that is read")
        }

        fn write_all_and_sync(&self, _: u64, _: Bytes) -> Pending<'_, ()> {
            unreachable!("a file that is read")
        }

        fn set_len(&self, _: u64) -> Pending<'_, ()> {
            unreachable!("a file that is read")
        }

        fn sync(&self) -> Pending<'_, ()> {
            unreachable!("a file that is read")
        }
    }

    /// Of a large batch the first record was torn, and the others were written.
    #[tokio::test]
    async fn a_torn_batch_is_read_once_or_so_however_many_records_follow() {
        let identity = Identity { cluster: 7, node: 3 };
        let header = Header { sort: Sort::Segment, identity, number: 1, position: 0, salt: 5 };
        let mut bytes = BytesMut::new();
        header.encode(&mut bytes);
        for position in 0..60_000 {
            encode(header.salt, position, 0, &[7; 50], &mut bytes);
        }
        bytes[HEADER_BYTES + HEAD_BYTES] = 0;
        let len = bytes.len() as u64;
        let file = Arc::new(Counted(bytes.freeze(), AtomicU64::new(0)));
        let (name, window) = ("segment".to_owned(), Bytes::new());
        let mut frames = Frames { name, header, len, file: file.clone(), window, window_at: 0 };
        let end = End::of(&mut frames).await.unwrap();
        assert_eq!((end.position, end.at), (0, FIRST_AT));
        let read = file.1.load(Ordering::Relaxed);
        assert!(read < 2 * len, "{read} bytes were read of {len}");
    }
}
