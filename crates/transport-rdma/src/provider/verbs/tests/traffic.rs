//! Messages: whole, in order, never more than a queue holds.

use super::*;

#[test]
fn messages_arrive_whole_inline_and_from_slots() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        device.post_receives(&far.queue_pair, &[3, 4, 5, 6]).unwrap();
        near.slab.edit(0).unwrap().fill(7);
        let sends = [
            SendRequest { data: Data::Inline(b"hi"), is_signalled: false },
            SendRequest { data: Data::Inline(b""), is_signalled: false },
            SendRequest { data: Data::Probe, is_signalled: true },
            SendRequest { data: Data::Slot { slot: 0, bytes: 4_096 }, is_signalled: false },
            SendRequest { data: Data::Inline(&[1; 200]), is_signalled: true },
        ];
        device.post_sends(&near.queue_pair, &sends).unwrap();
        assert!(near.slab.edit(0).is_none(), "it is the device's");
        let (mut received, mut sent) = (Vec::new(), Vec::new());
        while received.len() + sent.len() < 6 {
            let completion = driven.completion().await;
            if completion.id.tag() == far.tag {
                received.push((completion.id.index(), far.text(&completion)));
            } else {
                assert_eq!(completion.status, WorkStatus::Success);
                sent.push(completion.id);
            }
        }
        assert_eq!(sent, [2, 4].map(|number| WorkId::send(near.tag, number)));
        let expected = [(3, b"hi".to_vec()), (4, vec![]), (5, vec![7; 4_096]), (6, vec![1; 200])];
        assert_eq!(received, expected);
    });
}

#[test]
fn either_end_may_probe_the_other() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        for end in [&near, &far] {
            let send = SendRequest { data: Data::Probe, is_signalled: true };
            device.post_sends(&end.queue_pair, &[send]).unwrap();
            let completion = driven.completion().await;
            let first = WorkId::send(end.tag, 0);
            assert_eq!((completion.id, completion.status), (first, WorkStatus::Success));
        }
    });
}

#[test]
fn more_than_a_queue_holds_is_refused_and_fits_once_some_is_done() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        let slots: Vec<u32> = (0..17).collect();
        let refused = device.post_receives(&far.queue_pair, &slots).unwrap_err();
        assert_eq!(refused, PostError { posted: 16, error: VerbsError::QueueFull("receive") });

        let send = SendRequest { data: Data::Inline(b"x"), is_signalled: false };
        device.post_sends(&near.queue_pair, &[send; 10]).unwrap();
        let refused = device.post_sends(&near.queue_pair, &[send; 10]).unwrap_err();
        assert_eq!(refused, PostError { posted: 6, error: VerbsError::QueueFull("send") });
        let refused = near.send(&device, b"signalled").unwrap_err();
        assert_eq!(refused.error, VerbsError::QueueFull("send"));
        for _ in 0..16 {
            assert_eq!(driven.completion().await.id.tag(), far.tag);
        }
        // Nothing was signalled, so nothing says that they are done; the queue stays full.
        assert!(near.send(&device, b"signalled").is_err());
    });
}

#[test]
fn a_slot_that_is_not_free_is_not_posted() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (near, _far) = pair(&mut driven, address, [1, 2]).await;
        device.post_receives(&near.queue_pair, &[5]).unwrap();
        let refused = device.post_receives(&near.queue_pair, &[4, 5, 6]).unwrap_err();
        assert_eq!(refused, PostError { posted: 1, error: VerbsError::SlotInUse(5) });
        let refused = device.post_receives(&near.queue_pair, &[32]).unwrap_err();
        assert_eq!(refused.error, VerbsError::SlotInUse(32));
        let of_slot = |slot, bytes| {
            let data = Data::Slot { slot, bytes };
            device.post_sends(&near.queue_pair, &[SendRequest { data, is_signalled: true }])
        };
        assert_eq!(of_slot(4, 1).unwrap_err().error, VerbsError::SlotInUse(4));
        assert!(of_slot(7, 4_097).is_err());
        let long = vec![0; device.inline_bytes_max(&near.queue_pair) as usize + 1];
        assert!(near.send(&device, &long).is_err());
        assert!(near.slab.edit(7).is_some() && near.slab.edit(6).is_some());
    });
}

#[test]
fn a_send_without_a_receive_finds_the_receiver_not_ready_at_once() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        let before = counter("send_rnr_err") + counter("rcvd_rnr_err");
        device.post_receives(&far.queue_pair, &[0]).unwrap();
        near.send(&device, b"fits").unwrap();
        near.send(&device, b"does not").unwrap();
        near.send(&device, b"comes after").unwrap();
        let (mut statuses, mut received) = (Vec::new(), 0);
        while statuses.len() < 3 || received == 0 {
            let completion = driven.completion().await;
            if completion.id.tag() == near.tag {
                statuses.push(completion.status);
            } else {
                assert_eq!(far.text(&completion), b"fits");
                received += 1;
            }
        }
        let expected = [WorkStatus::Success, WorkStatus::ReceiverNotReady, WorkStatus::Flushed];
        assert_eq!(statuses, expected);
        // The system remembers counters for some milliseconds.
        let is_counted = || counter("send_rnr_err") + counter("rcvd_rnr_err") > before;
        let counted = async {
            while !is_counted() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(TIMEOUT, counted).await.expect("the device counts it");
    });
}

/// Wake-ups are not lost: two threads answer each other 10,000 times and sleep in between. A lost
/// one would hang.
#[test]
fn two_threads_wake_each_other_ten_thousand_times() {
    const ROUNDS: u32 = 10_000;
    let Some(address) = device_address() else { return };
    let (port, listening) = std::sync::mpsc::channel();
    let answering = std::thread::spawn(move || {
        on_device(async move |device, address| {
            let mut driven = Driven::new(device.clone());
            let (listener, at) = device.listen(tag(9), SocketAddr::new(address, 0), 8).unwrap();
            port.send(at).unwrap();
            let Event::Request { request, .. } = driven.event().await else { panic!() };
            let (slab, memory) = memory(&device, 32);
            let queue_pair = device.prepare(tag(1), request, SETTINGS, &memory).unwrap();
            let end = End { queue_pair, slab, tag: tag(1) };
            device.post_receives(&end.queue_pair, &[0, 1]).unwrap();
            device.accept(&end.queue_pair, b"").unwrap();
            // The first message may pass the last of the handshake, and is answered only after it.
            let Event::Established { .. } = driven.event().await else { panic!() };
            answer(&mut driven, &end, ROUNDS, false).await;
            drop(listener);
        });
    });
    on_device(async move |device, _| {
        let mut driven = Driven::new(device.clone());
        let at = listening.recv().unwrap();
        assert_eq!(at.ip(), address);
        let (slab, memory) = memory(&device, 32);
        let queue_pair = device.dial(tag(2), at, TIMEOUT, SETTINGS, &memory).unwrap();
        let Event::Resolved { .. } = driven.event().await else { panic!() };
        let end = End { queue_pair, slab, tag: tag(2) };
        device.post_receives(&end.queue_pair, &[0, 1]).unwrap();
        device.connect(&end.queue_pair, b"").unwrap();
        let Event::Established { .. } = driven.event().await else { panic!() };
        answer(&mut driven, &end, ROUNDS, true).await;
    });
    answering.join().unwrap();
}

/// Sends as many messages as it receives, in turn.
async fn answer(driven: &mut Driven, end: &End, rounds: u32, is_first: bool) {
    let device = driven.device.clone();
    if is_first {
        end.send(&device, b"ping").unwrap();
    }
    let (mut received, mut sent) = (0, 0);
    // The last send is not waited for where the other end may be gone by then.
    while received < rounds {
        let completion = driven.completion().await;
        assert_eq!(completion.status, WorkStatus::Success);
        if completion.id.direction() == crate::provider::Direction::Send {
            sent += 1;
            continue;
        }
        received += 1;
        let slot = completion.id.index();
        assert_eq!(end.text(&completion), b"ping");
        assert!(end.slab.recycle(slot));
        device.post_receives(&end.queue_pair, &[slot]).unwrap();
        if !is_first || received < rounds {
            end.send(&device, b"ping").unwrap();
        }
    }
    assert!(sent + 2 >= rounds, "{sent} of {rounds} sends are done");
    if !is_first {
        // The other end has to get the last answer before this one is destroyed.
        while sent < rounds {
            assert_eq!(driven.completion().await.status, WorkStatus::Success);
            sent += 1;
        }
    }
}
