//! Connections that come about, and those that do not.

use std::net::Ipv4Addr;

use super::*;

/// A listener, with the tag 9, and the queue pair that dials it, with the tag 1, once its way is
/// found.
async fn resolved(driven: &mut Driven, address: IpAddr) -> (VerbsListener, VerbsQueuePair) {
    let device = driven.device.clone();
    let (listener, at) = device.listen(tag(9), SocketAddr::new(address, 0), 8).unwrap();
    let (_slab, memory) = memory(&device, 8);
    let dialled = device.dial(tag(1), at, TIMEOUT, SETTINGS, &memory).unwrap();
    let Event::Resolved { .. } = driven.event().await else { panic!() };
    (listener, dialled)
}

#[test]
fn a_reject_brings_its_reason() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (_listener, dialled) = resolved(&mut driven, address).await;
        device.connect(&dialled, b"let me in").unwrap();
        let Event::Request { request, .. } = driven.event().await else { panic!() };
        device.reject(request, b"another version");
        let Event::Rejected { tag, is_by_listener, private_data } = driven.event().await else {
            panic!()
        };
        assert_eq!((tag.get(), is_by_listener), (1, true));
        assert_eq!(&private_data[..15], b"another version");
    });
}

#[test]
fn a_dropped_request_is_rejected() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (_listener, dialled) = resolved(&mut driven, address).await;
        device.connect(&dialled, b"").unwrap();
        let Event::Request { request, .. } = driven.event().await else { panic!() };
        drop(request);
        let Event::Rejected { is_by_listener: true, .. } = driven.event().await else { panic!() };
    });
}

#[test]
fn nobody_listens() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (listener, dialled) = resolved(&mut driven, address).await;
        drop(listener);
        device.connect(&dialled, b"").unwrap();
        let Event::Rejected { is_by_listener: false, .. } = driven.event().await else { panic!() };
    });
}

#[test]
fn an_address_that_is_nobodys_is_unreachable() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let IpAddr::V4(own) = address else { return };
        let [a, b, c, _] = own.octets();
        let nobody = SocketAddr::new(Ipv4Addr::new(a, b, c, 254).into(), 7_000);
        let (_slab, memory) = memory(&device, 4);
        let timeout = Duration::from_secs(2);
        let _dialled = device.dial(tag(1), nobody, timeout, SETTINGS, &memory).unwrap();
        let Event::Unreachable { tag, error } = driven.event().await else { panic!() };
        assert_eq!(tag.get(), 1);
        assert!(matches!(error, VerbsError::Address(_)), "{error}");
    });
}

#[test]
fn an_address_without_a_device_is_named() {
    on_device(async |device, _| {
        let loopback = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let error = VerbsDevice::of_address(loopback.ip()).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
        let error = device.listen(tag(1), loopback, 8).unwrap_err();
        assert!(error.to_string().contains("127.0.0.1"), "{error}");
        let elsewhere = SocketAddr::new(Ipv4Addr::new(192, 0, 2, 1).into(), 0);
        let error = device.listen(tag(1), elsewhere, 8).unwrap_err();
        assert!(matches!(error, VerbsError::Address(_)), "{error}");
        let error = VerbsDevice::named("nosuch0").unwrap_err();
        let VerbsError::NoDevice { wanted, .. } = error else { panic!("{error}") };
        assert!(wanted.contains("nosuch0"));
    });
}

#[test]
fn an_address_is_listened_at_once() {
    on_device(async |device, address| {
        let (listener, at) = device.listen(tag(1), SocketAddr::new(address, 0), 8).unwrap();
        let error = device.listen(tag(2), at, 8).unwrap_err();
        assert!(matches!(error, VerbsError::Address(_)), "{error}");
        drop(listener);
        let (_listener, again) = device.listen(tag(2), at, 8).unwrap();
        assert_eq!(again, at);
    });
}

#[test]
fn too_much_private_data_is_refused() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let (_listener, dialled) = resolved(&mut driven, address).await;
        assert!(device.connect(&dialled, &[1; 57]).is_err());
        device.connect(&dialled, &[1; 56]).unwrap();
        let Event::Request { request, private_data, .. } = driven.event().await else { panic!() };
        assert_eq!(private_data, [1; 56]);
        let (_slab, memory) = memory(&device, 4);
        let prepared = device.prepare(tag(2), request, SETTINGS, &memory).unwrap();
        assert!(device.accept(&prepared, &[2; 197]).is_err());
        device.accept(&prepared, &[2; 196]).unwrap();
    });
}

/// At every step of a connection either end may be dropped; the other is told, and the device goes
/// on.
#[test]
fn a_connection_may_be_dropped_at_any_step() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        for step in 0..5 {
            drop_at(&mut driven, address, step).await;
        }
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        device.post_receives(&far.queue_pair, &[0]).unwrap();
        near.send(&device, b"still works").unwrap();
        let is_received = |completion: &Completion| completion.id.tag() == far.tag;
        let mut completion = driven.completion().await;
        if !is_received(&completion) {
            completion = driven.completion().await;
        }
        assert_eq!(far.text(&completion), b"still works");
    });
}

async fn drop_at(driven: &mut Driven, address: IpAddr, step: u32) {
    let device = driven.device.clone();
    let (listener, at) = device.listen(tag(9), SocketAddr::new(address, 0), 8).unwrap();
    let (_slab, memory) = memory(&device, 8);
    let dialled = device.dial(tag(1), at, TIMEOUT, SETTINGS, &memory).unwrap();
    if step == 0 {
        return;
    }
    let Event::Resolved { .. } = driven.event().await else { panic!() };
    device.post_receives(&dialled, &[0, 1, 2]).unwrap();
    if step == 1 {
        return;
    }
    device.connect(&dialled, b"").unwrap();
    if step == 2 {
        // The request waits, or is on its way; then it is rejected.
        drop(listener);
        let Event::Rejected { .. } = driven.event().await else { panic!() };
        return;
    }
    let Event::Request { request, .. } = driven.event().await else { panic!() };
    let (_slab, memory) = super::memory(&device, 8);
    let prepared = device.prepare(tag(2), request, SETTINGS, &memory).unwrap();
    device.post_receives(&prepared, &[3, 4]).unwrap();
    if step == 3 {
        drop(prepared);
        let Event::Rejected { .. } = driven.event().await else { panic!() };
        return;
    }
    drop(dialled);
    let told = match device.accept(&prepared, b"") {
        Ok(()) => driven.event().await,
        // The hang-up came first.
        Err(_) => return,
    };
    let is_end = matches!(
        told,
        Event::Rejected { .. } | Event::Unreachable { .. } | Event::Disconnected { .. }
    );
    assert!(is_end, "{told:?}");
}
