use std::sync::atomic::AtomicUsize;
use std::task::Wake;

use bytes::Bytes;

use super::*;

#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Woken {
    fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

fn slab(slots: u32) -> (Arc<Slab>, Arc<Woken>) {
    let woken = Arc::new(Woken::default());
    (Slab::new(slots, 64, Waker::from(Arc::clone(&woken))), woken)
}

/// Receives `text` into a slot, as far as it is filled.
fn fill(slab: &Slab, slot: u32, text: &[u8]) {
    assert!(slab.begin_receive(slot));
    assert!(slab.deliver(slot, text));
    assert!(slab.end_receive(slot));
}

fn lend(slab: &Arc<Slab>, slot: u32, bytes: usize) -> Option<SlotGuard> {
    slab.read(slot, bytes)?.lend(slab)
}

fn returned(slab: &Slab) -> Vec<u32> {
    let mut slots = Vec::new();
    slab.take_returned(|slot| slots.push(slot));
    slots.sort_unstable();
    slots
}

#[test]
fn what_was_received_is_lent_until_the_guard_is_dropped() {
    let (slab, _) = slab(2);
    fill(&slab, 1, b"hello");
    assert_eq!(&*slab.read(1, 5).unwrap(), b"hello");
    let bytes = Bytes::from_owner(lend(&slab, 1, 5).unwrap());
    let part = bytes.slice(1..3);
    drop(bytes);
    assert_eq!(&*part, b"el");
    assert!(returned(&slab).is_empty());
    assert!(!slab.begin_receive(1), "it is lent");
    drop(part);
    assert_eq!(returned(&slab), [1]);
    assert!(slab.begin_receive(1));
}

#[test]
fn a_slot_belongs_to_one_at_a_time() {
    let (slab, _) = slab(1);
    let mut editing = slab.edit(0).unwrap();
    editing[..2].copy_from_slice(b"ab");
    assert!(slab.edit(0).is_none() && !slab.begin_send(0) && !slab.begin_receive(0));
    drop(editing);
    assert_eq!(&slab.edit(0).unwrap()[..3], b"ab\0");

    assert!(slab.begin_send(0));
    assert!(slab.edit(0).is_none() && !slab.begin_receive(0) && !slab.deliver(0, b"x"));
    let mut sent = b"before".to_vec();
    assert!(slab.collect(0, 2, &mut sent) && !slab.collect(0, 65, &mut sent));
    assert_eq!(sent, b"ab");
    assert!(slab.end_send(0) && !slab.end_send(0));
    assert!(!slab.collect(0, 2, &mut sent));

    assert!(slab.begin_receive(0));
    assert!(!slab.deliver(0, &[0; 65]), "it is too long");
    assert!(slab.read(0, 1).is_none());
    assert!(slab.deliver(0, b"cd") && !slab.deliver(0, b"ef"));
    assert!(slab.read(0, 1).is_none(), "its completion has not been polled");
    assert!(slab.end_receive(0));
    assert!(slab.read(0, 65).is_none() && slab.read(0, usize::MAX).is_none());
    assert!(slab.recycle(0) && !slab.recycle(0));
}

#[test]
fn a_slot_that_does_not_exist_is_nobodys() {
    let (slab, _) = slab(1);
    assert!(slab.edit(1).is_none() && slab.read(1, 0).is_none());
    assert!(!slab.begin_send(1) && !slab.begin_receive(u32::MAX) && !slab.deliver(1, b""));
}

#[test]
fn guards_outlive_the_handle_and_free_the_memory_last() {
    let (slab, _) = slab(3);
    fill(&slab, 2, b"still here");
    let bytes = Bytes::from_owner(lend(&slab, 2, 10).unwrap());
    slab.reclaim();
    drop(slab);
    let read = std::thread::spawn(move || bytes.to_vec()).join().unwrap();
    assert_eq!(read, b"still here");
}

#[test]
fn a_return_wakes_only_who_is_starved_and_once() {
    let (slab, woken) = slab(3);
    (0..3).for_each(|slot| fill(&slab, slot, b"x"));
    let guards: Vec<_> = (0..3).map(|slot| lend(&slab, slot, 1).unwrap()).collect();
    let mut guards = guards.into_iter();
    drop(guards.next());
    assert_eq!(woken.count(), 0);
    slab.set_starved(true);
    drop(guards.next());
    drop(guards.next());
    assert_eq!(woken.count(), 1);
    assert_eq!(returned(&slab), [0, 1, 2]);
}

#[test]
fn threads_that_return_lose_no_slot() {
    const ROUNDS: usize = if cfg!(miri) { 5 } else { 500 };
    let (slab, woken) = slab(8);
    for _ in 0..ROUNDS {
        (0..8).for_each(|slot| fill(&slab, slot, b"x"));
        slab.set_starved(true);
        let before = woken.count();
        let mut slots = Vec::new();
        std::thread::scope(|scope| {
            for slot in 0..8 {
                let guard = lend(&slab, slot, 1).unwrap();
                scope.spawn(move || drop(guard));
            }
            while slots.len() < 8 {
                slab.take_returned(|slot| slots.push(slot));
            }
        });
        slots.sort_unstable();
        assert_eq!(slots, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(woken.count(), before + 1);
    }
}

#[test]
fn a_stopped_device_gives_back_what_it_held() {
    let (slab, _) = slab(4);
    assert!(slab.begin_receive(0) && slab.begin_send(1));
    assert!(slab.begin_receive(2) && slab.deliver(2, b"x"));
    fill(&slab, 3, b"lent");
    let guard = lend(&slab, 3, 4).unwrap();
    slab.reclaim();
    assert!((0..3).all(|slot| slab.edit(slot).is_some()));
    assert!(slab.edit(3).is_none());
    assert_eq!(guard.as_ref(), b"lent");
}

#[test]
fn a_slot_lent_while_it_is_read_is_returned_by_whoever_ends_last() {
    let (slab, _) = slab(1);
    let other = Slab::new(1, 64, Waker::noop().clone());
    for is_guard_first in [true, false] {
        fill(&slab, 0, b"abc");
        let reading = slab.read(0, 3).unwrap();
        assert!(reading.lend(&other).is_none());
        let guard = reading.lend(&slab).unwrap();
        assert!(reading.lend(&slab).is_none() && slab.read(0, 3).is_none());
        if is_guard_first {
            drop(guard);
            assert!(slab.edit(0).is_none() && returned(&slab).is_empty());
            assert_eq!(&*reading, b"abc");
            drop(reading);
        } else {
            drop(reading);
            assert!(slab.edit(0).is_none() && returned(&slab).is_empty());
            assert_eq!(guard.as_ref(), b"abc");
            drop(guard);
        }
        assert_eq!(returned(&slab), [0]);
    }
}
