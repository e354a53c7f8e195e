//! Deeds of peers without manners: one list for all transports, each of which says how it is done
//! over it.

use bytes::Bytes;

use super::recorder::Recorder;
use super::victim::Victim;
use super::{PATIENCE, Setup};
use crate::{Address, BoxFuture, CloseReason, Lane};

/// Largest frame that the victims of [`hostile`] take.
pub const VICTIM_FRAME_BYTES_MAX: u32 = 100_000;

/// Text of a goodbye that would harm a terminal.
pub const HARMFUL: &[u8] = b"bye\x1b[2J\n\xff";

/// Deed of an attacker, who says to be node 66.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deed {
    /// Says something of another protocol instead of a hello.
    Garbage,
    /// Connects, says nothing, and waits.
    Silence,
    /// Says the first bytes of a hello, and waits.
    Stalled,
    /// Says the first bytes of a hello, and leaves.
    HalfHello,
    /// Says a hello whose parts do not fit together.
    MalformedHello,
    /// Says a hello that is longer than any may be.
    LongHello,
    /// Says hello in version 9.
    AnotherVersion,
    /// Says hello as the node of number 0, which there is not.
    Nobody,
    /// After its hello, says nothing more, and waits.
    Mute,
    /// After its hello, sends a frame of a kind that there is not.
    UnknownKind,
    /// Announces a frame, or a part of one, above the limit, and sends nothing of it.
    OverLimit,
    /// Sends parts of one frame until they are above [`VICTIM_FRAME_BYTES_MAX`].
    Endless,
    /// Sends more on the control lane than it was granted, in one write.
    BeyondCredit,
    /// Gives credit back that it was not owed.
    UnusedCredit,
    /// Sends the data frame `whole`, half of another, and leaves without a goodbye.
    HalfFrame,
    /// Says goodbye with the text [`HARMFUL`].
    Goodbye,
    /// Sends random bytes of this seed, and leaves.
    Noise(u64),
}

impl Deed {
    /// All of them; of noise a few.
    pub fn all() -> impl Iterator<Item = Self> {
        const OTHERS: [Deed; 16] = [
            Deed::Garbage,
            Deed::Silence,
            Deed::Stalled,
            Deed::HalfHello,
            Deed::MalformedHello,
            Deed::LongHello,
            Deed::AnotherVersion,
            Deed::Nobody,
            Deed::Mute,
            Deed::UnknownKind,
            Deed::OverLimit,
            Deed::Endless,
            Deed::BeyondCredit,
            Deed::UnusedCredit,
            Deed::HalfFrame,
            Deed::Goodbye,
        ];
        OTHERS.into_iter().chain((1..=16).map(Self::Noise))
    }
}

/// Way to do deeds over a transport.
pub trait Attacker: Send + Sync {
    /// Does it to who listens there. Answers what it was told until the end, which it waits for
    /// unless it leaves; `None` where the protocol has nothing of the kind.
    fn attack(&self, victim: Address, deed: Deed) -> BoxFuture<Option<String>>;
}

/// Every deed ends the attacker's connection, with a reason at both ends where there is one to
/// tell, delivers nothing that is not whole, and harms nobody else. Answers how many of them the
/// transport has. Those who wait do so for the timeouts of the handshake and of the keep-alive: the
/// listening end should have short ones.
pub async fn hostile(setup: impl Fn() -> Setup, attacker: &dyn Attacker) -> usize {
    let mut done = 0;
    for deed in Deed::all() {
        let sink = Recorder::new(1).taking(VICTIM_FRAME_BYTES_MAX);
        let victim = Victim::with(setup(), sink).await;
        let attack = attacker.attack(victim.address(), deed);
        let told = tokio::time::timeout(PATIENCE, attack).await;
        if let Some(told) = told.unwrap_or_else(|_| panic!("the victim suffers {deed:?}")) {
            done += 1;
            suffers(&victim, deed, &told).await;
        }
        victim.lives_on().await;
    }
    done
}

async fn suffers(victim: &Victim, deed: Deed, told: &str) {
    let said = match deed {
        Deed::Garbage | Deed::Silence | Deed::Stalled | Deed::HalfHello => Some(""),
        Deed::MalformedHello | Deed::LongHello => Some("hello"),
        Deed::AnotherVersion => Some("version 9"),
        Deed::Nobody => Some("zero"),
        _ => None,
    };
    if let Some(said) = said {
        assert!(told.contains(said), "{deed:?}: told {told:?}");
        assert_eq!(victim.sink.opened_count(), 1, "{deed:?} opened a connection");
        return;
    }
    let nonce = victim.sink.opened(1).await.link().nonce;
    let reason = victim.sink.closed(nonce).await;
    let frames = victim.sink.seen(nonce).expect("it was open").frames;
    match deed {
        Deed::HalfFrame => {
            let is_lost = matches!(reason, CloseReason::Network(_) | CloseReason::Peer(_));
            assert!(is_lost, "{reason:?}");
            assert_eq!(frames, [(Lane::Data, Bytes::from_static(b"whole"))]);
        }
        Deed::Goodbye => assert_eq!(reason, CloseReason::Peer("bye [2J \u{fffd}".into())),
        Deed::Mute => assert_eq!(reason, CloseReason::KeepAlive),
        Deed::Noise(_) => assert_ne!(reason, CloseReason::Local),
        _ => {
            let CloseReason::Fault(fault) = &reason else { panic!("{deed:?}: {reason:?}") };
            assert!(!fault.is_empty() && told.contains(fault), "{deed:?}: {fault}, told {told:?}");
            // Of what was within the credit some may have been taken.
            let is_whole = deed == Deed::BeyondCredit || frames.is_empty();
            assert!(is_whole, "{deed:?}: {} frames were delivered", frames.len());
        }
    }
}

/// `len` bytes that nobody can foresee, but whose seed can be given again.
pub fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random.to_le_bytes()[3]
    };
    (0..len).map(next).collect()
}
