//! Contents of files after crashes, against a plain model: every version that the file has had
//! since it was last synced.

use std::collections::BTreeSet;
use std::ops::Range;

use bytes::Bytes;
use convoke_sim::disk::{Disk, DiskFile, Fate, Open, SimDisk};
use proptest::prelude::*;

use super::support::{create, in_virtual_time, read};

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, len: usize },
    SetLen(u64),
    Sync,
    Crash(Fate),
}

const FATES: [Fate; 6] =
    [Fate::Kept, Fate::Lost, Fate::Torn, Fate::Reordered, Fate::Zeroed, Fate::Garbled];

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 0..10_000_u64;
    let step = prop_oneof![
        6 => (at.clone(), 0..6_000_usize).prop_map(|(at, len)| Step::Write { at, len }),
        1 => at.prop_map(Step::SetLen),
        2 => Just(Step::Sync),
        2 => prop::sample::select(&FATES[..]).prop_map(Step::Crash),
    ];
    prop::collection::vec(step, 1..40)
}

/// The file as it was synced last, and every version since.
struct Model {
    versions: Vec<Vec<u8>>,
    /// Where something was written since.
    written: Vec<Range<usize>>,
}

impl Model {
    fn synced(contents: Vec<u8>) -> Self {
        Self { versions: vec![contents], written: Vec::new() }
    }

    fn seen(&self) -> &Vec<u8> {
        self.versions.last().expect("the synced one at least")
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let mut next = self.seen().clone();
        if !bytes.is_empty() {
            next.resize(next.len().max(at + bytes.len()), 0);
            next[at..at + bytes.len()].copy_from_slice(bytes);
            self.written.push(at..at + bytes.len());
        }
        self.versions.push(next);
    }

    fn set_len(&mut self, len: usize) {
        let mut next = self.seen().clone();
        next.resize(len, 0);
        self.versions.push(next);
    }

    fn check(&self, fate: Fate, found: &[u8]) -> Result<(), TestCaseError> {
        let lens = self.versions.iter().map(Vec::len);
        let (least, most) = (lens.clone().min(), lens.max());
        prop_assert!(least <= Some(found.len()) && Some(found.len()) <= most);
        for (at, byte) in found.iter().enumerate() {
            let had = |version: &Vec<u8>| version.get(at).copied().unwrap_or(0) == *byte;
            let is_garbled =
                fate == Fate::Garbled && self.written.iter().any(|range| range.contains(&at));
            prop_assert!(self.versions.iter().any(had) || is_garbled, "byte {at} is {byte}");
        }
        match fate {
            Fate::Kept => prop_assert_eq!(found, self.seen()),
            Fate::Lost => prop_assert_eq!(found, &self.versions[0]),
            Fate::Zeroed => prop_assert!(found.len() >= self.seen().len()),
            Fate::Torn | Fate::Reordered | Fate::Garbled => {}
        }
        Ok(())
    }
}

async fn run(seed: u64, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let disk = SimDisk::new(seed);
    let mut file = create(&disk.mount(), "file").await;
    let mut model = Model::synced(Vec::new());
    for (number, step) in steps.into_iter().enumerate() {
        match step {
            Step::Write { at, len } => {
                // Never zero, so that a zero is one that nobody wrote.
                let bytes = vec![u8::try_from(number % 255 + 1).unwrap_or(1); len];
                file.write_all_at(at, Bytes::from(bytes.clone())).await.expect("there is room");
                model.write(usize::try_from(at).expect("it is small"), &bytes);
            }
            Step::SetLen(len) => {
                file.set_len(len).await.expect("there is room");
                model.set_len(usize::try_from(len).expect("it is small"));
            }
            Step::Sync => {
                file.sync().await.expect("the disk works");
                model = Model::synced(model.seen().clone());
            }
            Step::Crash(fate) => {
                disk.crash_with(fate);
                let found = read(&disk, "file").await.expect("its name is durable");
                model.check(fate, &found)?;
                model = Model::synced(found.to_vec());
                let mount = disk.mount();
                file = mount.open("file", Open::Write).await.expect("it is there");
            }
        }
        let seen = file.read_at(0, usize::MAX).await.expect("it is open");
        prop_assert_eq!(&seen[..], &model.seen()[..], "what was written is seen at once");
        let durable = disk.durable("file").expect("its name is durable");
        prop_assert_eq!(&durable[..], &model.versions[0][..]);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 120,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn a_crash_leaves_what_was_synced_and_nothing_that_was_never_written(
        seed: u64,
        steps in steps(),
    ) {
        in_virtual_time(run(seed, steps))?;
    }
}

/// A log that is only appended to: what survives of a torn tail is its beginning.
#[test]
fn a_torn_tail_is_cut_at_any_byte() {
    let mut cuts = BTreeSet::new();
    for seed in 0..400 {
        let found = in_virtual_time(async {
            let disk = SimDisk::new(seed);
            let file = create(&disk.mount(), "log").await;
            file.write_all_at(0, "synced".into()).await.expect("there is room");
            file.sync().await.expect("the disk works");
            for (at, text) in [(6, "abc"), (9, "defgh")] {
                file.write_all_at(at, text.into()).await.expect("there is room");
            }
            disk.crash_with(Fate::Torn);
            read(&disk, "log").await.expect("its name is durable")
        });
        assert!("syncedabcdefgh".as_bytes().starts_with(&found), "seed {seed}: {found:?}");
        cuts.insert(found.len());
    }
    assert!(cuts.into_iter().eq(6..=14), "each cut occurs, between writes and in them");
}

#[test]
fn reordered_sectors_leave_gaps_of_zeros() {
    let mut kinds = BTreeSet::new();
    for seed in 0..100 {
        let found = in_virtual_time(async {
            let disk = SimDisk::new(seed);
            let file = create(&disk.mount(), "log").await;
            file.write_all_at(0, vec![7; 3 * 512].into()).await.expect("there is room");
            disk.crash_with(Fate::Reordered);
            read(&disk, "log").await.expect("its name is durable")
        });
        let sectors: Vec<_> = found.chunks(512).map(|sector| (sector[0], sector.len())).collect();
        assert!(found.chunks(512).all(|sector| sector.iter().all(|byte| *byte == sector[0])));
        kinds.insert(sectors);
    }
    // Nothing, or 1 to 3 sectors of which the last is there: 1 + 1 + 2 + 4 ways.
    assert_eq!(kinds.len(), 8, "{kinds:?}");
    assert!(kinds.contains(&vec![(0, 512), (7, 512)]), "a gap before what survived");
}

#[test]
fn a_zeroed_tail_has_the_length_and_not_the_bytes() {
    let mut texts = BTreeSet::new();
    for seed in 0..100 {
        let found = in_virtual_time(async {
            let disk = SimDisk::new(seed);
            let file = create(&disk.mount(), "log").await;
            file.write_all_at(0, "abc".into()).await.expect("there is room");
            disk.crash_with(Fate::Zeroed);
            read(&disk, "log").await.expect("its name is durable")
        });
        texts.insert(found);
    }
    assert!(texts.into_iter().eq(["\0\0\0", "a\0\0", "ab\0", "abc"]));
}
