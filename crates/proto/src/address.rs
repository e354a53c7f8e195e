//! Addresses at which nodes listen.

use std::fmt;
use std::str::FromStr;

/// Address at which a node listens: a scheme and the rest, such as `tcp://10.0.0.1:7000`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    text: String,
    scheme_len: usize,
}

/// A text that is not `scheme://rest`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not an address: {}expected a scheme and a place, in at most {ADDRESS_BYTES_MAX} \
     bytes, such as tcp://127.0.0.1:7000",
    if begins_blank(text) { "it begins with a blank; " } else { "" }
)]
pub struct AddressError {
    /// The text that was given.
    pub text: String,
}

/// Longest address, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 255;

impl Address {
    /// The transport's name, such as `tcp`.
    pub fn scheme(&self) -> &str {
        &self.text[..self.scheme_len]
    }

    /// Part that the transport dials or binds, such as `127.0.0.1:7000`.
    pub fn rest(&self) -> &str {
        &self.text[self.scheme_len + 3..]
    }

    /// True when it is told to no other node, and not taken from one: a socket of the file system,
    /// `unix://`. At another host, or in another container, its path leads to somebody else.
    pub fn is_private(&self) -> bool {
        self.scheme() == "unix"
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let scheme_len = text.find("://").filter(|len| *len > 0 && *len + 3 < text.len());
        let scheme_len = scheme_len.filter(|_| !begins_blank(text));
        match scheme_len {
            Some(scheme_len) if text.len() <= ADDRESS_BYTES_MAX => {
                Ok(Self { text: text.to_owned(), scheme_len })
            }
            _ => Err(AddressError { text: text.chars().take(80).collect() }),
        }
    }
}

fn begins_blank(text: &str) -> bool {
    text.starts_with(char::is_whitespace)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
