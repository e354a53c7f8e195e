//! Each fault of the menu, on its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use convoke_sim::disk::{Delay, Disk, DiskFailure, DiskFile, Fate, Open, SimDisk};
use tokio::time::Instant;

use super::support::{bytes, create, failure, in_virtual_time, ms, read};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// As on Linux: the second sync says that all is well, and it is not.
#[test]
fn a_sync_after_a_failed_one_may_say_ok_and_have_lost_the_bytes() {
    let run = |seed| {
        in_virtual_time(async move {
            let disk = SimDisk::new(seed);
            let file = create(&disk.mount(), "file").await;
            file.write_all_at(0, bytes("old")).await.expect("there is room");
            file.sync().await.expect("the disk works");
            file.write_all_at(0, bytes("new")).await.expect("there is room");
            disk.fail_syncs(1);
            assert!(matches!(failure(file.sync().await), Some(DiskFailure::Device(_))));
            let seen = file.read_at(0, 10).await.expect("it is open");
            file.sync().await.expect("it says that all is well");
            disk.crash_with(Fate::Lost);
            let found = read(&disk, "file").await.expect("its name is durable");
            (seen, found)
        })
    };
    let mut ways = BTreeMap::<_, usize>::new();
    (0..300).for_each(|seed| *ways.entry(run(seed)).or_default() += 1);
    let expected = [("new", "new"), ("new", "old"), ("old", "old")];
    let expected: Vec<_> = expected.map(|(seen, found)| (bytes(seen), bytes(found))).into();
    let found: Vec<_> = ways.keys().cloned().collect();
    let mut sorted = expected;
    sorted.sort();
    assert_eq!(found, sorted);
    assert!(ways.values().all(|count| *count > 30), "{ways:?}");
}

#[test]
fn after_a_failed_sync_what_is_written_again_can_be_synced() {
    for seed in 0..100 {
        in_virtual_time(async {
            let disk = SimDisk::new(seed);
            let file = create(&disk.mount(), "file").await;
            file.write_all_at(0, Bytes::from(vec![1; 20_000])).await.expect("there is room");
            disk.fail_syncs(1);
            file.sync().await.expect_err("it was told to fail");
            file.write_all_at(0, Bytes::from(vec![2; 20_000])).await.expect("there is room");
            file.sync().await.expect("the disk works");
            disk.crash_with(Fate::Lost);
            let found = read(&disk, "file").await.expect("its name is durable");
            assert_eq!(found, vec![2; 20_000], "seed {seed}");
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_sync_fails_for_the_reason_that_is_set() -> Result {
    let disk = SimDisk::new(1);
    disk.configure(|settings| settings.sync_failure = DiskFailure::Full);
    let file = create(&disk.mount(), "file").await;
    disk.fail_syncs(2);
    assert_eq!(failure(file.sync().await), Some(DiskFailure::Full));
    assert_eq!(failure(disk.mount().sync_dir("").await), Some(DiskFailure::Full));
    Ok(file.sync().await?)
}

#[tokio::test(start_paused = true)]
async fn a_read_that_fails_may_work_again() -> Result {
    let disk = SimDisk::new(1);
    let file = create(&disk.mount(), "file").await;
    file.write_all_at(0, bytes("text")).await?;
    disk.fail_reads(1);
    assert!(matches!(failure(file.read_at(0, 4).await), Some(DiskFailure::Device(_))));
    assert_eq!(file.read_at(0, 4).await?, "text");
    disk.configure(|settings| settings.read_fails = 0.25);
    let mut failed = 0;
    for _ in 0..400 {
        failed += usize::from(file.read_at(0, 4).await.is_err());
    }
    assert!((70..130).contains(&failed), "{failed} of 400");
    Ok(())
}

#[test]
fn a_write_that_fails_leaves_a_first_part() {
    let mut left = BTreeSet::new();
    for seed in 0..100 {
        in_virtual_time(async {
            let disk = SimDisk::new(seed);
            let file = create(&disk.mount(), "file").await;
            file.write_all_at(0, bytes("ab")).await.expect("there is room");
            disk.fail_writes(2);
            let written = file.write_at(2, bytes("cd")).await;
            assert!(matches!(failure(written), Some(DiskFailure::Device(_))));
            let written = file.read_at(0, 9).await.expect("it is open");
            let set = file.set_len(1).await;
            assert!(matches!(failure(set), Some(DiskFailure::Device(_))));
            let cut = file.read_at(0, 9).await.expect("it is open");
            file.set_len(0).await.expect("the disk works again");
            left.insert((written.clone(), cut == written));
            assert!(cut == written || cut == "a", "{cut:?}");
        });
    }
    let expected = ["ab", "abc", "abcd"].map(bytes);
    let expected = expected.into_iter().flat_map(|text| [(text.clone(), false), (text, true)]);
    assert!(left.into_iter().eq(expected));
}

#[tokio::test(start_paused = true)]
async fn a_sync_that_lies_makes_nothing_durable() -> Result {
    let disk = SimDisk::new(1);
    let mount = disk.mount();
    let file = mount.open("file", Open::New).await?;
    file.write_all_at(0, bytes("text")).await?;
    disk.lie_about_syncs(2);
    mount.sync_dir("").await?;
    file.sync().await?;
    assert_eq!(disk.durable("file"), None);
    mount.sync_dir("").await?;
    assert_eq!(disk.durable("file"), Some(Bytes::new()));
    file.sync().await?;
    assert_eq!(disk.durable("file"), Some(bytes("text")));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_of_a_directory_leaves_its_names_unsynced() -> Result {
    let disk = SimDisk::new(1);
    let mount = disk.mount();
    mount.open("file", Open::New).await?;
    disk.fail_syncs(1);
    assert!(mount.sync_dir("").await.is_err());
    assert_eq!(disk.durable("file"), None);
    mount.sync_dir("").await?;
    assert_eq!(disk.durable("file"), Some(Bytes::new()));
    Ok(())
}

#[test]
fn syncs_fail_and_lie_as_often_as_they_are_set_to() {
    let (failed, lied) = in_virtual_time(async {
        let disk = SimDisk::new(1);
        disk.configure(|settings| (settings.sync_fails, settings.sync_lies) = (0.2, 0.25));
        let (mount, mut failed, mut lied) = (disk.mount(), 0, 0);
        for number in 0..2_000 {
            let path = format!("{number}");
            mount.open(&path, Open::New).await.expect("it is new");
            match mount.sync_dir("").await {
                Err(_) => failed += 1,
                Ok(()) => lied += usize::from(disk.durable(&path).is_none()),
            }
        }
        (failed, lied)
    });
    // A fifth, and a quarter of the others.
    assert!((320..480).contains(&failed), "{failed} of 2,000");
    assert!((320..480).contains(&lied), "{lied} of 2,000");
}

#[test]
fn operations_take_as_long_as_they_are_set_to() {
    in_virtual_time(async {
        let disk = SimDisk::new(1);
        let file = create(&disk.mount(), "file").await;
        disk.configure(|settings| {
            settings.read_delay = Delay::fixed(ms(1));
            settings.write_delay = Delay::fixed(ms(20));
            settings.sync_delay =
                Delay { jitter: ms(9), slow: 0.25, slow_by: ms(5_000), ..Delay::fixed(ms(300)) };
        });
        let start = Instant::now();
        file.write_all_at(0, bytes("text")).await.expect("there is room");
        file.read_at(0, 4).await.expect("it is open");
        assert_eq!(start.elapsed(), ms(21));
        let (mut slow, mut shortest, mut longest) = (0, ms(1_000), ms(0));
        for _ in 0..400 {
            let start = Instant::now();
            file.sync().await.expect("the disk works");
            let mut took = start.elapsed();
            if took > ms(5_000) {
                (slow, took) = (slow + 1, took - ms(5_000));
            }
            (shortest, longest) = (shortest.min(took), longest.max(took));
        }
        assert!((70..130).contains(&slow), "{slow} of 400");
        assert!(ms(300) <= shortest && shortest <= ms(301), "{shortest:?}");
        assert!(ms(308) <= longest && longest <= ms(309), "{longest:?}");
    });
}

#[tokio::test(start_paused = true)]
async fn an_operation_may_take_for_ever() -> Result {
    let disk = SimDisk::new(1);
    let file = create(&disk.mount(), "file").await;
    let (most, slow) = (Duration::MAX, Delay { slow: 1.0, ..Delay::default() });
    let drawn = Delay { jitter: most, ..Delay::default() };
    for delay in [Delay::fixed(most), Delay { slow_by: most, ..slow }, drawn] {
        disk.configure(|settings| settings.sync_delay = delay);
        assert!(tokio::time::timeout(ms(1_000), file.sync()).await.is_err());
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_stalled_disk_ends_nothing_until_it_goes_on() -> Result {
    let disk = SimDisk::new(1);
    let mount = disk.mount();
    let file = create(&mount, "file").await;
    file.write_all_at(0, bytes("text")).await?;
    disk.stall();
    {
        let sync = file.sync();
        tokio::pin!(sync);
        assert!(tokio::time::timeout(ms(3_600_000), &mut sync).await.is_err());
        assert_eq!(disk.durable("file"), Some(Bytes::new()));
        disk.resume();
        sync.await?;
    }
    assert_eq!(disk.durable("file"), Some(bytes("text")));
    disk.stall();
    let (read, ()) = tokio::join!(file.read_at(0, 4), async { mount.kill() });
    assert_eq!(failure(read), Some(DiskFailure::Gone), "a hung process can be killed");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_takes_what_fits_and_frees_what_is_removed() -> Result {
    let disk = SimDisk::new(1);
    disk.configure(|settings| settings.capacity = 100);
    let mount = disk.mount();
    let (one, two) = (create(&mount, "one").await, create(&mount, "two").await);
    one.write_all_at(0, Bytes::from(vec![1; 60])).await?;
    assert_eq!(two.write_at(0, Bytes::from(vec![2; 60])).await?, 40, "as much as fits");
    for file in [&one, &two] {
        let len = file.len().await?;
        assert_eq!(failure(file.write_at(len, bytes("x")).await), Some(DiskFailure::Full));
        assert_eq!(failure(file.set_len(len + 1).await), Some(DiskFailure::Full));
        file.write_all_at(0, bytes("over")).await?;
    }
    for offset in [101, 1 << 40, u64::MAX] {
        let written = two.write_at(offset, bytes("far")).await;
        assert_eq!(failure(written), Some(DiskFailure::Full), "a gap counts");
    }
    assert_eq!(failure(two.set_len(u64::MAX).await), Some(DiskFailure::Full));
    let error = two.write_all_at(39, bytes("xyz")).await.err().ok_or("it is full")?;
    assert_eq!(error.to_string(), "cannot write \"two\": the disk is full");
    drop(one);
    mount.remove("one").await?;
    two.write_all_at(40, Bytes::from(vec![2; 60])).await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn conditions_can_be_set_by_what_the_disk_has_done() -> Result {
    let disk = SimDisk::new(1);
    let file = create(&disk.mount(), "file").await;
    file.write_all_at(0, bytes("text")).await?;
    disk.configure(|settings| settings.capacity = disk.stats().bytes_written);
    assert_eq!(failure(file.write_at(4, bytes("x")).await), Some(DiskFailure::Full));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_read_only_disk_takes_no_change() -> Result {
    let disk = SimDisk::new(1);
    let mount = disk.mount();
    let file = create(&mount, "file").await;
    file.write_all_at(0, bytes("text")).await?;
    disk.configure(|settings| settings.read_only = true);
    let read_only = Some(DiskFailure::ReadOnly);
    assert_eq!(failure(file.write_at(0, bytes("x")).await), read_only);
    assert_eq!(failure(file.set_len(0).await), read_only);
    assert_eq!(failure(mount.open("file", Open::Write).await), read_only);
    assert_eq!(failure(mount.open("new", Open::Create).await), read_only);
    assert_eq!(failure(mount.create_dir("dir").await), read_only);
    assert_eq!(failure(mount.rename("file", "other").await), read_only);
    assert_eq!(failure(mount.remove("file").await), read_only);
    assert_eq!(failure(mount.lock("lock").await), read_only);
    assert_eq!(mount.open("file", Open::Read).await?.read_at(0, 9).await?, "text");
    assert_eq!(mount.list("").await?.len(), 1);
    Ok(())
}

/// As a file system does that has been mounted anew, since its device fails.
#[test]
fn what_a_disk_took_before_it_was_read_only_is_not_synced_any_more() {
    let lost = (0..100).filter(|seed| {
        in_virtual_time(async {
            let disk = SimDisk::new(*seed);
            let mount = disk.mount();
            let file = create(&mount, "file").await;
            file.sync().await.expect("the disk works");
            mount.open("new", Open::New).await.expect("it is new");
            file.write_all_at(0, bytes("text")).await.expect("there is room");
            disk.configure(|settings| settings.read_only = true);
            assert_eq!(failure(file.sync().await), Some(DiskFailure::ReadOnly));
            assert_eq!(failure(mount.sync_dir("").await), Some(DiskFailure::ReadOnly));
            assert_eq!(failure(file.sync().await), Some(DiskFailure::ReadOnly));
            let is_durable =
                disk.durable("file") == Some(bytes("text")) && disk.durable("new").is_some();
            disk.crash_with(Fate::Lost);
            let file = disk.mount().open("file", Open::Read).await.expect("its name is durable");
            file.sync().await.expect("there is nothing to sync");
            disk.mount().sync_dir("").await.expect("there is nothing to sync");
            !is_durable
        })
    });
    assert_eq!(lost.count(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_short_write_says_how_much_it_wrote() -> Result {
    let disk = SimDisk::new(1);
    disk.configure(|settings| settings.short_writes = 1.0);
    let file = create(&disk.mount(), "file").await;
    let count = file.write_at(0, Bytes::from(vec![1; 1_000])).await?;
    assert!((1..1_000).contains(&count), "{count}");
    assert_eq!(file.len().await?, count as u64);
    file.write_all_at(0, Bytes::from(vec![2; 1_000])).await?;
    assert_eq!(file.read_at(0, 2_000).await?, vec![2; 1_000]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn bit_rot_changes_one_sector_and_that_byte() -> Result {
    let disk = SimDisk::new(1);
    let file = create(&disk.mount(), "file").await;
    file.write_all_at(0, Bytes::from(vec![7; 2_000])).await?;
    file.sync().await?;
    assert_eq!(disk.rot("file", 700)?, 512..1_024);
    assert_eq!(disk.rot("file", 1_999)?, 1_536..2_000);
    for found in [file.read_at(0, 3_000).await?, disk.durable("file").ok_or("it is durable")?] {
        assert_eq!(found.len(), 2_000);
        assert!(found[..512].iter().chain(&found[1_024..1_536]).all(|byte| *byte == 7));
        assert!(found[700] != 7 && found[1_999] != 7);
    }
    assert_eq!(failure(disk.rot("file", 2_000)), Some(DiskFailure::NotFound));
    assert_eq!(failure(disk.rot("none", 0)), Some(DiskFailure::NotFound));
    Ok(())
}

/// The page cache of a real host is bounded, and so is this one.
#[tokio::test(start_paused = true)]
async fn who_never_syncs_does_not_fill_the_memory() -> Result {
    let disk = SimDisk::new(1);
    let file = create(&disk.mount(), "file").await;
    for number in 0..40_u8 {
        file.write_all_at(0, Bytes::from(vec![number; 1 << 20])).await?;
    }
    let durable = disk.durable("file").ok_or("it is durable")?;
    assert!((20..30).contains(&durable[0]), "written back up to {}", durable[0]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn many_files_together_do_not_fill_the_memory() -> Result {
    let disk = SimDisk::new(1);
    disk.configure(|settings| settings.capacity = 1 << 20);
    let mount = disk.mount();
    for name in 0..8 {
        let file = create(&mount, &name.to_string()).await;
        for number in 0..96_u8 {
            file.write_all_at(0, Bytes::from(vec![number; 100 << 10])).await?;
        }
    }
    // 9 MiB each, of which 64 in all are kept.
    let lens = (0..8).map(|name| disk.durable(&name.to_string()).map(|bytes| bytes.len()));
    assert!(lens.eq([vec![Some(100 << 10); 7], vec![Some(0)]].concat()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn what_was_removed_or_cut_does_not_fill_the_memory() -> Result {
    let disk = SimDisk::new(1);
    disk.configure(|settings| settings.capacity = 32 << 20);
    let mount = disk.mount();
    for name in ["cut", "removed"] {
        let file = create(&mount, name).await;
        file.write_all_at(0, Bytes::from(vec![7; 24 << 20])).await?;
        file.sync().await?;
        match name {
            "cut" => file.set_len(0).await?,
            _ => mount.remove(name).await?,
        }
    }
    // 24 MiB of the one, and 48 of the other, seen and durable.
    mount.open("next", Open::New).await?.write_all_at(0, Bytes::from(vec![7; 2 << 20])).await?;
    disk.crash_with(Fate::Lost);
    let names = disk.mount().list("").await?.into_iter().map(|entry| entry.name);
    assert!(names.eq(["cut", "next"]));
    assert_eq!(read(&disk, "cut").await?, "");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn of_one_large_write_the_last_is_not_written_back() -> Result {
    let disk = SimDisk::new(1);
    let file = create(&disk.mount(), "file").await;
    file.write_all_at(100, Bytes::from(vec![7; 20 << 20])).await?;
    let durable = disk.durable("file").ok_or("it is durable")?.len();
    assert!((4 << 20..6 << 20).contains(&durable), "written back up to {durable}");
    file.sync().await?;
    disk.crash_with(Fate::Lost);
    assert_eq!(read(&disk, "file").await?[100..], vec![7; 20 << 20]);
    Ok(())
}
