//! Defects of the input.

use std::fmt;
use std::path::PathBuf;

/// Reason why nothing was generated.
///
/// `Debug` reads as `Display` does, because that is what a build script's `main` prints.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file to compile is not there.
    #[error("{} does not exist, nor in any of the include folders ({includes})", path.display())]
    MissingFile {
        /// The file.
        path: PathBuf,
        /// The folders it was looked for in.
        includes: String,
    },
    /// A file is not valid protobuf, or imports one that is not there.
    #[error("{message}")]
    Proto {
        /// The defect, in the form `file:line:column: text`.
        message: String,
    },
    /// A method or service asks for what cannot be generated, or a name cannot be one in Rust.
    #[error("{place}: {subject}: {message}")]
    Options {
        /// Its place, in the form `file:line:column`.
        place: String,
        /// The full name of the service, method or other thing: `package.Service/Method`.
        subject: String,
        /// The defect, and what to do.
        message: String,
    },
    /// Two things would have the same name in Rust: rename one.
    #[error("{message}")]
    NameClash {
        /// The defect.
        message: String,
    },
    /// The messages cannot be generated: a setting contradicts the files.
    #[error("cannot generate messages: {message}")]
    Messages {
        /// Reason.
        message: String,
    },
    /// [`Builder::include_file`](crate::Builder::include_file) names a file that cannot be the one
    /// that includes the others.
    #[error("include_file(\"{}\"): {message}", path.display())]
    IncludeFile {
        /// The file.
        path: PathBuf,
        /// The defect, and what to do.
        message: String,
    },
    /// There is no folder to write to: neither `OUT_DIR`, which build scripts have, nor
    /// [`Builder::out_dir`](crate::Builder::out_dir).
    #[error("OUT_DIR is not set: call this from a build script, or set `out_dir`")]
    NoOutDir,
    /// A generated file cannot be written.
    #[error("cannot write {}: {message}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Reason.
        message: String,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
