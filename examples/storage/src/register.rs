//! The register, without I/O: for each key the newest value there was.

use std::collections::BTreeMap;

use crate::proto::{Key, Value, WriteResponse};

/// When a value was written: by the writer's choice of a timestamp, which is greater than any it
/// has seen. The writer decides between two that chose the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The timestamp; 0 was never written.
    pub timestamp: u64,
    /// Number of the writer.
    pub writer: u64,
}

/// The registers of one replica.
///
/// ```
/// use storage::proto::Value;
/// use storage::register::Registers;
///
/// let value = |timestamp, value: &str| Value {
///     key: "bird".into(),
///     value: value.into(),
///     timestamp,
///     writer: 1,
///     ..Value::default()
/// };
/// let mut registers = Registers::new(1 << 20);
/// registers.write(value(2, "heron"))?;
/// registers.write(value(1, "stork"))?; // It comes late.
/// assert_eq!(registers.read("bird".into()).value, b"heron");
/// # Ok::<(), storage::register::Refused>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registers {
    by_key: BTreeMap<String, Register>,
    /// Of all of them, as [`size`] counts.
    bytes: usize,
    bytes_max: usize,
}

/// Ordered by version. A writer that gives two values one version is faulty; the greater value wins
/// then, so that all replicas end with the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Register {
    version: Version,
    value: Vec<u8>,
}

/// Reason why a value is not stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Values that were written have a timestamp of 1 or more. The writer's doing.
    #[error("a value needs a timestamp of 1 or more: read the present one, and add 1")]
    NoTimestamp,
    /// There is no room for the value.
    #[error(
        "there is no room for a value that takes {bytes} bytes with its key: all take {bytes_max} \
         at most; write shorter ones, or to fewer keys"
    )]
    Full {
        /// The value, its key, and what keeps them.
        bytes: usize,
        /// Bytes that all may have.
        bytes_max: usize,
    },
}

impl Registers {
    /// No register yet, and room for so many bytes of keys and values, and of what keeps them.
    pub fn new(bytes_max: usize) -> Self {
        Self { by_key: BTreeMap::new(), bytes: 0, bytes_max }
    }

    /// Stores a value unless there is a newer one, and says which version there is now. The same
    /// value again changes nothing, and neither does the order in which values come.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn write(&mut self, value: Value) -> Result<Version, Refused> {
        let version = value.version();
        if version.timestamp == 0 {
            return Err(Refused::NoTimestamp);
        }
        let new = Register { version, value: value.value };
        let present = self.by_key.get(&value.key);
        if let Some(present) = present.filter(|present| **present >= new) {
            return Ok(present.version);
        }
        let freed = present.map_or(0, |present| size(&value.key, present));
        let (bytes, bytes_max) = (size(&value.key, &new), self.bytes_max);
        let all = self.bytes - freed + bytes;
        if all > bytes_max {
            return Err(Refused::Full { bytes, bytes_max });
        }
        self.bytes = all;
        self.by_key.insert(value.key, new);
        Ok(version)
    }

    /// The newest value of a key. One that was never written is empty and has timestamp 0.
    pub fn read(&self, key: Key) -> Value {
        let Register { version, value } = self.by_key.get(&key.key).cloned().unwrap_or_default();
        let Version { timestamp, writer } = version;
        Value { key: key.key, value, timestamp, writer, ..Value::default() }
    }
}

/// Bytes of a register and its key in memory, about.
fn size(key: &str, register: &Register) -> usize {
    key.len() + register.value.len() + OVERHEAD_BYTES
}

/// Bytes beside key and value: their places in the map, half of which may be empty, and what the
/// system keeps of each.
const OVERHEAD_BYTES: usize = 256;

impl Value {
    /// When it was written.
    pub fn version(&self) -> Version {
        Version { timestamp: self.timestamp, writer: self.writer }
    }
}

impl From<Version> for WriteResponse {
    fn from(Version { timestamp, writer }: Version) -> Self {
        Self { timestamp, writer }
    }
}

impl From<&str> for Key {
    fn from(key: &str) -> Self {
        Self { key: key.to_owned(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values() -> impl Strategy<Value = Vec<Value>> {
        let value = ("[ab]", prop::collection::vec(0_u8..4, 0..2), 1_u64..5, 1_u64..3);
        let value = value.prop_map(|(key, value, timestamp, writer)| Value {
            key,
            value,
            timestamp,
            writer,
            ..Value::default()
        });
        prop::collection::vec(value, 0..20)
    }

    const ROOM: usize = 1 << 20;

    fn after(values: &[Value]) -> Registers {
        let mut registers = Registers::new(ROOM);
        for value in values {
            registers.write(value.clone()).expect("there is room");
        }
        registers
    }

    proptest! {
        #[test]
        fn neither_order_nor_repetition_matters(
            (values, shuffled) in values().prop_flat_map(|values| {
                (Just(values.clone()), Just(values).prop_shuffle())
            }),
        ) {
            let twice = [shuffled.clone(), values.clone()].concat();
            prop_assert_eq!(after(&values), after(&shuffled));
            prop_assert_eq!(after(&values), after(&twice));
        }

        #[test]
        fn a_read_gives_the_newest_value_that_was_written(values in values()) {
            let registers = after(&values);
            for key in ["a", "b"] {
                let of_key = values.iter().filter(|value| value.key == key);
                let newest = of_key.max_by_key(|value| (value.version(), value.value.clone()));
                let never = Value { key: key.to_owned(), ..Value::default() };
                prop_assert_eq!(&registers.read(key.into()), newest.unwrap_or(&never));
            }
        }

        #[test]
        fn a_version_never_goes_back(values in values()) {
            let mut registers = Registers::new(ROOM);
            for value in values {
                let before = registers.read(value.key.as_str().into()).version();
                let written = value.version();
                let key = value.key.clone();
                let now = registers.write(value).expect("there is room");
                prop_assert_eq!(now, before.max(written));
                prop_assert_eq!(registers.read(key.as_str().into()).version(), now);
            }
        }
    }

    #[test]
    fn what_is_refused_changes_nothing() {
        let value = |key: &str, bytes, timestamp| {
            let value = vec![7; bytes];
            Value { key: key.into(), value, timestamp, ..Value::default() }
        };
        let room = 2 * OVERHEAD_BYTES + 10;
        let mut registers = Registers::new(room);
        assert_eq!(registers.write(value("a", 0, 0)), Err(Refused::NoTimestamp));
        registers.write(value("a", 5, 1)).expect("there is room");
        registers.write(value("b", 3, 1)).expect("it fits to the byte");
        let before = registers.clone();
        let full = |bytes| Err(Refused::Full { bytes: OVERHEAD_BYTES + bytes, bytes_max: room });
        assert_eq!(registers.write(value("c", 0, 1)), full(1), "there is no room for another key");
        assert_eq!(registers.write(value("a", 6, 2)), full(7), "nor for a longer value");
        let long = "long ".repeat(room);
        assert_eq!(registers.write(value(&long, 0, 1)), full(long.len()), "nor for a long key");
        assert_eq!(registers, before);
        let old = registers.write(value("b", 1_000, 1)).expect_err("it is greater");
        assert!(matches!(old, Refused::Full { .. }), "{old}");
        registers.write(value("b", 3, 2)).expect("it takes the place of the one before");
        let version = registers.write(value("b", 1_000, 1)).expect("an old one takes no room");
        assert_eq!(version.timestamp, 2);
        registers.write(value("a", 0, 2)).expect("it is shorter");
        registers.write(value("b", 8, 3)).expect("the room is free again");
    }
}
