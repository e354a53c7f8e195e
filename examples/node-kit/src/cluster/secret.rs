//! Files that only their owner can use.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use super::KeysError;

/// Writes a new file that only its owner can read.
///
/// # Errors
/// The system's; also when there is such a file already.
pub fn write_secret(path: &Path, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// Reads a file that nobody but its owner can use. On systems without modes of files that is not
/// looked at.
///
/// # Errors
/// [`KeysError::Unusable`], [`KeysError::Exposed`].
pub fn read_secret(path: &Path) -> Result<String, KeysError> {
    refuse_exposed(path)?;
    let unusable =
        |error: io::Error| KeysError::Unusable { path: path.to_owned(), what: error.to_string() };
    fs::read_to_string(path).map_err(unusable)
}

pub(super) fn refuse_exposed(path: &Path) -> Result<(), KeysError> {
    let unusable = |what: String| KeysError::Unusable { path: path.to_owned(), what };
    let found = fs::metadata(path).map_err(|error| unusable(error.to_string()))?;
    if !found.is_file() {
        return Err(unusable("it is no file".to_owned()));
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = found.permissions().mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeysError::Exposed { path: path.to_owned(), mode });
        }
    }
    Ok(())
}
