//! Costs of the transport beside bare verbs, and of its parts.
//!
//! Both ends are in one process over one device, on one thread, so that under a clock that counts
//! instructions every figure repeats. Prints a JSON line per row on standard output and what the
//! limits say on standard error; fails when one is not kept. Run it by
//! `cargo xtask rdma --only bench`, or with the address of an RDMA device in the variable
//! `RDMA_VM_ADDR`.
//!
//! - [`ping_pong`]: one message there and back, against bare verbs, polled and driven by events;
//! - [`stream`]: one way, 64 messages under way;
//! - [`flow_control`]: the same with and without credits, by the number of buffers;
//! - [`ring`]: a slot of the ring against memory that is allocated and registered for each message.
#![cfg_attr(
    not(target_os = "linux"),
    allow(unused, reason = "there are verbs on Linux only, and so no figures elsewhere")
)]

#[cfg(target_os = "linux")]
mod bare;
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "what is measured is the raw interface, without our owners")]
mod ffi;
#[cfg(target_os = "linux")]
mod flow_control;
#[cfg(target_os = "linux")]
mod node;
#[cfg(target_os = "linux")]
mod ping_pong;
#[cfg(target_os = "linux")]
mod ring;
mod rows;
#[cfg(target_os = "linux")]
mod stream;

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    let mut report = rows::Report::default();
    ping_pong::measure(&mut report);
    stream::measure(&mut report);
    flow_control::measure(&mut report);
    ring::measure(&mut report);
    report.conclude()
}

#[cfg(not(target_os = "linux"))]
fn main() -> ExitCode {
    eprintln!("there are verbs on Linux only");
    ExitCode::SUCCESS
}
