//! A file of data read line by line, and what can be wrong with it.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::model::Entity;
use crate::store::Defect;

/// Longest line of a file, in bytes. The benchmark's longest message has 2,000 characters, so this
/// is room for an answer with thousands of replies.
pub const LINE_BYTES_MAX: u64 = 1 << 24;

/// A file of data cannot be used. It says where and why; the file is to be mended.
#[derive(Debug)]
pub struct DataError {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1, unless the file as a whole is at fault.
    pub line: Option<u64>,
    /// The defect there.
    pub reason: Reason,
}

impl fmt::Display for DataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())?;
        if let Some(line) = self.line {
            write!(f, ", line {line}")?;
        }
        write!(f, ": {}", self.reason)
    }
}

impl std::error::Error for DataError {}

/// Defects of a line or a file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// There is no such file, or it cannot be read.
    #[error("cannot be read: {0}")]
    Io(io::Error),
    /// The line is longer than [`LINE_BYTES_MAX`].
    #[error("the line is longer than {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// The line is not text.
    #[error("the line is not UTF-8")]
    NotUtf8,
    /// The header does not name a column that is needed.
    #[error("missing column {0} in the header")]
    MissingColumn(&'static str),
    /// The line is not as wide as the header.
    #[error("the line has {found} columns, the header has {expected}")]
    ColumnCount {
        /// Columns of the header.
        expected: usize,
        /// Columns of the line.
        found: usize,
    },
    /// A number is expected here.
    #[error("column {column} is not a whole number: {text:?}")]
    NotANumber {
        /// The name of the column.
        column: &'static str,
        /// The start of what is there instead.
        text: String,
    },
    /// The line does not fit the rest of the graph.
    #[error(transparent)]
    Defect(#[from] Defect),
    /// No line of another file tells something that everything of this kind has.
    #[error("{entity} {id} has no {lacks}")]
    Incomplete {
        /// Kind of the thing that the line describes.
        entity: Entity,
        /// Its id.
        id: i64,
        /// The part that it lacks.
        lacks: &'static str,
    },
    /// Another line tells something of this kind already, such as another creator.
    #[error("duplicate edge: an earlier line tells the same of {entity} {id}")]
    SecondLink {
        /// Kind of the thing that the edge starts at.
        entity: Entity,
        /// Its id.
        id: i64,
    },
    /// The line is not an answer.
    #[error("not an answer: {0}")]
    NotAnAnswer(String),
}

/// The lines of a file, one at a time, so that memory stays bounded.
#[derive(Debug)]
pub(crate) struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    buffer: Vec<u8>,
    number: u64,
}

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Self, DataError> {
        let path = path.to_owned();
        match File::open(&path) {
            Ok(file) => {
                Ok(Self { path, file: BufReader::new(file), buffer: Vec::new(), number: 0 })
            }
            Err(error) => Err(DataError { path, line: None, reason: Reason::Io(error) }),
        }
    }

    /// The next line without its `\n` or `\r\n`, or `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<&str>, DataError> {
        self.number += 1;
        match self.fill() {
            Ok(false) => Ok(None),
            Ok(true) => match std::str::from_utf8(&self.buffer) {
                Ok(line) => Ok(Some(line)),
                Err(_) => Err(self.error(Reason::NotUtf8)),
            },
            Err(reason) => Err(self.error(reason)),
        }
    }

    /// An error about the line that [`Self::next`] gave last.
    pub(crate) fn error(&self, reason: impl Into<Reason>) -> DataError {
        DataError { path: self.path.clone(), line: Some(self.number), reason: reason.into() }
    }

    fn fill(&mut self) -> Result<bool, Reason> {
        self.buffer.clear();
        // One byte more than allowed, and two for the line break, tell a longest line from a
        // longer one.
        let mut bounded = self.file.by_ref().take(LINE_BYTES_MAX + 3);
        if bounded.read_until(b'\n', &mut self.buffer).map_err(Reason::Io)? == 0 {
            return Ok(false);
        }
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
            if self.buffer.last() == Some(&b'\r') {
                self.buffer.pop();
            }
        }
        if self.buffer.len() as u64 > LINE_BYTES_MAX {
            return Err(Reason::LineTooLong);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_of(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    fn lines_of(bytes: &[u8]) -> Result<Vec<String>, DataError> {
        let file = file_of(bytes);
        let mut lines = Lines::open(file.path())?;
        let mut all = Vec::new();
        while let Some(line) = lines.next()? {
            all.push(line.to_owned());
        }
        Ok(all)
    }

    #[test]
    fn both_line_ends_and_a_missing_last_one_are_understood() {
        assert_eq!(lines_of(b"a\r\n\nb c \n\r\nlast").unwrap(), ["a", "", "b c ", "", "last"]);
        assert!(lines_of(b"").unwrap().is_empty());
    }

    #[test]
    fn a_line_may_be_as_long_as_allowed_and_no_longer() {
        let mut bytes = vec![b'x'; usize::try_from(LINE_BYTES_MAX).unwrap()];
        assert_eq!(lines_of(&bytes).unwrap().len(), 1);
        assert_eq!(lines_of(&[&bytes[..], b"\r\n"].concat()).unwrap().len(), 1);
        bytes.push(b'x');
        for end in [&b""[..], b"\n", b"\r\n"] {
            let error = lines_of(&[b"first\n", &bytes[..], end].concat()).unwrap_err();
            assert!(matches!(error, DataError { line: Some(2), reason: Reason::LineTooLong, .. }));
        }
    }

    #[test]
    fn text_that_is_not_utf8_is_refused_with_its_line() {
        let error = lines_of(b"fine\n\xff\xfe\n").unwrap_err();
        assert!(matches!(error, DataError { line: Some(2), reason: Reason::NotUtf8, .. }));
    }
}
