//! Crashes at every point: what was said to be durable is there, in order.

use std::time::Duration;

use bytes::Bytes;
use convoke::disk::{Disk as _, DiskFailure, DiskFile as _, Open};
use convoke::sim::disk::{Delay, DiskSettings, SimDisk};
use convoke_sim::random::Random;
use node_kit::durable::Position;
use node_kit::ledger::{Ledger, LedgerError};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::support::{killed, numbers, open, record, records, written};

/// A step of a process, or the end of one.
#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Wait,
    Snapshot,
    /// A snapshot, while so many records are appended and waited for, each on its own.
    SnapshotBeside(u64),
    Trim,
    FailSync,
    Close,
    Kill,
    Crash,
    /// The disk takes so many bytes more, until a start fails for it.
    Fill(u64),
    /// A crash in place of a change that is to come.
    CrashAfter(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..6_u64).prop_map(Step::Append),
        6 => Just(Step::Wait),
        2 => Just(Step::Snapshot),
        2 => (1..6_u64).prop_map(Step::SnapshotBeside),
        1 => Just(Step::Trim),
        1 => Just(Step::FailSync),
        1 => (0..300_u64).prop_map(Step::Fill),
        1 => Just(Step::Close),
        2 => Just(Step::Kill),
        2 => Just(Step::Crash),
        3 => (0..20_u64).prop_map(Step::CrashAfter),
    ];
    prop::collection::vec(step, 1..60)
}

/// Bytes of a disk that is not full.
const CAPACITY: u64 = 1 << 30;

/// Knowledge of a ledger, kept beside it.
#[derive(Debug)]
struct Model {
    random: Random,
    /// Appended, by this process or recovered by it.
    appended: u64,
    /// Said to be durable, by any process.
    durable: u64,
    snapshot: u64,
}

impl Model {
    fn new(seed: u64) -> Self {
        Self { random: Random::new(seed), appended: 0, durable: 0, snapshot: 0 }
    }

    /// Opens the ledger, until it is there, and compares what it has with what it has to have. When
    /// the disk fails, the process alone is started again, or its host.
    async fn open(&mut self, disk: &SimDisk) -> Ledger {
        loop {
            match self.try_open(disk).await {
                Ok(ledger) => return ledger,
                Err(LedgerError::Disk(error)) if error.failure == DiskFailure::NotFound => {
                    panic!("it looks for what is not there: {error}, with {self:?}")
                }
                Err(LedgerError::Disk(error)) => {
                    if error.failure == DiskFailure::Gone || self.random.chance(50) {
                        disk.crash();
                    }
                    if error.failure == DiskFailure::Full && self.random.chance(50) {
                        disk.configure(|settings| settings.capacity = CAPACITY);
                    }
                }
                Err(error) => panic!("{error}, with {self:?}"),
            }
        }
    }

    async fn try_open(&mut self, disk: &SimDisk) -> Result<Ledger, LedgerError> {
        let (ledger, mut recovered) = open(disk.mount()).await?;
        let records = records(&mut recovered).await?;
        let from = match recovered.snapshot {
            Some(snapshot) => {
                let part = snapshot.parts().next().await?.expect("it has one");
                let position = snapshot.position().records();
                assert_eq!(part, Bytes::from(position.to_string()));
                position
            }
            None => 0,
        };
        let end = recovered.end.records();
        assert!((self.snapshot..=end).contains(&from), "{from}, {self:?}");
        assert!((self.durable..=self.appended).contains(&end), "{end}, {self:?}");
        assert!(records.into_iter().eq((from..end).map(record)), "each is what it was, in order");
        (self.appended, self.durable, self.snapshot) = (end, end, from);
        Ok(ledger)
    }

    async fn step(&mut self, disk: &SimDisk, ledger: &Ledger, step: Step) -> Result<(), ()> {
        match step {
            Step::Append(count) => self.append(ledger, count),
            Step::Wait => self.wait(ledger).await.map_err(drop)?,
            Step::Snapshot => self.snapshot(ledger, 0).await.map_err(drop)?,
            Step::SnapshotBeside(count) => self.snapshot(ledger, count).await.map_err(drop)?,
            Step::Trim => ledger.trim(Position::new(self.appended)).await.map_err(drop)?,
            Step::FailSync => disk.fail_syncs(1),
            Step::Fill(room) => {
                let files = disk.mount();
                let mut used = 0;
                for entry in files.list("").await.map_err(drop)? {
                    let file = files.open(&entry.name, Open::Read).await.map_err(drop)?;
                    used += file.len().await.map_err(drop)?;
                }
                disk.configure(|settings| settings.capacity = used + room);
            }
            Step::Close => {
                self.durable = ledger.close().await.map_err(drop)?.up_to().records();
                return Err(());
            }
            Step::Kill => return Err(()),
            Step::Crash => {
                disk.crash();
                return Err(());
            }
            Step::CrashAfter(count) => disk.crash_after(count),
        }
        Ok(())
    }

    fn append(&mut self, ledger: &Ledger, count: u64) {
        for number in self.appended..self.appended + count {
            ledger.append(record(number));
        }
        self.appended += count;
    }

    async fn wait(&mut self, ledger: &Ledger) -> Result<(), LedgerError> {
        let durable = ledger.durable(ledger.end()).await?;
        self.durable = durable.up_to().records();
        Ok(())
    }

    async fn snapshot(&mut self, ledger: &Ledger, beside: u64) -> Result<(), LedgerError> {
        let position = ledger.end();
        let mut writer = ledger.snapshot(position).await?;
        self.durable = self.durable.max(position.records());
        let written = async {
            writer.part(Bytes::from(position.records().to_string())).await?;
            writer.finish().await.map(drop)
        };
        let appended = async {
            for _ in 0..beside {
                self.append(ledger, 1);
                self.wait(ledger).await?;
            }
            Ok::<_, LedgerError>(())
        };
        let (written, appended) = tokio::join!(written, appended);
        if written.is_ok() {
            self.snapshot = position.records();
        }
        written.and(appended)
    }
}

/// Runs a case on a disk of its own.
async fn run(seed: u64, disk: SimDisk, steps: Vec<Step>) {
    let mut model = Model::new(seed);
    let mut ledger = model.open(&disk).await;
    for step in steps {
        if model.step(&disk, &ledger, step).await.is_err() {
            killed(ledger).await;
            ledger = model.open(&disk).await;
        }
    }
    disk.crash();
    drop(ledger);
    disk.configure(|settings| settings.sync_fails = 0.0);
    model.open(&disk).await;
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_said_to_be_durable_survives_in_order(
        seed in any::<u64>(),
        sync_fails in prop_oneof![Just(0.0), Just(0.1)],
        steps in steps(),
    ) {
        let disk = SimDisk::new(seed);
        let sync_delay = Delay { jitter: Duration::from_millis(5), ..Delay::default() };
        let settings = DiskSettings { short_writes: 0.1, sync_delay, ..DiskSettings::default() };
        disk.settings(DiskSettings { sync_fails, ..settings });
        runtime().block_on(run(seed, disk, steps));
    }
}

#[tokio::test]
async fn a_file_that_a_killed_process_left_unfinished_is_in_nobodys_way() {
    let disk = written(3).await;
    let mount = disk.mount();
    let names = mount.list("").await.unwrap().into_iter().map(|entry| entry.name);
    let last = names.filter(|name| name.starts_with("segment-")).max().expect("it has one");
    let number: u64 = last["segment-".len()..].parse().expect("and that has a number");
    let next = format!("segment-{:020}.new", number + 1);
    for name in [next.as_str(), "snapshot.new"] {
        mount.open(name, Open::Create).await.unwrap();
    }
    let (_ledger, mut recovered) = open(disk.mount()).await.unwrap();
    assert_eq!(records(&mut recovered).await.unwrap(), numbers(0..3));
    let left = disk.mount().list("").await.unwrap();
    assert!(left.iter().all(|entry| !entry.name.ends_with(".new")), "{left:?}");
}

#[cfg(feature = "mutants")]
mod mutants {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use node_kit::mutant::{self, Mutant};

    use super::*;

    /// The first seed under which a ledger is seen to be wrong, of so many.
    fn found_by(mutant: Option<Mutant>, seeds: u64) -> Option<u64> {
        mutant::set(mutant);
        let found = (0..seeds).find(|seed| {
            let disk = SimDisk::new(*seed);
            disk.configure(|settings| settings.sync_delay = Delay::fixed(Duration::from_millis(1)));
            let steps = (0..seed % 20).flat_map(|_| [Step::Append(3), Step::Wait]);
            let steps = steps.chain([Step::Crash]).collect();
            catch_unwind(AssertUnwindSafe(|| runtime().block_on(run(*seed, disk, steps)))).is_err()
        });
        mutant::set(None);
        found
    }

    #[test]
    fn each_mutant_is_found() {
        assert_eq!(found_by(None, 500), None);
        for mutant in [Mutant::ReplyBeforeFsync, Mutant::DirectoryNotSynced] {
            let found = found_by(Some(mutant), 500);
            println!("{mutant}: seed {found:?}");
            assert!(found.is_some(), "{mutant}");
        }
    }
}
