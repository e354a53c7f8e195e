//! Owners of verbs objects.
//!
//! Each type owns one object of `libibverbs` or `librdmacm` and destroys it when dropped. What an
//! object needs, it holds by an `Arc`, which is dropped after the object itself; so the order of
//! destruction is right whatever the order of drops, and on every path of errors:
//!
//! ```text
//!   QueuePair ──▶ CompletionQueue ──▶ CompletionChannel ──▶ Context
//!       └───────▶ MemoryRegion ─────▶ ProtectionDomain ───────▲
//!                      └──▶ Slab
//!   Id ──▶ EventChannel                     (librdmacm opens the device for itself)
//! ```
//!
//! The context is our own and not the one librdmacm shares within the process: its asynchronous
//! events then concern our objects alone, and closing it ends them. So a queue pair is taken
//! through its states by hand, with the attributes that librdmacm says ([`Id::attributes`]), and an
//! [`Id`] never has a queue pair of its own.
//!
//! All calls of both libraries are thread-safe; where a call is limited to one thread at a time,
//! its owner says so. Only the classic verbs are used: rdma-sys finds none of the extended ones on
//! 64-bit systems.

mod async_event;
mod completion;
mod connection;
mod context;
mod domain;
mod error;
mod queue_pair;

pub(crate) use async_event::AsyncEvent;
pub(crate) use completion::{
    Chunk, CompletionChannel, CompletionQueue, RawCompletion, status_text,
};
pub(crate) use connection::{ConnectionEvent, EventChannel, EventKind, Id, Parameters};
pub(crate) use context::Context;
pub(crate) use domain::{MemoryRegion, ProtectionDomain};
pub(crate) use error::{of_code, text_of};
pub(crate) use queue_pair::{Capacity, QueuePair, State};

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A duplicate of a descriptor the library owns, to wait on. It is set to never block; so is the
/// library's, since both are one open file.
///
/// # Safety
/// `descriptor` is open during the call.
unsafe fn duplicate(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: open during the call, as the caller says.
    let duplicate = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
    // SAFETY: the descriptor is open, and these commands take and return integers.
    let result = unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        if flags < 0 {
            -1
        } else {
            libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK)
        }
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(duplicate) }
}

/// Lets the runtime of the caller say when a descriptor becomes readable.
pub(crate) fn watch(descriptor: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is open, and owned by what watches it: it stays open and the same
    // until that is dropped.
    unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }
        .map_err(|error| error.into_parts().1)
}

#[cfg(test)]
mod layout;
