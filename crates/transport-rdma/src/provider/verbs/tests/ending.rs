//! Ends: of connections, devices and runtimes.

use bytes::Bytes;

use super::*;

#[test]
fn every_work_request_comes_back_after_a_disconnect() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        device.post_receives(&near.queue_pair, &[0, 1, 2, 3]).unwrap();
        device.post_receives(&far.queue_pair, &[0, 1]).unwrap();
        device.disconnect(&near.queue_pair);
        device.disconnect(&near.queue_pair);
        let mut flushed = Vec::new();
        while flushed.len() < 4 {
            let completion = driven.completion().await;
            assert_eq!((completion.id.tag(), completion.status), (near.tag, WorkStatus::Flushed));
            flushed.push(completion.id.index());
        }
        assert_eq!(flushed, [0, 1, 2, 3]);
        // The other end is told by an event alone, and then does the same.
        let Event::Disconnected { tag } = driven.event().await else { panic!() };
        assert_eq!(tag, far.tag);
        assert!(driven.completions.is_empty());
        device.disconnect(&far.queue_pair);
        for slot in [0, 1] {
            let completion = driven.completion().await;
            assert_eq!(completion.id, WorkId::receive(far.tag, slot));
        }
        let Event::Disconnected { tag } = driven.event().await else { panic!() };
        assert_eq!(tag, near.tag);
        // What is posted now comes back as well.
        near.send(&device, b"too late").unwrap();
        assert_eq!(driven.completion().await.status, WorkStatus::Flushed);
    });
}

#[test]
fn nothing_is_reported_of_a_dropped_queue_pair() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        device.post_receives(&near.queue_pair, &[0, 1, 2, 3]).unwrap();
        device.post_receives(&far.queue_pair, &[0]).unwrap();
        near.send(&device, b"last").unwrap();
        device.disconnect(&near.queue_pair);
        let slab = Arc::clone(&near.slab);
        drop(near);
        assert!((0..32).all(|slot| slab.edit(slot).is_some()), "all slots are free");
        let Event::Disconnected { tag } = driven.event().await else { panic!() };
        assert_eq!(tag, far.tag);
        device.disconnect(&far.queue_pair);
        let completion = driven.completion().await;
        assert_eq!(completion.id.tag(), far.tag);
        // The same tag again is somebody else.
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        device.post_receives(&far.queue_pair, &[7]).unwrap();
        near.send(&device, b"new").unwrap();
        let first = driven.completion().await;
        let completion = if first.id.tag() == far.tag { first } else { driven.completion().await };
        assert_eq!((completion.id.index(), far.text(&completion)), (7, b"new".to_vec()));
    });
}

#[test]
fn held_bytes_outlive_queue_pair_device_and_runtime() {
    let held = Arc::new(parking_lot::Mutex::new(None));
    let into = Arc::clone(&held);
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        device.post_receives(&far.queue_pair, &[0, 1]).unwrap();
        near.send(&device, b"keep this").unwrap();
        let mut completion = driven.completion().await;
        if completion.id.tag() != far.tag {
            completion = driven.completion().await;
        }
        let reading = far.slab.read(completion.id.index(), 9).unwrap();
        let guard = reading.lend(&far.slab).unwrap();
        drop(reading);
        *into.lock() = Some(Bytes::from_owner(guard));
        // More comes while it is held, into another slot.
        near.send(&device, b"something else").unwrap();
        driven.completion().await;
    });
    if device_address().is_some() {
        let bytes = held.lock().take().expect("it was received");
        let read = std::thread::spawn(move || bytes.to_vec()).join().unwrap();
        assert_eq!(read, b"keep this");
    }
}

/// Nothing is left on the device, whatever came first: as the system counts it.
#[test]
fn all_objects_are_gone_when_the_device_is_dropped() {
    let Some(address) = device_address() else { return };
    // The connection manager opens the device at its first use, and keeps that until the process
    // ends.
    on_device(async |device, _| {
        let mut driven = Driven::new(device);
        drop(pair(&mut driven, address, [1, 2]).await);
    });
    let before = resources();
    on_device(async |device, _| {
        let mut driven = Driven::new(device.clone());
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        device.post_receives(&far.queue_pair, &[0, 1]).unwrap();
        near.send(&device, b"x").unwrap();
        driven.completion().await;
        assert_ne!(resources(), before, "the count works");
        // Memory, listener and request go in an odd order.
        let (listener, at) = device.listen(tag(9), SocketAddr::new(address, 0), 8).unwrap();
        let (_slab, memory) = memory(&device, 4);
        let dialled = device.dial(tag(3), at, TIMEOUT, SETTINGS, &memory).unwrap();
        while !matches!(driven.event().await, Event::Resolved { .. }) {}
        device.connect(&dialled, b"").unwrap();
        let Event::Request { request, .. } = driven.event().await else { panic!() };
        drop(memory);
        drop(driven);
        drop(device);
        drop(listener);
        drop(near);
        drop(dialled);
        drop(request);
        drop(far);
    });
    assert_eq!(resources(), before);
}
