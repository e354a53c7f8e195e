//! The ledger of a node program: opened from its folder, printed for people, and its disk measured.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use console::say;
use convoke::disk::HostDisk;

use crate::cluster::{Cluster, LedgerForm, Protocol};
use crate::ledger::{self, Content, Entry, Ledger, Recovered};

/// The ledger of a node, in its folder.
const FOLDER: &str = "ledger";

/// Opens the ledger of a node, in the folder `ledger` of its folder, or one in memory.
///
/// # Errors
/// When there is no such node, or the ledger cannot be opened.
pub async fn open<P: Protocol>(
    cluster: &Cluster<P>,
    id: u64,
    form: LedgerForm,
) -> Result<(Ledger, Option<Recovered>)> {
    let node = cluster.node(id)?;
    if form == LedgerForm::Ram {
        return Ok((Ledger::in_memory(), None));
    }
    let folder = node.folder.join(FOLDER);
    let place = || format!("the ledger in {}", folder.display());
    let disk = HostDisk::create(&folder).with_context(place)?;
    let identity = cluster.ledger_identity(node.id);
    let opened = Ledger::open(disk, identity, ledger::Settings::default()).await;
    let (ledger, recovered) = opened.with_context(place)?;
    Ok((ledger, Some(recovered)))
}

/// Prints the contents of a ledger, whatever state it is in, its records in these words: of one in
/// this folder, or in the folder `ledger` of this folder of a node. False when something is wrong
/// with it.
///
/// # Errors
/// When the folder cannot be read, or there is no ledger.
pub async fn dump(folder: &Path, record: impl Fn(Bytes) -> String) -> Result<bool> {
    if !folder.is_dir() {
        bail!("{} is no folder", folder.display());
    }
    let mut reading = ledger::read(HostDisk::new(folder)).await?;
    let of_node = folder.join(FOLDER);
    if reading.is_empty() && of_node.is_dir() {
        reading = ledger::read(HostDisk::new(&of_node)).await?;
    }
    if reading.is_empty() {
        bail!("no file of a ledger is in {}, nor in {}", folder.display(), of_node.display());
    }
    let mut is_whole = true;
    while let Some(Entry { file, offset, content }) = reading.next().await {
        is_whole &= !matches!(content, Content::Wrong(_));
        let text = match content {
            Content::Segment { identity, position } => {
                format!("records of {identity}, from {} on", position.records())
            }
            Content::Snapshot { identity, position } => {
                format!("snapshot of {identity}, with {} records in it", position.records())
            }
            Content::Record { position, bytes, .. } if file.starts_with("segment") => {
                format!("{} {}", position.records(), record(bytes))
            }
            Content::Record { bytes, .. } => format!("a part of {} bytes", bytes.len()),
            Content::Seal => "end: the file was closed".to_owned(),
            Content::Tail { bytes } => format!("{bytes} bytes that were never durable"),
            Content::Wrong(error) => format!("WRONG: {error}"),
        };
        say(format_args!("{file} {offset:>8}  {text}"))?;
    }
    Ok(is_whole)
}

/// The median of a write of 512 bytes and a sync: what the disk of this machine takes for the least
/// there is.
///
/// # Errors
/// The system's.
pub fn raw_sync(folder: &Path) -> Result<Duration> {
    raw_sync_of(folder, 512, 201)
}

/// The median of so many writes of so many bytes, each with a sync.
///
/// # Errors
/// The system's.
pub fn raw_sync_of(folder: &Path, bytes: usize, count: usize) -> Result<Duration> {
    let (path, written) = (folder.join("raw"), vec![7; bytes]);
    let mut file = File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..count.max(1) {
        let begun = Instant::now();
        file.write_all(&written)?;
        file.sync_data()?;
        times.push(begun.elapsed());
    }
    std::fs::remove_file(&path)?;
    times.sort_unstable();
    Ok(times[times.len() / 2])
}
