//! A peer without manners: bare verbs, and any bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::BufMut;
use convoke_transport_rdma::provider::simulated::{Fabric, SimDevice, SimQueuePair};
use convoke_transport_rdma::provider::{
    Completion, Data, Direction, Event, Provider, QueuePairSettings, SendRequest, Tag, WorkStatus,
};
use convoke_transport_rdma::slab::Slab;

use crate::support::until;

/// Kinds of messages.
pub(crate) const FRAMES: u8 = 0x01;
pub(crate) const INTRODUCTION: u8 = 0x03;
pub(crate) const GOODBYE: u8 = 0x05;
pub(crate) const CONTROL_FRAME: u8 = 0x07;
pub(crate) const DATA_FRAME: u8 = 0x0f;

/// Slots for data messages and for those that only give credit, as its hello says.
const SLOTS: u16 = 8;
const CONTROL_SLOTS: u8 = 2;
const SLOT_BYTES: u32 = 1 << 10;

/// A device, and a queue pair to whoever listens.
pub(crate) struct Stranger {
    device: SimDevice,
    queue_pair: SimQueuePair,
    slab: Arc<Slab>,
    /// Text of the goodbye, once it came.
    told: String,
    /// Number of data messages that it may have sent, as it was told last.
    window: u16,
    /// Number of messages that it has sent, its introduction included.
    sent: u16,
}

/// The private data of a request in which a node says hello.
pub(crate) fn hello(version: u16, node: u64) -> Vec<u8> {
    let mut out = b"\x93cvk".to_vec();
    out.put_u16_le(version);
    out.put_slice(&[0, 40]);
    for number in [node, 1, 12_345] {
        out.put_u64_le(number);
    }
    out.put_u32_le(1 << 20);
    out.put_u32_le(SLOT_BYTES);
    out.put_u16_le(SLOTS);
    out.put_slice(&[CONTROL_SLOTS, 0]);
    out.put_u32_le(10_000);
    out
}

/// A message that gives no credit beyond the hello's.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    message_with(SLOTS, kind, body)
}

/// A message after which the other end may have sent so many.
pub(crate) fn message_with(window: u16, kind: u8, body: &[u8]) -> Vec<u8> {
    [&window.to_le_bytes()[..], &[0, kind], body].concat()
}

/// The first part of a data frame that says to be so long.
pub(crate) fn first_part(frame_bytes: u32, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("test frames are small");
    [&(1 << 31 | 1 << 30 | len).to_le_bytes()[..], &frame_bytes.to_le_bytes(), body].concat()
}

impl Stranger {
    /// Asks to connect with this private data. The text of the refusal, if it is refused.
    pub(crate) async fn connect(
        fabric: &Fabric,
        to: SocketAddr,
        private_data: &[u8],
    ) -> Result<Self, String> {
        Self::asking(fabric.device(), 0, to, private_data).answered().await
    }

    /// Asks to connect from a device, as its queue pair of this number, and waits for nothing.
    pub(crate) fn asking(
        device: SimDevice,
        number: u32,
        to: SocketAddr,
        private_data: &[u8],
    ) -> Self {
        let receives_max = u32::from(SLOTS) + u32::from(CONTROL_SLOTS);
        let slab = Slab::new(receives_max, SLOT_BYTES as usize, Waker::noop().clone());
        let memory = Arc::new(device.register(&slab).expect("there is no limit"));
        let settings = QueuePairSettings {
            receives_max,
            sends_max: 64,
            inline_bytes: 220,
            retry_count: 6,
            ack_timeout_exponent: 14,
        };
        let (tag, wait) = (Tag::new(number).expect("it is small"), Duration::from_secs(1));
        let queue_pair = device.dial(tag, to, wait, settings, &memory).expect("it dials");
        assert!(matches!(device.poll_event(), Some(Event::Resolved { .. })));
        let slots: Vec<_> = (0..receives_max).collect();
        device.post_receives(&queue_pair, &slots).expect("there is room");
        device.connect(&queue_pair, private_data).expect("it is short enough");
        Self { device, queue_pair, slab, told: String::new(), window: 0, sent: 1 }
    }

    /// Waits for the answer; the text of the refusal, if it is refused.
    pub(crate) async fn answered(self) -> Result<Self, String> {
        match self.event().await {
            Event::Established { .. } => Ok(self),
            Event::Rejected { is_by_listener: true, private_data, .. } => {
                let text = private_data.get(8..).unwrap_or_default();
                Err(String::from_utf8_lossy(text).trim_end_matches('\0').to_owned())
            }
            other => panic!("expected an answer, not {other:?}"),
        }
    }

    /// Has connected, and said that it can be dialled nowhere.
    pub(crate) async fn introduced(fabric: &Fabric, to: SocketAddr) -> Self {
        let this = Self::connect(fabric, to, &hello(1, 66)).await.expect("it is let in");
        this.introduce();
        this
    }

    /// Says that it can be dialled nowhere.
    pub(crate) fn introduce(&self) {
        self.say(&[message(INTRODUCTION, &[0])]);
    }

    /// Sends messages, all at once. The other end may be gone already.
    pub(crate) fn say(&self, messages: &[Vec<u8>]) {
        let send = |message| SendRequest { data: Data::Inline(message), is_signalled: false };
        let sends: Vec<_> = messages.iter().map(|message| send(message)).collect();
        let _ = self.device.post_sends(&self.queue_pair, &sends);
    }

    /// Sends a frame for each credit that it has, of which there are `window` at first. It gives
    /// none, and acknowledges nothing.
    pub(crate) fn spend(&mut self, window: u16) {
        self.hear();
        while self.sent < self.window.max(window) {
            self.say(&[message(DATA_FRAME, b"spent")]);
            self.sent += 1;
        }
    }

    /// The text of the goodbye of the other end, once it has disconnected.
    pub(crate) async fn told(mut self) -> String {
        let ended = self.event().await;
        assert!(matches!(ended, Event::Disconnected { .. }), "{ended:?}");
        self.hear();
        self.told
    }

    /// Waits for the goodbye of the other end, and says none.
    pub(crate) async fn refused(&mut self) {
        until("it is told to go", || {
            self.hear();
            !self.told.is_empty()
        })
        .await;
    }

    /// Takes what has come.
    fn hear(&mut self) {
        let mut completions = Vec::new();
        self.device.poll_completions(64, &mut completions).expect("the device is there");
        completions.iter().for_each(|completion| self.on_completion(completion));
    }

    fn on_completion(&mut self, completion: &Completion) {
        let is_received = completion.id.direction() == Direction::Receive;
        if is_received && completion.status == WorkStatus::Success {
            let bytes = completion.bytes as usize;
            let message = self.slab.read(completion.id.index(), bytes).expect("it was received");
            self.window = u16::from_le_bytes([message[0], message[1]]);
            if message[3] == GOODBYE {
                self.told = String::from_utf8(message[4..].to_vec()).expect("it is a text");
            }
        }
    }

    /// The next thing that the device tells.
    async fn event(&self) -> Event<SimDevice> {
        let mut event = None;
        until("something happens", || {
            event = event.take().or_else(|| self.device.poll_event());
            event.is_some()
        })
        .await;
        event.expect("it was waited for")
    }
}
