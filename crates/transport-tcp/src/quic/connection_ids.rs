//! Connection ids that a listener gives out (RFC 9000, section 5.1), and that its next life at the
//! same address can tell from others.
//!
//! ```text
//!  12 bytes   random
//!   8 bytes   HMAC-SHA256 of those, cut
//! ```
//!
//! To a packet with an id that is not in use the listener answers with the token by which its peer
//! ends the connection. Anybody can ask for that, so no id may be one that was given out before
//! (RFC 9000, sections 10.3.2 and 21.11): the random part is too long for that. Of ids that were
//! never given out the HMAC keeps the tokens back.

use convoke_transport::parts::random;
use quinn_proto::{ConnectionId, ConnectionIdGenerator, InvalidCid};
use ring::hmac;

const RANDOM_BYTES: usize = 12;
const TAG_BYTES: usize = 8;
/// The longest that there are.
const ID_BYTES: usize = RANDOM_BYTES + TAG_BYTES;

/// Draws ids, and tells those that were drawn with the same key.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionIds(hmac::Key);

impl ConnectionIds {
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret))
    }

    fn tag(&self, random: &[u8]) -> [u8; TAG_BYTES] {
        let tag = hmac::sign(&self.0, random);
        std::array::from_fn(|at| tag.as_ref()[at])
    }
}

impl ConnectionIdGenerator for ConnectionIds {
    fn generate_cid(&mut self) -> ConnectionId {
        let drawn = (u128::from(random()) << 64 | u128::from(random())).to_ne_bytes();
        let drawn = &drawn[..RANDOM_BYTES];
        let mut id = [0; ID_BYTES];
        id[..RANDOM_BYTES].copy_from_slice(drawn);
        id[RANDOM_BYTES..].copy_from_slice(&self.tag(drawn));
        ConnectionId::new(&id)
    }

    fn validate(&self, id: &ConnectionId) -> Result<(), InvalidCid> {
        let (random, tag) = id.split_at_checked(RANDOM_BYTES).ok_or(InvalidCid)?;
        if tag == self.tag(random) { Ok(()) } else { Err(InvalidCid) }
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<std::time::Duration> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn two_lives_know_the_ids_of_each_other_and_draw_none_twice() {
        const COUNT: usize = 10_000;
        let mut lives = [(), ()].map(|()| ConnectionIds::new(&[7; 32]));
        let stranger = ConnectionIds::new(&[8; 32]);
        let mut drawn = BTreeSet::new();
        for _ in 0..COUNT {
            for life in 0..2 {
                let id = lives[life].generate_cid();
                assert_eq!(id.len(), lives[life].cid_len());
                assert!(lives[1 - life].validate(&id).is_ok());
                assert!(stranger.validate(&id).is_err());
                drawn.insert(id.to_vec());
            }
        }
        assert_eq!(drawn.len(), 2 * COUNT, "ids were drawn twice");
    }

    #[test]
    fn an_id_that_was_changed_or_cut_is_nobodys() {
        let mut ids = ConnectionIds::new(&[7; 32]);
        let id = ids.generate_cid();
        for at in 0..ID_BYTES {
            let mut changed = id.to_vec();
            changed[at] ^= 1;
            assert!(ids.validate(&ConnectionId::new(&changed)).is_err(), "byte {at}");
            assert!(ids.validate(&ConnectionId::new(&id[..at])).is_err(), "{at} bytes");
        }
    }
}
