//! Lives of processes and hosts: what ends with them, and what does not.

use bytes::Bytes;
use convoke_disk::conformance;
use convoke_sim::disk::{
    Delay, Disk, DiskError, DiskFailure, DiskFile, DiskSettings, Fate, Open, SimDisk,
};
use convoke_sim::random::{DIGEST_START, Random, digest};
use tokio::time::Instant;

use super::support::{bytes, create, failure, in_virtual_time, ms, read};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::test(start_paused = true)]
async fn the_simulated_disk_keeps_the_duties_of_a_disk() -> Result {
    let disk = SimDisk::new(1);
    Ok(conformance::all(&disk.mount(), &disk.mount()).await?)
}

#[tokio::test(start_paused = true)]
async fn it_keeps_them_while_it_is_slow_and_writes_short() -> Result {
    let disk = SimDisk::new(2);
    let delay = Delay { least: ms(1), jitter: ms(20), slow: 0.1, slow_by: ms(500) };
    disk.configure(|settings| {
        (settings.read_delay, settings.write_delay, settings.sync_delay) = (delay, delay, delay);
        settings.short_writes = 0.5;
    });
    Ok(conformance::all(&disk.mount(), &disk.mount()).await?)
}

#[tokio::test(start_paused = true)]
async fn everything_of_a_crashed_host_is_gone_for_good() -> Result {
    let disk = SimDisk::new(1);
    let (one, two) = (disk.mount(), disk.mount());
    let file = create(&one, "file").await;
    let lock = two.lock("lock").await?;
    disk.crash();
    assert_eq!(failure(file.write_at(0, bytes("x")).await), Some(DiskFailure::Gone));
    assert_eq!(failure(file.read_at(0, 1).await), Some(DiskFailure::Gone));
    assert_eq!(failure(file.sync().await), Some(DiskFailure::Gone));
    for mount in [&one, &two] {
        assert_eq!(failure(mount.list("").await), Some(DiskFailure::Gone));
        assert_eq!(failure(mount.open("file", Open::Read).await), Some(DiskFailure::Gone));
    }
    // Its lock went with it, and what is left of it unlocks nobody else's.
    let next = disk.mount();
    let held = next.lock("lock").await?;
    drop((lock, file));
    assert_eq!(failure(disk.mount().lock("lock").await), Some(DiskFailure::Locked));
    drop(held);
    assert_eq!(read(&disk, "file").await?, "");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_killed_process_leaves_its_locks_and_what_it_wrote() -> Result {
    let disk = SimDisk::new(1);
    let (one, two) = (disk.mount(), disk.mount());
    let _lock = one.lock("lock").await?;
    let file = create(&one, "file").await;
    file.write_all_at(0, bytes("not synced")).await?;
    assert_eq!(failure(two.lock("lock").await), Some(DiskFailure::Locked));
    one.kill();
    assert_eq!(failure(file.len().await), Some(DiskFailure::Gone));
    let _held = two.lock("lock").await?;
    assert_eq!(read(&disk, "file").await?, "not synced");
    disk.crash_with(Fate::Lost);
    assert_eq!(read(&disk, "file").await?, "");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_crash_ends_what_is_on_its_way() -> Result {
    let disk = SimDisk::new(1);
    let file = create(&disk.mount(), "file").await;
    file.write_all_at(0, bytes("text")).await?;
    disk.configure(|settings| settings.sync_delay = Delay::fixed(ms(1_000)));
    let start = Instant::now();
    let crash = async {
        tokio::time::sleep(ms(400)).await;
        disk.crash_with(Fate::Lost);
    };
    let (synced, ()) = tokio::join!(file.sync(), crash);
    assert_eq!((failure(synced), start.elapsed()), (Some(DiskFailure::Gone), ms(400)));
    assert_eq!(read(&disk, "file").await?, "", "it was not yet durable");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_sync_covers_what_was_written_before_it_began() -> Result {
    let disk = SimDisk::new(1);
    let file = create(&disk.mount(), "file").await;
    file.write_all_at(0, bytes("before ")).await?;
    disk.configure(|settings| settings.sync_delay = Delay::fixed(ms(10)));
    let write = async {
        tokio::time::sleep(ms(5)).await;
        file.write_all_at(7, bytes("after")).await
    };
    let (synced, written) = tokio::join!(file.sync(), write);
    synced?;
    written?;
    assert_eq!(disk.durable("file"), Some(bytes("before ")));
    disk.crash_with(Fate::Lost);
    assert_eq!(read(&disk, "file").await?, "before ");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_dropped_sync_has_made_nothing_durable() -> Result {
    let disk = SimDisk::new(1);
    let file = create(&disk.mount(), "file").await;
    file.write_all_at(0, bytes("text")).await?;
    disk.configure(|settings| settings.sync_delay = Delay::fixed(ms(10)));
    assert!(tokio::time::timeout(ms(5), file.sync()).await.is_err());
    tokio::time::sleep(ms(100)).await;
    assert_eq!(disk.durable("file"), Some(Bytes::new()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_removed_file_lives_as_long_as_its_handles() -> Result {
    let disk = SimDisk::new(1);
    disk.configure(|settings| settings.capacity = 10);
    let mount = disk.mount();
    let file = create(&mount, "file").await;
    file.write_all_at(0, bytes("0123456789")).await?;
    mount.remove("file").await?;
    mount.sync_dir("").await?;
    assert_eq!(file.read_at(0, 10).await?, "0123456789");
    let next = create(&mount, "next").await;
    assert_eq!(failure(next.write_at(0, bytes("x")).await), Some(DiskFailure::Full));
    drop(file);
    next.write_all_at(0, bytes("x")).await?;
    // The same by the end of its process.
    mount.remove("next").await?;
    mount.sync_dir("").await?;
    mount.kill();
    let last = create(&disk.mount(), "last").await;
    last.write_all_at(0, bytes("0123456789")).await?;
    drop(next);
    Ok(())
}

/// Every crash point of a short program, each of them once.
#[test]
fn a_crash_comes_in_place_of_the_change_that_was_named() {
    let run = |count| {
        in_virtual_time(async move {
            let disk = SimDisk::new(1);
            disk.settings(DiskSettings { fates: vec![Fate::Lost], ..DiskSettings::default() });
            disk.crash_after(count);
            let mount = disk.mount();
            let program = async {
                let file = mount.open("a", Open::Create).await?; // change 1
                file.write_all_at(0, bytes("text")).await?; // change 2
                file.sync().await?; // change 3
                mount.sync_dir("").await // change 4
            };
            let is_crashed = failure(program.await) == Some(DiskFailure::Gone);
            assert_eq!(
                (disk.stats().crashes == 1, disk.stats().changes),
                (is_crashed, count.min(4))
            );
            disk.crash();
            (is_crashed, read(&disk, "a").await.ok())
        })
    };
    for count in 0..4 {
        assert_eq!(run(count), (true, None), "after {count}");
    }
    assert_eq!(run(4), (false, Some(bytes("text"))));
}

/// A program of many operations by three tasks, with every fault; all that can be seen of it.
async fn trace(seed: u64) -> (u64, std::time::Duration) {
    let disk = SimDisk::new(seed);
    let delay = Delay { least: ms(0), jitter: ms(9), slow: 0.1, slow_by: ms(50) };
    disk.settings(DiskSettings {
        read_delay: delay,
        write_delay: delay,
        sync_delay: delay,
        read_fails: 0.1,
        write_fails: 0.1,
        sync_fails: 0.1,
        sync_lies: 0.1,
        short_writes: 0.3,
        capacity: 20_000,
        fates: [&Fate::USUAL[..], &[Fate::Garbled]].concat(),
        ..DiskSettings::default()
    });
    let (start, mut hash) = (Instant::now(), DIGEST_START);
    for life in 0..4_u64 {
        disk.crash_after(20 + life);
        let mount = disk.mount();
        let write = async |task: u64| -> std::result::Result<(), DiskError> {
            let mut random = Random::of(seed, task);
            loop {
                let file = mount.open(&format!("file-{task}"), Open::Create).await?;
                let text = vec![u8::try_from(task).unwrap_or(9); random.index(5_000)];
                // What may fail is only to be the same in each run.
                match file.write_at(random.within(0..5_000), text.into()).await {
                    Err(error) if !matches!(error.failure, DiskFailure::Device(_)) => {
                        return Err(error);
                    }
                    _ => {}
                }
                if file.sync().await.is_ok() {
                    mount.rename(&format!("file-{task}"), &format!("done-{task}")).await?;
                    let _ = mount.sync_dir("").await;
                }
            }
        };
        let ends = tokio::join!(write(1), write(2), write(3));
        hash = digest(hash, format!("{ends:?}").as_bytes());
        for entry in disk.mount().list("").await.unwrap_or_default() {
            hash = digest(hash, entry.name.as_bytes());
            hash = digest(hash, &read(&disk, &entry.name).await.unwrap_or_default());
        }
    }
    (digest(hash, format!("{:?}", disk.stats()).as_bytes()), start.elapsed())
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let runs: Vec<_> = (0..8).map(|seed| in_virtual_time(trace(seed))).collect();
    for (seed, run) in (0..).zip(&runs) {
        assert_eq!(in_virtual_time(trace(seed)), *run, "seed {seed}");
    }
    let hashes: std::collections::BTreeSet<_> = runs.iter().map(|(hash, _)| hash).collect();
    assert_eq!(hashes.len(), runs.len(), "other seeds are other runs");
}
