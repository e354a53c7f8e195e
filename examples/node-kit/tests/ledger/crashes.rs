//! Crashes at every point: what was said to be durable is there, in order.

use bytes::Bytes;
use convoke::disk::{Disk as _, DiskFailure, Open};
use convoke::sim::disk::{DiskSettings, SimDisk};
use node_kit::durable::Position;
use node_kit::ledger::{Ledger, LedgerError};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::support::{numbers, open, record, records, written};

/// A step of a process, or the end of one.
#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Wait,
    Snapshot,
    Trim,
    FailSync,
    Close,
    Kill,
    Crash,
    /// A crash in place of a change that is to come.
    CrashAfter(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (1..6_u64).prop_map(Step::Append),
        6 => Just(Step::Wait),
        2 => Just(Step::Snapshot),
        1 => Just(Step::Trim),
        1 => Just(Step::FailSync),
        1 => Just(Step::Close),
        2 => Just(Step::Kill),
        2 => Just(Step::Crash),
        3 => (0..20_u64).prop_map(Step::CrashAfter),
    ];
    prop::collection::vec(step, 1..60)
}

/// Knowledge of a ledger, kept beside it.
#[derive(Debug, Default)]
struct Model {
    /// Appended, by this process or recovered by it.
    appended: u64,
    /// Said to be durable, by any process.
    durable: u64,
    snapshot: u64,
}

impl Model {
    /// Opens the ledger, until it is there, and compares what it has with what it has to have.
    async fn open(&mut self, disk: &SimDisk) -> Ledger {
        loop {
            match self.try_open(disk).await {
                Ok(ledger) => return ledger,
                Err(LedgerError::Disk(error)) if error.failure == DiskFailure::NotFound => {
                    panic!("it looks for what is not there: {error}, with {self:?}")
                }
                Err(LedgerError::Disk(_) | LedgerError::Failed(_)) => disk.crash(),
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
        *self = Self { appended: end, durable: end, snapshot: from };
        Ok(ledger)
    }

    async fn step(&mut self, disk: &SimDisk, ledger: &Ledger, step: Step) -> Result<(), ()> {
        match step {
            Step::Append(count) => {
                for number in self.appended..self.appended + count {
                    ledger.append(record(number));
                }
                self.appended += count;
            }
            Step::Wait => {
                let durable = ledger.durable(ledger.end()).await.map_err(drop)?;
                self.durable = durable.up_to().records();
            }
            Step::Snapshot => self.snapshot(ledger).await.map_err(drop)?,
            Step::Trim => ledger.trim(Position::new(self.appended)).await.map_err(drop)?,
            Step::FailSync => disk.fail_syncs(1),
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

    async fn snapshot(&mut self, ledger: &Ledger) -> Result<(), LedgerError> {
        let position = ledger.end();
        let mut writer = ledger.snapshot(position).await?;
        self.durable = self.durable.max(position.records());
        writer.part(Bytes::from(position.records().to_string())).await?;
        writer.finish().await?;
        self.snapshot = position.records();
        Ok(())
    }
}

/// Runs a case on a disk of its own.
async fn run(disk: SimDisk, steps: Vec<Step>) {
    let mut model = Model::default();
    let mut ledger = model.open(&disk).await;
    for step in steps {
        if model.step(&disk, &ledger, step).await.is_err() {
            drop(ledger);
            // The writer of a process that was killed is gone before the next begins.
            for _ in 0..4 {
                tokio::task::yield_now().await;
            }
            ledger = model.open(&disk).await;
        }
    }
    disk.crash();
    drop(ledger);
    model.open(&disk).await;
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build().expect("a runtime")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn what_is_said_to_be_durable_survives_in_order(seed in any::<u64>(), steps in steps()) {
        let disk = SimDisk::new(seed);
        disk.settings(DiskSettings { short_writes: 0.1, ..DiskSettings::default() });
        runtime().block_on(run(disk, steps));
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
    use std::time::Duration;

    use convoke::sim::disk::Delay;
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
            catch_unwind(AssertUnwindSafe(|| runtime().block_on(run(disk, steps)))).is_err()
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
