//! Names after crashes, against a plain model: every file that each name has meant since its
//! directory was last synced.

use std::collections::{BTreeMap, BTreeSet};

use convoke_sim::disk::{Disk, DiskFile, Fate, Mount, Open, SimDisk};
use proptest::prelude::*;

use super::support::{in_virtual_time, read};

#[derive(Clone, Debug)]
enum Step {
    Create(usize),
    Rename(usize, usize),
    Remove(usize),
    Sync(usize),
    Crash(Fate),
}

const DIRS: [&str; 2] = ["", "sub"];
/// The first two are in the first directory, the others in the second.
const PATHS: [&str; 4] = ["a", "b", "sub/a", "sub/b"];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let fates = [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Reordered];
    let step = prop_oneof![
        4 => (0..4_usize).prop_map(Step::Create),
        4 => (0..4_usize, 0..4_usize).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => (0..4_usize).prop_map(Step::Remove),
        2 => (0..2_usize).prop_map(Step::Sync),
        2 => prop::sample::select(fates.to_vec()).prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

/// A file by its number, which is also its contents.
type File = u64;

#[derive(Default)]
struct Model {
    seen: [Option<File>; 4],
    /// Whom each path has meant since its directory was synced.
    since: [BTreeSet<Option<File>>; 4],
    /// Files with a durable name that nobody has removed or replaced.
    durable: BTreeSet<File>,
    /// The file that each path meant when its directory was synced.
    synced: [Option<File>; 4],
    /// A file has gone into another directory since the crash: its name is of both.
    is_entangled: bool,
}

impl Model {
    fn of(seen: [Option<File>; 4]) -> Self {
        let durable = seen.iter().flatten().copied().collect();
        let since = seen.map(|file| BTreeSet::from([file]));
        Self { seen, since, durable, synced: seen, is_entangled: false }
    }

    fn put(&mut self, path: usize, file: Option<File>) {
        if let Some(old) = self.seen[path].filter(|old| Some(*old) != file) {
            self.durable.remove(&old);
        }
        self.seen[path] = file;
        self.since[path].insert(file);
    }

    fn rename(&mut self, from: usize, to: usize) {
        let file = self.seen[from];
        if from != to {
            self.is_entangled |= from / 2 != to / 2;
            self.put(to, file);
            // Not removed: it goes elsewhere.
            self.seen[from] = None;
            self.since[from].insert(None);
        }
    }

    fn sync(&mut self, dir: usize) {
        for path in [2 * dir, 2 * dir + 1] {
            self.since[path] = BTreeSet::from([self.seen[path]]);
            self.synced[path] = self.seen[path];
            self.durable.extend(self.seen[path]);
        }
    }

    fn check(&self, found: &[Option<File>; 4]) -> Result<(), TestCaseError> {
        let mut names = BTreeMap::<File, usize>::new();
        for (path, file) in found.iter().enumerate() {
            prop_assert!(self.since[path].contains(file), "{} is {file:?}", PATHS[path]);
            file.iter().for_each(|file| *names.entry(*file).or_default() += 1);
        }
        prop_assert!(names.values().all(|count| *count == 1), "one name each: {found:?}");
        let lost = self.durable.iter().find(|file| !names.contains_key(file));
        prop_assert_eq!(lost, None, "a durable file is gone: {:?}", found);
        Ok(())
    }
}

async fn found(disk: &SimDisk) -> [Option<File>; 4] {
    let mut files = [None; 4];
    for (path, file) in PATHS.iter().zip(&mut files) {
        let number = read(disk, path).await.ok();
        *file = number.map(|bytes| File::from_le_bytes(bytes[..].try_into().expect("a number")));
    }
    files
}

async fn run(seed: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let disk = SimDisk::new(seed);
    let mut mount: Mount = disk.mount();
    mount.create_dir("sub").await.expect("it is new");
    mount.sync_dir("").await.expect("the disk works");
    let mut model = Model::of([None; 4]);
    for (number, step) in (1..).zip(steps) {
        match step {
            Step::Create(path) => {
                let created = mount.open(PATHS[path], Open::New).await;
                prop_assert_eq!(created.is_ok(), model.seen[path].is_none());
                if let Ok(file) = created {
                    let bytes = File::to_le_bytes(number).to_vec().into();
                    file.write_all_at(0, bytes).await.expect("there is room");
                    file.sync().await.expect("the disk works");
                    model.put(path, Some(number));
                }
            }
            Step::Rename(from, to) => {
                let renamed = mount.rename(PATHS[from], PATHS[to]).await;
                prop_assert_eq!(renamed.is_ok(), model.seen[from].is_some());
                if renamed.is_ok() {
                    model.rename(from, to);
                }
            }
            Step::Remove(path) => {
                let removed = mount.remove(PATHS[path]).await;
                prop_assert_eq!(removed.is_ok(), model.seen[path].is_some());
                model.put(path, None);
            }
            Step::Sync(dir) => {
                mount.sync_dir(DIRS[dir]).await.expect("the disk works");
                model.sync(dir);
            }
            Step::Crash(fate) => {
                disk.crash_with(fate);
                mount = disk.mount();
                let found = found(&disk).await;
                if fate == Fate::Kept {
                    prop_assert_eq!(found, model.seen);
                }
                // Nothing that was not synced is durable by way of another directory's sync.
                if fate == Fate::Lost && !model.is_entangled {
                    prop_assert_eq!(found, model.synced);
                }
                model.check(&found)?;
                model = Model::of(found);
            }
        }
        prop_assert_eq!(found(&disk).await, model.seen, "a change is seen at once");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_crash_leaves_of_each_name_what_it_has_meant_since_it_was_synced(
        seed: u64,
        steps in steps(),
    ) {
        in_virtual_time(run(seed, steps))?;
    }
}

#[test]
fn the_seed_decides_about_a_name_that_was_not_synced() {
    let survived = (0..100).filter(|seed| {
        in_virtual_time(async {
            let disk = SimDisk::new(*seed);
            let file = disk.mount().open("new", Open::New).await.expect("it is new");
            file.write_all_at(0, "text".into()).await.expect("there is room");
            file.sync().await.expect("the disk works");
            disk.crash();
            read(&disk, "new").await.is_ok()
        })
    });
    assert!((20..80).contains(&survived.count()));
}
