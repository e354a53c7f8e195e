//! The files of the host keep the duties of a disk, and say what is wrong and where.
#![cfg(feature = "conformance")]

use bytes::Bytes;
use convoke_disk::{Disk, DiskFailure, DiskFile, HostDisk, Open, conformance};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::test]
async fn the_files_of_the_host_keep_the_duties_of_a_disk() -> Result {
    let folder = tempfile::tempdir()?;
    let disk = HostDisk::new(folder.path());
    Ok(conformance::all(&disk, &HostDisk::new(folder.path())).await?)
}

#[tokio::test]
async fn an_error_names_operation_place_and_reason() -> Result {
    let folder = tempfile::tempdir()?;
    let error = HostDisk::new(folder.path()).open("ledger", Open::Write).await;
    let text = error.err().ok_or("there is no such file")?.to_string();
    assert!(text.starts_with("cannot open") && text.ends_with("it does not exist"), "{text}");
    assert!(text.contains(&*folder.path().join("ledger").to_string_lossy()), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_disk_makes_its_folder_and_those_above_it() -> Result {
    let folder = tempfile::tempdir()?;
    let root = folder.path().join("node-1").join("ledger");
    for _ in 0..2 {
        HostDisk::create(&root)?.open("there", Open::Create).await?;
    }
    assert!(root.join("there").is_file());
    let no_folder = HostDisk::create(root.join("there")).err().ok_or("it is a file")?;
    assert_eq!(no_folder.kind(), std::io::ErrorKind::AlreadyExists);
    Ok(())
}

/// Somebody else's, whom no path names: to open all that is listed does not fail by them.
#[cfg(unix)]
#[tokio::test]
async fn what_no_path_names_is_not_listed() -> Result {
    use std::os::unix::ffi::OsStrExt as _;

    let folder = tempfile::tempdir()?;
    for name in [&b"ledger"[..], b"backup:old", b"a\\b", b"\xff"] {
        std::fs::write(folder.path().join(std::ffi::OsStr::from_bytes(name)), b"")?;
    }
    let listed = HostDisk::new(folder.path()).list("").await?;
    assert_eq!(listed.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(), ["ledger"]);
    Ok(())
}

/// As long as a file handle: a dropped handle of the ledger must not unlock it.
#[tokio::test]
async fn a_lock_is_held_as_long_as_its_guard_and_no_longer() -> Result {
    let folder = tempfile::tempdir()?;
    let disk = HostDisk::new(folder.path());
    let lock = disk.lock("lock").await?;
    let handle = disk.open("lock", Open::Write).await?;
    handle.write_all_at(0, Bytes::from_static(b"1234")).await?;
    drop(handle);
    let again = disk.lock("lock").await.err().ok_or("it is locked")?;
    assert_eq!(again.failure, DiskFailure::Locked);
    drop(lock);
    disk.lock("lock").await?;
    Ok(())
}

/// `/dev/full` is a device on which every write finds no space.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_says_so() -> Result {
    let file = HostDisk::new("/dev").open("full", Open::Write).await?;
    let error = file.write_all_at(0, Bytes::from_static(b"x")).await.err().ok_or("it is full")?;
    assert_eq!(error.to_string(), "cannot write \"/dev/full\": the disk is full");
    Ok(())
}

#[test]
fn a_file_outlives_the_runtime_that_opened_it() -> Result {
    let folder = tempfile::tempdir()?;
    let build = || tokio::runtime::Builder::new_current_thread().build();
    let disk = HostDisk::new(folder.path());
    let file = build()?.block_on(disk.open("a", Open::New))?;
    // The runtime that opened it is gone; another serves as well.
    build()?.block_on(file.write_all_at(0, Bytes::from_static(b"x")))?;
    assert_eq!(build()?.block_on(file.read_at(0, 9))?, "x");
    Ok(())
}

#[tokio::test]
async fn the_root_stays_though_it_is_empty() -> Result {
    let folder = tempfile::tempdir()?;
    let disk = HostDisk::new(folder.path());
    let refused = disk.remove("").await.err().ok_or("it stays")?;
    assert_eq!(refused.failure, DiskFailure::Denied);
    assert_eq!(disk.list("").await?, []);
    Ok(())
}

/// A write that nobody awaits any more must not meet what the next owner of the ledger writes.
#[test]
fn what_was_dropped_under_a_lock_keeps_it_until_it_has_ended() -> Result {
    let folder = tempfile::tempdir()?;
    let (disk, other) = (HostDisk::new(folder.path()), HostDisk::new(folder.path()));
    let pool = |threads| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.max_blocking_threads(threads).build()
    };
    let (one, next) = (pool(1)?, pool(1)?);
    let lock = one.block_on(disk.lock("lock"))?;
    let file = one.block_on(disk.open("ledger", Open::Create))?;
    // The only thread is busy: the write waits behind.
    let (release, busy) = std::sync::mpsc::channel::<()>();
    one.spawn_blocking(move || busy.recv());
    one.block_on(async {
        let write = file.write_at(0, Bytes::from_static(b"stray"));
        tokio::select! {
            biased;
            _ = write => panic!("nobody has run it"),
            () = std::future::ready(()) => {}
        }
    });
    drop(lock);
    let refused = next.block_on(other.lock("lock")).err().ok_or("a write is under way")?;
    assert_eq!(refused.failure, DiskFailure::Locked);
    release.send(())?;
    while let Err(error) = next.block_on(other.lock("lock")) {
        assert_eq!(error.failure, DiskFailure::Locked);
    }
    let file = next.block_on(other.open("ledger", Open::Write))?;
    assert_eq!(next.block_on(file.read_at(0, 9))?, "stray", "it happened before");
    Ok(())
}

/// Operations that overlap for ever, on a disk that other folders use, too, keep no lock that was
/// let go before they began.
#[test]
fn what_begins_after_a_lock_was_let_go_does_not_keep_it() -> Result {
    let folder = tempfile::tempdir()?;
    let (disk, other) = (HostDisk::new(folder.path()), HostDisk::new(folder.path()));
    let runtime = |threads| {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.max_blocking_threads(threads).build()
    };
    let (one, next) = (runtime(1)?, runtime(1)?);
    let lock = one.block_on(disk.lock("lock"))?;
    let file = one.block_on(disk.open("ledger", Open::Create))?;
    // The only thread is busy: each write waits behind, the first under the lock.
    let (release, busy) = std::sync::mpsc::channel::<()>();
    let busy = one.spawn_blocking(move || busy.recv());
    let begin = |at| {
        let file = file.clone();
        let write = one.spawn(async move { file.write_at(at, Bytes::from_static(b"x")).await });
        one.block_on(tokio::task::yield_now()); // It is polled, and so begun.
        write
    };
    let first = begin(0);
    drop(lock);
    // The thread goes on with the first alone, and is busy again behind it.
    let (release_again, busy_again) = std::sync::mpsc::channel::<()>();
    let busy_again = one.spawn_blocking(move || busy_again.recv());
    let second = begin(1);
    release.send(())?;
    one.block_on(busy)??;
    one.block_on(first)??;
    assert!(!second.is_finished(), "it is under way");
    next.block_on(other.lock("lock"))?;
    release_again.send(())?;
    one.block_on(busy_again)??;
    one.block_on(second)??;
    Ok(())
}
