//! A number that tells the data of one folder from that of another.

use std::path::Path;

use super::layout;
use crate::file::{DataError, Lines};
use crate::store::mix;

/// Fingerprint of the tables that are read of the folder `dir`: of their lines, in order. It guards
/// against mistakes, not against who wants two folders to have one.
///
/// # Errors
///
/// A [`DataError`] names the file that cannot be read, and its line.
pub fn fingerprint(dir: &Path) -> Result<u64, DataError> {
    let mut hash = 0;
    for name in layout::NAMES {
        let mut lines = Lines::open(&dir.join(name))?;
        while let Some(line) = lines.next()? {
            hash = of_line(hash, line);
        }
        hash = mix(hash); // Where a table ends counts, too.
    }
    Ok(hash)
}

fn of_line(hash: u64, line: &str) -> u64 {
    let words = line.as_bytes().chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(mix(hash ^ line.len() as u64), |hash, word| mix(hash ^ word))
}
