//! Results of a run: their files, and their table.

use std::path::Path;

use anyhow::Result;
use console::{Output, say};
use serde::Serialize;

/// Opens a file before the work whose results it is for, if one is named.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn open(path: Option<&Path>) -> Result<Option<Output>> {
    path.map(Output::open).transpose()
}

/// Writes the results as JSON, if there is a file for them, and says the table. A reader that has
/// gone costs no file, and a full disk no table.
///
/// # Errors
/// When one of them cannot be written.
pub(crate) fn tell(file: Option<Output>, results: &impl Serialize, table: &str) -> Result<()> {
    let text = serde_json::to_string_pretty(results)?;
    let written = file.map_or(Ok(()), |file| file.write(&text));
    written.and(say(table.trim_end()))
}
