//! Duties of a disk as tests, which every disk runs.
//!
//! Crashes are not among them: no test of a real disk can pull its plug. The simulated
//! one has tests of its own for that.

use bytes::Bytes;

use crate::{Disk, DiskError, DiskFailure, DiskFile, Entry, Open};

/// Checks all duties, on a disk whose root is empty and takes changes. `other` is another process
/// on the same files; a clone will do where there is none.
///
/// # Errors
/// The first operation that failed and should not have.
///
/// # Panics
/// If a duty is not kept.
pub async fn all<D: Disk>(disk: &D, other: &D) -> Result<(), DiskError> {
    opens_as_asked(disk).await?;
    reads_and_writes_anywhere(disk).await?;
    handles_share_their_file(disk, other).await?;
    lists_in_order(disk).await?;
    renames_in_one_step(disk).await?;
    removes_names(disk).await?;
    locks_exclude(disk, other).await?;
    syncs(disk).await?;
    refuses_foreign_paths(disk).await
}

fn failure<T>(result: Result<T, DiskError>) -> Option<DiskFailure> {
    result.err().map(|error| error.failure)
}

async fn file_with<D: Disk>(disk: &D, path: &str, text: &'static str) -> Result<(), DiskError> {
    let file = disk.open(path, Open::New).await?;
    file.write_all_at(0, Bytes::from_static(text.as_bytes())).await
}

async fn contents<D: Disk>(disk: &D, path: &str) -> Result<Bytes, DiskError> {
    disk.open(path, Open::Read).await?.read_at(0, 1 << 10).await
}

async fn opens_as_asked<D: Disk>(disk: &D) -> Result<(), DiskError> {
    disk.create_dir("open").await?;
    for open in [Open::Read, Open::Write] {
        assert_eq!(failure(disk.open("open/a", open).await), Some(DiskFailure::NotFound));
    }
    for open in [Open::New, Open::Create] {
        assert_eq!(failure(disk.open("none/a", open).await), Some(DiskFailure::NotFound));
    }
    file_with(disk, "open/a", "one").await?;
    assert_eq!(failure(disk.open("open/a", Open::New).await), Some(DiskFailure::Exists));
    assert_eq!(disk.open("open/a", Open::Create).await?.read_at(0, 9).await?, "one");
    let for_reading = disk.open("open/a", Open::Read).await?;
    let write = for_reading.write_at(0, Bytes::from_static(b"two")).await;
    assert_eq!(failure(write), Some(DiskFailure::ReadOnly));
    assert_eq!(failure(for_reading.set_len(0).await), Some(DiskFailure::ReadOnly));
    for open in [Open::Read, Open::Write, Open::Create] {
        assert!(disk.open("open", open).await.is_err(), "{open:?} of a directory");
    }
    assert_eq!(failure(disk.create_dir("open").await), Some(DiskFailure::Exists));
    assert_eq!(failure(disk.create_dir("none/of").await), Some(DiskFailure::NotFound));
    Ok(())
}

async fn reads_and_writes_anywhere<D: Disk>(disk: &D) -> Result<(), DiskError> {
    let file = disk.open("anywhere", Open::New).await?;
    assert_eq!((file.len().await?, file.read_at(0, 10).await?), (0, Bytes::new()));
    file.write_all_at(4, Bytes::from_static(b"late")).await?;
    assert_eq!(file.read_at(0, 100).await?, &b"\0\0\0\0late"[..], "a gap reads as zeros");
    file.write_all_at(0, Bytes::from_static(b"soon")).await?;
    assert_eq!(file.read_at(2, 4).await?, "onla");
    assert_eq!(file.read_at(6, 100).await?, "te");
    for behind in [8, 1 << 40, u64::MAX] {
        assert_eq!(file.read_at(behind, 10).await?, Bytes::new(), "from {behind} on");
    }
    assert_eq!(file.write_at(0, Bytes::new()).await?, 0);
    file.set_len(3).await?;
    file.set_len(5).await?;
    assert_eq!(file.read_at(0, 100).await?, &b"soo\0\0"[..]);
    let large = Bytes::from(vec![7; 3 << 20]);
    file.write_all_at(0, large.clone()).await?;
    assert_eq!((file.len().await?, file.read_at(0, usize::MAX >> 1).await?), (3 << 20, large));
    Ok(())
}

async fn handles_share_their_file<D: Disk>(disk: &D, other: &D) -> Result<(), DiskError> {
    let one = disk.open("shared", Open::New).await?;
    let two = other.open("shared", Open::Write).await?;
    one.write_all_at(0, Bytes::from_static(b"one")).await?;
    two.write_all_at(3, Bytes::from_static(b"two")).await?;
    assert_eq!(one.read_at(0, 10).await?, "onetwo");
    one.set_len(1).await?;
    assert_eq!(two.len().await?, 1);
    Ok(())
}

async fn lists_in_order<D: Disk>(disk: &D) -> Result<(), DiskError> {
    disk.create_dir("list").await?;
    assert_eq!(disk.list("list").await?, []);
    for name in ["b", "c", "a10", "a9"] {
        file_with(disk, &format!("list/{name}"), "").await?;
    }
    disk.create_dir("list/b-dir").await?;
    file_with(disk, "list/b-dir/within", "").await?;
    let entry = |name: &str, is_dir| Entry { name: name.to_owned(), is_dir };
    let files = ["a10", "a9", "b"].map(|name| entry(name, false));
    let expected = [&files[..], &[entry("b-dir", true), entry("c", false)]].concat();
    assert_eq!(disk.list("list").await?, expected);
    assert!(disk.list("").await?.contains(&entry("list", true)));
    assert_eq!(failure(disk.list("list/none").await), Some(DiskFailure::NotFound));
    assert_eq!(failure(disk.list("list/a9").await), Some(DiskFailure::WrongKind));
    Ok(())
}

async fn renames_in_one_step<D: Disk>(disk: &D) -> Result<(), DiskError> {
    disk.create_dir("rename").await?;
    disk.create_dir("rename/dir").await?;
    file_with(disk, "rename/old", "old").await?;
    file_with(disk, "rename/new", "new").await?;
    disk.rename("rename/new", "rename/old").await?;
    assert_eq!(contents(disk, "rename/old").await?, "new");
    assert_eq!(failure(contents(disk, "rename/new").await), Some(DiskFailure::NotFound));
    disk.rename("rename/old", "rename/dir/file").await?;
    disk.rename("rename/dir/file", "rename/dir/file").await?;
    assert_eq!(contents(disk, "rename/dir/file").await?, "new");
    disk.rename("rename/dir", "rename/moved").await?;
    assert_eq!(contents(disk, "rename/moved/file").await?, "new");
    file_with(disk, "rename/file", "").await?;
    for (from, to) in [
        ("rename/none", "rename/a"),
        ("rename/file", "none/a"),
        ("rename/file", "rename/moved"),
        ("rename/moved", "rename/file"),
        ("rename", "rename/moved/rename"),
    ] {
        assert!(disk.rename(from, to).await.is_err(), "{from} to {to}");
    }
    Ok(())
}

async fn removes_names<D: Disk>(disk: &D) -> Result<(), DiskError> {
    disk.create_dir("remove").await?;
    file_with(disk, "remove/a", "one").await?;
    assert_eq!(failure(disk.remove("remove").await), Some(DiskFailure::NotEmpty));
    disk.remove("remove/a").await?;
    assert_eq!(failure(disk.remove("remove/a").await), Some(DiskFailure::NotFound));
    file_with(disk, "remove/a", "two").await?;
    assert_eq!(contents(disk, "remove/a").await?, "two");
    disk.remove("remove/a").await?;
    disk.remove("remove").await?;
    assert_eq!(failure(disk.list("remove").await), Some(DiskFailure::NotFound));
    assert!(
        disk.remove("").await.is_err() && disk.rename("", "moved").await.is_err(),
        "the root stays"
    );
    Ok(())
}

async fn locks_exclude<D: Disk>(disk: &D, other: &D) -> Result<(), DiskError> {
    let lock = disk.lock("lock").await?;
    for process in [disk, other] {
        assert_eq!(failure(process.lock("lock").await), Some(DiskFailure::Locked));
    }
    let another = other.lock("lock-2").await?;
    drop(lock);
    drop(other.lock("lock").await?);
    drop(another);
    assert_eq!(failure(disk.lock("none/lock").await), Some(DiskFailure::NotFound));
    Ok(())
}

async fn syncs<D: Disk>(disk: &D) -> Result<(), DiskError> {
    disk.create_dir("sync").await?;
    let file = disk.open("sync/a", Open::New).await?;
    file.write_all_at(0, Bytes::from_static(b"one")).await?;
    file.sync().await?;
    file.write_all_and_sync(3, Bytes::from_static(b"two")).await?;
    file.write_all_and_sync(6, Bytes::new()).await?;
    assert_eq!(contents(disk, "sync/a").await?, "onetwo");
    let for_reading = disk.open("sync/a", Open::Read).await?;
    let write = for_reading.write_all_and_sync(0, Bytes::from_static(b"no")).await;
    assert_eq!(failure(write), Some(DiskFailure::ReadOnly));
    disk.sync_dir("sync").await?;
    disk.sync_dir("").await?;
    assert_eq!(failure(disk.sync_dir("none").await), Some(DiskFailure::NotFound));
    assert!(disk.sync_dir("sync/a").await.is_err(), "it is a file");
    Ok(())
}

async fn refuses_foreign_paths<D: Disk>(disk: &D) -> Result<(), DiskError> {
    for path in ["/etc/passwd", "../a", "a/../../b", "a//b", "./a", "a\\b", "C:a"] {
        let invalid = Some(DiskFailure::InvalidPath);
        assert_eq!(failure(disk.open(path, Open::Read).await), invalid, "{path}");
        assert_eq!(failure(disk.create_dir(path).await), invalid, "{path}");
        assert_eq!(failure(disk.list(path).await), invalid, "{path}");
        assert_eq!(failure(disk.rename(path, "a").await), invalid, "{path}");
        assert_eq!(failure(disk.rename("shared", path).await), invalid, "{path}");
        assert_eq!(failure(disk.remove(path).await), invalid, "{path}");
        assert_eq!(failure(disk.sync_dir(path).await), invalid, "{path}");
        assert_eq!(failure(disk.lock(path).await), invalid, "{path}");
    }
    Ok(())
}
