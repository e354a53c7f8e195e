//! Bytes that are being read, and the values that all others are made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use convoke::NodeId;

use super::Wire;
use crate::core::{ClientId, Digest, Sequence, Signature, View};

/// The reason bytes are no value. They were damaged, or another program wrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// They begin with another format.
    #[error("the bytes have format {0}, which this release does not read")]
    Format(u8),
    /// They end in the middle.
    #[error("the bytes end in the middle of a value")]
    Ends,
    /// They go on behind the value.
    #[error("{0} bytes follow where the value ends")]
    Follows(usize),
    /// A kind that does not exist.
    #[error("there is no {of} of kind {kind}")]
    Kind {
        /// The sort of value.
        of: &'static str,
        /// The number of the kind.
        kind: u8,
    },
    /// More values than the bytes that are left can hold.
    #[error("{0} values are announced, for which there are too few bytes")]
    Count(u64),
    /// A number that no node has.
    #[error("no node has the number {0}")]
    Node(u64),
    /// Members that are not in ascending order, or twice.
    #[error("members are not in order, each once")]
    Order,
    /// Bytes of a text that are not UTF-8.
    #[error("a text is not in UTF-8")]
    Text,
    /// Bytes of a state that are those of no machine, or of no sessions.
    #[error("its state is none that this release reads")]
    State,
}

/// Bytes that are being read, from the front. What is taken shares their memory.
#[derive(Debug)]
pub struct Reader(Bytes);

impl Reader {
    /// A reader of these bytes.
    pub fn new(bytes: Bytes) -> Self {
        Self(bytes)
    }

    /// Ends.
    ///
    /// # Errors
    /// [`Malformed::Follows`] when there is more.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::Follows(self.0.len())) }
    }

    /// So many bytes.
    ///
    /// # Errors
    /// [`Malformed::Ends`].
    pub fn bytes(&mut self, count: usize) -> Result<Bytes, Malformed> {
        if count > self.0.len() {
            return Err(Malformed::Ends);
        }
        Ok(self.0.split_to(count))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let mut array = [0; N];
        self.0.try_copy_to_slice(&mut array).map_err(|_| Malformed::Ends)?;
        Ok(array)
    }

    /// A count of values that each take so many bytes at least.
    fn count(&mut self, least: usize) -> Result<usize, Malformed> {
        let count = u32::take(self)?;
        let wanted = usize::try_from(count).ok().and_then(|count| count.checked_mul(least.max(1)));
        match wanted {
            Some(wanted) if wanted <= self.0.len() => Ok(wanted / least.max(1)),
            _ => Err(Malformed::Count(count.into())),
        }
    }
}

/// Appends the kind of a value that has several.
pub(crate) fn put_kind(kind: u8, out: &mut Vec<u8>) {
    out.push(kind);
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Wire for $number {
            const LEAST: usize = size_of::<$number>();

            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn take(from: &mut Reader) -> Result<Self, Malformed> {
                Ok(Self::from_le_bytes(from.array()?))
            }
        }
    )*};
}

numbers! { u8 u32 u64 }

macro_rules! wrapped {
    ($($wrapper:ident($inner:ty))*) => {$(
        impl Wire for $wrapper {
            const LEAST: usize = <$inner>::LEAST;

            fn put(&self, out: &mut Vec<u8>) {
                self.0.put(out);
            }

            fn take(from: &mut Reader) -> Result<Self, Malformed> {
                <$inner>::take(from).map(Self)
            }
        }
    )*};
}

wrapped! { View(u64) Sequence(u64) ClientId(u64) Digest([u8; 32]) Signature([u8; 64]) }

impl<const N: usize> Wire for [u8; N] {
    const LEAST: usize = N;

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        from.array()
    }
}

impl Wire for bool {
    const LEAST: usize = 1;

    fn put(&self, out: &mut Vec<u8>) {
        put_kind((*self).into(), out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        match u8::take(from)? {
            0 => Ok(false),
            1 => Ok(true),
            kind => Err(Malformed::Kind { of: "truth", kind }),
        }
    }
}

impl Wire for NodeId {
    const LEAST: usize = u64::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        self.get().put(out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        let number = u64::take(from)?;
        Self::try_from(number).map_err(|_| Malformed::Node(number))
    }
}

impl Wire for Bytes {
    const LEAST: usize = u32::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self, out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        let count = from.count(1)?;
        from.bytes(count)
    }
}

impl<T: Wire> Wire for Option<T> {
    const LEAST: usize = bool::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        bool::take(from)?.then(|| T::take(from)).transpose()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    const LEAST: usize = A::LEAST + B::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        Ok((A::take(from)?, B::take(from)?))
    }
}

impl<T: Wire> Wire for Vec<T> {
    const LEAST: usize = u32::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        put_all(self, out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        let count = from.count(T::LEAST)?;
        (0..count).map(|_| T::take(from)).collect()
    }
}

impl<T: Wire> Wire for Arc<[T]> {
    const LEAST: usize = Vec::<T>::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        put_all(self, out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        Vec::take(from).map(Self::from)
    }
}

impl<T: Wire> Wire for Arc<T> {
    const LEAST: usize = T::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        T::take(from).map(Self::new)
    }
}

/// In the order of their nodes, each once.
impl<T: Wire> Wire for BTreeMap<NodeId, T> {
    const LEAST: usize = u32::LEAST;

    fn put(&self, out: &mut Vec<u8>) {
        put_count(self.len(), out);
        for (node, value) in self {
            node.put(out);
            value.put(out);
        }
    }

    fn take(from: &mut Reader) -> Result<Self, Malformed> {
        let mut all = Self::new();
        for _ in 0..from.count(NodeId::LEAST + T::LEAST)? {
            let (node, value) = (NodeId::take(from)?, T::take(from)?);
            if all.last_key_value().is_some_and(|(last, _)| *last >= node) {
                return Err(Malformed::Order);
            }
            all.insert(node, value);
        }
        Ok(all)
    }
}

/// Appends bytes with their count.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_count(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// Appends a sequence with its count.
pub(super) fn put_all<T: Wire>(values: &[T], out: &mut Vec<u8>) {
    put_count(values.len(), out);
    values.iter().for_each(|value| value.put(out));
}

/// Appends a count. Whatever is sent or stored is far smaller.
fn put_count(count: usize, out: &mut Vec<u8>) {
    u32::try_from(count).expect("below 4 GiB").put(out);
}
