//! Recovery of a small log under thousands of seeds, and the defects that these find.

use bytes::Bytes;
use convoke_sim::disk::{
    Delay, Disk, DiskFailure, DiskFile, DiskSettings, Fate, HostDisk, Open, SimDisk,
};
use convoke_sim::random::Random;

use super::ledger::{Ledger, LedgerError, Mutant};
use super::support::{in_virtual_time, ms};

/// What the ledger owes to those who wrote to it.
#[derive(Default)]
struct Oracle {
    /// Each record once, in the order in which they were written.
    written: Vec<Bytes>,
    acknowledged: usize,
}

impl Oracle {
    fn next(&mut self, random: &mut Random) -> Bytes {
        let len = random.index(60);
        let text = format!("record {} {}", self.written.len(), "x".repeat(len));
        self.written.push(text.into());
        self.written.last().expect("it was pushed above").clone()
    }

    /// What was acknowledged is there; what is there beyond it was written next, in order.
    fn check(&mut self, found: &[Bytes]) -> Result<(), String> {
        if found.len() < self.acknowledged {
            return Err(format!("{} of {} acknowledged", found.len(), self.acknowledged));
        }
        if !self.written.starts_with(found) {
            return Err(format!("{found:?} was never written so"));
        }
        // Who restarts acknowledges what it has found, and forgets what it has not.
        self.written.truncate(found.len());
        self.acknowledged = found.len();
        Ok(())
    }
}

/// Some lives of a host, each until it crashes somewhere. The first violation.
async fn run(seed: u64, mutant: Mutant) -> Result<(), String> {
    let (disk, mut random) = (SimDisk::new(seed), Random::of(seed, 7));
    // Made beforehand: no log can save a folder whose own name a failed sync has lost.
    let folder = disk.mount();
    folder.create_dir("ledger").await.map_err(|error| error.to_string())?;
    folder.sync_dir("").await.map_err(|error| error.to_string())?;
    let fails = if seed.is_multiple_of(5) { 0.02 } else { 0.0 };
    disk.settings(DiskSettings {
        sync_delay: Delay { jitter: ms(5), ..Delay::default() },
        short_writes: 0.2,
        read_fails: fails,
        write_fails: fails,
        sync_fails: if seed.is_multiple_of(3) { 0.1 } else { 0.0 },
        fates: [&Fate::USUAL[..], &[Fate::Garbled]].concat(),
        ..DiskSettings::default()
    });
    if seed.is_multiple_of(2) {
        disk.configure(|settings| settings.sync_failure = DiskFailure::Full);
    }
    let mut oracle = Oracle::default();
    for _ in 0..6 {
        disk.crash_after(random.within(0..60));
        let lived = live(&disk, &mut random, &mut oracle, mutant).await;
        if let Err(Some(violation)) = lived {
            return Err(violation);
        }
        // A process that gave up after a failed sync is only restarted, now and then.
        if random.chance(70) {
            disk.crash();
        }
    }
    disk.settings(DiskSettings::default());
    disk.crash();
    let opened = Ledger::open(disk.mount(), mutant).await;
    let (_, found) = opened.map_err(|error| format!("{error:?}"))?;
    oracle.check(&found)
}

/// One process: `Err(None)` when the disk let it down.
async fn live(
    disk: &SimDisk,
    random: &mut Random,
    oracle: &mut Oracle,
    mutant: Mutant,
) -> Result<(), Option<String>> {
    let mount = disk.mount();
    let violation = |error| match error {
        LedgerError::Disk(_) => None,
        LedgerError::Corrupt { .. } => Some(format!("{error:?}")),
    };
    let (mut ledger, found) = Ledger::open(mount.clone(), mutant).await.map_err(violation)?;
    oracle.check(&found).map_err(Some)?;
    for _ in 0..random.within(0..40) {
        ledger.append(oracle.next(random)).await.map_err(violation)?;
        oracle.acknowledged = oracle.written.len();
    }
    if random.chance(50) {
        mount.kill();
    }
    Ok(())
}

fn first_violation(mutant: Mutant, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| {
        let violation = in_virtual_time(run(seed, mutant)).err()?;
        Some((seed, violation))
    })
}

#[test]
fn a_ledger_that_syncs_as_it_must_loses_nothing_under_any_seed() {
    assert_eq!(first_violation(Mutant::None, 3_000), None);
}

#[test]
fn a_segment_whose_name_is_not_synced_is_found_out() {
    let (seed, violation) = first_violation(Mutant::NoDirSync, 100).expect("it loses segments");
    assert!(violation.contains("acknowledged"), "seed {seed}: {violation}");
}

#[test]
fn a_reply_before_the_sync_is_found_out() {
    let found = first_violation(Mutant::ReplyBeforeSync, 100).expect("it loses records");
    assert!(found.1.contains("acknowledged") || found.1.contains("Corrupt"), "{found:?}");
}

#[test]
fn a_sync_that_is_tried_again_is_found_out() {
    first_violation(Mutant::RetriedSync, 300).expect("it believes the second sync");
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_middle_is_no_torn_tail() -> Result<(), LedgerError> {
    let disk = SimDisk::new(1);
    let (mut ledger, _) = Ledger::open(disk.mount(), Mutant::None).await?;
    for _ in 0..20 {
        ledger.append("a record of some length".into()).await?;
    }
    disk.rot("ledger/00000001", 100)?;
    disk.crash();
    let error = Ledger::open(disk.mount(), Mutant::None).await.err();
    let Some(LedgerError::Corrupt { segment, offset }) = error else { panic!("{error:?}") };
    assert_eq!((segment.as_str(), offset), ("ledger/00000001", 0), "the sector begins there");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn two_processes_do_not_share_a_ledger() -> Result<(), LedgerError> {
    let disk = SimDisk::new(1);
    let mount = disk.mount();
    let _held = Ledger::open(mount.clone(), Mutant::None).await?;
    let error = Ledger::open(disk.mount(), Mutant::None).await.err();
    let Some(LedgerError::Disk(error)) = error else { panic!("{error:?}") };
    assert_eq!(error.failure, DiskFailure::Locked);
    mount.kill();
    Ledger::open(disk.mount(), Mutant::None).await?;
    Ok(())
}

/// The same program on the files of the host.
#[tokio::test]
async fn the_same_ledger_runs_on_the_files_of_the_host() -> Result<(), LedgerError> {
    let folder = tempfile::tempdir().expect("there is a folder for such");
    let disk = HostDisk::new(folder.path());
    let records: Vec<Bytes> = (0..20).map(|number| format!("record {number}").into()).collect();
    {
        let (mut ledger, found) = Ledger::open(disk.clone(), Mutant::None).await?;
        assert!(found.is_empty());
        for record in &records {
            ledger.append(record.clone()).await?;
        }
    }
    // A torn tail, by hand.
    let last = disk.list("ledger").await?.into_iter().rfind(|entry| entry.name != "lock");
    let last = format!("ledger/{}", last.expect("there are segments").name);
    let file = disk.open(&last, Open::Write).await?;
    file.write_all_at(file.len().await?, "\x05\0\0\0torn".into()).await?;
    drop(file);
    let (_, found) = Ledger::open(disk, Mutant::None).await?;
    assert_eq!(found, records);
    Ok(())
}
