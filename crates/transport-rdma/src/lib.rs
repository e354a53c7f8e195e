//! Convoke over RDMA verbs: the addresses `rdma://host:port`, where host is an IPv4 address, an
//! IPv6 address in brackets, or a name.
//!
//! [`RdmaTransport`] is one [`Transport`](convoke_transport::Transport) of an endpoint, over
//! one device. Messages travel by two-sided sends over a reliable connected queue pair for each
//! connection; credits see to it that each finds a receive posted, so the device never has to retry
//! for lack of one.
//!
//! ```text
//!  append ─▶ lanes ─▶ message ─▶ inline, or ─▶ device ┄┄▶ device ─▶ receive slot ─▶ Sink::on_batch
//!                     4 bytes     send slot                           small frames copied,
//!                     of credit                                       large ones lent
//! ```
//!
//! # What it costs
//!
//! Small frames are gathered into one message; messages up to 220 bytes go inline, others through
//! registered slots. Whoever flushes posts on its own thread. One task per device, the *engine*,
//! polls for completions and calls the sinks; after traffic it polls for a while before it sleeps
//! ([`PollMode`]). Frames above 1 KiB that fit a slot are lent to the application without a copy,
//! and their slots come back when the last slice is dropped, on any thread and at any time; one
//! that holds most of them gets copies. A frame that is copied allocates nothing.
//!
//! # What a peer can do to this node
//!
//! It never reaches memory: no remote access is granted. A peer that breaks the rules is closed
//! with [`Fault`](convoke_transport::CloseReason::Fault), one that falls silent by the
//! device's retries or after the keep-alive timeout; none disturbs another connection. With the
//! default settings a connection holds at most:
//!
//! | | bound | default |
//! |---|---|---|
//! | registered slots | (`slots` + `control_slots` + `send_slots`) x `slot_bytes` | 400 KiB |
//! | frames that came; given to the sink | 40 bytes each, `slot_bytes` / 4 a slot | 2 x 2.5 MiB |
//! | frames being put together | largest frame, per lane | 2 x (4 MiB + 64 KiB) |
//! | frames to send, data | hard bound | 16 MiB |
//! | frames to send, control | reserve, or one frame when that is larger | 1 MiB |
//!
//! # What it does not do
//!
//! It does not encrypt or authenticate: a peer is who it says it is, as over plain TCP. It does not
//! dial again when a connection ends; the endpoint does.
//!
//! # Example
//!
//! An endpoint with both transports dials a peer by RDMA where it can, and falls back to TCP. Here
//! over [simulated](provider::simulated) devices, which need no hardware:
//!
//! ```
//! use convoke_transport_rdma::provider::simulated::Fabric;
//! use convoke_transport_rdma::RdmaTransport;
//! # use convoke_core::{Context, Endpoint, Method, Service, Status};
//! # use std::time::Duration;
//! # const ECHO: Method<String, String> = Method::new("test.Test/Echo");
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//!
//! let fabric = Fabric::new();
//! let echo = |text, _: Context| async move { Ok::<String, Status>(text) };
//! let server = Endpoint::builder()
//!     .transport(RdmaTransport::simulated(&fabric))
//!     .listen("rdma://127.0.0.1:0")
//!     .serve(Service::new().unary(ECHO, echo))
//!     .start()
//!     .await?;
//! let client = Endpoint::builder().transport(RdmaTransport::simulated(&fabric)).start().await?;
//! let peer = client.connect(server.addresses()).await?;
//! let reply = client.call(ECHO, "hello".into()).to(&peer).await?;
//! assert_eq!(reply, "hello");
//! # client.shutdown(Duration::from_secs(1)).await;
//! # server.shutdown(Duration::from_secs(1)).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Modules
//!
//! Without I/O: `hello`, `introduction`, `framing`, `credit` (who may send what), `slot_ring`,
//! `link` (a connection). The seam to a device: [`provider`], [`slab`]. Over it: `wire` (a queue
//! pair and its link), `engine` (what polls), `connection`, `transport`.
//!
//! # Features
//!
//! `verbs` brings real devices on Linux; it needs the headers of libibverbs and librdmacm to build.
//! Without it the crate builds everywhere, over simulated devices. On other systems than Linux it
//! adds `RdmaTransport::open` alone, which says that it is unsupported there.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![deny(unsafe_code)]

mod config;
mod connection;
mod credit;
mod defect;
mod engine;
#[allow(unsafe_code, reason = "memory shared with a device; each block says why it is sound")]
mod ffi;
mod framing;
mod hello;
mod introduction;
mod link;
pub mod provider;
mod slot_ring;
mod transport;
mod wire;

pub use config::{PollMode, RdmaTransportBuilder};
pub use convoke_transport::parts::SettingsError as ConfigError;
#[cfg(feature = "mutants")]
pub use defect::Defect;
pub use ffi::slab;
pub use transport::RdmaTransport;

/// The scheme of its addresses.
pub(crate) const SCHEME: &str = "rdma";
