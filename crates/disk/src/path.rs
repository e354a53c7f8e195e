//! Paths that mean the same on every system and never lead out of the root.

use crate::error::DiskFailure;

/// The parts of a path, none for the root. For who writes a disk of their own.
///
/// # Errors
/// [`DiskFailure::InvalidPath`], see [paths](crate#paths).
pub fn parts(path: &str) -> Result<Vec<&str>, DiskFailure> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    let parts: Vec<_> = path.split('/').collect();
    let is_plain =
        |part: &&str| !matches!(*part, "" | "." | "..") && !part.contains(['\\', ':', '\0']);
    if parts.iter().all(is_plain) { Ok(parts) } else { Err(DiskFailure::InvalidPath) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_alone_are_a_path() {
        assert_eq!(parts(""), Ok(Vec::new()));
        assert_eq!(parts("ledger/0001.log"), Ok(vec!["ledger", "0001.log"]));
        for path in ["/etc", "a/", "a//b", "..", "a/../b", ".", "a\\b", "C:", "a\0"] {
            assert_eq!(parts(path), Err(DiskFailure::InvalidPath), "{path:?}");
        }
    }
}
