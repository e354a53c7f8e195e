//! Crashes of names, by hand and under many seeds.

use super::*;

fn paths(tree: &Tree, dir: Inode) -> Vec<(String, Inode)> {
    let mut found = Vec::new();
    for (name, inode) in tree.list(dir) {
        found.push((name.to_owned(), inode));
        let below = paths(tree, inode).into_iter();
        found.extend(below.map(|(path, inode)| (format!("{name}/{path}"), inode)));
    }
    found
}

/// `a/` with `a/b/` in it, and `a/b/file`: all durable.
fn nested() -> Names {
    let mut names = Names::default();
    names.place(1, ROOT, "a");
    names.place(2, 1, "b");
    names.place(3, 2, "file");
    names.sync_all();
    names
}

#[test]
fn a_name_is_durable_when_its_own_directory_is_synced() {
    let mut names = Names::default();
    names.place(1, ROOT, "a");
    names.place(2, 1, "file");
    names.sync(1, names.next_change());
    let mut crashed = names.clone();
    crashed.crash(Fate::Lost, &mut Random::new(1));
    assert_eq!(paths(crashed.seen(), ROOT), [], "no path leads to it");
    names.sync(ROOT, names.next_change());
    names.crash(Fate::Lost, &mut Random::new(1));
    assert_eq!(paths(names.seen(), ROOT), [("a".into(), 1), ("a/file".into(), 2)]);
}

#[test]
fn a_sync_covers_what_was_changed_before_it_began() {
    let mut names = Names::default();
    names.place(1, ROOT, "a");
    let began = names.next_change();
    names.place(2, ROOT, "b");
    names.sync(ROOT, began);
    names.crash(Fate::Lost, &mut Random::new(1));
    assert_eq!(paths(names.seen(), ROOT), [("a".into(), 1)]);
}

#[test]
fn a_sync_brings_what_a_change_depends_on() {
    let mut names = nested();
    // "other" replaces "file", and goes on into another directory, which is synced.
    names.place(4, 2, "other");
    names.place(4, 2, "file");
    names.place(4, ROOT, "out");
    names.sync(ROOT, names.next_change());
    names.crash(Fate::Lost, &mut Random::new(1));
    assert_eq!(paths(names.seen(), ROOT), [("a".into(), 1), ("a/b".into(), 2), ("out".into(), 4)]);
}

/// Neither the file that goes elsewhere nor its new directory has to do with the others.
#[test]
fn a_sync_makes_nothing_durable_in_other_directories() {
    let mut names = nested();
    names.place(4, ROOT, "dir");
    names.place(5, 1, "other");
    names.place(3, 1, "file");
    names.sync(2, names.next_change());
    names.crash(Fate::Lost, &mut Random::new(1));
    let left = [("a".into(), 1), ("a/b".into(), 2), ("a/file".into(), 3)];
    assert_eq!(paths(names.seen(), ROOT), left);
}

#[test]
fn after_a_failed_sync_a_name_may_be_seen_and_never_durable() {
    let outcomes = (0..100).map(|seed| {
        let mut names = nested();
        names.place(4, ROOT, "new");
        names.fail_sync(ROOT, names.next_change(), &mut Random::new(seed));
        assert!(names.seen().has(4), "it is seen in any case");
        let is_written = names.durable().has(4);
        names.sync(ROOT, names.next_change());
        (is_written, names.durable().has(4))
    });
    let expected = [(false, false), (false, true), (true, true)];
    assert!(outcomes.collect::<BTreeSet<_>>().into_iter().eq(expected));
}

/// The file was durable and nobody removed it: it is there, under one name or the other.
#[test]
fn no_crash_loses_a_file_that_only_went_elsewhere() {
    // Out of order the renames of directories would make a circle.
    let circle = |names: &mut Names| {
        names.place(2, ROOT, "b");
        names.place(4, 2, "c");
        names.place(1, 4, "a");
    };
    // Out of order the removal would take the file with it, and a new directory come too late.
    let removal = |names: &mut Names| {
        names.place(4, ROOT, "c");
        names.place(5, 4, "d");
        names.place(3, 5, "file");
        names.remove(2);
    };
    let mut ways = BTreeSet::new();
    for seed in 0..500 {
        for change in [&circle as &dyn Fn(&mut Names), &removal] {
            let mut names = nested();
            change(&mut names);
            names.crash(Fate::Reordered, &mut Random::new(seed));
            let mut found = paths(names.seen(), ROOT);
            found.retain(|(_, inode)| *inode == 3);
            assert_eq!(found.len(), 1, "seed {seed}: {found:?}");
            ways.extend(found.into_iter().map(|(path, _)| path));
        }
    }
    assert!(ways.into_iter().eq(["a/b/file", "b/file", "c/d/file"]));
}

#[test]
fn the_unsynced_are_bounded_and_the_oldest_become_durable() {
    let mut names = Names::default();
    for inode in 1..=(UNSYNCED_MAX as u64 + 2) {
        names.place(inode, ROOT, &format!("{inode:05}"));
    }
    assert_eq!(names.unsynced.len(), UNSYNCED_MAX);
    assert_eq!(names.durable().list(ROOT).count(), 2);
}
