//! A small log: segments of records with length and checksum, on any disk.
//!
//! What it does about durability is all there is to it. A record is acknowledged once its segment
//! is synced, and nothing is written to a segment before its name is durable. After a failed sync
//! the process is to end; the next one copies the last segment, since what it reads there may be
//! what the system has in memory and will never write.

use bytes::{BufMut, Bytes, BytesMut};
use convoke_sim::disk::{Disk, DiskError, DiskFile, Open};
use convoke_sim::random::{DIGEST_START, digest};

/// A deliberate defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    None,
    /// The name of a new segment is not synced.
    NoDirSync,
    /// Records are acknowledged when they are written.
    ReplyBeforeSync,
    /// A failed sync is tried again.
    RetriedSync,
}

#[derive(Debug)]
pub(crate) enum LedgerError {
    Disk(DiskError),
    /// A record that was acknowledged is not what was written.
    Corrupt {
        segment: String,
        offset: usize,
    },
}

impl From<DiskError> for LedgerError {
    fn from(error: DiskError) -> Self {
        Self::Disk(error)
    }
}

pub(crate) struct Ledger<D: Disk> {
    disk: D,
    segment: D::File,
    number: u32,
    end: u64,
    mutant: Mutant,
    _lock: D::Lock,
}

const DIR: &str = "ledger";
const HEAD_BYTES: usize = 12;
/// Small, so that segments are begun often.
const SEGMENT_BYTES: u64 = 200;

impl<D: Disk> Ledger<D> {
    /// Opens the ledger, and gives the records that it has.
    pub(crate) async fn open(disk: D, mutant: Mutant) -> Result<(Self, Vec<Bytes>), LedgerError> {
        if disk.list("").await?.iter().all(|entry| entry.name != DIR) {
            disk.create_dir(DIR).await?;
        }
        disk.sync_dir("").await?;
        let lock = disk.lock("ledger/lock").await?;
        let entries = disk.list(DIR).await?.into_iter();
        let numbers: Vec<u32> = entries.filter_map(|entry| entry.name.parse().ok()).collect();
        let (mut records, mut last) = (Vec::new(), None);
        for number in &numbers {
            let segment = path(*number);
            let contents = disk.open(&segment, Open::Read).await?.read_at(0, usize::MAX).await?;
            let end = read_records(&contents, &mut records);
            if end < contents.len() && Some(number) != numbers.last() {
                return Err(LedgerError::Corrupt { segment, offset: end });
            }
            // Behind the records is the torn tail of the last segment: nobody was told of it.
            last = Some((*number, contents.slice(..end)));
        }
        let (number, end) = last.as_ref().map_or((1, 0), |(number, last)| (*number, last.len()));
        let segment = match last {
            Some((number, contents)) => copy(&disk, number, contents, mutant).await?,
            None => begin(&disk, 1, mutant).await?,
        };
        Ok((Self { disk, segment, number, end: end as u64, mutant, _lock: lock }, records))
    }

    /// Writes a record, and returns once it may be acknowledged.
    pub(crate) async fn append(&mut self, record: Bytes) -> Result<(), LedgerError> {
        if self.end > SEGMENT_BYTES {
            let next = begin(&self.disk, self.number + 1, self.mutant).await?;
            (self.segment, self.number, self.end) = (next, self.number + 1, 0);
        }
        let mut bytes = BytesMut::with_capacity(HEAD_BYTES + record.len());
        bytes.put_u32_le(u32::try_from(record.len()).expect("records are small"));
        bytes.put_u64_le(digest(DIGEST_START, &record));
        bytes.put(record);
        let len = bytes.len() as u64;
        self.segment.write_all_at(self.end, bytes.freeze()).await?;
        self.end += len;
        match self.mutant {
            Mutant::ReplyBeforeSync => {}
            Mutant::RetriedSync => while self.segment.sync().await.is_err_and(is_worth_a_try) {},
            Mutant::None | Mutant::NoDirSync => self.segment.sync().await?,
        }
        Ok(())
    }
}

fn is_worth_a_try(error: DiskError) -> bool {
    error.failure != convoke_sim::disk::DiskFailure::Gone
}

async fn begin<D: Disk>(disk: &D, number: u32, mutant: Mutant) -> Result<D::File, DiskError> {
    let file = disk.open(&path(number), Open::New).await?;
    sync_names(disk, mutant).await?;
    Ok(file)
}

/// Replaces a segment by one with these contents, durably.
async fn copy<D: Disk>(
    disk: &D,
    number: u32,
    contents: Bytes,
    mutant: Mutant,
) -> Result<D::File, DiskError> {
    let file = disk.open("ledger/copy", Open::Create).await?;
    file.set_len(0).await?;
    file.write_all_at(0, contents).await?;
    file.sync().await?;
    disk.rename("ledger/copy", &path(number)).await?;
    sync_names(disk, mutant).await?;
    Ok(file)
}

async fn sync_names<D: Disk>(disk: &D, mutant: Mutant) -> Result<(), DiskError> {
    if mutant == Mutant::NoDirSync { Ok(()) } else { disk.sync_dir(DIR).await }
}

fn path(number: u32) -> String {
    format!("{DIR}/{number:08}")
}

/// Where the records end: at the end of the segment, or at the first that is not whole.
fn read_records(mut segment: &[u8], records: &mut Vec<Bytes>) -> usize {
    let whole = segment.len();
    while let Some((head, rest)) = segment.split_first_chunk::<HEAD_BYTES>() {
        let (len, sum) = head.split_at(4);
        let len = u32::from_le_bytes(len.try_into().expect("four bytes"));
        let Some((record, rest)) = rest.split_at_checked(len as usize) else { break };
        if digest(DIGEST_START, record).to_le_bytes() != *sum {
            break;
        }
        records.push(Bytes::copy_from_slice(record));
        segment = rest;
    }
    whole - segment.len()
}
