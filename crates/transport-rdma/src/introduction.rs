//! Addresses at which the sender can be dialled: the first data messages of a connection, each way.
//!
//! The private data of the connection manager is too short for addresses, so they follow as
//! messages of kind introduction, as many as it takes (one, nearly always); frames come after the
//! last one:
//!
//! ```text
//!  count u8 | per address: length u8, text
//! ```

use convoke_transport::parts::{ADDRESSES_MAX, dialable};
use convoke_transport::{ADDRESS_BYTES_MAX, Address};

use crate::framing::Fault;

/// The payloads of the messages that tell `addresses`; at least one, each of at most `payload_max`
/// bytes, which is room for a longest address.
pub(crate) fn encode(addresses: &[Address], payload_max: usize) -> Vec<Vec<u8>> {
    debug_assert!(payload_max >= 2 + ADDRESS_BYTES_MAX);
    let mut payloads = vec![vec![0]];
    for address in addresses.iter().take(ADDRESSES_MAX) {
        let text = address.as_str().as_bytes();
        let is_full = |payload: &Vec<u8>| payload.len() + 1 + text.len() > payload_max;
        if payloads.last().is_some_and(is_full) {
            payloads.push(vec![0]);
        }
        let payload = payloads.last_mut().expect("it starts with one");
        payload[0] += 1;
        payload.push(u8::try_from(text.len()).expect("ADDRESS_BYTES_MAX fits"));
        payload.extend_from_slice(text);
    }
    payloads
}

/// Introduction of an end: the addresses that it has said it can be dialled at.
#[derive(Debug, Default)]
pub(crate) struct Introduction {
    addresses: Vec<Address>,
}

impl Introduction {
    /// Takes the payload of one message.
    ///
    /// # Errors
    /// [`Fault::BadIntroduction`] for garbage, and for more than [`ADDRESSES_MAX`] in all.
    pub(crate) fn put(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let garbage = || Fault::BadIntroduction("an advertised address is not one");
        let (&count, mut rest) =
            payload.split_first().ok_or(Fault::BadIntroduction("it is empty"))?;
        if self.addresses.len() + usize::from(count) > ADDRESSES_MAX {
            return Err(Fault::BadIntroduction("it advertises too many addresses"));
        }
        for _ in 0..count {
            let (&len, text) = rest.split_first().ok_or_else(garbage)?;
            let (text, after) = text.split_at_checked(usize::from(len)).ok_or_else(garbage)?;
            rest = after;
            let text = std::str::from_utf8(text).map_err(|_| garbage())?;
            self.addresses.push(dialable(text).map_err(|_| garbage())?);
        }
        if rest.is_empty() { Ok(()) } else { Err(garbage()) }
    }

    /// All addresses, once the last message is in.
    pub(crate) fn finish(&mut self) -> Vec<Address> {
        std::mem::take(&mut self.addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn addresses(count: usize, len: usize) -> Vec<Address> {
        (0..count).map(|at| format!("rdma://{at:0len$}").parse().unwrap()).collect()
    }

    fn decode(payloads: &[Vec<u8>]) -> Result<Vec<Address>, Fault> {
        let mut introduction = Introduction::default();
        payloads.iter().try_for_each(|payload| introduction.put(payload))?;
        Ok(introduction.finish())
    }

    #[test]
    fn a_node_without_addresses_says_so_in_one_message() {
        assert_eq!(encode(&[], 1020), [[0]]);
        assert_eq!(decode(&[vec![0]]), Ok(vec![]));
    }

    #[test]
    fn longest_addresses_take_several_messages_of_the_smallest_slot() {
        let all = addresses(20, 248);
        let payloads = encode(&all, 1020);
        assert!(payloads.len() > 1 && payloads.iter().all(|payload| payload.len() <= 1020));
        assert_eq!(decode(&payloads).unwrap(), all[..ADDRESSES_MAX]);
    }

    #[test]
    fn too_many_addresses_are_a_fault_however_they_are_cut() {
        let payload = encode(&addresses(9, 4), 4096).remove(0);
        let fault = Fault::BadIntroduction("it advertises too many addresses");
        assert_eq!(decode(&[payload.clone(), payload]), Err(fault));
    }

    #[test]
    fn an_address_nobody_can_dial_is_a_fault() {
        let unspecified: Address = "rdma://0.0.0.0:7000".parse().unwrap();
        assert!(decode(&encode(&[unspecified], 1020)).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_addresses_or_a_fault(
            payload in prop::collection::vec(any::<u8>(), 0..300),
            count in 0..3_u8,
        ) {
            let mut payload = payload;
            if let Some(first) = payload.first_mut() {
                *first = count;
            }
            if let Ok(addresses) = decode(std::slice::from_ref(&payload)) {
                prop_assert_eq!(encode(&addresses, 4096), [payload]);
            }
        }
    }
}
