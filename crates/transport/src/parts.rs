//! Parts that transports are made of, each without I/O of its own: state machines that a reader, a
//! writer and a dial drive.
//!
//! ```text
//!  append ──▶ SendQueue ──▶ Batch ──▶ network ──▶ Inbound ──▶ Sink::on_batch
//!             SendAccount   Duty                  Decoder
//!             SendCredit                          ReceiveCredit
//!             └─ Outbound: with who waits and why it closes   └─ Life: dead, stale, ended
//! ```
//!
//! A transport over a stream of bytes, or of messages, takes all of them. One that has lanes or
//! credit of its own takes [`SendAccount`], [`Waiters`], [`Lifetime`], the settings and the hello.

mod admission;
mod batch;
mod chunk;
mod counters;
mod credit;
mod duty;
mod flows;
mod guest;
mod heartbeat;
mod hello;
mod inbound;
mod lanes;
mod life;
mod lifetime;
pub(crate) mod lock;
mod opening;
mod outbound;
mod pipe;
mod random;
mod refusals;
mod seats;
mod seldom;
mod send_account;
mod send_pool;
mod send_queue;
mod settings;
mod text;
mod waiters;

pub use admission::Admission;
pub use batch::{Batch, Completed, SLICES_MAX};
pub use chunk::{
    Decoder, Fault, Head, Input, Item, Kind, LENGTH_MAX, WORD_BYTES, Whole, Words, put_goodbye,
};
pub use counters::{Count, LiveCounters};
pub use credit::{ReceiveCredit, SendCredit};
pub use duty::Duty;
pub use flows::{FLOWS_MAX, Flow, Flows, Inlet, PREFIX_BYTES_MAX};
pub use guest::Guest;
pub use heartbeat::{Beat, Heartbeat};
pub use hello::{
    ADDRESSES_MAX, Announced, BODY_BYTES_MAX, CHUNK_BYTES_MIN, ENVELOPE_BYTES, FlowHello, Foreign,
    Greeting, HelloError, KEEP_ALIVE_TIMEOUT_MIN, TLS_REFUSAL, WINDOW_BYTES_MIN, decode_envelope,
    dialable, refusal,
};
pub use inbound::{Delivered, FRAMES_PER_TURN, Inbound, NoValve, Valve, hand_to};
pub use lanes::{LANES, index};
pub use life::{Closing, Life, LifeTerms, Stop, Verdict};
pub use lifetime::{Carrier, Ends, Lifetime, keep_alive};
pub use lock::Mutex;
pub use opening::{Opening, RefusedHere, keep_alive_interval};
pub use outbound::{Ended, Outbound};
pub use pipe::{Lost, Messages, Parts, Pipe, PipeConnection, read_messages};
pub use random::random;
pub use refusals::Refusals;
pub use seats::{NoSeat, Seat, Seats};
pub use seldom::Seldom;
pub use send_account::{LaneLimits, SendAccount, SendLimits};
pub use send_pool::{SendPool, SendShare};
pub use send_queue::{QueueLimits, SendQueue, Unsent};
pub use settings::{FRAME_BYTES_MIN, Settings, SettingsError, TIME_MAX};
pub use text::{TEXT_BYTES_MAX, clean_text, cut_text};
pub use waiters::{WAKER, Waiters, Wakers, wake_all};
