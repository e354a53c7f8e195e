//! Metadata: pairs of a key and bytes that travel beside a message.

use std::fmt;

use crate::wire::{Extension, extension};

/// Most metadata of a message, in bytes: those of keys and values, and one more for each pair.
pub const METADATA_BYTES_MAX: usize = 16_000;

/// Metadata that came with a request, a reply or a failure, in the order it was added. Cheap to
/// copy.
#[derive(Clone, Copy)]
pub struct Metadata<'a>(&'a [Extension]);

impl<'a> Metadata<'a> {
    /// The metadata among these extensions.
    pub const fn among(extensions: &'a [Extension]) -> Self {
        Self(extensions)
    }

    /// The value under `key`; of several the last.
    pub fn get(&self, key: &str) -> Option<&'a [u8]> {
        self.iter().filter(|(of, _)| *of == key).last().map(|(_, value)| value)
    }

    /// The value under `key`, if it is UTF-8.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.get(key).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All pairs, in order. A key may come several times.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> + use<'a> {
        let pairs = self.0.iter().filter(|extension| extension.tag == extension::METADATA);
        pairs.filter_map(|extension| {
            let (len, rest) = extension.value.split_first()?;
            let (key, value) = rest.split_at_checked((*len).into())?;
            Some((std::str::from_utf8(key).ok()?, value))
        })
    }
}

impl fmt::Debug for Metadata<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Extensions that came with a message. Most come with none, so it is one word on the way of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::box_collection, reason = "a list would be three words, and most have none")]
pub struct Extensions(Option<Box<Vec<Extension>>>);

impl Extensions {
    /// All of them, in order.
    pub fn as_slice(&self) -> &[Extension] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    /// The metadata among them.
    pub fn metadata(&self) -> Metadata<'_> {
        Metadata::among(self.as_slice())
    }
}

impl From<Vec<Extension>> for Extensions {
    fn from(extensions: Vec<Extension>) -> Self {
        Self((!extensions.is_empty()).then(|| Box::new(extensions)))
    }
}

/// Metadata that is too large to leave: its size and the limit.
pub type Oversize = (usize, usize);

/// Adds a pair to the extensions of a message.
///
/// # Errors
/// [`Oversize`]; then nothing was added.
pub fn push(extensions: &mut Vec<Extension>, key: &str, value: &[u8]) -> Result<(), Oversize> {
    let size = 1 + key.len() + value.len() + bytes_of(extensions);
    let (Ok(key_len), true) = (u8::try_from(key.len()), size <= METADATA_BYTES_MAX) else {
        return Err((size, METADATA_BYTES_MAX));
    };
    let mut pair = Vec::with_capacity(1 + key.len() + value.len());
    pair.push(key_len);
    pair.extend_from_slice(key.as_bytes());
    pair.extend_from_slice(value);
    extensions.push(Extension { tag: extension::METADATA, value: pair.into() });
    Ok(())
}

/// Puts metadata before the extensions of a message.
///
/// # Errors
/// [`Oversize`]; then nothing was added.
pub fn put_before(extensions: &mut Vec<Extension>, metadata: &[Extension]) -> Result<(), Oversize> {
    let size = bytes_of(metadata) + bytes_of(extensions);
    if size > METADATA_BYTES_MAX {
        return Err((size, METADATA_BYTES_MAX));
    }
    extensions.splice(..0, metadata.iter().cloned());
    Ok(())
}

/// True when an extension takes the place of another: of metadata a pair that of its key.
pub(crate) fn replaces(new: &Extension, old: &Extension) -> bool {
    let key = |pair: &Extension| {
        let len = pair.value.first().map_or(0, |len| usize::from(*len));
        pair.value.slice(..pair.value.len().min(1 + len))
    };
    new.tag == old.tag && (new.tag != extension::METADATA || key(new) == key(old))
}

/// Checks that the extensions of a message have no more metadata than one may.
///
/// # Errors
/// [`Oversize`].
pub(crate) fn check(extensions: &[Extension]) -> Result<(), Oversize> {
    match bytes_of(extensions) {
        size if size > METADATA_BYTES_MAX => Err((size, METADATA_BYTES_MAX)),
        _ => Ok(()),
    }
}

/// Bytes of the metadata among them: one more than key and value for each pair.
fn bytes_of(extensions: &[Extension]) -> usize {
    let is_pair = |one: &&Extension| one.tag == extension::METADATA;
    extensions.iter().filter(is_pair).map(|pair| pair.value.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_several_values_counts_and_all_are_there_in_order() {
        let mut extensions = vec![Extension::epoch(3)];
        for (key, value) in [("tone", &b"rude"[..]), ("raw", b"\xff"), ("tone", b"polite")] {
            push(&mut extensions, key, value).unwrap();
        }
        let metadata = Metadata::among(&extensions);
        assert_eq!((metadata.text("tone"), metadata.text("raw")), (Some("polite"), None));
        assert_eq!((metadata.get("raw"), metadata.get("none")), (Some(&b"\xff"[..]), None));
        let keys: Vec<_> = metadata.iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["tone", "raw", "tone"]);
    }

    #[test]
    fn what_comes_before_is_overruled_by_what_was_there() {
        let (mut extensions, mut defaults) = (Vec::new(), Vec::new());
        push(&mut extensions, "tone", b"polite").unwrap();
        push(&mut defaults, "tone", b"rude").unwrap();
        push(&mut defaults, "user", b"ada").unwrap();
        put_before(&mut extensions, &defaults).unwrap();
        let metadata = Metadata::among(&extensions);
        assert_eq!((metadata.text("tone"), metadata.text("user")), (Some("polite"), Some("ada")));
    }

    #[test]
    fn what_is_too_large_is_not_added() {
        let mut extensions = Vec::new();
        assert!(push(&mut extensions, &"k".repeat(256), b"").is_err());
        push(&mut extensions, "k", &[0; 10_000]).unwrap();
        assert_eq!(push(&mut extensions, "k", &[0; 6_000]), Err((16_004, METADATA_BYTES_MAX)));
        let others = extensions.clone();
        assert!(put_before(&mut extensions, &others).is_err());
        assert_eq!(extensions.len(), 1);
        // Up to the bound, whatever else is there.
        extensions.push(Extension::epoch(3));
        push(&mut extensions, "", &[0; 5_997]).unwrap();
        assert!(push(&mut extensions, "", b"").is_err());
        assert!(put_before(&mut vec![Extension::epoch(3)], &extensions).is_ok());
    }
}
