//! Files of results of work that lasts.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

/// File that a result will be written to, opened before the work: a path that cannot be written is
/// known then. Until the result is there, the file keeps what it has; one that was made for a
/// result that never comes goes.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    file: File,
    /// It was made here, and nothing is written to it.
    is_new: bool,
}

impl Output {
    /// Opens the file, and makes it if there is none.
    ///
    /// # Errors
    /// The system does not let it be written.
    pub fn open(path: &Path) -> Result<Self> {
        let made = OpenOptions::new().write(true).create_new(true).open(path);
        let is_new = made.is_ok();
        let file = made.or_else(|_| OpenOptions::new().write(true).open(path));
        let file = file.with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self { path: path.to_owned(), file, is_new })
    }

    /// Writes the result in the place of what the file has.
    ///
    /// # Errors
    /// The system's, as when the disk is full.
    pub fn write(mut self, text: &str) -> Result<()> {
        self.is_new = false;
        let mut written = || {
            // A pipe or a terminal has no length.
            if self.file.metadata()?.is_file() {
                self.file.set_len(0)?;
            }
            self.file.write_all(text.as_bytes())
        };
        written().with_context(|| format!("cannot write {}", self.path.display()))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if self.is_new {
            let _ = std::fs::remove_file(&self.path); // Somebody may have moved it.
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_what_it_has_until_the_result_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.json");
        std::fs::write(&path, "of another day").expect("a file");
        let read = || std::fs::read_to_string(&path).expect("it is there");
        drop(Output::open(&path).expect("it can be written"));
        assert_eq!(read(), "of another day");
        Output::open(&path).expect("it can be written").write("[]").expect("there is room");
        assert_eq!(read(), "[]");
    }

    #[test]
    fn a_file_that_was_made_for_a_result_that_never_comes_goes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.json");
        drop(Output::open(&path).expect("it can be written"));
        assert!(!path.exists());
        Output::open(&path).expect("it can be written").write("[]").expect("there is room");
        assert!(path.exists());
    }

    #[test]
    fn a_path_that_cannot_be_written_is_named_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("none/rows.json");
        let error = Output::open(&path).expect_err("there is no such folder");
        assert!(error.to_string().contains("cannot write") && error.to_string().contains("none"));
    }
}
