//! Error numbers become errors that say what to do.

use std::io;
use std::path::Path;

use crate::provider::VerbsError;

/// Error that the last call left in `errno`.
pub(super) fn last(call: &'static str) -> VerbsError {
    of_code(call, io::Error::last_os_error().raw_os_error().unwrap_or(0))
}

/// An error number that `call` returned, positive or negative.
pub(crate) fn of_code(call: &'static str, code: i32) -> VerbsError {
    let code = code.abs();
    match code {
        libc::EACCES | libc::EPERM => VerbsError::Permission { what: call.into() },
        libc::EIO | libc::ENODEV => VerbsError::DeviceLost(format!("{call}: {}", text_of(code))),
        libc::EMFILE | libc::ENFILE => VerbsError::Exhausted {
            what: "open files",
            advice: "raise the limit with ulimit -n or LimitNOFILE=".into(),
        },
        libc::ENOMEM | libc::ENOSPC => VerbsError::Exhausted {
            what: object_of(call),
            advice: format!(
                "lower the slots per peer or the number of peers, or raise ulimit -l or \
                 LimitMEMLOCK= on an adapter whose queues count as locked memory; {call} found no \
                 memory"
            ),
        },
        code => VerbsError::System { call, code, message: text_of(code) },
    }
}

/// Text of the system for an error number, of either sign.
pub(crate) fn text_of(code: i32) -> String {
    io::Error::from_raw_os_error(code.abs()).to_string()
}

/// A region of `needed_bytes` was refused. Too little may be locked, most of the time, which the
/// system reports as a lack of memory.
pub(super) fn of_registration(needed_bytes: u64, used_bytes: u64) -> VerbsError {
    let code = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    match code {
        libc::ENOMEM | libc::EAGAIN => {
            VerbsError::MemoryLimit { needed_bytes, used_bytes, limit_bytes: memory_limit() }
        }
        code => of_code("ibv_reg_mr", code),
    }
}

/// No device, and why: told apart by what the kernel shows.
pub(super) fn no_device(wanted: &str) -> VerbsError {
    let is_known_to_kernel = Path::new("/sys/class/infiniband")
        .read_dir()
        .is_ok_and(|mut devices| devices.next().is_some());
    let advice = if !is_known_to_kernel {
        "the kernel has none; load the driver of the adapter, or make a software device with \
         `modprobe rdma_rxe` and `rdma link add rxe0 type rxe netdev eth0`"
    } else if !Path::new("/dev/infiniband").exists() {
        "the kernel has one but there is no /dev/infiniband; load the modules ib_uverbs and \
         rdma_ucm"
    } else {
        "the kernel has others; `rdma link` lists them, and a device that misses here lacks its \
         user-space driver (package ibverbs-providers or rdma-core)"
    };
    VerbsError::NoDevice { wanted: wanted.into(), advice: advice.into() }
}

/// The connection manager could not be opened.
pub(super) fn of_connection_manager() -> VerbsError {
    let code = io::Error::last_os_error().raw_os_error().unwrap_or(0);
    match code {
        libc::ENODEV | libc::ENOENT => VerbsError::NoDevice {
            wanted: "for connections".into(),
            advice: "load the module rdma_ucm, and check that /dev/infiniband/rdma_cm exists"
                .into(),
        },
        libc::EACCES | libc::EPERM => {
            VerbsError::Permission { what: "/dev/infiniband/rdma_cm".into() }
        }
        code => of_code("rdma_create_event_channel", code),
    }
}

/// Bytes that this process may lock; `None` for no limit or none to be read.
fn memory_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct outlives the call that fills it.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (result == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

fn object_of(call: &str) -> &'static str {
    match call {
        "ibv_create_qp" => "queue pairs",
        "ibv_create_cq" | "ibv_resize_cq" => "completions",
        "ibv_post_send" | "ibv_post_recv" => "work requests",
        _ => "memory",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let said = |code| of_code("ibv_create_qp", code).to_string();
        assert!(said(libc::EACCES).contains("/dev/infiniband"), "{}", said(libc::EACCES));
        assert!(said(-libc::ENOMEM).contains("ulimit -l"), "{}", said(libc::ENOMEM));
        assert!(said(libc::EMFILE).contains("ulimit -n"), "{}", said(libc::EMFILE));
        assert!(matches!(of_code("x", libc::EIO), VerbsError::DeviceLost(_)));
        assert!(
            matches!(of_code("x", libc::EINVAL), VerbsError::System { code, .. } if code == libc::EINVAL)
        );
    }

    #[test]
    fn a_missing_device_comes_with_advice() {
        let VerbsError::NoDevice { wanted, advice } = no_device("named \"nosuch0\"") else {
            panic!("it is about a device");
        };
        assert_eq!(wanted, "named \"nosuch0\"");
        assert!(advice.contains("rdma"), "{advice}");
    }
}
