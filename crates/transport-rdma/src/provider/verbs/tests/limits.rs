//! Many queue pairs, and what the system does not allow.

use std::os::unix::process::CommandExt;
use std::process::Command;

use super::*;

/// 240 queue pairs, as 16 nodes need that all know each other: the completion queue grows with them
/// and never overflows.
#[test]
fn many_queue_pairs_share_a_device() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let settings = QueuePairSettings { receives_max: 34, sends_max: 34, ..SETTINGS };
        let mut pairs = Vec::new();
        for i in 0..120 {
            pairs.push(pair_with(&mut driven, address, [2 * i, 2 * i + 1], settings).await);
        }
        // 240 queue pairs with 68 work requests each are more than the queue had room for at first.
        let slots: Vec<u32> = (0..32).collect();
        for (near, far) in &pairs {
            device.post_receives(&far.queue_pair, &slots).unwrap();
            for _ in 0..32 {
                near.send(&device, b"x").unwrap();
            }
        }
        for _ in 0..120 * 64 {
            assert_eq!(driven.completion().await.status, WorkStatus::Success);
        }
        // Now all receives of one side come back at once.
        for (near, _) in &pairs {
            device.post_receives(&near.queue_pair, &slots).unwrap();
        }
        for (near, _) in &pairs {
            device.disconnect(&near.queue_pair);
        }
        for _ in 0..120 * 32 {
            assert_eq!(driven.completion().await.status, WorkStatus::Flushed);
        }
    });
}

#[test]
fn more_than_the_completion_queue_can_ever_hold_is_refused() {
    on_device(async |device, address| {
        let at = SocketAddr::new(address, 7_000);
        let (_slab, memory) = memory(&device, 4);
        let receives_max = device.limits().completions_max;
        let settings = QueuePairSettings { receives_max, sends_max: 1, ..SETTINGS };
        let error = device.dial(tag(1), at, TIMEOUT, settings, &memory).unwrap_err();
        assert!(matches!(error, VerbsError::Exhausted { .. }), "{error}");
        assert!(error.to_string().contains("lower the slots per peer"), "{error}");
    });
}

#[test]
fn more_than_a_queue_can_hold_is_refused_with_its_limit() {
    on_device(async |device, address| {
        let at = SocketAddr::new(address, 7_000);
        let (_slab, memory) = memory(&device, 4);
        let receives_max = device.limits().work_requests_max + 1;
        let settings = QueuePairSettings { receives_max, sends_max: 1, ..SETTINGS };
        let error = device.dial(tag(1), at, TIMEOUT, settings, &memory).unwrap_err();
        assert!(matches!(error, VerbsError::Exhausted { what: "work requests", .. }), "{error}");
        assert!(error.to_string().contains("a queue holds"), "{error}");
    });
}

#[test]
fn a_slab_takes_one_queue_pair_at_a_time() {
    on_device(async |device, address| {
        let at = SocketAddr::new(address, 7_000);
        let (slab, memory) = memory(&device, 4);
        let again = Arc::new(device.register(&slab).unwrap());
        let first = device.dial(tag(1), at, TIMEOUT, SETTINGS, &memory).unwrap();
        let error = device.dial(tag(2), at, TIMEOUT, SETTINGS, &again).unwrap_err();
        assert!(error.to_string().contains("another queue pair"), "{error}");
        drop(first);
        device.dial(tag(2), at, TIMEOUT, SETTINGS, &again).unwrap();
    });
}

/// No device sends so much inline; most refuse the queue pair rather than grant less.
#[test]
fn more_inline_bytes_than_the_device_can_send_become_fewer() {
    on_device(async |device, address| {
        let mut driven = Driven::new(device.clone());
        let settings = QueuePairSettings { inline_bytes: 1 << 20, ..SETTINGS };
        let mut granted = Vec::new();
        for tags in [[1, 2], [3, 4]] {
            let (near, far) = pair_with(&mut driven, address, tags, settings).await;
            let inline_bytes_max = device.inline_bytes_max(&near.queue_pair);
            assert!((1..1 << 20).contains(&inline_bytes_max), "{inline_bytes_max}");
            let text = vec![b'x'; SLOT_BYTES.min(inline_bytes_max as usize)];
            device.post_receives(&far.queue_pair, &[0]).unwrap();
            near.send(&device, &text).unwrap();
            for _ in 0..2 {
                assert_eq!(driven.completion().await.status, WorkStatus::Success);
            }
            assert_eq!(*far.slab.read(0, text.len()).unwrap(), *text);
            granted.push(inline_bytes_max);
        }
        assert_eq!(granted[0], granted[1]);
    });
}

const AS_USER: &str = "CONVOKE_TEST_MEMORY_LIMIT";

/// Root may lock what it wants, so an ordinary user tries, in a process of its own with a limit of
/// 1 MiB.
#[test]
fn too_little_lockable_memory_names_limit_and_need() {
    if device_address().is_none() {
        return;
    }
    if std::env::var_os(AS_USER).is_some() {
        return memory_is_limited();
    }
    let this = std::env::current_exe().unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", r#"ulimit -l 1024 && exec "$0" "$@""#]).arg(this);
    limited.args(["--exact", "--nocapture"]);
    limited.arg(format!("{}::too_little_lockable_memory_names_limit_and_need", test_path()));
    limited.env(AS_USER, "1");
    if is_root() {
        limited.uid(65_534).gid(65_534);
    }
    let done = limited.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("1 passed"), "{said}");
}

fn memory_is_limited() {
    on_device(async |device, address| {
        let before = resources();
        let slab = Slab::new(512, SLOT_BYTES, Waker::noop().clone());
        let error = device.register(&slab).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("2097152 bytes") && said.contains("1048576 bytes"), "{said}");
        assert!(said.contains("ulimit -l"), "{said}");
        assert_eq!(resources(), before, "nothing is left behind");
        // What fits is registered, and works.
        let mut driven = Driven::new(device.clone());
        let (near, far) = pair(&mut driven, address, [1, 2]).await;
        device.post_receives(&far.queue_pair, &[0]).unwrap();
        near.send(&device, b"x").unwrap();
        driven.completion().await;
        let error = device.register(&slab).unwrap_err();
        let VerbsError::MemoryLimit { used_bytes, .. } = error else { panic!("{error}") };
        assert_eq!(used_bytes, 2 * 32 * 4_096);
    });
}

fn test_path() -> &'static str {
    // Without the crate's name, as the test program wants it.
    module_path!().split_once("::").expect("a module of the crate").1
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}
