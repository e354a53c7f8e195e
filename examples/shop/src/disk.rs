//! Files that are there whole or not at all, each with one message.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use convoke::prost::Message;

/// The message of a file; `None` where there is no file.
///
/// # Errors
/// When the file cannot be read, or is of another message.
pub fn read<M: Message + Default>(file: &Path) -> io::Result<Option<M>> {
    match fs::read(file) {
        Ok(bytes) => M::decode(&bytes[..]).map(Some).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a file. Once this returns it is on the disk; a crash leaves the old file or the new
/// one.
///
/// # Errors
/// When the folder cannot be written to.
pub fn replace(file: &Path, message: &impl Message) -> io::Result<()> {
    let new = file.with_extension("new");
    let mut written = File::create(&new)?;
    written.write_all(&message.encode_to_vec())?;
    written.sync_all()?;
    fs::rename(new, file)?;
    // The new name as well, where a folder is a file.
    #[cfg(unix)]
    if let Some(folder) = file.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}
